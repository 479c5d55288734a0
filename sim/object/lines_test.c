// SPDX-License-Identifier: Apache-2.0
// DWARF line tables: clang's tables, address by address, against llvm-symbolizer; and tables that
// are made here by hand.
#include "elf.h"
#include "lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_OBJECT = 1 << 20, MAX_ADDRESSES = 4096 };

// ---- clang's

static sim_section section_of(const sim_elf *elf, const char *wanted, uint64_t *address) {
    Elf64_Shdr s;
    for (size_t i = 0; sim_elf_section(elf, i, &s); i++) {
        const char *name = sim_elf_string(elf, elf->header.e_shstrndx, s.sh_name);
        if (name && strcmp(name, wanted) == 0) {
            *address = s.sh_addr;
            return (sim_section){sim_elf_range(elf, s.sh_offset, s.sh_size), s.sh_size};
        }
    }
    return (sim_section){};
}

static void path_of(const char *way, char path[4096]) {
    const char *folder = getenv("QUERN_BUILD_DIR");
    snprintf(path, 4096, "%s/testdata/reports.%s.co", folder ? folder : ".", way);
}

/** Returns a file with llvm-symbolizer's answers for every fourth address of a range, as
 *  "FILE:LINE:COLUMN" lines. */
static FILE *ask_symbolizer(const char *object, uint64_t start, uint64_t size) {
    char input[] = "/tmp/quern-lines-XXXXXX", command[8400];
    const int file = mkstemp(input);
    FILE *out = fdopen(file, "w+");
    for (uint64_t at = 0; at < size; at += 4)
        fprintf(out, "0x%llx\n", (unsigned long long)(start + at));
    fflush(out);
    snprintf(command, sizeof command,
             "llvm-symbolizer-22 --no-inlines --functions=none --obj='%s' < %s > %s.out", object,
             input, input);
    const int status = system(command);
    fclose(out);
    remove(input);
    snprintf(command, sizeof command, "%s.out", input);
    FILE *answers = status == 0 ? fopen(command, "r") : nullptr;
    remove(command);
    return answers;
}

static void compare(const char *way) {
    static uint8_t image[MAX_OBJECT];
    char path[4096], want[1024], got[1024];
    path_of(way, path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(image, 1, sizeof image, file), known = 0;
    fclose(file);
    sim_elf elf;
    uint64_t start, ignored;
    assert_true(sim_elf_init(&elf, image, size));
    sim_section text = section_of(&elf, ".text", &start);
    sim_debug debug = {section_of(&elf, ".debug_line", &ignored),
                       section_of(&elf, ".debug_line_str", &ignored),
                       section_of(&elf, ".debug_str", &ignored)};
    FILE *answers = ask_symbolizer(path, start, text.size);
    sim_source_line last = {};
    if (!answers)
        skip();
    for (uint64_t at = 0; at < text.size; at += 4) {
        sim_source_line line;
        do { // empty lines part the answers
            assert_non_null(fgets(want, sizeof want, answers));
        } while (*want == '\n');
        want[strcspn(want, "\n")] = 0;
        const bool found = sim_line_find(&debug, start + at, &line);
        snprintf(got, sizeof got, "%s:%u:%u", line.file, line.line, line.column);
        if (!found) { // line 0 counts as no line
            assert_non_null(strstr(want, ":0"));
        } else {
            known++;
            assert_string_equal(got, want);
            assert_true(line.end > start + at);
            if (start + at < last.end) // of the row of the one before
                assert_true(line.line == last.line && line.column == last.column);
            last = line;
        }
    }
    fclose(answers);
    assert_true(known > 100);
}

static void test_against_symbolizer(void **) {
    compare("dwarf4");
    compare("dwarf5");
}

// ---- by hand

typedef struct table {
    uint8_t bytes[512];
    size_t size;
} table;

static void put(table *t, const void *bytes, size_t size) {
    assert_true(t->size + size <= sizeof t->bytes);
    memcpy(t->bytes + t->size, bytes, size);
    t->size += size;
}

static void put_number(table *t, uint64_t value, size_t bytes) {
    put(t, &value, bytes);
}

/** Begins a unit; what follows its lengths goes between begin and end. Returns where the header's
 *  length is. */
static size_t begin_unit(table *t, unsigned version, bool is_64) {
    t->size = 0;
    is_64 ? put_number(t, 0xffffffff, 4) : (void)0;
    put_number(t, 0, is_64 ? 8 : 4);
    put_number(t, version, 2);
    version >= 5 ? put_number(t, 8, 2) : (void)0; // address size 8, no selectors
    const size_t at = t->size;
    put_number(t, 0, is_64 ? 8 : 4);
    put_number(t, 4, 1);                                  // bytes of the shortest instruction
    version >= 4 ? put_number(t, 1, 1) : (void)0;         // operations of an instruction
    put(t, "\1\xfb\x0e\x0d\0\1\1\1\1\0\0\0\1\0\0\1", 16); // line_base -5, range 14, opcode_base 13
    return at;
}

static void end_header(table *t, size_t at, bool is_64) {
    uint64_t bytes = t->size - at - (is_64 ? 8 : 4);
    memcpy(t->bytes + at, &bytes, is_64 ? 8 : 4);
}

static void end_unit(table *t, bool is_64) {
    uint64_t bytes = t->size - (is_64 ? 12 : 4);
    memcpy(t->bytes + (is_64 ? 4 : 0), &bytes, is_64 ? 8 : 4);
}

/** Rows: 0x1000 line 10; 0x1004 line 12 (a special opcode); 0x1014 line 0; ends at 0x1020. */
static void put_program(table *t, unsigned file) {
    put(t, "\0\x09\x02", 3);
    put_number(t, 0x1000, 8);
    put(t, "\3\x09\5\7\4", 5); // line += 9, column 7, file
    put_number(t, file, 1);
    put_number(t, 1, 1);                   // copy
    put_number(t, 13 + 14 * 1 + 2 + 5, 1); // address += 4, line += 2
    put(t, "\2\4\3\x74\1", 5);             // address += 16, line -= 12, copy
    put(t, "\x09\x0c\0\0\1\1", 6);         // address += 12, end of the sequence
}

static void expect(const table *t, uint64_t address, const char *want) {
    char got[600] = "none";
    sim_source_line line;
    sim_debug debug = {.line = {t->bytes, t->size}, .line_str = {(const uint8_t *)"xdir\0", 5}};
    if (sim_line_find(&debug, address, &line))
        snprintf(got, sizeof got, "%s:%u:%u", line.file, line.line, line.column);
    assert_string_equal(got, want);
}

static void expect_rows(const table *t, const char *file) {
    char want[600];
    expect(t, 0xfff, "none");
    snprintf(want, sizeof want, "%s:10:7", file);
    expect(t, 0x1000, want);
    expect(t, 0x1003, want);
    snprintf(want, sizeof want, "%s:12:7", file);
    expect(t, 0x1004, want);
    expect(t, 0x1013, want);
    expect(t, 0x1014, "none");
    expect(t, 0x1020, "none");
}

static void test_versions(void **) {
    static table t;
    for (unsigned version = 2; version <= 4; version++) {
        for (unsigned is_64 = 0; is_64 < 2; is_64++) {
            const size_t at = begin_unit(&t, version, is_64);
            put(&t, "dir\0other\0", 11);             // two folders
            put(&t, "a.c\0\0\0\0b.c\0\2\0\0\0", 15); // files: a.c, b.c of the second folder
            end_header(&t, at, is_64);
            put_program(&t, 2);
            end_unit(&t, is_64);
            expect_rows(&t, "other/b.c");
        }
    }
    const size_t at = begin_unit(&t, 5, true);
    put(&t, "\1\1\x1f\2", 4); // folders: a path in .debug_line_str; two
    put_number(&t, 1, 8);
    put_number(&t, 2, 8);
    put(&t, "\3\1\x08\2\x0b\5\x1e\1", 8); // files: a string, a folder of one byte, MD5; one
    const size_t folder = t.size + 4;
    put(&t, "c.c\0\0", 5);
    put(&t, "0123456789abcdef", 16);
    end_header(&t, at, true);
    put_program(&t, 0);
    end_unit(&t, true);
    expect_rows(&t, "dir/c.c");
    t.bytes[folder] = 1; // "ir", in folder 0
    expect_rows(&t, "dir/ir/c.c");
}

/** Changes every byte of a table to every value, and cuts it at every length. A line may be found
 *  or not, but no access may be stray, which sanitizers report. */
static void test_damage(void **) {
    static table t;
    const size_t at = begin_unit(&t, 5, false);
    put(&t, "\1\1\x1f\1", 4);
    put_number(&t, 1, 4);
    put(&t, "\2\1\x08\2\x0b\1c.c\0\0", 11);
    end_header(&t, at, false);
    put_program(&t, 0);
    end_unit(&t, false);
    expect_rows(&t, "dir/c.c");
    for (size_t i = 0; i < t.size; i++) {
        for (unsigned value = 0; value < 256; value++) {
            table *copy = malloc(t.size);
            memcpy(copy, t.bytes, t.size);
            ((uint8_t *)copy)[i] = (uint8_t)value;
            sim_source_line line;
            sim_debug debug = {.line = {(const uint8_t *)copy, value % 3 ? t.size : i},
                               .line_str = {(const uint8_t *)"xdir", 4}};
            const bool found = sim_line_find(&debug, 0x1004, &line);
            assert_true(!found || (line.line && *line.file));
            free(copy);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_symbolizer),
                                       cmocka_unit_test(test_versions),
                                       cmocka_unit_test(test_damage)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
