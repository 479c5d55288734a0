// SPDX-License-Identifier: Apache-2.0
// The check harness: runs every kernel of an op on every problem of its family, and compares it
// with the op's definition.
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct qni_trial_run {
    qn_device *device;
    qn_stream *stream;
    qn_check_options options;
    qn_check_fn report;
    void *context;
    bool has_failed;
};

qn_stream *qni_trial_stream(const qni_trial_run *run) {
    return run->stream;
}

uint64_t qni_trial_seed(const qni_trial_run *run) {
    return run->options.seed;
}

bool qni_trial_is_quick(const qni_trial_run *run) {
    return run->options.quick != 0;
}

/** Returns the bytes from a tensor's first element to the end of its last, gaps between rows
 *  included. */
static int64_t extent_bytes(const DLTensor *t) {
    if (qni_is_empty(t))
        return 0;
    int64_t last = 0;
    for (int i = 0; i < t->ndim; i++)
        last += (t->shape[i] - 1) * qni_stride(t, i);
    return (last + 1) * t->dtype.bits * t->dtype.lanes / 8;
}

static qn_status hash_bytes(qn_stream *stream, const void *data, int64_t bytes, uint64_t *hash) {
    if (bytes == 0)
        return QN_OK;
    void *host = malloc((size_t)bytes);
    if (!host)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory for %ld bytes", (long)bytes);
    const qn_status st = stream->device->backend->copy(stream, host, data, bytes, QNI_COPY_TO_HOST);
    if (st == QN_OK)
        *hash = XXH3_64bits_withSeed(host, (size_t)bytes, *hash);
    free(host);
    return st;
}

/** Hashes the content of one output; of a matrix of bytes whose rows lie far apart, the rows
 *  alone. */
static qn_status hash_tensor(qn_stream *stream, const DLTensor *t, uint64_t *hash) {
    constexpr int64_t far = 1 << 20;
    if (t->ndim != 2 || t->dtype.bits != 8 || qni_stride(t, 0) - t->shape[1] < far)
        return hash_bytes(stream, qni_data(t), extent_bytes(t), hash);
    qn_status st = QN_OK;
    for (int64_t r = 0; st == QN_OK && r < t->shape[0]; r++)
        st =
            hash_bytes(stream, (const char *)qni_data(t) + r * qni_stride(t, 0), t->shape[1], hash);
    return st;
}

/** Starts a kernel or, if that is null, the problem's plain call. */
static qn_status start(qni_trial_run *run, const qni_trial_problem *problem,
                       const qni_variant *variant) {
    return variant ? qni_run_variant(variant, run->stream, problem->problem)
                   : problem->call(run->stream, problem->problem);
}

/** Runs once after a reset; *hash becomes the hash of the outputs' bits. */
static qn_status run_once(qni_trial_run *run, const qni_trial_problem *problem,
                          const qni_variant *variant, uint64_t *hash) {
    *hash = 0;
    QN_TRY(problem->reset(problem->context, run->stream));
    QN_TRY(start(run, problem, variant));
    QN_TRY(qn_stream_sync(run->stream));
    for (int i = 0; i < problem->num_outputs; i++)
        QN_TRY(hash_tensor(run->stream, problem->outputs[i], hash));
    return QN_OK;
}

/** The first kernel that ran a problem, of those that must give equal bits. */
typedef struct first_kernel {
    const char *name; // null: none yet
    uint64_t hash;
} first_kernel;
enum { MAX_BITS = 4 }; // above qni_config.bits

/** Returns whether the kernel agrees with the first one of its qni_config.bits, or is the
 *  first. */
static bool agrees(const qni_variant *variant, uint64_t hash, first_kernel firsts[MAX_BITS],
                   char *detail, size_t room) {
    if (variant->config.bits >= MAX_BITS) {
        snprintf(detail, room, "config.bits is %u; accepted: 0 to %d", variant->config.bits,
                 MAX_BITS - 1);
        return false;
    }
    first_kernel *first = &firsts[variant->config.bits];
    if (variant->config.bits && !first->name)
        *first = (first_kernel){variant->name, hash};
    if (!variant->config.bits || first->hash == hash)
        return true;
    snprintf(detail, room, "other bits than those of %s, which are to be the same", first->name);
    return false;
}

/** Runs twice and compares both results with the reference, their bits with each other, and with
 *  the bits of other kernels that must agree. If something is wrong, *passed becomes false, and
 *  `detail` says what. Not QN_OK: there was too little memory to tell. */
static qn_status run_and_compare(qni_trial_run *run, const qni_trial_problem *problem,
                                 const qni_variant *variant, first_kernel firsts[MAX_BITS],
                                 qn_check_result *result, char *detail, size_t room) {
    uint64_t hashes[2];
    result->error = NAN;
    for (int i = 0; i < 2; i++) {
        double this_error = NAN;
        qn_status st = run_once(run, problem, variant, &hashes[i]);
        if (st == QN_OK)
            st = problem->compare(problem->context, run->stream, &this_error, detail, room);
        if (st == QN_E_MEMORY)
            return st;
        if (st != QN_OK) {
            snprintf(detail, room, "%s: %s", qn_status_name(st), qn_last_error());
            return QN_OK;
        }
        result->error = i == 0 || !(this_error <= result->error) ? this_error : result->error;
        if (!(this_error <= 1))
            return QN_OK;
    }
    result->passed = hashes[0] == hashes[1];
    if (!result->passed)
        snprintf(detail, room, "two runs on the same input differ in their bits");
    else if (variant)
        result->passed = agrees(variant, hashes[0], firsts, detail, room);
    return QN_OK;
}

/** Times one run between two events. */
static qn_status time_once(qni_trial_run *run, const qni_trial_problem *problem,
                           const qni_variant *variant, qn_event *events[2], int64_t *ns) {
    QN_TRY(qn_event_record(events[0], run->stream));
    QN_TRY(start(run, problem, variant));
    QN_TRY(qn_event_record(events[1], run->stream));
    QN_TRY(qn_event_sync(events[1]));
    return qn_event_elapsed(ns, events[0], events[1]);
}

/** *best becomes the fastest of the timed runs; -1 if the device has no clock or nobody asked for
 *  times. */
static qn_status time_variant(qni_trial_run *run, const qni_trial_problem *problem,
                              const qni_variant *variant, int64_t *best) {
    qn_event *events[2] = {nullptr, nullptr};
    qn_status st = QN_OK;
    *best = -1;
    if (run->options.timed_runs <= 0 || !run->device->info.has_clock)
        return QN_OK;
    QN_TRY_OUT(qn_event_create(&events[0], run->device));
    QN_TRY_OUT(qn_event_create(&events[1], run->device));
    for (int i = 0; i < run->options.timed_runs; i++) {
        int64_t ns;
        QN_TRY_OUT(time_once(run, problem, variant, events, &ns));
        if (*best < 0 || ns < *best)
            *best = ns;
    }
out:
    qn_event_destroy(events[0]);
    qn_event_destroy(events[1]);
    return st;
}

static void report(qni_trial_run *run, const qn_check_result *result) {
    if (run->report)
        run->report(run->context, result);
}

/** Returns what the simulated GPU says of the kernels that a variant launched; null if it says
 *  nothing. */
static const char *find_evidence(qni_trial_run *run, char *text, size_t room) {
    static const struct {
        char letter;
        const char *name;
    } kinds[] = {{'m', "measured"}, {'i', "ISA text"}, {'l', "LLVM"}, {'?', "inferred"}};
    char names[512] = "";
    const char known =
        run->options.evidence ? qni_kernels_evidence(run->device, names, sizeof names) : 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (known == kinds[i].letter) {
            snprintf(text, room, "%s: %s", kinds[i].name, names);
            return text;
        }
    return nullptr;
}

static qn_status try_variant(qni_trial_run *run, const qni_trial_problem *problem,
                             const qni_variant *variant, bool is_choice,
                             first_kernel firsts[MAX_BITS]) {
    qni_reason why = {""};
    char detail[512] = "", evidence[600];
    qni_kernels_evidence(run->device, nullptr, 0);
    qn_check_result result = {.op = problem->op->name,
                              .kernel = variant ? variant->name : "",
                              .problem = problem->text,
                              .detail = detail,
                              .time_ns = -1,
                              .is_choice = is_choice};
    qn_status st = QN_OK;
    if (variant && !qni_variant_fits(variant, run->device, problem->problem, &why)) {
        result.reason = why.text;
    } else {
        st = run_and_compare(run, problem, variant, firsts, &result, detail, sizeof detail);
        result.kernel = variant ? variant->name : qn_last_kernel();
        run->has_failed |= st == QN_OK && !result.passed;
    }
    if (result.passed) {
        *detail = 0; // a result within tolerance needs no detail
        st = time_variant(run, problem, variant, &result.time_ns);
    }
    if (!result.reason)
        result.evidence = find_evidence(run, evidence, sizeof evidence);
    if (st == QN_OK)
        report(run, &result);
    return st;
}

void qni_trial_problem_leave_out(qni_trial_run *run, const qni_op *op, const char *text,
                                 const char *why) {
    for (int i = 0; i < op->num_variants; i++)
        report(run, &(qn_check_result){.op = op->name,
                                       .kernel = op->variants[i].name,
                                       .problem = text,
                                       .detail = "",
                                       .time_ns = -1,
                                       .reason = why});
}

qn_status qni_trial_problem_run(qni_trial_run *run, const qni_trial_problem *problem) {
    const qni_op *op = problem->op;
    const qni_variant *choice = nullptr;
    first_kernel firsts[MAX_BITS] = {};
    qn_status st = qni_choose(op, run->device, problem->problem, &choice);
    if (st != QN_OK && st != QN_E_UNSUPPORTED)
        return st;
    const bool is_one_kernel = !problem->call;
    for (int i = 0; i < op->num_variants; i++) {
        const qni_variant *variant = &op->variants[i];
        const bool is_choice = is_one_kernel && variant == choice;
        if (!problem->is_choice_alone || is_choice)
            QN_TRY(try_variant(run, problem, variant, is_choice, firsts));
    }
    return choice && problem->call ? try_variant(run, problem, nullptr, true, firsts) : QN_OK;
}

qn_status qni_trial_batches_add(qni_trial_batches *batches, const qni_trial_problem *problem) {
    const qni_variant *choice = nullptr;
    uint64_t hash = 0;
    int64_t time_ns;
    char detail[512] = "";
    qn_status st = QN_OK;
    st = qni_choose(batches->op, batches->run->device, problem->problem, &choice);
    if (st == QN_E_UNSUPPORTED) {
        qni_trial_problem_leave_out(batches->run, batches->op, problem->text, qn_last_error());
        return QN_OK;
    }
    if (st != QN_OK)
        return st;
    if (problem->call)
        choice = nullptr;
    QN_TRY(run_once(batches->run, problem, choice, &hash));
    if (batches->count++ == 0) {
        batches->first_hash = hash;
        snprintf(batches->first, sizeof batches->first, "%s by %s", problem->text,
                 qn_last_kernel());
        return st;
    }
    const bool is_same = hash == batches->first_hash;
    QN_TRY(time_variant(batches->run, problem, choice, &time_ns));
    if (!is_same)
        snprintf(detail, sizeof detail, "rows in common have not the bits that they have in %s",
                 batches->first);
    batches->run->has_failed |= !is_same;
    report(batches->run, &(qn_check_result){.op = batches->op->name,
                                            .kernel = qn_last_kernel(),
                                            .problem = problem->text,
                                            .detail = detail,
                                            .error = is_same ? 0 : INFINITY,
                                            .time_ns = time_ns,
                                            .passed = is_same,
                                            .is_choice = true});
    return st;
}

static qn_status try_family(qni_trial_run *run, const qni_family *family, const char *op,
                            bool *has_found) {
    for (int i = 0; family->ops[i]; i++) {
        if (op && strcmp(op, family->ops[i]->name) != 0)
            continue;
        *has_found = true;
        const qn_status st = family->try(run, family->ops[i]);
        if (st != QN_OK)
            return st;
    }
    return QN_OK;
}

static qn_status read_options(qn_check_options *out, const qn_check_options *given) {
    *out = (qn_check_options){.struct_size = sizeof *out};
    if (!given)
        return QN_OK;
    const qn_status st = QNI_CHECK_STRUCT_FROM("check", "options", qn_check_options, given, seed);
    if (st != QN_OK)
        return st;
    memcpy(out, given, given->struct_size < sizeof *out ? given->struct_size : sizeof *out);
    if (out->timed_runs < 0)
        return QN_FAIL(QN_E_INVALID, "check: options.timed_runs is %d; it must be at least 0",
                       out->timed_runs);
    return QN_OK;
}

qn_status qni_trial_families(const qni_family *const *families, qn_device *device, const char *op,
                             const qn_check_options *options, qn_check_fn report_fn,
                             void *context) {
    if (!device)
        return QN_FAIL(QN_E_INVALID, "check: device is null");
    qni_trial_run run = {.device = device, .report = report_fn, .context = context};
    bool has_found = false;
    qn_status st;
    QN_TRY_OUT(read_options(&run.options, options));
    QN_TRY_OUT(qn_stream_create(&run.stream, device));
    for (; *families; families++)
        QN_TRY_OUT(try_family(&run, *families, op, &has_found));
    if (op && !has_found)
        st = QN_FAIL(QN_E_NOT_FOUND, "check: no op is called \"%s\"", op);
    else if (run.has_failed)
        st = QN_FAIL(QN_E_MISMATCH, "check: a kernel disagrees with its reference on %s",
                     device->info.spec);
out:
    qn_stream_destroy(run.stream);
    return st;
}
