/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Programs that see whatever happens where they are attached. While one runs for a task, that task may be preempted: in
 * functions (fentry, fexit) always, at most tracepoints from Linux 7.0 on. Another one that comes by the same place of
 * the same CPU meanwhile is taken for a recursion, and the program is told nothing of it (`recursion_misses`): of 200
 * programs that were started at once 178 had no specification, and of 16 threads that saved at once for ten seconds all
 * were held to be inside for ever. So a program does its work whole, and is preempted after it if at all, where the
 * kernel lets it say so (6.10). That is still inside for the kernel: what must not be lost has a second place, or is
 * put right by the next event.
 */
#ifndef STEWARD_ALONE_BPF_H
#define STEWARD_ALONE_BPF_H

#include "kernel.bpf.h"

extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

/* A program of this name; its body, which has its arguments as `context`, follows. */
#define PROGRAM(section, name)                                                                        \
	static __always_inline int name##_body(u64 *context);                                             \
	SEC(section)                                                                                      \
	int name(u64 *context)                                                                            \
	{                                                                                                 \
		bool alone = bpf_ksym_exists(bpf_preempt_disable) && bpf_ksym_exists(bpf_preempt_enable);     \
                                                                                                      \
		if (alone)                                                                                    \
			bpf_preempt_disable();                                                                    \
		name##_body(context);                                                                         \
		if (alone)                                                                                    \
			bpf_preempt_enable();                                                                     \
		return 0;                                                                                     \
	}                                                                                                 \
	static __always_inline int name##_body(u64 *context)

#endif
