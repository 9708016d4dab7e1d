/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What collecting costs, by how much memory the heap may have: the benchmark that Walfield used (section 5.2), which
 * goes back to Ellis, Kovac and Boehm, written anew after its description and made smaller for an emulated machine. A
 * tree and an array stay; each round makes trees of several depths, half of them from the root down and half from the
 * leaves up, as many of each depth as have the same number of nodes together, and drops each as soon as it is whole.
 *
 *     rounds ROUNDS SECONDS_MAX [FIXED_MIB [DEPTH]]
 *
 * With FIXED_MIB it collects by the rules of the adapter (decide.h) as if so much might be used, whatever there is: the
 * fixed scheduler of the paper. Without it, or with 0, libgc decides, or the adapter where that is preloaded. DEPTH is
 * that of the largest trees, 14 otherwise: with 12 trees have a quarter of the memory, and as much less is in use.
 *
 * Prints after each round, in the lab's line format (milliseconds of CLOCK_MONOTONIC): `w ROUNDS AT`, the work that is
 * done; `g MS COUNT`, how long it has collected so far and how often. Ends after the round in which SECONDS_MAX are
 * over.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../heap.h"
#include "../libgc.h"

/* Of GC_EventType in gc.h. */
#define EVENT_START 0
#define EVENT_END 5
/*
 * The tree that stays has 2^15 nodes of 256 bytes at most, and so many numbers stay. The nodes are larger than those
 * of the original, so that a slow machine fills its memory in seconds.
 */
#define NUMBERS 500000
#define DEPTH_MIN 4
#define DEPTH_USUAL 14
/* As in the adapter: every so many nodes it looks at the heap. */
#define LOOK_EVERY 256

struct node {
    struct node *left, *right;
    long numbers[30];
};

static unsigned long long began_ns, collecting_ns, fixed_bytes;
static unsigned int made;
/* Of the largest trees, and of the one that stays. */
static int depth_max = DEPTH_USUAL;
static bool is_collecting, is_asked_for;

static unsigned long long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000ULL + (unsigned long long)now.tv_nsec;
}

/* The collector says, with its lock held, how far it is. One that it gives up may have begun and does not end. */
static void heard(int event)
{
    if (event == EVENT_START) {
        began_ns = now_ns();
        is_collecting = true;
    } else if (event == EVENT_END && is_collecting) {
        collecting_ns += now_ns() - began_ns;
        is_collecting = false;
    }
}

static void collect(void)
{
    is_asked_for = true;
    GC_gcollect();
    is_asked_for = false;
}

/* What the adapter does, at an amount that stays. */
static struct boehm_heap heap = {.gc = {.heap_bytes = GC_get_heap_size,
                                        .free_bytes = GC_get_free_bytes,
                                        .bytes_since_gc = GC_get_bytes_since_gc,
                                        .counts = GC_get_prof_stats,
                                        .set_free_space_divisor = GC_set_free_space_divisor,
                                        .collect = collect,
                                        .collect_and_unmap = GC_gcollect_and_unmap,
                                        .malloc_atomic_uncollectable = GC_malloc_atomic_uncollectable,
                                        .free = GC_free}};

static int gives_up(void)
{
    return !is_asked_for && boehm_gives_up(&heap, fixed_bytes);
}

static struct node *leaf(void)
{
    struct node *node;

    if (fixed_bytes != 0 && ++made % LOOK_EVERY == 0)
        (void)boehm_look(&heap, fixed_bytes);
    node = GC_malloc(sizeof(*node));
    if (node == NULL) {
        fputs("rounds: out of memory\n", stderr);
        exit(1);
    }
    return node;
}

static struct node *from_the_leaves_up(int depth)
{
    struct node *left, *right, *node;

    if (depth == 0)
        return leaf();
    left = from_the_leaves_up(depth - 1);
    right = from_the_leaves_up(depth - 1);
    node = leaf();
    node->left = left;
    node->right = right;
    return node;
}

static void from_the_root_down(struct node *node, int depth)
{
    if (depth == 0)
        return;
    node->left = leaf();
    node->right = leaf();
    from_the_root_down(node->left, depth - 1);
    from_the_root_down(node->right, depth - 1);
}

/* How many nodes there are: all of them, if nothing was collected that is in use. */
static long count(const struct node *node)
{
    return node == NULL ? 0 : 1 + count(node->left) + count(node->right);
}

static long nodes_of(int depth)
{
    return (2L << depth) - 1;
}

static void make_trees(void)
{
    for (int depth = DEPTH_MIN; depth <= depth_max; depth += 2) {
        for (long left = nodes_of(depth_max); left > 0; left -= nodes_of(depth)) {
            struct node *tree = leaf();

            from_the_root_down(tree, depth);
            tree = from_the_leaves_up(depth);
            if (tree->left == NULL)
                exit(1);
        }
    }
}

int main(int count_of, char **values)
{
    unsigned long long start_ns;
    struct node *stays;
    double *numbers;
    int rounds, seconds_max;

    if (count_of < 3) {
        fputs("usage: rounds ROUNDS SECONDS_MAX [FIXED_MIB [DEPTH]]\n", stderr);
        return 2;
    }
    rounds = atoi(values[1]);
    seconds_max = atoi(values[2]);
    fixed_bytes = count_of > 3 ? strtoull(values[3], NULL, 10) << 20 : 0;
    /* As the adapter has it: what is unused is used before the heap grows, and before it is collected. */
    if (fixed_bytes != 0)
        setenv("GC_USE_ENTIRE_HEAP", "1", 1);
    if (count_of > 4)
        depth_max = atoi(values[4]);
    if (depth_max < DEPTH_MIN || depth_max > DEPTH_USUAL) {
        fprintf(stderr, "rounds: a depth of %d is not between %d and %d\n", depth_max, DEPTH_MIN, DEPTH_USUAL);
        return 2;
    }
    GC_init();
    GC_set_on_collection_event(heard);
    if (fixed_bytes != 0)
        GC_set_stop_func(gives_up);
    stays = from_the_leaves_up(depth_max);
    numbers = GC_malloc_atomic(NUMBERS * sizeof(*numbers));
    for (int place = 0; place < NUMBERS; place++)
        numbers[place] = 1.0 / (place + 1);
    start_ns = now_ns();
    for (int round = 0; round <= rounds; round++) {
        if (round > 0)
            make_trees();
        printf("w %d %.3f\n", round, (double)now_ns() / 1e6);
        printf("g %.3f %zu\n", (double)collecting_ns / 1e6, GC_get_gc_no());
        fflush(stdout);
        if (now_ns() - start_ns > (unsigned long long)seconds_max * 1000000000ULL)
            break;
    }
    if (count(stays) != nodes_of(depth_max) || numbers[999] != 0.001)
        return 1;
    return 0;
}
