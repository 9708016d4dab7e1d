/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * By what a thread of the kernel is known that writes what all who save on a file system share: nothing but its name
 * tells. These threads keep one, as kthread_run() has it:
 *
 * - "jbd2/sda1-8", the journal of ext4 and ocfs2 (fs/jbd2/journal.c)
 * - "xfsaild/sda1", which brings what XFS has logged to its place (fs/xfs/xfs_trans_ail.c)
 * - "btrfs-transaction", the commits of btrfs (fs/btrfs/disk-io.c), of which a name has room for 15 letters
 *
 * The log of XFS is written by workers of its queue xfs-cil. A worker is "kworker/u8:1" whatever it does: what
 * /proc shows behind that is put together when it is read (wq_worker_comm()), and is not in the name. So they cannot
 * be told from those that write back. Neither is "btrfs-cleaner" one: nobody who saves waits for what it takes away.
 */
#pragma once

#define TASK_NAME_BYTES 16

/* Includers provide bool (vmlinux.h, or stdbool.h). */
static inline __attribute__((always_inline)) bool begins_with(const char *name, const char *start, int bytes)
{
#ifdef __clang__
#pragma unroll
#endif
	for (int place = 0; place < bytes; place++)
		if (name[place] != start[place])
			return false;
	return true;
}

#define BEGINS_WITH(name, start) begins_with(name, start, sizeof(start) - 1)

static inline __attribute__((always_inline)) bool is_journal_name(const char name[TASK_NAME_BYTES])
{
	return BEGINS_WITH(name, "jbd2/") || BEGINS_WITH(name, "xfsaild/") || BEGINS_WITH(name, "btrfs-transacti");
}
