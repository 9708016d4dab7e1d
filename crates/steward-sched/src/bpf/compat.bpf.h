/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One name for what kernels from 6.12 on call differently. Each function picks, at load time, the form that the
 * running kernel has: absent symbols resolve to NULL and the verifier removes the branches behind them.
 */
#ifndef STEWARD_COMPAT_BPF_H
#define STEWARD_COMPAT_BPF_H

#include "kernel.bpf.h"

/*
 * 6.13 renamed dispatch to insert and move; 6.19 made insert return whether it was done; 7.1 gave move flags. libbpf
 * looks a function up without what follows the last three underscores of its name, which here is not the "v2" that
 * belongs to the kernel's name.
 */
extern bool scx_bpf_dsq_insert___v2___compat(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
extern void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
extern void scx_bpf_dispatch(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
extern bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args) __ksym __weak;
extern void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __ksym
	__weak;
extern void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __ksym
	__weak;
extern bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym __weak;
extern bool scx_bpf_consume(u64 dsq_id) __ksym __weak;
extern void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, u64 slice) __ksym __weak;
extern void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
extern bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym
	__weak;
extern bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym __weak;
extern bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym
	__weak;
extern void scx_bpf_dispatch_from_dsq_set_slice(struct bpf_iter_scx_dsq *it, u64 slice) __ksym __weak;
extern void scx_bpf_dispatch_from_dsq_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
extern bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
					    u64 enq_flags) __ksym __weak;
/* 6.19 asks for these instead of plain stores. */
extern bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;
/* 6.19 reads the first task of a queue without locks; from 7.1 on, which also has this move, what it returns is
 * sound. */
extern struct task_struct *scx_bpf_dsq_peek(u64 dsq_id) __ksym __weak;
extern bool scx_bpf_dsq_move_to_local___v2___compat(u64 dsq_id, u64 enq_flags) __ksym __weak;
/* Work for a task to do when it is about to enter user space: in 6.18, and from 7.0 on. */
typedef int (*task_work_callback)(struct bpf_map *map, void *key, void *value);
extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *work, void *map__map,
					      task_work_callback callback, void *aux__prog) __ksym __weak;
extern int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *work, void *map__const_map,
					 task_work_callback callback) __ksym __weak;
/* 6.14. */
extern u64 scx_bpf_now(void) __ksym __weak;
/* 6.10, and so wherever there is task work. */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

static inline void queue_insert(struct task_struct *p, u64 queue, u64 slice_ns, u64 enq_flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2___compat))
		scx_bpf_dsq_insert___v2___compat(p, queue, slice_ns, enq_flags);
	else if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(p, queue, slice_ns, enq_flags);
	else
		scx_bpf_dispatch(p, queue, slice_ns, enq_flags);
}

static inline void queue_insert_ordered(struct task_struct *p, u64 queue, u64 slice_ns, u64 key, u64 enq_flags)
{
	if (bpf_core_type_exists(struct scx_bpf_dsq_insert_vtime_args)) {
		struct scx_bpf_dsq_insert_vtime_args args = {
			.dsq_id = queue,
			.slice = slice_ns,
			.vtime = key,
			.enq_flags = enq_flags,
		};

		__scx_bpf_dsq_insert_vtime(p, &args);
	} else if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime)) {
		scx_bpf_dsq_insert_vtime(p, queue, slice_ns, key, enq_flags);
	} else {
		scx_bpf_dispatch_vtime(p, queue, slice_ns, key, enq_flags);
	}
}

/* Moves the first task of the queue that may run here to this CPU. */
static inline bool queue_to_local(u64 queue)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___compat))
		return scx_bpf_dsq_move_to_local___v2___compat(queue, 0);
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local))
		return scx_bpf_dsq_move_to_local(queue);
	return scx_bpf_consume(queue);
}

/* Moves p, which stands in queue from, to queue to with the given key. False when it no longer stands there. */
static inline bool queue_move_ordered(struct task_struct *p, u64 from, u64 to, u64 slice_ns, u64 key)
{
	struct bpf_iter_scx_dsq it;
	bool moved = false;

	if (!bpf_iter_scx_dsq_new(&it, from, 0)) {
		if (bpf_ksym_exists(scx_bpf_dsq_move_vtime)) {
			scx_bpf_dsq_move_set_slice(&it, slice_ns);
			scx_bpf_dsq_move_set_vtime(&it, key);
			moved = scx_bpf_dsq_move_vtime(&it, p, to, 0);
		} else {
			scx_bpf_dispatch_from_dsq_set_slice(&it, slice_ns);
			scx_bpf_dispatch_from_dsq_set_vtime(&it, key);
			moved = scx_bpf_dispatch_vtime_from_dsq(&it, p, to, 0);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return moved;
}

/* Moves the task at which the iteration stands to the end of a queue without order. */
static inline bool iterated_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 to)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move))
		return scx_bpf_dsq_move(it, p, to, 0);
	return scx_bpf_dispatch_from_dsq(it, p, to, 0);
}

/* The same, to an ordered queue. */
static inline bool iterated_move_ordered(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 to, u64 slice_ns, u64 key)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_vtime)) {
		scx_bpf_dsq_move_set_slice(it, slice_ns);
		scx_bpf_dsq_move_set_vtime(it, key);
		return scx_bpf_dsq_move_vtime(it, p, to, 0);
	}
	scx_bpf_dispatch_from_dsq_set_slice(it, slice_ns);
	scx_bpf_dispatch_from_dsq_set_vtime(it, key);
	return scx_bpf_dispatch_vtime_from_dsq(it, p, to, 0);
}

/* Has the task call back when it is about to enter user space; 0 when it will. A macro, for the kernel wants to see
 * the map. */
#define schedule_task_work(p, work, map, callback)                                          \
	(bpf_ksym_exists(bpf_task_work_schedule_resume) ?                                   \
		 bpf_task_work_schedule_resume(p, work, map, callback) :                    \
	 bpf_ksym_exists(bpf_task_work_schedule_resume_impl) ?                              \
		 bpf_task_work_schedule_resume_impl(p, work, map, callback, NULL) :         \
		 -ENOSYS)

/* The key of the first task in an ordered queue; false when it is empty. */
static inline bool queue_first_key(u64 queue, u64 *key)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool found = false;

	if (bpf_ksym_exists(scx_bpf_dsq_peek) && bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___compat)) {
		p = scx_bpf_dsq_peek(queue);
		if (!p)
			return false;
		*key = p->scx.dsq_vtime;
		return true;
	}
	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		p = bpf_iter_scx_dsq_next(&it);
		if (p) {
			*key = p->scx.dsq_vtime;
			found = true;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return found;
}

static inline void task_set_slice(struct task_struct *p, u64 slice_ns)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice_ns);
	else
		p->scx.slice = slice_ns;
}

/* The scheduler's clock, in nanoseconds, as this CPU last read it. */
static inline u64 clock_now(void)
{
	if (bpf_ksym_exists(scx_bpf_now))
		return scx_bpf_now();
	return bpf_ktime_get_ns();
}

/*
 * The same clock as the kernel read it when it last took up something on that CPU. For callbacks that the kernel calls
 * with the lock of that CPU's run queue: it has read the clock just before. scx_bpf_now() reads it anew each time after
 * the kernel has asked for tasks (ops.dispatch), at the price of a map's look-up or ten.
 */
static inline u64 clock_of(u32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && bpf_ksym_exists(scx_bpf_now) ? rq->clock : clock_now();
}

#endif
