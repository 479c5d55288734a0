// SPDX-License-Identifier: Apache-2.0
// Code objects as clang makes them, and these objects damaged in every way that is cheap to try.
#include "../chip/chip.h"
#include "../isa/decode.h"
#include "../memory.h"
#include "object.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

static uint8_t *image;
static size_t image_bytes;
static sim_memory *memory;
static char error[512];

static sim_object_status load(const void *bytes, size_t size, sim_object **out) {
    *error = 0;
    *out = nullptr;
    return sim_object_load(out, memory, sim_chip_by_arch(SIM_GFX942), 0, bytes, size, error,
                           sizeof error);
}

static uint8_t *copy_image(void) {
    return memcpy(malloc(image_bytes), image, image_bytes);
}

static void test_kernels(void **state) {
    (void)state;
    sim_object *o;
    assert_int_equal(load(image, image_bytes, &o), SIM_OBJECT_OK);
    const sim_kernel *k = sim_object_kernel(o, "t_reduce");
    assert_non_null(k);
    assert_int_equal(k->lds_bytes, 1024);
    assert_int_equal(k->num_explicit_args, 2);
    assert_int_equal(k->args[1].offset, 8);
    assert_int_equal(k->args[1].bytes, 8);
    assert_int_equal(k->max_threads, 1024);
    const sim_text *text = sim_object_text(o);
    assert_true(k->entry >= text->start && k->entry < text->start + text->size);
    assert_memory_equal(text->bytes + (k->entry - text->start),
                        sim_memory_host(memory, k->entry, 4), 4);
    assert_null(sim_object_kernel(o, "t_none"));
    assert_null(sim_object_kernel(o, "t_reduce.kd"));
    const sim_kernel *ids = sim_object_kernel(o, "t_ids");
    bool has_block_count = false;
    for (uint32_t i = 0; i < ids->num_args; i++)
        has_block_count |= ids->args[i].hidden == SIM_HIDDEN_BLOCK_COUNT_X;
    assert_true(has_block_count);
    sim_object_unload(o);
}

static void test_globals_and_relocations(void **state) {
    (void)state;
    sim_object *o;
    uint64_t addr, bytes, pointers[2];
    assert_int_equal(load(image, image_bytes, &o), SIM_OBJECT_OK);
    assert_true(sim_object_global(o, "table", &addr, &bytes));
    assert_int_equal(bytes, sizeof pointers);
    memcpy(pointers, sim_memory_host(memory, addr, bytes), bytes);
    for (int i = 0; i < 2; i++) {
        uint32_t *value = sim_memory_host(memory, pointers[i], 4);
        assert_non_null(value);
        assert_int_equal(*value, i == 0 ? 3 : 5);
    }
    sim_object_unload(o);
    assert_null(sim_memory_host(memory, addr, 1));
}

static void test_extent(void **state) {
    (void)state;
    assert_int_equal(sim_object_extent(image), image_bytes);
    uint8_t nothing[64] = {0};
    assert_int_equal(sim_object_extent(nothing), 0);
}

/** An image whose headers lead out of readable memory has no length, and crashes nothing. */
static void test_extent_of_damage(void **state) {
    (void)state;
    enum { PAGE = 4096 };
    const size_t room = (image_bytes + PAGE - 1) / PAGE * PAGE;
    uint8_t *block =
        mmap(nullptr, room + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(block != MAP_FAILED && mprotect(block + room, PAGE, PROT_NONE) == 0);
    memcpy(block, image, image_bytes);
    assert_int_equal(sim_object_extent(block), image_bytes);
    Elf64_Ehdr h;
    memcpy(&h, block, sizeof h);
    uint64_t *fields[] = {&h.e_phoff, &h.e_shoff};
    static const uint64_t bad[] = {0x10000000, UINT64_MAX, UINT64_MAX - 100, INT64_MAX};
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            const uint64_t good = *fields[i];
            *fields[i] = bad[k];
            memcpy(block, &h, sizeof h);
            assert_int_equal(sim_object_extent(block), 0);
            *fields[i] = good;
        }
    }
    assert_int_equal(sim_object_extent(block + room), 0);
    for (size_t begin = 1; begin < 64; begin++) { // cut off within the header
        memcpy(block + room - begin, image, begin);
        assert_int_equal(sim_object_extent(block + room - begin), 0);
    }
    char magic[] = "__CLANG_OFFLOAD_BUNDLE__\4\0\0\0\0\0\0";
    memcpy(block + room - sizeof magic, magic, sizeof magic);
    assert_int_equal(sim_object_extent(block + room - sizeof magic), 0);
    munmap(block, room + PAGE);
}

/** Changes bytes of the header and expects a status and a message. */
static void expect(size_t at, uint8_t value, sim_object_status status, const char *message) {
    uint8_t *copy = copy_image();
    sim_object *o;
    copy[at] = value;
    assert_int_equal(load(copy, image_bytes, &o), status);
    assert_null(o);
    if (!strstr(error, message))
        fail_msg("byte %zu: '%s' does not contain '%s'", at, error, message);
    free(copy);
}

static void test_wrong_files(void **state) {
    (void)state;
    sim_object *o;
    enum { FLAGS = offsetof(Elf64_Ehdr, e_flags), MACHINE = offsetof(Elf64_Ehdr, e_machine) };
    assert_int_equal(load("", 0, &o), SIM_OBJECT_INVALID);
    expect(0, 0, SIM_OBJECT_INVALID, "not an ELF64 file");
    expect(EI_CLASS, ELFCLASS32, SIM_OBJECT_INVALID, "not an ELF64 file");
    expect(MACHINE, 62, SIM_OBJECT_INVALID, "machine 62");
    expect(EI_ABIVERSION, 1, SIM_OBJECT_INVALID, "version 3; accepted: 4, 5, 6");
    expect(FLAGS, 0x4F, SIM_OBJECT_WRONG_ARCH, "compiled for gfx950 (machine 0x4f)");
    expect(FLAGS, 0x51, SIM_OBJECT_WRONG_ARCH, "compiled for gfx9-generic (machine 0x51)");
    expect(FLAGS, 0x01, SIM_OBJECT_WRONG_ARCH, "another chip (machine 0x01)");
    expect(FLAGS + 1, 0x07, SIM_OBJECT_WRONG_ARCH, "gfx942:xnack+");
    expect(FLAGS + 1, 0x09, SIM_OBJECT_WRONG_ARCH, "gfx942:sramecc-");
}

/** Wraps the image in a bundle with an entry for the host before it. */
static uint8_t *make_bundle(const char *id, size_t *bytes) {
    const uint64_t at = 4096, count = 2;
    const char *host = "host-x86_64-unknown-linux-gnu";
    uint8_t *bundle = calloc(1, at + image_bytes), *p = bundle + 32;
    memcpy(bundle, "__CLANG_OFFLOAD_BUNDLE__", 24);
    memcpy(bundle + 24, &count, 8);
    const struct {
        uint64_t offset, size, length;
        const char *id;
    } entries[] = {{at, 0, strlen(host), host}, {at, image_bytes, strlen(id), id}};
    for (int i = 0; i < 2; i++) {
        memcpy(p, &entries[i], 24);
        memcpy(p + 24, entries[i].id, entries[i].length);
        p += 24 + entries[i].length;
    }
    memcpy(bundle + at, image, image_bytes);
    *bytes = at + image_bytes;
    return bundle;
}

static void test_bundles(void **state) {
    (void)state;
    static const char *const good[] = {
        "hipv4-amdgcn-amd-amdhsa--gfx942", "hip-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-",
        "hipv4-amdgcn-amd-amdhsa--gfx942:xnack-", "hipv4-amdgcn-amd-amdhsa--gfx9-4-generic",
        "hipv4-amdgcn-amd-amdhsa--gfx9-4-generic:sramecc+"};
    static const char *const bad[] = {
        "hipv4-amdgcn-amd-amdhsa--gfx942:xnack+", "hipv4-amdgcn-amd-amdhsa--gfx942:xnack-:sramecc-",
        "hipv4-amdgcn-amd-amdhsa--gfx942:xnack",  "hipv4-amdgcn-amd-amdhsa--gfx942:",
        "hipv4-amdgcn-amd-amdhsa--gfx9-generic",  "hipv4-amdgcn-amd-amdhsa--gfx9421",
        "hipv4-amdgcn-amd-amdhsa--gfx90a",        "gfx942"};
    sim_object *o;
    size_t bytes;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint8_t *bundle = make_bundle(good[i], &bytes);
        assert_int_equal(sim_object_extent(bundle), bytes);
        assert_int_equal(load(bundle, bytes, &o), SIM_OBJECT_OK);
        sim_object_unload(o);
        assert_int_equal(load(bundle, bytes - 1, &o), SIM_OBJECT_INVALID);
        assert_int_equal(load(bundle, 40, &o), SIM_OBJECT_INVALID);
        free(bundle);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t *bundle = make_bundle(bad[i], &bytes);
        assert_int_equal(load(bundle, bytes, &o), SIM_OBJECT_WRONG_ARCH);
        free(bundle);
    }
    assert_int_equal(load("CCOB1234", 8, &o), SIM_OBJECT_INVALID);
    assert_non_null(strstr(error, "compressed"));
}

/** A file that is cut anywhere is refused, or is still whole where it matters; nothing reads past
 *  its end. */
static void test_truncated(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes < image_bytes; bytes += bytes < 1024 ? 1 : 61) {
        uint8_t *copy = memcpy(malloc(bytes + 1), image, bytes);
        sim_object *o;
        if (load(copy, bytes, &o) == SIM_OBJECT_OK)
            sim_object_unload(o);
        else
            assert_true(*error != 0);
        free(copy);
    }
}

/** Makes an image with `count` copies of a section's header in place of its table. */
static uint8_t *multiply_section(uint32_t type, uint16_t count, size_t *bytes) {
    Elf64_Ehdr h;
    Elf64_Shdr section = {};
    memcpy(&h, image, sizeof h);
    for (uint32_t i = 0; i < h.e_shnum && section.sh_type != type; i++)
        memcpy(&section, image + h.e_shoff + i * sizeof section, sizeof section);
    assert_int_equal(section.sh_type, type);
    const size_t own = h.e_shnum * sizeof section; // links name the old sections
    *bytes = image_bytes + own + count * sizeof section;
    uint8_t *copy = memcpy(malloc(*bytes), image, image_bytes);
    memcpy(copy + image_bytes, image + h.e_shoff, own);
    for (size_t i = 0; i < count; i++)
        memcpy(copy + image_bytes + own + i * sizeof section, &section, sizeof section);
    h.e_shoff = image_bytes;
    h.e_shnum += count;
    memcpy(copy, &h, sizeof h);
    return copy;
}

/** A small file cannot make the reader work for ever, or take all memory. */
static void test_bombs(void **state) {
    (void)state;
    sim_object *o;
    size_t bytes;
    uint8_t *copy = multiply_section(SHT_DYNSYM, 0, &bytes);
    assert_int_equal(load(copy, bytes, &o), SIM_OBJECT_OK);
    sim_object_unload(o);
    free(copy);
    copy = multiply_section(SHT_DYNSYM, 30000, &bytes);
    assert_int_equal(load(copy, bytes, &o), SIM_OBJECT_INVALID);
    assert_non_null(strstr(error, "lie over each other"));
    free(copy);
    copy = copy_image();
    Elf64_Ehdr h;
    memcpy(&h, image, sizeof h);
    for (uint32_t i = 0; i < h.e_phnum; i++) {
        Elf64_Phdr p;
        memcpy(&p, image + h.e_phoff + i * sizeof p, sizeof p);
        p.p_memsz = p.p_flags & PF_X ? 1 << 29 : p.p_memsz;
        memcpy(copy + h.e_phoff + i * sizeof p, &p, sizeof p);
    }
    assert_int_equal(load(copy, image_bytes, &o), SIM_OBJECT_INVALID);
    assert_non_null(strstr(error, "bytes of code in a file of"));
    free(copy);
}

/** One or a few bytes anywhere are set to anything: loading gives a status and never crashes. */
static void test_damaged(void **state) {
    (void)state;
    srand(1);
    int refused = 0;
    for (int i = 0; i < 4000; i++) {
        uint8_t *copy = copy_image();
        for (int n = rand() % 4; n >= 0; n--) {
            // Half of the hits go to the headers, where they hurt.
            const size_t at = (size_t)rand() % (rand() & 1 ? 640 : image_bytes);
            copy[at] = rand() & 1 ? (uint8_t)rand() : (uint8_t)(rand() & 1 ? 0xFF : 0x80);
        }
        sim_object *o;
        if (load(copy, image_bytes, &o) == SIM_OBJECT_OK) {
            sim_object_unload(o);
        } else {
            assert_null(o);
            assert_true(*error != 0);
            refused++;
        }
        free(copy);
    }
    assert_true(refused > 100);
}

static int read_image(void **state) {
    (void)state;
    char path[4096];
    const char *dir = getenv("QUERN_BUILD_DIR");
    snprintf(path, sizeof path, "%s/testdata/kernels.O1.co", dir ? dir : ".");
    FILE *file = fopen(path, "rb");
    if (!file)
        return -1;
    image = malloc(1 << 20);
    image_bytes = fread(image, 1, 1 << 20, file);
    fclose(file);
    memory = sim_memory_create();
    return image_bytes > 0 ? 0 : -1;
}

static int free_image(void **state) {
    (void)state;
    free(image);
    sim_memory_destroy(memory);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels), cmocka_unit_test(test_globals_and_relocations),
        cmocka_unit_test(test_extent),  cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_bundles), cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_extent_of_damage),
        cmocka_unit_test(test_bombs),
    };
    return cmocka_run_group_tests(tests, read_image, free_image);
}
