/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The decision headers as functions of the host, for the tests and for the simulator.
 *
 * src/decide/ declares every function here with its Rust name, and mirrors the structures; the tables of host_layout.c
 * let a test compare the two layouts and the constants.
 */
#include <stddef.h>

#include "best_effort.h"
#include "admission.h"
#include "class.h"
#include "edf.h"
#include "holds.h"
#include "load.h"
#include "places.h"
#include "standing.h"

u64 decide_passed_since(u64 since_ns, u64 now_ns)
{
	return passed_since(since_ns, now_ns);
}

u32 decide_edf_bandwidth(u64 budget_ns, u64 period_ns)
{
	return edf_bandwidth(budget_ns, period_ns);
}

void decide_edf_begin(struct edf_task *t, u64 budget_ns, u64 period_ns, u64 now_ns)
{
	edf_begin(t, budget_ns, period_ns, now_ns);
}

bool decide_edf_eligible(const struct edf_task *t, u64 now_ns)
{
	return edf_eligible(t, now_ns);
}

void decide_edf_next_period(struct edf_task *t, u64 start_ns)
{
	edf_next_period(t, start_ns);
}

u32 decide_edf_update(struct edf_task *t, u64 now_ns)
{
	return edf_update(t, now_ns);
}

u32 decide_edf_wake(struct edf_task *t, u64 now_ns)
{
	return edf_wake(t, now_ns);
}

u32 decide_edf_announce(struct edf_task *t, u64 now_ns)
{
	return edf_announce(t, now_ns);
}

void decide_edf_sleep(struct edf_task *t, bool voluntary)
{
	edf_sleep(t, voluntary);
}

bool decide_edf_charge(struct edf_task *t, u64 used_ns)
{
	return edf_charge(t, used_ns);
}

u32 decide_load_decay(u32 load, u32 measured)
{
	return load_decay(load, measured);
}

void decide_load_sample(struct load *l, u64 used_ns, u64 interval_ns)
{
	load_sample(l, used_ns, interval_ns);
}

u32 decide_load_expected(const struct load *l)
{
	return load_expected(l);
}

bool decide_load_admits(const struct load *l, u32 bandwidth, u32 admit_below)
{
	return load_admits(l, bandwidth, admit_below);
}

void decide_load_announce(struct load *l, u32 bandwidth)
{
	load_announce(l, bandwidth);
}

void decide_load_withdraw(struct load *l, u32 bandwidth, u32 samples_ago)
{
	load_withdraw(l, bandwidth, samples_ago);
}

bool decide_edf_timer_serves(u64 timer_ns, u64 now_ns, u64 end_ns)
{
	return edf_timer_serves(timer_ns, now_ns, end_ns);
}

u64 decide_edf_timer_next(u64 now_ns, u64 end_ns)
{
	return edf_timer_next(now_ns, end_ns);
}

u64 decide_edf_lend(struct edf_task *parent, u64 now_ns)
{
	return edf_lend(parent, now_ns);
}

void decide_edf_return(struct edf_task *parent, u64 unused_ns, u64 deadline_ns)
{
	edf_return(parent, unused_ns, deadline_ns);
}

u64 decide_edf_lend_again(struct edf_task *parent, bool resting, u64 lent_deadline_ns, u64 now_ns)
{
	return edf_lend_again(parent, resting, lent_deadline_ns, now_ns);
}

void decide_load_relieve(struct load *l, u32 used)
{
	load_relieve(l, used);
}

bool decide_load_overloaded(const struct load *l, u32 revoke_above)
{
	return load_overloaded(l, revoke_above);
}

bool decide_load_underloaded(const struct load *l, u32 reactivate_below)
{
	return load_underloaded(l, reactivate_below);
}

void decide_load_without(struct load *l, u32 bandwidth, u32 samples_ago, u32 used)
{
	load_without(l, bandwidth, samples_ago, used);
}

void decide_load_find_cut(const struct load *l, const u32 *used, u32 admit_below, struct load_cut *cut)
{
	load_find_cut(l, used, admit_below, cut);
}

bool decide_load_cuts(struct load_cut *cut, u32 rank, u32 used)
{
	return load_cuts(cut, rank, used);
}

bool decide_admission_may_be_irrevocable(u32 uid, u32 named)
{
	return admission_may_be_irrevocable(uid, named);
}

void decide_admission_judge(const struct load *l, const struct admission_declared *d, const struct load_thresholds *limits,
			    const struct admission_claim *claim, struct admission_reason *reason)
{
	admission_judge(l, d, limits, claim, reason);
}

u32 decide_admission_fit(const struct admission_declared *d, const struct admission_claim *claim, u32 user_max,
			 u32 rule)
{
	return admission_fit(d, claim, user_max, rule);
}

bool decide_admission_gives_way(const struct admission_declared *d, const struct admission_claim *claim,
				const struct admission_claim *other, u32 user_max)
{
	u32 had, part;

	return admission_gives_way(d, claim, other, user_max, &had, &part);
}

void decide_admission_declare(struct admission_declared *d, struct admission_claim *claim, u32 rule)
{
	admission_declare(d, claim, rule);
}

void decide_admission_undeclare(struct admission_declared *d, const struct admission_claim *claim)
{
	admission_undeclare(d, claim);
}

void decide_waiters_offer(struct waiters *waiters, const struct waiter *waiter)
{
	waiters_offer(waiters, waiter);
}

void decide_waiters_next(struct waiters *waiters, struct waiter *next)
{
	waiters_next(waiters, next);
}

u32 decide_waiter_retry_after(u32 failures)
{
	return waiter_retry_after(failures);
}

u64 decide_waiter_absent_pages(u64 data, u64 stack, u64 code, s64 anonymous, s64 file, s64 shared)
{
	return waiter_absent_pages(data, stack, code, anonymous, file, shared);
}

void decide_class_used(struct class_use *c, u64 used_ns, u64 now_ns)
{
	class_used(c, used_ns, now_ns);
}

bool decide_class_held(const struct class_use *c, u64 running_ns, u64 now_ns)
{
	return class_held(c, running_ns, now_ns);
}

void decide_interactive_expect(u32 *expected)
{
	interactive_expect(expected);
}

void decide_interactive_in_vain(u32 *expected, u32 seen)
{
	interactive_in_vain(expected, seen);
}

u32 decide_load_victim_rank(bool revocable, bool exhausted_in_window, u32 used)
{
	return load_victim_rank(revocable, exhausted_in_window, used);
}

u64 decide_load_scaled_weight(u64 weight, u32 measured)
{
	return load_scaled_weight(weight, measured);
}

bool decide_hold_leaves(bool held, bool behind, u32 whereabouts)
{
	return hold_leaves(held, behind, whereabouts);
}

bool decide_hold_overstays(bool held, bool behind, u32 whereabouts, u64 waited_ns)
{
	return hold_overstays(held, behind, whereabouts, waited_ns);
}

u64 decide_hold_look_due(u64 took_ns, u64 now_ns)
{
	return hold_look_due(took_ns, now_ns);
}

u64 decide_leaving_place(u64 clock_ns)
{
	return leaving_place(clock_ns);
}

u64 decide_leaving_again(u64 clock_ns, u64 place_ns, u64 used_ns)
{
	return leaving_again(clock_ns, place_ns, used_ns);
}

u64 decide_leaving_clock(u64 clock_ns, u64 place_ns, u64 used_ns, u32 standing)
{
	return leaving_clock(clock_ns, place_ns, used_ns, standing);
}

bool decide_leaving_due(u64 due_ns, u64 now_ns)
{
	return leaving_due(due_ns, now_ns);
}

bool decide_leaving_presses(bool behind, u64 waited_ns)
{
	return leaving_presses(behind, waited_ns);
}

u64 decide_leaving_charge(u64 due_ns, u64 used_ns, u64 now_ns)
{
	return leaving_charge(due_ns, used_ns, now_ns);
}

bool decide_domain_behind(struct domain_table *t, u16 index)
{
	return domain_behind(t, index);
}

void decide_domain_begin(struct domain_table *t, u16 index, u16 parent, u32 weight)
{
	domain_begin(t, index, parent, weight);
}

/* For what is asked on behalf of no CPU in particular. */
static struct cpu_order no_cpu;

void decide_domain_end(struct domain_table *t, u16 index)
{
	order_change(t, &no_cpu, CHANGE_UNQUEUE, index, 0, 0);
	domain_end(t, index);
}

bool decide_domains_lower(struct domain_table *t)
{
	return domains_lower(t);
}

bool decide_domain_has_room(struct domain_table *t, u16 parent)
{
	return domain_has_room(t, parent);
}

void decide_order_enqueue(struct domain_table *t, u16 index, u64 now_ns)
{
	bool waits = order_is_queued(t, index);

	if (!waits || order_outgrown(t, index))
		order_change(t, &no_cpu, waits ? CHANGE_JOIN : CHANGE_QUEUE, index, 0, now_ns);
}

void decide_order_dequeue(struct domain_table *t, u16 index)
{
	order_change(t, &no_cpu, CHANGE_UNQUEUE, index, 0, 0);
}

bool decide_order_is_queued(struct domain_table *t, u16 index)
{
	return order_is_queued(t, index);
}

void decide_order_park(struct domain_table *t, u16 index)
{
	order_change(t, &no_cpu, CHANGE_PARK, index, 0, 0);
}

void decide_order_park_if_held(struct domain_table *t, u16 index)
{
	if (order_change_wanted(domain_at(t, index), CHANGE_PARK))
		order_change(t, &no_cpu, CHANGE_PARK, index, 0, 0);
}

void decide_order_unpark(struct domain_table *t, u16 index, u64 now_ns)
{
	order_change(t, &no_cpu, CHANGE_UNPARK, index, 0, now_ns);
}

u16 decide_order_first(struct domain_table *t)
{
	return (u16)order_first(t);
}

void decide_order_serve(struct domain_table *t, struct cpu_order *cpu, u16 index)
{
	order_serve(t, cpu, index, false);
}

void decide_order_serve_restricted(struct domain_table *t, struct cpu_order *cpu, u16 index)
{
	order_serve(t, cpu, index, true);
}

void decide_order_charge(struct domain_table *t, struct cpu_order *cpu, u32 restriction, u16 index, u64 used_ns, u64 now_ns)
{
	order_change(t, cpu ? cpu : &no_cpu, CHANGE_PAY + restriction, index, used_ns, now_ns);
}

bool decide_order_precedes(struct domain_table *t, struct cpu_order *few, u16 a, u16 b, bool b_runs)
{
	return order_precedes(t, few, a, b, b_runs);
}

void decide_order_join(struct domain_table *t, struct cpu_order *cpu, u32 restriction, u16 index, u64 now_ns)
{
	order_change(t, cpu, CHANGE_JOIN + restriction, index, 0, now_ns);
}

void decide_restricted_waits(struct cpu_order *cpu, u16 index)
{
	restricted_waits(cpu, index);
}

void decide_restricted_forget(struct cpu_order *cpu, u16 index)
{
	restricted_forget(cpu, index);
}

u16 decide_restricted_first(struct domain_table *t, struct cpu_order *cpu, u16 free, bool own)
{
	return (u16)restricted_first(t, cpu, 0, free, own);
}

void decide_order_reset(struct domain_table *t, u16 index)
{
	order_reset(t, index);
}

void decide_order_set_policy(struct domain_table *t, u16 index, const struct domain_policy *policy)
{
	order_set_policy(t, index, policy);
}

u32 decide_domain_weight(u32 cgroup_weight, bool idle)
{
	return domain_weight(cgroup_weight, idle);
}

void decide_domain_weight_changes(struct domain *d, bool more, u32 weight)
{
	domain_weight_changes(d, more, weight);
}

bool decide_standing_take(u32 *standing, u32 from)
{
	return standing_take(standing, from);
}

bool decide_standing_settle(u32 *standing, u32 to)
{
	return standing_settle(standing, to);
}

u32 decide_standing_end(u32 *standing)
{
	return standing_end(standing);
}

u32 decide_places_take(u64 *taken)
{
	return places_take(taken);
}

void decide_places_give(u64 *taken, u32 place)
{
	places_give(taken, place);
}

u32 decide_places_end(const u64 *taken)
{
	return places_end(taken);
}

bool decide_domain_runnable_changes(struct domain *d, bool more, u64 now_ns)
{
	return domain_runnable_changes(d, more, now_ns);
}

void decide_domain_settle(struct domain_table *t, u16 index)
{
	domain_settle(t, index);
}

void decide_domain_set_weight(struct domain_table *t, u16 index, u32 weight)
{
	domain_set_weight(t, index, weight);
}

u16 decide_domain_held_by(struct domain_table *t, u16 index)
{
	return (u16)domain_held_by(t, index);
}

bool decide_domain_suspend(struct domain_table *t, u16 index, bool suspended)
{
	return domain_suspend(t, index, suspended);
}

void decide_domain_set_quota(struct domain_table *t, u16 index, u64 period_ns, u64 quota_ns, u64 burst_ns, u64 now_ns)
{
	domain_set_quota(t, index, period_ns, quota_ns, burst_ns, now_ns);
}

void decide_quota_charge(struct domain *d, u64 used_ns)
{
	quota_charge(d, used_ns);
}

bool decide_quota_refill(struct domain *d, u64 now_ns)
{
	return quota_refill(d, now_ns);
}

u64 decide_task_cost(u64 used_ns, u32 weight)
{
	return task_cost(used_ns, weight);
}

bool decide_rescue_due(u64 waiting_since_ns, bool reader, u64 now_ns)
{
	return rescue_due(waiting_since_ns, reader, now_ns);
}

u32 decide_rescue_look(u64 waiting_since_ns, bool reader, bool called, u32 leaving, u32 standing, u64 now_ns)
{
	return rescue_look(waiting_since_ns, reader, called, leaving, standing, now_ns);
}

bool decide_looks_from_end(u32 looks)
{
	return looks_from_end(looks);
}

bool decide_rescue_presses(u64 waiting_since_ns, u64 now_ns)
{
	return rescue_presses(waiting_since_ns, now_ns);
}

u64 decide_rescue_interval_ns(u32 standing, u32 cpus, bool presses)
{
	return rescue_interval_ns(standing, cpus, presses);
}

bool decide_rescue_allowed(u64 last_ns, u64 interval_ns, u64 now_ns)
{
	return rescue_allowed(last_ns, interval_ns, now_ns);
}

u64 decide_rescue_begins(u64 last_ns, u64 interval_ns, u64 now_ns)
{
	return rescue_begins(last_ns, interval_ns, now_ns);
}

u64 decide_rescue_paid(u64 began_ns, u64 used_ns, u64 interval_ns)
{
	return rescue_paid(began_ns, used_ns, interval_ns);
}

u32 decide_rescue_room(u32 standing, u32 cpus)
{
	return rescue_room(standing, cpus);
}

u64 decide_task_spread(const struct domain *d, u32 weight, u32 random)
{
	return task_spread(d, weight, random);
}

u64 decide_task_join(u64 vtime, u64 clock, u64 spread_ns)
{
	return task_join(vtime, clock, spread_ns);
}

u64 decide_task_moves(u64 vtime, u64 clock_before_ns, u64 clock_ns)
{
	return task_moves(vtime, clock_before_ns, clock_ns);
}

bool decide_task_preempts(u64 waking, u64 vtime, u64 ran_ns, u64 turn_ns, u32 weight)
{
	return task_preempts(waking, vtime, ran_ns, turn_ns, weight);
}

u64 decide_task_preempts_in(u64 waking, u64 vtime, u64 ran_ns, u64 turn_ns, u32 weight)
{
	return task_preempts_in(waking, vtime, ran_ns, turn_ns, weight);
}
