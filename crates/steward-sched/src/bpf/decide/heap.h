/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Heaps of contenders: each level of the tree of domains has one by priority, and one of those with something reserved.
 *
 * They are leftist heaps (Crane 1972; Knuth, The Art of Computer Programming, 5.2.3): binary trees in which every node
 * comes before those below it, and in which the way to the right is the shortest way out. Two are merged along these
 * ways, which have at most log2(n + 1) nodes each; adding, removing and moving a node are merges. They need no memory
 * beyond three numbers in each node, so that thousands of levels of any size fit into one table.
 *
 * Who reads a heap without the lock sees its first node or one that will be: a heap that is not empty never looks
 * empty.
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

/* Merges two heaps by their first nodes, 0 for an empty one. Returns the first of both. */
DECIDE_CALLED u32 heap_merge(struct domain_table *t, u32 a, u32 b)
{
	volatile struct walk *walk = &t->walk;
	u32 step;

	if (!a || !b)
		return a | b;
	walk->first = node_before(t, b, a) ? b : a;
	walk->other = walk->first == a ? b : a;
	walk->here = walk->first;
	for (step = loop_begin(); step < HEAP_STEPS_MAX && can_loop; step++) {
		u32 here = walk->here, other = walk->other;
		struct node *n = node_at(t, here);
		u32 next = n->right;

		if (!next || node_before(t, other, next)) {
			n->right = (u16)other;
			node_at(t, other)->up = (u16)here;
			if (!next)
				break;
			walk->here = other;
			walk->other = next;
		} else {
			walk->here = next;
		}
	}
	for (step = loop_begin(); step < HEAP_STEPS_MAX && can_loop; step++) {
		u32 here = walk->here;

		node_restore(t, here);
		if (here == walk->first)
			break;
		walk->here = node_at(t, here)->up;
	}
	node_at(t, walk->first)->up = 0;
	return walk->first;
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
	volatile struct walk *walk = &t->walk;
	struct domain *d = domain_at(t, level);
	struct node *n = node_at(t, node);
	u32 heap = n->heap - 1U, up, rest, step;

	if (heap >= HEAPS)
		return;
	rest = heap_merge(t, n->left, n->right);
	walk->up = n->up;
	up = walk->up;
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
		u32 here = walk->up;

		if (!here || !node_restore(t, here))
			break;
		walk->up = node_at(t, here)->up;
	}
}

/* Whether a node that stands in a heap would stay where it is with this key. */
DECIDE bool node_stays(struct domain_table *t, const struct node *n, u64 key)
{
	return (!n->up || !clock_before(key, *key_at(t, n->up))) &&
	       (!n->left || !clock_before(*key_at(t, n->left), key)) &&
	       (!n->right || !clock_before(*key_at(t, n->right), key));
}

/*
 * Gives the walk's node its key, and a place that goes with it: in the level's heap `to` - 1, or in none (0). What is
 * asked is read from the walk each time, so that no answer restricts the next one for the verifier.
 */
DECIDE_CALLED void node_place(struct domain_table *t)
{
	volatile struct walk *walk = &t->walk;
	struct node *n = node_at(t, walk->placed);

	if (n->heap == walk->to && (!walk->to || node_stays(t, n, walk->placed_key))) {
		*key_at(t, walk->placed) = walk->placed_key;
		return;
	}
	heap_remove(t, walk->level, walk->placed);
	*key_at(t, walk->placed) = walk->placed_key;
	heap_add(t, walk->level, walk->to - 1, walk->placed);
}

#endif
