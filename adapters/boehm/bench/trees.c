/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program with libgc, of the kind that Ellis, Kovac and Boehm measured collectors with: a tree and an array that
 * stay, and beside them one tree after the other that is dropped as soon as it is whole.
 *
 *     trees ROUNDS [DEPTH [STAYS]]   # trees of 2^DEPTH nodes of 32 bytes; 2^STAYS nodes that stay
 *
 * Prints a line for every round: collections so far, the heap in MiB, microseconds since the start. Waits for a line on
 * standard input before it begins when WAIT is in the environment.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../libgc.h"

/* How many numbers stay. */
#define NUMBERS 500000

struct node {
    struct node *left, *right;
    long numbers[2];
};

static struct node *tree(int depth)
{
    struct node *node = GC_malloc(sizeof(*node));

    if (node == NULL) {
        fputs("trees: out of memory\n", stderr);
        exit(1);
    }
    if (depth > 0) {
        node->left = tree(depth - 1);
        node->right = tree(depth - 1);
    }
    node->numbers[0] = depth;
    return node;
}

/* How many nodes there are: all of them, if nothing was collected that is in use. */
static long count(const struct node *node)
{
    return node == NULL ? 0 : 1 + count(node->left) + count(node->right);
}

static long microseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

static int argument(int count_of, char **values, int place, int otherwise)
{
    return count_of > place ? atoi(values[place]) : otherwise;
}

int main(int count_of, char **values)
{
    int rounds = argument(count_of, values, 1, 100), depth = argument(count_of, values, 2, 16);
    int stays = argument(count_of, values, 3, 16);
    struct node *stayed;
    double *numbers;
    long begun;

    if (getenv("WAIT") != NULL && getchar() == EOF)
        return 1;
    GC_init();
    begun = microseconds();
    stayed = tree(stays);
    numbers = GC_malloc_atomic(NUMBERS * sizeof(*numbers));
    for (int place = 0; place < NUMBERS; place++)
        numbers[place] = 1.0 / (place + 1);
    for (int round = 0; round < rounds; round++) {
        struct node *dropped = tree(depth);

        if (count(dropped) != (2L << depth) - 1)
            return 1;
        printf("%zu %zu %ld\n", GC_get_gc_no(), GC_get_heap_size() >> 20, microseconds() - begun);
        fflush(stdout);
    }
    if (count(stayed) != (2L << stays) - 1 || numbers[999] != 0.001)
        return 1;
    return 0;
}
