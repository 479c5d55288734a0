// SPDX-License-Identifier: Apache-2.0
// FlashInfer's grids of attention and merging on the CPU and on every simulated GPU of the build:
// each kernel that takes a case must be within its computed bound and within FlashInfer's
// tolerance, and give equal bits twice.
//
// The full product of a line's axes (attention_grid.h) has millions of cases, so each line runs a
// covering sample (../shared/covering.h): any two values of two axes meet in some case. The CPU
// takes FlashInfer's sizes, simulated GPUs smaller ones with the same remainders.
//
//   attention_grid_test [--all] [--target cpu|gfx942|…]
//   --all: FlashInfer's sizes on simulated GPUs too
#include "../../runtime/sanitized.h"
#include "../../runtime/testing.h"
#include "attention_grid.h"

#include <err.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

// ---- results

enum { MAX_KERNELS = 64 };

/** What a child process counts, in memory shared with its parent. */
typedef struct tally {
    int cases[LINES + 1];                      // the last one counts merges
    int ran[MAX_KERNELS], chosen[MAX_KERNELS]; // see find_kernel
    int failed;
    bool is_absent, has_crashed;
    double bound, tolerance; // the largest quotients of error and bound, and of error and tolerance
    double seconds;          // of processor time
} tally;

/** A child's work: every SHARDS-th case of a target. */
typedef struct job {
    const char *spec;
    const sizes *sizes;
    int shard;
    pid_t pid;
    tally *tally;
} job;
enum { SHARDS = 3, WALKED = QNI_IS_SANITIZED ? 1 : SHARDS };
static const job *current; // a child's

/** Returns whether only the kernel that a call would use runs on a case. All other kernels run on
 *  every fourth case of a child. */
static bool is_choice_alone(int index) {
    return index / SHARDS % 4 != 0;
}

static const qni_op *const ops[] = {&qni_op_attention, &qni_op_merge_states};

/** Returns the name of the kernel at a place in a tally; null past the last. */
static const char *kernel_name(int i) {
    for (int op = 0; op < 2; i -= ops[op++]->num_variants)
        if (i < ops[op]->num_variants)
            return ops[op]->variants[i].name;
    return nullptr;
}
static int find_kernel(const char *name) {
    int i = 0;
    while (strcmp(kernel_name(i), name) != 0)
        i++;
    assert(i < MAX_KERNELS);
    return i;
}

static void report(void *, const qn_check_result *r) {
    tally *t = current->tally;
    if (r->reason)
        return;
    t->ran[find_kernel(r->kernel)]++;
    t->chosen[find_kernel(r->kernel)] += r->is_choice;
    if (!r->passed && t->failed++ < 3)
        fprintf(stderr, "%s: %s, %s: %s (error %.3g of what is allowed)\n", current->spec,
                r->kernel, r->problem, r->detail, r->error);
}

/** A case's areas, the results among them, and FlashInfer's tolerance, which is both relative and
 *  absolute. */
typedef struct held {
    qni_areas areas; // first: qni_areas_reset takes it for its context
    qni_area *results[2];
    double tolerances[2];
} held;

static double find_excess(const qni_area *a, double tolerance, char *detail, size_t room) {
    double worst = 0;
    for (int64_t i = 0; i < a->count; i++) {
        const double got = qni_get(a->dtype, a->got + a->first, i), want = a->want[i];
        if (a->tolerance[i] < 0 || isinf(want))
            continue;
        const double e = fabs(got - want) / (tolerance + tolerance * fabs(want));
        if (!(e <= worst)) {
            worst = e;
            snprintf(detail, room, "%s[%ld] is %.9g, must be %.9g within rtol = atol = %g", a->name,
                     (long)i, got, want, tolerance);
        }
    }
    return worst;
}

static qn_status compare(void *context, qn_stream *stream, double *error, char *detail,
                         size_t room) {
    const held *h = context;
    tally *t = current->tally;
    const qn_status st = qni_areas_compare(context, stream, error, detail, room);
    if (st != QN_OK || !(*error <= 1))
        return st;
    t->bound = fmax(t->bound, *error);
    for (int i = 0; i < 2; i++) {
        const double e =
            h->results[i]->owner ? find_excess(h->results[i], h->tolerances[i], detail, room) : 0;
        t->tolerance = fmax(t->tolerance, e);
        *error = !(e <= *error) ? e : *error;
        if (!(*error <= 1))
            break;
    }
    return st;
}

// ---- walks

static qn_status run_case(qni_trial_run *run, const place *p, const int *v, int index) {
    const qni_attention_spec spec = make_spec(p, v);
    qni_attention_case *c = calloc(1, sizeof *c);
    qn_status st;
    if (!c)
        return QN_FAIL(QN_E_MEMORY, "out of memory");
    held h = {{c->areas, QNI_CASE_AREAS},
              {&c->areas[QNI_CASE_O], &c->areas[QNI_CASE_LSE]},
              {v[TYPES] == 0 ? 1e-3 : 1e-2, 1e-3}};
    QN_TRY_OUT(qni_attention_case_create(c, qni_trial_stream(run), &spec, (uint64_t)index + 1));
    QN_TRY_OUT(qni_trial_problem_run(
        run, &(qni_trial_problem){.op = &qni_op_attention,
                                  .text = c->text,
                                  .problem = &c->problem,
                                  .context = &h,
                                  .reset = qni_areas_reset,
                                  .compare = compare,
                                  .outputs = c->outputs,
                                  .num_outputs = 1 + spec.has_lse,
                                  .call = qni_attention_call(&c->problem),
                                  .is_choice_alone =
                                      is_choice_alone(index) || cost(p, v) > p->sizes->most}));
out:
    if (st != QN_OK)
        fprintf(stderr, "%s: %s: %s\n", current->spec, c->text, qn_last_error());
    qni_attention_case_destroy(c);
    free(c);
    return st;
}

static qn_status walk_line(qni_trial_run *run, const line *l) {
    const qn_device *device = qn_stream_device(qni_trial_stream(run));
    const place p = {l, current->sizes, qni_usual_e4m3(device) == QNI_E4M3FNUZ};
    const qni_axes axes = axes_of(&p);
    qni_covering *covering = calloc(1, sizeof *covering);
    int v[AXES];
    qn_status st = covering ? QN_OK : QN_FAIL(QN_E_MEMORY, "out of memory");
    for (int i = 0; st == QN_OK && qni_covering_next(covering, &axes, v); i++)
        if (i % SHARDS == current->shard) {
            current->tally->cases[l - lines]++;
            st = run_case(run, &p, v, i);
        }
    free(covering);
    return st;
}

// ---- merging: merge_states of several numbers of states; merge_state, also in place

enum { MERGE_N, MERGE_FORM, MERGE_HEADS, MERGE_DIM, MERGE_DTYPE, MERGE_BASE, MERGE_AXES };
static const int merge_states[] = {2, 1, 3, 7};
enum { MERGE_PAIR = sizeof merge_states / sizeof *merge_states, MERGE_IN_PLACE, MERGE_FORMS };

static bool may_meet(int, int, int, int) {
    return true;
}
static double no_cost(const void *, const int *) {
    return 0;
}

static qn_status run_merge(qni_trial_run *run, const int *v, int index) {
    const qni_merge_spec spec = {.dtype = (qni_dtype)v[MERGE_DTYPE],
                                 .n = current->sizes->batch[v[MERGE_N]],
                                 .states =
                                     v[MERGE_FORM] < MERGE_PAIR ? merge_states[v[MERGE_FORM]] : 2,
                                 .heads = current->sizes->heads[v[MERGE_HEADS]][0],
                                 .dim = dims[v[MERGE_DIM]][0],
                                 .is_pair = v[MERGE_FORM] >= MERGE_PAIR,
                                 .is_in_place = v[MERGE_FORM] == MERGE_IN_PLACE,
                                 .is_natural = v[MERGE_BASE]};
    qni_merge_case *c = calloc(1, sizeof *c);
    qn_status st;
    if (!c)
        return QN_FAIL(QN_E_MEMORY, "out of memory");
    QN_TRY_OUT(qni_merge_case_create(c, qni_trial_stream(run), &spec, (uint64_t)index + 1));
    held h = {{c->areas, QNI_MERGE_AREAS},
              {c->out_v, c->out_s},
              {spec.dtype == QNI_BF16 ? 1e-2 : 1e-3, 1e-3}};
    QN_TRY_OUT(qni_trial_problem_run(run, &(qni_trial_problem){.op = &qni_op_merge_states,
                                                               .text = c->text,
                                                               .problem = &c->problem,
                                                               .context = &h,
                                                               .reset = qni_areas_reset,
                                                               .compare = compare,
                                                               .outputs = c->outputs,
                                                               .num_outputs = 2}));
out:
    qni_merge_case_destroy(c);
    free(c);
    return st;
}

static qn_status walk_merges(qni_trial_run *run) {
    static const qni_axes axes = {.count = MERGE_AXES,
                                  .sizes = {4, MERGE_FORMS, 3, 9, 3, 2},
                                  .can_meet = may_meet,
                                  .cost = no_cost};
    qni_covering *covering = calloc(1, sizeof *covering);
    int v[MERGE_AXES];
    qn_status st = covering ? QN_OK : QN_FAIL(QN_E_MEMORY, "out of memory");
    for (int i = 0; st == QN_OK && qni_covering_next(covering, &axes, v); i++)
        if (i % SHARDS == current->shard) {
            current->tally->cases[LINES]++;
            st = run_merge(run, v, i);
        }
    free(covering);
    return st;
}

static qn_status walk(qni_trial_run *run, const qni_op *op) {
    qn_status st = QN_OK;
    if (op == &qni_op_merge_states)
        return walk_merges(run);
    for (int i = 0; st == QN_OK && i < LINES; i++)
        st = walk_line(run, &lines[i]);
    return st;
}

// ---- children

/** Returns whether the build has a target's images; make TARGETS=… may have left them out. */
static bool has_images(const qn_device *device) {
    for (const qni_image *built = qni_images; device->target && built->id; built++)
        if (strcmp(built->target, device->target->name) == 0)
            return true;
    return !device->target;
}

static void run_job(job *j) {
    // The simulator's checks double the time, so only one child of each target has them on.
    setenv("QUERN_SIM", j->shard == 0 ? "check=all;threads=1" : "check=none;threads=1", 0);
    static const qni_op *const list[] = {&qni_op_attention, &qni_op_merge_states, nullptr};
    static const qni_family grid = {"grid", list, walk};
    const qn_check_options options = {.struct_size = sizeof options};
    qn_device *device = nullptr;
    current = j;
    j->tally->is_absent = qn_device_open(&device, j->spec) != QN_OK || !has_images(device);
    if (!j->tally->is_absent) {
        const qn_status st = qni_trial_families((const qni_family *const[]){&grid, nullptr}, device,
                                                nullptr, &options, report, nullptr);
        j->tally->failed += st != QN_OK && st != QN_E_MISMATCH;
    }
    qn_device_close(device);
    j->tally->seconds = (double)clock() / CLOCKS_PER_SEC;
}

static void start(job *j) {
    fflush(nullptr);
    j->pid = fork();
    if (j->pid != 0)
        return;
    run_job(j);
    fflush(nullptr);
    _exit(0);
}

/** Waits until any child ends. */
static void reap(job *jobs, int count) {
    int status;
    const pid_t pid = wait(&status);
    for (int i = 0; i < count; i++)
        if (jobs[i].pid == pid)
            jobs[i].tally->has_crashed = status != 0;
}

/** Runs the jobs, as many at a time as there are processors. */
static void run_jobs(job *jobs, int count) {
    cpu_set_t set;
    const int room = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    for (int i = 0; i < count; i++) {
        if (i >= room)
            reap(jobs, count);
        start(&jobs[i]);
    }
    for (int i = 0; i < room && i < count; i++)
        reap(jobs, count);
}

// ---- the parent

static const char *const specs[] = {
    "cpu",         "sim:gfx90a",  "sim:gfx942",        "sim:gfx950",
    "sim:gfx1151", "sim:gfx1201", "sim:gfx11-generic", "sim:gfx12-generic"};
enum { TARGETS = sizeof specs / sizeof *specs };

static tally sum_up(const tally *shards) {
    tally t = {};
    for (int s = 0; s < WALKED; s++) {
        const tally *from = &shards[s];
        for (int i = 0; i <= LINES; i++)
            t.cases[i] += from->cases[i];
        for (int i = 0; i < MAX_KERNELS; i++)
            t.ran[i] += from->ran[i], t.chosen[i] += from->chosen[i];
        t.failed += from->failed;
        t.is_absent |= from->is_absent, t.has_crashed |= from->has_crashed;
        t.bound = fmax(t.bound, from->bound), t.tolerance = fmax(t.tolerance, from->tolerance);
        t.seconds += from->seconds;
    }
    return t;
}

static void print_tally(const char *spec, const tally *t) {
    print_message("%s: %.1f s of processors; cases:", spec, t->seconds);
    for (int i = 0; i <= LINES; i++)
        print_message(" %s %d%s", i < LINES ? lines[i].name : "merges", t->cases[i],
                      i < LINES ? ";" : "\n");
    for (int i = 0; kernel_name(i); i++)
        if (t->ran[i])
            print_message("  %s ran %d, was the choice for %d\n", kernel_name(i), t->ran[i],
                          t->chosen[i]);
    print_message("  worst error: %.3f of the bound, %.3f of FlashInfer's tolerance\n", t->bound,
                  t->tolerance);
}

/** Returns how many cases ran by a kernel whose name begins with `name`. */
static int count_chosen(const tally *t, const char *name) {
    int count = 0;
    for (int i = 0; kernel_name(i); i++)
        count += strncmp(kernel_name(i), name, strlen(name)) == 0 ? t->chosen[i] : 0;
    return count;
}

static void test_target(void **state) {
    const job *first = *state;
    const tally t = sum_up(first->tally);
    assert_false(t.has_crashed);
    if (t.is_absent) // built without the simulator, or for other targets
        skip();
    print_tally(first->spec, &t);
    assert_int_equal(t.failed, 0);
    for (int i = 0; i <= LINES; i++)
        assert_true(t.cases[i] > 0);
    const bool is_gpu = strcmp(first->spec, "cpu") != 0;
    assert_int_equal(count_chosen(&t, "attention.gpu_tile_") > 0, is_gpu);
    assert_int_equal(count_chosen(&t, "attention.gpu_decode_") > 0, is_gpu);
}

/** Returns whether one of the cases has the two values. */
static bool have_pair(int cases, int (*values)[AXES], int i, int a, int j, int b) {
    for (int n = 0; n < cases; n++)
        if (values[n][i] == a && values[n][j] == b)
            return true;
    return false;
}

static void try_coverage(const place *p) {
    enum { MOST = 500 };
    static int values[MOST][AXES];
    static qni_covering covering;
    const qni_axes axes = axes_of(p);
    int cases = 0;
    covering = (qni_covering){};
    while (qni_covering_next(&covering, &axes, values[cases]))
        assert_true(++cases < MOST);
    for (int i = 0; i < AXES; i++)
        for (int j = 0; j < i; j++)
            for (int a = 0; a < axes.sizes[i]; a++)
                for (int b = 0; b < axes.sizes[j]; b++)
                    assert_int_equal(have_pair(cases, values, i, a, j, b), can_meet(i, a, j, b));
}

static void test_coverage(void **) {
    for (int i = 0; i < LINES; i++) {
        try_coverage(&(place){&lines[i], &upstream, false});
        try_coverage(&(place){&lines[i], &reduced, true});
    }
}

typedef struct options {
    bool is_all;
    const char *target; // null: all
} options;

static options read_options(int argc, char **argv) {
    options o = {};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--all") == 0)
            o.is_all = true;
        else if (strcmp(argv[i], "--target") == 0 && i + 1 < argc)
            o.target = argv[++i];
        else
            errx(2, "usage: attention_grid_test [--all] [--target cpu|gfx942|...]");
    return o;
}

static int make_jobs(job *jobs, tally *tallies, const options *o) {
    int count = 0;
    for (int i = 0; i < TARGETS; i++) {
        const bool is_cpu = strcmp(specs[i], "cpu") == 0;
        if (o->target && strcmp(o->target, is_cpu ? specs[i] : specs[i] + strlen("sim:")) != 0)
            continue;
        for (int s = 0; s < WALKED; s++, count++)
            jobs[count] = (job){.spec = specs[i],
                                .sizes = is_cpu || o->is_all ? &upstream : &reduced,
                                .shard = s,
                                .tally = &tallies[count]};
    }
    return count;
}

int main(int argc, char **argv) {
    const options o = read_options(argc, argv);
    struct CMUnitTest tests[TARGETS + 1] = {cmocka_unit_test(test_coverage)};
    tally *tallies = mmap(nullptr, sizeof(tally[TARGETS * SHARDS]), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    job jobs[TARGETS * SHARDS];
    if (tallies == MAP_FAILED)
        err(1, "mmap");
    setenv("QUERN_NO_JIT", "1", 1); // only images that ship are tested
    setenv("QUERN_NUM_THREADS", "1", 0);
    const int count = make_jobs(jobs, tallies, &o);
    run_jobs(jobs, count);
    for (int i = 0; i < count / WALKED; i++)
        tests[1 + i] = (struct CMUnitTest){.name = jobs[i * WALKED].spec,
                                           .test_func = test_target,
                                           .initial_state = &jobs[i * WALKED]};
    return _cmocka_run_group_tests("grid", tests, (size_t)(1 + count / WALKED), nullptr, nullptr);
}
