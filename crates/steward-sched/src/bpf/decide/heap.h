/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Heaps of contenders: each level of the tree of domains has one by priority, and one of those with something reserved.
 *
 * They are leftist heaps (Crane 1972; Knuth, The Art of Computer Programming, 5.2.3): binary trees in which every node comes
 * before those below it, and in which the way to the right is the shortest way out. Two are merged along these ways, which have
 * at most log2(n + 1) nodes each; adding, removing and moving a node are merges. They need no memory beyond three numbers in
 * each node, so that thousands of levels of any size fit into one table.
 *
 * Who reads a heap without the lock sees its first node or one that will be: a heap that is not empty never looks empty.
 */
#ifndef STEWARD_DECIDE_HEAP_H
#define STEWARD_DECIDE_HEAP_H

#include "domain.h"

/* Steps of one walk: two ways to the right, in heaps of at most NODES nodes. */
#define HEAP_STEPS_MAX 40

DECIDE struct node *node_at(struct domain_table *t, u32 node)
{
	return &t->nodes[node & (NODES - 1)];
}

DECIDE u64 *key_at(struct domain_table *t, u32 node)
{
	return &t->keys[node & (NODES - 1)];
}

DECIDE bool node_before(struct domain_table *t, u32 a, u32 b)
{
	return clock_before(*key_at(t, a), *key_at(t, b));
}

/* Restores a node's rank, with the nearer way out to the right. True when the rank has changed. */
DECIDE bool node_restore(struct domain_table *t, u32 node)
{
	struct node *n = node_at(t, node);
	u8 left = node_at(t, n->left)->rank, right = node_at(t, n->right)->rank, before = n->rank;

	if (left < right) {
		u16 other = n->left;

		n->left = n->right;
		n->right = other;
		right = left;
	}
	n->rank = right + 1;
	return n->rank != before;
}

/*
 * Places in walk[]. A walk keeps its position in the table instead of in a variable: the BPF verifier follows what a variable may
 * hold along every path, and several paths a step through all steps are too many; what is read back from memory is one unknown
 * number.
 */
enum walk {
	WALK_FIRST = 0,
	WALK_HERE = 1,
	WALK_OTHER = 2,
	WALK_UP = 3,
	WALK_LEVEL = 4,
	WALK_NODE = 5,
};

/* Merges two heaps by their first nodes, 0 for an empty one. Returns the first of both. */
DECIDE_CALLED u32 heap_merge(struct domain_table *t, u32 a, u32 b)
{
	volatile u32 *walk = t->walk;
	u32 step;

	if (!a || !b)
		return a | b;
	walk[WALK_FIRST] = node_before(t, b, a) ? b : a;
	walk[WALK_OTHER] = walk[WALK_FIRST] == a ? b : a;
	walk[WALK_HERE] = walk[WALK_FIRST];
	for (step = loop_begin(); step < HEAP_STEPS_MAX && can_loop; step++) {
		u32 here = walk[WALK_HERE], other = walk[WALK_OTHER];
		struct node *n = node_at(t, here);
		u32 next = n->right;

		if (!next || node_before(t, other, next)) {
			n->right = (u16)other;
			node_at(t, other)->up = (u16)here;
			if (!next)
				break;
			walk[WALK_HERE] = other;
			walk[WALK_OTHER] = next;
		} else {
			walk[WALK_HERE] = next;
		}
	}
	for (step = loop_begin(); step < HEAP_STEPS_MAX && can_loop; step++) {
		u32 here = walk[WALK_HERE];

		node_restore(t, here);
		if (here == walk[WALK_FIRST])
			break;
		walk[WALK_HERE] = node_at(t, here)->up;
	}
	node_at(t, walk[WALK_FIRST])->up = 0;
	return walk[WALK_FIRST];
}

/* Adds a node that stands in no heap to one of a level's heaps. */
DECIDE_CALLED void heap_add(struct domain_table *t, u32 level, u32 heap, u32 node)
{
	struct domain *d = domain_at(t, level);
	struct node *n = node_at(t, node);

	if (heap >= HEAPS)
		return;
	n->left = 0;
	n->right = 0;
	n->up = 0;
	n->rank = 1;
	n->heap = (u8)(heap + 1);
	d->first[heap] = (u16)heap_merge(t, d->first[heap], node);
	if (heap < PRIORITIES)
		d->waiting_priorities |= 1U << heap;
}

/* Takes a node out of the heap of the level in which it stands, if it stands in one. */
DECIDE_CALLED void heap_remove(struct domain_table *t, u32 level, u32 node)
{
	volatile u32 *walk = t->walk;
	struct domain *d = domain_at(t, level);
	struct node *n = node_at(t, node);
	u32 heap = n->heap - 1U, up, rest, step;

	if (heap >= HEAPS)
		return;
	rest = heap_merge(t, n->left, n->right);
	walk[WALK_UP] = n->up;
	up = walk[WALK_UP];
	if (rest)
		node_at(t, rest)->up = (u16)up;
	if (!up) {
		d->first[heap] = (u16)rest;
		if (!rest && heap < PRIORITIES)
			d->waiting_priorities &= ~(1U << heap);
	} else if (node_at(t, up)->left == (u16)node) {
		node_at(t, up)->left = (u16)rest;
	} else {
		node_at(t, up)->right = (u16)rest;
	}
	n->heap = 0;
	for (step = loop_begin(); step < HEAP_STEPS_MAX && can_loop; step++) {
		u32 here = walk[WALK_UP];

		if (!here || !node_restore(t, here))
			break;
		walk[WALK_UP] = node_at(t, here)->up;
	}
}

/* Whether a node that stands in a heap would stay where it is with this key. */
DECIDE bool node_stays(struct domain_table *t, const struct node *n, u64 key)
{
	return (!n->up || !clock_before(key, *key_at(t, n->up))) &&
	       (!n->left || !clock_before(*key_at(t, n->left), key)) &&
	       (!n->right || !clock_before(*key_at(t, n->right), key));
}

/* Gives a node a key, and the place in its heap that goes with it. */
DECIDE_CALLED void heap_rekey(struct domain_table *t, u32 level, u32 node, u64 key)
{
	struct node *n = node_at(t, node);
	u32 heap = n->heap - 1U;

	if (heap >= HEAPS || node_stays(t, n, key)) {
		*key_at(t, node) = key;
		return;
	}
	heap_remove(t, level, node);
	*key_at(t, node) = key;
	heap_add(t, level, heap, node);
}

#endif
