/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Steward's client library for C: reservations, domains and what the daemon decides about them.
 *
 * Functions return STEWARD_OK or a negative code; steward_last_error() then has a sentence. A handle may be used by
 * several threads. Where JSON comes back it is what the interface io.steward describes. Made by cbindgen; do not edit.
 */

#ifndef STEWARD_H
#define STEWARD_H

#include <stdbool.h>
#include <stdint.h>

/*
 Children get the reservation too; for steward_set, all threads of the process as well.
 */
#define STEWARD_INHERIT 1

/*
 The reservation may not be revoked under overload.
 */
#define STEWARD_NOT_REVOCABLE 2

/*
 Without room, be best-effort until there is some, instead of STEWARD_ERROR_ADMISSION_REFUSED.
 */
#define STEWARD_KEEP_IF_REFUSED 4

/*
 The reservation is decided on later, by the next program that is executed.
 */
#define STEWARD_STANDING_UNDECIDED 0

/*
 The reservation is in force.
 */
#define STEWARD_STANDING_ADMITTED 1

/*
 There was no room; best-effort until there is some.
 */
#define STEWARD_STANDING_REFUSED 2

/*
 It was put out under overload; best-effort until there is room.
 */
#define STEWARD_STANDING_REVOKED 3

/*
 The domain stays when its last process has gone.
 */
#define STEWARD_KEEP 1

/*
 The processes of a removed domain are ended instead of moved to its parent.
 */
#define STEWARD_KILL 1

/*
 priority counts.
 */
#define STEWARD_PRIORITY 1

/*
 weight counts.
 */
#define STEWARD_WEIGHT 2

/*
 own_priority counts.
 */
#define STEWARD_OWN_PRIORITY 4

/*
 own_weight counts.
 */
#define STEWARD_OWN_WEIGHT 8

/*
 cpu counts.
 */
#define STEWARD_CPU 16

/*
 cpu_reservable counts.
 */
#define STEWARD_CPU_RESERVABLE 32

/*
 memory_min_bytes counts.
 */
#define STEWARD_MEMORY_MIN 64

/*
 memory_max_bytes counts.
 */
#define STEWARD_MEMORY_MAX 128

/*
 disk counts.
 */
#define STEWARD_DISK 256

/*
 protect_ns counts.
 */
#define STEWARD_PROTECT 512

/*
 io counts.
 */
#define STEWARD_IO 1024

/*
 io_max_bytes counts.
 */
#define STEWARD_IO_MAX_BYTES 2048

/*
 io_max_requests counts.
 */
#define STEWARD_IO_MAX_REQUESTS 4096

/*
 Disk requests are served before all others.
 */
#define STEWARD_IO_INTERACTIVE 0

/*
 Disk requests are served as the kernel does by default.
 */
#define STEWARD_IO_NORMAL 1

/*
 Disk requests are served when nobody else wants the disk.
 */
#define STEWARD_IO_BACKGROUND 2

/*
 Done.
 */
#define STEWARD_OK 0

/*
 An argument is null, no UTF-8, no JSON, or out of its range.
 */
#define STEWARD_ERROR_ARGUMENT (-1)

/*
 Nobody listens at the socket, or the daemon takes nobody in for 30 seconds.
 */
#define STEWARD_ERROR_CONNECT (-2)

/*
 The connection broke or was closed, or no answer came within 150 seconds. Close the handle and connect again.
 */
#define STEWARD_ERROR_BROKEN (-3)

/*
 The daemon answered what this library does not understand.
 */
#define STEWARD_ERROR_MALFORMED (-4)

/*
 The caller may not do this.
 */
#define STEWARD_ERROR_PERMISSION_DENIED (-5)

/*
 The daemon found a parameter wrong.
 */
#define STEWARD_ERROR_INVALID_PARAMETER (-6)

/*
 There is no such process.
 */
#define STEWARD_ERROR_NO_SUCH_TASK (-7)

/*
 There is no room for the reservation on any CPU.
 */
#define STEWARD_ERROR_ADMISSION_REFUSED (-8)

/*
 There is no such domain.
 */
#define STEWARD_ERROR_NO_SUCH_DOMAIN (-9)

/*
 There is a domain of that name already.
 */
#define STEWARD_ERROR_DOMAIN_EXISTS (-10)

/*
 A level of domains would reserve more than it has.
 */
#define STEWARD_ERROR_OVERCOMMITTED (-11)

/*
 Nothing enforces reservations now.
 */
#define STEWARD_ERROR_MECHANISM_GONE (-12)

/*
 The kernel refused.
 */
#define STEWARD_ERROR_MECHANISM_FAILED (-13)

/*
 The daemon has no such method; it may be older than this library.
 */
#define STEWARD_ERROR_METHOD_NOT_FOUND (-14)

/*
 An error of the daemon's that this library does not know.
 */
#define STEWARD_ERROR_OTHER (-15)

/*
 A mistake in this library.
 */
#define STEWARD_ERROR_INTERNAL (-16)

/*
 The process can have no more descriptors or threads.
 */
#define STEWARD_ERROR_RESOURCES (-17)

/*
 A thread that calls back with how much memory a domain may use.
 */
struct steward_availability_watch;

/*
 What is known of how much memory a domain may use. It finds the daemon again by itself when that starts again. Any
 number of threads may use one; calls on the same handle wait for each other, and none waits for the daemon. After
 fork() the child's copy connects anew, with another descriptor. Only steward_availability_close() must be the last
 use.
 */
struct steward_availability_watcher;

/*
 A connection to the daemon. Any number of threads may use one at a time or at once: calls on the same handle wait
 for each other. The daemon knows the process that connected; after fork() a child connects anew. Only
 steward_close() must be the last use.
 */
struct steward_client;

/*
 A stream, on a connection of its own. Any number of threads may use one; calls on the same handle wait for each
 other. Only steward_events_close() must be the last use.
 */
struct steward_events;

/*
 How much memory a domain may use.
 */
struct steward_availability {
    /*
     When it was read, in nanoseconds of CLOCK_MONOTONIC.
     */
    uint64_t at_ns;
    /*
     What it used then with all below it, in bytes.
     */
    uint64_t used_bytes;
    /*
     How much it may use, in bytes: what it uses, what nobody uses, and what it can take back from those who use more
     than their part. Less than it uses where others lack what it has more than its part.
     */
    uint64_t available_bytes;
    /*
     What of that it can have at once, in bytes: what it uses, what is free, and clean pages of files of those who
     would pay.
     */
    uint64_t available_at_once_bytes;
    /*
     How long it takes at most until it can have the rest, in nanoseconds.
     */
    uint64_t time_to_free_ns;
};

/*
 What is called with how much memory a domain may use, on a thread of the library's, and the user_data that was
 given with it.
 */
typedef void (*steward_availability_callback)(const struct steward_availability *latest, void *user_data);

/*
 CPU time: budget_ns in every period_ns.
 */
struct steward_reservation {
    /*
     CPU time per period, in nanoseconds, from 0.1 ms to the whole period.
     */
    uint64_t budget_ns;
    /*
     Length of a period, in nanoseconds, from 1 ms to 10 s.
     */
    uint64_t period_ns;
};

/*
 What to change in a domain. Fill it with zeros, then say in set which values count (STEWARD_PRIORITY and so on),
 and in reset which settings are to have their default again; all others stay as they are.
 */
struct steward_domain_settings {
    /*
     Which values count.
     */
    uint32_t set;
    /*
     Which settings get their default again.
     */
    uint32_t reset;
    /*
     Order among siblings, 0 to 7: what a higher one wants, a lower one gets only by its reservation.
     */
    int32_t priority;
    /*
     Share of the unreserved rest among siblings of one priority, 1 to 10000.
     */
    int32_t weight;
    /*
     Priority of the domain's own tasks beside its children, 0 to 7.
     */
    int32_t own_priority;
    /*
     Weight of the domain's own tasks beside its children, 1 to 10000.
     */
    int32_t own_weight;
    /*
     CPU reserved, as a fraction of the parent's, above 0 and at most 1.
     */
    double cpu;
    /*
     The most that the children may reserve together, as a fraction of the domain's own.
     */
    double cpu_reservable;
    /*
     Memory promised, in bytes.
     */
    int64_t memory_min_bytes;
    /*
     The most memory that it may use, in bytes.
     */
    int64_t memory_max_bytes;
    /*
     Disk time reserved, as a fraction of the parent's.
     */
    double disk;
    /*
     Protected: for how long one of its pages may go unused before it may be taken, in nanoseconds, 1 s to 24 h.
     */
    int64_t protect_ns;
    /*
     How soon its disk requests are served: STEWARD_IO_INTERACTIVE and so on.
     */
    int32_t io;
    /*
     The most that it may read, and write, of each disk, in bytes a second.
     */
    int64_t io_max_bytes;
    /*
     The same in requests a second.
     */
    int64_t io_max_requests;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Begins to watch how much memory domain may use, or with null the domain that the calling process is in, wherever
 it is moved; socket_path null is the usual socket. Succeeds when there is no daemon, too: whenever there is one,
 it is asked. Stores a handle in watcher; free it with steward_availability_close().

 Pointers:
 socket_path and domain are null or texts; watcher can be written.
 */
int32_t steward_availability_open(const char *socket_path,
                                  const char *domain,
                                  struct steward_availability_watcher **watcher);

/*
 What was told last, without waiting: returns 1 and stores it in latest, unless that is null; returns 0 when
 nothing is known, because nothing was told yet or the daemon has been gone for ten seconds.

 Pointers:
 watcher is a handle; latest is null or can be written.
 */
int32_t steward_availability_poll(const struct steward_availability_watcher *watcher,
                                  struct steward_availability *latest);

/*
 The descriptor to wait for with poll() until it is readable, then call steward_availability_poll(), whether or not
 it has something new. It stays the same when the daemon starts again, and belongs to the watcher: do not read from
 it and do not close it.

 Pointers:
 watcher is a handle.
 */
int steward_availability_fd(const struct steward_availability_watcher *watcher);

/*
 Ends a watcher. Null is nothing to end.

 Pointers:
 watcher is null or was given by steward_availability_open(), was not closed before, and is not used any more.
 */
void steward_availability_close(struct steward_availability_watcher *watcher);

/*
 Has a thread call callback with how much memory domain may use: once the daemon has said so, and then whenever
 it has changed by 5 % or more of what was told last. socket_path and domain are as for
 steward_availability_open(). The thread has the signal mask of the caller. Stores a handle in watch; end the
 thread with steward_availability_stop(). A child has no such thread after fork().

 Pointers:
 socket_path and domain are null or texts; callback may be called on another thread with user_data, until
 steward_availability_stop() has returned; watch can be written.
 */
int32_t steward_availability_watch(const char *socket_path,
                                   const char *domain,
                                   steward_availability_callback callback,
                                   void *user_data,
                                   struct steward_availability_watch **watch);

/*
 Ends a thread that calls back, and waits for a call that is in progress. Null is nothing to end.

 Pointers:
 watch is null or was given by steward_availability_watch(), and was not stopped before.
 */
void steward_availability_stop(struct steward_availability_watch *watch);

/*
 Connects to the daemon at socket_path, or with null at the usual socket, and stores a handle in client. Waits
 for a daemon that is starting, 30 seconds at most. Free it with steward_close().

 Pointers:
 socket_path is null or a text, client can be written.
 */
int32_t steward_connect(const char *socket_path,
                        struct steward_client **client);

/*
 Closes a connection. Null is nothing to close. What was reserved stays.

 Pointers:
 client is null or was given by steward_connect(), was not closed before, and is not used any more.
 */
void steward_close(struct steward_client *client);

/*
 For the calling process: with cpu, reserves it for the process (its main thread) and keeps it over exec. With
 null, lets the process take up the specification of the next program that it executes. flags are of
 STEWARD_INHERIT, STEWARD_NOT_REVOCABLE, STEWARD_KEEP_IF_REFUSED. Stores in standing, unless it is null, one of
 STEWARD_STANDING_*.

 Pointers:
 client is a handle; cpu is null or points to a reservation; standing is null or can be written.
 */
int32_t steward_run(const struct steward_client *client,
                    const struct steward_reservation *cpu,
                    uint32_t flags,
                    int32_t *standing);

/*
 Reserves cpu for a running process; flags and standing as in steward_run().

 Pointers:
 client is a handle; cpu points to a reservation; standing is null or can be written.
 */
int32_t steward_set(const struct steward_client *client,
                    int32_t pid,
                    const struct steward_reservation *cpu,
                    uint32_t flags,
                    int32_t *standing);

/*
 Makes a running process best-effort. Stores in released, unless it is null, how many of its threads had a
 reservation.

 Pointers:
 client is a handle; released is null or can be written.
 */
int32_t steward_release(const struct steward_client *client, int32_t pid, uint64_t *released);

/*
 Says that the calling process was too late missed times, 1 to 1000000, since it last said so: frames, deadlines,
 requests. steward tune goes by it. Stores in complaints, unless it is null, the sum so far.

 Pointers:
 client is a handle; complaints is null or can be written.
 */
int32_t steward_complain(const struct steward_client *client,
                         uint64_t missed,
                         uint64_t *complaints);

/*
 Everything at one moment: stores in json what io.steward.Status returns. Free it with steward_free_text().

 Pointers:
 client is a handle; json can be written.
 */
int32_t steward_status(const struct steward_client *client, char **json);

/*
 Calls any method that has one reply by its full name (io.steward.Explain). parameters is a JSON object, or null
 for none. Stores in json, unless it is null, the reply as a JSON object; free it with steward_free_text().

 Pointers:
 client is a handle; method is a text; parameters is null or a text; json is null or can be written.
 */
int32_t steward_call(const struct steward_client *client,
                     const char *method,
                     const char *parameters,
                     char **json);

/*
 Makes a domain name (batch, or web/front below a domain web) with these settings, or with null with none. flags
 is STEWARD_KEEP or 0: without it the domain goes away with its last process, or when none came within a minute.

 Pointers:
 client is a handle; name is a text; settings is null or points to settings.
 */
int32_t steward_domain_create(const struct steward_client *client,
                              const char *name,
                              const struct steward_domain_settings *settings,
                              uint32_t flags);

/*
 Changes what a domain has, at once. Nothing is changed when any part of it is refused.

 Pointers:
 client is a handle; name is a text; settings points to settings.
 */
int32_t steward_domain_set(const struct steward_client *client,
                           const char *name,
                           const struct steward_domain_settings *settings);

/*
 Removes a domain that Steward made, with all below it; its processes move to its parent, or end with STEWARD_KILL in
 flags. From any other domain, takes back what was set.

 Pointers:
 client is a handle; name is a text.
 */
int32_t steward_domain_remove(const struct steward_client *client,
                              const char *name,
                              uint32_t flags);

/*
 Moves a process with all its threads to a domain that Steward made; pid 0 is the calling process.

 Pointers:
 client is a handle; name is a text.
 */
int32_t steward_domain_move(const struct steward_client *client, int32_t pid, const char *name);

/*
 All domains: stores in json what io.steward.ListDomains returns. Free it with steward_free_text().

 Pointers:
 client is a handle; json can be written.
 */
int32_t steward_domain_list(const struct steward_client *client, char **json);

/*
 One domain, or with null that of the calling process: stores in json what io.steward.ShowDomain returns. Free it
 with steward_free_text().

 Pointers:
 client is a handle; name is null or a text; json can be written.
 */
int32_t steward_domain_show(const struct steward_client *client,
                            const char *name,
                            char **json);

/*
 What was wrong with the last call that failed on this thread, in a sentence that also says what to do; empty when
 none has failed. It is valid until the next call on this thread that fails.
 */
const char *steward_last_error(void);

/*
 Opens a stream of decisions at socket_path, or with null at the usual socket: each event is what
 io.steward.Monitor returns. With history, first those that the daemon remembers. Free it with
 steward_events_close().

 Pointers:
 socket_path is null or a text; events can be written.
 */
int32_t steward_monitor(const char *socket_path, bool history, struct steward_events **events);

/*
 Opens a stream of changes among domains: each event is what io.steward.WatchDomains returns. With present, first
 all that there are. Otherwise as steward_monitor().

 Pointers:
 As steward_monitor().
 */
int32_t steward_watch_domains(const char *socket_path,
                              bool present,
                              struct steward_events **events);

/*
 The descriptor to wait for with poll() until it is readable, then call steward_events_next() until that returns 0.
 It belongs to the stream: do not read from it and do not close it.

 Pointers:
 events is a stream.
 */
int steward_events_fd(const struct steward_events *events);

/*
 The next event if it is here already, without waiting: returns 1 and stores it in json (free it with
 steward_free_text()), 0 when there is none yet, or a negative code when the stream has ended.

 Pointers:
 events is a stream; json can be written.
 */
int32_t steward_events_next(const struct steward_events *events, char **json);

/*
 Ends a stream. Null is nothing to end.

 Pointers:
 events is null or a stream that was not closed before and is not used any more.
 */
void steward_events_close(struct steward_events *events);

/*
 Frees a text that a function of this library gave. Null is nothing to free.

 Pointers:
 text is null or was given by this library, and was not freed before.
 */
void steward_free_text(char *text);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STEWARD_H */
