/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Integer types and arithmetic for the decision headers.
 *
 * The headers in this folder hold every rule by which the scheduler decides. They are plain C without kernel
 * types, so that one text is compiled into the BPF program, into the host's tests and into the simulator. They
 * keep to what all three can do: no allocation, no recursion, no loop without a constant bound, no signed
 * division (BPF has none).
 *
 * Times are nanoseconds. Loads and bandwidths are parts per million of one CPU (LOAD_ONE).
 */
#ifndef STEWARD_DECIDE_TYPES_H
#define STEWARD_DECIDE_TYPES_H

#ifdef __bpf__
#include "kernel.bpf.h"
#else
#include <stdbool.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
#endif

#define DECIDE static inline __attribute__((always_inline, unused))

/* The same for what is too long to be repeated at each call. BPF lets a function of its own be called with a lock
 * held (6.9). */
#define DECIDE_CALLED static __attribute__((noinline, unused))

#define NSEC_PER_MSEC 1000000ULL
#define NSEC_PER_SEC 1000000000ULL

/* One whole CPU. */
#define LOAD_ONE 1000000U

DECIDE u64 max_u64(u64 a, u64 b)
{
	return a > b ? a : b;
}

DECIDE u64 min_u64(u64 a, u64 b)
{
	return a < b ? a : b;
}

/* Whether a comes before b on a clock that may wrap. */
DECIDE bool clock_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

/* How long it has been. A moment that another CPU noted may come after what this one's clock said last: no time. */
DECIDE u64 passed_since(u64 since_ns, u64 now_ns)
{
	return clock_before(since_ns, now_ns) ? now_ns - since_ns : 0;
}

/*
 * value & mask, in that form: the compiler may otherwise see that the mask changes nothing, and leave out what tells
 * the BPF verifier that an index lies within its array.
 */
DECIDE u32 masked(u32 value, u32 mask)
{
#ifdef __bpf__
	asm volatile("" : "+r"(value));
#endif
	return value & mask;
}

/*
 * Loops with a constant bound: for (i = loop_begin(); i < BOUND && can_loop; i++). The BPF verifier walks through an
 * ordinary loop once for each time around and each path in it. One that the kernel counts too (may_goto, since 6.9) and
 * that begins with a number it does not know is walked through until nothing new turns up, which is the second time.
 * The kernel's own bound, millions, is never met.
 */
#ifdef __bpf__
static volatile u32 loop_zero;

static __always_inline u32 loop_begin(void)
{
	return loop_zero;
}

static __always_inline bool loop_counted(void)
{
	asm goto("may_goto %l[over]" : : : : over);
	return true;
over:
	return false;
}
#define can_loop loop_counted()
#else
static inline u32 loop_begin(void)
{
	return 0;
}
#define can_loop true
#endif

/* How many bits of a word are set (Warren 2012, 5-1). Without branches and tables. */
DECIDE u32 bits_set(u64 word)
{
	word -= word >> 1 & 0x5555555555555555ULL;
	word = (word & 0x3333333333333333ULL) + (word >> 2 & 0x3333333333333333ULL);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return word * 0x0101010101010101ULL >> 56;
}

#endif
