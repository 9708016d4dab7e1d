/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which domains have tasks waiting that may run on some CPUs only: each CPU keeps a set of those that have some for it,
 * and chooses among them. Where they stand is in order.h.
 */
#ifndef STEWARD_DECIDE_RESTRICTED_H
#define STEWARD_DECIDE_RESTRICTED_H

#include "order.h"

/* In the BPF program, functions that are verified once, and not again in each loop that calls them. */
#ifndef ORDER_PRECEDES
#define ORDER_PRECEDES(t, a, b) order_precedes(t, NULL, a, b, false)
#define RESTRICTED_PRECEDES(t, cpu, number, a, b) order_precedes(t, cpu, a, b, false)
#endif

/* Notes that tasks of the domain that may run on some CPUs only wait for this one. Without the lock, after they were
 * put into their queue. */
DECIDE void restricted_waits(struct cpu_order *cpu, u32 index)
{
	u32 word = (index & (MAX_DOMAINS - 1)) / 64;

	__sync_fetch_and_or(&cpu->restricted[word], 1ULL << (index & 63));
	__sync_fetch_and_or(&cpu->any_restricted, 1ULL << word);
}

/*
 * Forgets it. By this CPU alone, before it looks into the queue: what is put there afterwards is noted again. The
 * word's bit stays until restricted_word() finds the word empty.
 */
DECIDE void restricted_forget(struct cpu_order *cpu, u32 index)
{
	__sync_fetch_and_and(&cpu->restricted[(index & (MAX_DOMAINS - 1)) / 64], ~(1ULL << (index & 63)));
}

DECIDE bool restricted_noted(const struct cpu_order *cpu, u32 index)
{
	return cpu->restricted[(index & (MAX_DOMAINS - 1)) / 64] >> (index & 63) & 1;
}

/* The place of the lowest bit of a number that is not 0: as many ones as the number below it has. */
DECIDE u32 lowest_bit(u64 bits)
{
	u32 below = bits_set((bits & -bits) - 1);

	/* The compiler must not know what the verifier does not. */
	asm volatile("" : "+r"(below));
	return below & 63;
}

/* Which domains of one word are noted; if none is, the word's bit is cleared. */
DECIDE u64 restricted_word(struct cpu_order *cpu, u32 word)
{
	volatile u64 *bits = &cpu->restricted[word & (MAX_DOMAINS / 64 - 1)];
	u64 bit = 1ULL << (word & (MAX_DOMAINS / 64 - 1)), noted = *bits;

	if (noted)
		return noted;
	/* Whoever notes something in this word does so before it notes the word. */
	__sync_fetch_and_and(&cpu->any_restricted, ~bit);
	if (*bits)
		__sync_fetch_and_or(&cpu->any_restricted, bit);
	return 0;
}

/*
 * Of the domains with tasks that may run on some CPUs only, among them this one, the one that comes first among its
 * like; 0 when there is none. Only such as come before the domain `free`, which has tasks for any CPU (0: none has), or
 * with `own` are that domain: one that is behind it must not hide another that is not. `number` is the CPU's.
 * O(k depth) for k such domains: what is confined to few CPUs is seldom much, and nobody else's place depends on it.
 */
DECIDE_CALLED u32 restricted_first(struct domain_table *t, struct cpu_order *cpu, u32 number, u32 free, bool own)
{
	u64 words = *(volatile u64 *)&cpu->any_restricted;
	u32 first = 0, step, bit;

	for (step = loop_begin(); step < MAX_DOMAINS / 64 && words && can_loop; step++) {
		u32 word = lowest_bit(words) & (MAX_DOMAINS / 64 - 1);
		u64 bits = restricted_word(cpu, word);

		words &= words - 1;
		for (bit = loop_begin(); bit < 64 && bits && can_loop; bit++) {
			u32 index = word * 64 + lowest_bit(bits);

			bits &= bits - 1;
			/* Few come before all that were looked at: a comparison each, and seldom two. */
			if (first && !RESTRICTED_PRECEDES(t, cpu, number, index, first))
				continue;
			if (!free || (own && index == free) || ORDER_PRECEDES(t, index, free))
				first = index;
		}
	}
	return first;
}

#endif
