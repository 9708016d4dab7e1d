/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Periods, budgets and eligibility of an interactive task (Yang 2009, section 8.2.1 and listing 2).
 *
 * A task is promised C ns in every T ns. It has a current period [start, deadline) and a budget: what it may
 * still take of the promise in that period. It is eligible, that is, served ahead of all best-effort work in the
 * order of deadlines, while the period has begun and budget is left. Outside of that it competes as best-effort.
 *
 * Two points differ from the paper's listing; docs/scheduler.md gives the reasons at length.
 *
 *  - Line 16 refills with max(budget + C, C), which would forgive every overrun and let unused budgets pile up.
 *    Here an overrun is paid back and nothing is carried over: min(budget + C, C).
 *  - A task that wakes late in its period with most of its budget unused could take C just before the deadline
 *    and C just after it, and make others miss theirs. As in the constant bandwidth server (Abeni and Buttazzo
 *    1998), a wake-up keeps the current period only if the rest of the budget fits the rest of the period at the
 *    promised rate; else a new period starts at once. That holds for every wake-up, whatever was waited for: the
 *    others cannot tell a disk from a clock. The paper lets what waited for a disk go on with its old deadline.
 *
 * What holds, and is tested: over any interval that begins at a period's start, a task is served from its
 * reservation at most C for every T begun plus the overrun of one enforcement; and if the sum of C/T on a CPU is
 * at most 1 and nothing else delays the CPU, every task that asks continuously gets C in each of its periods.
 */
#ifndef STEWARD_DECIDE_EDF_H
#define STEWARD_DECIDE_EDF_H

#include "types.h"

/*
 * A child of an interactive task that has no specification yet is about to execute a program, most likely. For so
 * much CPU time at most it is served ahead of best-effort work, so that a shell starts programs under load; the paper
 * gives 1 ms (Yang 2009, section 7.2.2). The parent pays: it lends the time out of its own budget (edf_lend), so that
 * all the children of a bomb together get no more than the bomb was admitted with. Admitted tasks go first unless
 * their deadlines lie further away than START_DEADLINE_NS. A child that has not executed anything when the loan is used
 * up gets another one when the parent's next period begins, START_LOANS in all: most parents wait for their child.
 */
#define START_WINDOW_NS (5 * NSEC_PER_MSEC)
#define START_LOANS 8
#define START_DEADLINE_NS (100 * NSEC_PER_MSEC)
/* The same for a per-CPU kernel thread that wakes: it has a slice to do its work in, and this long to wait for it. */
#define KERNEL_DEADLINE_NS (20 * NSEC_PER_MSEC)
/*
 * A kernel thread that works off a queue and wakes an interactive task goes on for so long at most, so that it gets to
 * the end of what it does: whoever saves a file would preempt it at each of the file's pages that has reached the disk,
 * to wait for the next one, and again for the thread's turn among best-effort work.
 */
#define WAKER_GOES_ON_NS (NSEC_PER_MSEC / 10)

/* What runs out of its reservation is charged about this often at least, because the load is measured by it. */
#define CHARGE_LATEST_NS (8 * NSEC_PER_MSEC)

/* How a period ended, or that it did not. */
enum edf_outcome {
	EDF_CONTINUES = 0, /* the current period goes on */
	EDF_NEW_PERIOD = 1, /* a new period was assigned */
	EDF_MISSED = 2, /* the period ended with budget owed to a task that wanted it; it goes on being owed */
};

struct edf_task {
	u64 budget_ns; /* C */
	u64 period_ns; /* T */
	u64 start_ns; /* when the current period begins */
	u64 deadline_ns; /* when it ends */
	s64 left_ns; /* budget left; negative after an overrun */
	u64 periods; /* periods begun, with those that went whole for an overrun: each is worth C */
	u64 missed; /* periods that ended with budget owed */
	u64 exhausted; /* periods whose budget was used up */
	u64 overrun_max_ns; /* largest overrun of one period */
	u32 slept; /* gave the CPU up of its own will in this period */
	u32 blocked; /* waited for a disk, a page or a lock in this period */
	u32 late; /* this period has been counted as missed */
	u32 renewed; /* periods that began because a request was announced */
};

/* A budget is over when its timer fires no earlier than this before its end. */
#define EDF_TIMER_EARLY_NS 20000

/* C/T in parts per million, rounded up so that a sum of reservations is never understated. */
DECIDE u32 edf_bandwidth(u64 budget_ns, u64 period_ns)
{
	u64 share;

	if (!period_ns)
		return LOAD_ONE;
	share = (budget_ns * LOAD_ONE + period_ns - 1) / period_ns;
	return share > LOAD_ONE ? LOAD_ONE : (u32)share;
}

/* Begins a first period at now with the whole budget. */
DECIDE void edf_begin(struct edf_task *t, u64 budget_ns, u64 period_ns, u64 now_ns)
{
	t->budget_ns = budget_ns;
	t->period_ns = period_ns;
	t->start_ns = now_ns;
	t->deadline_ns = now_ns + period_ns;
	t->left_ns = (s64)budget_ns;
	t->slept = 0;
	t->blocked = 0;
	t->late = 0;
	t->periods++;
}

DECIDE bool edf_eligible(const struct edf_task *t, u64 now_ns)
{
	return t->left_ns > 0 && t->start_ns <= now_ns;
}

/*
 * Starts the period that follows at start_ns. An overrun larger than C is paid with as many whole periods as it
 * takes.
 */
DECIDE void edf_next_period(struct edf_task *t, u64 start_ns)
{
	s64 left = t->left_ns + (s64)t->budget_ns;

	if (left <= 0) {
		u64 skipped = (u64)(-left) / t->budget_ns + 1;

		start_ns += skipped * t->period_ns;
		left += (s64)(skipped * t->budget_ns);
		t->periods += skipped;
	}
	if (left > (s64)t->budget_ns)
		left = (s64)t->budget_ns;
	t->start_ns = start_ns;
	t->deadline_ns = start_ns + t->period_ns;
	t->left_ns = left;
	t->slept = 0;
	t->blocked = 0;
	t->late = 0;
	t->periods++;
}

/*
 * Whether a task that has just used its budget up had to wait for it beyond the deadline. Nobody needs to have looked
 * at it in between; what it has overrun the budget by came after that.
 */
DECIDE bool edf_spent_late(const struct edf_task *t, u64 now_ns)
{
	u64 overrun_ns = (u64)(-t->left_ns);

	return !t->slept && !t->blocked && !t->late && now_ns > t->deadline_ns && now_ns - t->deadline_ns > overrun_ns;
}

/* Listing 2: called when a task starts, after its budget was charged, and when it wakes. */
DECIDE enum edf_outcome edf_update(struct edf_task *t, u64 now_ns)
{
	if (t->left_ns > 0) {
		if (now_ns < t->deadline_ns)
			return EDF_CONTINUES;
		if (!t->slept) {
			/* Still owed. What it waited for of itself (a disk, say) is not the scheduler's miss. */
			if (t->late || t->blocked)
				return EDF_CONTINUES;
			t->late = 1;
			t->missed++;
			return EDF_MISSED;
		}
	} else if (edf_spent_late(t, now_ns)) {
		t->missed++;
	}
	edf_next_period(t, max_u64(now_ns, t->deadline_ns));
	return EDF_NEW_PERIOD;
}

/*
 * Begins a new period with all of C in place of the current one, which has begun and has budget left, unless the task
 * is ahead of its rate: what it has taken since the period began is more than C/T of that time. What was left is lost:
 * the task had it to come at C/T as well, so however often this is asked for, no more than C/T and one C comes of it.
 *
 * left / rest > C / T is compared without division. In units of 32 ns both sides stay below 2^64 for T up to 10 s;
 * what is less than a unit counts for the task if a new period is to begin in doubt, else against it.
 */
DECIDE enum edf_outcome edf_renew(struct edf_task *t, u64 now_ns, bool in_doubt)
{
	u64 rest_ns = now_ns < t->deadline_ns ? t->deadline_ns - now_ns : 0, left, rest;
	u64 up_left = in_doubt ? 31 : 0, up_rest = in_doubt ? 0 : 31;

	left = (((u64)t->left_ns + up_left) >> 5) * ((t->period_ns + up_left) >> 5);
	rest = ((rest_ns + up_rest) >> 5) * ((t->budget_ns + up_rest) >> 5);
	if (left <= rest)
		return EDF_CONTINUES;
	t->left_ns = 0;
	edf_next_period(t, now_ns);
	return EDF_NEW_PERIOD;
}

/*
 * The task has announced that it begins with another request, for which it is to have a fresh start time and period. It
 * gets that where edf_renew() allows it; in doubt it does not, because it can announce more often than it can sleep.
 * Else the period goes on, what is left of it goes to the request, and the next one begins when it is due: a task that
 * waits for that has a fresh one before it already.
 */
DECIDE enum edf_outcome edf_announce(struct edf_task *t, u64 now_ns)
{
	if (!edf_eligible(t, now_ns) || edf_renew(t, now_ns, false) != EDF_NEW_PERIOD)
		return EDF_CONTINUES;
	t->renewed++;
	return EDF_NEW_PERIOD;
}

/* The task wakes at now, from the sleep or wait that edf_sleep() noted. */
DECIDE enum edf_outcome edf_wake(struct edf_task *t, u64 now_ns)
{
	if (now_ns < t->start_ns) {
		/* What it slept through lies before the period: should it miss the deadline, that is a miss. */
		t->slept = 0;
		t->blocked = 0;
		return EDF_CONTINUES;
	}
	if (edf_eligible(t, now_ns))
		return edf_renew(t, now_ns, true);
	return edf_update(t, now_ns);
}

/* The task gives the CPU up; voluntary tells an interruptible sleep from a wait for a disk, a page or a lock. */
DECIDE void edf_sleep(struct edf_task *t, bool voluntary)
{
	if (voluntary)
		t->slept = 1;
	else
		t->blocked = 1;
}

/*
 * Takes used_ns of CPU time out of the budget. Returns true when the budget is used up: the caller then assigns
 * the next period with edf_update().
 */
DECIDE bool edf_charge(struct edf_task *t, u64 used_ns)
{
	t->left_ns -= (s64)used_ns;
	if (t->left_ns > 0)
		return false;
	t->exhausted++;
	if ((u64)(-t->left_ns) > t->overrun_max_ns)
		t->overrun_max_ns = (u64)(-t->left_ns);
	return true;
}

/*
 * Takes the CPU time for a child's start out of the parent's budget, and leaves the parent at least a quarter of what
 * it has. Returns the time lent, 0 when the parent is not eligible itself.
 */
DECIDE u64 edf_lend(struct edf_task *parent, u64 now_ns)
{
	u64 lent_ns;

	if (!edf_eligible(parent, now_ns))
		return 0;
	lent_ns = min_u64((u64)parent->left_ns / 4 * 3, START_WINDOW_NS);
	parent->left_ns -= (s64)lent_ns;
	return lent_ns;
}

/*
 * The same for a child that has used a loan up, which it had in the period that ended at lent_deadline_ns (0 where it
 * has had none), and at most once in each period: what is left of that one is little, and loans are counted. A parent
 * that wants nothing itself (asleep, or blocked, as in vfork()) begins its next period for it.
 */
DECIDE u64 edf_lend_again(struct edf_task *parent, bool resting, u64 lent_deadline_ns, u64 now_ns)
{
	if (resting && now_ns >= parent->deadline_ns)
		edf_next_period(parent, now_ns);
	return parent->deadline_ns == lent_deadline_ns ? 0 : edf_lend(parent, now_ns);
}

/* When a parent's budget could be lent next: when its next period begins. */
DECIDE u64 edf_next_loan_ns(const struct edf_task *parent, u64 now_ns)
{
	return parent->start_ns > now_ns ? parent->start_ns : parent->deadline_ns;
}

/*
 * Gives back what a child has left of what it was lent, having executed its program or ended: in the period that lent
 * it, which ended at deadline_ns. Else a shell would need the whole loan again and again beside what it uses itself.
 */
DECIDE void edf_return(struct edf_task *parent, u64 unused_ns, u64 deadline_ns)
{
	if (parent->deadline_ns != deadline_ns)
		return;
	parent->left_ns += (s64)unused_ns;
	if (parent->left_ns > (s64)parent->budget_ns)
		parent->left_ns = (s64)parent->budget_ns;
}

/*
 * Whether a timer that fires at timer_ns (0 where none is known to be set) is left alone when a budget begins at now
 * that ends at end_ns, because it fires before that: it is then set to what edf_timer_next() says. Budgets begin at
 * each switch, and few of them end.
 */
DECIDE bool edf_timer_serves(u64 timer_ns, u64 now_ns, u64 end_ns)
{
	return timer_ns > now_ns && timer_ns <= end_ns;
}

/* The timer has fired, and the budget that is watched ends at end_ns, or none is (0): when it fires next; 0 for not. */
DECIDE u64 edf_timer_next(u64 now_ns, u64 end_ns)
{
	return now_ns + EDF_TIMER_EARLY_NS < end_ns ? end_ns : 0;
}

#endif
