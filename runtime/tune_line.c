// SPDX-License-Identifier: Apache-2.0
// A line of the table of measured choices: OP DEVICE [NAME=VALUE]... -> KERNEL [# comment].
#include "tune.h"

#include <string.h>

typedef struct word {
    const char *text;
    int length;
} word;

/** The rest of a line. */
typedef struct rest {
    const char *at, *end;
} rest;

__attribute__((format(printf, 2, 3))) static bool refuse(qni_tune_fault *fault, const char *format,
                                                         ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    return false;
}

// ---- bytes

/** Returns the bytes of the UTF-8 character that begins at s, where `left` bytes exist; 0: it is no
 *  character. */
static size_t utf8_length(const uint8_t *s, size_t left) {
    const size_t length = *s < 0x80 ? 1 : *s < 0xC2 ? 0 : *s < 0xE0 ? 2 : *s < 0xF0 ? 3 : 4;
    if (length == 0 || length > left || *s > 0xF4)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    // Overlong forms, surrogates, and numbers beyond U+10FFFF are bad.
    const bool is_bad = length > 2 && ((*s == 0xE0 && s[1] < 0xA0) || (*s == 0xED && s[1] > 0x9F) ||
                                       (*s == 0xF0 && s[1] < 0x90) || (*s == 0xF4 && s[1] > 0x8F));
    return is_bad ? 0 : length;
}

static bool check_bytes(const char *text, size_t length, qni_tune_fault *fault) {
    if (length > QNI_TUNE_MAX_BYTES)
        return refuse(fault, "the line has %zu bytes; accepted: up to %d", length,
                      QNI_TUNE_MAX_BYTES);
    for (size_t i = 0, n; i < length; i += n) {
        const uint8_t *s = (const uint8_t *)text + i;
        n = (*s < ' ' && *s != '\t') || *s == 0x7F ? 0 : utf8_length(s, length - i);
        if (n == 0)
            return refuse(fault,
                          "byte %zu is 0x%02x; accepted: UTF-8 text without control characters",
                          i + 1, *s);
    }
    return true;
}

// ---- words

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

static void skip_blanks(rest *r) {
    while (r->at < r->end && is_blank(*r->at))
        r->at++;
}

/** Returns the next word, which blanks end; its length is 0 at the end of the line or where a
 *  comment begins. */
static word next_word(rest *r) {
    skip_blanks(r);
    word w = {r->at, 0};
    if (r->at < r->end && *r->at == '#')
        return w;
    while (r->at < r->end && !is_blank(*r->at))
        r->at++;
    w.length = (int)(r->at - w.text);
    return w;
}

static bool is_word(word w, const char *wanted) {
    return w.length == (int)strlen(wanted) && strncmp(w.text, wanted, (size_t)w.length) == 0;
}

static void append(char *text, size_t room, const char *separator, const char *more) {
    const size_t used = strlen(text);
    snprintf(text + used, room - used, "%s%s", used ? separator : "", more);
}

// ---- OP DEVICE

static bool read_op(rest *r, qni_tune_line *line, qni_tune_fault *fault) {
    const word w = next_word(r);
    char known[400] = "";
    line->op = qni_op_find(w.text, (size_t)w.length);
    if (line->op && line->op->keys)
        return true;
    for (const qni_op *const *op = qni_choice_ops(); *op; op++)
        append(known, sizeof known, ", ", (*op)->name);
    return refuse(fault, "the op is \"%.*s\"; accepted: %s", w.length > 64 ? 64 : w.length, w.text,
                  known);
}

static bool read_device(rest *r, qni_tune_line *line, qni_tune_fault *fault) {
    const word w = next_word(r);
    if (w.length >= (int)sizeof line->device ||
        qni_arch_of(w.text, (size_t)w.length) == QNI_ARCH_UNKNOWN)
        return refuse(fault,
                      "the device is \"%.*s\"; accepted: what quern devices shows as arch: gfx942, "
                      "sm_90, x86-64-avx512",
                      w.length > 64 ? 64 : w.length, w.text);
    memcpy(line->device, w.text, (size_t)w.length);
    return true;
}

// ---- NAME=VALUE

static const char units_name[] = "units";

static const qni_key *key_of(const qni_op *op, int value) {
    static const qni_key units = {.name = units_name};
    return value == 0 ? &units : &op->keys[value - 1];
}

static bool read_name(word name, const qni_tune_line *line, int *value, qni_tune_fault *fault) {
    char known[300] = "";
    *value = 0;
    while (key_of(line->op, *value)->name && !is_word(name, key_of(line->op, *value)->name))
        append(known, sizeof known, ", ", key_of(line->op, (*value)++)->name);
    if (key_of(line->op, *value)->name)
        return true;
    return refuse(fault, "\"%.*s\" is nothing that %s problems have; accepted: %s",
                  name.length > 64 ? 64 : name.length, name.text, line->op->name, known);
}

/** Reads the whole word as a number. */
static bool read_number(word w, int64_t *number) {
    *number = 0;
    for (int i = 0; i < w.length; i++)
        if (w.text[i] < '0' || w.text[i] > '9' || __builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, w.text[i] - '0', number))
            return false;
    return w.length > 0;
}

/** Reads N, LOW..HIGH or LOW... */
static bool read_numbers(word w, const char *name, qni_tune_range *range, qni_tune_fault *fault) {
    const char *dots = memmem(w.text, (size_t)w.length, "..", 2);
    const word low = {w.text, dots ? (int)(dots - w.text) : w.length};
    const word high = dots ? (word){dots + 2, w.length - low.length - 2} : (word){.length = 0};
    bool is_good = read_number(low, &range->low);
    if (!dots)
        range->high = range->low;
    else if (high.length == 0)
        range->high = INT64_MAX;
    else
        is_good = read_number(high, &range->high) && is_good;
    if (!is_good)
        return refuse(fault, "%s is \"%.*s\"; accepted: a number, LOW..HIGH, LOW..", name,
                      w.length > 64 ? 64 : w.length, w.text);
    if (range->low > range->high)
        return refuse(fault, "%s is \"%.*s\", which holds no number", name, w.length, w.text);
    return true;
}

static bool read_one_of(word w, const qni_key *key, qni_tune_range *range, qni_tune_fault *fault) {
    char known[300] = "";
    for (int i = 0; key->words[i]; i++) {
        range->low = range->high = i;
        if (is_word(w, key->words[i]))
            return true;
        append(known, sizeof known, ", ", key->words[i]);
    }
    return refuse(fault, "%s is \"%.*s\"; accepted: %s", key->name, w.length > 64 ? 64 : w.length,
                  w.text, known);
}

/** Adds a range; ranges are kept by rising value. */
static bool add_range(qni_tune_line *line, qni_tune_range range, qni_tune_fault *fault) {
    int i = line->num_ranges;
    for (; i > 0 && line->ranges[i - 1].value >= range.value; i--) {
        if (line->ranges[i - 1].value == range.value)
            return refuse(fault, "%s stands twice", key_of(line->op, range.value)->name);
        line->ranges[i] = line->ranges[i - 1];
    }
    line->ranges[i] = range;
    line->num_ranges++;
    return true;
}

static bool read_condition(word w, qni_tune_line *line, qni_tune_fault *fault) {
    const char *equals = memchr(w.text, '=', (size_t)w.length);
    if (!equals)
        return refuse(fault, "\"%.*s\"; accepted: NAME=VALUE, or -> before the kernel",
                      w.length > 64 ? 64 : w.length, w.text);
    const word name = {w.text, (int)(equals - w.text)};
    const word text = {equals + 1, w.length - name.length - 1};
    qni_tune_range range = {};
    if (!read_name(name, line, &range.value, fault))
        return false;
    const qni_key *key = key_of(line->op, range.value);
    line->is_of_batch |= key->is_of_batch;
    return (key->words ? read_one_of(text, key, &range, fault)
                       : read_numbers(text, key->name, &range, fault)) &&
           add_range(line, range, fault);
}

static bool read_conditions(rest *r, qni_tune_line *line, qni_tune_fault *fault) {
    for (word w = next_word(r); !is_word(w, "->"); w = next_word(r)) {
        if (w.length == 0)
            return refuse(fault, "there is no kernel; accepted: OP DEVICE NAME=VALUE... -> KERNEL");
        if (!read_condition(w, line, fault))
            return false;
    }
    return true;
}

// ---- KERNEL

/** Returns the first of the line's names that belongs to the batch. */
static const char *batch_name(const qni_tune_line *line) {
    int i = 0;
    while (!key_of(line->op, line->ranges[i].value)->is_of_batch)
        i++;
    return key_of(line->op, line->ranges[i].value)->name;
}

static bool check_kernel(const qni_tune_line *line, qni_tune_fault *fault) {
    const qni_variant *v = line->variant;
    if (v->is_cpu != (qni_arch_of(line->device, strlen(line->device)) == QNI_ARCH_CPU))
        return refuse(fault, "%s runs on %s, %s is none", v->name,
                      v->is_cpu ? "processors" : "GPUs", line->device);
    if (line->is_of_batch && !v->config.bits)
        return refuse(
            fault,
            "%s is the batch's, and rows may have other bits by %s than by the kernel for "
            "other batches; accepted: lines without it",
            batch_name(line), v->name);
    return true;
}

static bool read_kernel(rest *r, qni_tune_line *line, qni_tune_fault *fault) {
    const word w = next_word(r);
    char known[400] = "";
    line->variant = qni_variant_find(line->op, w.text, (size_t)w.length);
    if (line->variant)
        return check_kernel(line, fault);
    for (int i = 0; i < line->op->num_variants; i++)
        append(known, sizeof known, ", ", line->op->variants[i].name);
    return refuse(fault, "the kernel is \"%.*s\"; accepted: %s", w.length > 64 ? 64 : w.length,
                  w.text, known);
}

// ---- lines

static bool read_line(rest *r, qni_tune_line *line, qni_tune_fault *fault) {
    if (!read_op(r, line, fault) || !read_device(r, line, fault) ||
        !read_conditions(r, line, fault) || !read_kernel(r, line, fault))
        return false;
    const word more = next_word(r);
    return more.length == 0 ||
           refuse(fault, "\"%.*s\" stands behind the kernel; accepted: # and a comment",
                  more.length > 64 ? 64 : more.length, more.text);
}

qni_tune_kind qni_tune_line_read(const char *text, size_t length, qni_tune_line *line,
                                 const char **comment, qni_tune_fault *fault) {
    rest r = {text, text + length};
    *line = (qni_tune_line){};
    if (!check_bytes(text, length, fault))
        return QNI_TUNE_REFUSED;
    skip_blanks(&r);
    if (r.at == r.end || *r.at == '#')
        return QNI_TUNE_NOTHING;
    if (!read_line(&r, line, fault))
        return QNI_TUNE_REFUSED;
    if (r.at < r.end) // a comment begins here
        r.at++;
    skip_blanks(&r);
    *comment = r.at;
    return QNI_TUNE_CHOICE;
}

static void put_range(const qni_tune_line *line, const qni_tune_range *range, char *buf,
                      size_t room) {
    const qni_key *key = key_of(line->op, range->value);
    char text[80];
    if (key->words)
        snprintf(text, sizeof text, "%s=%s", key->name,
                 range->low < 0 ? "?" : key->words[range->low]);
    else if (range->low == range->high)
        snprintf(text, sizeof text, "%s=%ld", key->name, (long)range->low);
    else if (range->high == INT64_MAX)
        snprintf(text, sizeof text, "%s=%ld..", key->name, (long)range->low);
    else
        snprintf(text, sizeof text, "%s=%ld..%ld", key->name, (long)range->low, (long)range->high);
    append(buf, room, " ", text);
}

const char *qni_tune_line_text(const qni_tune_line *line, char *buf, size_t room) {
    *buf = 0;
    for (int i = 0; i < line->num_ranges; i++)
        put_range(line, &line->ranges[i], buf, room);
    return buf;
}

bool qni_tune_line_covers(const qni_tune_line *first, const qni_tune_line *second) {
    if (first->op != second->op || strcmp(first->device, second->device) != 0)
        return false;
    for (int i = 0, k = 0; i < first->num_ranges; i++) {
        const qni_tune_range *wide = &first->ranges[i];
        while (k < second->num_ranges && second->ranges[k].value < wide->value)
            k++;
        const qni_tune_range *narrow = &second->ranges[k];
        if (k == second->num_ranges || narrow->value != wide->value || narrow->low < wide->low ||
            narrow->high > wide->high)
            return false;
    }
    return true;
}
