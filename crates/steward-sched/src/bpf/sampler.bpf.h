/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Twice a second: a look for tasks to rescue. Once a second: the load of every CPU, and what follows from it:
 * revocation under overload, reactivation when there is room (Yang 2009, section 8.1). It walks the slots once to
 * measure and to find the candidates, and once more to revoke, so its cost grows with the number of tasks that have a
 * specification, not with the number of tasks, nor with how many of them have to go.
 */
#ifndef STEWARD_SAMPLER_BPF_H
#define STEWARD_SAMPLER_BPF_H

#include "offline.bpf.h"
#include "rescue.bpf.h"

#define PAGE_SHIFT 12
#define MIB_SHIFT 20

/* What the task's program could still bring in, in bytes. Kernel threads bring nothing in. */
static __always_inline u64 absent_bytes(struct task_struct *p)
{
	struct mm_struct *mm = p->mm;
	s64 anonymous = 0, file = 0, shared = 0;

	if (!mm)
		return 0;
	if (bpf_core_field_exists(mm->rss_stat)) {
		file = BPF_CORE_READ(mm, rss_stat[MM_FILEPAGES].count);
		anonymous = BPF_CORE_READ(mm, rss_stat[MM_ANONPAGES].count);
		shared = BPF_CORE_READ(mm, rss_stat[MM_SHMEMPAGES].count);
	}
	return waiter_absent_pages(BPF_CORE_READ(mm, data_vm), BPF_CORE_READ(mm, stack_vm), BPF_CORE_READ(mm, exec_vm),
				   anonymous, file, shared) << PAGE_SHIFT;
}

/* The memory that the task would still have to bring in fits what is free (Yang 2009, section 8.1.2.3 b). */
static __always_inline bool fits_memory(struct task_struct *p, struct task_slot *slot)
{
	u64 absent, free_bytes = settings.memory_free_bytes;

	if (free_bytes == ~0ULL)
		return true;
	absent = absent_bytes(p);
	if (absent < free_bytes)
		return true;
	slot->reason.rule = RULE_MEMORY;
	slot->reason.amount = (u32)min_u64(absent >> MIB_SHIFT, ~0U);
	slot->reason.limit = (u32)min_u64(free_bytes >> MIB_SHIFT, ~0U);
	return false;
}

/* The widest reservation that some CPU could take at this sample. */
static u32 room;
/* Who is tried at this sample. */
static struct waiters waiters;
/* Whether a CPU is overloaded, and whether one has room. */
static volatile u32 to_relieve, to_fill;

static __always_inline u32 victim_rank_of(struct task_slot *slot, u32 sample)
{
	bool exhausted = slot->exhausted_sample && sample - slot->exhausted_sample < LOAD_WINDOW;

	return load_victim_rank(!slot->claim.irrevocable, exhausted, slot->used);
}

/* Measures one slot: what it counts as a victim, or whether it is to be tried again. */
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
	if (slot->standing == STANDING_ADMITTED && (!state->online || slot->misplaced)) {
		/* The CPU went offline, or its affinity changed, while it was being admitted there. */
		slot->misplaced = 0;
		revoke(index, slot, EVENT_REVOKED_DISPLACED, RULE_NO_CPU, 0, 0);
		watch_period(index, 0);
	} else if (slot->standing == STANDING_ADMITTED) {
		u32 rank = victim_rank_of(slot, sample);

		if (rank != LOAD_NO_VICTIM)
			state->used_by_rank[masked(rank, LOAD_VICTIM_RANKS - 1)] += slot->used;
	} else if (standing_waits(slot->standing)) {
		struct waiter waiter = {
			.since_ns = slot->waiting_since_ns,
			.index = index + 1,
			.uid = slot->claim.uid,
			.failures = slot->failures,
		};

		__sync_fetch_and_add(&totals.waiting, 1);
		/* One that fits nowhere, or was tried lately, must not keep those behind it waiting. */
		if (slot->claim.bandwidth < room && (s32)(sample - slot->retry_sample) >= 0)
			waiters_offer(&waiters, &waiter);
	}
}

static __noinline int sample_slots(u64 interval_ns, u32 sample)
{
	u32 end = places_end(slots_taken);
	int i;

	bpf_for(i, 0, end) {
		u32 index = i;
		struct task_slot *slot = bpf_map_lookup_elem(&slots, &index);

		if (!slot)
			break;
		if (slot->standing != STANDING_NONE)
			sample_slot(index, slot, interval_ns, sample);
	}
	return 0;
}

/* Puts a task out whose CPU is overloaded, if it is one of those that have to go. */
static __always_inline void relieve(u32 index, struct task_slot *slot, u32 sample)
{
	struct cpu_state *state = cpu_state_of(slot->cpu);
	u32 rank, used = slot->used, load;

	if (!state || state->cut.rank >= LOAD_VICTIM_RANKS)
		return;
	rank = victim_rank_of(slot, sample);
	load = state->load.measured;
	if (!load_cuts(&state->cut, rank, used))
		return;
	revoke(index, slot, rank >= LOAD_VICTIM_STEPS ? EVENT_REVOKED_EXHAUSTED : EVENT_REVOKED_HUNGRIEST, RULE_USE, load,
	       settings.thresholds.revoke_above);
	bpf_spin_lock(&state->lock);
	load_relieve(&state->load, used);
	bpf_spin_unlock(&state->lock);
}

/* Puts tasks out on all overloaded CPUs until what remains is expected below admit_below. */
static __noinline int relieve_all(u32 sample)
{
	u32 end = places_end(slots_taken);
	int i;

	bpf_for(i, 0, end) {
		u32 index = i;
		struct task_slot *slot = bpf_map_lookup_elem(&slots, &index);

		if (!slot)
			break;
		if (slot->standing == STANDING_ADMITTED)
			relieve(index, slot, sample);
	}
	return 0;
}

/* Takes a task back if a CPU and its memory allow it. */
static __noinline bool reactivate(u32 index)
{
	struct task_slot *slot = bpf_map_lookup_elem(&slots, &index);
	struct task_struct *p;
	u32 standing, load = 0;
	bool fits = false, takes;
	s32 cpu = -1;

	if (!slot)
		return true;
	standing = slot->standing;
	p = bpf_task_from_pid(slot->tid);
	if (!p)
		return true;
	if (standing_waits(standing))
		fits = fits_memory(p, slot);
	if (!standing_waits(standing) || !standing_take(&slot->standing, standing)) {
		bpf_task_release(p);
		return true;
	}
	make_claim(slot);
	if (fits)
		cpu = choose_cpu(p, slot, ~0U, true, &takes);
	bpf_task_release(p);
	if (cpu >= 0 && reserve_or_claim(slot, cpu, &load)) {
		struct cpu_state *state = cpu_state_of(cpu);

		if (state)
			state->load.last_activation = state->load.samples;
		edf_begin(&slot->edf, slot->grant.budget_ns, slot->grant.period_ns, clock_now());
		slot->failures = 0;
		if (settle(index, slot, STANDING_ADMITTED)) {
			report(EVENT_REACTIVATED, slot, load, settings.thresholds.admit_below);
			watch_period(index, 0);
		}
		return true;
	}
	return !settle(index, slot, standing);
}

/* Tries those that wait, one of each user, and remembers who was tried in vain (Yang 2009, section 8.1.2.3). */
static __noinline int reactivate_some(u32 sample)
{
	struct waiter next;
	int i;

	bpf_for(i, 0, WAITERS_MAX) {
		struct task_slot *slot;
		u32 index;

		waiters_next(&waiters, &next);
		if (!next.index)
			break;
		index = next.index - 1;
		if (reactivate(index))
			continue;
		slot = bpf_map_lookup_elem(&slots, &index);
		if (!slot)
			break;
		slot->retry_sample = sample + waiter_retry_after(slot->failures);
		slot->failures++;
	}
	return 0;
}

/* How many looks there were. */
static volatile u32 overdue_looks;
/* The domain at which the next look for tasks that have waited too long begins. */
static volatile u32 overdue_cursor;

/* Looks through the queues of best-effort work for tasks that have waited too long. */
static __always_inline void find_all_overdue(u64 now_ns)
{
	struct domain_table *table = domains();
	u32 high_water = table->high_water;
	int i;

	rescue_left = rescue_room(scx_bpf_dsq_nr_queued(QUEUE_RESCUE), table->cpus);
	overdue_press = find_pressing(now_ns);
	overdue_flags = looks_from_end(overdue_looks) ? SCX_DSQ_ITER_REV : 0;
	overdue_looks += 1;
	/* Those that leave share a part of a CPU however many they are; and who was held for a moment may be again before
	 * it has run. */
	find_overdue(QUEUE_LEAVING, now_ns);
	find_overdue(QUEUE_BUMPED, now_ns);
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

/* Prepares the CPUs for the sample: who is online, and how wide a reservation they could take at most. */
static __noinline u32 begin_sample(void)
{
	u32 cpus = settings.cpus, widest = 0, online = 0;
	int cpu;

	bpf_for(cpu, 0, cpus) {
		struct cpu_state *state = cpu_state_of(cpu);

		if (!state)
			break;
		__builtin_memset(state->used_by_rank, 0, sizeof(state->used_by_rank));
		state->cut.rank = LOAD_VICTIM_RANKS;
		online += state->online;
		if (state->online && load_expected(&state->load) + widest < settings.thresholds.admit_below)
			widest = settings.thresholds.admit_below - load_expected(&state->load);
	}
	room = widest;
	__builtin_memset(&waiters, 0, sizeof(waiters));
	return online;
}

/* Takes the CPU's sample. What follows: to_relieve and to_fill say whether anything does on any CPU. */
static __always_inline void sample_cpu(struct cpu_state *state, u64 interval_ns)
{
	u64 used_ns = state->reserved_time_ns - state->sampled_ns;
	bool over, under;

	state->sampled_ns = state->reserved_time_ns;
	bpf_spin_lock(&state->lock);
	load_sample(&state->load, used_ns, interval_ns);
	over = load_overloaded(&state->load, settings.thresholds.revoke_above);
	under = load_underloaded(&state->load, settings.thresholds.reactivate_below);
	bpf_spin_unlock(&state->lock);
	if (over) {
		load_find_cut(&state->load, state->used_by_rank, settings.thresholds.admit_below, &state->cut);
		to_relieve = 1;
	}
	if (under)
		to_fill = 1;
}

static __always_inline void look(u64 now_ns)
{
	u64 interval_ns = now_ns - totals.clock_ns;
	u32 sample = totals.samples + 1, cpus = settings.cpus, online;
	struct domain_table *table = domains();
	int cpu;

	find_all_overdue(now_ns);
	overdue = scx_bpf_dsq_nr_queued(QUEUE_RESCUE) > 0;
	/* Should a CPU have missed one on its way in: where nobody is held, nobody else looks. */
	if (scx_bpf_dsq_nr_queued(QUEUE_LEAVING) > 0)
		leaving = 1;
	/* Between two samples it is only these that are looked for. */
	if (overdue_looks % (LOAD_SAMPLE_NS / RESCUE_LOOK_NS))
		return;
	totals.clock_ns = now_ns;
	totals.ktime_ns = bpf_ktime_get_ns();
	totals.samples = sample;
	totals.waiting = 0;
	online = begin_sample();
	if (online)
		table->cpus = online;
	drain_offline();
	drain_bumped();
	free_ended_domains();
	sample_slots(interval_ns, sample);
	to_relieve = 0;
	to_fill = 0;
	bpf_for(cpu, 0, cpus) {
		struct cpu_state *state = cpu_state_of(cpu);

		if (!state)
			break;
		if (!state->online)
			continue;
		sample_cpu(state, interval_ns);
		/* Should nobody have told it: see kick_cpu() and INTERACTIVE_EXPECTED. */
		if (scx_bpf_dsq_nr_queued(QUEUE_INTERACTIVE(cpu)) > 0)
			expect_interactive(cpu);
		if (work_waits(cpu))
			kick_cpu(cpu, SCX_KICK_IDLE);
	}
	if (to_relieve)
		relieve_all(sample);
	if (to_fill)
		reactivate_some(sample);
}

static int take_sample(void *map, u32 *key, struct timer_entry *entry)
{
	u64 began_ns = bpf_ktime_get_ns();

	bpf_timer_start(&entry->timer, RESCUE_LOOK_NS, 0);
	look(clock_now());
	forgive(bpf_ktime_get_ns() - began_ns);
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
	return bpf_timer_start(&entry->timer, RESCUE_LOOK_NS, 0);
}

#endif
