/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The order of domains: who is served next. Runnable domains stand in a heap by a key; three orders say what
 * the key is. Choosing, inserting and moving a domain costs O(log n) in the domains that stand there, and O(MAX_TOKENS).
 *
 * MTR-LS, Move-To-Rear List Scheduling (Eclipse 1998, section 5). Every domain holds tokens that sum to its share of a
 * service cycle: T times the number of CPUs. The tokens of all domains form one list. The first token whose domain
 * wants to run is served, and what is used of it moves to the rear of the list. So a domain that used less than its
 * share has tokens near the front, and one that used its share lately has them all near the rear.
 *
 * The list is kept as in the paper's section 5.2: a token's place is a stamp, read off the clock of served time (the
 * CPU time that all domains got together), and a domain's key is its first stamp. What differs from the paper, because
 * time here does not come in ticks and shares change as work comes and goes:
 *
 *  - Service close together, about a 16th of a cycle, is one token with the mean of its stamps. That bounds how many there are.
 *  - When a domain's share changes, its tokens are scaled in place: the list's order stays, and the change holds at once.
 *  - A new domain's tokens are spread over the last cycle, as if it had had its share all along.
 *  - A domain may use more than it holds, because slices end at ticks. It pays the difference d by a stamp that
 *    lies d / share ahead: by then the others have had what they are due beside it.
 *  - A domain that used its whole share in one go would come back in one go every cycle. Its service is therefore
 *    spread at the rear at the distances at which it is due, so that after some cycles its tokens lie evenly between
 *    those of the others: at most an eighth of a cycle before the rear, and at most a quarter of one behind it, or the
 *    distance of one payment if that is more. So being early or late now and then costs and gains nothing, and what is
 *    beyond that is forgotten for all alike, whatever their shares.
 *
 * WRR, weighted round-robin (Eclipse 1998, section 6.2): a domain has its share of each cycle; those that have some of it
 * left take turns in the order of arrival, ahead of those that have not.
 *
 * Virtual time: a domain pays used time divided by its share, and the one that has paid least is served first.
 */
#ifndef STEWARD_DECIDE_ORDER_H
#define STEWARD_DECIDE_ORDER_H

#include "domain.h"

enum order {
	ORDER_MTR_LS = 0,
	ORDER_WRR = 1,
	ORDER_VTIME = 2,
};

#define HEAP_ARITY 4 /* half the levels of a binary heap, and the keys of four children are one line of the cache */
#define HEAP_LEVELS 6 /* log4(MAX_DOMAINS) */
#define SERVICE_CYCLE_DEFAULT_NS (500 * NSEC_PER_MSEC)
/* A token holds what was served within this part of a cycle. */
#define TOKENS_PER_CYCLE 16
/* Service is placed at most these parts of a cycle before and behind the rear. */
#define BEFORE_REAR_PER_CYCLE 8
#define BEHIND_REAR_PER_CYCLE 4
/* A domain is always due something. */
#define DUE_MIN_NS 10000ULL
/* A slice of best-effort work. Slices end at the tick after it. */
#define SLICE_NS (3 * NSEC_PER_MSEC)
/* Nobody may lie further behind the others than this, on the clock of the order. */
#define DOMAIN_LAG_MAX_NS (8 * NSEC_PER_SEC)
/* Tokens are scaled by a factor in 2^-SCALE_BITS-ths. What a domain is due stays below 2^43 ns (10 s on 512 CPUs). */
#define SCALE_BITS 20
/* Means of stamps are taken without this many bits, about a microsecond. */
#define MEAN_BITS 10
/* WRR: a key is the cycle above this many bits of the sequence of arrivals. */
#define SEQUENCE_BITS 40
DECIDE struct heap_entry *heap_at(struct domain_table *t, bool behind, u32 position)
{
	return &t->heap[(behind ? MAX_DOMAINS : 0) + (position & (MAX_DOMAINS - 1))];
}

DECIDE u64 heap_key(struct domain_table *t, bool behind, u32 position)
{
	return heap_at(t, behind, position)->key;
}

/* How many stand in the heap; read anew each time, as it changes under a reader without the lock. */
DECIDE u32 heap_count(const struct domain_table *t, bool behind)
{
	return *(const volatile u32 *)&t->heap_counts[behind ? 1 : 0];
}

DECIDE void heap_place(struct domain_table *t, bool behind, u32 position, u64 key, u32 index)
{
	struct heap_entry *entry = heap_at(t, behind, position);

	entry->key = key;
	entry->index = index;
	t->position[index & (MAX_DOMAINS - 1)] = (u16)position;
}

/*
 * The two walks keep their position in the table instead of in a variable: the BPF verifier follows what a variable
 * may hold along every path, and several paths a level through all levels are too many; what is read back from memory
 * is one unknown number.
 */
DECIDE void heap_rise(struct domain_table *t, u32 start, u16 index)
{
	volatile u32 *position = &t->cursor;
	struct domain *d = domain_at(t, index);
	u64 key = d->key;
	bool behind = d->behind;
	u32 level;

	*position = start;
	for (level = 0; level < HEAP_LEVELS; level++) {
		u32 here = *position, parent = (here - 1) / HEAP_ARITY;
		const struct heap_entry *above = heap_at(t, behind, parent);

		if (here == 0 || !clock_before(key, above->key))
			break;
		heap_place(t, behind, here, above->key, above->index);
		*position = parent;
	}
	heap_place(t, behind, *position, key, index);
}

/*
 * A domain that sinks has been served and goes to the rear, or comes from there: it is brought all the way down first, which
 * takes one comparison a level, and rises from there as far as it must.
 */
DECIDE void heap_sink(struct domain_table *t, u32 start, u16 index)
{
	volatile u32 *position = &t->cursor;
	bool behind = domain_at(t, index)->behind;
	u32 level;

	*position = start;
	for (level = 0; level < HEAP_LEVELS; level++) {
		u32 here = *position, count = heap_count(t, behind);
		u32 first = HEAP_ARITY * here + 1, least = first, i;
		u64 least_key;

		if (first >= count)
			break;
		least_key = heap_key(t, behind, first);
		for (i = 1; i < HEAP_ARITY && first + i < count; i++) {
			u64 key = heap_key(t, behind, first + i);

			if (clock_before(key, least_key)) {
				least = first + i;
				least_key = key;
			}
		}
		heap_place(t, behind, here, least_key, heap_at(t, behind, least)->index);
		*position = least;
	}
	heap_rise(t, *position, index);
}

/* Puts a domain that stands in its heap, and whose key has changed, where it now belongs. */
DECIDE void heap_update(struct domain_table *t, u32 position, u16 index)
{
	struct domain *d = domain_at(t, index);

	if (position > 0 && clock_before(d->key, heap_key(t, d->behind, (position - 1) / HEAP_ARITY)))
		heap_rise(t, position, index);
	else
		heap_sink(t, position, index);
}

/* What all domains together are served in one cycle. */
DECIDE u64 order_window(const struct domain_table *t)
{
	return t->service_cycle_ns * (t->cpus ? t->cpus : 1);
}

/* What a domain with this share is due in one cycle. */
DECIDE u64 order_due(const struct domain_table *t, u64 share)
{
	return max_u64(order_window(t) * share / SHARE_ONE, DUE_MIN_NS);
}

/* Virtual time that used_ns costs at this share; the distance in served time after which a share has earned used_ns. */
DECIDE u64 domain_cost(u64 used_ns, u64 share)
{
	return used_ns * SHARE_ONE / share;
}

DECIDE struct token *token_at(struct domain *d, u32 place)
{
	return &d->tokens[place & (MAX_TOKENS - 1)];
}

/* A domain without tokens gets them, spread over the last cycle. */
DECIDE void tokens_begin(const struct domain_table *t, struct domain *d, u64 due_ns)
{
	u64 window_ns = order_window(t), each_ns = due_ns / TOKENS_PER_CYCLE;
	u32 i;

	for (i = 0; i < TOKENS_PER_CYCLE; i++) {
		d->tokens[i].stamp = t->served_ns - window_ns + window_ns / TOKENS_PER_CYCLE * i;
		d->tokens[i].left_ns = each_ns;
	}
	d->first_token = 0;
	d->token_count = TOKENS_PER_CYCLE;
	d->tokens_ns = each_ns * TOKENS_PER_CYCLE;
	d->last_stamp = d->tokens[TOKENS_PER_CYCLE - 1].stamp;
}

/* Scales the domain's tokens to what it is due now. A difference of less than 1/256 is left. */
DECIDE void tokens_scale(struct domain_table *t, struct domain *d, u64 due_ns)
{
	u64 held_ns = d->tokens_ns, ratio, sum_ns = 0, ahead_ns, ahead_then_ns;
	u32 i;

	if (!d->token_count || !held_ns) {
		tokens_begin(t, d, due_ns);
		return;
	}
	if (max_u64(due_ns, held_ns) - min_u64(due_ns, held_ns) <= held_ns / 256)
		return;
	ratio = (due_ns << SCALE_BITS) / held_ns;
	/* All slots: those outside of the ring hold nothing that counts. */
	for (i = 0; i < MAX_TOKENS; i++)
		d->tokens[i].left_ns = d->tokens[i].left_ns * ratio >> SCALE_BITS;
	for (i = 0; i < MAX_TOKENS; i++)
		sum_ns += d->tokens[i].left_ns;
	d->tokens_ns = sum_ns;
	/* What it owes stays the same in CPU time, and a larger share pays it in less. */
	ahead_ns = d->tokens[d->first_token & (MAX_TOKENS - 1)].stamp - t->served_ns;
	if ((s64)ahead_ns > 0 && due_ns > held_ns) {
		ahead_then_ns = (ahead_ns << (SCALE_BITS / 2)) / (ratio >> (SCALE_BITS / 2));
		for (i = 0; i < MAX_TOKENS; i++)
			d->tokens[i].stamp -= ahead_ns - min_u64(ahead_then_ns, ahead_ns);
		d->last_stamp -= ahead_ns - min_u64(ahead_then_ns, ahead_ns);
	}
}

/* Takes used_ns off the first tokens. Returns how much of it they covered. */
DECIDE u64 tokens_take(struct domain *d, u64 used_ns)
{
	volatile u32 *first = &d->first_token, *count = &d->token_count;
	u64 covered_ns = 0;
	u32 i;

	for (i = 0; i < MAX_TOKENS; i++) {
		struct token *token = token_at(d, *first);
		u64 take_ns = min_u64(token->left_ns, used_ns - covered_ns);

		if (!*count)
			break;
		token->left_ns -= take_ns;
		covered_ns += take_ns;
		if (token->left_ns)
			break;
		*first = (*first + 1) & (MAX_TOKENS - 1);
		*count -= 1;
	}
	d->tokens_ns -= covered_ns;
	return covered_ns;
}

/*
 * Appends a token, or adds to the last one if that lies less than a 16th of a cycle before. The stamp is then the mean of
 * the two by what they hold: with the first of them, domains whose service comes close together would gain on others.
 */
DECIDE void tokens_append(const struct domain_table *t, struct domain *d, u64 stamp, u64 left_ns)
{
	struct token *last = token_at(d, d->first_token + d->token_count - 1), *token;

	d->tokens_ns += left_ns;
	d->last_stamp = stamp;
	if (d->token_count && clock_before(stamp, last->stamp + order_window(t) / TOKENS_PER_CYCLE)) {
		last->left_ns += left_ns;
		if (clock_before(last->stamp, stamp) && last->left_ns >> MEAN_BITS)
			last->stamp += (((stamp - last->stamp) >> MEAN_BITS) * (left_ns >> MEAN_BITS) /
					(last->left_ns >> MEAN_BITS))
				       << MEAN_BITS;
		return;
	}
	if (d->token_count >= MAX_TOKENS) {
		/* The two oldest lie before everything of the last cycle: which of their stamps stays makes no difference. */
		token = token_at(d, d->first_token);
		token_at(d, d->first_token + 1)->left_ns += token->left_ns;
		token->left_ns = 0;
		d->first_token = (d->first_token + 1) & (MAX_TOKENS - 1);
		d->token_count--;
	}
	token = token_at(d, d->first_token + d->token_count);
	token->stamp = stamp;
	token->left_ns = left_ns;
	d->token_count++;
}

/* MTR-LS: the domain was served used_ns; what it used moves to the rear. served_ns includes it already. */
DECIDE void mtr_ls_charge(struct domain_table *t, struct domain *d, u64 used_ns, u64 share)
{
	u64 lag_max_ns = DOMAIN_LAG_MAX_NS * (t->cpus ? t->cpus : 1), cost_ns = min_u64(domain_cost(used_ns, share), lag_max_ns);
	u64 window_ns = order_window(t), covered_ns, stamp, nearest, furthest;

	tokens_scale(t, d, order_due(t, share));
	covered_ns = tokens_take(d, used_ns);
	stamp = d->last_stamp + cost_ns;
	nearest = t->served_ns - max_u64(window_ns / BEFORE_REAR_PER_CYCLE, cost_ns);
	furthest = t->served_ns + max_u64(window_ns / BEHIND_REAR_PER_CYCLE, cost_ns);
	if (clock_before(stamp, nearest))
		stamp = nearest;
	if (clock_before(furthest, stamp))
		stamp = furthest;
	if (used_ns > covered_ns) {
		/* Beyond its tokens: it comes back when the others have had theirs. */
		furthest = t->served_ns + min_u64(domain_cost(used_ns - covered_ns, share), lag_max_ns);
		if (clock_before(stamp, furthest))
			stamp = furthest;
	}
	tokens_append(t, d, stamp, covered_ns);
	d->key = token_at(d, d->first_token)->stamp;
}

/* WRR: a new cycle begins when the last one is over. */
DECIDE void wrr_renew(struct domain_table *t, struct domain *d, u64 share, u64 now_ns)
{
	if (!clock_before(now_ns, t->cycle_ends_ns)) {
		t->cycle++;
		t->cycle_ends_ns = now_ns + t->service_cycle_ns;
	}
	if (d->cycle != t->cycle) {
		d->cycle = t->cycle;
		d->cycle_left_ns = (s64)order_due(t, share);
	}
}

/* WRR: the domain goes to the end of those that have some of this cycle left, or of those that wait for the next. */
DECIDE void wrr_arrive(struct domain_table *t, struct domain *d)
{
	u64 sequence = ++t->sequence & ((1ULL << SEQUENCE_BITS) - 1);

	d->key = (t->cycle + (d->cycle_left_ns > 0 ? 0 : 1)) << SEQUENCE_BITS | sequence;
}

/* Advances the domain's virtual time, never further behind the clock than DOMAIN_LAG_MAX_NS. */
DECIDE u64 domain_advance(u64 vtime, u64 clock, u64 cost)
{
	u64 next = vtime + cost;

	return clock_before(clock + DOMAIN_LAG_MAX_NS, next) ? clock + DOMAIN_LAG_MAX_NS : next;
}

/* Forgets what the domain did so far: it begins anew in the order that is in force. */
DECIDE void order_reset(struct domain_table *t, u16 index)
{
	struct domain *d = domain_at(t, index);

	d->token_count = 0;
	d->tokens_ns = 0;
	d->cycle = 0;
	d->cycle_left_ns = 0;
	d->key = t->order == ORDER_MTR_LS ? t->served_ns : t->order == ORDER_WRR ? t->cycle << SEQUENCE_BITS : t->clock;
}

/* Takes a domain out of its heap; not what it holds. */
DECIDE void order_dequeue(struct domain_table *t, u16 index)
{
	struct domain *d = domain_at(t, index);
	u32 position = t->position[index & (MAX_DOMAINS - 1)], count = heap_count(t, d->behind);

	if (!d->queued || position >= count)
		return;
	d->queued = 0;
	count--;
	t->heap_counts[d->behind ? 1 : 0] = count;
	t->position[index & (MAX_DOMAINS - 1)] = NO_POSITION;
	if (position != count)
		heap_update(t, position, (u16)heap_at(t, d->behind, count)->index);
}

/* Puts a domain that is in neither heap into the one where it has to stand, by its key. */
DECIDE void heap_insert(struct domain_table *t, u16 index, bool behind)
{
	struct domain *d = domain_at(t, index);
	u32 count = heap_count(t, behind);

	if (count >= MAX_DOMAINS)
		return;
	d->behind = behind;
	d->queued = 1;
	t->heap_counts[behind ? 1 : 0] = count + 1;
	heap_rise(t, count, index);
}

/* A domain's key may have changed. */
DECIDE void order_update(struct domain_table *t, u16 index)
{
	if (domain_at(t, index)->queued)
		heap_update(t, t->position[index & (MAX_DOMAINS - 1)], index);
}

/* Puts a domain that has waiting tasks into the order. */
DECIDE void order_enqueue(struct domain_table *t, u16 index, u64 standing, u64 now_ns)
{
	struct domain *d = domain_at(t, index);
	u64 share = standing_share(standing);

	if (d->queued)
		return;
	if (t->order == ORDER_MTR_LS) {
		tokens_scale(t, d, order_due(t, share));
		d->key = token_at(d, d->first_token)->stamp;
	} else if (t->order == ORDER_WRR) {
		wrr_renew(t, d, share, now_ns);
		wrr_arrive(t, d);
	} else if (clock_before(d->key, t->clock - SLICE_NS)) {
		/* Nobody saves up virtual time while asleep. */
		d->key = t->clock - SLICE_NS;
	}
	heap_insert(t, index, standing_behind(standing));
}

/* The domain to serve next, 0 when none waits. */
DECIDE u16 order_first(const struct domain_table *t)
{
	if (heap_count(t, false))
		return (u16)t->heap[0].index;
	return heap_count(t, true) ? (u16)t->heap[MAX_DOMAINS].index : 0;
}

/* The first domain is served: virtual time follows it. */
DECIDE void order_serve(struct domain_table *t, u16 index)
{
	if (t->order == ORDER_VTIME && clock_before(t->clock, domain_at(t, index)->key))
		t->clock = domain_at(t, index)->key;
}

/* The domain was served used_ns of CPU time, with or without a reservation of its task. */
DECIDE void order_charge(struct domain_table *t, u16 index, u64 used_ns, u64 share, u64 now_ns)
{
	struct domain *d = domain_at(t, index);

	t->served_ns += used_ns;
	if (t->order == ORDER_MTR_LS) {
		mtr_ls_charge(t, d, used_ns, share);
	} else if (t->order == ORDER_WRR) {
		wrr_renew(t, d, share, now_ns);
		d->cycle_left_ns -= (s64)used_ns;
		wrr_arrive(t, d);
	} else {
		d->key = domain_advance(d->key, t->clock, domain_cost(used_ns, share));
	}
	order_update(t, index);
}

/*
 * A domain stands first, but its tasks are on their way in or out, or may not run on the CPU that asks: those behind it
 * go before it for once.
 */
DECIDE void order_step_back(struct domain_table *t, u16 index)
{
	struct domain *d = domain_at(t, index);

	if (t->order == ORDER_WRR)
		wrr_arrive(t, d);
	else
		d->key += SLICE_NS;
	order_update(t, index);
}

/*
 * Whether a domain has to stand behind changes with what others do, and nobody tells those that wait. So before choosing,
 * three are looked at, and taken out and put in again if they are in the wrong heap, the first two until neither is: the one
 * that stands first; the first of those behind, if it would come before that one; and, as others behind may have a place
 * elsewhere in the tree, one after the other of these.
 */
DECIDE u16 order_first_behind(struct domain_table *t)
{
	if (!heap_count(t, true))
		return 0;
	if (heap_count(t, false) && !clock_before(heap_key(t, true, 0), heap_key(t, false, 0)))
		return 0;
	return (u16)heap_at(t, true, 0)->index;
}

DECIDE u16 order_next_behind(struct domain_table *t)
{
	u32 count = heap_count(t, true);

	t->revised = t->revised + 1 < count ? t->revised + 1 : 0;
	return count ? (u16)heap_at(t, true, t->revised)->index : 0;
}

/* The domain's share has changed by somebody's decision: what it holds, and its place, follow at once. */
DECIDE void order_refresh(struct domain_table *t, u16 index, u64 share)
{
	struct domain *d = domain_at(t, index);

	if (t->order != ORDER_MTR_LS || !d->token_count)
		return;
	tokens_scale(t, d, order_due(t, share));
	d->key = token_at(d, d->first_token)->stamp;
	order_update(t, index);
}

/*
 * Whether domain a, which waits, comes before domain b, which could go on, by more than slack_ns on the clock of the order.
 * b_behind: whether b has to stand behind now; its own entry says so of when it was placed in the order.
 */
DECIDE bool order_comes_before(struct domain_table *t, u16 a, u16 b, bool b_behind, u64 slack_ns)
{
	const struct domain *waits = domain_at(t, a);

	if (waits->behind != b_behind)
		return b_behind;
	return clock_before(waits->key + slack_ns, domain_at(t, b)->key);
}

/* Whether nothing that waits in other domains comes before domain `running`, which could go on. */
DECIDE bool order_nobody_before(struct domain_table *t, u16 running, bool behind)
{
	u16 first = order_first(t);

	return !first || first == running || !order_comes_before(t, first, running, behind, 0);
}

/* Whether a task of domain a, which begins to wait, is to preempt one of domain b, which runs. */
DECIDE bool order_preempts(struct domain_table *t, u16 a, u16 b, bool b_behind)
{
	if (a == b || (t->order == ORDER_WRR && b_behind == domain_at(t, a)->behind))
		return false;
	return order_comes_before(t, a, b, b_behind, t->order == ORDER_VTIME ? SLICE_NS : 0);
}

#endif
