// SPDX-License-Identifier: Apache-2.0
// Chooses the kernel that runs: the cheapest of those that can; says why not the others; follows
// what the user forbids or forces.
#include "tune.h"

#include <quern/choice.h>

#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

bool qni_no(qni_reason *why, const char *format, ...) {
    if (why) {
        va_list args;
        va_start(args, format);
        vsnprintf(why->text, sizeof why->text, format, args);
        va_end(args);
    }
    return false;
}

/** Returns whether `word` is one of a comma list's words. */
static bool list_has(const char *list, const char *word, size_t length) {
    while (*list) {
        const size_t n = strcspn(list, ",");
        if (n == length && strncmp(list, word, n) == 0)
            return true;
        list += n + (list[n] == ',');
    }
    return false;
}

bool qni_is_backend_disabled(const char *backend) {
    return list_has(qni_env_get()->disable, backend, strlen(backend));
}

bool qni_device_meets(const qn_device *device, qni_needs needs) {
    return !(needs.all & ~device->features) && (!needs.any || needs.any & device->features);
}

static bool lacks_feature(const qni_variant *variant, const qn_device *device, qni_reason *why) {
    static const char *const names[] = {
#define QN_FEATURE(id, name) name,
#include "device/features.def"
#undef QN_FEATURE
    };
    const uint64_t missing = variant->needs.all & ~device->features;
    if (qni_device_meets(device, variant->needs))
        return false;
    if (missing)
        qni_no(why, "needs %s, which %s (%s) lacks", names[__builtin_ctzll(missing)],
               device->info.spec, device->info.arch);
    else
        qni_no(why, "needs %s or another of its kind; %s (%s) has none",
               names[__builtin_ctzll(variant->needs.any)], device->info.spec, device->info.arch);
    return true;
}

/** Returns whether QUERN_DISABLE names the kernel, or the device's backend, by the first word of
 *  the backend's specs. */
static bool is_disabled(const qni_variant *variant, const qn_device *device, qni_reason *why) {
    const char *list = qni_env_get()->disable, *spec = device->info.spec;
    if (!*list)
        return false;
    if (list_has(list, variant->name, strlen(variant->name))) {
        qni_no(why, "QUERN_DISABLE names it");
        return true;
    }
    if (list_has(list, spec, strcspn(spec, ":"))) {
        qni_no(why, "QUERN_DISABLE names its backend, %.*s", (int)strcspn(spec, ":"), spec);
        return true;
    }
    return false;
}

bool qni_variant_is_here(const qni_variant *variant, const qn_device *device, qni_reason *why) {
    const bool on_cpu = device->id.device_type == kDLCPU;
    if (variant->is_cpu != on_cpu)
        return qni_no(why, "runs on %s, this is %s", variant->is_cpu ? "the CPU" : "GPUs",
                      device->info.spec);
    return !is_disabled(variant, device, why) && !lacks_feature(variant, device, why);
}

bool qni_variant_fits(const qni_variant *variant, const qn_device *device, const void *problem,
                      qni_reason *why) {
    return qni_variant_is_here(variant, device, why) &&
           (!variant->supports || variant->supports(variant, device, problem, why));
}

/** Returns the kernel that QUERN_FORCE, "op=kernel,op=kernel", names for the op; null if it does
 *  not name the op. */
static const char *forced_name(const qni_op *op, size_t *length) {
    const size_t op_length = strlen(op->name);
    for (const char *at = qni_env_get()->force; *at;) {
        const size_t n = strcspn(at, ",");
        if (n > op_length && strncmp(at, op->name, op_length) == 0 && at[op_length] == '=') {
            *length = n - op_length - 1;
            return at + op_length + 1;
        }
        at += n + (at[n] == ',');
    }
    return nullptr;
}

/** Appends to a text of bounded room; what does not fit is cut. */
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t room,
                                                         const char *format, ...) {
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, room - used, format, args);
    va_end(args);
}

/** Returns whether this line has not been logged before. Two threads may both get yes, and a full
 *  table gives yes. */
static bool is_news(const char *line) {
    enum { SLOTS = 1024 };
    static _Atomic uint64_t seen[SLOTS];
    uint64_t hash = XXH3_64bits(line, strlen(line)) | 1; // 0 marks a free slot
    for (uint64_t i = 0; i < SLOTS; i++) {
        _Atomic uint64_t *slot = &seen[(hash + i) % SLOTS];
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(slot, &found, hash))
            return true;
        if (found == hash)
            return false;
    }
    return true;
}

static void log_once(const char *line) {
    if (is_news(line))
        qni_log(QNI_LOG_KERNEL, "%s", line);
}

static qn_status choose_forced(const qni_op *op, const qn_device *device, const void *problem,
                               const char *name, size_t length, const qni_variant **out) {
    char known[1024] = "";
    for (int i = 0; i < op->num_variants; i++) {
        const qni_variant *v = &op->variants[i];
        append(known, sizeof known, "%s%s", i ? ", " : "", v->name);
        if (strlen(v->name) != length || strncmp(v->name, name, length) != 0)
            continue;
        qni_reason why = {""};
        if (!qni_variant_fits(v, device, problem, &why))
            return QN_FAIL(QN_E_UNSUPPORTED, "%s: QUERN_FORCE asks for %s, which cannot run: %s",
                           op->name, v->name, why.text);
        if (qni_log_is_on(QNI_LOG_KERNEL)) {
            snprintf(known, sizeof known, "%s on %s: %s (QUERN_FORCE)", op->name, device->info.spec,
                     v->name);
            log_once(known);
        }
        *out = v;
        return QN_OK;
    }
    return QN_FAIL(QN_E_INVALID, "%s: QUERN_FORCE asks for \"%.*s\"; its kernels are: %s", op->name,
                   (int)length, name, known);
}

/** Chooses the kernel that qn_tune_force names. */
static qn_status choose_asked(const qni_variant *variant, const qni_op *op, const qn_device *device,
                              const void *problem, const qni_variant **out) {
    qni_reason why = {""};
    if (!qni_variant_fits(variant, device, problem, &why))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: qn_tune_force asks for %s, which cannot run: %s",
                       op->name, variant->name, why.text);
    *out = variant;
    return QN_OK;
}

double qni_cost_of(const qni_variant *variant, const qn_device *device, const void *problem) {
    return variant->cost ? variant->cost(variant, device, problem) : INFINITY;
}

/** A kernel without a cost is asked only while none has been found, as it would not be taken. */
int qni_find_cheapest(const qni_op *op, const qn_device *device, const void *problem) {
    double least = INFINITY;
    int found = -1;
    for (int i = 0; i < op->num_variants; i++) {
        const qni_variant *v = &op->variants[i];
        if ((found >= 0 && !v->cost) || !qni_variant_fits(v, device, problem, nullptr))
            continue;
        const double cost = qni_cost_of(v, device, problem);
        if (found < 0 || cost < least) {
            found = i;
            least = cost;
        }
    }
    return found;
}

/** Reasons as they are printed: equal reasons of kernels that follow each other appear once. */
typedef struct reasons {
    char *text;
    size_t room;
    const char *first; // the first of `count` kernels whose reason is not printed yet
    int count;
    qni_reason why;
} reasons;

static void tell(reasons *r) {
    if (r->count == 1)
        append(r->text, r->room, "; not %s: %s", r->first, r->why.text);
    else if (r->count > 1)
        append(r->text, r->room, "; not %s and %d more: %s", r->first, r->count - 1, r->why.text);
    r->count = 0;
}

static void add_reason(reasons *r, const char *name, const qni_reason *why) {
    if (strcmp(why->text, r->why.text) != 0)
        tell(r);
    if (r->count++ == 0)
        r->first = name, r->why = *why;
}

/** Writes why kernels other than `chosen` (-1: none was) do not run: they cannot, or are dearer, or
 *  would be cheaper by the cost that they state. Kernels behind the chosen one are named only if
 *  they state a cost; all others are for problems that it cannot run. */
static void put_reasons(const qni_op *op, const qn_device *device, const void *problem, int chosen,
                        char *text, size_t room) {
    reasons told = {.text = text, .room = room};
    for (int i = 0; i < op->num_variants; i++) {
        const qni_variant *v = &op->variants[i];
        qni_reason why = {""};
        if (i == chosen || v->is_cpu != (device->id.device_type == kDLCPU))
            continue; // that a CPU kernel does not run on a GPU is no news
        if (!qni_variant_fits(v, device, problem, &why)) {
            if (chosen < 0 || i < chosen || v->cost)
                add_reason(&told, v->name, &why);
        } else if (v->cost) {
            const double cost = qni_cost_of(v, device, problem),
                         least = qni_cost_of(&op->variants[chosen], device, problem);
            tell(&told);
            append(text, room, "; %s %s: %.3g, not %.3g", cost < least ? "passed over" : "dearer",
                   v->name, cost, least);
        }
    }
    tell(&told);
}

// ---- slow kernels

static thread_local bool leaves_out_slow;

bool qn_allow_slow_kernels(bool is_allowed) {
    const bool before = !leaves_out_slow;
    leaves_out_slow = !is_allowed;
    return before;
}

/** Returns whether a kernel is a GPU's kernel for problems that no other takes: without matrix
 *  cores, or an element at a time. */
static bool is_slow(const qni_variant *v) {
    const char *dot = strrchr(v->name, '.');
    return !v->is_cpu && dot && strncmp(dot, ".gpu_any", strlen(".gpu_any")) == 0;
}

static qn_status fail_slow(const qni_op *op, const qn_device *device, const void *problem,
                           int slow) {
    char reasons[3072] = "";
    put_reasons(op, device, problem, slow, reasons, sizeof reasons);
    return QN_FAIL(QN_E_UNSUPPORTED,
                   "%s: on %s (%s) this takes %s, which is slow and was not asked for%s", op->name,
                   device->info.spec, device->info.arch, op->variants[slow].name, reasons);
}

// ---- the table of measured choices

/** A kernel and the line of the table that chose it; null: costs did. */
typedef struct choice {
    const qni_variant *variant; // null: none can run
    const qni_tune_line *line;
} choice;

static bool can_follow(const qni_tune_line *line, const qn_device *device, const void *problem,
                       qni_reason *why) {
    if (leaves_out_slow && is_slow(line->variant))
        return qni_no(why, "it is slow and was not asked for");
    return qni_variant_fits(line->variant, device, problem, why);
}

/** Returns whether one kernel may replace the other for batches of some sizes. */
static bool agree(const qni_variant *one, const qni_variant *other, qni_reason *why) {
    if (one == other || (one->config.bits && one->config.bits == other->config.bits))
        return true;
    return qni_no(why, "a row has other bits by %s, which takes the other batches", other->name);
}

/** Returns the choice for batches of any size. */
static choice choose_for_all(const qni_op *op, const qn_device *device, const void *problem,
                             const qni_tune_line *line) {
    if (line && can_follow(line, device, problem, nullptr))
        return (choice){line->variant, line};
    const int cheapest = qni_find_cheapest(op, device, problem);
    return (choice){cheapest < 0 ? nullptr : &op->variants[cheapest], nullptr};
}

/** Chooses for a batch by a line for batches of some sizes. The line may only choose a kernel that
 *  gives a row the bits that it has in batches of other sizes. */
static choice choose_for_batch(const qni_tune_line *line, const qn_device *device,
                               const void *problem, choice for_all, qni_reason *why) {
    const bool is_followed =
        can_follow(line, device, problem, why) && agree(line->variant, for_all.variant, why);
    return is_followed ? (choice){line->variant, line} : for_all;
}

static choice choose(const qni_op *op, const qn_device *device, const void *problem,
                     const qni_tuned *tuned) {
    const choice for_all = choose_for_all(op, device, problem, tuned->all);
    return tuned->batch && for_all.variant
               ? choose_for_batch(tuned->batch, device, problem, for_all, nullptr)
               : for_all;
}

/** Writes which lines were not followed, and why. */
static void put_refusals(const qni_op *op, const qn_device *device, const void *problem,
                         const qni_tuned *tuned, char *text, size_t room) {
    const choice for_all = choose_for_all(op, device, problem, tuned->all);
    const qni_tune_line *lines[] = {tuned->batch, tuned->all};
    for (int i = 0; i < 2; i++) {
        qni_reason why = {""};
        if (lines[i] && i == 0)
            choose_for_batch(lines[i], device, problem, for_all, &why);
        else if (lines[i])
            can_follow(lines[i], device, problem, &why);
        if (*why.text)
            append(text, room, "; not %s of %s:%d: %s", lines[i]->variant->name, qni_tune_file(),
                   lines[i]->number, why.text);
    }
}

static void log_choice(const qni_op *op, const qn_device *device, const void *problem,
                       choice chosen, const qni_tuned *tuned) {
    char line[1900], key[512];
    snprintf(line, sizeof line, "%s on %s: %s", op->name, device->info.spec, chosen.variant->name);
    if (chosen.line)
        append(line, sizeof line, ", chosen by %s:%d", qni_tune_file(), chosen.line->number);
    put_refusals(op, device, problem, tuned, line, sizeof line);
    if (tuned->has_lines)
        append(line, sizeof line, "; %s", qni_tune_describe(op, device, problem, key, sizeof key));
    put_reasons(op, device, problem, (int)(chosen.variant - op->variants), line, sizeof line);
    log_once(line);
}

qn_status qni_choose(const qni_op *op, const qn_device *device, const void *problem,
                     const qni_variant **out) {
    size_t length = 0;
    if (atomic_load_explicit(&qni_tune_is_asked, memory_order_relaxed)) {
        const qni_variant *const asked = qni_tune_forced(op);
        if (asked)
            return choose_asked(asked, op, device, problem, out);
        QN_TRY(qni_tune_report(op, device, problem));
    }
    const char *forced = *qni_env_get()->force ? forced_name(op, &length) : nullptr;
    if (forced)
        return choose_forced(op, device, problem, forced, length, out);
    const bool has_table = qni_tune_file();
    const qni_tuned tuned = has_table ? qni_tune_find(op, device, problem) : (qni_tuned){};
    const choice chosen = choose(op, device, problem, &tuned);
    if (chosen.variant) {
        if (leaves_out_slow && is_slow(chosen.variant))
            return fail_slow(op, device, problem, (int)(chosen.variant - op->variants));
        if (qni_log_is_on(QNI_LOG_KERNEL))
            log_choice(op, device, problem, chosen, &tuned);
        *out = chosen.variant;
        return QN_OK;
    }
    char reasons[3072] = "";
    put_reasons(op, device, problem, -1, reasons, sizeof reasons);
    return QN_FAIL(QN_E_UNSUPPORTED, "%s: no kernel for this on %s (%s)%s", op->name,
                   device->info.spec, device->info.arch,
                   *reasons ? reasons : "; none was written for such a device");
}

// ---- names in the environment

/** Returns whether `length` bytes of `name` are the word. */
static bool is_word(const char *name, size_t length, const char *word) {
    return strlen(word) == length && strncmp(name, word, length) == 0;
}

/** All ops, null-terminated. */
static const qni_op *const *all_ops = (const qni_op *const[]){nullptr};

void qni_choice_set_ops(const qni_op *const *ops) {
    all_ops = ops;
}

const qni_op *const *qni_choice_ops(void) {
    return all_ops;
}

const qni_op *qni_op_find(const char *name, size_t length) {
    for (const qni_op *const *op = all_ops; *op; op++)
        if (is_word(name, length, (*op)->name))
            return *op;
    return nullptr;
}

const qni_variant *qni_variant_find(const qni_op *op, const char *name, size_t length) {
    for (int i = 0; i < op->num_variants; i++)
        if (is_word(name, length, op->variants[i].name))
            return &op->variants[i];
    return nullptr;
}

/** Returns whether a name is a kernel's, OP.NAME. */
static bool is_kernel(const char *name, size_t length) {
    const char *dot = memchr(name, '.', length);
    const qni_op *op = dot ? qni_op_find(name, (size_t)(dot - name)) : nullptr;
    return op && qni_variant_find(op, name, length);
}

static bool is_backend(const char *name, size_t length) {
    return is_word(name, length, "cpu") || is_word(name, length, "hip") ||
           is_word(name, length, "cuda") || is_word(name, length, "sim");
}

static bool is_forcing(const char *item, size_t length) {
    const char *equals = memchr(item, '=', length);
    const qni_op *op = equals ? qni_op_find(item, (size_t)(equals - item)) : nullptr;
    return op && qni_variant_find(op, equals + 1, length - (size_t)(equals + 1 - item));
}

static qn_status check_disable(void) {
    for (const char *at = qni_env_get()->disable; *at;) {
        const size_t n = strcspn(at, ",");
        if (n > 0 && !is_kernel(at, n) && !is_backend(at, n))
            return QN_FAIL(QN_E_INVALID,
                           "environment: QUERN_DISABLE has \"%.*s\"; accepted: kernels as quern "
                           "check names them, cpu, hip, cuda, sim",
                           (int)n, at);
        at += n + (at[n] == ',');
    }
    return QN_OK;
}

static qn_status check_force(void) {
    for (const char *at = qni_env_get()->force; *at;) {
        size_t n = strcspn(at, ","), length = 0;
        if (n > 0 && !is_forcing(at, n))
            return QN_FAIL(QN_E_INVALID,
                           "environment: QUERN_FORCE has \"%.*s\"; accepted: OP=KERNEL, as quern "
                           "check names them: gemm=gemm.any",
                           (int)n, at);
        const size_t op_length = strcspn(at, "=,");
        if (n > 0 && forced_name(qni_op_find(at, op_length), &length) != at + op_length + 1)
            return QN_FAIL(QN_E_INVALID,
                           "environment: QUERN_FORCE has \"%.*s\" behind another kernel for %.*s; "
                           "accepted: one for each op",
                           (int)n, at, (int)op_length, at);
        at += n + (at[n] == ',');
    }
    return QN_OK;
}

qn_status qni_choice_check_environment(void) {
    QN_TRY(check_disable());
    QN_TRY(check_force());
    return qni_tune_check();
}

// ---- running

static thread_local const char *last_kernel = "";

const char *qn_last_kernel(void) {
    return last_kernel;
}

qn_status qni_run_variant(const qni_variant *variant, qn_stream *stream, const void *problem) {
    last_kernel = variant->name;
    return variant->run(variant, stream, problem);
}

qn_status qni_run(const qni_op *op, qn_stream *stream, const void *problem) {
    const qni_variant *variant = nullptr;
    QN_TRY(qni_choose(op, stream->device, problem, &variant));
    return qni_run_variant(variant, stream, problem);
}
