// SPDX-License-Identifier: Apache-2.0
// Chip files: what is refused, with its line, and that each name acts, on what a program is told of
// the device as well.
#include "../hip/hip.h"
#include "chip_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/chip_file_test.XXXXXX", error[512];

static void write_bytes(const char *text, size_t bytes) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

static void expect_refused_bytes(const char *text, size_t bytes, unsigned line, const char *says) {
    sim_chip_file file;
    char place[sizeof path + 16];
    write_bytes(text, bytes);
    assert_false(sim_chip_file_read(&file, path, error, sizeof error));
    snprintf(place, sizeof place, line ? "%s:%u: " : "%s: ", path, line);
    if (strncmp(error, place, strlen(place)) != 0 || !strstr(error, says))
        fail_msg("'%s' says: %s; expected at %s: %s", text, error, place, says);
}

static void expect_refused(const char *text, unsigned line, const char *says) {
    expect_refused_bytes(text, strlen(text), line, says);
}

static sim_chip_file read_accepted(const char *text) {
    sim_chip_file file;
    write_bytes(text, strlen(text));
    if (!sim_chip_file_read(&file, path, error, sizeof error))
        fail_msg("'%s' is refused: %s", text, error);
    return file;
}

static void test_lines(void **) {
    expect_refused("base gfx942\nunits 80\n", 2, "no entry is named units");
    expect_refused("base gfx942\ncompute_units\n", 2, "not of the form NAME VALUE");
    expect_refused("base gfx942\ncompute_units 80 90\n", 2, "not of the form NAME VALUE");
    expect_refused("base gfx942\ncompute_units 80\n\n# again\ncompute_units 80\n", 5,
                   "compute_units stands a second time");
    expect_refused("base gfx942\nbase gfx942\n", 2, "base stands a second time");
    expect_refused("\nlimit_w 500\nbase gfx942\n", 2, "limit_w stands before base");
    expect_refused("base gfx943\n", 1, "base is gfx943; accepted:");
    expect_refused("base gfx11-generic\n", 1, "base is gfx11-generic; accepted:");
    expect_refused("", 0, "base is missing");
    expect_refused("# base gfx942\n\n", 0, "base is missing");
    expect_refused("base gfx942\ncompute_units 81\n", 0,
                   "compute_units is 81; accepted: a multiple of num_xccs, 8");
    expect_refused("base gfx942\nlimit_w 200\n", 0,
                   "limit_w is 200; accepted: more than static_w, 200");
}

static void test_numbers(void **) {
    static const char *const values[] = {
        "0",   "1025",   "-1",    "+80", "80x",        "0x50",
        "8e1", "eighty", "80,80", "80.", "4294967376", "99999999999999999999999999999999"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[128], says[128];
        snprintf(text, sizeof text, "base gfx942\n\ncompute_units %s", values[i]);
        snprintf(says, sizeof says, "compute_units is %s; accepted: 1 to 1024", values[i]);
        expect_refused(text, 3, says);
    }
}

static void test_bytes(void **) {
    static const char zero[] = "base gfx942\nlimit_w 500\0 and more\n", alone[] = "base gfx942\n\0";
    expect_refused_bytes(zero, sizeof zero - 1, 2, "a byte of zero");
    expect_refused_bytes(alone, sizeof alone - 1, 2, "a byte of zero");
    const sim_chip_file last = read_accepted("base gfx942\nlimit_w 500"); // without a newline
    assert_int_equal(last.timing.limit_w, 500);
    const sim_chip_file dos = read_accepted("base\tgfx942\r\n  limit_w   501 # of 750\r\n");
    assert_int_equal(dos.timing.limit_w, 501);
}

static void test_no_file(void **) {
    sim_chip_file file;
    assert_false(sim_chip_file_read(&file, "/nonesuch/chip", error, sizeof error));
    assert_string_equal(error, "/nonesuch/chip: No such file or directory");
    assert_false(sim_chip_file_read(&file, "/tmp", error, sizeof error));
    assert_string_equal(error, "/tmp: cannot be read: Is a directory");
}

/** Tests that an entry takes its least and its most value, no other, and changes nothing else. */
static void expect_entry(const char *name, size_t offset, uint32_t least, uint32_t most) {
    const sim_chip_file base = read_accepted("base gfx942");
    for (int i = 0; i < 2; i++) {
        char text[256];
        // compute_units must be a multiple of num_xccs, and limit_w above static_w.
        const bool is_xccs = strcmp(name, "num_xccs") == 0,
                   is_units = !strcmp(name, "compute_units"), is_limit = !strcmp(name, "limit_w"),
                   is_static = !strcmp(name, "static_w");
        snprintf(text, sizeof text, "base gfx942\n%s %u\n%s", name, i ? most : least,
                 is_xccs     ? "compute_units 64\n"
                 : is_units  ? "num_xccs 1\n"
                 : is_limit  ? "static_w 0\n"
                 : is_static ? "limit_w 100000\n"
                             : "");
        sim_chip_file file = read_accepted(text);
        uint32_t *const value = (uint32_t *)((char *)&file + offset);
        assert_int_equal(*value, i ? most : least);
        assert_ptr_equal(file.chip.timing, &file.timing);
        memcpy(value, (const char *)&base + offset, sizeof *value);
        file.timing.limit_w = base.timing.limit_w;
        file.timing.static_w = base.timing.static_w;
        file.chip.num_xccs = base.chip.num_xccs;
        file.chip.compute_units = base.chip.compute_units;
        file.chip.timing = base.chip.timing;
        assert_memory_equal(&file.timing, &base.timing, sizeof base.timing);
        assert_memory_equal(&file.chip, &base.chip, sizeof base.chip);
    }
    char text[256];
    snprintf(text, sizeof text, "base gfx942\n%s %llu\n", name, most + 1ULL);
    expect_refused(text, 2, "; accepted: ");
}

static void test_entries(void **) {
    expect_entry("compute_units", offsetof(sim_chip_file, chip.compute_units), 1, 1024);
    expect_entry("num_xccs", offsetof(sim_chip_file, chip.num_xccs), 1, 64);
    expect_entry("clock_khz", offsetof(sim_chip_file, chip.clock_khz), 1000, 100000000);
    expect_entry("l2_bytes", offsetof(sim_chip_file, chip.l2_bytes), 1024, 1 << 30);
#define SIM_TIMING(name, least, most, unit)                                                        \
    expect_entry(#name, offsetof(sim_chip_file, timing.name), least, most);
#include "timing.def"
#undef SIM_TIMING
}

/** Tests that a chip that is written is read as the same chip. */
static void test_written(void **) {
    static const char *const texts[] = {
        "base gfx942", "base gfx950\nl1_ways 8\n",
        "base gfx942\ncompute_units 80\nnum_xccs 4\nhbm_ns 500\nhbm_byte_fj 1\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sim_chip_file file = read_accepted(texts[i]), again;
        file.chip.timing = &file.timing;
        FILE *to = fopen(path, "w");
        assert_non_null(to);
        sim_chip_file_write(to, &file.chip);
        fclose(to);
        assert_true(sim_chip_file_read(&again, path, error, sizeof error));
        assert_memory_equal(&again.timing, &file.timing, sizeof file.timing);
        again.chip.timing = file.chip.timing;
        assert_memory_equal(&again.chip, &file.chip, sizeof file.chip);
    }
}

// ---- devices: each list of options in a process of its own

/** Runs `body` in a child with options, of which "%s" becomes the chip file. Returns the child's
 *  exit status; what it wrote to standard error is in `error`. */
static int in_child(const char *options, int (*body)(void)) {
    char all[256];
    FILE *errors = tmpfile();
    snprintf(all, sizeof all, options, path);
    const pid_t child = fork();
    if (child == 0) {
        dup2(fileno(errors), 2);
        setenv("QUERN_SIM", all, 1);
        _exit(body());
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    rewind(errors);
    error[fread(error, 1, sizeof error - 1, errors)] = 0;
    fclose(errors);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int count(void) {
    int devices;
    return hipGetDeviceCount(&devices) == hipSuccess ? devices : 100;
}

static bool is_half(int device) {
    hipDeviceProp_tR0600 p;
    int units;
    return hipGetDevicePropertiesR0600(&p, device) == hipSuccess && p.multiProcessorCount == 152 &&
           p.clockRate == 1500000 && p.l2CacheSize == 2097152 &&
           hipDeviceGetAttribute(&units, hipDeviceAttributeMultiprocessorCount, device) ==
               hipSuccess &&
           units == 152;
}

static int has_halves(void) {
    return is_half(0) + 2 * is_half(1);
}

/** The first device keeps its chip when a later one gets another. */
static int has_other_later(void) {
    char text[128], other[] = "/tmp/chip_file_test.XXXXXX";
    const int file = mkstemp(other);
    if (!is_half(0) || dprintf(file, "base gfx942\ncompute_units 8\n") < 0)
        return 100;
    snprintf(text, sizeof text, "chip=%s;arch=gfx942", other);
    const int configured = quernsim_configure(text);
    unlink(other);
    return configured == hipSuccess && is_half(0) && !is_half(1) ? 7 : 101;
}

/** Tests that the text which is told has the numbers of the chip file, and those of other chips. */
static int tells_chips(void) {
    char half[4096], other[4096], little[64];
    return quernsim_chip("gfx942", half, sizeof half) && strstr(half, "base gfx942\n") == half &&
                   strstr(half, "\ncompute_units 152\n") && strstr(half, "\nhbm_byte_fj ") &&
                   quernsim_chip("gfx950", other, sizeof other) &&
                   strstr(other, "\ncompute_units 256\n") &&
                   !quernsim_chip("gfx942", little, sizeof little) &&
                   !quernsim_chip("gfx12-generic", other, sizeof other) &&
                   !quernsim_chip("nonesuch", other, sizeof other) &&
                   !quernsim_chip(nullptr, other, sizeof other)
               ? 7
               : 100;
}

static int lists_other_later(void) {
    return quernsim_configure("arch=gfx1151") == hipSuccess ? 1 : 7;
}

static void test_devices(void **) {
    static const char half[] = "base gfx942\ncompute_units 152\nnum_xccs 4\nclock_khz 1500000\n"
                               "l2_bytes 2097152\n";
    write_bytes(half, sizeof half - 1);
    assert_int_equal(in_child("chip=%s", has_halves), 1);
    assert_int_equal(in_child("chip=%s", tells_chips), 7);
    assert_int_equal(in_child("arch=gfx942,gfx942;chip=%s", has_halves), 3);
    assert_int_equal(in_child("chip=%s;arch=gfx1151,gfx942", has_halves), 2);
    assert_int_equal(in_child("arch=gfx942", has_halves), 0);
    assert_int_equal(in_child("chip=%s", has_other_later), 7);
    assert_string_equal(error, "");
}

static void test_no_device(void **) {
    write_bytes("base gfx942", 11);
    assert_int_equal(in_child("arch=gfx1151;chip=%s", count), 100);
    assert_non_null(
        strstr(error, "base is gfx942; accepted: a chip that arch= lists, here gfx1151"));
    assert_int_equal(in_child("chip=%s;arch=gfx90a,gfx1201", count), 100);
    assert_non_null(strstr(error, "here gfx90a and others"));
    assert_int_equal(in_child("chip=%s", lists_other_later), 7);
    assert_non_null(strstr(error, "base is gfx942"));
    write_bytes("base gfx942\nlimit_w x", 21);
    assert_int_equal(in_child("chip=%s", count), 100);
    assert_non_null(strstr(error, ":2: limit_w is x; accepted: 1 to 100000"));
}

int main(void) {
    const int file = mkstemp(path);
    close(file);
    unsetenv("ROCR_VISIBLE_DEVICES");
    unsetenv("HIP_VISIBLE_DEVICES");
    unsetenv("CUDA_VISIBLE_DEVICES");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),   cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_bytes),   cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_entries), cmocka_unit_test(test_written),
        cmocka_unit_test(test_devices), cmocka_unit_test(test_no_device)};
    const int failed = cmocka_run_group_tests(tests, nullptr, nullptr);
    unlink(path);
    return failed;
}
