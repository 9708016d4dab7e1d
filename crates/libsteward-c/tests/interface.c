/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program in C that does with a daemon what the interface offers. c.rs builds it and runs it against a daemon on a
 * fake machine; it says what went wrong and ends with 1.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "steward.h"

static const char *socket_path;

#define EXPECT(condition)                                                                                            \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            fprintf(stderr, "interface.c:%d: not so: %s (%s)\n", __LINE__, #condition, steward_last_error());        \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

/* Whether a JSON text that the library gave has this in it. Frees the text. */
static int frees_and_has(char *json, const char *part)
{
    int has = strstr(json, part) != NULL;

    if (!has)
        fprintf(stderr, "%s is not in %s\n", part, json);
    steward_free_text(json);
    return has;
}

static void arguments_that_cannot_be_used(struct steward_client *client)
{
    struct steward_client *other = NULL;
    char *json = NULL;

    EXPECT(steward_connect("/no/such/socket", &other) == STEWARD_ERROR_CONNECT && other == NULL);
    EXPECT(strstr(steward_last_error(), "/no/such/socket") != NULL);
    EXPECT(steward_connect(socket_path, NULL) == STEWARD_ERROR_ARGUMENT);
    EXPECT(steward_status(NULL, &json) == STEWARD_ERROR_ARGUMENT && json == NULL);
    EXPECT(steward_call(client, "io.steward.Status", "[]", &json) == STEWARD_ERROR_ARGUMENT);
    EXPECT(steward_call(client, "io.steward.Status", "{\"a\":", &json) == STEWARD_ERROR_ARGUMENT);
    EXPECT(steward_call(client, "io.steward.\xff", NULL, &json) == STEWARD_ERROR_ARGUMENT);
    EXPECT(steward_call(client, "io.steward.Fly", NULL, &json) == STEWARD_ERROR_METHOD_NOT_FOUND);
    EXPECT(steward_set(client, 1, NULL, 0, NULL) == STEWARD_ERROR_ARGUMENT);
    EXPECT(steward_run(client, NULL, 1024, NULL) == STEWARD_ERROR_ARGUMENT);
    EXPECT(steward_domain_create(client, NULL, NULL, 0) == STEWARD_ERROR_ARGUMENT);
    steward_close(NULL);
    steward_events_close(NULL);
    steward_free_text(NULL);
}

static void processes(struct steward_client *client)
{
    struct steward_reservation some = {.budget_ns = 5000000, .period_ns = 30000000};
    struct steward_reservation most = {.budget_ns = 29000000, .period_ns = 30000000};
    struct steward_reservation none = {0};
    int32_t standing = -1;
    uint64_t count = 0;
    char *json = NULL;

    EXPECT(steward_run(client, &some, STEWARD_INHERIT, &standing) == STEWARD_OK);
    EXPECT(standing == STEWARD_STANDING_ADMITTED);
    EXPECT(steward_status(client, &json) == STEWARD_OK && frees_and_has(json, "\"budget_ns\":5000000"));
    EXPECT(steward_release(client, getpid(), &count) == STEWARD_OK && count == 1);
    EXPECT(steward_set(client, getpid(), &most, 0, NULL) == STEWARD_ERROR_ADMISSION_REFUSED);
    EXPECT(strstr(steward_last_error(), "no room") != NULL);
    EXPECT(steward_set(client, getpid(), &most, STEWARD_KEEP_IF_REFUSED, &standing) == STEWARD_OK);
    EXPECT(standing == STEWARD_STANDING_REFUSED);
    EXPECT(steward_set(client, getpid(), &none, 0, NULL) == STEWARD_ERROR_INVALID_PARAMETER);
    EXPECT(steward_set(client, 999999999, &some, 0, NULL) == STEWARD_ERROR_NO_SUCH_TASK);
    EXPECT(steward_complain(client, 2, NULL) == STEWARD_OK);
    EXPECT(steward_complain(client, 3, &count) == STEWARD_OK && count == 5);
}

static void domains(struct steward_client *client)
{
    struct steward_domain_settings settings = {.set = STEWARD_CPU | STEWARD_WEIGHT, .cpu = 0.5, .weight = 200};
    char *json = NULL;

    EXPECT(steward_domain_create(client, "batch", &settings, STEWARD_KEEP) == STEWARD_OK);
    EXPECT(steward_domain_create(client, "batch", NULL, 0) == STEWARD_ERROR_DOMAIN_EXISTS);
    EXPECT(steward_domain_create(client, "more", &settings, 0) == STEWARD_ERROR_OVERCOMMITTED);
    EXPECT(steward_domain_create(client, "../etc", NULL, 0) == STEWARD_ERROR_INVALID_PARAMETER);
    settings = (struct steward_domain_settings){.set = STEWARD_CPU, .cpu = 0.25, .reset = STEWARD_WEIGHT};
    EXPECT(steward_domain_set(client, "batch", &settings) == STEWARD_OK);
    EXPECT(steward_domain_show(client, "batch", &json) == STEWARD_OK && frees_and_has(json, "\"cpu\":0.25"));
    settings.cpu = 1.5;
    EXPECT(steward_domain_set(client, "batch", &settings) == STEWARD_ERROR_INVALID_PARAMETER);
    settings.set = 1u << 31;
    EXPECT(steward_domain_set(client, "batch", &settings) == STEWARD_ERROR_ARGUMENT);
    EXPECT(steward_domain_list(client, &json) == STEWARD_OK && frees_and_has(json, "\"name\":\"batch\""));
    EXPECT(steward_domain_remove(client, "batch", 0) == STEWARD_OK);
    EXPECT(steward_domain_show(client, "batch", &json) == STEWARD_ERROR_NO_SUCH_DOMAIN);
    EXPECT(steward_domain_move(client, 0, "batch") == STEWARD_ERROR_NO_SUCH_DOMAIN);
}

/* Waits for the next event, as a program's own loop would. */
static char *next_event(struct steward_events *events)
{
    struct pollfd waiting = {.fd = steward_events_fd(events), .events = POLLIN};
    char *json = NULL;
    int32_t outcome;

    while ((outcome = steward_events_next(events, &json)) == 0)
        EXPECT(poll(&waiting, 1, -1) == 1);
    EXPECT(outcome == 1);
    return json;
}

static void events(struct steward_client *client)
{
    struct steward_reservation some = {.budget_ns = 1000000, .period_ns = 30000000};
    struct steward_events *decisions = NULL, *changes = NULL;
    char *json = NULL;

    EXPECT(steward_monitor(socket_path, false, &decisions) == STEWARD_OK);
    EXPECT(steward_watch_domains(socket_path, true, &changes) == STEWARD_OK);
    /* The first of those that are there: by now the daemon has taken the call. */
    EXPECT(frees_and_has(next_event(changes), "\"domain\":"));
    while (steward_events_next(changes, &json) == 1)
        steward_free_text(json);
    EXPECT(steward_domain_create(client, "seen", NULL, 0) == STEWARD_OK);
    EXPECT(frees_and_has(next_event(changes), "domain_created"));
    EXPECT(frees_and_has(next_event(decisions), "domain_created"));
    EXPECT(steward_set(client, getpid(), &some, 0, NULL) == STEWARD_OK);
    EXPECT(frees_and_has(next_event(decisions), "\"kind\":"));
    EXPECT(steward_domain_remove(client, "seen", STEWARD_KILL) == STEWARD_OK);
    steward_events_close(decisions);
    steward_events_close(changes);
}

/* What a callback has seen: how often it was called, and how much may be used. Both ends of a pipe wait for it. */
struct seen {
    int ends[2];
    struct steward_availability latest;
};

static void called_back(const struct steward_availability *latest, void *user_data)
{
    struct seen *seen = user_data;

    seen->latest = *latest;
    EXPECT(write(seen->ends[1], "x", 1) == 1);
}

/* What is told first, as a program's own loop waits for it. */
static struct steward_availability first_told(struct steward_availability_watcher *watcher)
{
    struct pollfd waiting = {.fd = steward_availability_fd(watcher), .events = POLLIN};
    struct steward_availability latest = {0};
    int32_t outcome;

    while ((outcome = steward_availability_poll(watcher, &latest)) == 0)
        EXPECT(poll(&waiting, 1, -1) == 1);
    EXPECT(outcome == 1);
    return latest;
}

static void availability(void)
{
    struct steward_availability_watcher *watcher = NULL, *other = NULL;
    struct steward_availability_watch *watch = NULL;
    struct steward_availability latest;
    struct seen seen = {0};
    char byte;
    int status;

    EXPECT(steward_availability_open(socket_path, NULL, &watcher) == STEWARD_OK);
    latest = first_told(watcher);
    EXPECT(latest.at_ns > 0 && latest.available_bytes > 0 && latest.used_bytes <= latest.available_bytes);
    EXPECT(steward_availability_poll(watcher, NULL) == 1);
    EXPECT(pipe(seen.ends) == 0);
    EXPECT(steward_availability_watch(socket_path, "/", called_back, &seen, &watch) == STEWARD_OK);
    EXPECT(read(seen.ends[0], &byte, 1) == 1 && seen.latest.available_bytes == latest.available_bytes);
    steward_availability_stop(watch);
    /* A child has a connection of its own, and takes nothing from its parent's. */
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0)
        _exit(first_told(watcher).available_bytes == latest.available_bytes ? 0 : 1);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(steward_availability_poll(watcher, &latest) == 1);
    steward_availability_close(watcher);
    /* Without a daemon nothing is known, and that is all. */
    EXPECT(steward_availability_open("/no/such/socket", "a", &other) == STEWARD_OK);
    EXPECT(steward_availability_poll(other, &latest) == 0 && steward_availability_fd(other) >= 0);
    steward_availability_close(other);
    EXPECT(steward_availability_open(socket_path, NULL, NULL) == STEWARD_ERROR_ARGUMENT);
    EXPECT(steward_availability_poll(NULL, &latest) == STEWARD_ERROR_ARGUMENT);
    EXPECT(steward_availability_watch(socket_path, NULL, NULL, NULL, &watch) == STEWARD_ERROR_ARGUMENT);
    steward_availability_close(NULL);
    steward_availability_stop(NULL);
}

static void *asks_often(void *client)
{
    uint64_t count;

    for (int i = 0; i < 200; i++)
        EXPECT(steward_complain(client, 1, &count) == STEWARD_OK);
    EXPECT(steward_release(client, 999999999, NULL) == STEWARD_ERROR_NO_SUCH_TASK);
    EXPECT(strstr(steward_last_error(), "999999999") != NULL);
    return NULL;
}

static void threads_share_a_handle(struct steward_client *client)
{
    pthread_t threads[4];
    uint64_t before, after;

    EXPECT(steward_complain(client, 0, &before) == STEWARD_ERROR_INVALID_PARAMETER);
    EXPECT(steward_complain(client, 1, &before) == STEWARD_OK);
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_create(&threads[i], NULL, asks_often, client) == 0);
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(steward_complain(client, 1, &after) == STEWARD_OK && after == before + 801);
}

int main(int count, char **values)
{
    struct steward_client *client = NULL;

    if (count != 2)
        return 2;
    socket_path = values[1];
    EXPECT(strcmp(steward_last_error(), "") == 0);
    EXPECT(steward_connect(socket_path, &client) == STEWARD_OK && client != NULL);
    arguments_that_cannot_be_used(client);
    processes(client);
    domains(client);
    events(client);
    availability();
    threads_share_a_handle(client);
    steward_close(client);
    puts("all as it should be");
    return 0;
}
