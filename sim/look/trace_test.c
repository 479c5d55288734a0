// SPDX-License-Identifier: Apache-2.0
// The trace: its exact text for small programs, and which kernels and waves it shows.
#include "look_testing.h"

/** Returns a program's trace under these options; the caller frees it. */
static char *trace(const test_launch *launch, const char *source, const char *pattern,
                   uint64_t wave) {
    sim_look_options options = {.trace_wave = wave};
    make_path(options.trace_file);
    snprintf(options.trace, sizeof options.trace, "%s", pattern);
    configure(&options);
    run_program(launch, source);
    configure(&(sim_look_options){});
    char *text = read_file(options.trace_file);
    unlink(options.trace_file);
    return text;
}

/** Returns the text after the first line, which counts the launches of the process. */
static const char *after_title(const char *text) {
    const char *end = strchr(text, '\n');
    assert_non_null(end);
    return end + 1;
}

/** Removes the number of the launch, "0:" at the beginning of each line. */
static void drop_launch(char *text) {
    char *to = text;
    for (const char *from = text; *from;) {
        const char *colon = strchr(from, ':'), *end = strchr(from, '\n');
        assert_true(colon && end && colon < end);
        memmove(to, colon + 1, (size_t)(end - colon));
        to += end - colon;
        from = end + 1;
    }
    *to = 0;
}

static void expect(const test_launch *launch, const char *source, const char *expected) {
    char *text = trace(launch, source, "prog*", 0);
    assert_non_null(strstr(text, "kernel program"));
    char *rest = strdup(after_title(text));
    drop_launch(rest);
    assert_string_equal(rest, expected);
    free(rest);
    free(text);
}

static void test_text_of_cdna(void **) {
    static const char source[] = "s_load_dword s4, s[0:1], 0x20\n"
                                 "v_mov_b32_e32 v1, 7\n"
                                 "s_mov_b64 s[6:7], 5\n"
                                 "s_cmp_eq_u32 s6, 5\n"
                                 "v_cmp_gt_u32_e32 vcc, 4, v0\n"
                                 "s_and_saveexec_b64 s[8:9], vcc\n"
                                 "v_lshlrev_b32_e32 v2, 2, v0\n"
                                 "ds_write_b32 v2, v1 offset:16\n"
                                 "s_cbranch_scc1 end\n"
                                 "s_nop 0\n"
                                 "end: s_endpgm\n";
    static const char *const parts[] = {"0 workgroup (0, 0, 0), wave 0, exec = 0xffffffffffffffff\n"
                                        "0 +0x0000: s_load_dword s4, s[0:1], 0x20\n"
                                        "0           s4 = 0x0\n"
                                        "0           memory: 4 bytes at 0x4000000",
                                        "0 +0x0008: v_mov_b32_e32 v1, 7\n"
                                        "0           v1[0-63] = 0x7\n"
                                        "0 +0x000c: s_mov_b64 s[6:7], 5\n"
                                        "0           s[6:7] = 0x5 0x0\n"
                                        "0 +0x0010: s_cmp_eq_u32 s6, 5\n"
                                        "0           scc = 1\n"
                                        "0 +0x0014: v_cmp_gt_u32_e32 vcc, 4, v0\n"
                                        "0           vcc = 0xf\n"
                                        "0 +0x0018: s_and_saveexec_b64 s[8:9], vcc\n"
                                        "0           s[8:9] = 0xffffffff 0xffffffff\n"
                                        "0           exec = 0xf\n"
                                        "0 +0x001c: v_lshlrev_b32_e32 v2, 2, v0\n"
                                        "0           v2[0-3] = 0x0 0x4 0x8 0xc\n"
                                        "0 +0x0020: ds_write_b32 v2, v1 offset:16\n"
                                        "0           lds: 16 bytes of lanes 0-3 in 0x10..0x1f\n"
                                        "0 +0x0028: s_cbranch_scc1 1\n"
                                        "0 +0x0030: s_endpgm\n"};
    const test_launch launch = {.arch = "gfx942", .groups = 1, .threads = 64, .lds_bytes = 256};
    char *text = trace(&launch, source, "program", 0);
    char *rest = strdup(after_title(text));
    drop_launch(rest);
    assert_int_equal(strncmp(rest, parts[0], strlen(parts[0])), 0);
    const char *tail = strstr(rest, "0 +0x0008");
    assert_non_null(tail);
    assert_string_equal(tail, parts[1]);
    free(rest);
    free(text);
}

static void test_text_of_rdna(void **) {
    static const char source[] = "v_lshlrev_b32_e32 v1, 8, v0\n"
                                 "v_dual_mov_b32 v2, 3 :: v_dual_mov_b32 v3, v0\n"
                                 "v_cmp_lt_u32_e32 vcc_lo, 15, v0\n"
                                 "s_endpgm\n";
    expect(&(test_launch){.arch = "gfx1201", .groups = 1, .threads = 32}, source,
           "0 workgroup (0, 0, 0), wave 0, exec = 0xffffffff\n"
           "0 +0x0000: v_lshlrev_b32_e32 v1, 8, v0\n"
           "0           v1[0-31] = 0x0 0x100 0x200 0x300 0x400 0x500 0x600 0x700 ...\n"
           "0 +0x0004: v_dual_mov_b32 v2, 3 :: v_dual_mov_b32 v3, v0\n"
           "0           v2[0-31] = 0x3\n"
           "0           v3[0-31] = 0x0 0x1 0x2 0x3 0x4 0x5 0x6 0x7 ...\n"
           "0 +0x000c: v_cmp_lt_u32_e32 vcc_lo, 15, v0\n"
           "0           vcc = 0xffff0000\n"
           "0 +0x0010: s_endpgm\n");
}

/** Changes that only the registers show: both sides of a swap, and lanes that another lane's write
 *  changes. */
static void test_text_of_changes(void **) {
    expect(
        &(test_launch){.arch = "gfx942", .groups = 1, .threads = 64},
        "v_mov_b32_e32 v1, 1\n v_mov_b32_e32 v2, 2\n v_swap_b32 v1, v2\n v_writelane_b32 v1, 9, 5\n"
        "v_accvgpr_write_b32 a1, 4\n s_mov_b64 exec, 0\n v_mov_b32_e32 v1, 3\n s_endpgm\n",
        "0 workgroup (0, 0, 0), wave 0, exec = 0xffffffffffffffff\n"
        "0 +0x0000: v_mov_b32_e32 v1, 1\n"
        "0           v1[0-63] = 0x1\n"
        "0 +0x0004: v_mov_b32_e32 v2, 2\n"
        "0           v2[0-63] = 0x2\n"
        "0 +0x0008: v_swap_b32 v1, v2\n"
        "0           v1[0-63] = 0x2\n"
        "0           v2[0-63] = 0x1\n"
        "0 +0x000c: v_writelane_b32 v1, 9, 5\n"
        "0           v1[0-63] = 0x2 0x2 0x2 0x2 0x2 0x9 0x2 0x2 ...\n"
        "0 +0x0014: v_accvgpr_write_b32 a1, 4\n"
        "0           a1[0-63] = 0x4\n"
        "0 +0x001c: s_mov_b64 exec, 0\n"
        "0           exec = 0x0\n"
        "0 +0x0020: v_mov_b32_e32 v1, 3\n"
        "0 +0x0024: s_endpgm\n");
}

/** The last instruction of a wave that faults is the one that did it. */
static void test_fault(void **) {
    char *text = trace(&(test_launch){.arch = "gfx942", .groups = 1, .threads = 64, .fails = true},
                       "v_mov_b32 v2, 0\n v_mov_b32 v3, 1\n flat_load_dword v4, v[2:3]\n"
                       "v_mov_b32 v4, 0\n s_endpgm\n",
                       "program", 0);
    const char *last = strstr(text, ":0 +0x0008: flat_load_dword v4, v[2:3]\n");
    assert_non_null(last);
    assert_null(strstr(last + 1, ":0 +0x"));
    free(text);
}

static unsigned count(const char *text, const char *part) {
    unsigned n = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

/** Waves count over the launch: 3 workgroups of 2. */
static void test_choice(void **) {
    static const char source[] = "s_mov_b32 s3, 1\n s_endpgm\n";
    const test_launch launch = {.arch = "gfx942", .groups = 3, .threads = 128};
    char *all = trace(&launch, source, "*", SIM_ALL_WAVES);
    char *fourth = trace(&launch, source, "p?ogram", 3);
    char *none = trace(&launch, source, "other", SIM_ALL_WAVES);
    char *beyond = trace(&launch, source, "program", 6);
    assert_int_equal(count(all, "s_mov_b32"), 6);
    for (int i = 0; i < 6; i++) {
        char part[32];
        snprintf(part, sizeof part, ":%d workgroup (%d, 0, 0), wave %d", i, i / 2, i % 2);
        assert_int_equal(count(all, part), 1);
    }
    assert_int_equal(count(fourth, "s_mov_b32"), 1);
    assert_int_equal(count(fourth, ":3 workgroup (1, 0, 0), wave 1"), 1);
    assert_string_equal(none, "");
    assert_int_equal(count(beyond, "\n"), 1); // the title alone
    free(all);
    free(fourth);
    free(none);
    free(beyond);
}

static void test_unwritable_file(void **) {
    char error[SIM_PATH_BYTES + 256];
    sim_look_options options = {.trace = "*", .trace_file = "/nowhere/at/all"};
    assert_false(sim_look_configure(&options, error, sizeof error));
    assert_non_null(strstr(error, "trace_file=/nowhere/at/all: cannot be written: No such file"));
}

/** Redirects standard error to a file. Returns what standard error was before. */
static int redirect(const char *path) {
    const int before = dup(STDERR_FILENO), file = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(before >= 0 && file >= 0);
    dup2(file, STDERR_FILENO);
    close(file);
    return before;
}

/** A full disk is reported once for each file, however much is lost. */
static void test_full_disk(void **) {
    static const char source[] = "s_mov_b32 s3, 1\n s_endpgm\n";
    const test_launch launch = {.arch = "gfx942", .groups = 300, .threads = 64};
    const sim_look_options options = {
        .trace = "*", .trace_wave = SIM_ALL_WAVES, .trace_file = "/dev/full"};
    char told[64];
    make_path(told);
    const int before = redirect(told);
    for (int file = 0; file < 2; file++) {
        configure(&options);
        run_program(&launch, source);
        run_program(&launch, source);
        configure(&(sim_look_options){});
        sim_look_finish();
    }
    dup2(before, STDERR_FILENO);
    close(before);
    char *text = read_file(told);
    unlink(told);
    assert_int_equal(count(text, "\n"), 2);
    assert_int_equal(count(text,
                           "quernsim: trace_file=/dev/full: cannot be written, the trace is not "
                           "whole: No space left on device\n"),
                     2);
    free(text);
}

/** Control characters in a kernel's name do not reach the terminal. */
static void test_hostile_name(void **) {
    const test_launch launch = {
        .arch = "gfx942", .name = "a\x1b[2J\nb\xff\u00e9\u009b", .groups = 1, .threads = 64};
    char *text = trace(&launch, "s_endpgm\n", "*", 0);
    assert_non_null(strstr(text, "kernel a\\x1b[2J\\x0ab\\xff\u00e9\\xc2\\x9b, gfx942"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_of_cdna),    cmocka_unit_test(test_text_of_rdna),
        cmocka_unit_test(test_text_of_changes), cmocka_unit_test(test_choice),
        cmocka_unit_test(test_fault),           cmocka_unit_test(test_unwritable_file),
        cmocka_unit_test(test_full_disk),       cmocka_unit_test(test_hostile_name),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
