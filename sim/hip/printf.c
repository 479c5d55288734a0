// SPDX-License-Identifier: Apache-2.0
// printf of device code: turns a message of words into text, by the rules of C.
//
// A message is a control word (bit 0: standard error), the format, padded with zeros to whole
// words, and the arguments: one word each, whatever their type, or a padded string for %s. Integers
// come without their sign, so that the format's length modifier decides how much of the word
// counts.
#include "hostcall.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FIELD = 1 << 16 }; // the most width and precision, which a kernel chooses

typedef struct reader {
    const uint64_t *words;
    size_t count, at;
} reader;

static uint64_t take(reader *r) {
    return r->at < r->count ? r->words[r->at++] : 0;
}

/** Takes a string that ends within the message; null if none does. */
static const char *take_string(reader *r) {
    const char *text = (const char *)(r->words + r->at);
    const size_t room = (r->count - r->at) * 8, length = strnlen(text, room);
    if (length == room)
        return nullptr;
    r->at += length / 8 + 1;
    return text;
}

typedef struct spec {
    char flags[8];
    int width, precision; // precision < 0: none
    int bytes;            // bytes of an integer
    char conversion;
} spec;

static int clamp(int64_t value) {
    return value > MAX_FIELD ? MAX_FIELD : value < -MAX_FIELD ? -MAX_FIELD : (int)value;
}

static const char *read_number(const char *at, reader *r, int *value) {
    if (*at == '*') {
        *value = clamp((int32_t)take(r));
        return at + 1;
    }
    int64_t number = 0;
    for (; *at >= '0' && *at <= '9'; at++)
        number = clamp(10 * number + (*at - '0'));
    *value = (int)number;
    return at;
}

/** Reads what follows a '%'. Returns what follows the conversion, or null if there is no
 *  conversion. */
static const char *read_spec(const char *at, reader *r, spec *s) {
    *s = (spec){.precision = -1, .bytes = 4};
    for (size_t n = 0; *at && strchr("-+ #0", *at); at++)
        if (n < sizeof s->flags - 1 && !strchr(s->flags, *at))
            s->flags[n++] = *at;
    at = read_number(at, r, &s->width);
    if (*at == '.')
        at = read_number(at + 1, r, &s->precision);
    for (; *at && strchr("hljztL", *at); at++)
        s->bytes = *at == 'h' ? s->bytes / 2 : 8;
    s->conversion = *at;
    return *at ? at + 1 : nullptr;
}

static int64_t extend(uint64_t value, int bytes, bool is_signed) {
    const int shift = 64 - 8 * (bytes < 1 ? 1 : bytes);
    return is_signed ? (int64_t)(value << shift) >> shift : (int64_t)(value << shift >> shift);
}

/** Prints one conversion. Returns false if C has no such conversion. The format is made of checked
 *  parts. */
static bool put(FILE *out, const spec *s, reader *r) {
    char format[32];
    const char *length = strchr("diouxX", s->conversion) ? "ll" : "";
    snprintf(format, sizeof format, "%%%s*%s%s%c", s->flags, s->precision < 0 ? "" : ".*", length,
             s->conversion);
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wformat-nonliteral"
#define PUT(value)                                                                                 \
    (s->precision < 0 ? fprintf(out, format, s->width, value)                                      \
                      : fprintf(out, format, s->width, s->precision, value))
    switch (s->conversion) {
    case 'd':
    case 'i':
        PUT((long long)extend(take(r), s->bytes, true));
        return true;
    case 'o':
    case 'u':
    case 'x':
    case 'X':
        PUT((unsigned long long)extend(take(r), s->bytes, false));
        return true;
    case 'c':
        PUT((int)take(r));
        return true;
    case 'p':
        PUT((void *)take(r));
        return true;
    case 's': {
        const char *text = take_string(r);
        PUT(text ? text : "");
        return text;
    }
    case 'n':
        take(r);
        return true;
    default:
        if (s->conversion && strchr("fFeEgGaA", s->conversion)) {
            uint64_t bits = take(r);
            double value;
            memcpy(&value, &bits, sizeof value);
            PUT(value);
            return true;
        }
        return false;
    }
#undef PUT
#pragma clang diagnostic pop
}

static void print(FILE *out, const char *format, reader *r) {
    for (;;) {
        const size_t plain = strcspn(format, "%");
        fwrite(format, 1, plain, out);
        format += plain;
        if (!*format)
            return;
        if (format[1] == '%') {
            fputc('%', out);
            format += 2;
            continue;
        }
        spec s;
        format = read_spec(format + 1, r, &s);
        if (!format || !put(out, &s, r))
            return; // undefined in C, so the rest is left out
    }
}

int sim_device_print(bool to_stderr, const char *format, const uint64_t *words, size_t count) {
    reader r = {words, count, 0};
    FILE *to = to_stderr ? stderr : stdout;
    format = format ? format : take_string(&r);
    char *text = nullptr;
    size_t bytes = 0;
    FILE *out = format ? open_memstream(&text, &bytes) : nullptr;
    if (!out)
        return -1;
    print(out, format, &r);
    const bool is_short = ferror(out) != 0;
    fclose(out);
    // The text goes through the program's own stream, so that it keeps its order with the program's
    // text, and is flushed at once.
    const bool ok = text && !is_short && fwrite(text, 1, bytes, to) == bytes && fflush(to) == 0;
    free(text);
    return ok ? (int)bytes : -1;
}

int sim_device_printf(const uint64_t *words, size_t count) {
    return count ? sim_device_print(words[0] & 1, nullptr, words + 1, count - 1) : -1;
}
