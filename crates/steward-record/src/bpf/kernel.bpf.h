/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the recorder uses of the kernel. Structures are marked for relocation (CO-RE): libbpf looks their members up by
 * name in the running kernel's BTF. Names are those of include/linux/sched.h, include/linux/cgroup-defs.h and
 * include/uapi/linux/bpf.h, kernel 7.3.
 */
#ifndef STEWARD_RECORD_KERNEL_BPF_H
#define STEWARD_RECORD_KERNEL_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef _Bool bool;
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_NOEXIST = 1,
	BPF_RB_NO_WAKEUP = 1,
};

#define TASK_INTERRUPTIBLE 0x00000001
/* Set beside TASK_UNINTERRUPTIBLE by threads that wait for work, not for something that is under way. */
#define TASK_IDLE_NOLOAD 0x00000400

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_struct {
	int static_prio;
	int nr_cpus_allowed;
	s32 pid;
	s32 tgid;
	struct css_set *cgroups;
	char comm[16];
};

#pragma clang attribute pop

struct linux_binprm;

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#endif
