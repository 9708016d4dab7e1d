/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tells when a program whose disk requests are served first begins to wait for the disk, and notes until when one did:
 * it hands a request on, or has something brought to the disk (fsync(2) and its like), where most of the time goes by
 * in the file system's journal.
 *
 * Served first are tasks with the real-time class for the disk (ioprio_set(2)), whoever gave it to them, but the
 * kernel's own threads, which work for others.
 *
 * Announced is the first wait only, through the ring. The reader then looks by itself whether anybody still waits, and
 * clears `announced` to be told of the next one.
 */
#include "kernel.bpf.h"

/* The priority's class is above these bits, and real-time is class 1 (include/uapi/linux/ioprio.h). */
#define IOPRIO_CLASS_SHIFT 13
#define IOPRIO_CLASS_RT 1

#define RING_BYTES 4096

/* How deep a task that is counted in `waiting` is in these functions. */
struct inside {
	u32 depth;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct inside);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} calls SEC(".maps");

/* When somebody began to wait last, or ceased to, in nanoseconds of CLOCK_MONOTONIC. */
volatile u64 last_ns;
/* How many are inside fsync. */
volatile u32 waiting;
/* Whether the reader was called and has not looked away since. */
volatile u32 announced;

char _license[] SEC("license") = "GPL";

static __always_inline bool served_first(struct task_struct *p)
{
	struct io_context *context = p->io_context;

	if (!context || p->flags & PF_KTHREAD)
		return false;
	return context->ioprio >> IOPRIO_CLASS_SHIFT == IOPRIO_CLASS_RT;
}

static __always_inline void call(void)
{
	u8 *entry;

	last_ns = bpf_ktime_get_ns();
	if (announced || __sync_val_compare_and_swap(&announced, 0, 1))
		return;
	entry = bpf_ringbuf_reserve(&calls, sizeof(*entry), 0);
	if (!entry)
		return;
	*entry = 0;
	bpf_ringbuf_submit(entry, BPF_RB_FORCE_WAKEUP);
}

/* A request is handed on: by who reads, and by who writes past the cache or brings pages to the disk. */
SEC("tp_btf/block_bio_queue")
int request_begins(void *context)
{
	if (served_first(bpf_get_current_task_btf()))
		call();
	return 0;
}

static __always_inline void enter(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct inside *inside;
	bool is_first = served_first(p);

	inside = bpf_task_storage_get(&tasks, p, NULL, is_first ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (!inside || !(is_first || inside->depth))
		return;
	if (!inside->depth++)
		__sync_fetch_and_add(&waiting, 1);
	call();
}

/* Whoever was counted is counted out, whatever its priority is by now. */
static __always_inline void leave(void)
{
	struct inside *inside = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), NULL, 0);

	if (!inside || !inside->depth)
		return;
	last_ns = bpf_ktime_get_ns();
	if (!--inside->depth)
		__sync_fetch_and_sub(&waiting, 1);
}

/* msync(2), writes with O_SYNC, io_uring, and on some kernels what follows too. */
SEC("fentry/vfs_fsync_range")
int sync_begins(void *context)
{
	enter();
	return 0;
}

SEC("fexit/vfs_fsync_range")
int sync_ends(void *context)
{
	leave();
	return 0;
}

/* fsync(2) and fdatasync(2), for which compilers copy the other one; not there on every kernel. */
SEC("fentry/do_fsync")
int call_begins(void *context)
{
	enter();
	return 0;
}

SEC("fexit/do_fsync")
int call_ends(void *context)
{
	leave();
	return 0;
}
