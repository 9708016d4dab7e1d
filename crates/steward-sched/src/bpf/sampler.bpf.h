/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Once a second: the load of every CPU, and what follows from it: revocation under overload, reactivation when
 * there is room (Yang 2009, section 8.1). It walks the slots once to measure and to find the candidates, so its
 * cost grows with the number of tasks that have a specification, not with the number of tasks.
 */
#ifndef STEWARD_SAMPLER_BPF_H
#define STEWARD_SAMPLER_BPF_H

#include "best_effort.bpf.h"

/* The most tasks that one CPU puts out in one second. */
#define REVOCATIONS_MAX 8
#define PAGE_SHIFT 12

/* The memory that the task would still have to bring in fits what is free (Yang 2009, section 8.1.2.3 b). */
static __always_inline bool fits_memory(struct task_slot *slot)
{
	struct task_struct *p;
	struct mm_struct *mm;
	u64 virtual_bytes = 0;

	if (settings.memory_free_bytes == ~0ULL)
		return true;
	p = bpf_task_from_pid(slot->tid);
	if (!p)
		return false;
	mm = p->mm;
	if (mm)
		virtual_bytes = (u64)BPF_CORE_READ(mm, total_vm) << PAGE_SHIFT;
	bpf_task_release(p);
	/* Kernel threads have none. The resident part is the daemon's to know: it publishes free plus cached. */
	return virtual_bytes < settings.memory_free_bytes;
}

/* The widest reservation that some CPU could take at this sample. */
static u32 room;

/* Makes an admitted task its CPU's candidate for revocation if none so far suits better. */
static __always_inline void consider_victim(struct cpu_state *state, u32 index, struct task_slot *slot, u32 sample)
{
	bool exhausted = slot->exhausted_sample && sample - slot->exhausted_sample < LOAD_WINDOW;
	u32 rank = load_victim_rank(slot->grant.flags & GRANT_REVOCABLE, exhausted, slot->used);

	if (rank > state->victim_rank) {
		state->victim_rank = rank;
		state->victim = index;
	}
}

/* Measures one slot and makes it its CPU's candidate if it is the best so far. */
static __always_inline void sample_slot(u32 index, struct task_slot *slot, u64 interval_ns, u32 sample)
{
	u64 used_ns = slot->reserved_time_ns - slot->sampled_reserved_ns;
	struct cpu_state *state = cpu_state_of(slot->cpu);

	slot->sampled_reserved_ns = slot->reserved_time_ns;
	slot->used = used_ns < interval_ns ? (u32)(used_ns * LOAD_ONE / interval_ns) : LOAD_ONE;
	if (slot->edf.exhausted != slot->sampled_exhausted) {
		slot->sampled_exhausted = slot->edf.exhausted;
		slot->exhausted_sample = sample;
	}
	if (!state)
		return;
	if (slot->standing == STANDING_ADMITTED) {
		consider_victim(state, index, slot, sample);
	} else {
		__sync_fetch_and_add(&totals.waiting, 1);
		/* One that fits nowhere must not keep those behind it waiting. */
		if (slot->bandwidth < room && slot->waiting_since_ns < state->waiting_since_ns) {
			state->waiting_since_ns = slot->waiting_since_ns;
			state->waiting = index;
		}
	}
}

/* Goes through all slots: measures them, or with only_cpu just looks for that CPU's next victim. */
static __noinline int sample_slots(u64 interval_ns, u32 sample, u32 only_cpu)
{
	u32 high_water = slots_high_water;
	int i;

	bpf_for(i, 0, high_water) {
		u32 index = i;
		struct task_slot *slot = bpf_map_lookup_elem(&slots, &index);

		if (!slot)
			break;
		if (slot->standing == STANDING_NONE)
			continue;
		if (only_cpu != ~0U) {
			struct cpu_state *state = cpu_state_of(only_cpu);

			if (state && slot->cpu == only_cpu && slot->standing == STANDING_ADMITTED)
				consider_victim(state, index, slot, sample);
			continue;
		}
		sample_slot(index, slot, interval_ns, sample);
	}
	return 0;
}

/* Puts tasks out until what remains is expected below admit_below. */
static __noinline int relieve(u32 cpu, u32 sample)
{
	struct cpu_state *state = cpu_state_of(cpu);
	u32 expected, used;
	int i;

	if (!state)
		return 0;
	expected = state->load.measured;
	bpf_for(i, 0, REVOCATIONS_MAX) {
		u32 index = state->victim;
		struct task_slot *slot;

		if (!state->victim_rank || expected < settings.thresholds.admit_below)
			break;
		slot = bpf_map_lookup_elem(&slots, &index);
		if (!slot || slot->standing != STANDING_ADMITTED)
			break;
		used = slot->used;
		revoke(slot, state->victim_rank > 2 * LOAD_ONE ? EVENT_REVOKED_EXHAUSTED : EVENT_REVOKED_HUNGRIEST,
		       expected, settings.thresholds.revoke_above);
		bpf_spin_lock(&state->lock);
		load_relieve(&state->load, used);
		bpf_spin_unlock(&state->lock);
		expected = state->load.measured;
		state->victim_rank = 0;
		sample_slots(0, sample, cpu);
	}
	return 0;
}

/* Takes the task that has waited longest back, if it passes admission here. */
static __noinline int reactivate(u32 cpu)
{
	struct cpu_state *state = cpu_state_of(cpu);
	struct task_slot *slot;
	struct task_struct *p;
	u32 index, load = 0;

	if (!state || state->waiting_since_ns == NEVER)
		return 0;
	index = state->waiting;
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot || slot->standing < STANDING_REFUSED || !fits_memory(slot))
		return 0;
	p = bpf_task_from_pid(slot->tid);
	if (!p)
		return 0;
	if (affinity_allows(p, cpu) && reserve_on(slot, cpu, &load)) {
		state->load.last_activation = state->load.samples;
		edf_begin(&slot->edf, slot->grant.budget_ns, slot->grant.period_ns, clock_now());
		slot->standing = STANDING_ADMITTED;
		report(EVENT_REACTIVATED, slot, load, settings.thresholds.admit_below);
		watch_period(index, 0);
	}
	bpf_task_release(p);
	return 0;
}

/* The domain at which the next look for tasks that have waited too long begins. */
static volatile u32 overdue_cursor;

/* Looks through the queues of best-effort work for tasks that have waited too long. */
static __always_inline void find_all_overdue(u64 now_ns)
{
	struct domain_table *table = domains();
	u32 cpus = settings.cpus, high_water;
	int i;

	if (!table)
		return;
	high_water = table->high_water;
	rescue_left = rescue_room(scx_bpf_dsq_nr_queued(QUEUE_RESCUE), cpus);
	/* Goes on where the last look ran out of room. */
	bpf_for(i, 0, high_water) {
		u32 index = overdue_cursor;

		if (!rescue_left)
			break;
		if (index >= high_water)
			index = 0;
		overdue_cursor = index + 1;
		if (domain_at(table, index)->waiting)
			find_overdue(QUEUE_DOMAIN(index), now_ns);
		if (index && domain_at(table, index)->in_use && scx_bpf_dsq_nr_queued(QUEUE_RESTRICTED(index)) > 0)
			find_overdue(QUEUE_RESTRICTED(index), now_ns);
	}
}

static int take_sample(void *map, u32 *key, struct timer_entry *entry)
{
	u64 now_ns = clock_now(), interval_ns = now_ns - totals.clock_ns, oldest_ns = NEVER;
	u32 sample = totals.samples + 1, cpus = settings.cpus, oldest = 0, widest = 0, online = 0;
	struct domain_table *table = domains();
	int cpu;

	bpf_timer_start(&entry->timer, LOAD_SAMPLE_NS, 0);
	totals.clock_ns = now_ns;
	totals.ktime_ns = bpf_ktime_get_ns();
	totals.samples = sample;
	totals.waiting = 0;
	bpf_for(cpu, 0, cpus) {
		struct cpu_state *state = cpu_state_of(cpu);

		if (!state)
			break;
		state->victim_rank = 0;
		state->waiting_since_ns = NEVER;
		online += state->online;
		if (state->online && load_expected(&state->load) + widest < settings.thresholds.admit_below)
			widest = settings.thresholds.admit_below - load_expected(&state->load);
	}
	room = widest;
	if (table && online)
		table->cpus = online;
	find_all_overdue(now_ns);
	overdue = scx_bpf_dsq_nr_queued(QUEUE_RESCUE) > 0;
	sample_slots(interval_ns, sample, ~0U);
	bpf_for(cpu, 0, cpus) {
		struct cpu_state *state = cpu_state_of(cpu);

		if (!state)
			break;
		if (state->waiting_since_ns < oldest_ns) {
			oldest_ns = state->waiting_since_ns;
			oldest = state->waiting;
		}
	}
	bpf_for(cpu, 0, cpus) {
		struct cpu_state *state = cpu_state_of(cpu);
		u64 used_ns;
		bool over, under;

		if (!state)
			break;
		if (!state->online)
			continue;
		used_ns = state->reserved_time_ns - state->sampled_ns;
		state->sampled_ns = state->reserved_time_ns;
		bpf_spin_lock(&state->lock);
		load_sample(&state->load, used_ns, interval_ns);
		over = load_overloaded(&state->load, settings.thresholds.revoke_above);
		under = load_underloaded(&state->load, settings.thresholds.reactivate_below);
		bpf_spin_unlock(&state->lock);
		if (over)
			relieve(cpu, sample);
		else if (under && oldest_ns != NEVER) {
			/* Whoever waits longest anywhere may move here (Yang 2009, section 8.3). */
			state->waiting = oldest;
			state->waiting_since_ns = oldest_ns;
			reactivate(cpu);
		}
	}
	return 0;
}

static __always_inline int start_sampler(void)
{
	u32 zero = 0;
	struct timer_entry *entry = bpf_map_lookup_elem(&system_timers, &zero);

	if (!entry)
		return -ENOENT;
	totals.clock_ns = clock_now();
	bpf_timer_init(&entry->timer, &system_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&entry->timer, take_sample);
	entry->ready = 1;
	return bpf_timer_start(&entry->timer, LOAD_SAMPLE_NS, 0);
}

#endif
