/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Response times for servers: as many requests as can be answered in time are, whatever else arrives. Each route has a
 * goal; a request is a function, which a worker calls that has CPU time reserved if the request was accepted.
 *
 * Functions return STEWARD_SERVER_OK or a negative code; steward_server_last_error() then has a sentence. A server may
 * be used by several threads. Made by cbindgen; do not edit.
 */

#ifndef STEWARD_SERVER_H
#define STEWARD_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 Done.
 */
#define STEWARD_SERVER_OK 0

/*
 An argument is null, no UTF-8, or out of its range.
 */
#define STEWARD_SERVER_ERROR_ARGUMENT (-1)

/*
 A goal that cannot be held, or settings without routes or without workers.
 */
#define STEWARD_SERVER_ERROR_GOAL (-2)

/*
 The kernel gives no thread.
 */
#define STEWARD_SERVER_ERROR_RESOURCES (-3)

/*
 As many requests as can be answered in time were accepted, and the route refuses others.
 */
#define STEWARD_SERVER_ERROR_FULL (-4)

/*
 So many requests wait that one more is not to.
 */
#define STEWARD_SERVER_ERROR_TOO_MANY_WAIT (-5)

/*
 The server is closed.
 */
#define STEWARD_SERVER_ERROR_CLOSED (-6)

/*
 A mistake in this library.
 */
#define STEWARD_SERVER_ERROR_INTERNAL (-7)

/*
 The request was served, and its answer sent.
 */
#define STEWARD_SERVER_DONE 0

/*
 Nobody wanted the answer any more when the request was to begin: it used up nothing.
 */
#define STEWARD_SERVER_NOT_BEGUN 1

/*
 Nobody wanted the answer any more while the request was served.
 */
#define STEWARD_SERVER_ABANDONED 2

/*
 The code that served the request failed in a way that it should not.
 */
#define STEWARD_SERVER_FAILED 3

/*
 Beyond what is accepted, a request is served when there is nothing better to do.
 */
#define STEWARD_SERVER_BEST_EFFORT 0

/*
 Beyond what can be answered in time, a request is refused, and told when to come back.
 */
#define STEWARD_SERVER_REFUSE 1

/*
 Beyond what is accepted, a request waits for its turn; its response time counts from its arrival.
 */
#define STEWARD_SERVER_QUEUE 2

/*
 A server.
 */
struct steward_server;

/*
 A function that is told a sentence; on any thread, and not for longer than it takes to write it down.
 */
typedef void (*steward_server_say)(const char *sentence);

/*
 What is wanted of a route.
 */
struct steward_server_goal {
    /*
     The route's name, such as "/search". It is copied. steward_server_set_goal() does not look at it.
     */
    const char *route;
    /*
     Within which time a request is to be answered, from its arrival, in nanoseconds: from 1 ms to an hour.
     */
    uint64_t response_time_ns;
    /*
     The part of the machine's CPU time that requests of this route may be promised, above 0 and below 1.
     */
    double cpu;
    /*
     What a request costs as far as known, in nanoseconds of CPU time; 0 if it is not known: it is measured.
     */
    uint64_t cost_ns;
    /*
     STEWARD_SERVER_BEST_EFFORT, _REFUSE or _QUEUE.
     */
    uint32_t otherwise;
};

/*
 How a server is set up. Where a number is 0, it is what the library takes by itself.
 */
struct steward_server_settings {
    /*
     Where the daemon listens; null for where it does unless set up otherwise. "" has nothing reserved.
     */
    const char *socket_path;
    /*
     How many CPUs the server may use; otherwise all.
     */
    uint32_t cpus;
    /*
     How many workers serve requests that are not accepted, beside those that have reservations; otherwise as many as
     there are CPUs, and 4 at least.
     */
    uint32_t best_effort_workers;
    /*
     How many workers serve everything where nothing can be reserved; otherwise twice as many as there are CPUs, and
     10 at least.
     */
    uint32_t plain_workers;
    /*
     How many workers of a route have a reservation at most; otherwise 128.
     */
    uint32_t reserved_workers_max;
    /*
     How many requests may wait; otherwise 4096.
     */
    uint32_t waiting_max;
    /*
     How many workers are replaced whose request does not end; otherwise 32.
     */
    uint32_t strays_max;
};

/*
 Serves a request, on a thread that serves no other one meanwhile, and returns STEWARD_SERVER_DONE or another of
 those codes; one that is none of them counts as STEWARD_SERVER_FAILED. It may take as long as it needs; it may not
 unwind (throw, longjmp) out of itself.
 */
typedef int (*steward_server_job)(void *data);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 What was wrong with the last call that failed on this thread, in a sentence that also says what to do; empty when
 none has failed. It is valid until the next call on this thread that fails.
 */
const char *steward_server_last_error(void);

/*
 Has a function told what the library has to say by itself, such as that the daemon does not run and nothing is
 reserved. Once in a process, before the first server is started; without, it says nothing, and the page has it.

 Pointers:
 say can be called on any thread for as long as the process lives.
 */
int32_t steward_server_log(steward_server_say say);

/*
 Starts a server with count routes, which are known by their places in goals from then on. With settings null all
 is as the library takes it by itself. Its workers begin without reservations, and have some as soon as the daemon
 gives them; without a daemon they are a plain pool.

 Pointers:
 goals points to count goals, and settings to settings or is null, with what is said of their members; server
 can be written. What is there is to be freed with steward_server_free.
 */
int32_t steward_server_start(const struct steward_server_goal *goals,
                             size_t count,
                             const struct steward_server_settings *settings,
                             struct steward_server **server);

/*
 Changes the goal of a route; requests that were let in keep what they were promised. A goal that cannot be held
 changes nothing.

 Pointers:
 server is a server, and goal a goal.
 */
int32_t steward_server_set_goal(const struct steward_server *server,
                                size_t route,
                                const struct steward_server_goal *goal);

/*
 The place of the route of that name, or STEWARD_SERVER_ERROR_ARGUMENT if there is none.

 Pointers:
 server is a server, and name a text.
 */
int32_t steward_server_route(const struct steward_server *server, const char *name);

/*
 A request for a route has arrived, and job serves it: a worker calls it with data, once, when this has returned
 STEWARD_SERVER_OK, and possibly before it returns. Otherwise it is never called; where the request is refused,
 retry_after_ns, unless it is null, is in how many nanoseconds one may be accepted.

 Pointers:
 server is a server; job can be called with data on another thread; retry_after_ns is null or can be written.
 */
int32_t steward_server_serve(const struct steward_server *server,
                             size_t route,
                             steward_server_job job,
                             void *data,
                             uint64_t *retry_after_ns);

/*
 Has budget_ns of CPU time reserved for the calling thread in every period_ns, because it takes requests in.
 Where nothing can be reserved, nothing happens.

 Pointers:
 server is a server.
 */
int32_t steward_server_reserve_for_this_thread(const struct steward_server *server,
                                               uint64_t budget_ns,
                                               uint64_t period_ns);

/*
 What there is to see, as a table for people, or as JSON.

 Pointers:
 server is a server; page can be written. What is there is to be freed with steward_server_free_text.
 */
int32_t steward_server_page(const struct steward_server *server, bool json, char **page);

/*
 Frees a text that a function of this library gave. Null is nothing to free.

 Pointers:
 text is null or was given by this library, and was not freed before.
 */
void steward_server_free_text(char *text);

/*
 Lets no request in any more, and waits until those that were let in have been served, at most for timeout_ns.
 Returns how many have not been, or a negative code.

 Pointers:
 server is a server.
 */
int32_t steward_server_close(const struct steward_server *server,
                             uint64_t timeout_ns);

/*
 Frees a server, and closes it if that was not done. Requests that were let in are still served, by threads of their
 own: their data must stay until then. Null is nothing to free.

 Pointers:
 server is null or a server, and nobody uses it any more.
 */
void steward_server_free(struct steward_server *server);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STEWARD_SERVER_H */
