/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counts what a decision costs: how often two keys are compared, per decision, with few and with many domains. Compiled
 * and run by decision_cost.rs, from the very headers that the scheduler is made of.
 */
#include <stdio.h>
#include <string.h>

#include "decide/types.h"

static u64 comparisons;

static bool counted_before(u64 a, u64 b)
{
	comparisons++;
	return clock_before(a, b);
}
#define clock_before counted_before
#include "decide/best_effort.h"

#define DECISIONS 20000

static struct domain_table table;
static struct cpu_order cpu;

/* All domains are busy: the first is served, pays, and waits again. Prints the mean and the most of one decision. */
static void run(enum order order, u32 domains)
{
	u64 sum = 0, most = 0, now_ns = 0;
	u32 i;

	memset(&table, 0, sizeof(table));
	table.order = order;
	table.service_cycle_ns = SERVICE_CYCLE_DEFAULT_NS;
	table.cpus = 1;
	domain_begin(&table, ROOT_DOMAIN, 0, WEIGHT_DEFAULT * WEIGHT_SCALE);
	for (i = 0; i < domains; i++) {
		struct domain *d = domain_at(&table, ROOT_DOMAIN + 1 + i);

		domain_begin(&table, ROOT_DOMAIN + 1 + i, ROOT_DOMAIN, WEIGHT_DEFAULT * WEIGHT_SCALE * (1 + i % 3));
		d->runnable = 1;
		d->runnable_weight = WEIGHT_DEFAULT * WEIGHT_SCALE;
		domain_settle(&table, ROOT_DOMAIN + 1 + i);
	}
	for (i = 0; i < domains; i++)
		order_change(&table, &cpu, CHANGE_QUEUE, ROOT_DOMAIN + 1 + i, 0, 0);
	for (i = 0; i < DECISIONS; i++) {
		u16 index = order_first(&table);
		u64 before = comparisons;

		order_serve(&table, &cpu, index, false);
		/* Every other time its queue is empty while its last task runs. */
		if (i & 1)
			order_change(&table, &cpu, CHANGE_UNQUEUE, index, 0, now_ns);
		now_ns += 4 * NSEC_PER_MSEC;
		order_change(&table, &cpu, CHANGE_PAY, index, 4 * NSEC_PER_MSEC, now_ns);
		if (i & 1)
			order_change(&table, &cpu, CHANGE_QUEUE, index, 0, now_ns);
		sum += comparisons - before;
		most = max_u64(most, comparisons - before);
	}
	printf("%u %u %.3f %llu\n", order, domains, (double)sum / DECISIONS, (unsigned long long)most);
}

int main(void)
{
	u32 order, domains;

	for (order = ORDER_VIRTUAL_TIME; order <= ORDER_WRR; order++)
		for (domains = 10; domains <= 1000; domains *= 10)
			run(order, domains);
	return 0;
}
