// SPDX-License-Identifier: Apache-2.0
// JSON: jansson with every result checked. A value that cannot be made ends the command with a
// message, so that nothing incomplete is written.
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Allocates for jansson, most of whose calls report a failed allocation by a null or a -1 that is
 *  easily overlooked. */
static void *alloc_or_exit(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        cli_out_of_memory();
    return memory;
}

void cli_json_begin(void) {
    json_set_alloc_funcs(alloc_or_exit, free);
}

/** Ends the command because of text that is no UTF-8, or a wrong format; lack of memory has been
 *  handled before. */
[[noreturn]] static void fail(const char *why) {
    fprintf(stderr, "quern: cannot make JSON: %s\n", why);
    exit(CLI_BAD_INPUT);
}

json_t *cli_json_pack(const char *format, ...) {
    json_error_t error;
    va_list args;
    va_start(args, format);
    json_t *value = json_vpack_ex(&error, 0, format, args);
    va_end(args);
    if (!value)
        fail(error.text);
    return value;
}

void cli_json_add(json_t *array, json_t *value) {
    if (json_array_append_new(array, value) != 0)
        fail("an array's element");
}

void cli_json_insert(json_t *array, size_t at, json_t *value) {
    if (json_array_insert_new(array, at, value) != 0)
        fail("an array's element");
}

void cli_json_set(json_t *object, const char *name, json_t *value) {
    if (json_object_set_new(object, name, value) != 0)
        fail(name);
}

char *cli_json_dump(const json_t *value, size_t flags) {
    char *text = json_dumps(value, flags);
    if (!text)
        fail("it has text that is no UTF-8");
    return text;
}

/** Returns how many bytes the character at `text` has in UTF-8, as jansson counts; 0 if it is no
 *  UTF-8. */
static size_t character_bytes(const char *text) {
    const size_t most = strnlen(text, 4);
    for (size_t n = 1; n <= most; n++) {
        json_t *one = json_stringn(text, n);
        json_decref(one);
        if (one)
            return n;
    }
    return 0;
}

json_t *cli_json_text(const char *text) {
    static const char replacement[] = "\uFFFD";
    char *clean = cli_alloc(strlen(text) * strlen(replacement) + 1), *to = clean;
    for (size_t n; *text; text += n ? n : 1) {
        n = character_bytes(text);
        to = n ? mempcpy(to, text, n) : stpcpy(to, replacement);
    }
    json_t *value = json_string(clean);
    free(clean);
    return value;
}

json_t *cli_json_number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

char *cli_json_lines(json_t *value) {
    char *text = cli_json_dump(value, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    char *lines = cli_text("%s\n", text);
    json_decref(value);
    free(text);
    return lines;
}

qn_status cli_print_json(json_t *value) {
    char *lines = cli_json_lines(value);
    const qn_status st = cli_print(lines);
    free(lines);
    return st;
}
