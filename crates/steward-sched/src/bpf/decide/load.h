/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Load of one CPU, admission, and when to revoke and reactivate (Yang 2009, sections 8.1.1 and 8.1.2).
 *
 * measured (Rload) follows what interactive tasks really used; it rises quickly and falls slowly. projected
 * (Sload) adds what the specifications of newcomers announce and decays towards measured, halving the distance
 * with each sample: the paper leaves the rate open, and at this one a newcomer's announcement has faded to a
 * sixteenth when the observation window has seen it whole.
 *
 * All loads are parts per million of the CPU.
 */
#ifndef STEWARD_DECIDE_LOAD_H
#define STEWARD_DECIDE_LOAD_H

#include "types.h"

/* The observation window: four samples, one a second. */
#define LOAD_WINDOW 4
#define LOAD_SAMPLE_NS NSEC_PER_SEC
/* How much of a new sample counts: between d_min and d_max. */
#define LOAD_DECAY_MIN 50000U
#define LOAD_DECAY_MAX 950000U

struct load {
	u32 measured; /* Rload */
	u32 projected; /* Sload */
	u32 window[LOAD_WINDOW]; /* latest first */
	u32 samples; /* taken so far */
	u32 last_activation; /* value of samples when a task was last reactivated here */
};

struct load_thresholds {
	u32 reactivate_below; /* Rlo */
	u32 admit_below; /* Rhi */
	u32 revoke_above; /* Rmax */
	u32 irrevocable_max; /* the most C/T that may be declared by what is never revoked */
	u32 user_max; /* the most C/T that users who are not exempt may declare, each and all together */
};

/* The weight of a sample: d = (1 + diff) / 2 * (d_max - d_min) + d_min, with diff = load - measured. */
DECIDE u32 load_decay(u32 load, u32 measured)
{
	u64 half = ((u64)LOAD_ONE + load - measured) / 2;

	return (u32)(half * (LOAD_DECAY_MAX - LOAD_DECAY_MIN) / LOAD_ONE) + LOAD_DECAY_MIN;
}

/* Takes the sample of one interval: used_ns of CPU time went to reservations in interval_ns. */
DECIDE void load_sample(struct load *l, u64 used_ns, u64 interval_ns)
{
	u32 load = LOAD_ONE, decay, i;

	if (interval_ns && used_ns < interval_ns)
		load = (u32)(used_ns * LOAD_ONE / interval_ns);
	decay = load_decay(load, l->measured);
	l->measured = (u32)(((u64)(LOAD_ONE - decay) * l->measured + (u64)decay * load) / LOAD_ONE);
	if (l->projected > l->measured)
		l->projected = l->measured + (l->projected - l->measured) / 2;
	else
		l->projected = l->measured - (l->measured - l->projected) / 2;
	for (i = LOAD_WINDOW - 1; i > 0; i--)
		l->window[i] = l->window[i - 1];
	l->window[0] = l->measured;
	l->samples++;
}

/* What admission holds against the threshold: the larger of what is used and what is expected. */
DECIDE u32 load_expected(const struct load *l)
{
	return l->measured > l->projected ? l->measured : l->projected;
}

DECIDE bool load_admits(const struct load *l, u32 bandwidth, u32 admit_below)
{
	return (u64)load_expected(l) + bandwidth < admit_below;
}

DECIDE void load_announce(struct load *l, u32 bandwidth)
{
	u64 sum = (u64)l->projected + bandwidth;

	l->projected = sum > 4ULL * LOAD_ONE ? 4 * LOAD_ONE : (u32)sum;
}

/*
 * A task that was announced samples_ago samples ago is gone. Within the window its announcement, as far as it has
 * not decayed yet, is taken back; after that the measurement speaks.
 */
DECIDE void load_withdraw(struct load *l, u32 bandwidth, u32 samples_ago)
{
	u32 rest;

	if (samples_ago >= LOAD_WINDOW)
		return;
	rest = bandwidth >> samples_ago;
	l->projected = l->projected > rest ? l->projected - rest : 0;
}

/*
 * A task that used so much of the CPU was revoked. What it used is gone at once; the average, which falls slowly on
 * purpose, would otherwise call for more and more victims.
 */
DECIDE void load_relieve(struct load *l, u32 used)
{
	l->measured = l->measured > used ? l->measured - used : 0;
	l->window[0] = l->measured;
}

/* The load without an admitted task that used so much of the CPU in the last sample: what there would be if it moved
 * away. */
DECIDE void load_without(struct load *l, u32 bandwidth, u32 samples_ago, u32 used)
{
	u32 announced = samples_ago < LOAD_WINDOW ? bandwidth >> samples_ago : 0, part = announced > used ? announced : used;

	l->projected = l->projected > part ? l->projected - part : 0;
	l->measured = l->measured > used ? l->measured - used : 0;
}

DECIDE bool load_window_full(const struct load *l)
{
	return l->samples >= LOAD_WINDOW;
}

DECIDE bool load_overloaded(const struct load *l, u32 revoke_above)
{
	u32 i;

	if (!load_window_full(l))
		return false;
	for (i = 0; i < LOAD_WINDOW; i++)
		if (l->window[i] <= revoke_above)
			return false;
	return true;
}

/* Room for a reactivation: every sample low, and none reactivated here within the last window. */
DECIDE bool load_underloaded(const struct load *l, u32 reactivate_below)
{
	u32 i;

	if (!load_window_full(l) || l->samples - l->last_activation < LOAD_WINDOW)
		return false;
	for (i = 0; i < LOAD_WINDOW; i++)
		if (l->window[i] >= reactivate_below)
			return false;
	return true;
}

/* How finely victims are told apart by what they used: each rank is a sixteenth of a CPU wide. */
#define LOAD_VICTIM_STEPS 16
/* Ranks of victims; those from LOAD_VICTIM_STEPS on exhausted their budget. */
#define LOAD_VICTIM_RANKS 32
#define LOAD_NO_VICTIM (~0U)

/*
 * How well a task suits as the victim of a revocation: those that exhausted their budget within the window come first,
 * then the hungriest (used: parts per million of the CPU during the last sample). LOAD_NO_VICTIM: what is never
 * revoked, and what used nothing, because nothing would be won.
 */
DECIDE u32 load_victim_rank(bool revocable, bool exhausted_in_window, u32 used)
{
	u32 step;

	if (!revocable || !used)
		return LOAD_NO_VICTIM;
	step = (u32)((u64)used * LOAD_VICTIM_STEPS / (LOAD_ONE + 1));
	if (step >= LOAD_VICTIM_STEPS)
		step = LOAD_VICTIM_STEPS - 1;
	return step + (exhausted_in_window ? LOAD_VICTIM_STEPS : 0);
}

/* Whom to put out on one CPU: everyone above rank, and those of that rank until rest is made up. */
struct load_cut {
	u32 rank; /* LOAD_VICTIM_RANKS: nobody */
	u32 rest;
};

/*
 * Where the cut lies that brings an overloaded CPU below admit_below: used[] is what the tasks of each rank used. One
 * look, so that revocation ends in the turn in which it begins, however many tasks it takes.
 */
DECIDE void load_find_cut(const struct load *l, const u32 *used, u32 admit_below, struct load_cut *cut)
{
	/* One more, because the load is to fall below and not to the threshold. */
	u32 need = l->measured >= admit_below ? l->measured - admit_below + 1 : 0, i;

	cut->rank = LOAD_VICTIM_RANKS;
	cut->rest = 0;
	for (i = loop_begin(); i < LOAD_VICTIM_RANKS && can_loop; i++) {
		u32 rank = LOAD_VICTIM_RANKS - 1 - masked(i, LOAD_VICTIM_RANKS - 1);

		if (!need)
			break;
		cut->rank = rank;
		cut->rest = need;
		need = need > used[rank] ? need - used[rank] : 0;
	}
}

/* Whether a task of that rank is put out; counts what it used. */
DECIDE bool load_cuts(struct load_cut *cut, u32 rank, u32 used)
{
	if (rank == LOAD_NO_VICTIM || rank < cut->rank)
		return false;
	if (rank > cut->rank)
		return true;
	if (!cut->rest)
		return false;
	cut->rest = cut->rest > used ? cut->rest - used : 0;
	return true;
}

/*
 * The load by which a CPU is compared for best-effort work: its runnable weight over what reservations leave
 * (Yang 2009, section 8.3).
 */
DECIDE u64 load_scaled_weight(u64 weight, u32 measured)
{
	u32 rest = measured < LOAD_ONE - 10000 ? LOAD_ONE - measured : 10000;

	return weight * LOAD_ONE / rest;
}

#endif
