/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Speed bumps (Yang 2009, section 9.4): for a moment, tasks whose memory is charged to a cgroup do not run, because
 * they take it faster than there can be more. The daemon's memory loop says which cgroup, and for how long; nobody has
 * to come back for that, and nobody stays held when the daemon is stuck or gone.
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

/* Until when, by the id of the cgroup that is charged. */
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

/* The id of the cgroup that is charged for the task's memory; 0 where none is. */
static __noinline u64 charged_cgroup_of(struct task_struct *p)
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
	if (bpf_probe_read_kernel(&css, sizeof(css), all) || !css)
		return 0;
	return BPF_CORE_READ(css, cgroup, kn, id);
}

/* Whether the task is held at this moment; who is charged for it must be. */
static __noinline bool bump_holds(struct task_struct *p, u64 now_ns)
{
	u64 id = charged_cgroup_of(p), *until_ns = bpf_map_lookup_elem(&bumps, &id);

	return until_ns && clock_before(now_ns, *until_ns);
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
