/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts what requests of disks take and for whom: of each cgroup and disk how many, how long from when they were
 * handed on to when they were done (a histogram), and for how long the disk was at work for them. And notes who waits
 * in fsync, or because too much is not written yet, for longer than people notice: for how long, and where in the
 * kernel. It counts only; who held whom up is decided by who reads (steward_core::disk::waits).
 *
 * Whose a request is: of the cgroup of the task that hands it on. What a thread of the kernel hands on is of the cgroup
 * that has changed the pages, where pages are brought to the disk (do_writepages() knows it from the inode's owner),
 * and else of the one that the kernel charges. The blocks of a journal, which all share, are told apart by the name of
 * the thread that writes them.
 *
 * For how long a disk was at work for a request: the time from when it was given to the disk until it was done, of
 * which each moment is divided evenly among all that the disk had then. So all together never take longer than the
 * disk had any (`served_ns` of a disk is a clock that goes the slower the more there are, and a request has what has
 * passed of it).
 *
 * All maps are bounded. Where there is no room for a cgroup it is counted as the one above it.
 *
 * And it tells at once when somebody who is served first begins to wait (first.bpf.h), for which the same calls are
 * watched.
 */
#include "block.bpf.h"
#include "first.bpf.h"
#include "function.bpf.h"
#include "kernel.bpf.h"

#define ACCOUNTS_MAX 2048
#define FLIGHTS_MAX 8192 /* a power of two */
#define PROBES 8
/* Nobody waits so long for a request: it was merged into another one, or its disk is gone. */
#define GONE_AFTER_NS 300000000000ULL
#define DISKS_MAX 256 /* a power of two */
#define NOWHERE DISKS_MAX
#define WAITS_MAX 1024
#define JOURNALS_MAX 64
#define SERVED_MAX 8192
#define ENDED_BYTES 65536
#define DEPTH_MAX 32
/* Of how many in a cgroup it is noted that they waited for the same commit. */
#define COMMITTED_MAX 64

/* Of how much of a disk's time there is a line in `served`: as many lines as fit are 3 seconds of a disk that is busy
 * all the time. */
#define SERVED_STEP_NS 400000

#define MINOR_BITS 20

enum kind {
	OWN = 0, /* the cgroup's own */
	JOURNAL = 1, /* blocks of a journal */
	FOR_COMMIT = 2, /* data of the cgroup that the journal brings to the disk before it commits */
	COMMITTED = 3, /* a line in `served` only: somebody of the cgroup waited for a commit */
};

struct account_key {
	u64 cgroup_id;
	u32 disk; /* as the kernel numbers it, (major << 20) | minor */
	u32 kind;
};

struct account {
	u64 requests;
	u64 latency_ns;
	u64 device_ns;
	/* Of device_ns, what there is no line of yet. */
	u64 pending_ns;
	/* The longest since the reader has changed `look`, if that is this one. */
	u64 max_ns;
	u64 look;
	u32 steps[STEPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ACCOUNTS_MAX);
	__type(key, struct account_key);
	__type(value, struct account);
} accounts SEC(".maps");

/* A request that is under way. */
struct flight {
	/* Where the request is in memory; 0 when this is free. */
	u64 where;
	struct account_key key;
	u64 began_ns;
	/* Of its disk. */
	u32 place;
	u32 unused;
	/* What the disk's clock said when it was given to the disk. */
	u64 given_served_ns;
	u32 pid;
	u16 is_given;
	/* Whether it is of one who may be another. */
	u16 is_others;
	char name[16];
};

/* Found by where the request is, in one of PROBES places from there on: a map of the kernel's would cost as much as all
 * the rest. */
struct flight flights[FLIGHTS_MAX];

struct disk {
	struct bpf_spin_lock lock;
	/* Which it is; 0 when this is free. */
	u32 number;
	u32 given;
	u32 unused;
	u64 at_ns;
	u64 served_ns;
};

/* Found by its number, in one of PROBES places from there on, as a request is. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DISKS_MAX);
	__type(key, u32);
	__type(value, struct disk);
} disks SEC(".maps");

/* What a task is about. */
struct submitter {
	/* When it handed a request on last, in nanoseconds of CLOCK_MONOTONIC. */
	u64 handed_ns;
	/* Whose pages it brings to the disk: a cgroup's id, 0 for nobody's. */
	u64 writes_for;
	/* Whether it has a wait, which is to be told the disk. */
	u32 waits;
	/* Where it is (enum inside), of those who are served first. */
	u32 first_inside;
	/* Whether it was one who may be another (struct last, others) when it handed a request on last. */
	u32 is_others;
	u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct submitter);
} submitters SEC(".maps");

/* Somebody who waits, or has waited. Times are in nanoseconds of CLOCK_MONOTONIC; 0 where there is none. */
struct wait {
	u64 began_ns;
	u64 ended_ns;
	u64 cgroup_id;
	/* Waiting for the journal: since when now, how long before, and how long of that until what it waits for began. */
	u64 journal_since_ns;
	u64 journal_ns;
	u64 others_commit_ns;
	/* Waiting for pages to be written, as too many are not. */
	u64 dirty_since_ns;
	u64 dirty_ns;
	u64 journal;
	u32 commit;
	u32 inside; /* enum inside */
	u32 pid;
	u32 tid;
	/* Which disk it has handed something on to last; 0 where it has not. */
	u32 disk;
	u32 unused;
	char name[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WAITS_MAX);
	__type(key, u32);
	__type(value, struct wait);
} waits SEC(".maps");

/* Those that took long and are over. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, ENDED_BYTES);
} ended SEC(".maps");

/* When the last commits of a journal began; the key is where the journal is in memory. */
struct commits {
	u32 commit[4];
	u64 began_ns[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, JOURNALS_MAX);
	__type(key, u64);
	__type(value, struct commits);
} journals SEC(".maps");

/* For whom disks were at work, the oldest line given to the next. */
struct served {
	u64 at_ns; /* when it was done; 0 while the line is being written */
	u64 cgroup_id;
	u32 device_ns;
	u32 disk;
	u32 pid; /* who handed it on; 0 for a thread of the kernel */
	u32 kind;
	char name[16]; /* what that is called */
};

struct served served[SERVED_MAX];
/* How many lines have been written so far. */
volatile u64 lines;
/* The reader's. */
volatile u64 look;
/* Whether there was no room for an account since the reader looked last. */
volatile u32 are_full;
/* What there was no room for: requests, and waits. */
volatile u64 requests_missed;
volatile u64 waits_missed;

/* Who waits for less is not noted, in nanoseconds. */
const volatile u64 long_ns = 50000000;

char _license[] SEC("license") = "GPL";

static __always_inline u32 number_of(struct request *rq)
{
	struct gendisk *disk = rq->q->disk;

	return disk ? (u32)disk->major << MINOR_BITS | (u32)disk->first_minor : 0;
}

static __always_inline u64 cgroup_id_of(struct cgroup_subsys_state *css)
{
	return css->cgroup->kn->id;
}

static __always_inline void tell_whose(struct account_key *key, struct task_struct *p, struct submitter *submitter,
				       struct request *rq)
{
	struct bio *bio = rq->bio;

	key->kind = OWN;
	key->cgroup_id = p->cgroups->dfl_cgrp->kn->id;
	if (!(p->flags & PF_KTHREAD))
		return;
	if (submitter && submitter->writes_for) {
		key->cgroup_id = submitter->writes_for;
		if (is_journal(p))
			key->kind = FOR_COMMIT;
		return;
	}
	if (is_journal(p)) {
		key->kind = JOURNAL;
		return;
	}
	if (bpf_core_field_exists(bio->bi_blkg) && bio) {
		struct blkcg_gq *charged = bio->bi_blkg;

		if (charged)
			key->cgroup_id = cgroup_id_of(&charged->blkcg->css);
	}
}

static __always_inline struct account *account_of(struct account_key *key)
{
	struct account *account = bpf_map_lookup_elem(&accounts, key);
	static const struct account none;

	if (account)
		return account;
	if (bpf_map_update_elem(&accounts, key, &none, BPF_NOEXIST))
		are_full = 1;
	return bpf_map_lookup_elem(&accounts, key);
}

/* Has it be counted as the nearest above it for which there is room, if there is none for itself. */
static __always_inline void find_room(struct account_key *key, struct cgroup *cgroup)
{
	struct cgroup_subsys_state *css = &cgroup->self;

	if (account_of(key))
		return;
	for (int level = 0; level < DEPTH_MAX; level++) {
		css = css->parent;
		if (!css)
			break;
		key->cgroup_id = cgroup_id_of(css);
		if (bpf_map_lookup_elem(&accounts, key))
			return;
	}
}

static __always_inline void write_line(u64 now_ns, struct account_key *key, u64 device_ns, u32 pid,
					const char *name)
{
	struct served *line = &served[__sync_fetch_and_add(&lines, 1) % SERVED_MAX];

	line->at_ns = 0;
	line->cgroup_id = key->cgroup_id;
	line->device_ns = device_ns < 0xffffffff ? device_ns : 0xffffffff;
	line->disk = key->disk;
	line->pid = pid;
	line->kind = key->kind;
	__builtin_memcpy(line->name, name, sizeof(line->name));
	*(volatile u64 *)&line->at_ns = now_ns;
}

static __always_inline struct submitter *submitter_of(struct task_struct *p, u64 flags)
{
	return bpf_task_storage_get(&submitters, p, NULL, flags);
}

static __always_inline u32 place_of(u64 where, u32 probe)
{
	return (u32)((where >> 6) * 0x9e3779b1 >> 8) + probe;
}

static __always_inline struct flight *flight_of(u64 where)
{
	for (u32 probe = 0; probe < PROBES; probe++) {
		struct flight *flight = &flights[place_of(where, probe) % FLIGHTS_MAX];

		if (flight->where == where)
			return flight;
	}
	return NULL;
}

/* A place for a request, which may have one since it was there before. */
static __always_inline struct flight *place_for(u64 where, u64 now_ns)
{
	struct flight *known = flight_of(where);

	if (known)
		return known;
	for (u32 probe = 0; probe < PROBES; probe++) {
		struct flight *flight = &flights[place_of(where, probe) % FLIGHTS_MAX];
		u64 whose = flight->where;

		if (whose && since(now_ns, flight->began_ns) < GONE_AFTER_NS)
			continue;
		if (__sync_val_compare_and_swap(&flight->where, whose, where) == whose)
			return flight;
	}
	return NULL;
}

static __always_inline struct disk *disk_at(u32 place)
{
	return bpf_map_lookup_elem(&disks, &place);
}

/* The place of a disk; NOWHERE when there is none for it. */
static __always_inline u32 place_of_disk(u32 number)
{
	if (!number)
		return NOWHERE;
	for (u32 probe = 0; probe < PROBES; probe++) {
		u32 place = ((number * 0x9e3779b1 >> 20) + probe) % DISKS_MAX;
		struct disk *disk = disk_at(place);

		if (!disk)
			return NOWHERE;
		if (disk->number == number || !__sync_val_compare_and_swap(&disk->number, 0, number))
			return place;
		/* Another CPU may have given it the place at this moment. */
		if (disk->number == number)
			return place;
	}
	return NOWHERE;
}

/* To be called with the lock held. */
static __always_inline void go_on(struct disk *disk, u64 now_ns)
{
	if (disk->given)
		disk->served_ns += since(now_ns, disk->at_ns) / disk->given;
	if (now_ns > disk->at_ns)
		disk->at_ns = now_ns;
}

static __always_inline u64 take_back(struct flight *flight, u64 now_ns)
{
	struct disk *disk = flight->is_given ? disk_at(flight->place) : NULL;
	u64 device_ns;

	if (!disk)
		return 0;
	bpf_spin_lock(&disk->lock);
	go_on(disk, now_ns);
	if (disk->given)
		disk->given -= 1;
	device_ns = since(disk->served_ns, flight->given_served_ns);
	bpf_spin_unlock(&disk->lock);
	flight->is_given = 0;
	return device_ns;
}

SEC("tp_btf/block_bio_queue")
int handed_on(u64 *context)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct submitter *submitter = submitter_of(p, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 now_ns = bpf_ktime_get_ns();

	bool is_others = listens && note_request(p, submitter ? submitter->writes_for : 0, now_ns);

	if (submitter) {
		submitter->handed_ns = now_ns;
		submitter->is_others = is_others;
	}
	return 0;
}

static __always_inline struct wait *wait_of_current(void)
{
	u32 tid = bpf_get_current_pid_tgid();

	return bpf_map_lookup_elem(&waits, &tid);
}

/* A request is made of what was handed on a moment ago, or as long ago as it takes to get a place for it. */
SEC("tp_btf/block_io_start")
int made(u64 *context)
{
	struct request *rq = (struct request *)context[0];
	struct task_struct *p = bpf_get_current_task_btf();
	struct submitter *submitter = submitter_of(p, 0);
	u64 now_ns = bpf_ktime_get_ns();
	struct flight *flight = place_for(context[0], now_ns);
	struct account_key key;

	if (!flight) {
		__sync_fetch_and_add(&requests_missed, 1);
		return 0;
	}
	/* The end of the one that had this place was not seen: its disk has it no longer. */
	take_back(flight, now_ns);
	key.disk = number_of(rq);
	flight->place = place_of_disk(key.disk);
	tell_whose(&key, p, submitter, rq);
	if (are_full)
		find_room(&key, p->cgroups->dfl_cgrp);
	flight->key = key;
	if (submitter && submitter->waits) {
		struct wait *wait = wait_of_current();

		if (wait)
			wait->disk = key.disk;
	}
	flight->began_ns = submitter && submitter->handed_ns ? submitter->handed_ns : now_ns;
	flight->pid = p->flags & PF_KTHREAD ? 0 : p->tgid;
	flight->is_others = submitter && submitter->is_others;
	__builtin_memcpy(flight->name, p->comm, sizeof(flight->name));
	return 0;
}

SEC("tp_btf/block_rq_issue")
int given(u64 *context)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct flight *flight = flight_of(context[0]);
	struct disk *disk;

	/* Flushes are nobody's, and those that began before this program did are not counted. */
	if (!flight || flight->is_given)
		return 0;
	disk = disk_at(flight->place);
	if (!disk)
		return 0;
	flight->is_given = 1;
	if (flight->is_others && listens)
		note_others_given(flight->pid, flight->key.cgroup_id, now_ns);
	bpf_spin_lock(&disk->lock);
	go_on(disk, now_ns);
	disk->given += 1;
	flight->given_served_ns = disk->served_ns;
	bpf_spin_unlock(&disk->lock);
	return 0;
}

static __always_inline void charge(struct flight *flight, u64 now_ns, u64 device_ns)
{
	struct account_key key = flight->key;
	struct account *account = account_of(&key);
	u64 latency_ns = since(now_ns, flight->began_ns);
	u32 step = step_of(latency_ns);
	u64 pending_ns, this_look = look;

	if (!account) {
		__sync_fetch_and_add(&requests_missed, 1);
		return;
	}
	__sync_fetch_and_add(&account->requests, 1);
	__sync_fetch_and_add(&account->latency_ns, latency_ns);
	__sync_fetch_and_add(&account->device_ns, device_ns);
	if (step < STEPS)
		__sync_fetch_and_add(&account->steps[step], 1);
	if (account->look != this_look) {
		account->look = this_look;
		account->max_ns = 0;
	}
	if (latency_ns > account->max_ns)
		account->max_ns = latency_ns;
	pending_ns = account->pending_ns + device_ns;
	if (pending_ns >= SERVED_STEP_NS) {
		write_line(now_ns, &key, pending_ns, flight->pid, flight->name);
		pending_ns = 0;
	}
	account->pending_ns = pending_ns;
}

SEC("tp_btf/block_rq_complete")
int done(u64 *context)
{
	struct request *rq = (struct request *)context[0];
	u32 bytes = context[2];
	u64 now_ns;
	struct flight *flight;

	/* The rest of it is still under way. */
	if (bytes < rq->__data_len)
		return 0;
	flight = flight_of(context[0]);
	if (!flight)
		return 0;
	now_ns = bpf_ktime_get_ns();
	charge(flight, now_ns, take_back(flight, now_ns));
	flight->where = 0;
	return 0;
}

/* Whose pages are brought to the disk. */
SEC("fexit/do_writepages")
int writing_ends(u64 *context)
{
	struct submitter *submitter = submitter_of(bpf_get_current_task_btf(), 0);

	if (submitter)
		submitter->writes_for = 0;
	return 0;
}

SEC("fentry/do_writepages")
int writing_begins(u64 *context)
{
	struct writeback_control *control = (struct writeback_control *)context[1];
	struct submitter *submitter;
	struct task_struct *p = bpf_get_current_task_btf();
	struct bdi_writeback *wb = NULL;
	u64 cgroup_id;

	if (!(p->flags & PF_KTHREAD))
		return 0;

	if (!bpf_core_field_exists(control->wb) || !bpf_core_field_exists(wb->memcg_css))
		return 0;
	wb = control->wb;
	if (!wb || !wb->memcg_css)
		return 0;
	cgroup_id = cgroup_id_of(wb->memcg_css);
	submitter = submitter_of(p, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (submitter)
		submitter->writes_for = cgroup_id;
	return 0;
}

static __always_inline struct wait *begin(u64 now_ns)
{
	u64 ids = bpf_get_current_pid_tgid();
	struct wait wait = { .began_ns = now_ns, .pid = ids >> 32, .tid = (u32)ids };
	u32 tid = (u32)ids;

	wait.cgroup_id = bpf_get_current_cgroup_id();
	bpf_get_current_comm(wait.name, sizeof(wait.name));
	if (bpf_map_update_elem(&waits, &tid, &wait, BPF_ANY)) {
		__sync_fetch_and_add(&waits_missed, 1);
		return NULL;
	}
	return bpf_map_lookup_elem(&waits, &tid);
}

static __always_inline void enter(u32 what)
{
	struct wait *wait = wait_of_current();

	struct task_struct *p = bpf_get_current_task_btf();
	struct submitter *submitter;

	if (p->flags & PF_KTHREAD)
		return;
	/* The end of an earlier one was not seen. */
	if (wait && wait->inside & what) {
		wait->began_ns = bpf_ktime_get_ns();
		wait->inside = 0;
	}
	if (!wait) {
		wait = begin(bpf_ktime_get_ns());
		submitter = submitter_of(p, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (submitter)
			submitter->waits = 1;
	}
	if (wait)
		wait->inside |= what;
}

static __always_inline void leave(u32 what)
{
	struct wait *wait = wait_of_current();
	u32 tid = bpf_get_current_pid_tgid();
	u64 now_ns = bpf_ktime_get_ns();
	struct submitter *submitter;

	if (!wait)
		return;
	wait->inside = is_left(wait->inside, what);
	if (wait->inside)
		return;
	wait->ended_ns = now_ns;
	submitter = submitter_of(bpf_get_current_task_btf(), 0);
	if (submitter)
		submitter->waits = 0;
	if (since(now_ns, wait->began_ns) >= long_ns && bpf_ringbuf_output(&ended, wait, sizeof(*wait), BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&waits_missed, 1);
	bpf_map_delete_elem(&waits, &tid);
}

/* Whether who is inside fsync has handed something on since, or waited for a journal: a file system that answers in
 * another way (FUSE, a network's) keeps no disk busy with it. */
static __always_inline bool brings_to_disk(const struct wait *wait, const struct submitter *submitter)
{
	return wait->journal || (submitter && submitter->handed_ns >= wait->began_ns);
}

static __always_inline void sync_ended(u32 what)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct submitter *submitter = submitter_of(p, 0);
	struct wait *wait = wait_of_current();
	u64 now_ns = bpf_ktime_get_ns();

	if (submitter && submitter->first_inside)
		first_leaves(p, &submitter->first_inside, what, wait && brings_to_disk(wait, submitter), now_ns);
	else if (wait && !is_left(wait->inside, what) && brings_to_disk(wait, submitter))
		others_leave(p, since(now_ns, wait->began_ns), now_ns);
	leave(what);
}

static __always_inline void sync_begun(u32 what, bool of_disk)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct submitter *submitter = submitter_of(p, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (submitter && of_disk)
		first_enters(p, &submitter->first_inside, what, bpf_ktime_get_ns());
	enter(what);
}

static __always_inline void range_begun(u64 file)
{
	sync_begun(IN_RANGE, file == UNKNOWN || is_on_disk((const struct file *)file));
}

static __always_inline void call_begun(u64 descriptor)
{
	struct task_struct *p = bpf_get_current_task_btf();

	sync_begun(IN_CALL, descriptor == UNKNOWN || is_on_disk(file_of(p, descriptor)));
}

/* msync(2), writes with O_SYNC, io_uring, and on some kernels what follows too. */
FUNCTION(vfs_fsync_range, sync, sync_ended(IN_RANGE), range_begun)

/* fsync(2) and fdatasync(2), for which compilers copy the other one; not there on every kernel. */
FUNCTION(do_fsync, call, sync_ended(IN_CALL), call_begun)

/* Who ends waits for nothing, whatever was not seen of it. */
SEC("tp_btf/sched_process_exit")
int task_ends(u64 *context)
{
	struct submitter *submitter = submitter_of(bpf_get_current_task_btf(), 0);
	u32 tid = bpf_get_current_pid_tgid();

	if (!submitter)
		return 0;
	if (submitter->first_inside)
		__sync_fetch_and_sub(&waiting, 1);
	submitter->first_inside = 0;
	if (submitter->waits)
		bpf_map_delete_elem(&waits, &tid);
	submitter->waits = 0;
	return 0;
}

static __always_inline void balance_ended(void)
{
	struct wait *wait = wait_of_current();

	if (wait && wait->dirty_since_ns) {
		wait->dirty_ns += since(bpf_ktime_get_ns(), wait->dirty_since_ns);
		wait->dirty_since_ns = 0;
	}
	leave(IN_BALANCE);
}

static __always_inline void balance_begun(u64 control)
{
	struct wait *wait;

	enter(IN_BALANCE);
	wait = wait_of_current();
	if (wait)
		wait->dirty_since_ns = bpf_ktime_get_ns();
}

/* Too many pages wait to be written: who changes more has to wait. */
FUNCTION(balance_dirty_pages, balance, balance_ended(), balance_begun)

SEC("tp_btf/jbd2_start_commit")
int commit_begins(u64 *context)
{
	struct transaction_s *transaction = (struct transaction_s *)context[1];
	u64 journal = context[0];
	u32 commit = transaction->t_tid;
	struct commits *commits = bpf_map_lookup_elem(&journals, &journal);

	if (!commits) {
		static const struct commits none;

		bpf_map_update_elem(&journals, &journal, &none, BPF_NOEXIST);
		commits = bpf_map_lookup_elem(&journals, &journal);
		if (!commits)
			return 0;
	}
	commits->began_ns[commit & 3] = bpf_ktime_get_ns();
	commits->commit[commit & 3] = commit;
	return 0;
}

SEC("fexit/jbd2_log_wait_commit")
int commit_wait_ends(u64 *context)
{
	struct wait *wait = wait_of_current();
	u64 now_ns = bpf_ktime_get_ns();
	struct commits *commits;
	struct account *account;
	struct account_key key = { .kind = COMMITTED };
	u64 journal = context[0];
	u32 commit = context[1];

	if (!wait || !wait->journal_since_ns)
		return 0;
	wait->journal_ns += since(now_ns, wait->journal_since_ns);
	commits = bpf_map_lookup_elem(&journals, &journal);
	if (commits && commits->commit[commit & 3] == commit)
		wait->others_commit_ns += since(commits->began_ns[commit & 3], wait->journal_since_ns);
	wait->journal_since_ns = 0;
	/* A line for each who has waited for a commit, of so many of a cgroup. */
	key.cgroup_id = wait->cgroup_id;
	account = account_of(&key);
	if (!account)
		return 0;
	if (account->look != commit) {
		account->look = commit;
		account->requests = 0;
	}
	account->requests += 1;
	if (account->requests <= COMMITTED_MAX)
		write_line(now_ns, &key, 0, wait->pid, wait->name);
	return 0;
}

SEC("fentry/jbd2_log_wait_commit")
int commit_wait_begins(u64 *context)
{
	struct wait *wait = wait_of_current();

	if (!wait)
		return 0;
	wait->journal = context[0];
	wait->commit = context[1];
	wait->journal_since_ns = bpf_ktime_get_ns();
	return 0;
}
