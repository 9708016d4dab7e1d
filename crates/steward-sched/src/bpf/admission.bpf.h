/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who is in the interactive class: slots, admission, revocation.
 *
 * A task that has a specification has a slot. adopt() gives it one and submits it to admission; release() takes it
 * away. While its standing is STANDING_ADMITTED its reservation counts on one CPU. The rules are in decide/load.h and
 * decide/admission.h.
 *
 * What is not static here is verified for itself, once in each program, and not again on each way to it.
 */
#ifndef STEWARD_ADMISSION_BPF_H
#define STEWARD_ADMISSION_BPF_H

#include "state.bpf.h"

static __always_inline struct event *new_event(u32 kind)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		__sync_fetch_and_add(&totals.events_lost, 1);
		return NULL;
	}
	event->at_ns = bpf_ktime_get_ns();
	event->kind = kind;
	event->user = 0;
	return event;
}

static __noinline int report(u32 kind, struct task_slot *slot, u32 load, u32 threshold)
{
	struct event *event;

	if (!slot)
		return 0;
	event = new_event(kind);
	if (!event)
		return 0;
	event->tid = slot->tid;
	event->pid = slot->pid;
	event->user = slot->claim.uid;
	event->cpu = slot->cpu;
	event->load = load;
	event->bandwidth = slot->claim.bandwidth;
	event->threshold = threshold;
	event->reason = slot->reason;
	__builtin_memcpy(event->name, slot->name, sizeof(event->name));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* How deep user namespaces nest (include/linux/user_namespace.h: at most 32 levels below the first). */
#define USER_NAMESPACES_MAX 33

/* Of how many ranges at most a user namespace keeps them in its own structure. */
#define USER_RANGES_INSIDE 5

/*
 * Whose tasks are those of users in a user namespace that root made: as whom its own root is here, because who is that
 * may be any of the others. Where that is the machine's root, or nobody, each is who they are: uid.
 */
static __always_inline u32 user_within(struct user_namespace *ns, u32 uid)
{
	u32 ranges = BPF_CORE_READ(ns, uid_map.nr_extents), root = BPF_CORE_READ(ns, uid_map.extent[0].lower_first);

	if (!ranges || ranges > USER_RANGES_INSIDE || BPF_CORE_READ(ns, uid_map.extent[0].first) || !root)
		return uid;
	return root;
}

/*
 * Whose task it is: the user who started it, whoever a set-user-ID program made of that. In a user namespace that an
 * ordinary user has made every user is theirs, because they may be any of their subordinate ones there; in one that
 * root has made, as containers have, see user_within().
 */
static __noinline u32 user_of(struct task_struct *p)
{
	const struct cred *cred;
	struct user_namespace *ns;
	u32 uid;
	int i;

	if (!p)
		return 0;
	cred = BPF_CORE_READ(p, real_cred);
	uid = BPF_CORE_READ(cred, uid.val);
	ns = BPF_CORE_READ(cred, user_ns);
	bpf_for(i, 0, USER_NAMESPACES_MAX) {
		u32 owner;

		if (!ns || BPF_CORE_READ(ns, level) <= 0)
			break;
		owner = BPF_CORE_READ(ns, owner.val);
		uid = owner ? owner : user_within(ns, uid);
		ns = BPF_CORE_READ(ns, parent);
	}
	return uid;
}

/* An event about a task that has no slot. */
static __noinline int report_task(u32 kind, struct task_struct *p, u32 bandwidth)
{
	struct event *event;

	if (!p)
		return 0;
	event = new_event(kind);
	if (!event)
		return 0;
	event->tid = p->pid;
	event->pid = p->tgid;
	event->user = user_of(p);
	event->cpu = 0;
	event->load = 0;
	event->threshold = 0;
	event->bandwidth = bandwidth;
	__builtin_memset(&event->reason, 0, sizeof(event->reason));
	bpf_probe_read_kernel(event->name, sizeof(event->name), p->comm);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/*
 * What Steward marks priorities for the disk with that children are not to have (Mark::Alone in
 * steward-core/src/disk/priority.rs), where the kernel has hints to devices (include/uapi/linux/ioprio.h).
 */
#define IOPRIO_HINT_SHIFT 3
#define IOPRIO_HINT_MASK 0x3ff
#define IOPRIO_HINT_ALONE 0x100
#define IOPRIO_CLASS_SHIFT 13
#define IOPRIO_CLASS_RT 1

/*
 * Children take over the priority of whoever started them for the disk (copy_io()), and the mark with it. The daemon
 * decides whether this one is to have it. Anybody may set the mark, so that whoever has nothing to do with interactive
 * tasks is told only with the real-time class, which takes the right to.
 */
static __always_inline bool is_heir(struct task_struct *p, struct task_state *t)
{
	struct io_context *context;
	u16 ioprio;

	if (!bpf_core_field_exists(p->io_context))
		return false;
	context = BPF_CORE_READ(p, io_context);
	if (!context)
		return false;
	ioprio = BPF_CORE_READ(context, ioprio);
	if ((ioprio >> IOPRIO_HINT_SHIFT & IOPRIO_HINT_MASK) != IOPRIO_HINT_ALONE)
		return false;
	return t->slot || t->may_start_interactive || ioprio >> IOPRIO_CLASS_SHIFT == IOPRIO_CLASS_RT;
}

static __always_inline void report_heir(struct task_struct *p, struct task_state *t)
{
	if (is_heir(p, t))
		report_task(EVENT_HEIR, p, 0);
}

/* The same of one that has just been born. Threads of a program that has the priority keep it. */
static __always_inline void report_born_heir(struct task_struct *p, struct task_state *t)
{
	struct task_struct *leader;
	struct task_state *leader_state;

	if (t->slot || !is_heir(p, t))
		return;
	leader = p->group_leader;
	leader_state = leader && p->tgid != p->pid ? task_state_of(leader) : NULL;
	if (!leader_state || !leader_state->slot)
		report_task(EVENT_HEIR, p, 0);
}

/* Starts the slot's timer for delay_ns from now; period_begins() is set as its callback by ops.init. */
static __always_inline void watch_period(u32 index, u64 delay_ns)
{
	struct timer_entry *entry = bpf_map_lookup_elem(&slot_timers, &index);

	if (entry)
		bpf_timer_start(&entry->timer, delay_ns, 0);
}

/* Writes down what the task asks for; done at each attempt, because settings change. */
static __always_inline void make_claim(struct task_slot *slot)
{
	u32 uid = slot->claim.uid;

	slot->claim.limited = uid && uid != settings.owner;
	slot->claim.irrevocable = !(slot->grant.flags & GRANT_REVOCABLE) &&
				  admission_may_be_irrevocable(uid, slot->grant.user);
}

static __always_inline void read_limits(struct load_thresholds *limits)
{
	limits->reactivate_below = settings.thresholds.reactivate_below;
	limits->admit_below = settings.thresholds.admit_below;
	limits->revoke_above = settings.thresholds.revoke_above;
	limits->irrevocable_max = settings.thresholds.irrevocable_max;
	limits->user_max = settings.thresholds.user_max;
}

/* How the task fits on the CPU now (enum admission_fit), and how loaded that is. Without the lock: reserve_on()
 * decides. */
__noinline u32 would_take(struct task_slot *slot, u32 cpu, u32 *load)
{
	struct cpu_state *state = cpu_state_of(cpu);
	struct admission_reason reason = {};
	struct load_thresholds limits;

	if (!slot || !state || !load)
		return FITS_NOT;
	read_limits(&limits);
	*load = load_expected(&state->load);
	admission_judge(&state->load, &state->declared, &limits, &slot->claim, &reason);
	return admission_fit(&state->declared, &slot->claim, limits.user_max, reason.rule);
}

/*
 * The least loaded of the CPUs that the task may use and that would take it; without one of those, of those where
 * others would give way to it; without one of those the least loaded one, unless `taken_back`: then only CPUs count
 * where one may be taken back now. Not the CPU `except`. -1 when there is none. *taken: whether it would take it.
 */
static __always_inline s32 choose_cpu(struct task_struct *p, struct task_slot *slot, u32 except, bool taken_back,
				      bool *taken)
{
	u32 best_load = ~0U, best_takes = taken_back ? FITS_IN_ITS_PART : FITS_NOT, cpus = settings.cpus;
	s32 best = -1;
	int cpu;

	bpf_for(cpu, 0, cpus) {
		struct cpu_state *state = cpu_state_of(cpu);
		u32 load = 0, takes;

		if (!state)
			break;
		if (!state->online || cpu == except || !affinity_allows(p, cpu) ||
		    (taken_back && !load_underloaded(&state->load, settings.thresholds.reactivate_below)))
			continue;
		takes = would_take(slot, cpu, &load);
		if (takes < best_takes || (takes == best_takes && load >= best_load))
			continue;
		best_takes = takes;
		best_load = load;
		best = cpu;
	}
	*taken = best_takes == FITS_NOW;
	return best;
}

/* Adds the reservation to the CPU if admission allows it. load_seen gets what it was held against, the slot the
 * reason. */
__noinline bool reserve_on(struct task_slot *slot, u32 cpu, u32 *load_seen)
{
	struct cpu_state *state = cpu_state_of(cpu);
	struct admission_reason reason = {};
	struct admission_claim claim;
	struct load_thresholds limits;
	u32 sample, load;
	bool admitted;

	if (!slot || !state || !load_seen)
		return false;
	read_limits(&limits);
	make_claim(slot);
	claim = slot->claim;
	bpf_spin_lock(&state->lock);
	load = load_expected(&state->load);
	admission_judge(&state->load, &state->declared, &limits, &claim, &reason);
	admitted = reason.rule < RULE_USE;
	if (admitted) {
		load_announce(&state->load, claim.bandwidth);
		admission_declare(&state->declared, &claim, reason.rule);
		state->reserved += claim.bandwidth;
		state->admitted++;
	}
	sample = state->load.samples;
	bpf_spin_unlock(&state->lock);
	*load_seen = load;
	if (reason.rule == RULE_FITS && !claim.irrevocable && !(slot->grant.flags & GRANT_REVOCABLE))
		reason.rule = RULE_NOT_NAMED;
	slot->reason = reason;
	if (!admitted)
		return false;
	slot->claim = claim;
	slot->cpu = cpu;
	slot->admitted_sample = sample;
	return true;
}

/* Takes what a task counts as off a CPU; with moved_used also what it used there, which goes on elsewhere. */
__noinline int unreserve_on(u32 cpu, struct admission_claim *counted, u32 admitted_sample, u32 moved_used)
{
	struct cpu_state *state = cpu_state_of(cpu);
	struct admission_claim claim;

	if (!state || !counted)
		return 0;
	claim = *counted;
	bpf_spin_lock(&state->lock);
	if (moved_used)
		load_without(&state->load, claim.bandwidth, state->load.samples - admitted_sample, moved_used);
	else
		load_withdraw(&state->load, claim.bandwidth, state->load.samples - admitted_sample);
	admission_undeclare(&state->declared, &claim);
	state->reserved = state->reserved > claim.bandwidth ? state->reserved - claim.bandwidth : 0;
	if (state->admitted)
		state->admitted--;
	bpf_spin_unlock(&state->lock);
	return 0;
}

static __always_inline void unreserve(struct task_slot *slot)
{
	struct admission_claim claim = slot->claim;

	unreserve_on(slot->cpu, &claim, slot->admitted_sample, 0);
}

/* Whether the CPU's load leaves room for a newcomer once an admitted task is gone from there. */
static __always_inline bool frees_enough(struct cpu_state *state, struct task_slot *other, u32 bandwidth)
{
	struct load after = state->load;

	load_without(&after, other->claim.bandwidth, after.samples - other->admitted_sample, other->used);
	return load_admits(&after, bandwidth, settings.thresholds.admit_below);
}

/*
 * Ends a change of a slot's standing. False when the task gave the slot up meanwhile: then nothing is left of it.
 */
static __noinline bool settle(u32 index, struct task_slot *slot, u32 standing)
{
	if (!slot || standing_settle(&slot->standing, standing))
		return true;
	if (standing == STANDING_ADMITTED)
		unreserve(slot);
	places_give(slots_taken, index);
	return false;
}

/* Moves an admitted task to another CPU that takes it. */
__noinline bool move_away(u32 index, struct task_slot *slot)
{
	struct admission_claim before;
	struct task_struct *p;
	struct task_state *t;
	u32 from, admitted_sample, load = 0;
	bool takes = false, moved;
	s32 to = -1;

	if (!slot)
		return false;
	p = bpf_task_from_pid(slot->tid);
	if (!p)
		return false;
	t = task_state_of(p);
	if (t && t->slot == index + 1)
		to = choose_cpu(p, slot, slot->cpu, false, &takes);
	bpf_task_release(p);
	if (to < 0 || !takes || !standing_take(&slot->standing, STANDING_ADMITTED))
		return false;
	before = slot->claim;
	from = slot->cpu;
	admitted_sample = slot->admitted_sample;
	moved = reserve_on(slot, to, &load);
	if (moved)
		unreserve_on(from, &before, admitted_sample, slot->used);
	else
		slot->claim = before;
	if (settle(index, slot, STANDING_ADMITTED) && moved)
		report(EVENT_ADMITTED, slot, load, settings.thresholds.admit_below);
	watch_period(index, 0);
	return moved;
}

/* How many admitted tasks are still tried before it is given up to make room. In memory, as rescue_left is. */
static volatile u32 moves_left;
#define MOVES_TRIED_MAX 32

/* Moves a task away from a CPU that a newcomer depends on, if that makes room for it. */
__noinline bool make_room(struct task_slot *newcomer, u32 cpu)
{
	struct cpu_state *state = cpu_state_of(cpu);
	u32 end = places_end(slots_taken);
	int i;

	if (!newcomer || !state)
		return false;
	moves_left = MOVES_TRIED_MAX;
	bpf_for(i, 0, end) {
		u32 index = i;
		struct task_slot *other = bpf_map_lookup_elem(&slots, &index);

		if (!other || !moves_left)
			break;
		if (other->standing != STANDING_ADMITTED || other->cpu != cpu ||
		    !frees_enough(state, other, newcomer->claim.bandwidth))
			continue;
		moves_left -= 1;
		if (move_away(index, other))
			return true;
	}
	return false;
}

/* Its CPU is why it is put out: that went offline, or, where it is online, is no longer allowed to it. */
static __always_inline void give_no_cpu_as_reason(struct task_slot *slot)
{
	const struct cpu_state *state = cpu_state_of(slot->cpu);

	slot->reason.rule = RULE_NO_CPU;
	slot->reason.amount = state && state->online;
	slot->reason.limit = 0;
}

/* Puts an admitted task out of the class, because of a rule that held amount against limit. */
static __always_inline void revoke(u32 index, struct task_slot *slot, u32 kind, u32 rule, u32 amount, u32 limit)
{
	if (!standing_take(&slot->standing, STANDING_ADMITTED))
		return;
	slot->waiting_since_ns = clock_now();
	if (rule == RULE_NO_CPU) {
		give_no_cpu_as_reason(slot);
	} else {
		slot->reason.rule = rule;
		slot->reason.amount = amount;
		slot->reason.limit = limit;
	}
	unreserve(slot);
	if (settle(index, slot, STANDING_REVOKED))
		report(kind, slot, amount, limit);
}

/* Puts an admitted task out if it gives way to a newcomer. True when that has room then. */
__noinline bool gives_way(struct task_slot *newcomer, u32 index, u32 cpu)
{
	struct task_slot *other = bpf_map_lookup_elem(&slots, &index);
	struct cpu_state *state = cpu_state_of(cpu);
	u32 had = 0, part = 0, load = 0;

	if (!newcomer || !other || !state)
		return false;
	if (!admission_gives_way(&state->declared, &newcomer->claim, &other->claim, settings.thresholds.user_max, &had, &part))
		return false;
	revoke(index, other, EVENT_REVOKED_DISPLACED, RULE_PART, had, part);
	return would_take(newcomer, cpu, &load) == FITS_NOW;
}

/* Where a newcomer fits into its user's part, those give way whose users have more than theirs: first who has used
 * nothing lately. True when it has room. */
__noinline bool others_give_way(struct task_slot *newcomer, u32 cpu)
{
	u32 end = places_end(slots_taken), load = 0;
	int i;

	if (!newcomer || would_take(newcomer, cpu, &load) != FITS_IN_ITS_PART)
		return false;
	bpf_for(i, 0, 2 * end) {
		bool idle_only = (u32)i < end;
		u32 index = idle_only ? i : i - end;
		struct task_slot *other = bpf_map_lookup_elem(&slots, &index);

		if (!other)
			break;
		if (other->standing == STANDING_ADMITTED && other->cpu == cpu && !(idle_only && other->used) &&
		    gives_way(newcomer, index, cpu))
			return true;
	}
	return false;
}

/* Adds the reservation to the CPU; if nothing is in its way but what others have beyond their parts, these give way. */
__noinline bool reserve_or_claim(struct task_slot *slot, u32 cpu, u32 *load)
{
	if (!slot || !load)
		return false;
	return reserve_on(slot, cpu, load) ||
	       (slot->reason.rule == RULE_TOGETHER && others_give_way(slot, cpu) && reserve_on(slot, cpu, load));
}

/*
 * Submits a slot to admission on the least loaded CPU (Yang 2009, sections 8.1.2.1 and 8.3). Where a task depends on
 * few CPUs, one that does not makes room for it. The caller has taken the slot's standing. Returns what it is then.
 */
static __noinline int admit(struct task_struct *p, struct task_slot *slot, u32 index)
{
	bool takes = false, admitted = false;
	u32 load = 0;
	s32 cpu;

	if (!p || !slot)
		return 0;
	make_claim(slot);
	cpu = choose_cpu(p, slot, ~0U, false, &takes);
	if (cpu >= 0) {
		admitted = reserve_or_claim(slot, cpu, &load);
		if (!admitted && slot->reason.rule == RULE_USE && p->nr_cpus_allowed < settings.cpus &&
		    make_room(slot, cpu))
			admitted = reserve_on(slot, cpu, &load);
		slot->cpu = cpu;
	} else {
		slot->reason.rule = RULE_NO_CPU;
		slot->reason.uid = slot->claim.uid;
		slot->reason.amount = 0;
		slot->reason.limit = 0;
	}
	if (admitted) {
		edf_begin(&slot->edf, slot->grant.budget_ns, slot->grant.period_ns, clock_now());
		slot->failures = 0;
	} else {
		slot->waiting_since_ns = clock_now();
	}
	if (settle(index, slot, admitted ? STANDING_ADMITTED : STANDING_REFUSED))
		report(admitted ? EVENT_ADMITTED : EVENT_REFUSED, slot, load, settings.thresholds.admit_below);
	return admitted ? STANDING_ADMITTED : STANDING_REFUSED;
}

/* An admitted task that may no longer run where its reservation is must be admitted elsewhere or wait. */
static __noinline int displace(struct task_struct *p, u32 index)
{
	struct task_slot *slot = bpf_map_lookup_elem(&slots, &index);

	if (!p || !slot || !standing_take(&slot->standing, STANDING_ADMITTED))
		return 0;
	give_no_cpu_as_reason(slot);
	unreserve(slot);
	report(EVENT_REVOKED_DISPLACED, slot, 0, 0);
	admit(p, slot, index);
	watch_period(index, 0);
	return 0;
}

/* Takes the task's specification away. Whoever takes the slot off the task gives it back. */
static __noinline int release(struct task_state *t)
{
	struct task_slot *slot;
	u32 index, standing;

	if (!t)
		return 0;
	index = __sync_lock_test_and_set(&t->slot, 0);
	if (!index)
		return 0;
	index--;
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot)
		return 0;
	report(EVENT_RELEASED, slot, 0, 0);
	slot->tid = 0;
	standing = standing_end(&slot->standing);
	if (standing == STANDING_ADMITTED)
		unreserve(slot);
	if (standing != STANDING_CHANGING)
		places_give(slots_taken, index);
	return 0;
}

/* A slot for the task, emptied: the one that it has, or the first that is free. MAX_SLOTS when there is none. */
static __always_inline u32 take_slot(struct task_state *t)
{
	u32 index = __sync_lock_test_and_set(&t->slot, 0), standing;
	struct task_slot *slot;

	if (index) {
		index--;
		slot = bpf_map_lookup_elem(&slots, &index);
		standing = slot ? standing_end(&slot->standing) : STANDING_CHANGING;
		if (slot && standing == STANDING_ADMITTED)
			unreserve(slot);
		if (standing != STANDING_CHANGING)
			return index;
	}
	return places_take(slots_taken);
}

/*
 * Gives the task a specification in place of whatever it has, and submits it to admission. Returns its standing;
 * STANDING_NONE when there is no slot for it, or when it has ended. The caller holds t->changing.
 */
static __noinline int adopt(struct task_struct *p, struct task_state *t, struct grant *grant)
{
	struct task_slot *slot;
	u32 index, standing;

	if (!p || !t || !grant || *(volatile u8 *)&t->ended)
		return STANDING_NONE;
	index = take_slot(t);
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot) {
		report_task(EVENT_TABLE_FULL, p, edf_bandwidth(grant->budget_ns, grant->period_ns));
		return STANDING_NONE;
	}
	__builtin_memset(slot, 0, sizeof(*slot));
	slot->grant = *grant;
	slot->claim.bandwidth = edf_bandwidth(grant->budget_ns, grant->period_ns);
	slot->claim.uid = user_of(p);
	slot->tid = p->pid;
	slot->pid = p->tgid;
	bpf_probe_read_kernel(slot->name, sizeof(slot->name), p->comm);
	slot->standing = STANDING_CHANGING;
	t->permitted_in = p->self_exec_id;
	standing = admit(p, slot, index);
	/* Published last: from here on the scheduler's callbacks see it whole. */
	__sync_lock_test_and_set(&t->slot, index + 1);
	if (*(volatile u8 *)&t->ended) {
		/* It ended meanwhile, and nobody else comes for the slot: ops.exit_task has been here. */
		release(t);
		return STANDING_NONE;
	}
	return standing;
}

/* A task keeps its slot over exec, under the program's name. A thread that was not the leader is from now on, with
 * its tid. */
static __always_inline void keep_slot(struct task_struct *p, struct task_slot *slot)
{
	slot->tid = p->pid;
	slot->grant.requests_at = 0; /* That was in the memory of the program before. */
	bpf_probe_read_kernel(slot->name, sizeof(slot->name), p->comm);
}

#endif
