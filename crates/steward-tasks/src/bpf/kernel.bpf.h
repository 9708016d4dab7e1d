/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the reader of tasks uses of the kernel. Structures are marked for relocation (CO-RE): libbpf looks their members
 * up by name in the running kernel's BTF. Names are those of include/linux/sched.h, include/linux/cred.h,
 * include/linux/cgroup-defs.h, kernel/sched/sched.h and include/linux/bpf.h, kernel 7.3.
 */
#ifndef STEWARD_TASKS_KERNEL_BPF_H
#define STEWARD_TASKS_KERNEL_BPF_H

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
	BPF_MAP_TYPE_ARRAY = 2,
};
#define BPF_F_MMAPABLE (1U << 10)

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

typedef struct {
	u32 val;
} kuid_t;

struct cred {
	kuid_t uid;
};

struct thread_info {
	u32 cpu;
};

struct sched_entity {
	u64 exec_start;
	u64 sum_exec_runtime;
};

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_queued;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	u32 on_cpu; /* a byte in newer kernels: an unsigned one may be read in its own width */
	int static_prio;
	struct sched_entity se;
	unsigned int policy;
	struct sched_info sched_info;
	int exit_state;
	s32 pid;
	s32 tgid;
	u64 start_boottime;
	const struct cred *real_cred;
	char comm[16];
	struct css_set *cgroups;
};

struct rq {
	u64 clock;
	u64 clock_task;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id;
	u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* The walk over all tasks as a loop within a program (kernel/bpf/task_iter.c, Linux 6.8 and later). */
struct bpf_iter_task {
	__u64 opaque[3];
};
#define BPF_TASK_ITER_ALL_THREADS 1

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task, unsigned int flags) __ksym;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __ksym;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;

/* Of each CPU; in the kernel's BTF as a variable. */
extern const struct rq runqueues __ksym;

#endif
