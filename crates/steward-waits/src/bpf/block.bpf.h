/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is read of the kernel's disks, requests and journals beside what all programs use (kernel.bpf.h), and the
 * histogram of what requests take.
 */
#pragma once

#include "kernel.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

/* With CONFIG_BLK_CGROUP. */
struct blkcg_gq {
	struct blkcg *blkcg;
};

struct bio {
	struct blkcg_gq *bi_blkg;
};

struct request {
	struct request_queue *q;
	unsigned int __data_len;
	struct bio *bio;
};

/* With CONFIG_CGROUP_WRITEBACK. */
struct bdi_writeback {
	struct cgroup_subsys_state *memcg_css;
};

struct writeback_control {
	struct bdi_writeback *wb;
};

/* Of the file system's module. */
struct journal_s {
	u32 j_commit_sequence;
};

struct transaction_s {
	u32 t_tid;
};

#pragma clang attribute pop

/* Steps of a histogram: four to each doubling, from 4 microseconds on (steward_core::disk::latency). */
#define STEPS 96
#define STEP_FIRST_SHIFT 12

/* The place of a time in the histogram. */
static __always_inline u32 step_of(u64 ns)
{
	u64 units = ns >> (STEP_FIRST_SHIFT - 2), rest = units;
	u32 doublings = 0;

	if (units < 4)
		return 0;
	if (rest >> 32)
		return STEPS - 1;
	if (rest >> 16) {
		doublings += 16;
		rest >>= 16;
	}
	if (rest >> 8) {
		doublings += 8;
		rest >>= 8;
	}
	if (rest >> 4) {
		doublings += 4;
		rest >>= 4;
	}
	if (rest >> 2) {
		doublings += 2;
		rest >>= 2;
	}
	if (rest >> 1)
		doublings += 1;
	/* units is in [2^doublings, 2^(doublings + 1)), and at least 4. */
	u32 step = (doublings - 2) * 4 + ((units >> (doublings - 2)) & 3);

	return step < STEPS ? step : STEPS - 1;
}
