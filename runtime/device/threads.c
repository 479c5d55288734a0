// SPDX-License-Identifier: Apache-2.0
// The CPU device's threads: one pthreadpool, made on first use and made anew in a forked child.
#include "../runtime.h"

#include <pthread.h>
#include <pthreadpool.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

// pthreadpool orders what passes through it, but is not built for ThreadSanitizer, so the code
// below tells the sanitizer.
#if __has_feature(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
#define TELL_RELEASE(address) __tsan_release(address)
#define TELL_ACQUIRE(address) __tsan_acquire(address)
#else
#define TELL_RELEASE(address)
#define TELL_ACQUIRE(address)
#endif

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static _Atomic(pthreadpool_t) pool;
static atomic_int num_threads;      // of the pool or, before it exists, wanted; 0: not asked yet
static thread_local bool is_inside; // this thread is running a body: a nested call runs serially

static int count_processors(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int qni_num_threads(void) {
    int known = atomic_load_explicit(&num_threads, memory_order_relaxed);
    if (known == 0) {
        const int wanted = qni_env_get()->num_threads;
        known = wanted > 0 ? wanted : count_processors();
        int none = 0; // another thread may have made the pool meanwhile
        if (!atomic_compare_exchange_strong(&num_threads, &none, known))
            known = none;
    }
    return known;
}

/** Forgets the pool in a forked child, which lacks the parent's worker threads; the pool would wait
 *  for them for ever. The pool's memory is left behind, because freeing it would join those
 *  threads. */
static void forget_pool(void) {
    atomic_store(&pool, nullptr);
    atomic_store(&num_threads, 0);
    pool_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    is_inside = false;
}

static void watch_forks(void) {
    pthread_atfork(nullptr, nullptr, forget_pool);
}

static void *pass(void *gate) {
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return nullptr;
}

/** Returns how many of the wanted threads can exist beside this one at one time. It makes them, and
 *  they have ended on return. */
static int count_possible(int wanted) {
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *threads = calloc((size_t)wanted, sizeof *threads);
    int made = 0;
    if (!threads)
        return 0;
    pthread_mutex_lock(&gate);
    while (made < wanted && pthread_create(&threads[made], nullptr, pass, &gate) == 0)
        made++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < made; i++)
        pthread_join(threads[i], nullptr);
    free(threads);
    return made;
}

// pthreadpool assumes that threads can be made, and waits for ever for one that was not made. So as
// many threads are tried before, and a thread of its own makes the pool; it is given up if somebody
// else took the last threads meanwhile.

enum { POOL_TIMEOUT_S = 5 };

typedef struct attempt {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t maker;
    size_t threads;
    pthreadpool_t made; // null if memory is lacking
    bool is_done, is_given_up;
} attempt;

static void attempt_free(attempt *a) {
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/** Makes the pool. If it was given up meanwhile, the late thread frees everything. */
static void *attempt_run(void *argument) {
    attempt *a = argument;
    pthreadpool_t made = pthreadpool_create(a->threads);
    pthread_mutex_lock(&a->lock);
    a->made = made;
    a->is_done = true;
    const bool is_late = a->is_given_up;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (is_late) {
        pthreadpool_destroy(made);
        attempt_free(a);
    }
    return nullptr;
}

static attempt *attempt_begin(int threads) {
    pthread_condattr_t clock;
    attempt *a = calloc(1, sizeof *a);
    if (!a)
        return nullptr;
    a->threads = (size_t)threads;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&a->lock, nullptr);
    pthread_cond_init(&a->changed, &clock);
    pthread_condattr_destroy(&clock);
    if (pthread_create(&a->maker, nullptr, attempt_run, a) == 0)
        return a;
    attempt_free(a);
    return nullptr;
}

/** Waits for the pool. Returns false if it was given up; those of its threads that were made then
 *  sleep until the process ends. */
static bool attempt_end(attempt *a, pthreadpool_t *out) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += POOL_TIMEOUT_S;
    pthread_mutex_lock(&a->lock);
    while (!a->is_done && pthread_cond_timedwait(&a->changed, &a->lock, &until) == 0)
        ;
    const bool is_done = a->is_done;
    *out = a->made;
    a->is_given_up = !is_done;
    pthread_t maker = a->maker;
    pthread_mutex_unlock(&a->lock);
    if (!is_done) {
        pthread_detach(maker);
        return false;
    }
    pthread_join(maker, nullptr);
    attempt_free(a);
    return true;
}

/** Makes a pool of as many threads as can be had. If they are fewer than wanted, it leaves half of
 *  them to others who share the limit. Returns null if memory is lacking. */
static pthreadpool_t make_pool(void) {
    const int wanted = qni_num_threads();
    const int possible =
        count_possible(wanted); // beside the caller: the pool's other threads, and the thread that
                                // makes the pool
    int threads = possible < wanted ? 1 + possible / 2 : wanted;
    pthreadpool_t made = nullptr;
    for (attempt *a; threads > 1; threads /= 2)
        if ((a = attempt_begin(threads)) && attempt_end(a, &made))
            break;
    if (threads == 1)
        made = pthreadpool_create(1); // the caller alone; no other thread is made
    if (made)
        atomic_store(&num_threads, threads);
    if (threads < wanted)
        qni_log(QNI_LOG_KERNEL,
                "cpu: %d threads in place of %d: a limit of the system (ulimit -u, -v) "
                "allows no more",
                threads, wanted);
    return made;
}

/** Returns the pool; null if memory for it is lacking, which pthreadpool takes as "run on the
 *  caller". */
static pthreadpool_t get_pool(void) {
    pthreadpool_t found = atomic_load_explicit(&pool, memory_order_acquire);
    if (found)
        return found;
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&pool_lock);
    found = atomic_load(&pool);
    if (!found) {
        found = make_pool();
        atomic_store_explicit(&pool, found, memory_order_release);
    }
    pthread_mutex_unlock(&pool_lock);
    return found;
}

typedef struct task {
    void (*body)(void *context, int64_t i);
    void *context;
} task;

static void run_item(void *argument, size_t i) {
    const task *t = argument;
    TELL_ACQUIRE(argument);
    is_inside = true;
    t->body(t->context, (int64_t)i);
    is_inside = false;
    TELL_RELEASE(argument);
}

void qni_parallel(int64_t count, void (*body)(void *context, int64_t i), void *context) {
    if (count <= 1 || is_inside || qni_num_threads() == 1) {
        for (int64_t i = 0; i < count; i++)
            body(context, i);
        return;
    }
    task t = {body, context};
    TELL_RELEASE(&t);
    // Workers spin about 20 ms after a call unless told to yield.
    pthreadpool_parallelize_1d(get_pool(), run_item, &t, (size_t)count,
                               PTHREADPOOL_FLAG_YIELD_WORKERS);
    TELL_ACQUIRE(&t);
}

typedef struct runs {
    void (*body)(void *context, int64_t first, int64_t end, void *scratch);
    void *context;
    int64_t count, per_run, scratch_bytes;
    atomic_bool lacks_memory;
} runs;

static void call_run(void *context, int64_t i) {
    runs *r = context;
    const int64_t first = i * r->per_run, left = r->count - first;
    void *scratch = r->scratch_bytes ? aligned_alloc(64, (size_t)r->scratch_bytes) : nullptr;
    if (r->scratch_bytes && !scratch)
        r->lacks_memory = true;
    else
        r->body(r->context, first, first + (left < r->per_run ? left : r->per_run), scratch);
    free(scratch);
}

bool qni_parallel_runs(int64_t count, int64_t per_run, int64_t scratch_bytes,
                       void (*body)(void *context, int64_t first, int64_t end, void *scratch),
                       void *context) {
    runs r = {body, context, count, per_run, (scratch_bytes + 63) / 64 * 64, false};
    qni_parallel((count + per_run - 1) / per_run, call_run, &r);
    return !r.lacks_memory;
}
