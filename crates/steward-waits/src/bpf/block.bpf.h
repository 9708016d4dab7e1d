/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is read of the kernel's disks, requests and journals beside what all programs use (kernel.bpf.h).
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
