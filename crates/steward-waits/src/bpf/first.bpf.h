/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tells when a moment begins in which a program whose disk requests are served first waits for the disk beside others
 * who want it, and notes until when one did: it hands a request on, or has something brought to the disk (fsync(2) and
 * its like), where most of the time goes by in the file system's journal. The rule is that of
 * steward_core::disk::moments::Seen.
 *
 * Served first are tasks with the real-time class for the disk (ioprio_set(2)), whoever gave it to them, and those of
 * cgroups of which the reader says so; but not the kernel's own threads, which work for others.
 *
 * Announced is the first such moment only, through the ring. The reader then looks by itself whether it is over, and
 * clears `announced` to be told of the next one.
 */
#pragma once

#include "journal.h"
#include "kernel.bpf.h"

/* The priority's class is above these bits, and its level in the lowest three (include/uapi/linux/ioprio.h). */
#define IOPRIO_CLASS_SHIFT 13
#define IOPRIO_CLASS_RT 1
#define IOPRIO_CLASS_BE 2
#define IOPRIO_CLASS_IDLE 3
#define IOPRIO_LEVEL_MASK 7

#define CALLS_BYTES 4096
#define FIRST_CGROUPS_MAX 4096
/* How many cgroups are looked at from a task's own upwards. */
#define MARK_LEVELS 16

/* A process, and when it was seen last in nanoseconds of CLOCK_MONOTONIC; 0: none was. */
struct last {
	u64 at_ns;
	u32 pid; /* 0 for the kernel's threads */
	u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, CALLS_BYTES);
} calls SEC(".maps");

/* Cgroups by id: 1 where their tasks are served first, 0 where they are not although those of the one above are. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FIRST_CGROUPS_MAX);
	__type(key, u64);
	__type(value, u8);
} first_cgroups SEC(".maps");

/* Whether there are any of these. */
volatile u32 marks;
/* Of whom one that is served first began to wait last, or ceased to. */
volatile struct last first;
/* Who else handed a request on last, or whose was given to a disk last: what waits in the elevator is wanted still. */
volatile struct last others;
/* When one of those who are served first was inside fsync last. */
volatile u64 saved_at_ns;
/* When others came out of fsync last, who are inside all the time: to keep a disk idle is dear for them. */
volatile u64 dear_at_ns;
/* For how long others were inside lately: all of that goes in, and a part of the time that passes goes out. */
volatile struct level {
	u64 held_ns;
	u64 at_ns;
} dear_level;
/* How many of those who are served first are inside fsync. */
volatile u32 waiting;
/* Whether anybody is to be called. */
volatile u32 listens;
/* Whether the reader was called and has not looked away since. */
volatile u32 announced;

/* For how long after somebody has waited there may be a moment yet, and after somebody has saved where others do
 * nothing dear; and for how long others are thought to want the disk, in nanoseconds; the reader sets all of them. */
const volatile u64 over_after_ns = 1;
const volatile u64 over_later_ns = 1;
const volatile u64 alone_after_ns = 1;
/* From which level on others are inside all the time, in nanoseconds, and what part of the time goes out of it; the
 * reader sets both. */
const volatile u64 dear_from_ns = 1;
const volatile u64 dear_part = 1;
/* The process that reads, whose undo journal is no load on anybody's disk. */
const volatile u32 reader_pid;

static __always_inline bool is_journal(struct task_struct *p)
{
	return p->flags & PF_KTHREAD && is_journal_name(p->comm);
}

/* What the reader says of a task's cgroup, or else of the next one above it of which it says anything: a domain's tasks
 * may be in a leaf below it, and a program makes its own. */
static __always_inline bool is_marked(struct task_struct *p)
{
	struct cgroup *cgroup = p->cgroups->dfl_cgrp;
	struct cgroup_subsys_state *above;
	int level;

	for (level = 0; level < MARK_LEVELS; level++) {
		u64 id = cgroup->kn->id;
		u8 *mark = bpf_map_lookup_elem(&first_cgroups, &id);

		if (mark)
			return *mark;
		above = cgroup->self.parent;
		if (!above)
			return false;
		cgroup = above->cgroup;
	}
	return false;
}

/* Whether what a task has chosen for itself lets it be served first for its cgroup: it is not in the background. */
static __always_inline bool is_last(const struct io_context *context)
{
	u16 class = context->ioprio >> IOPRIO_CLASS_SHIFT;

	return class == IOPRIO_CLASS_IDLE ||
	       (class == IOPRIO_CLASS_BE && (context->ioprio & IOPRIO_LEVEL_MASK) == IOPRIO_LEVEL_MASK);
}

/* Whether the tasks of this cgroup are served first. */
static __always_inline bool is_of_first(u64 cgroup_id)
{
	u8 *mark = marks ? bpf_map_lookup_elem(&first_cgroups, &cgroup_id) : NULL;

	return mark && *mark;
}

static __always_inline bool served_first(struct task_struct *p)
{
	struct io_context *context = p->io_context;

	if (p->flags & PF_KTHREAD)
		return false;
	if (context && context->ioprio >> IOPRIO_CLASS_SHIFT == IOPRIO_CLASS_RT)
		return true;
	return marks && !(context && is_last(context)) && is_marked(p);
}

static __always_inline u64 since(u64 now_ns, u64 then_ns)
{
	return now_ns > then_ns ? now_ns - then_ns : 0;
}

static __always_inline bool is_within(u64 then_ns, u64 now_ns, u64 for_ns)
{
	/* Another CPU's clock may have been read a little later. */
	return then_ns && (then_ns > now_ns || now_ns - then_ns < for_ns);
}

static __always_inline bool is_moment(u64 now_ns)
{
	bool waits = waiting || is_within(first.at_ns, now_ns, over_after_ns) ||
		     (is_within(saved_at_ns, now_ns, over_later_ns) && !is_within(dear_at_ns, now_ns, alone_after_ns));

	return waits && is_within(others.at_ns, now_ns, alone_after_ns) && others.pid != first.pid;
}

static __always_inline void announce(u64 now_ns)
{
	u8 *entry;

	if (!listens || announced || !is_moment(now_ns) || __sync_val_compare_and_swap(&announced, 0, 1))
		return;
	entry = bpf_ringbuf_reserve(&calls, sizeof(*entry), 0);
	if (!entry)
		return;
	*entry = 0;
	bpf_ringbuf_submit(entry, BPF_RB_FORCE_WAKEUP);
}

static __always_inline void note_first(struct task_struct *p, u64 now_ns)
{
	first.at_ns = now_ns;
	first.pid = p->tgid;
	announce(now_ns);
}

/*
 * A request is handed on: by who reads, and by who writes past the cache or brings pages to the disk; by the kernel's
 * threads for the cgroup `writes_for`, if that is known. Returns whether that is one who may be another.
 */
static __always_inline bool note_request(struct task_struct *p, u64 writes_for, u64 now_ns)
{
	u32 pid = p->flags & PF_KTHREAD ? 0 : p->tgid;

	if (served_first(p)) {
		note_first(p, now_ns);
		return false;
	}
	if (is_journal(p) || (!pid && is_of_first(writes_for)))
		return false;
	if (!pid || pid != first.pid) {
		others.at_ns = now_ns;
		others.pid = pid;
		announce(now_ns);
	}
	return true;
}

/*
 * A request is given to a disk that another process (0: the kernel) handed on, for this cgroup: what the kernel writes
 * back for one that is served first is its own.
 */
static __always_inline void note_others_given(u32 pid, u64 cgroup_id, u64 now_ns)
{
	if (pid && pid == first.pid)
		return;
	if (is_of_first(cgroup_id))
		return;
	others.at_ns = now_ns;
	others.pid = pid;
}

/*
 * The functions that a task may be inside, as bits: of each it is known whether it is there, and not how often, so that
 * an end which was not seen is made up for by the next one. While a program runs for a task, that may be preempted: in
 * functions (fentry) always, at most tracepoints from Linux 7.0 on. Another one that comes by the same place of the
 * same CPU meanwhile is taken for a recursion, and the program is told nothing of it (`recursion_misses`). To disable
 * preemption in the program is no help: who enables it again is preempted there, still inside for the kernel.
 */
enum inside {
	IN_CALL = 1, /* fsync(2) and fdatasync(2), which end all below them */
	IN_RANGE = 2, /* what others call to save, too */
	IN_BALANCE = 4, /* waiting because too much is not written yet */
};

static __always_inline u32 is_left(u32 inside, u32 what)
{
	return what == IN_CALL ? inside & ~(IN_CALL | IN_RANGE) : inside & ~what;
}

/* Somebody goes into fsync; `inside` is where it is already, if it was counted. */
static __always_inline void first_enters(struct task_struct *p, u32 *inside, u32 what, u64 now_ns)
{
	bool is_first = served_first(p);

	if (!is_first && !*inside)
		return;
	if (!*inside)
		__sync_fetch_and_add(&waiting, 1);
	*inside |= what;
	if (is_first)
		note_first(p, now_ns);
}

/*
 * Whoever was counted is counted out, whatever its priority is by now. Who has brought nothing to a disk meanwhile
 * saves a file again and again at no cost of its own, and no disk is kept idle for the next time.
 */
static __always_inline void first_leaves(struct task_struct *p, u32 *inside, u32 what, bool has_saved, u64 now_ns)
{
	if (!*inside)
		return;
	if (has_saved) {
		first.at_ns = now_ns;
		first.pid = p->tgid;
		saved_at_ns = now_ns;
	}
	*inside = is_left(*inside, what);
	if (!*inside)
		__sync_fetch_and_sub(&waiting, 1);
}

/*
 * Somebody comes out of fsync after so long. One that was not counted is another, who works for nobody that is served
 * first. Several CPUs may do so at the same time, and what one of them counts be lost: who is inside all the time comes
 * again.
 */
static __always_inline void others_leave(struct task_struct *p, u64 inside_ns, u64 now_ns)
{
	u64 gone_ns, held_ns = dear_level.held_ns;

	if (p->tgid == first.pid || p->tgid == reader_pid || p->flags & PF_KTHREAD || served_first(p))
		return;
	gone_ns = since(now_ns, dear_level.at_ns) / (dear_part ?: 1);
	held_ns = (held_ns > gone_ns ? held_ns - gone_ns : 0) + inside_ns;
	/* Many at once count for no longer than one. */
	if (held_ns > dear_from_ns)
		held_ns = dear_from_ns;
	dear_level.held_ns = held_ns;
	dear_level.at_ns = now_ns;
	if (held_ns == dear_from_ns)
		dear_at_ns = now_ns;
}
