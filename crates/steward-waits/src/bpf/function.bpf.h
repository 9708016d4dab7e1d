/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How functions of the kernel are watched, what they were called with, and whether a file that they were called with is
 * on a disk.
 */
#pragma once

#include "kernel.bpf.h"

/* On an architecture whose registers are not known here. */
#define UNKNOWN (~0ULL)

/* What a function was called with first: `registers` are those at its beginning. */
static __always_inline u64 first_argument(struct pt_regs *registers)
{
	if (bpf_core_field_exists(registers->di))
		return BPF_CORE_READ(registers, di);
	if (bpf_core_field_exists(registers->regs))
		return BPF_CORE_READ(registers, regs[0]);
	return UNKNOWN;
}

/*
 * A function's end and its beginning are watched: by programs that are not preempted (kprobe.multi, of the kernel's
 * fprobe), so that none is missed; or, where the kernel lacks these, by such as may be (first.bpf.h). Of each pair the
 * end comes first, so that it is there when the beginning is: who is inside while the program begins would else never
 * be counted out.
 */
#define FUNCTION(function, name, at_end, begins) \
	SEC("kretprobe.multi/" #function)            \
	int name##_ends(void *context)               \
	{                                            \
		at_end;                                  \
		return 0;                                \
	}                                            \
	SEC("kprobe.multi/" #function)               \
	int name##_begins(struct pt_regs *context)   \
	{                                            \
		begins(first_argument(context));         \
		return 0;                                \
	}                                            \
	SEC("fexit/" #function)                      \
	int name##_ends_preempted(void *context)     \
	{                                            \
		at_end;                                  \
		return 0;                                \
	}                                            \
	SEC("fentry/" #function)                     \
	int name##_begins_preempted(u64 *context)    \
	{                                            \
		begins(context[0]);                      \
		return 0;                                \
	}

/*
 * Whether a file is on a disk: no disk is kept idle for whoever waits for something else, as long as they like (FUSE).
 */
static __always_inline bool is_on_disk(const struct file *file)
{
	return file && BPF_CORE_READ(file, f_inode, i_sb, s_bdev);
}

/* What a task knows by this number; none where it knows nothing by it. */
static __always_inline const struct file *file_of(struct task_struct *p, u32 descriptor)
{
	struct fdtable *table = BPF_CORE_READ(p, files, fdt);
	struct file *file = NULL;

	if (descriptor < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + descriptor);
	return file;
}
