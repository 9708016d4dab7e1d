/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Best-effort work: domains, their queues, quotas, suspension, and work that may run on some CPUs only.
 *
 * A waiting task stands in its domain's queue, ordered by its virtual time; the domains that have waiting tasks
 * stand in the order of decide/order.h. Any CPU with nothing interactive to do serves the first domain's
 * first task: as there is one order for all CPUs, a CPU that spends much on reservations takes correspondingly
 * less of it, which is what the paper's scaled balancing aims at (Yang 2009, section 8.3).
 *
 * A domain pays for all CPU time that its tasks get, out of reservations or not: a reservation puts a task ahead of
 * others, and its domain behind them. What the tasks of one domain use on a CPU is put together and paid in parts of
 * half a millisecond, because a payment costs more than a switch: of the two domains that were served there last; what
 * any other owes is paid when the next one follows.
 *
 * A task that may run on some CPUs only is restricted. Each domain has a second queue for these, and each CPU knows
 * which domains have some for it (struct cpu_order): so no CPU looks through what it may not serve.
 */
#ifndef STEWARD_BEST_EFFORT_BPF_H
#define STEWARD_BEST_EFFORT_BPF_H

#include "payments.bpf.h"

#define SERVE_ATTEMPTS 64
/* How many restricted tasks of a domain are looked at for the first that may run on a CPU. */
#define RESTRICTED_SCAN_MAX 1024
/* How many levels of cgroups without a domain of their own are gone up. */
#define CGROUP_LEVELS_MAX 256
/* For how long a CPU looks after a task that was on its way in: its way is some hundred instructions of another CPU,
 * which may stand still meanwhile where a hypervisor runs others. */
#define MISSED_FOR_NS (50 * NSEC_PER_MSEC)
/* How many CPUs are looked at for one to preempt. Those not found here notice at their next tick. */
#define PREEMPT_SCAN_MAX 8

/*
 * The domain's queue was found empty: takes it out of the order, so that others come. A task may be on its way into the
 * queue: the kernel puts it there after ops.enqueue, which has put its domain into the order and counts it among those
 * that wait. Then this CPU looks again until it is there: at once, and if that is too early, as long as it is idle
 * without a pause, else at each tick. Forgotten, the task would wait for the next sample (set_right()), a second long.
 */
static __always_inline void unqueue_domain(struct domain_table *table, u32 index, u32 cpu)
{
	struct cpu_run *run = cpu_run_of(cpu);

	change_order(CHANGE_UNQUEUE, index, 0, 0);
	if (scx_bpf_dsq_nr_queued(QUEUE_DOMAIN(index)) > 0) {
		domain_make_queued(table, index);
	} else if (*(volatile u32 *)&domain_at(table, index)->waiting) {
		run->missed = index;
		run->missed_ns = clock_of(cpu);
		kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
}

/*
 * The same where this CPU forgot that tasks wait in the domain's queue of restricted ones: `taken` (0 or 1) of them it
 * has taken itself.
 */
static __always_inline void forget_restricted(struct domain_table *table, u32 index, u32 cpu, u32 taken)
{
	struct cpu_run *run = cpu_run_of(cpu);

	if (*(volatile u32 *)&domain_at(table, index)->waiting_restricted <= scx_bpf_dsq_nr_queued(QUEUE_RESTRICTED(index)) + taken)
		return;
	run->missed_restricted = index;
	run->missed_ns = clock_of(cpu);
	/* For an idle CPU. One that runs something looks when that is over: whoever is missed has usually been taken by
	 * another CPU. */
	kick_cpu(cpu, 0);
}

/* Whether a task of this domain waits that may run on this CPU and not on all; its virtual time. */
__noinline bool restricted_first_key(u32 index, u32 cpu, u64 *key)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool found = false;
	int i;

	if (!key)
		return false;
	if (!bpf_iter_scx_dsq_new(&it, QUEUE_RESTRICTED(index), 0)) {
		bpf_for(i, 0, RESTRICTED_SCAN_MAX) {
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			if (migration_disabled(p) ? scx_bpf_task_cpu(p) == (s32)cpu : may_run_on(p, cpu)) {
				*key = p->scx.dsq_vtime;
				found = true;
				break;
			}
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return found;
}

/* Whether this CPU has missed a task of any domain that was on its way in, and has not seen it since. */
static __always_inline bool misses_any(struct cpu_run *run)
{
	return run->missed || run->missed_restricted;
}

/* Looks again after a domain of which this CPU missed a task that was on its way in. */
static __always_inline void look_after_missed(struct cpu_run *run, u32 cpu, u64 now_ns)
{
	struct domain_table *table = domains();
	u32 index = run->missed;
	bool in_time = now_ns - run->missed_ns < MISSED_FOR_NS;

	if (index) {
		if (scx_bpf_dsq_nr_queued(QUEUE_DOMAIN(index)) > 0) {
			run->missed = 0;
			domain_make_queued(table, index);
		} else if (!in_time || !*(volatile u32 *)&domain_at(table, index)->waiting) {
			run->missed = 0;
		}
	}
	index = run->missed_restricted;
	if (index) {
		struct cpu_order *order = cpu_order_of(cpu);
		u64 key = 0;

		if (order && restricted_first_key(index, cpu, &key)) {
			run->missed_restricted = 0;
			restricted_waits(order, index);
		} else if (!in_time || *(volatile u32 *)&domain_at(table, index)->waiting_restricted <=
					       scx_bpf_dsq_nr_queued(QUEUE_RESTRICTED(index))) {
			run->missed_restricted = 0;
		}
	}
	/* For an idle CPU. */
	if (misses_any(run))
		kick_cpu(cpu, 0);
}

/*
 * The task began to run without waiting in the order, on an idle CPU or after another one of its domain. Before it goes
 * on in front of others, credit of its domain beyond a cycle is forgotten, as it is when a domain begins to wait.
 */
static __always_inline void join_late(struct domain_table *table, struct task_state *t, u32 cpu)
{
	if (!t->unjoined)
		return;
	t->unjoined = 0;
	if (!order_is_queued(table, t->domain))
		change_order(CHANGE_JOIN + cpu_run_of(cpu)->restriction, t->domain, 0, cpu);
}

/* Whether tasks of domain a come before tasks of domain b, which wait as well; `few`: on this CPU, and both may run on
 * some CPUs only. See state.bpf.h. */
__noinline bool domain_precedes(u32 a, u32 b, u32 few)
{
	struct domain_table *table = domains();

	return order_precedes(table, cpu_order_of(few), a, b, false);
}

/* The same of a domain that waits and one that runs. */
__noinline bool domain_precedes_running(u32 waiting, u32 running, u32 few)
{
	struct domain_table *table = domains();

	return order_precedes(table, cpu_order_of(few), waiting, running, true);
}

/* Whether a task of a domain that waits is to preempt one of a domain that runs. */
static __always_inline bool goes_before(struct domain_table *table, u32 waiting, u32 running, u32 few)
{
	return order_may_preempt(table, waiting, running) && domain_precedes_running(waiting, running, few);
}

static __always_inline bool held_by_quota(struct task_state *t)
{
	struct domain_table *table = domains();

	return table->quotas && domain_held(table, t->domain);
}

/* The task counts among those of its domain that wait; the same of those that may not run everywhere. */
static __always_inline void count_waiting(struct domain_table *table, struct task_state *t)
{
	if (!__sync_lock_test_and_set(&t->counted_waiting, 1))
		__sync_fetch_and_add(&domain_at(table, t->domain)->waiting, 1);
}

static __always_inline void count_restricted(struct domain_table *table, struct task_state *t)
{
	if (!__sync_lock_test_and_set(&t->restricted_waiting, 1))
		__sync_fetch_and_add(&domain_at(table, t->domain)->waiting_restricted, 1);
}

/* Puts a task into its domain's queue. */
static __always_inline void enqueue_domain(struct task_struct *p, struct task_state *t, u64 now_ns, u64 enq_flags)
{
	struct domain_table *table = domains();

	begin_to_wait(t, now_ns);
	t->queue = QUEUE_DOMAIN(t->domain);
	t->unjoined = 0;
	count_waiting(table, t);
	queue_insert_ordered(p, QUEUE_DOMAIN(t->domain), SLICE_NS, t->vtime, enq_flags);
	domain_make_queued(table, t->domain);
}

/* What a CPU has seen of the order: a domain, and order_changes at that moment. */
static __always_inline u64 seen_of(u64 changes, u32 index)
{
	return changes << 16 | (u16)index;
}

/* The domain whose turn it is, 0 when none waits. It is looked for again only when something has changed; that nobody
 * waits is never taken from memory. */
__noinline u32 first_domain(void)
{
	struct domain_table *table = domains();
	struct cpu_run *run = cpu_run_of(bpf_get_smp_processor_id());
	u64 changes = order_changes, seen;
	u32 first;

	if (!*(volatile u32 *)&table->waiting)
		return 0;
	seen = *(volatile u64 *)&run->first_seen;
	if ((u16)seen && seen >> 16 == changes << 16 >> 16)
		return (u16)seen;
	first = order_first(table);
	*(volatile u64 *)&run->first_seen = seen_of(changes, first);
	return first;
}

/* Beside a domain's index, in what a CPU served last: with a task that may run on some CPUs only. */
#define SERVED_RESTRICTED (1U << 15)

/* The domain is served by this CPU: the clocks of its levels follow, if they have not already. */
static __always_inline void serve_order(struct domain_table *table, struct cpu_order *order, struct cpu_run *run, u32 index,
					u32 restricted)
{
	u64 seen = seen_of(order_changes, index | (restricted ? SERVED_RESTRICTED : 0));

	if (run->served_seen == seen)
		return;
	run->served_seen = seen;
	order_serve(table, order, index, restricted);
}

/* Whether tasks wait that may run on some CPUs only, this one among them. */
static __always_inline bool restricted_wait(u32 cpu)
{
	struct cpu_order *order = cpu_order_of(cpu);

	return order && *(volatile u64 *)&order->any_restricted;
}

/* Whether an idle CPU should look for work. */
static __noinline int work_waits(u32 cpu)
{
	struct cpu_run *run = cpu_run_of(cpu);

	return *(volatile u32 *)&run->interactive || overdue || leaving || restricted_wait(cpu) || first_domain();
}

/* Whether anything waits that this CPU may serve. A domain that was served last may stand in the order still, with
 * an empty queue. */
static __always_inline bool others_wait(struct domain_table *table, u16 running, u32 cpu)
{
	if (restricted_wait(cpu))
		return true;
	if (stands_alone(table, running))
		return *(volatile u32 *)&domain_at(table, running)->waiting;
	return first_domain();
}

/* Whether nothing that waits comes before a domain that runs, and could go on. */
static __always_inline bool nobody_before(struct domain_table *table, u32 running)
{
	u32 first;

	if (stands_alone(table, running))
		return true;
	first = first_domain();
	return !first || first == running || !domain_precedes_running(first, running, NOT_FEW);
}

/*
 * A task that wakes up while another one of its domain runs comes next if no other one of the domain waits and no
 * domain that waits comes before theirs. It is put straight into the CPU's own queue, and the kernel takes it from
 * there without asking: that saves programs which hand work to each other most of what a switch costs, also while
 * something in the background waits for its turn. Only one task at a time, because that queue knows no order: whoever
 * comes after it is queued as usual, runs_direct() lets those go first that should, and so does each tick.
 */
static __always_inline bool enqueue_direct(struct task_struct *p, struct task_state *t, u32 cpu, u64 now_ns, u64 enq_flags)
{
	struct domain_table *table = domains();
	struct cpu_run *run = cpu_run_of(cpu);

	if (run->domain != t->domain || run->direct || run->interactive || restricted_wait(cpu))
		return false;
	if (held_by_quota(t) || any_bumps() || table->order == ORDER_WRR || overdue || leaving || maybe_idle)
		return false;
	if (*(volatile u32 *)&domain_at(table, t->domain)->waiting || !nobody_before(table, t->domain))
		return false;
	begin_to_wait(t, now_ns);
	t->direct_cpu = cpu + 1;
	t->unjoined = 1;
	run->direct = 1;
	queue_insert(p, SCX_DSQ_LOCAL, SLICE_NS, enq_flags);
	return true;
}

/* Whether a task of the same domain waits that stands before this one. */
static __always_inline bool own_waits_before(struct domain_table *table, struct task_state *t)
{
	u64 first;

	return *(volatile u32 *)&domain_at(table, t->domain)->waiting && queue_first_key(QUEUE_DOMAIN(t->domain), &first) &&
	       clock_before(first, t->vtime);
}

/*
 * A task that was in the CPU's own queue begins to run, because it was put there or because the kernel left it there
 * while a task of a higher class ran: what came meanwhile and should go first does.
 */
static __always_inline void runs_direct(struct domain_table *table, struct task_state *t, struct cpu_run *run, u32 cpu)
{
	u32 first;

	if (!run->interactive && !restricted_wait(cpu) && !own_waits_before(table, t)) {
		if (stands_alone(table, t->domain))
			return;
		first = first_domain();
		if (!first || !goes_before(table, first, t->domain, NOT_FEW))
			return;
	}
	kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* A CPU has nothing to do: one that has a task in its own queue behind the one that runs takes that, and hands on
 * the other. */
static __always_inline void hand_on_direct(u32 idle_cpu)
{
	u32 cpus = settings.cpus;
	int i;

	bpf_for(i, 1, PREEMPT_SCAN_MAX) {
		u32 cpu = idle_cpu + i;
		struct cpu_run *run;

		if (i >= cpus)
			break;
		if (cpu >= cpus)
			cpu -= cpus;
		run = cpu_run_of(cpu);
		if (run->direct) {
			kick_cpu(cpu, SCX_KICK_PREEMPT);
			break;
		}
	}
}

/* Notes that the domain has tasks for this CPU that may not run everywhere. */
static __always_inline void note_restricted(u32 index, u32 cpu)
{
	struct cpu_order *order = cpu_order_of(cpu);

	if (order)
		restricted_waits(order, index);
}

/* Lets each CPU know where the task, which is on `cpu` and may not run everywhere, may run. */
static __always_inline void note_where_it_may_run(struct task_struct *p, u32 index, u32 cpu)
{
	u32 cpus = settings.cpus;
	int i;

	change_order(CHANGE_JOIN + restriction_of(p), index, 0, cpu);
	note_restricted(index, cpu);
	if (is_pinned(p))
		return;
	bpf_for(i, 0, cpus) {
		if ((u32)i != cpu && may_run_on(p, i) && cpu_online(i))
			note_restricted(index, i);
	}
}

/*
 * Puts a task that may run on some CPUs only into its domain's queue of such tasks, and lets each of those CPUs know.
 * `cpu` is the one that it is on.
 */
static __always_inline void enqueue_restricted(struct task_struct *p, struct task_state *t, u32 cpu, u64 now_ns, u64 enq_flags)
{
	struct domain_table *table = domains();

	begin_to_wait(t, now_ns);
	count_restricted(table, t);
	t->unjoined = 0;
	t->queue = QUEUE_RESTRICTED(t->domain);
	queue_insert_ordered(p, QUEUE_RESTRICTED(t->domain), SLICE_NS, t->vtime, enq_flags);
	note_where_it_may_run(p, t->domain, cpu);
}

/* Takes the domain's first task that may run here and not everywhere. */
static __always_inline bool serve_restricted(struct domain_table *table, u32 index, struct cpu_order *order, u32 cpu)
{
	bool taken;

	restricted_forget(order, index);
	taken = queue_to_local(QUEUE_RESTRICTED(index));
	if (taken && scx_bpf_dsq_nr_queued(QUEUE_RESTRICTED(index)) > 0)
		restricted_waits(order, index);
	else
		forget_restricted(table, index, cpu, taken);
	return taken;
}

/* A task begins or ceases to count among what is runnable in its domain. */
static __noinline int domain_counts(struct task_state *t, u32 weight, u64 now_ns)
{
	struct domain_table *table = domains();
	struct domain *d;
	bool settle;

	if (!t)
		return 0;
	d = domain_at(table, t->domain);
	if (weight) {
		t->runnable_weight = weight;
		domain_weight_changes(d, true, weight * WEIGHT_SCALE);
		settle = domain_runnable_changes(d, true, now_ns);
	} else {
		if (!t->runnable_weight)
			return 0;
		domain_weight_changes(d, false, t->runnable_weight * WEIGHT_SCALE);
		t->runnable_weight = 0;
		settle = domain_runnable_changes(d, false, now_ns);
	}
	if (settle && d->parent) {
		bpf_spin_lock(&domains_lock);
		domain_settle(table, t->domain);
		bpf_spin_unlock(&domains_lock);
	}
	return 0;
}

/* What may come next on a CPU. */
struct choice {
	u64 key; /* the virtual time of the task, as far as it is known */
	u32 index; /* its domain; 0: nothing waits */
	u32 restricted; /* it comes from the queue of those that may not run everywhere */
	u32 free; /* the first domain whose tasks may run everywhere */
};

/* The first domain with tasks for this CPU that may not run everywhere, of those before `free`: restricted_first(). */
__noinline u32 first_restricted(u32 cpu, u32 free, u32 own)
{
	struct domain_table *table = domains();
	struct cpu_order *order = cpu_order_of(cpu);
	u32 first;

	if (!order)
		return 0;
	first = restricted_first(table, order, cpu, free, own);
	/* The compiler must not know what the verifier does not. */
	asm volatile("" : "+r"(first));
	return first;
}

/* Of two domains' tasks, those that may run everywhere and those that may not, the first. */
__noinline int choose_first(u32 cpu, struct choice *choice)
{
	struct domain_table *table = domains();
	struct cpu_order *order = cpu_order_of(cpu);
	u32 free, restricted = 0;
	u64 key = 0;

	if (!order || !choice)
		return 0;
	free = first_domain();
	if (*(volatile u64 *)&order->any_restricted)
		restricted = first_restricted(cpu, free, true);
	choice->index = free;
	choice->free = free;
	choice->restricted = 0;
	if (restricted && restricted == free) {
		bool found = restricted_first_key(free, cpu, &key);

		/* None of them for this CPU, if all were looked at. */
		if (!found && scx_bpf_dsq_nr_queued(QUEUE_RESTRICTED(free)) <= RESTRICTED_SCAN_MAX) {
			restricted_forget(order, restricted);
			forget_restricted(table, restricted, cpu, 0);
		}
		/* Its first task may run everywhere: others of the few that come before it are not behind that. */
		if (!found || (queue_first_key(QUEUE_DOMAIN(free), &choice->key) && clock_before(choice->key, key)))
			restricted = first_restricted(cpu, free, false);
	}
	if (!restricted)
		return 0;
	choice->index = restricted;
	choice->restricted = 1;
	return 0;
}

/* The domain, or one above it, that is held; 0 when none is. */
__noinline u32 held_domain(u32 index)
{
	struct domain_table *table = domains();

	return table->quotas ? domain_held_by(table, index) : 0;
}

/* Whether the domain that runs on a CPU comes before what was chosen of another one. */
static __always_inline bool stands_before(u32 running, struct choice *choice, u32 cpu)
{
	bool both = choice->restricted && cpu_run_of(cpu)->restriction;

	if (domain_precedes_running(choice->index, running, both ? cpu : NOT_FEW))
		return false;
	/* Its place among the few is nothing to what may run everywhere. */
	return !both || !choice->free || choice->free == running || !domain_precedes_running(choice->free, running, NOT_FEW);
}

/* Whether prev, which could go on, comes before what was chosen. */
static __always_inline bool goes_on_before(struct task_state *t, struct choice *choice, u32 cpu)
{
	u64 key = 0;

	if (choice->index != t->domain)
		return stands_before(t->domain, choice, cpu);
	if (choice->restricted)
		return !restricted_first_key(choice->index, cpu, &key) || !clock_before(key, t->vtime);
	return !queue_first_key(QUEUE_DOMAIN(choice->index), &key) || !clock_before(key, t->vtime);
}

enum served {
	SERVED,
	SERVED_NONE, /* nothing waits */
	SERVED_PREV, /* prev comes first */
	SERVE_NEXT, /* this one had nothing for this CPU */
};

/* Serves what comes first, if it comes before prev (NULL: nothing could go on). */
__noinline int serve_first(struct task_state *t, u32 cpu)
{
	struct domain_table *table = domains();
	struct cpu_order *order = cpu_order_of(cpu);
	struct cpu_run *run = cpu_run_of(cpu);
	struct choice choice = {};
	u32 index, held;

	if (!order)
		return SERVED_NONE;
	if (*(volatile u64 *)&order->any_restricted)
		choose_first(cpu, &choice);
	else
		choice.index = first_domain();
	index = choice.index;
	if (!index)
		return SERVED_NONE;
	held = table->quotas ? held_domain(index) : 0;
	if (held) {
		if (choice.restricted) {
			domain_at(table, index)->restricted_held = 1;
			restricted_forget(order, index);
		} else {
			change_order(CHANGE_PARK, held, 0, 0);
		}
		return SERVE_NEXT;
	}
	if (choice.restricted) {
		if (t && goes_on_before(t, &choice, cpu))
			return SERVED_PREV;
		if (!serve_restricted(table, index, order, cpu))
			return SERVE_NEXT;
		serve_order(table, order, run, index, true);
		return SERVED;
	}
	if (t && *(volatile u32 *)&domain_at(table, index)->waiting && goes_on_before(t, &choice, cpu))
		return SERVED_PREV;
	if (serve_leaving_in_turn(cpu, index)) {
		serve_order(table, order, run, index, false);
		return SERVED;
	}
	if (!queue_to_local(QUEUE_DOMAIN(index))) {
		/* Its last task is on its way in or out. */
		unqueue_domain(table, index, cpu);
		return SERVE_NEXT;
	}
	serve_order(table, order, run, index, false);
	return SERVED;
}

/* Serves the first task that may run here, unless prev comes before it. */
static __always_inline enum served serve_domains(struct task_state *t, u32 cpu)
{
	enum served served = serve_first(t, cpu);
	int attempt;

	if (served != SERVE_NEXT)
		return served;
	bpf_for(attempt, 1, SERVE_ATTEMPTS) {
		served = serve_first(t, cpu);
		if (served != SERVE_NEXT)
			return served;
	}
	return SERVED_NONE;
}

/* Whether a task of the domain that runs on this CPU is to let another one of it go, whose virtual time this is. */
static __always_inline bool preempted_by(const struct cpu_run *run, u64 vtime, u64 now_ns)
{
	return task_preempts(vtime, run->vtime, passed_since(run->vtime_at_ns, now_ns), passed_since(run->began_ns, now_ns),
			     run->weight);
}

/*
 * The task begins to run, and its domain's clock follows: unless it came out of its turn while others wait, ahead of
 * best-effort work or because it had been put aside. It may have used more than they, who would lose by the difference
 * what they have not used.
 */
static __always_inline void follow_clock(struct domain *d, struct task_state *t, bool out_of_turn)
{
	if (!out_of_turn || !(*(volatile u32 *)&d->waiting || *(volatile u32 *)&d->waiting_restricted))
		clock_follow(&d->task_clock, t->vtime);
}

/* Whether a best-effort task that runs is to let another one go before its slice is over; asked at each tick. */
static __always_inline bool overtaken(struct task_state *t, struct cpu_run *run, u32 cpu, u64 now_ns)
{
	struct domain_table *table = domains();
	struct choice choice = {};
	u32 index;

	if (now_ns - run->began_ns < settings.preemption_interval_ns)
		return false;
	if (run->alone && (others_wait(table, t->domain, cpu) || run->direct || leaving))
		return true;
	join_late(table, t, cpu);
	choose_first(cpu, &choice);
	index = choice.index;
	if (index == t->domain) {
		if (choice.restricted ? !restricted_first_key(index, cpu, &choice.key) : !queue_first_key(QUEUE_DOMAIN(index), &choice.key))
			return false;
		return preempted_by(run, choice.key, now_ns);
	}
	return index && order_may_preempt(table, index, t->domain) && !stands_before(t->domain, &choice, cpu);
}

/* Makes the CPU choose again if it runs a task which comes after this one. */
static __always_inline bool preempt_on(struct domain_table *table, struct task_struct *p, struct task_state *t, u32 cpu, u64 now_ns)
{
	struct cpu_run *run = cpu_run_of(cpu);
	u32 running = run->domain;

	/* Another CPU's may have begun after this one read its clock. */
	if (!running || clock_before(now_ns, run->began_ns + settings.preemption_interval_ns))
		return false;
	if (running == t->domain) {
		if (!preempted_by(run, t->vtime, now_ns))
			return false;
	} else if (!order_may_preempt(table, t->domain, running)) {
		return false;
	} else if (!run->alone && run->unpaid_ns <= CHARGE_BATCH_NS &&
		   !domain_precedes_running(t->domain, running, run->restriction && is_restricted(p) ? cpu : NOT_FEW)) {
		/* Where nothing waited, nobody has paid for a while, and its place is not yet known. */
		return false;
	}
	if (!may_run_on(p, cpu))
		return false;
	kick_cpu(cpu, SCX_KICK_PREEMPT);
	return true;
}

/*
 * In how many nanoseconds a CPU that runs one of the task's domain, for too short a time to be preempted, may be made
 * to choose again; PREEMPTS_NOT: not soon, or the CPU's timer is not free, because somebody's budget ends there.
 */
static __always_inline u64 preempts_in_on(struct task_struct *p, struct task_state *t, u32 cpu, u64 now_ns)
{
	struct cpu_run *run = cpu_run_of(cpu);
	u64 turn_ns, in_ns;

	if (run->domain != t->domain || run->budget_end_ns || !may_run_on(p, cpu))
		return PREEMPTS_NOT;
	turn_ns = passed_since(run->began_ns, now_ns);
	in_ns = task_preempts_in(t->vtime, run->vtime, passed_since(run->vtime_at_ns, now_ns), turn_ns, run->weight);
	if (in_ns != PREEMPTS_NOT && turn_ns + in_ns < settings.preemption_interval_ns)
		in_ns = settings.preemption_interval_ns - turn_ns;
	return in_ns;
}

/*
 * The same as preempt_on(), on the CPU where the task was or on one of those after it. Where none is to choose again at
 * once, the one does that may do so soonest, if that is soon.
 */
static __always_inline void preempt_later(struct task_struct *p, struct task_state *t, u32 cpu, u64 now_ns)
{
	struct domain_table *table = domains();
	u32 cpus = settings.cpus, soonest = cpu;
	u64 soonest_ns = PREEMPTS_NOT;
	int i;

	bpf_for(i, 0, PREEMPT_SCAN_MAX) {
		u32 candidate = cpu + i;
		u64 in_ns;

		if (i >= cpus)
			break;
		if (candidate >= cpus)
			candidate -= cpus;
		if (preempt_on(table, p, t, candidate, now_ns))
			return;
		in_ns = preempts_in_on(p, t, candidate, now_ns);
		if (in_ns < soonest_ns) {
			soonest_ns = in_ns;
			soonest = candidate;
		}
	}
	if (soonest_ns != PREEMPTS_NOT)
		watch_budget(cpu_run_of(soonest), soonest, soonest_ns);
}

/* An idle CPU for the task, -1 when there is none. Idle CPUs are looked for only if one may have become idle. */
static __always_inline s32 find_idle_cpu(struct task_struct *p)
{
	s32 cpu;

	if (!maybe_idle)
		return -1;
	/* Before the look at the mask: update_idle() says so after it has set its bit. */
	__sync_lock_test_and_set(&maybe_idle, 0);
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0 || is_restricted(p))
		maybe_idle = 1;
	return cpu;
}

/* The index of a cgroup's own domain, 0 when it has none. */
static __always_inline u32 own_domain_of(struct cgroup *cgrp)
{
	u64 id = cgrp->kn->id;
	u32 *index = bpf_map_lookup_elem(&domain_of_cgroup, &id);

	return index ? *index : 0;
}

/*
 * The domain that a cgroup's tasks belong to: its own, or that of the nearest cgroup above it that has one. Some
 * callers' cgroup is not one that the verifier trusts, hence the reads.
 */
static __noinline u32 domain_index_of(struct cgroup *cgrp)
{
	int i;

	bpf_for(i, 0, CGROUP_LEVELS_MAX) {
		u64 id;
		u32 *index;

		if (!cgrp)
			break;
		id = BPF_CORE_READ(cgrp, kn, id);
		index = bpf_map_lookup_elem(&domain_of_cgroup, &id);
		if (index)
			return *index;
		/* A cgroup begins with its own state. */
		cgrp = (struct cgroup *)BPF_CORE_READ(cgrp, self.parent);
	}
	return ROOT_DOMAIN;
}

#endif
