// SPDX-License-Identifier: Apache-2.0
// Host threads that run workgroups.
//
// The thread that runs a dispatch works on it itself; the pool's threads help whichever dispatch
// has workgroups left. So two kernels that wait for each other on two streams both make progress.
#include "pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_HELPERS = 1023, MAX_ACTIVE = 64 };

/** A dispatch that wants help. */
typedef struct job {
    sim_dispatch *dispatch;
    uint32_t helpers; // threads that work on it besides its own
} job;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    job *active[MAX_ACTIVE]; // further dispatches run without help
    sim_worker *workers;
    pthread_t threads[MAX_HELPERS];
    uint32_t num_threads, wanted;
    bool is_configured, stop;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

// ---- workers

/** Replaces a buffer that is too small; its contents are not kept. */
static bool grow(void *buffer, size_t *have, size_t want, size_t unit) {
    void **at = buffer;
    if (want <= *have)
        return true;
    free(*at);
    *at = aligned_alloc(64, (want * unit + 63) & ~(size_t)63);
    *have = *at ? want : 0;
    return *at;
}

bool sim_worker_reserve(sim_worker *worker, size_t num_waves, size_t lds_bytes,
                        size_t scratch_bytes, size_t shadow_bytes) {
    return grow(&worker->waves, &worker->num_waves, num_waves, sizeof *worker->waves) &&
           grow(&worker->lds, &worker->lds_bytes, lds_bytes + 64, 1) &&
           grow(&worker->scratch, &worker->scratch_bytes, scratch_bytes + 64, 1) &&
           grow(&worker->shadow, &worker->shadow_bytes, shadow_bytes, 1);
}

void sim_worker_deinit(sim_worker *worker) {
    free(worker->waves);
    free(worker->lds);
    free(worker->scratch);
    free(worker->shadow);
}

static void worker_free(sim_worker *worker) {
    sim_worker_deinit(worker);
    free(worker);
}

/** Takes a worker from the pool. The lock is held. */
static sim_worker *worker_take(void) {
    sim_worker *worker = pool.workers;
    while (worker && worker->is_busy)
        worker = worker->next;
    if (!worker && (worker = calloc(1, sizeof *worker))) {
        worker->next = pool.workers;
        pool.workers = worker;
    }
    if (worker)
        worker->is_busy = true;
    return worker;
}

static void worker_give(sim_worker *worker) {
    if (worker)
        worker->is_busy = false;
}

// ---- helpers

static bool has_work(const job *j) {
    return !atomic_load(&j->dispatch->stop) &&
           atomic_load(&j->dispatch->next_group) < sim_dispatch_groups(j->dispatch);
}

static job *find_job(void) {
    for (size_t i = 0; i < MAX_ACTIVE; i++)
        if (pool.active[i] && has_work(pool.active[i]))
            return pool.active[i];
    return nullptr;
}

static void *helper(void *unused) {
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    sim_worker *worker = worker_take();
    while (worker && !pool.stop) {
        job *j = find_job();
        if (!j) {
            pthread_cond_wait(&pool.changed, &pool.lock);
            continue;
        }
        j->helpers++;
        pthread_mutex_unlock(&pool.lock);
        sim_dispatch_work(j->dispatch, worker);
        pthread_mutex_lock(&pool.lock);
        j->helpers--;
        pthread_cond_broadcast(&pool.changed);
    }
    worker_give(worker);
    pthread_mutex_unlock(&pool.lock);
    return nullptr;
}

/** Starts the helpers that are missing. The lock is held. Fewer helpers than wanted are no
 *  error. */
static void start_helpers(void) {
    if (!pool.is_configured) {
        const long cores = sysconf(_SC_NPROCESSORS_ONLN);
        pool.wanted = cores > 1 ? (uint32_t)cores - 1 : 0;
        pool.is_configured = true;
    }
    while (pool.num_threads < pool.wanted && pool.num_threads < MAX_HELPERS &&
           pthread_create(&pool.threads[pool.num_threads], nullptr, helper, nullptr) == 0) {
        pool.num_threads++;
    }
}

/** Offers a job to the helpers. Returns the job's place, or -1 if there is none. The lock is
 *  held. */
static int offer(job *j) {
    if (sim_dispatch_groups(j->dispatch) < 2 || pool.stop)
        return -1;
    start_helpers();
    for (int i = 0; i < MAX_ACTIVE; i++) {
        if (!pool.active[i]) {
            pool.active[i] = j;
            pthread_cond_broadcast(&pool.changed);
            return i;
        }
    }
    return -1;
}

void sim_pool_run(sim_dispatch *dispatch) {
    job j = {.dispatch = dispatch};
    pthread_mutex_lock(&pool.lock);
    sim_worker *worker = worker_take();
    const int place = offer(&j);
    pthread_mutex_unlock(&pool.lock);
    if (worker)
        sim_dispatch_work(dispatch, worker);
    else
        sim_fault_stop(dispatch, SIM_FAULT_RESOURCES, "no host memory to run a workgroup in");
    pthread_mutex_lock(&pool.lock);
    if (place >= 0)
        pool.active[place] = nullptr;
    while (j.helpers)
        pthread_cond_wait(&pool.changed, &pool.lock);
    worker_give(worker);
    pthread_mutex_unlock(&pool.lock);
}

void sim_pool_configure(uint32_t threads) {
    sim_pool_shutdown();
    pthread_mutex_lock(&pool.lock);
    pool.is_configured = threads > 0;
    pool.wanted = threads > 0 ? threads - 1 : 0;
    pthread_mutex_unlock(&pool.lock);
}

void sim_pool_shutdown(void) {
    pthread_mutex_lock(&pool.lock);
    pool.stop = true;
    pthread_cond_broadcast(&pool.changed);
    pthread_mutex_unlock(&pool.lock);
    for (uint32_t i = 0; i < pool.num_threads; i++)
        pthread_join(pool.threads[i], nullptr);
    pthread_mutex_lock(&pool.lock);
    pool.num_threads = 0;
    pool.stop = false;
    for (sim_worker *worker = pool.workers, *next; worker; worker = next) {
        next = worker->next;
        worker_free(worker);
    }
    pool.workers = nullptr;
    pthread_mutex_unlock(&pool.lock);
}

void sim_pool_fork_prepare(void) {
    pthread_mutex_lock(&pool.lock);
}

void sim_pool_fork_parent(void) {
    pthread_mutex_unlock(&pool.lock);
}

void sim_pool_fork_child(void) {
    pthread_mutex_init(&pool.lock, nullptr);
    pthread_cond_init(&pool.changed, nullptr);
    memset(pool.active, 0, sizeof pool.active);
    for (sim_worker *worker = pool.workers; worker; worker = worker->next)
        worker->is_busy = false; // the thread that used it is not here
    pool.num_threads = 0;
    pool.stop = false;
}
