/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What Steward's BPF programs use of the kernel: types, constants and functions, and nothing else.
 *
 * A vmlinux.h would bring 140,000 lines of one kernel build and a package to fetch it from. Every structure here is
 * marked for relocation (CO-RE): libbpf looks the fields up by name in the running kernel's BTF, so only the names and
 * types must agree, not the layout. Constants that kernels number differently are relocated too (see compat.bpf.h).
 * What a program does not touch costs it nothing. Names are those of include/linux/sched.h, include/linux/sched/ext.h,
 * include/linux/cred.h, include/linux/cgroup-defs.h, include/linux/bpf.h, kernel/sched/sched.h, kernel/sched/ext.c and
 * include/uapi/linux/bpf.h, kernel 7.3.
 */
#ifndef STEWARD_KERNEL_BPF_H
#define STEWARD_KERNEL_BPF_H

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
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_MMAPABLE = 1U << 10,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1U << 0,
	BPF_F_TIMER_CPU_PIN = 1ULL << 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 1ULL << 1,
};

#define CLOCK_MONOTONIC 1
#define SIGNAL_GROUP_EXIT 0x4 /* the process was killed, or ends with all its threads */
#define ENOENT 2
#define ESRCH 3
#define EAGAIN 11
#define EEXIST 17
#define ENOMEM 12
#define EINVAL 22
#define ENOSPC 28
#define EOPNOTSUPP 95
#define ENOSYS 38

#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010
#define PF_WQ_WORKER 0x00000020
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000
#define TASK_INTERRUPTIBLE 0x00000001
/* Set beside TASK_UNINTERRUPTIBLE by threads that wait for work, not for something that is under way. */
#define TASK_IDLE_NOLOAD 0x00000400
#define NO_SYSCALL (-1)

struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_task_work {
	__u64 __opaque;
} __attribute__((aligned(8)));

struct bpf_spin_lock {
	__u32 val;
};

struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

/* The walk over all tasks as a loop within a program (kernel/bpf/task_iter.c, Linux 6.8 and later). */
struct bpf_iter_task {
	__u64 opaque[3];
};
#define BPF_TASK_ITER_ALL_THREADS 1

struct bpf_iter_scx_dsq {
	u64 opaque[6];
} __attribute__((aligned(8)));

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cpumask {
	unsigned long bits[1];
};

struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
};

struct percpu_counter {
	s64 count; /* near the sum: what the CPUs have not added yet is missing */
};

/* Places in rss_stat. */
enum {
	MM_FILEPAGES = 0,
	MM_ANONPAGES = 1,
	MM_SHMEMPAGES = 3,
	NR_MM_COUNTERS = 4,
};

struct mm_struct {
	struct file *exe_file;
	unsigned long data_vm;
	unsigned long exec_vm;
	unsigned long stack_vm;
	struct percpu_counter rss_stat[NR_MM_COUNTERS]; /* since 6.2 */
};

typedef struct {
	u32 val;
} kuid_t;

struct uid_gid_extent {
	u32 first;
	u32 lower_first;
};

struct uid_gid_map {
	struct uid_gid_extent extent[5];
	u32 nr_extents;
};

struct user_namespace {
	struct uid_gid_map uid_map;
	struct user_namespace *parent;
	int level;
	kuid_t owner;
};

struct cred {
	kuid_t uid;
	struct user_namespace *user_ns;
};

typedef struct {
	unsigned long sig[1]; /* there are more where a word has 32 bits */
} sigset_t;

struct sigpending {
	sigset_t signal;
};

struct signal_struct {
	unsigned int flags;
	struct sigpending shared_pending;
};

/* With what a task came into the kernel: each architecture has one of these. */
struct pt_regs {
	unsigned long orig_ax; /* x86: the system call, or less than 0 */
	unsigned long di; /* x86: what a function was called with first */
	s32 syscallno; /* arm64: the system call, or NO_SYSCALL */
	u64 regs[1]; /* arm64: what a function was called with first */
};

struct thread_info {
	u32 cpu;
};

/* With CONFIG_BLOCK. */
struct io_context {
	unsigned short ioprio;
};

struct sched_entity {
	u64 exec_start;
	u64 sum_exec_runtime;
};

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_queued;
};

struct cgroup_subsys_state;

/* The kernel's own has more of them, and other numbers where a controller is not built in. */
enum cgroup_subsys_id {
	memory_cgrp_id = 4,
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};

struct files_struct;

struct task_struct {
	struct thread_info thread_info;
	struct files_struct *files;
	unsigned int __state;
	unsigned int flags;
	u32 on_cpu; /* a byte in newer kernels: an unsigned one may be read in its own width */
	int static_prio;
	struct sched_entity se;
	struct sched_ext_entity scx;
	unsigned int policy;
	struct sched_info sched_info;
	int exit_state;
	unsigned long jobctl;
	const struct cpumask *cpus_ptr;
	struct cpumask cpus_mask;
	int nr_cpus_allowed;
	unsigned short migration_disabled;
	unsigned int in_execve : 1; /* it is in the middle of executing one */
	u64 self_exec_id; /* counts the programs that it has executed */
	struct mm_struct *mm;
	const struct cred *real_cred;
	s32 pid;
	s32 tgid;
	u64 start_boottime;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	struct sigpending pending;
	int rcu_read_lock_nesting; /* with CONFIG_PREEMPT_RCU */
	struct css_set *cgroups;
	struct io_context *io_context;
	void *worker_private; /* of a kernel thread, its struct kthread */
	char comm[16];
};

struct kthread {
	unsigned long flags;
};

/* Of its flags, by number (kernel/kthread.c). */
#define KTHREAD_IS_PER_CPU 0

/* Whole, though nothing of it is used: libbpf takes a function for another one when it gets what is only declared. */
struct bpf_map {
	u32 id;
};

struct block_device;

struct super_block {
	u32 s_dev;
	struct block_device *s_bdev; /* none where the file system is on no disk of this machine's */
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct linux_binprm {
	struct file *file;
};

struct kernfs_node {
	u64 id;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	int level;
	struct kernfs_node *kn;
};

struct rq {
	unsigned int nr_running;
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

struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
};

struct scx_exit_task_args {
	bool cancelled;
};

struct scx_cgroup_init_args {
	u32 weight;
	u64 bw_period_us;
	u64 bw_quota_us;
	u64 bw_burst_us;
	bool sched_idle;
};

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
};

struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
};

#pragma clang attribute pop

/* libbpf fills the kernel's structure in by the names of these members. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*set_weight)(struct task_struct *p, u32 weight);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
	void (*update_idle)(s32 cpu, bool idle);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us);
	void (*cgroup_set_idle)(struct cgroup *cgrp, bool idle);
	void (*cpu_online)(s32 cpu);
	void (*cpu_offline)(s32 cpu);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	u32 exit_dump_len;
	u64 hotplug_seq;
	char name[128];
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* Constants of sched_ext. All have had these values since 6.12. */
enum scx_constants {
	SCX_DSQ_GLOBAL = 0x8000000000000001ULL,
	SCX_DSQ_LOCAL = 0x8000000000000002ULL,
	SCX_ENQ_WAKEUP = 1ULL,
	SCX_ENQ_PREEMPT = 1ULL << 32,
	SCX_ENQ_LAST = 1ULL << 41,
	SCX_KICK_IDLE = 1,
	SCX_KICK_PREEMPT = 2,
	SCX_TASK_QUEUED = 1,
	SCX_DSQ_ITER_REV = 1 << 16,
	SCX_OPS_KEEP_BUILTIN_IDLE = 1 << 0,
	SCX_OPS_ENQ_LAST = 1 << 1,
	SCX_OPS_ENQ_EXITING = 1 << 2,
	SCX_OPS_ENQ_MIGRATION_DISABLED = 1 << 4,
};

/* This one has not: it is asked for by name, SCX_ENQ_FIRST(). */
enum scx_enq_flags {
	SCX_ENQ_HEAD = 1 << 4,
};
#define SCX_ENQ_FIRST() bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_HEAD)

/* Functions of the kernel. */
extern s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
extern s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
extern const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
extern void scx_bpf_put_cpumask(const struct cpumask *cpumask) __ksym;
extern s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
extern bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
extern s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags) __ksym;
extern s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
extern u32 scx_bpf_nr_cpu_ids(void) __ksym __weak;
extern void scx_bpf_error_bstr(char *fmt, unsigned long long *data, u32 data_len) __ksym;
extern int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
extern struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
extern void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;
extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
extern void bpf_task_release(struct task_struct *p) __ksym;
extern bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;
extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task, unsigned int flags) __ksym;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __ksym;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) __ksym;
/* Of each CPU; in the kernel's BTF as a variable. */
extern const struct rq runqueues __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;

/* The program could not go on: the kernel unloads it and reports the text. */
#define scheduler_error(text)                                                  \
	({                                                                     \
		static char error_text[] = text;                               \
		unsigned long long no_data = 0;                                \
		scx_bpf_error_bstr(error_text, &no_data, 0);                   \
	})

#endif
