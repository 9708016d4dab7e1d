/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The least that a sched_ext scheduler can be: one queue for the machine, first come, first served. No weights, no
 * fairness, no accounts. What a program costs under this one above the default scheduler is what the framework costs:
 * no scheduler that is loaded through it, and has a queue of its own, can cost less.
 */
#include "compat.bpf.h"

char _license[] SEC("license") = "GPL";

#define QUEUE 0
#define SLICE_NS 4000000ULL

SEC("struct_ops/null_enqueue")
void BPF_PROG(null_enqueue, struct task_struct *p, u64 enq_flags)
{
	queue_insert(p, QUEUE, SLICE_NS, enq_flags);
}

SEC("struct_ops/null_dispatch")
void BPF_PROG(null_dispatch, s32 cpu, struct task_struct *prev)
{
	queue_to_local(QUEUE);
}

SEC("struct_ops.s/null_init")
s32 BPF_PROG(null_init)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops null_ops = {
	.enqueue = (void *)null_enqueue,
	.dispatch = (void *)null_dispatch,
	.init = (void *)null_init,
	.name = "null",
};
