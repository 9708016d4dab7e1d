/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Best-effort work: how a domain's tasks share what it gets, and what keeps all of them going.
 *
 * Domains are ordered by order.h, and their shares are those of domain.h. Within a domain, tasks are served by virtual
 * time: the time used, divided by the task's weight (nice).
 */
#ifndef STEWARD_DECIDE_BEST_EFFORT_H
#define STEWARD_DECIDE_BEST_EFFORT_H

#include "restricted.h"

/* Nobody may lie further behind the clock than this; a nice 19 task pays 400 ms for a slice that ends at its tick. */
#define TASK_LAG_MAX_NS (2 * NSEC_PER_SEC)
/* Over so much virtual time for each of them, light tasks are spread: see task_spread(). */
#define SPREAD_EACH_NS (SLICE_NS / 4)
/* The slice of a task beside which nothing waits. */
#define SLICE_ALONE_NS (20 * NSEC_PER_MSEC)
/* So long a task runs before another one of its domain that wakes may preempt it; who may do so within such a time
 * does when it comes, and whoever later at a tick. */
#define TASK_PREEMPTS_NS NSEC_PER_MSEC
#define PREEMPTS_NOT (~0ULL)
/* What more one has not used than this makes no difference to where it joins. */
#define TASK_AHEAD_COUNTS_NS NSEC_PER_SEC
/* A CPU puts what its tasks use together up to this much before their domain pays it. */
#define CHARGE_BATCH_NS (NSEC_PER_MSEC / 2)
/* The same for a task that goes on while nothing else waits, because nobody looks at the order then. */
#define CHARGE_ALONE_NS (4 * NSEC_PER_MSEC)
/*
 * Weights alone may keep a task waiting for minutes, and so may cpu.max and cpu.idle. One that has waited
 * RESCUE_AFTER_NS is given RESCUE_SLICE_NS, ahead of other best-effort work and whatever its quota says, as a rule
 * every RESCUE_INTERVAL_NS on a CPU. So everything makes some progress, at a cost of 5 % of a CPU, and the kernel,
 * which takes a scheduler out when a task has waited 30 s, has no reason to. Thousands at once would not all have their
 * turn before that: of more than RESCUE_CROWD for each CPU, half are rescued within RESCUE_CROWD_NS, at most one every
 * RESCUE_SHORTEST_NS. No more tasks are taken out of their queues for it than can be rescued until the next look, so
 * that the others are served as usual meanwhile.
 *
 * A CPU is asked for the next task at a tick, often, and not when it may rescue one: what it has missed since then it
 * makes up for, RESCUE_BATCH_NS at most.
 *
 * Where all that is not enough, because each rescue takes many times as long as it should, or most of the CPU goes to
 * real-time tasks, some still stand there RESCUE_PRESSES_AFTER_NS after they began to wait. Then everything else comes
 * second until they have had their turn: a third of the CPU is left to it.
 */
#define RESCUE_AFTER_NS (12 * NSEC_PER_SEC)
#define RESCUE_PRESSES_AFTER_NS (18 * NSEC_PER_SEC)
#define RESCUE_SLICE_NS (NSEC_PER_MSEC / 10)
#define RESCUE_PRESSED_NS (RESCUE_SLICE_NS * 3 / 2)
/*
 * One that was preempted while it reads what RCU protects holds up the whole kernel, which waits for it before it frees
 * anything; after 21 s that is a stall, for which the kernel takes a scheduler out as well. It is rescued sooner, and
 * for longer: usually until it is through. The CPU rescues nobody for so much longer afterwards.
 */
#define RESCUE_READER_AFTER_NS (NSEC_PER_SEC / 2)
#define RESCUE_READER_SLICE_NS (NSEC_PER_MSEC / 2)
/*
 * One that was called - killed, or told to stop with its process, for a debugger or with its cgroup - has to run once
 * to notice, and whoever called it waits for that. So it soon becomes one of those that leave the kernel (holds.h),
 * until it has ended or stopped: which costs a bounded part of a CPU, and nothing of what is there for rescues. At most
 * CALLED_LEAVING_MAX do at a time, so that those who leave with locks need not wait for a crowd that is killed. Of the
 * others some are rescued, as long as nobody is rescued later because of them.
 */
#define RESCUE_CALLED_AFTER_NS (NSEC_PER_SEC / 10)
#define CALLED_LEAVING_MAX 64
/* How often the queues are looked through for tasks that are to be rescued. */
#define RESCUE_LOOK_NS (NSEC_PER_SEC / 2)
/* How many tasks of a queue a look goes through, also one for those that are held inside the kernel (holds.h) or stand
 * on a CPU that goes offline. */
#define QUEUE_SCAN_MAX 32768
#define RESCUE_INTERVAL_NS (2 * NSEC_PER_MSEC)
#define RESCUE_SHORTEST_NS (NSEC_PER_MSEC / 4)
#define RESCUE_CROWD_NS (NSEC_PER_SEC / 2)
#define RESCUE_CROWD (RESCUE_CROWD_NS / RESCUE_INTERVAL_NS)
#define RESCUE_BATCH_NS (8 * NSEC_PER_MSEC)

/* Virtual time that a task of this weight (100: nice 0) pays for used_ns. */
DECIDE u64 task_cost(u64 used_ns, u32 weight)
{
	return used_ns * WEIGHT_DEFAULT / (weight ? weight : 1);
}

/* Whether a task that has waited since waiting_since_ns is to be rescued; reader: the kernel waits for it. */
DECIDE bool rescue_due(u64 waiting_since_ns, bool reader, u64 now_ns)
{
	return clock_before(waiting_since_ns + (reader ? RESCUE_READER_AFTER_NS : RESCUE_AFTER_NS), now_ns);
}

/* What is done about a task at a look. */
enum look_finds {
	LOOK_LEAVES_IT = 0,
	LOOK_RESCUES = 1,
	LOOK_LETS_LEAVE = 2,
};

/* The same, and of one that was called; leaving, standing: how many leave, and stand to be rescued. */
DECIDE u32 rescue_look(u64 waiting_since_ns, bool reader, bool called, u32 leaving, u32 standing, u64 now_ns)
{
	if (rescue_due(waiting_since_ns, reader, now_ns))
		return LOOK_RESCUES;
	if (!called || !clock_before(waiting_since_ns + RESCUE_CALLED_AFTER_NS, now_ns))
		return LOOK_LEAVES_IT;
	if (leaving < CALLED_LEAVING_MAX)
		return LOOK_LETS_LEAVE;
	return standing < RESCUE_CROWD ? LOOK_RESCUES : LOOK_LEAVES_IT;
}

/* Whether a look goes through the queues from their ends: in turn with those from their heads, so that nobody is hidden
 * behind however many that come and go, or between as many as two looks go through. `looks` is how many there were
 * before. */
DECIDE bool looks_from_end(u32 looks)
{
	return looks & 1;
}

/* How long a rescued task runs. */
DECIDE u64 rescue_slice_ns(bool reader)
{
	return reader ? RESCUE_READER_SLICE_NS : RESCUE_SLICE_NS;
}

/* Whether those that stand to be rescued press, the first of them having waited since then. */
DECIDE bool rescue_presses(u64 waiting_since_ns, u64 now_ns)
{
	return clock_before(waiting_since_ns + RESCUE_PRESSES_AFTER_NS, now_ns);
}

/* How often each of the CPUs that are online may rescue a task, when this many stand there to be rescued. */
DECIDE u64 rescue_interval_ns(u32 standing, u32 cpus, bool presses)
{
	u64 crowd = RESCUE_CROWD * (cpus ? cpus : 1);
	u64 interval_ns;

	if (presses)
		return RESCUE_PRESSED_NS;
	if (standing <= crowd)
		return RESCUE_INTERVAL_NS;
	interval_ns = RESCUE_INTERVAL_NS * crowd / standing;
	return interval_ns < RESCUE_SHORTEST_NS ? RESCUE_SHORTEST_NS : interval_ns;
}

/* Whether this CPU may rescue another task, having done so last at last_ns. */
DECIDE bool rescue_allowed(u64 last_ns, u64 interval_ns, u64 now_ns)
{
	return clock_before(last_ns + interval_ns, now_ns);
}

/* What counts as the last rescue when one begins: a little before, if the CPU could have begun it earlier. */
DECIDE u64 rescue_begins(u64 last_ns, u64 interval_ns, u64 now_ns)
{
	u64 due_ns = last_ns + interval_ns;

	if (!clock_before(due_ns, now_ns))
		return now_ns;
	return clock_before(due_ns + RESCUE_BATCH_NS, now_ns) ? now_ns - RESCUE_BATCH_NS : due_ns;
}

/*
 * What counts as the last rescue after one that counts from began_ns and took used_ns: where it took more than
 * RESCUE_SLICE_NS, later in proportion, so that a long rescue costs no more of a CPU than interval_ns, at which the CPU
 * could rescue then, says. Each takes a little longer, by what the timer is late and a switch takes: where thousands
 * wait, they would wait for that too long if it were paid as if few did.
 */
DECIDE u64 rescue_paid(u64 began_ns, u64 used_ns, u64 interval_ns)
{
	if (used_ns <= RESCUE_SLICE_NS)
		return began_ns;
	return began_ns + (used_ns - RESCUE_SLICE_NS) * interval_ns / RESCUE_SLICE_NS;
}

/* How many tasks may be taken out of their queues to be rescued, when this many stand there already: what can be
 * rescued in a second. */
DECIDE u32 rescue_room(u32 standing, u32 cpus)
{
	u64 most = NSEC_PER_SEC / RESCUE_SHORTEST_NS * (cpus ? cpus : 1);

	return standing < most ? (u32)(most - standing) : 0;
}

/*
 * How far behind a slice before the clock a task stands at least that begins or wakes up. Light tasks (nice 1 to 19)
 * that come to the same place are all served before a heavier one that stands a little behind it, a slice each, and
 * meet again behind what they paid for that: by weight it is due many slices in that time. So each is put somewhere
 * within what it pays for a slice beyond what one of nice 0 does, and the others come to their turns in between. Where
 * it stands is a matter of chance, so that nobody can choose. Few do not keep anybody waiting for long, and are not
 * kept waiting for it: they are spread over SPREAD_EACH_NS for each light task beside them.
 */
DECIDE u64 task_spread(const struct domain *d, u32 weight, u32 random)
{
	u64 cost_ns = task_cost(SLICE_NS, weight);
	u32 usual = d->runnable_weight / (WEIGHT_DEFAULT * WEIGHT_SCALE), runnable = d->runnable;

	if (cost_ns <= SLICE_NS || runnable <= usual + 1)
		return 0;
	return min_u64(cost_ns - SLICE_NS, (runnable - usual - 1) * SPREAD_EACH_NS) * random >> 32;
}

/*
 * How much further ahead than a slice one joins that would stand so much further: less than an eighth of a slice, and
 * the more the further. Else all that sleep much would come to the same place, and of two that the same event wakes
 * always the same one would run first: who waits for a disk that takes one request at a time never had it, because the
 * thread that writes back was woken before.
 */
DECIDE u64 task_ahead(u64 beyond_ns)
{
	u64 counts_ns = min_u64(beyond_ns, TASK_AHEAD_COUNTS_NS);

	return SLICE_NS / 8 * counts_ns / (counts_ns + SLICE_NS);
}

/* Where a task joins its domain's queue: a slice ahead of the clock and task_ahead() at most, at most TASK_LAG_MAX_NS
 * behind. spread_ns: task_spread() of one that begins or wakes up, else 0. */
DECIDE u64 task_join(u64 vtime, u64 clock, u64 spread_ns)
{
	u64 least = clock - SLICE_NS + spread_ns;

	if (clock_before(vtime, least))
		return least - task_ahead(least - vtime);
	if (clock_before(clock + TASK_LAG_MAX_NS, vtime))
		return clock + TASK_LAG_MAX_NS;
	return vtime;
}

/* Where a task stands that moves to another domain: as far ahead of that one's clock, or behind it, as it was. */
DECIDE u64 task_moves(u64 vtime, u64 clock_before_ns, u64 clock_ns)
{
	return clock_ns + (vtime - clock_before_ns);
}

/*
 * When a task that wakes is to preempt another one of its domain, in nanoseconds from now: as soon as it has used less
 * by as much as a task may keep, as one that sleeps most of the time has, and the other one has had the CPU for a
 * while, so that those who hand work to each other do not preempt at each turn. ran_ns: how long the other has run
 * since `vtime` was taken; turn_ns: how long since its turn began. PREEMPTS_NOT: not soon; the next tick looks again.
 */
DECIDE u64 task_preempts_in(u64 waking, u64 vtime, u64 ran_ns, u64 turn_ns, u32 weight)
{
	u64 turn_left_ns = turn_ns < TASK_PREEMPTS_NS ? TASK_PREEMPTS_NS - turn_ns : 0, left_ns = 0;
	u64 reaches = vtime + task_cost(ran_ns, weight);

	if (!clock_before(waking + SLICE_NS, reaches))
		/* Rounded up: what a task pays is rounded down. */
		left_ns = (waking + SLICE_NS - reaches + 1) * weight / WEIGHT_DEFAULT + 1;
	left_ns = max_u64(left_ns, turn_left_ns);
	return left_ns <= TASK_PREEMPTS_NS ? left_ns : PREEMPTS_NOT;
}

/* Whether it is to do so now. */
DECIDE bool task_preempts(u64 waking, u64 vtime, u64 ran_ns, u64 turn_ns, u32 weight)
{
	return !task_preempts_in(waking, vtime, ran_ns, turn_ns, weight);
}

#endif
