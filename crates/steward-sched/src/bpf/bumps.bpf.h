/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Speed bumps (Yang 2009, section 9.4): for a moment, tasks whose memory is charged to a cgroup do not run, because
 * they take it faster than there can be more. The daemon's memory loop says which cgroup, and for how long; nobody has
 * to come back for that, and nobody stays held when the daemon is stuck or gone. Whoever is charged in a cgroup below
 * that one is held with it: the daemon names only cgroups below which it knows of no other (a program makes some by
 * itself, newer or deeper than what was listed), and what is charged there is charged to that one too.
 *
 * It is the cgroup that pays for memory, whether or not it is a domain here: on many machines few cgroups have the cpu
 * controller. So it is not domains that are held but tasks, in a queue of their own. A task goes there where it has
 * none of the kernel's locks (holds.bpf.h); one that is found elsewhere leaves first. One that stands in its domain's
 * queue when the hold begins is served as before, and caught in user space a moment after it begins to run. When the
 * time is over it runs a slice as one of those that leave, and then waits in its domain's queue as ever.
 *
 * Never held: tasks of the kernel, what has a reservation in force, and everybody on a kernel that does not say where
 * a task was preempted (before 6.16).
 */
#ifndef STEWARD_BUMPS_BPF_H
#define STEWARD_BUMPS_BPF_H

#include "interactive.bpf.h"

/* How many cgroups can be held at a time. */
#define BUMPS_MAX 256
/* For how long one can be held at once. */
#define BUMP_MAX_NS (250 * NSEC_PER_MSEC)
/* One that begins to run although it is held is caught so long afterwards. */
#define BUMP_CATCH_NS (20 * 1000ULL)
/* So long after the last one is over, nobody can have been found held and not be in the queue yet. */
#define BUMP_GRACE_NS (100 * NSEC_PER_MSEC)
/* How many tasks that are held are looked at for those whose time is over. */
#define BUMPED_SCAN_MAX 4096
/* How many levels of cgroups are gone up from the one that is charged. Far deeper than the daemon's list of them, which
 * says who is held, and than what anybody makes but to get away. */
#define BUMP_LEVELS_MAX 256

/* Until when, by the id of the cgroup that is charged, or of one above it. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, BUMPS_MAX);
	__type(key, u64);
	__type(value, u64);
} bumps SEC(".maps");

/* When the last bump is over; 0: there is none, and then nobody is looked at for being held. */
volatile u64 bumps_end_ns;

static __always_inline bool any_bumps(void)
{
	return bumps_end_ns;
}

/* Who is charged for the task's memory, as the address of the memory controller's state of that cgroup; 0 where nobody
 * is. */
static __noinline u64 charged_to(struct task_struct *p)
{
	struct cgroup_subsys_state *css = NULL;
	void *all;

	if (!bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id) || !bpf_core_field_exists(struct css_set, subsys))
		return 0;
	all = BPF_CORE_READ(p, cgroups);
	if (!all)
		return 0;
	all += bpf_core_field_offset(struct css_set, subsys);
	all += bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id) * sizeof(void *);
	if (bpf_probe_read_kernel(&css, sizeof(css), all))
		return 0;
	return (u64)css;
}

/* Whether what is charged there is charged to the cgroup with this id, too. The address may be of one that has gone:
 * then the answer means nothing. */
static __noinline bool is_charged_to(u64 address, u64 id)
{
	struct cgroup_subsys_state *css = (struct cgroup_subsys_state *)address;
	/* On the stack: kept in a register, it is merged with one that holds a pointer, which the verifier refuses. */
	volatile bool found = false;
	int i;

	bpf_for(i, 0, BUMP_LEVELS_MAX) {
		if (!css)
			break;
		if (BPF_CORE_READ(css, cgroup, kn, id) == id) {
			found = true;
			break;
		}
		css = BPF_CORE_READ(css, parent);
	}
	return found;
}

/* Whether the task is held at this moment: who is charged for it, or a cgroup above that. */
static __noinline bool bump_holds(struct task_struct *p, u64 now_ns)
{
	struct cgroup_subsys_state *css = (struct cgroup_subsys_state *)charged_to(p);
	volatile bool holds = false;
	int i;

	bpf_for(i, 0, BUMP_LEVELS_MAX) {
		u64 id, *until_ns;

		if (!css)
			break;
		id = BPF_CORE_READ(css, cgroup, kn, id);
		until_ns = bpf_map_lookup_elem(&bumps, &id);
		if (until_ns && clock_before(now_ns, *until_ns)) {
			holds = true;
			break;
		}
		css = BPF_CORE_READ(css, parent);
	}
	return holds;
}

/* Whether the task, which is best-effort, is held. */
static __always_inline bool bumped(struct task_struct *p, struct task_state *t)
{
	struct task_slot *slot;

	if (!any_bumps() || p->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER | PF_EXITING))
		return false;
	slot = slot_of(t);
	if (slot && slot->standing == STANDING_ADMITTED)
		return false;
	return bump_holds(p, clock_now());
}

#endif
