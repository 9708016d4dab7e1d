/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the scheduler and the daemon tell each other: the layout of maps, events and requests.
 *
 * The Rust side of these structures is generated from the program's BTF when it is built.
 */
#ifndef STEWARD_RECORD_H
#define STEWARD_RECORD_H

#include "decide/admission.h"
#include "decide/domain.h"
#include "decide/edf.h"
#include "decide/load.h"
#include "decide/places.h"
#include "decide/standing.h"

#define MAX_CPUS 512
#define MAX_SLOTS 4096 /* tasks that have a specification at one time */
#define MAX_EXECUTABLES 4096
#define NAME_LENGTH 16
#define BORROWERS 4 /* a power of two */

enum grant_flags {
	GRANT_INHERIT = 1, /* I */
	GRANT_REVOCABLE = 2, /* R */
	GRANT_KEEP_OVER_EXEC = 4,
};

enum event_kind {
	EVENT_ADMITTED = 1,
	EVENT_REFUSED = 2,
	EVENT_TABLE_FULL = 3,
	EVENT_REVOKED_EXHAUSTED = 4,
	EVENT_REVOKED_HUNGRIEST = 5,
	EVENT_REVOKED_DISPLACED = 6,
	EVENT_REACTIVATED = 7,
	EVENT_RELEASED = 8,
	EVENT_HEIR = 10, /* for the daemon's disk room: has executed a program with its parent's priority for the disk */
	EVENT_HOLDS = 9, /* for the loader alone: tasks may be held from now on, and BOUNDARY_UNWATCHED */
};

/* What a specification gives. In the table of executables a budget of 0 says best-effort. */
struct grant {
	u64 budget_ns;
	u64 period_ns;
	u32 flags;
	u32 spec_id;
	u32 user; /* whose tasks may be irrevocable beside root's; ADMISSION_ANYBODY: everybody's */
	u32 unused;
	u64 requests_at; /* where, in the task's own memory, the number of its request stands (requests of servers); 0: nowhere */
};

/* An executable: the superblock's device (major << 20 | minor) and the inode. */
struct executable {
	u64 device;
	u64 inode;
};

/* A task that has a specification. */
struct task_slot {
	struct grant grant;
	struct edf_task edf;
	u64 reserved_time_ns;
	u64 best_effort_time_ns;
	u64 sampled_reserved_ns; /* reserved_time_ns at the last sample */
	u64 sampled_exhausted; /* edf.exhausted four samples ago, by generations below */
	u64 waiting_since_ns; /* since when it has been refused or revoked */
	s32 tid;
	s32 pid;
	u32 standing;
	u32 cpu; /* where its reservation is */
	struct admission_claim claim; /* what it asks for, and while it is admitted, what it counts as */
	struct admission_reason reason; /* of the last decision about it */
	u32 used; /* share of the CPU taken out of the reservation during the last sample */
	u32 admitted_sample; /* the CPU's sample count at admission */
	u32 exhausted_sample; /* the sampler's count when it last exhausted its budget */
	char name[NAME_LENGTH];
	s32 borrowers[BORROWERS]; /* the last children that started on time lent by it */
	u32 next_borrower; /* the place of the next one */
	u32 lends; /* one of them waits for another loan */
	u32 failures; /* how often it was tried in vain to take it back */
	u32 retry_sample; /* the sampler's count from which on it is tried again */
	u32 misplaced; /* it may not run where it was admitted */
	u32 request; /* the number of its request when it was last looked at */
	u32 unused;
};

struct event {
	u64 at_ns;
	s32 tid;
	s32 pid;
	u32 cpu;
	u32 kind;
	u32 load;
	u32 bandwidth;
	u32 threshold;
	u32 user; /* whose task it is */
	struct admission_reason reason;
	char name[NAME_LENGTH];
};

/* Requests of the daemon, run as BPF_PROG_TYPE_SYSCALL programs. */
struct assign_request {
	struct grant grant;
	s32 tid;
	u32 has_grant;
	u32 standing; /* answer */
	s32 pid; /* the process whose thread it must be; 0: whoever it is */
};

struct domain_request {
	u64 cgroup_id;
	struct domain_policy policy;
};

struct suspend_request {
	u64 cgroup_id;
	u32 suspended;
	u32 unused;
};

struct bump_request {
	u64 cgroup_id;
	u64 for_ns; /* 0: it goes on */
};

struct order_request {
	u64 service_cycle_ns;
	u32 order; /* enum order */
	u32 unused;
};

/* Settings, written by the loader before and while the scheduler runs. */
struct settings {
	struct load_thresholds thresholds;
	u32 cpus; /* number of possible CPUs */
	u64 preemption_interval_ns; /* what runs as best-effort runs at least this long before another domain preempts it */
	u64 memory_free_bytes; /* for reactivation; ~0 when not known */
	u32 owner; /* the user who may reserve for anyone; ADMISSION_ANYBODY: nobody but root */
	u32 boundary; /* enum boundary */
};

/* Whether it is known where a task is preempted. */
enum boundary {
	BOUNDARY_NEVER = 0, /* this kernel does not say it */
	BOUNDARY_UNWATCHED = 1, /* nobody is held, and so nobody asks */
	BOUNDARY_WATCHED = 2,
};

/* Counters that only grow. */
struct totals {
	u64 clock_ns; /* the scheduler's clock at the last sample */
	u64 ktime_ns; /* CLOCK_MONOTONIC at the same moment */
	u64 samples;
	u64 events_lost;
	u64 waiting; /* tasks refused or revoked, at the last sample */
	u64 cgroups_without_domain; /* at the moment: they belong to the domain above them */
};

struct exit_record {
	s64 code;
	s32 kind;
	u32 recorded;
	char reason[128];
	char message[1024];
};

#endif
