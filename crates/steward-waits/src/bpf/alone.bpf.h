/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Programs that see whatever happens where they are attached. While one runs for a task, that task may be preempted: in
 * functions (fentry, fexit) always, at tracepoints from Linux 7.0 on. Another one that comes by the same place of the
 * same CPU meanwhile is taken for a recursion, and nothing is told of it (`recursion_misses`): of 16 threads that saved
 * at once for ten seconds, all were held to be inside for ever. So nobody is preempted inside where the kernel lets a
 * program say so; what is left are the kernel's own few instructions around it, and what is counted there is made right
 * by whoever comes next.
 */
#pragma once

#include "kernel.bpf.h"

void bpf_preempt_disable(void) __ksym __weak;
void bpf_preempt_enable(void) __ksym __weak;

static __always_inline bool may_stay(void)
{
	return bpf_ksym_exists(bpf_preempt_disable) && bpf_ksym_exists(bpf_preempt_enable);
}

/* A program of this name, whose body follows. */
#define PROGRAM(section, name)                              \
	static __always_inline int name##_body(u64 *context);   \
	SEC(section)                                            \
	int name(u64 *context)                                  \
	{                                                       \
		bool stays = may_stay();                            \
                                                            \
		if (stays)                                          \
			bpf_preempt_disable();                          \
		name##_body(context);                               \
		if (stays)                                          \
			bpf_preempt_enable();                           \
		return 0;                                           \
	}                                                       \
	static __always_inline int name##_body(u64 *context)
