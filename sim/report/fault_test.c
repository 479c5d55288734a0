// SPDX-License-Identifier: Apache-2.0
// Reports: runs kernels of testdata/reports.c with known faults, and checks what is reported.
#include "../chip/chip.h"
#include "../memory.h"
#include "../object/elf.h"
#include "../object/object.h"
#include "../options.h"
#include "../pool.h"
#include "../wave.h"
#include "fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 64, OUT_BYTES = 4 * COUNT, MAX_OBJECT = 1 << 20, MAX_REPORT = 1 << 16 };

// ---- one launch

typedef struct launch {
    const char *kernel, *way; // of the object
    uint32_t groups, threads, check, faults;
    uint64_t limit;
    uint64_t args[3]; // behind the buffer's address; FREED: the address of a freed allocation
    bool passes_overreads;
} launch;

constexpr uint64_t FREED = UINT64_MAX;

typedef struct outcome {
    bool ok, are_too_many;
    uint32_t count;
    sim_fault faults[SIM_DEFAULT_FAULTS];
    uint32_t out[COUNT];
    char text[MAX_REPORT], json[MAX_REPORT];
} outcome;

static uint8_t *read_object(const char *way, size_t *size) {
    static uint8_t bytes[MAX_OBJECT];
    const char *folder = getenv("QUERN_BUILD_DIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/testdata/reports.%s.co", folder ? folder : ".", way);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    *size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    return bytes;
}

static void keep(outcome *out, const sim_dispatch *d, const uint32_t *buffer) {
    char *text = sim_faults_text(d), *json = sim_faults_json(d);
    assert_true(strlen(text) < MAX_REPORT && strlen(json) < MAX_REPORT);
    strcpy(out->text, text);
    strcpy(out->json, json);
    free(text);
    free(json);
    out->count = d->faults.count;
    out->are_too_many = d->faults.are_too_many;
    assert_true(out->count <= SIM_DEFAULT_FAULTS);
    memcpy(out->faults, d->faults.list, out->count * sizeof *out->faults);
    memcpy(out->out, buffer, sizeof out->out);
}

static void run_object(const launch *l, const sim_chip *chip, sim_memory *memory,
                       sim_object *object, outcome *out) {
    sim_memory_keep_pages(memory, l->passes_overreads);
    const sim_region *kernarg = sim_memory_alloc(memory, 4096, SIM_REGION_KERNARG, 0);
    const sim_region *buffer = sim_memory_alloc(memory, OUT_BYTES, SIM_REGION_DEVICE, 0);
    const sim_region *freed = sim_memory_alloc(memory, OUT_BYTES, SIM_REGION_DEVICE, 0);
    uint64_t gone = freed->base;
    sim_memory_free(memory, gone);
    memcpy(kernarg->host, &buffer->base, 8);
    for (int i = 0; i < 3; i++)
        memcpy(kernarg->host + 8 + 8 * i, l->args[i] == FREED ? &gone : &l->args[i], 8);
    const sim_kernel *kernel = sim_object_kernel(object, l->kernel);
    assert_non_null(kernel);
    uint32_t threads = l->threads ? l->threads : COUNT;
    for (uint32_t i = 0; i < kernel->num_args; i++) { // of the compiler's own: the block's size
        const sim_arg *arg = &kernel->args[i];
        if (arg->hidden == SIM_HIDDEN_GROUP_SIZE_X)
            memcpy(kernarg->host + arg->offset, &threads, 2);
    }
    sim_dispatch d = {.chip = chip,
                      .memory = memory,
                      .kernel = kernel,
                      .object = object,
                      .text = sim_object_text(object),
                      .grid = {l->groups ? l->groups : 1, 1, 1},
                      .block = {threads, 1, 1},
                      .lds_bytes = kernel->lds_bytes,
                      .kernarg = kernarg->base,
                      .check = l->check,
                      .limit = l->limit,
                      .passes_overreads = l->passes_overreads,
                      .faults = {.max = l->faults}};
    out->ok = sim_dispatch_run(&d);
    keep(out, &d, (const uint32_t *)(const void *)buffer->host);
    sim_faults_deinit(&d.faults);
}

/** Loads an image and runs a kernel of it. Returns false if the image is refused. */
static bool run_image(const launch *l, const uint8_t *image, size_t size, outcome *out) {
    char error[256];
    const sim_chip *chip = sim_chip_by_name(strstr(l->way, "gfx1201") ? "gfx1201" : "gfx942");
    sim_memory *memory = sim_memory_create();
    sim_object *object;
    const bool ok = sim_object_load(&object, memory, chip, 0, image, size, error, sizeof error) ==
                    SIM_OBJECT_OK;
    if (ok) {
        run_object(l, chip, memory, object, out);
        sim_object_unload(object);
    }
    sim_memory_destroy(memory);
    return ok;
}

static outcome *run(launch l) {
    static outcome out;
    size_t size;
    uint8_t *image = read_object(l.way, &size);
    memset(&out, 0, sizeof out);
    assert_true(run_image(&l, image, size, &out));
    return &out;
}

static void expect(const char *text, const char *part) {
    if (!strstr(text, part))
        fail_msg("'%s' is not in: %s", part, text);
}

static unsigned count_lines(const char *text, const char *begin) {
    unsigned n = 0;
    for (const char *line = text; line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : nullptr) {
        n += strncmp(line, begin, strlen(begin)) == 0;
    }
    return n;
}

// ---- launches that go on, and launches that stop

static const launch three = {
    .kernel = "r_three", .way = "O1", .check = SIM_CHECK_BOUNDS, .args = {COUNT, FREED}};

static void test_goes_on(void **) {
    const outcome *o = run(three);
    assert_false(o->ok);
    assert_int_equal(o->count, 3);
    assert_int_equal(count_lines(o->text, "quernsim: kernel r_three: "), 3);
    assert_int_equal(count_lines(o->json, "{"), 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(o->faults[i].count, COUNT); // once for each lane, but reported once
        assert_int_equal(o->faults[i].lane, 0);
    }
    for (uint32_t i = 0; i < COUNT; i++) // loads gave 0, stores went nowhere
        assert_int_equal(o->out[i], 3 * i + 1);
    expect(o->text, "load of 4 bytes at 0x");
    expect(o->text, "0 bytes past the end of a 256-byte allocation");
    expect(o->text, "is a use after free: 0 bytes into a 256-byte allocation");
    expect(o->text, ": global_store_dword v");
    expect(o->text, "; met 64 times\n");
}

static void test_stops(void **) {
    launch l = three;
    l.check = 0;
    const outcome *o = run(l);
    assert_false(o->ok || o->are_too_many);
    assert_int_equal(o->count, 1);
    assert_int_equal(o->out[1], 0);
    l.check = SIM_CHECK_ALL;
    l.faults = 2;
    o = run(l);
    assert_true(!o->ok && o->are_too_many);
    assert_int_equal(o->count, 2);
    assert_int_equal(o->out[1], 0);
    expect(o->text, "r_three: stopped after 2 different faults; faults=N");
    o = run((launch){.kernel = "r_trap", .way = "O1", .check = SIM_CHECK_ALL, .args = {1}});
    assert_true(!o->ok && !o->are_too_many);
    assert_int_equal(o->faults[0].kind, SIM_FAULT_TRAP);
    expect(o->text, ": s_trap 2\n");
}

/** A kernel that waits for a dropped store ends, and the report is not lost. */
static void test_endless(void **) {
    launch l = {.kernel = "r_endless",
                .way = "O1",
                .threads = 1,
                .check = SIM_CHECK_BOUNDS,
                .args = {COUNT}};
    const outcome *o = run(l);
    assert_int_equal(o->faults[0].kind, SIM_FAULT_BOUNDS);
    assert_int_equal(o->faults[o->count - 1].kind, SIM_FAULT_LIMIT);
    expect(o->text, "still running 16777216 instructions after the launch's first fault");
    l.limit = 100000;
    o = run(l);
    expect(o->text, "(limit=100000)");
}

/** Many workgroups on several host threads give one list in every run, with each fault by the
 *  lowest workgroup. */
static void test_threads(void **) {
    enum { GROUPS = 400 };
    static char first[MAX_REPORT];
    launch l = three;
    l.groups = GROUPS;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        sim_pool_configure(threads);
        const outcome *o = run(l);
        assert_true(o->count >= 3);
        for (uint32_t i = 0; i < o->count; i++)
            assert_true(i == 0 || o->faults[i].flat_group >= o->faults[i - 1].flat_group);
        assert_int_equal(o->faults[0].group[0], 0);
        assert_int_equal(o->faults[0].count, COUNT * GROUPS);
        threads == 1 ? strcpy(first, o->text) : nullptr;
        assert_string_equal(o->text, first);
    }
    sim_pool_configure(2);
}

// ---- kinds and what addresses belong to

static void test_kinds(void **) {
    const outcome *o =
        run((launch){.kernel = "r_race", .way = "O1", .threads = 256, .check = SIM_CHECK_RACE});
    assert_int_equal(o->faults[0].kind, SIM_FAULT_RACE);
    expect(o->text, "\n  and r_race+0x");
    expect(o->text, ": ds_write_b32 v");
    expect(o->json, "\"other\": {\"pc\": \"0x");
    expect(o->json, "\"space\": \"lds\"");
    expect(o->json, "\"size\": 1024");
    o = run((launch){.kernel = "r_stack", .way = "O1", .check = SIM_CHECK_BOUNDS, .args = {1000}});
    assert_int_equal(o->faults[0].kind, SIM_FAULT_SCRATCH);
    expect(o->json, "\"kind\": \"scratch-out-of-bounds\"");
    expect(o->json, "\"space\": \"scratch\"");
    o = run((launch){.kernel = "r_lds", .way = "O1", .check = SIM_CHECK_BOUNDS, .args = {256}});
    assert_int_equal(o->faults[0].kind, SIM_FAULT_LDS);
    assert_int_equal(o->faults[0].count, COUNT);
    assert_int_equal(o->out[0], 0);
    expect(o->json, "\"kind\": \"lds-out-of-bounds\"");
    expect(o->json, "\"address\": {\"space\": \"lds\", \"value\": \"0x400\", \"access\": \"load\", "
                    "\"bytes\": 4, \"size\": 1024}");
    o = run((launch){.kernel = "r_code", .way = "O1", .check = SIM_CHECK_BOUNDS});
    assert_int_equal(o->faults[0].kind, SIM_FAULT_CODE);
    assert_int_equal(o->out[1], 7); // it goes on
    expect(o->text, " over code: of r_code+0x");
    expect(o->json, "\"kind\": \"code-overwritten\"");
    expect(o->json, "\"allocation\": {\"kind\": \"code\"");
    o = run((launch){.kernel = "r_table", .way = "O1", .check = SIM_CHECK_BOUNDS, .args = {4099}});
    expect(o->text, "12 bytes past the end of variable table of 16384 bytes");
    expect(o->json, "\"variable\": {\"size\": 16384, \"offset\": 16396, \"name\": \"table\"}");
    expect(o->json, "\"allocation\": {\"kind\": \"code\"");
    o = run(three);
    expect(o->json, "\"kind\": \"use-after-free\"");
    expect(o->json, "\"freed\": true");
    expect(o->json, "\"work_item\": [0, 0, 0]");
}

/** Names may have any bytes, here in a report without a place. */
static void test_strings(void **) {
    static const struct {
        const char *name, *json, *text;
    } names[] = {
        {"plain", "\"plain\"", "plain"},
        {"q\"b\\t\tn\n\x7f", "\"q\\\"b\\\\t\\u0009n\\u000a\\u007f\"", "q\"b\\t\\x09n\\x0a\\x7f"},
        {"\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80", "\"\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80\"",
         "\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xff \xc3", "\"\\u00ff \\u00c3\"", "\\xff \\xc3"},
        {"\xc0\xaf", "\"\\u00c0\\u00af\"", "\\xc0\\xaf"},                 // overlong
        {"\xed\xa0\x80", "\"\\u00ed\\u00a0\\u0080\"", "\\xed\\xa0\\x80"}, // a surrogate
        {"\xf8\x90\x80\x80", "\"\\u00f8\\u0090\\u0080\\u0080\"", "\\xf8\\x90\\x80\\x80"},
        {"\xf5\x80\x80\x80", "\"\\u00f5\\u0080\\u0080\\u0080\"",
         "\\xf5\\x80\\x80\\x80"}}; // past the last character
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char want[128];
        sim_kernel kernel = {.name = (char *)(uintptr_t)names[i].name};
        sim_dispatch d = {.chip = sim_chip_by_name("gfx942"), .kernel = &kernel};
        sim_fault_stop(&d, SIM_FAULT_RESOURCES, "none");
        assert_true(d.stop);
        char *json = sim_faults_json(&d);
        snprintf(want, sizeof want,
                 "{\"kind\": \"resources\", \"kernel\": %s, \"message\": \"none\"", names[i].json);
        expect(json, want);
        free(json);
        char *text = sim_faults_text(&d);
        snprintf(want, sizeof want, "quernsim: kernel %s: none\n", names[i].text);
        assert_string_equal(text, want);
        free(text);
        sim_faults_deinit(&d.faults);
    }
}

// ---- source lines

/** Checks that the line which a fault's report names has `comment`. */
static void expect_line(const outcome *o, const char *comment) {
    const char *at = o->text;
    char path[512], line[512], want[600];
    unsigned number;
    while ((at = strstr(at, " ("))) {
        at += 2;
        if (*at != '/' || sscanf(at, "%511[^:]:%u", path, &number) != 2)
            continue;
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        for (unsigned i = 0; i < number; i++)
            assert_non_null(fgets(line, sizeof line, file));
        fclose(file);
        if (strstr(line, comment)) {
            snprintf(want, sizeof want, "\"line\": %u, \"file\": \"%s\"", number, path);
            expect(o->json, want);
            return;
        }
    }
    fail_msg("no line with '%s' is named in: %s", comment, o->text);
}

static void test_lines(void **) {
    static const char *const ways[] = {"dwarf4", "dwarf5"};
    for (int i = 0; i < 2; i++) {
        launch l = three;
        l.way = ways[i];
        const outcome *o = run(l);
        expect_line(o, "// load past the end");
        expect_line(o, "// store past the end");
        expect_line(o, "// load of freed memory");
        o = run((launch){
            .kernel = "r_function", .way = ways[i], .check = SIM_CHECK_BOUNDS, .args = {COUNT}});
        expect_line(o, "// store in a function");
        expect(o->text, "\n  at put+0x"); // though put lies before the kernel
        expect(o->json, "\"function\": \"put\", \"offset\": ");
        assert_null(strstr(o->text, "r_function-0x"));
        o = run(
            (launch){.kernel = "r_lds", .way = ways[i], .check = SIM_CHECK_BOUNDS, .args = {256}});
        expect_line(o, "// load past LDS");
        expect_line(run((launch){.kernel = "r_code", .way = ways[i]}), "// store over code");
    }
    const outcome *o = run(three);
    assert_null(strstr(o->text, "reports.c"));
    assert_null(strstr(o->json, "\"source\""));
}

/** Loads past an allocation's end that hit its last page are faults, unless an option lets them
 *  pass. */
static void test_overread(void **) {
    enum { PAGE = 65536 };
    launch l = {.kernel = "r_past", .way = "dwarf5", .args = {COUNT}};
    const outcome *o = run(l);
    assert_false(o->ok);
    assert_int_equal(o->faults[0].kind, SIM_FAULT_BOUNDS);
    for (int i = 0; i < 2; i++) {
        l.passes_overreads = true;
        l.check = i ? SIM_CHECK_ALL : 0;
        o = run(l);
        assert_true(o->ok && o->count == 1);
        assert_int_equal(o->out[COUNT - 1], 5);
        expect(o->text,
               "is out of bounds, in a page that is mapped: 0 bytes past the end of a 256");
        expect(o->text, "; met 64 times\n");
        expect(o->json, "\"kind\": \"over-read\"");
        expect_line(o, "// load past the end, in the page");
    }
    l.args[0] = PAGE / 4; // the guard page behind
    o = run(l);
    assert_false(o->ok);
    assert_int_equal(o->faults[0].kind, SIM_FAULT_BOUNDS);
    l = three; // its stores fail, and loads of freed memory
    l.passes_overreads = true;
    o = run(l);
    assert_false(o->ok);
    assert_int_equal(o->count, 3);
}

static uint64_t next_random(void) {
    static uint64_t state = 88172645463325252;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/** Changes a byte of a section that is not loaded: line tables, strings, symbols. */
static void damage(uint8_t *image, size_t size) {
    sim_elf elf;
    Elf64_Shdr section;
    size_t count = 0;
    assert_true(sim_elf_init(&elf, image, size));
    while (sim_elf_section(&elf, count, &section))
        count++;
    do {
        assert_true(sim_elf_section(&elf, next_random() % count, &section));
    } while ((section.sh_flags & SHF_ALLOC) || !section.sh_size || section.sh_type == SHT_NOBITS);
    image[section.sh_offset + next_random() % section.sh_size] = (uint8_t)next_random();
}

/** Damaged line tables give wrong lines or none, but the faults are reported. */
static void test_damaged_lines(void **) {
    enum { ROUNDS = 400 };
    static uint8_t whole[MAX_OBJECT];
    static outcome out;
    for (int round = 0; round < ROUNDS; round++) {
        size_t size;
        launch l = three;
        l.way = round & 1 ? "dwarf4" : "dwarf5";
        memcpy(whole, read_object(l.way, &size), MAX_OBJECT);
        for (uint64_t n = next_random() % 64 + 1; n; n--)
            damage(whole, size);
        memset(&out, 0, sizeof out);
        assert_true(run_image(&l, whole, size, &out));
        assert_int_equal(out.count, 3);
        expect(out.text, "quernsim: kernel r_three: ");
    }
}

static void test_rdna(void **) {
    launch l = three;
    l.way = "gfx1201.O3";
    const outcome *o = run(l);
    assert_int_equal(o->count, 3);
    expect(o->text, ": global_load_b32 v");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),       cmocka_unit_test(test_stops),
        cmocka_unit_test(test_endless),       cmocka_unit_test(test_overread),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_strings),       cmocka_unit_test(test_lines),
        cmocka_unit_test(test_damaged_lines), cmocka_unit_test(test_rdna)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
