/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The program's state: maps, variables, queue numbers, and how a task's own state is found.
 */
#ifndef STEWARD_STATE_BPF_H
#define STEWARD_STATE_BPF_H

#include "kernel.bpf.h"
#include "compat.bpf.h"
#include "record.h"

/* order_precedes() about the one table that there is, verified once. `few` is the number of a CPU, or NOT_FEW. */
bool domain_precedes(unsigned int a, unsigned int b, unsigned int few);
#define NOT_FEW (~0U)
#define ORDER_PRECEDES(table, a, b) domain_precedes(a, b, NOT_FEW)
#define RESTRICTED_PRECEDES(table, cpu, number, a, b) domain_precedes(a, b, number)

#include "decide/best_effort.h"
#include "decide/class.h"

/*
 * Queues: the interactive tasks of a CPU by deadline; a domain's tasks by virtual time, those that may run everywhere
 * and those that may not.
 */
#define QUEUE_NONE 0ULL
#define QUEUE_INTERACTIVE(cpu) (1ULL << 32 | (u32)(cpu))
#define QUEUE_RESTRICTED(index) (2ULL << 32 | (u32)(index))
#define QUEUE_IS_INTERACTIVE(queue) ((queue) >> 32 == 1)
#define QUEUE_DOMAIN(index) (3ULL << 32 | (u32)(index))
/* Best-effort tasks that have waited too long, first come first served. */
#define QUEUE_RESCUE (4ULL << 32)
/* Tasks that leave the kernel, by their places on leaving_clock_ns: holds.bpf.h. */
#define QUEUE_LEAVING (5ULL << 32)
/* Tasks that are held for a moment: bumps.bpf.h. */
#define QUEUE_BUMPED (6ULL << 32)

#define NEVER (~0ULL)

#define STRUCT_OPS(name, args...) SEC("struct_ops/" #name) BPF_PROG(name, ##args)
#define STRUCT_OPS_SLEEPABLE(name, args...) SEC("struct_ops.s/" #name) BPF_PROG(name, ##args)

enum task_mode {
	MODE_OFF = 0, /* not on a CPU */
	MODE_BEST_EFFORT = 1,
	MODE_INTERACTIVE = 2,
	MODE_STARTING = 3, /* in the window that it has to execute a program */
};

enum rescued {
	RESCUED_NOT = 0,
	RESCUED_PAID = 1, /* its turn came, and the CPU rescues nobody for a while afterwards */
	RESCUED_UNPAID = 2, /* its CPU goes offline */
};

/* What the scheduler knows of every task. */
struct task_state {
	u64 charged_ns; /* up to when its CPU time has been accounted */
	u64 vtime;
	u64 waiting_since_ns; /* since when it has waited in a queue of best-effort work */
	u64 queue; /* the queue that it was last put in; QUEUE_NONE once it runs or sleeps */
	u64 leaving_place_ns; /* its place among those that are let run on to leave the kernel; 0: it is none of them */
	u64 window_ns; /* what is left of the CPU time that it has to execute a program */
	u64 kernel_ns; /* of a per-CPU kernel thread, what is left of the slice ahead of others that it has since it woke */
	u64 lent_deadline_ns; /* when the period of its parent ends that lent it */
	u64 execution; /* the kernel's number of the program that it executed last and that was seen */
	u64 permitted_in; /* that of the program that it ran when it got its slot, or may_start_interactive */
	u32 window_cpu; /* the CPU that serves it meanwhile */
	u32 slot; /* index + 1 of its slot; 0: no specification */
	u32 weight;
	u32 runnable_weight; /* what it added to its domain's sum */
	u32 changing; /* a change of its grant is under way */
	u32 counted_waiting; /* counts in its domain's waiting */
	u32 restricted_waiting; /* counts in its domain's waiting_restricted */
	u32 direct_cpu; /* the CPU whose own queue it was put into, and 1; 0 once it runs, or when it stands elsewhere */
	u32 lender; /* index + 1 of the slot that lends it window_ns */
	u16 domain;
	u8 mode;
	u8 may_start_interactive; /* may take up a specification at its next exec */
	u8 unjoined; /* began to run without waiting in the order, and its domain's credit has not been looked at since */
	u8 put_aside; /* was preempted with a part of its slice left: it may be in the CPU's own queue, and goes on unasked */
	u8 rescued; /* enum rescued: was taken out of its queue because it had waited too long */
	u8 loans_left; /* how often it may be lent more until it executes a program */
	u8 executed; /* it has executed a program since it last began to run: the rest of the loan goes back when it stops */
	u8 ended; /* ops.exit_task has been called: it gets nothing any more */
	u8 whereabouts; /* enum whereabouts: where it was when it last ceased to run */
	u8 leaving; /* queued, or running, as one that is let run on to leave the kernel */
	u8 boundary_told; /* has task work to do when it is about to enter user space */
	u8 boundary_missed; /* it was to be stopped in user space, and was in the kernel again */
	u8 at_gate; /* it is to be stopped at this moment, on its way to user space */
	u8 waits_on; /* it has begun to wait, and not run since but for a moment in which it was rescued */
	u8 comes_next; /* stands in the CPU's own queue, ahead of best-effort work: see enqueue_next() */
	u8 boundary_turn; /* which of its two entries of task work is the next one */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} task_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_SLOTS);
	__type(key, u32);
	__type(value, struct task_slot);
} slots SEC(".maps");

struct timer_entry {
	struct bpf_timer timer;
	u32 ready;
	u32 unused;
};

/* One per slot: the start of the task's next period. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SLOTS);
	__type(key, u32);
	__type(value, struct timer_entry);
} slot_timers SEC(".maps");

/* One per CPU: the end of the running task's budget. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct timer_entry);
} cpu_timers SEC(".maps");

/* The sampler (0), the refill of quotas (1) and the emptying of the queues of CPUs that are offline (2). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, struct timer_entry);
} system_timers SEC(".maps");

/* One CPU. The lock guards load, declared, reserved and admitted; the last members are the sampler's scratch. */
struct cpu_state {
	struct bpf_spin_lock lock;
	u32 online;
	struct load load;
	u32 reserved;
	u32 admitted;
	u64 reserved_time_ns;
	u64 sampled_ns;
	struct admission_declared declared;
	u32 used_by_rank[LOAD_VICTIM_RANKS];
	struct load_cut cut;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct cpu_state);
} cpu_states SEC(".maps");

/* What only the CPU itself needs at each switch; apart from cpu_states, so that the two do not share a line. */
struct cpu_run {
	u64 deadline_ns; /* of the interactive task that runs; NEVER for anything else */
	u64 budget_end_ns; /* when its budget is used up; 0 when none is being watched */
	u64 vtime; /* of the task that runs as best-effort, at vtime_at_ns */
	u64 vtime_at_ns;
	u64 rescued_ns; /* when a task was last rescued here: see rescue_paid() */
	u64 began_ns; /* when the task that runs began to */
	u64 unpaid_ns; /* what tasks of unpaid_domain used here and the domain has not paid yet */
	u64 aside_ns; /* the same of the one before it, aside_domain */
	u64 first_seen; /* the domain that comes first, and order_changes above 16 bits when that was looked for */
	u64 served_seen; /* the domain that was served last, and order_changes then */
	u32 unpaid_domain;
	u32 aside_domain;
	u32 unpaid_restriction; /* enum restriction: of the tasks that used it */
	u32 aside_restriction;
	u32 restriction; /* of what runs, or ran last */
	u32 domain; /* of the task that runs as best-effort; 0 for anything else */
	u32 weight; /* of that task */
	u32 alone; /* its slice is a long one, because nothing waited */
	u32 interactive; /* tasks may stand in this CPU's interactive queue: see expect_interactive() */
	u32 rescues; /* what runs is rescued */
	u32 missed; /* a domain that this CPU took out of the order although a task of it was on its way in */
	u32 missed_restricted; /* a domain of which it forgot restricted tasks although one was on its way in */
	u64 missed_ns; /* when it missed either */
	u32 direct; /* a task stands in the CPU's own queue: see enqueue_direct() */
	u32 next; /* a kernel thread stands there ahead of best-effort work: see enqueue_next() */
	u32 ahead; /* what runs as best-effort began to before its turn */
	u32 gap; /* what is chosen now goes before the interactive class, for CLASS_GAP_NS */
	u32 rescue_interval_ns; /* how often one could be rescued here when the last one was */
	struct class_use class_use; /* of reservations here */
	u64 charged_to; /* charged_to(): for the memory of the best-effort task that runs, while anybody is bumped; 0: not known */
	u64 timer_ns; /* when the CPU's timer fires, if it is known that it does: see watch_budget() */
} __attribute__((aligned(64)));

/*
 * These are variables and not maps, because they are asked for many times at each switch: an element of a map has to be
 * looked up each time, and a variable is where it is. Each in a section of its own, for they are large.
 */
static struct cpu_run cpu_runs[MAX_CPUS] SEC(".bss.cpu_runs") __attribute__((visibility("hidden")));
/* The daemon reads it through a mapping. */
struct domain_table domain_table SEC(".bss.domains");

/* The loader makes it as large as there are CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct cpu_order);
} cpu_orders SEC(".maps");

/* Guards the tree's sums and the order of domains. In a section of its own, because a lock cannot be mapped. */
static struct bpf_spin_lock domains_lock SEC(".data.domains_lock") __attribute__((visibility("hidden"), aligned(8)));

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_DOMAINS);
	__type(key, u64);
	__type(value, u32);
} domain_of_cgroup SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, MAX_DOMAINS);
	__type(value, u32);
} free_domains SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_EXECUTABLES);
	__type(key, struct executable);
	__type(value, struct grant);
} executables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} events SEC(".maps");

volatile struct settings settings = {
	.thresholds = { .reactivate_below = 650000, .admit_below = 800000, .revoke_above = 900000,
			.irrevocable_max = 800000, .user_max = 750000 },
	.cpus = 1,
	.memory_free_bytes = ~0ULL,
	.owner = ADMISSION_ANYBODY,
};
volatile struct totals totals;
volatile struct exit_record exit_record;
_Static_assert(MAX_SLOTS == PLACES_MAX, "each slot has a bit");
u64 slots_taken[PLACES_WORDS]; /* which slots are somebody's, or have just been */
struct event *event_layout; /* never set: it puts the type into the program's BTF */
volatile u32 maybe_idle = 1; /* a CPU may be idle */
volatile u32 overdue; /* tasks may stand in QUEUE_RESCUE */
/* Counts the changes of the order of domains, under domains_lock: while it stays the same, so do all places. */
static volatile u64 order_changes;
volatile u32 attached; /* set by ops.init: before that, exec and fork are not ours to act on */

static __always_inline struct task_state *task_state_of(struct task_struct *p)
{
	return bpf_task_storage_get(&task_states, p, NULL, 0);
}

/* The slot of a task, NULL when it has no specification. */
static __always_inline struct task_slot *slot_of(struct task_state *t)
{
	u32 index = t->slot;

	if (!index)
		return NULL;
	index--;
	return bpf_map_lookup_elem(&slots, &index);
}

static __always_inline struct cpu_state *cpu_state_of(u32 cpu)
{
	return bpf_map_lookup_elem(&cpu_states, &cpu);
}

static __always_inline struct cpu_run *cpu_run_of(u32 cpu)
{
	return &cpu_runs[masked(cpu, MAX_CPUS - 1)];
}

static __always_inline struct cpu_order *cpu_order_of(u32 cpu)
{
	return bpf_map_lookup_elem(&cpu_orders, &cpu);
}

/*
 * The task begins to wait; or it waits on: it is put back because its affinity, its class, its nice value or its cgroup
 * changed, or a CPU came or went, or its turn to be rescued was none. The kernel counts on as well, until it takes the
 * scheduler out.
 */
static __always_inline void begin_to_wait(struct task_state *t, u64 now_ns)
{
	if (!t->waits_on)
		t->waiting_since_ns = now_ns;
	t->waits_on = 1;
}

/* The CPU in whose run queue the task is. */
static __always_inline u32 task_cpu(struct task_struct *p)
{
	return bpf_core_field_exists(p->thread_info.cpu) ? p->thread_info.cpu : scx_bpf_task_cpu(p);
}

static __always_inline bool cpu_online(u32 cpu)
{
	struct cpu_state *state = cpu_state_of(cpu);

	return state && state->online;
}

/*
 * Where the kernel has its struct cpumask of the CPUs that it lets tasks of users run on (__cpu_active_mask), which its
 * BTF does not describe; 0 where it does not tell. steward_find_active() asks for it before the scheduler is in force.
 * Declared as a symbol without a type libbpf would look for it in /proc/kallsyms: a sixth of the time that loading
 * took.
 */
static u64 active_mask;

/* Whether the kernel lets tasks of users run on the CPU, which is online; so it may where it does not tell. */
__noinline bool cpu_active(u32 cpu)
{
	u64 word = 0;

	if (cpu >= MAX_CPUS)
		return false;
	if (!active_mask)
		return true;
	bpf_probe_read_kernel(&word, sizeof(word), (const void *)(active_mask + cpu / 64 * sizeof(word)));
	return word >> (cpu & 63) & 1;
}

/*
 * Whether a CPU serves a task that comes from another CPU, or from this one. One that begins to go offline is still
 * asked for tasks, but the kernel lets none of users run there: it puts each on another CPU as soon as it is chosen. A
 * task must not be sent back there from that one: it would wait for ever, and with it, if it was preempted while it
 * reads what RCU protects, the CPU that waits for such readers before it goes on going offline.
 */
static __always_inline bool cpu_serves(u32 cpu, u32 from)
{
	return cpu_online(cpu) && (cpu == from || cpu_active(cpu));
}

/* Whether the kernel still takes interrupts on this CPU, which goes offline. */
static __noinline int takes_interrupts(u32 cpu)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	bool takes = bpf_cpumask_test_cpu(cpu, online);

	scx_bpf_put_cpumask(online);
	return takes;
}

/*
 * Kicks a CPU. The kernel does so from an interrupt that this CPU sends itself; on one that takes none any more,
 * because it goes offline, that would never come, nor would any other interrupt of that kind after it, even when the
 * CPU is back: the kernel asks for one only where none is under way (kernel/irq_work.c), and in the end everybody waits
 * for RCU. There the kick is left out, and who should have noticed does at the next look (sampler.bpf.h).
 */
static __always_inline void kick_cpu(u32 cpu, u64 flags)
{
	u32 here = bpf_get_smp_processor_id();

	if (cpu_online(here) || takes_interrupts(here))
		scx_bpf_kick_cpu(cpu, flags);
}

static __always_inline struct domain_table *domains(void)
{
	return &domain_table;
}

/* Whether the task's affinity allows the CPU, whatever it has disabled for the moment. */
static __always_inline bool affinity_allows(struct task_struct *p, u32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, &p->cpus_mask);
}

/* Whether the task may run on the CPU at this moment. */
static __always_inline bool may_run_on(struct task_struct *p, u32 cpu)
{
	bool may;

	/* For the callbacks that may sleep: the mask is freed by RCU. */
	bpf_rcu_read_lock();
	may = bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
	bpf_rcu_read_unlock();
	return may;
}

/*
 * Whether the task disabled migration. Entering a BPF program may itself disable migration of the task that is
 * current, so a count of one says nothing of that one.
 */
static __always_inline bool migration_disabled(struct task_struct *p)
{
	u32 count = p->migration_disabled;

	return count > 1 || (count == 1 && p != bpf_get_current_task_btf());
}

/* Pinned to the CPU that it is on while others exist: by affinity, or for the moment because it disabled migration. */
static __always_inline bool is_pinned(struct task_struct *p)
{
	return (p->nr_cpus_allowed == 1 && settings.cpus > 1) || migration_disabled(p);
}

/* Whether a CPU's interactive queue is a place for the task, which was on the CPU `from` last. */
static __always_inline bool may_wait_for(struct task_struct *p, u32 cpu, u32 from)
{
	return may_run_on(p, cpu) && cpu_serves(cpu, from) && (!migration_disabled(p) || cpu == from);
}

/* May run on some CPUs only, or for the moment on one. */
static __always_inline bool is_restricted(struct task_struct *p)
{
	return p->nr_cpus_allowed < (int)settings.cpus || migration_disabled(p);
}

static __always_inline enum restriction restriction_of(struct task_struct *p)
{
	if (is_pinned(p))
		return RESTRICTION_ONE_CPU;
	return is_restricted(p) ? RESTRICTION_SOME_CPUS : RESTRICTION_NONE;
}

#endif
