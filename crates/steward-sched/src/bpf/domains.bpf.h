/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The callbacks by which cgroups become domains: made, removed, given weights and quotas, and changed by tasks.
 */
#ifndef STEWARD_DOMAINS_BPF_H
#define STEWARD_DOMAINS_BPF_H

#include "upkeep.bpf.h"

static __always_inline void task_joins(struct domain_table *table, struct task_state *t, u32 index)
{
	t->domain = index;
	__sync_fetch_and_add(&domain_at(table, index)->tasks, 1);
}

static __always_inline void task_leaves(struct domain_table *table, struct task_state *t)
{
	__sync_fetch_and_sub(&domain_at(table, t->domain)->tasks, 1);
}

/* Whether a cgroup below this domain is given a domain of its own, and its index if so. */
static __always_inline u32 take_domain(struct domain_table *table, u32 parent)
{
	u32 index;

	if (!domain_has_room(table, parent) || bpf_map_pop_elem(&free_domains, &index))
		return 0;
	return index;
}

s32 STRUCT_OPS_SLEEPABLE(steward_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	struct domain_table *table = domains();
	u64 id = cgrp->kn->id, now_ns = clock_now(), quota_ns = QUOTA_NONE, period_ns = 0, burst_ns = 0;
	u32 index = ROOT_DOMAIN, parent = 0, weight = args->weight;
	bool idle = false;
	struct domain *d;
	s32 error;

	if (cgrp->level > 0) {
		parent = domain_index_of(cgrp);
		index = take_domain(table, parent);
		if (!index) {
			/* It is part of its parent's domain: a cgroup must not fail to be made for want of one here. */
			__sync_fetch_and_add(&totals.cgroups_without_domain, 1);
			return 0;
		}
	}
	error = scx_bpf_create_dsq(QUEUE_DOMAIN(index), -1);
	/* A queue that an earlier domain with this index left is as good as a new one. */
	if (!error || error == -EEXIST)
		error = scx_bpf_create_dsq(QUEUE_RESTRICTED(index), -1);
	if (error && error != -EEXIST) {
		if (index != ROOT_DOMAIN)
			bpf_map_push_elem(&free_domains, &index, BPF_ANY);
		return error;
	}
	if (bpf_core_field_exists(args->bw_quota_us) && args->bw_quota_us != ~0ULL) {
		quota_ns = args->bw_quota_us * 1000;
		period_ns = args->bw_period_us * 1000;
		burst_ns = args->bw_burst_us * 1000;
	}
	if (bpf_core_field_exists(args->sched_idle))
		idle = args->sched_idle;
	d = domain_at(table, index);
	bpf_spin_lock(&domains_lock);
	d->cgroup_id = id;
	d->used_ns = 0;
	d->reserved_used_ns = 0;
	d->waited_ns = 0;
	d->runnable_ns = 0;
	d->runnable_squared_ns = 0;
	d->counted_ns = now_ns;
	domain_begin(table, index, parent, domain_weight(weight, idle));
	domain_set_quota(table, index, period_ns, quota_ns, burst_ns, now_ns);
	bpf_spin_unlock(&domains_lock);
	if (quota_ns != QUOTA_NONE)
		watch_quotas();
	bpf_map_update_elem(&domain_of_cgroup, &id, &index, BPF_ANY);
	return 0;
}

void STRUCT_OPS(steward_cgroup_exit, struct cgroup *cgrp)
{
	struct domain_table *table = domains();
	u64 id = cgrp->kn->id;
	u32 index = own_domain_of(cgrp);

	if (!index) {
		if (cgrp->level > 0)
			__sync_fetch_and_sub(&totals.cgroups_without_domain, 1);
		return;
	}
	bpf_map_delete_elem(&domain_of_cgroup, &id);
	bpf_spin_lock(&domains_lock);
	domain_set_quota(table, index, 0, QUOTA_NONE, 0, 0);
	domain_suspend(table, index, false);
	domain_at(table, index)->dying = 1;
	bpf_spin_unlock(&domains_lock);
	/* What is on its way out there is held back no longer. */
	watch_quotas();
}

void STRUCT_OPS(steward_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct task_state *t = task_state_of(p);
	struct domain_table *table = domains();
	u64 now_ns = clock_now(), clock_before_ns;
	bool counted;
	u32 weight;

	if (!t)
		return;
	leave_queue(t);
	weight = t->runnable_weight;
	counted = weight > 0;
	if (counted)
		domain_counts(t, 0, now_ns);
	task_leaves(table, t);
	clock_before_ns = domain_at(table, t->domain)->task_clock;
	task_joins(table, t, domain_index_of(to));
	t->vtime = task_moves(t->vtime, clock_before_ns, domain_at(table, t->domain)->task_clock);
	if (counted)
		domain_counts(t, weight, now_ns);
}

static __always_inline void set_domain_weight(struct cgroup *cgrp, u32 weight)
{
	struct domain_table *table = domains();
	u32 index = own_domain_of(cgrp);

	if (!index)
		return;
	bpf_spin_lock(&domains_lock);
	domain_set_weight(table, index, weight);
	bpf_spin_unlock(&domains_lock);
	/* It may wait, and owe less than it seems to now. */
	if (table->order == ORDER_VIRTUAL_TIME)
		change_order(CHANGE_JOIN, index, 0, 0);
}

void STRUCT_OPS(steward_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	set_domain_weight(cgrp, domain_weight(weight, false));
}

void STRUCT_OPS(steward_cgroup_set_idle, struct cgroup *cgrp, bool idle)
{
	/* Leaving cpu.idle makes the kernel report the weight that then holds. */
	set_domain_weight(cgrp, domain_weight(WEIGHT_DEFAULT, idle));
}

void STRUCT_OPS(steward_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us)
{
	struct domain_table *table = domains();
	u32 index = own_domain_of(cgrp);
	u64 now_ns = clock_now(), quota_ns = quota_us == ~0ULL ? QUOTA_NONE : quota_us * 1000;

	if (!index)
		return;
	bpf_spin_lock(&domains_lock);
	domain_set_quota(table, index, period_us * 1000, quota_ns, burst_us * 1000, now_ns);
	bpf_spin_unlock(&domains_lock);
	watch_quotas();
}

/* The daemon gives a domain a policy. */
SEC("syscall")
int steward_set_domain(struct domain_request *request)
{
	struct domain_table *table = domains();
	u64 id = request->cgroup_id;
	struct domain_policy policy = request->policy;
	u32 *found = bpf_map_lookup_elem(&domain_of_cgroup, &id), index;
	bool known;

	if (!found)
		return -ENOENT;
	index = *found;
	bpf_spin_lock(&domains_lock);
	known = domain_is(table, index, id);
	if (known)
		order_set_policy(table, index, &policy);
	order_changes += 1;
	bpf_spin_unlock(&domains_lock);
	if (table->priorities)
		watch_quotas();
	return known ? 0 : -ENOENT;
}

/*
 * The daemon suspends a domain with all below it, or resumes it. What runs ends at its CPU's next tick; what waits is
 * found by the look at quotas, 5 ms after it was let go. When the daemon dies this scheduler goes with it, and
 * nothing is suspended any more.
 */
SEC("syscall")
int steward_suspend_domain(struct suspend_request *request)
{
	struct domain_table *table = domains();
	u64 id = request->cgroup_id;
	bool suspended = request->suspended, known;
	u32 *found = bpf_map_lookup_elem(&domain_of_cgroup, &id), index;

	if (!found)
		return -ENOENT;
	index = *found;
	bpf_spin_lock(&domains_lock);
	known = domain_is(table, index, id);
	if (known)
		domain_suspend(table, index, suspended);
	bpf_spin_unlock(&domains_lock);
	watch_quotas();
	return known ? 0 : -ENOENT;
}

/*
 * The daemon's memory loop holds what is charged to a cgroup for so long, or lets it go on (0); see bumps.bpf.h. CPUs
 * on which it runs choose again at once, where it is known that it does.
 */
SEC("syscall")
int steward_bump(struct bump_request *request)
{
	u64 id = request->cgroup_id, for_ns = min_u64(request->for_ns, BUMP_MAX_NS);
	u64 until_ns = clock_now() + for_ns;
	u32 cpus = settings.cpus;
	int cpu;

	if (!attached)
		return -ENOENT;
	if (!settings.boundary)
		return -EOPNOTSUPP;
	if (!for_ns) {
		bpf_map_delete_elem(&bumps, &id);
		watch_quotas();
		return 0;
	}
	if (bpf_map_update_elem(&bumps, &id, &until_ns, BPF_ANY))
		return -ENOSPC;
	if (!bumps_end_ns || clock_before(bumps_end_ns, until_ns))
		bumps_end_ns = until_ns;
	watch_quotas();
	bpf_for(cpu, 0, cpus) {
		struct cpu_run *run = cpu_run_of(cpu);

		if (is_charged_to(*(volatile u64 *)&run->charged_to, id))
			kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	return 0;
}

/* The daemon chooses the order among domains: it is in force a moment later, see change_of_order(). */
SEC("syscall")
int steward_set_order(struct order_request *request)
{
	wanted_order.order = request->order;
	wanted_order.service_cycle_ns = request->service_cycle_ns;
	watch_quotas();
	return 0;
}

#endif
