/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Has a program with libgc, unmodified, collect garbage by how much memory it may use: LD_PRELOAD=libsteward-boehm.so.
 *
 * The collector asks before each collection of its own whether to go on (GC_set_stop_func). While it is known how much
 * may be used, the answer is no, and the heap grows instead, until with the next piece it would be too large. The
 * functions that allocate are wrapped: each looks, now and then, at the heap and at what may be used, and collects and
 * discards when decide.h says so. They do it because there no lock of the collector's is held, and because a program
 * that allocates nothing needs no collection.
 *
 * Without a daemon, or with another libgc than this knows, nothing is decided here and all is as without it.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <steward.h>

#include "heap.h"

#define EXPORTED __attribute__((visibility("default")))

/* Each thread's own, at an offset that is known when the program starts: to ask for it would cost a call each time. */
#define OWN _Thread_local __attribute__((tls_model("initial-exec")))

/* A call looks when it is this one since the last look on its thread, or wants that many bytes. */
#define LOOK_EVERY_CALLS 256
#define LOOK_FROM_BYTES (64 * 1024)
/* What an allocation is of: GC_I_NORMAL and GC_I_PTRFREE in gc_mark.h. */
#define KIND_NORMAL 1
#define KIND_PTRFREE 0
/* How often it is asked how much may be used, in nanoseconds. */
#define ASK_EVERY_NS 100000000ULL
/* What libgc reads once, when it is initialized; there is no function for it. */
#define USE_ENTIRE_HEAP "GC_USE_ENTIRE_HEAP"

/* The heap, and beside those that it calls the functions of libgc that this does; their types are those of gc.h. */
static struct boehm_heap heap;
static struct {
    void (*init)(void);
    size_t (*free_space_divisor)(void);
    void (*set_stop_func)(int (*)(void));
    void (*set_on_heap_resize)(void (*)(size_t));
} gc;

EXPORTED void GC_gcollect(void);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct steward_availability_watcher *watcher;
static bool logs;
/* How much may be used, in bytes; 0 while that is not known. */
static _Atomic uint64_t available;
/* The heap has grown since the last look. */
static atomic_bool has_grown;
/* A thread looks, or collects. */
static atomic_flag looking = ATOMIC_FLAG_INIT;
/* The program itself wants a collection, or a look does, on this thread. */
static OWN bool is_asked_for;
/* The first call looks. */
static OWN unsigned int calls_left;
/* Both belong to the thread that looks. */
static uint64_t asked_at_ns;
static size_t usual_divisor;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

/* The collector asks, with its lock held, whether to give up a collection that it has not begun. */
static int gives_up(void)
{
    uint64_t bytes = atomic_load_explicit(&available, memory_order_relaxed);

    return bytes != 0 && !is_asked_for && boehm_gives_up(&heap, bytes);
}

/* The collector says, with its lock held, how large its heap is now. */
static void grown(size_t bytes)
{
    (void)bytes;
    atomic_store_explicit(&has_grown, true, memory_order_relaxed);
}

/* Finds a function behind those of this library; false when libgc has none of that name. */
static bool find(void *place, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    /* As POSIX says it: a pointer to a function is read through one to an object. */
    *(void **)place = found;
    return found != NULL;
}

static void start(void)
{
    const char *socket = getenv("STEWARD_SOCKET");
    bool is_set;

    logs = getenv("STEWARD_BOEHM_LOG") != NULL;
    heap.gc.collect = GC_gcollect;
    if (!find(&heap.gc.heap_bytes, "GC_get_heap_size") || !find(&heap.gc.free_bytes, "GC_get_free_bytes") ||
        !find(&heap.gc.bytes_since_gc, "GC_get_bytes_since_gc") ||
        !find(&heap.gc.collect_and_unmap, "GC_gcollect_and_unmap") ||
        !find(&heap.gc.malloc_atomic_uncollectable, "GC_malloc_atomic_uncollectable") ||
        !find(&heap.gc.free, "GC_free") || !find(&gc.init, "GC_init") ||
        !find(&gc.free_space_divisor, "GC_get_free_space_divisor") ||
        !find(&heap.gc.set_free_space_divisor, "GC_set_free_space_divisor") ||
        !find(&gc.set_stop_func, "GC_set_stop_func") || !find(&gc.set_on_heap_resize, "GC_set_on_heap_resize"))
        return;
    /* Of versions before 8.2 it is not known what they have beside their heap. */
    (void)find(&heap.gc.counts, "GC_get_prof_stats");
    if (steward_availability_open(socket, NULL, &watcher) != STEWARD_OK) {
        watcher = NULL;
        return;
    }
    /* What is unused is used before the heap grows: libgc would ask for a collection instead, which it does not get. */
    is_set = getenv(USE_ENTIRE_HEAP) != NULL;
    if (!is_set)
        setenv(USE_ENTIRE_HEAP, "1", 1);
    gc.init();
    /* Other programs that this one starts have nothing to do with it. */
    if (!is_set)
        unsetenv(USE_ENTIRE_HEAP);
    gc.set_stop_func(gives_up);
    gc.set_on_heap_resize(grown);
}

/* Asks how much may be used, without waiting. */
static void ask(void)
{
    struct steward_availability latest;
    uint64_t before = available, now = now_ns();

    if (asked_at_ns != 0 && now - asked_at_ns < ASK_EVERY_NS)
        return;
    asked_at_ns = now;
    if (steward_availability_poll(watcher, &latest) != 1)
        latest.available_bytes = 0;
    if (latest.available_bytes == before)
        return;
    if (before == 0) {
        usual_divisor = gc.free_space_divisor();
        heap.divisor = 0;
    } else if (latest.available_bytes == 0) {
        /* Nobody says it any more: the collector decides again, as it would, over all that it has. */
        heap.gc.set_free_space_divisor(usual_divisor);
        boehm_use_again(&heap, UINT64_MAX);
    }
    available = latest.available_bytes;
    if (logs)
        fprintf(stderr, "steward-boehm: %llu bytes may be used\n", (unsigned long long)latest.available_bytes);
}

static void look(void)
{
    struct boehm_state before, after;

    ask();
    if (available == 0)
        return;
    before = boehm_state_of(&heap, available);
    if (!boehm_look(&heap, available) || !logs)
        return;
    after = boehm_state_of(&heap, available);
    fprintf(stderr, "steward-boehm: at a heap of %llu bytes, %llu afterwards and %llu discarded\n",
            (unsigned long long)before.heap, (unsigned long long)after.heap, (unsigned long long)after.discarded);
}

/* Whether an allocation of so many bytes is to look first. It is asked before each: all of it is a few instructions. */
static inline bool is_due(size_t bytes)
{
    return calls_left-- == 0 || bytes >= LOOK_FROM_BYTES ||
           atomic_load_explicit(&has_grown, memory_order_relaxed);
}

/* Called before an allocation that is to look, with no lock of the collector's held. */
__attribute__((noinline, cold)) static void before_allocation(void)
{
    calls_left = LOOK_EVERY_CALLS - 1;
    pthread_once(&once, start);
    /* One look at a time; and none within one, where a finalizer allocates. */
    if (watcher == NULL || atomic_flag_test_and_set(&looking))
        return;
    atomic_store_explicit(&has_grown, false, memory_order_relaxed);
    look();
    atomic_flag_clear(&looking);
}

/* The next function of this name: that of libgc, which the program meant. */
__attribute__((cold)) static void *look_up(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (found == NULL) {
        fprintf(stderr, "steward-boehm: there is no %s in this program\n", name);
        abort();
    }
    return found;
}

/* Declares `real` as the function of that name and type, in a function that is seldom called. */
#define REAL(result, name, parameters)                                                                               \
    static _Atomic(void *) found;                                                                                    \
    void *known = atomic_load_explicit(&found, memory_order_relaxed);                                                \
    result(*real) parameters;                                                                                        \
                                                                                                                     \
    if (known == NULL)                                                                                               \
        known = look_up(#name);                                                                                      \
    atomic_store_explicit(&found, known, memory_order_relaxed);                                                      \
    *(void **)&real = known

/*
 * Declares NAME_next, the function of libgc of that name and type, and NAME_first, which stands there until the first
 * call and finds it. As POSIX says it, a pointer to a function is read through one to an object.
 */
#define NEXT(result, name, parameters, arguments)                                                                    \
    static result name##_first parameters;                                                                           \
    static result(*_Atomic name##_next) parameters = name##_first;                                                   \
    __attribute__((noinline, cold)) static result name##_first parameters                                            \
    {                                                                                                                \
        result(*real) parameters;                                                                                    \
                                                                                                                     \
        *(void **)&real = look_up(#name);                                                                            \
        atomic_store_explicit(&name##_next, real, memory_order_relaxed);                                             \
        return real arguments;                                                                                       \
    }
#define CALL(name) atomic_load_explicit(&name##_next, memory_order_relaxed)

/*
 * Wraps a function that allocates. All are what gc.h, gc_mark.h, gc_typed.h and gc_gcj.h declare. What is seldom done
 * is behind a call of its own, so that otherwise nothing is saved and restored.
 */
#define WRAP_AS(result, name, parameters, arguments, bytes, real)                                                    \
    EXPORTED result name parameters;                                                                                 \
    __attribute__((noinline, cold)) static result name##_looking parameters                                          \
    {                                                                                                                \
        before_allocation();                                                                                         \
        return real;                                                                                                 \
    }                                                                                                                \
    EXPORTED result name parameters                                                                                  \
    {                                                                                                                \
        if (__builtin_expect(is_due(bytes), false))                                                                  \
            return name##_looking arguments;                                                                         \
        return real;                                                                                                 \
    }
#define WRAP(result, name, parameters, arguments, bytes)                                                             \
    NEXT(result, name, parameters, arguments)                                                                        \
    WRAP_AS(result, name, parameters, arguments, bytes, CALL(name) arguments)

WRAP(void *, GC_malloc_kind, (size_t bytes, int kind), (bytes, kind), bytes)
/*
 * What libgc does in these is to call GC_malloc_kind (malloc.c) by its name, which is ours: each allocation would come
 * here twice. So this does what they do.
 */
WRAP_AS(void *, GC_malloc, (size_t bytes), (bytes), bytes, CALL(GC_malloc_kind)(bytes, KIND_NORMAL))
WRAP_AS(void *, GC_malloc_atomic, (size_t bytes), (bytes), bytes, CALL(GC_malloc_kind)(bytes, KIND_PTRFREE))
WRAP(void *, GC_malloc_uncollectable, (size_t bytes), (bytes), bytes)
WRAP(void *, GC_malloc_atomic_uncollectable, (size_t bytes), (bytes), bytes)
WRAP(void *, GC_malloc_ignore_off_page, (size_t bytes), (bytes), bytes)
WRAP(void *, GC_malloc_atomic_ignore_off_page, (size_t bytes), (bytes), bytes)
WRAP(void *, GC_malloc_stubborn, (size_t bytes), (bytes), bytes)
WRAP(void *, GC_malloc_many, (size_t bytes), (bytes), bytes)
WRAP(void *, GC_memalign, (size_t align, size_t bytes), (align, bytes), bytes)
WRAP(int, GC_posix_memalign, (void **place, size_t align, size_t bytes), (place, align, bytes), bytes)
WRAP(void *, GC_realloc, (void *object, size_t bytes), (object, bytes), bytes)
WRAP(void *, GC_generic_malloc, (size_t bytes, int kind), (bytes, kind), bytes)
WRAP(void *, GC_generic_malloc_ignore_off_page, (size_t bytes, int kind), (bytes, kind), bytes)
WRAP(void *, GC_malloc_explicitly_typed, (size_t bytes, size_t descriptor), (bytes, descriptor), bytes)
WRAP(void *, GC_calloc_explicitly_typed, (size_t count, size_t bytes, size_t descriptor), (count, bytes, descriptor),
     bytes)
WRAP(void *, GC_gcj_malloc, (size_t bytes, void *table), (bytes, table), bytes)

EXPORTED void GC_generic_malloc_many(size_t bytes, int kind, void **result);

/* As those above, but for what it returns. */
EXPORTED void GC_generic_malloc_many(size_t bytes, int kind, void **result)
{
    REAL(void, GC_generic_malloc_many, (size_t, int, void **));
    if (is_due(bytes))
        before_allocation();
    real(bytes, kind, result);
}

/* A collection that the program asks for is not given up. */
EXPORTED void GC_gcollect(void)
{
    REAL(void, GC_gcollect, (void));
    is_asked_for = true;
    real();
    is_asked_for = false;
}

EXPORTED void GC_init(void);

/* It is initialized as this needs it, whoever comes first. */
EXPORTED void GC_init(void)
{
    REAL(void, GC_init, (void));
    pthread_once(&once, start);
    real();
}

typedef size_t gc_bytes;
EXPORTED gc_bytes GC_get_heap_size(void);

/* As libgc says it of what it has discarded itself: that is not in the heap. */
EXPORTED gc_bytes GC_get_heap_size(void)
{
    REAL(gc_bytes, GC_get_heap_size, (void));
    gc_bytes whole = real(), discarded = atomic_load_explicit(&heap.discarded, memory_order_relaxed);

    return whole > discarded ? whole - discarded : 0;
}
