/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who is taken into the interactive class of a CPU, beside what its load says (load.h), and who is taken back first.
 *
 * Bandwidths and sums are parts per million of the CPU.
 */
#ifndef STEWARD_DECIDE_ADMISSION_H
#define STEWARD_DECIDE_ADMISSION_H

#include "load.h"

/*
 * What admission looks at beside the load. By the load alone, whoever sleeps is admitted without end, and may then stop
 * sleeping: revocation answers that after four seconds, and for what is never revoked not at all. So what is declared
 * is bounded too, on each CPU: the sum of C/T of what is never revoked, and that of all users together who are not
 * exempt. What does not fit into the first is admitted all the same, but may be revoked; what does not fit into the
 * second is refused.
 *
 * Of what users may have together, each may have all as long as the others leave it. So that nobody keeps the others
 * out by that, a part is each one's whatever the others have: as large as each other one's, of those who have something
 * there. Where a task comes that its user's part has room for, users who have more than their parts give way, until it
 * fits: their tasks are revoked. If nobody has more than its part, and the newcomer's user no more with it, all of it
 * fits.
 */
enum admission_rule {
	RULE_FITS = 0,
	/* Admitted, and may be revoked although its specification says never: */
	RULE_IRREVOCABLE = 1, /* the sum of what is never revoked would be too high */
	RULE_NOT_NAMED = 2, /* it belongs neither to root nor to the user whom the specification names */
	/* Refused: */
	RULE_USE = 3, /* the expected load would be too high */
	RULE_USER = 4, /* the sum of the user would be too high */
	RULE_USERS = 5, /* there is no room for another user's sum */
	RULE_NO_CPU = 6, /* no CPU that is online is allowed to it */
	RULE_MEMORY = 7, /* it would bring in more memory than is free; only when it is to be taken back */
	RULE_TOGETHER = 8, /* the sum of all users would be too high */
	/* Revoked: */
	RULE_PART = 9, /* its user had more than a part, and another one's task came that fits into its user's */
};

/* Users whose sums one CPU can hold at a time; a power of two. */
#define ADMISSION_USERS_MAX 32
/* In struct grant: anybody's task may be irrevocable. As a user: none. */
#define ADMISSION_ANYBODY (~0U)

struct admission_user {
	u32 uid;
	u32 reserved; /* 0: the place is free */
};

/* What the tasks admitted on one CPU have declared. */
struct admission_declared {
	u32 irrevocable;
	u32 limited; /* by all users below */
	struct admission_user users[ADMISSION_USERS_MAX];
};

/* What a task asks for. */
struct admission_claim {
	u32 bandwidth;
	u32 uid;
	u32 limited; /* user_max holds for that user, and for all such users together */
	u32 irrevocable; /* is never to be revoked */
};

/* What an admission was decided by. amount and limit are parts per million, numbers of users (RULE_USERS), or MiB
 * (RULE_MEMORY). */
struct admission_reason {
	u32 rule; /* enum admission_rule */
	u32 uid;
	u32 amount; /* what there was before */
	u32 limit;
};

/* Whether a task of this user may have a grant that is never revoked and that names this user beside root. */
DECIDE bool admission_may_be_irrevocable(u32 uid, u32 named)
{
	return !uid || named == ADMISSION_ANYBODY || uid == named;
}

/* The place of the user's sum, or one for it; ADMISSION_USERS_MAX when there is none. */
DECIDE_CALLED u32 admission_user_place(const struct admission_declared *d, u32 uid)
{
	u32 i, place = ADMISSION_USERS_MAX;

	for (i = loop_begin(); i < ADMISSION_USERS_MAX && can_loop; i++) {
		const struct admission_user *user = &d->users[masked(i, ADMISSION_USERS_MAX - 1)];

		if (user->reserved && user->uid == uid)
			return i;
		if (!user->reserved && place == ADMISSION_USERS_MAX)
			place = i;
	}
	return place;
}

/* Holds a task against all rules of one CPU. Everything from RULE_USE on keeps it out. */
DECIDE void admission_judge(const struct load *l, const struct admission_declared *d, const struct load_thresholds *limits,
		       const struct admission_claim *claim, struct admission_reason *reason)
{
	u32 place;

	reason->uid = claim->uid;
	reason->rule = RULE_USE;
	reason->amount = load_expected(l);
	reason->limit = limits->admit_below;
	if (!load_admits(l, claim->bandwidth, limits->admit_below))
		return;
	if (claim->limited) {
		place = admission_user_place(d, claim->uid);
		reason->rule = RULE_USERS;
		reason->amount = ADMISSION_USERS_MAX;
		reason->limit = ADMISSION_USERS_MAX;
		if (place >= ADMISSION_USERS_MAX)
			return;
		reason->rule = RULE_USER;
		reason->amount = d->users[masked(place, ADMISSION_USERS_MAX - 1)].reserved;
		reason->limit = limits->user_max;
		if ((u64)reason->amount + claim->bandwidth > limits->user_max)
			return;
		reason->rule = RULE_TOGETHER;
		reason->amount = d->limited;
		if ((u64)reason->amount + claim->bandwidth > limits->user_max)
			return;
	}
	reason->rule = RULE_IRREVOCABLE;
	reason->amount = d->irrevocable;
	reason->limit = limits->irrevocable_max;
	if (claim->irrevocable && (u64)reason->amount + claim->bandwidth > limits->irrevocable_max)
		return;
	reason->rule = RULE_FITS;
}

/* What the user has declared. */
DECIDE_CALLED u32 admission_sum(const struct admission_declared *d, u32 uid)
{
	u32 place = admission_user_place(d, uid);

	return place < ADMISSION_USERS_MAX ? d->users[masked(place, ADMISSION_USERS_MAX - 1)].reserved : 0;
}

/* What each user may have whatever the others do, the claim's user being one of them. */
DECIDE_CALLED u32 admission_part(const struct admission_declared *d, const struct admission_claim *claim, u32 user_max)
{
	u32 i, users = 0;

	for (i = loop_begin(); i < ADMISSION_USERS_MAX && can_loop; i++) {
		const struct admission_user *user = &d->users[masked(i, ADMISSION_USERS_MAX - 1)];

		users += user->reserved && user->uid != claim->uid;
	}
	return user_max / (users + 1);
}

/* How a task fits on a CPU. */
enum admission_fit {
	FITS_NOT = 0,
	FITS_IN_ITS_PART = 1, /* if others give way */
	FITS_NOW = 2,
};

DECIDE u32 admission_fit(const struct admission_declared *d, const struct admission_claim *claim, u32 user_max,
			 u32 rule)
{
	u64 sum = admission_sum(d, claim->uid) + (u64)claim->bandwidth;

	if (rule < RULE_USE)
		return FITS_NOW;
	return rule == RULE_TOGETHER && sum <= admission_part(d, claim, user_max) ? FITS_IN_ITS_PART : FITS_NOT;
}

/* Whether an admitted task, which counts as `other`, gives way to one that fits into its user's part: its own user has
 * more than such a part. had, part: both. */
DECIDE bool admission_gives_way(const struct admission_declared *d, const struct admission_claim *claim,
				const struct admission_claim *other, u32 user_max, u32 *had, u32 *part)
{
	if (!other->limited || other->irrevocable || other->uid == claim->uid)
		return false;
	*had = admission_sum(d, other->uid);
	*part = admission_part(d, claim, user_max);
	return *had > *part;
}

/* Adds what an admitted task declared. claim says afterwards whether it counts as irrevocable. */
DECIDE void admission_declare(struct admission_declared *d, struct admission_claim *claim, u32 rule)
{
	if (rule != RULE_FITS)
		claim->irrevocable = 0;
	if (claim->irrevocable)
		d->irrevocable += claim->bandwidth;
	if (claim->limited) {
		struct admission_user *user = &d->users[masked(admission_user_place(d, claim->uid), ADMISSION_USERS_MAX - 1)];

		user->uid = claim->uid;
		user->reserved += claim->bandwidth;
		d->limited += claim->bandwidth;
	}
}

/* Takes it back; claim is as admission_declare() left it. */
DECIDE void admission_undeclare(struct admission_declared *d, const struct admission_claim *claim)
{
	if (claim->irrevocable)
		d->irrevocable = d->irrevocable > claim->bandwidth ? d->irrevocable - claim->bandwidth : 0;
	if (claim->limited) {
		u32 place = admission_user_place(d, claim->uid);
		struct admission_user *user = &d->users[masked(place, ADMISSION_USERS_MAX - 1)];

		if (place < ADMISSION_USERS_MAX)
			user->reserved = user->reserved > claim->bandwidth ? user->reserved - claim->bandwidth : 0;
		d->limited = d->limited > claim->bandwidth ? d->limited - claim->bandwidth : 0;
	}
}

/*
 * Who waits to be taken back. Of each user the one who was tried in vain least often, and among those the one who has
 * waited longest: who fits nowhere keeps nobody waiting, and who brings many of that kind only their own.
 */
#define WAITERS_MAX 8
#define WAITER_RETRY_MAX 64

struct waiter {
	u64 since_ns;
	u32 index; /* of the slot, and 1; 0: the place is free */
	u32 uid;
	u32 failures;
	u32 unused;
};

struct waiters {
	struct waiter first[WAITERS_MAX];
};

DECIDE bool waiter_before(const struct waiter *a, const struct waiter *b)
{
	return a->failures != b->failures ? a->failures < b->failures : a->since_ns < b->since_ns;
}

/* Notes a task that waits, if there is no better one of its user, and room or a worse one of another. */
DECIDE void waiters_offer(struct waiters *waiters, const struct waiter *waiter)
{
	u32 i, place = 0;

	for (i = loop_begin(); i < WAITERS_MAX && can_loop; i++) {
		const struct waiter *other = &waiters->first[masked(i, WAITERS_MAX - 1)];
		const struct waiter *worst = &waiters->first[masked(place, WAITERS_MAX - 1)];

		if (other->index && other->uid == waiter->uid) {
			place = i;
			break;
		}
		if (worst->index && (!other->index || waiter_before(worst, other)))
			place = i;
	}
	if (!waiters->first[masked(place, WAITERS_MAX - 1)].index ||
	    waiter_before(waiter, &waiters->first[masked(place, WAITERS_MAX - 1)]))
		waiters->first[masked(place, WAITERS_MAX - 1)] = *waiter;
}

/* Takes out the one to be tried next; its index is 0 when there is none. */
DECIDE void waiters_next(struct waiters *waiters, struct waiter *next)
{
	u32 i, place = 0;

	for (i = loop_begin(); i < WAITERS_MAX && can_loop; i++) {
		const struct waiter *other = &waiters->first[masked(i, WAITERS_MAX - 1)];
		const struct waiter *best = &waiters->first[masked(place, WAITERS_MAX - 1)];

		if (other->index && (!best->index || waiter_before(other, best)))
			place = i;
	}
	*next = waiters->first[masked(place, WAITERS_MAX - 1)];
	waiters->first[masked(place, WAITERS_MAX - 1)].index = 0;
}

/* After how many samples a task is tried again that was tried so many times in vain. */
DECIDE u32 waiter_retry_after(u32 failures)
{
	return failures < 6 ? 1U << failures : WAITER_RETRY_MAX;
}

/*
 * What the memory rule asks about (Yang 2009, section 8.1.2.3 b): what a program could still bring in. The paper has
 * virtual minus resident. Address space that nothing can be written to or executed in brings nothing in, and programs
 * set terabytes of that aside, so only the rest of what is virtual counts. All in pages.
 */
DECIDE u64 waiter_absent_pages(u64 data, u64 stack, u64 code, s64 anonymous, s64 file, s64 shared)
{
	u64 could = data + stack + code, resident = 0;

	resident += anonymous > 0 ? (u64)anonymous : 0;
	resident += file > 0 ? (u64)file : 0;
	resident += shared > 0 ? (u64)shared : 0;
	return could > resident ? could - resident : 0;
}

#endif
