/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The orders of Eclipse 1998, which count by service cycles: to compare virtual time (order.h) with.
 *
 * MTR-LS, the paper's own (Eclipse 1998, sections 5.1 and 5.2), to compare with. A contender holds tokens, pieces of
 * service, that sum to its fraction of a cycle; fractions are fixed: what is not reserved is divided by weight among
 * all contenders of the level, whether they want it or not. A token's place is a stamp, read off the level's clock of
 * service. The first token whose owner waits is served, and what is used of it moves to the rear. What is used beyond
 * the tokens is paid by a stamp that lies used / fraction ahead. Service close together, within a 16th of a cycle, is
 * one token.
 *
 * WRR, weighted round-robin (Eclipse 1998, section 6.2), to compare with: a contender has its fraction of each cycle;
 * those that have some of it left take turns in the order of arrival, ahead of those that have not.
 */
#ifndef STEWARD_DECIDE_CYCLES_H
#define STEWARD_DECIDE_CYCLES_H

#include "contender.h"

/* MTR-LS: a token holds what was served within this part of a cycle. */
#define TOKENS_PER_CYCLE 16
/* A contender's fraction is worth this at least in a cycle. */
#define DUE_MIN_NS 10000ULL
/* Tokens are scaled by a factor in 2^-SCALE_BITS-ths. What is due stays below 2^43 ns (10 s on 512 CPUs). */
#define SCALE_BITS 20
/* Means of stamps are taken without this many bits, about a microsecond. */
#define MEAN_BITS 10
/* WRR: a key is the cycle above this many bits of the sequence of arrivals. */
#define SEQUENCE_BITS 40

/*
 * A contender's fraction under the paper's orders, in SHARE_ONE-ths: its reservation, and its weight's part of what is
 * not reserved, divided among all children of the level, idle or not, and the level's own tasks, if there are any.
 */
DECIDE u64 node_fraction(struct domain_table *t, u32 level, u32 node)
{
	const struct domain *d = domain_at(t, level);
	u64 all = d->all_weight, rest = d->all_reserved < SHARE_ONE ? SHARE_ONE - d->all_reserved : 0;
	u64 weight = node_weight(t, node), fraction;

	if (d->runnable || node_is_own(node))
		all += domain_own_weight(d);
	fraction = node_reserved(t, node) + rest * weight / (all > weight ? all : weight);
	return fraction ? fraction : 1;
}

/* What a contender with this fraction is due in one cycle. */
DECIDE u64 order_due(const struct domain_table *t, u64 fraction)
{
	return max_u64(order_window(t) * fraction / SHARE_ONE, DUE_MIN_NS);
}

DECIDE struct tokens *tokens_of(struct domain_table *t, u32 node)
{
	return &t->tokens[node & (2 * MAX_DOMAINS - 1)];
}

DECIDE struct token *token_at(struct tokens *tokens, u32 place)
{
	return &tokens->ring[masked(place, MAX_TOKENS - 1)];
}

/* Tokens of a contender that has none: spread over the last cycle, as if it had had its fraction all along. */
DECIDE void tokens_begin(const struct domain_table *t, struct tokens *tokens, u64 served_ns, u64 due_ns)
{
	u64 window_ns = order_window(t), each_ns = due_ns / TOKENS_PER_CYCLE;
	u32 i;

	for (i = loop_begin(); i < MAX_TOKENS && can_loop; i++)
		token_at(tokens, i)->left_ns = 0;
	for (i = loop_begin(); i < TOKENS_PER_CYCLE && can_loop; i++) {
		token_at(tokens, i)->stamp = served_ns - window_ns + window_ns / TOKENS_PER_CYCLE * i;
		token_at(tokens, i)->left_ns = each_ns;
	}
	tokens->first = 0;
	tokens->count = TOKENS_PER_CYCLE;
	tokens->held_ns = each_ns * TOKENS_PER_CYCLE;
	tokens->last_stamp = tokens->ring[TOKENS_PER_CYCLE - 1].stamp;
}

/* Scales the tokens to what their owner is due now. A difference of less than 1/256 is left. */
DECIDE void tokens_scale(const struct domain_table *t, struct tokens *tokens, u64 served_ns, u64 due_ns)
{
	u64 held_ns = tokens->held_ns, ratio, sum_ns = 0;
	u32 i;

	if (!tokens->count || !held_ns) {
		tokens_begin(t, tokens, served_ns, due_ns);
		return;
	}
	if (max_u64(due_ns, held_ns) - min_u64(due_ns, held_ns) <= held_ns / 256)
		return;
	ratio = (due_ns << SCALE_BITS) / held_ns;
	/* All places: those outside of the ring hold nothing. */
	for (i = loop_begin(); i < MAX_TOKENS && can_loop; i++) {
		token_at(tokens, i)->left_ns = token_at(tokens, i)->left_ns * ratio >> SCALE_BITS;
		sum_ns += token_at(tokens, i)->left_ns;
	}
	tokens->held_ns = sum_ns;
}

/* Takes used_ns off the first tokens. Returns how much of it they covered. Counted in memory, as walks are (heap.h). */
DECIDE u64 tokens_take(struct tokens *tokens, u64 used_ns)
{
	volatile u32 *first = &tokens->first, *count = &tokens->count;
	volatile u64 *covered_ns = &tokens->covered_ns;
	u32 i;

	*covered_ns = 0;
	for (i = loop_begin(); i < MAX_TOKENS && can_loop; i++) {
		struct token *token = token_at(tokens, *first);
		u64 take_ns = min_u64(token->left_ns, used_ns - *covered_ns);

		if (!*count)
			break;
		token->left_ns -= take_ns;
		*covered_ns += take_ns;
		if (token->left_ns)
			break;
		*first = (*first + 1) & (MAX_TOKENS - 1);
		*count -= 1;
	}
	tokens->held_ns -= *covered_ns;
	return *covered_ns;
}

/*
 * Appends a token, or adds to the last one if that lies less than a 16th of a cycle before. The stamp is then the mean
 * of the two by what they hold: with the first of them, those whose service comes close together would gain on others.
 */
DECIDE void tokens_append(const struct domain_table *t, struct tokens *tokens, u64 stamp, u64 left_ns)
{
	struct token *last = token_at(tokens, tokens->first + tokens->count - 1), *token;

	tokens->held_ns += left_ns;
	tokens->last_stamp = stamp;
	if (tokens->count && clock_before(stamp, last->stamp + order_window(t) / TOKENS_PER_CYCLE)) {
		last->left_ns += left_ns;
		if (clock_before(last->stamp, stamp) && last->left_ns >> MEAN_BITS)
			last->stamp += (((stamp - last->stamp) >> MEAN_BITS) * (left_ns >> MEAN_BITS) /
					(last->left_ns >> MEAN_BITS))
				       << MEAN_BITS;
		return;
	}
	if (tokens->count >= MAX_TOKENS) {
		/* The two oldest lie before everything of the last cycle: which of their stamps stays makes no difference. */
		token = token_at(tokens, tokens->first);
		token_at(tokens, tokens->first + 1)->left_ns += token->left_ns;
		token->left_ns = 0;
		tokens->first = (tokens->first + 1) & (MAX_TOKENS - 1);
		tokens->count--;
	}
	token = token_at(tokens, tokens->first + tokens->count);
	token->stamp = stamp;
	token->left_ns = left_ns;
	tokens->count++;
}

/*
 * MTR-LS: a contender joins those who wait (used_ns is 0), or what it used moves to the rear; served_ns includes that
 * already. Returns its key.
 */
DECIDE_CALLED u64 mtr_ls_turn(struct domain_table *t, u32 level, u32 node, u64 used_ns)
{
	struct tokens *tokens = tokens_of(t, node);
	u64 fraction = node_fraction(t, level, node), served_ns = domain_at(t, level)->served_ns;
	u64 covered_ns, stamp = served_ns;

	tokens_scale(t, tokens, served_ns, order_due(t, fraction));
	if (used_ns) {
		covered_ns = tokens_take(tokens, used_ns);
		if (used_ns > covered_ns)
			stamp += min_u64((used_ns - covered_ns) * SHARE_ONE / fraction,
					 DOMAIN_LAG_MAX_NS * order_cpus(t));
		if (clock_before(stamp, tokens->last_stamp))
			stamp = tokens->last_stamp;
		tokens_append(t, tokens, stamp, covered_ns);
	}
	return token_at(tokens, tokens->first)->stamp;
}

/*
 * WRR: a contender joins those who wait, or was served used_ns. It goes to the end of those that have some of this
 * cycle left, or of those that wait for the next; a new cycle begins when the last one is over. Returns its key.
 */
DECIDE_CALLED u64 wrr_turn(struct domain_table *t, u32 level, u32 node, u64 used_ns, u64 now_ns)
{
	struct domain *d = domain_at(t, level);
	struct tokens *tokens = tokens_of(t, node);

	if (!clock_before(now_ns, d->cycle_ends_ns)) {
		d->cycle++;
		d->cycle_ends_ns = now_ns + t->service_cycle_ns;
	}
	if (tokens->cycle != d->cycle) {
		tokens->cycle = d->cycle;
		tokens->cycle_left_ns = (s64)order_due(t, node_fraction(t, level, node));
	}
	tokens->cycle_left_ns -= (s64)used_ns;
	d->sequence++;
	return (d->cycle + (tokens->cycle_left_ns > 0 ? 0 : 1)) << SEQUENCE_BITS |
	       (d->sequence & ((1ULL << SEQUENCE_BITS) - 1));
}

#endif
