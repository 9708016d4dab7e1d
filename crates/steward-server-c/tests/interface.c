/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Does all that steward_server.h offers, without a daemon, and says so. */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "steward_server.h"

#define EXPECT(condition)                                                                    \
	do {                                                                                 \
		if (!(condition)) {                                                          \
			fprintf(stderr, "line %d: not %s; the last error: %s\n", __LINE__,   \
				#condition, steward_server_last_error());                    \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

#define SECOND_NS UINT64_C(1000000000)

static atomic_int served;
static atomic_int warnings;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static int serve(void *data)
{
	atomic_fetch_add(&served, 1);
	return *(int *)data;
}

/* Waits until the gate is open. */
static int wait_at_gate(void *data)
{
	(void)data;
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	return STEWARD_SERVER_DONE;
}

static void say(const char *sentence)
{
	if (strstr(sentence, "no reservations"))
		atomic_fetch_add(&warnings, 1);
}

/* Whether the page as JSON has that in it. */
static bool shows(const struct steward_server *server, const char *what)
{
	char *page = NULL;
	EXPECT(steward_server_page(server, true, &page) == STEWARD_SERVER_OK);
	bool has = strstr(page, what) != NULL;
	if (!has)
		fprintf(stderr, "%s\n", page);
	steward_server_free_text(page);
	return has;
}

static void wrong_arguments(const char *nobody)
{
	struct steward_server *server = NULL;
	struct steward_server_goal goal = { .route = "/a", .response_time_ns = 0, .cpu = 0.5 };
	struct steward_server_settings settings = { .socket_path = nobody };

	EXPECT(steward_server_start(&goal, 1, &settings, NULL) == STEWARD_SERVER_ERROR_ARGUMENT);
	EXPECT(steward_server_start(NULL, 1, &settings, &server) == STEWARD_SERVER_ERROR_ARGUMENT);
	EXPECT(steward_server_start(NULL, 0, &settings, &server) == STEWARD_SERVER_ERROR_GOAL);
	EXPECT(strstr(steward_server_last_error(), "no route has a goal"));
	EXPECT(steward_server_start(&goal, 1, &settings, &server) == STEWARD_SERVER_ERROR_GOAL);
	EXPECT(strstr(steward_server_last_error(), "/a: a response time of 0ns cannot be held"));
	goal.response_time_ns = SECOND_NS;
	goal.cpu = 0.95;
	EXPECT(steward_server_start(&goal, 1, &settings, &server) == STEWARD_SERVER_ERROR_GOAL);
	EXPECT(strstr(steward_server_last_error(), "may be promised"));
	goal.cpu = 0.5;
	goal.otherwise = 7;
	EXPECT(steward_server_start(&goal, 1, &settings, &server) == STEWARD_SERVER_ERROR_ARGUMENT);
	goal.route = NULL;
	EXPECT(steward_server_start(&goal, 1, &settings, &server) == STEWARD_SERVER_ERROR_ARGUMENT);
	EXPECT(server == NULL);

	uint64_t after_ns = 0;
	EXPECT(steward_server_serve(NULL, 0, serve, NULL, &after_ns) == STEWARD_SERVER_ERROR_ARGUMENT);
	EXPECT(steward_server_close(NULL, 0) == STEWARD_SERVER_ERROR_ARGUMENT);
	EXPECT(steward_server_log(NULL) == STEWARD_SERVER_ERROR_ARGUMENT);
	steward_server_free(NULL);
	steward_server_free_text(NULL);
}

int main(int argc, char **argv)
{
	EXPECT(argc == 2);
	EXPECT(steward_server_log(say) == STEWARD_SERVER_OK);
	EXPECT(steward_server_log(say) == STEWARD_SERVER_ERROR_ARGUMENT);
	wrong_arguments(argv[1]);

	/* Two requests of /a are accepted for as long as this takes; it refuses others. */
	struct steward_server_goal goals[] = {
		{ .route = "/a", .response_time_ns = 400 * SECOND_NS, .cpu = 0.6, .cost_ns = 100 * SECOND_NS,
		  .otherwise = STEWARD_SERVER_REFUSE },
		{ .route = "/b", .response_time_ns = SECOND_NS, .cpu = 0.1 },
	};
	struct steward_server_settings settings = { .socket_path = argv[1], .cpus = 1, .plain_workers = 2 };
	struct steward_server *server = NULL;
	EXPECT(steward_server_start(goals, 2, &settings, &server) == STEWARD_SERVER_OK);
	EXPECT(steward_server_route(server, "/b") == 1);
	EXPECT(steward_server_route(server, "/c") == STEWARD_SERVER_ERROR_ARGUMENT);
	EXPECT(steward_server_reserve_for_this_thread(server, 1000000, 20000000) == STEWARD_SERVER_OK);
	EXPECT(steward_server_reserve_for_this_thread(server, 2, 1) == STEWARD_SERVER_ERROR_ARGUMENT);

	uint64_t after_ns = 0;
	int how[] = { STEWARD_SERVER_DONE, STEWARD_SERVER_FAILED, STEWARD_SERVER_NOT_BEGUN,
		      STEWARD_SERVER_ABANDONED, 77 };
	pthread_mutex_lock(&gate);
	EXPECT(steward_server_serve(server, 0, wait_at_gate, NULL, &after_ns) == STEWARD_SERVER_OK);
	EXPECT(steward_server_serve(server, 0, serve, &how[0], &after_ns) == STEWARD_SERVER_OK);
	EXPECT(after_ns == 0);
	EXPECT(steward_server_serve(server, 0, serve, &how[0], &after_ns) == STEWARD_SERVER_ERROR_FULL);
	EXPECT(after_ns > 0 && after_ns <= 400 * SECOND_NS);
	EXPECT(steward_server_serve(server, 0, serve, &how[0], NULL) == STEWARD_SERVER_ERROR_FULL);
	EXPECT(steward_server_serve(server, 9, serve, &how[0], NULL) == STEWARD_SERVER_ERROR_ARGUMENT);
	EXPECT(steward_server_serve(server, 0, NULL, NULL, NULL) == STEWARD_SERVER_ERROR_ARGUMENT);
	for (int i = 0; i < 5; i++)
		EXPECT(steward_server_serve(server, 1, serve, &how[i], NULL) == STEWARD_SERVER_OK);

	goals[0].cpu = 0.99;
	EXPECT(steward_server_set_goal(server, 0, &goals[0]) == STEWARD_SERVER_ERROR_GOAL);
	goals[0].cpu = 0.3;
	EXPECT(steward_server_set_goal(server, 0, &goals[0]) == STEWARD_SERVER_OK);
	EXPECT(shows(server, "\"cpu\":0.3"));

	/* That there is no daemon is known soon, and said. */
	while (atomic_load(&warnings) == 0)
		sched_yield();
	EXPECT(shows(server, "\"unreserved\":\"cannot reach stewardd at"));

	EXPECT(steward_server_close(server, 1) >= 1);
	EXPECT(steward_server_serve(server, 1, serve, &how[0], NULL) == STEWARD_SERVER_ERROR_CLOSED);
	pthread_mutex_unlock(&gate);
	EXPECT(steward_server_close(server, 60 * SECOND_NS) == 0);
	EXPECT(atomic_load(&served) == 6);
	EXPECT(shows(server, "\"refused\":2"));
	EXPECT(shows(server, "\"panicked\":2,\"abandoned\":2"));
	char *table = NULL;
	EXPECT(steward_server_page(server, false, &table) == STEWARD_SERVER_OK);
	EXPECT(strncmp(table, "ROUTE", 5) == 0);
	steward_server_free_text(table);
	steward_server_free(server);
	EXPECT(atomic_load(&warnings) == 1);
	puts("all as it should be");
	return 0;
}
