/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the bound of the interactive class (decide/class.h) does: best-effort work that is served before it for a
 * moment.
 */
#ifndef STEWARD_GAP_BPF_H
#define STEWARD_GAP_BPF_H

#include "rescue.bpf.h"

/*
 * The interactive class has had more than it may (decide/class.h): serves best-effort work first, if any waits. What is
 * chosen runs for a moment only. prev is not asked: it had its turn, or is what is held back.
 */
static __always_inline bool serve_gap(struct cpu_run *run, u32 cpu, u64 now_ns)
{
	if (!class_held(&run->class_use, 0, now_ns))
		return false;
	run->gap = 1;
	if (serve_overdue(run, now_ns, false) || serve_leaving(cpu, now_ns, false) || serve_domains(NULL, cpu) == SERVED)
		return true;
	run->gap = 0;
	return false;
}

/* What runs as best-effort was chosen before the interactive class. */
static __always_inline void begin_gap(struct task_struct *p, struct cpu_run *run, u32 cpu)
{
	if (!run->gap)
		return;
	run->gap = 0;
	task_set_slice(p, CLASS_GAP_NS);
	watch_budget(run, cpu, CLASS_GAP_NS);
}

#endif
