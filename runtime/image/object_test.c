// SPDX-License-Identifier: Apache-2.0
// Code objects: metadata and code of real ones, damaged ones, and the rule on waits after LDS DMA.
#include "../runtime.h"
#include "../testing.h"
#include "compiler.h"
#include "image.h"
#include "object.h"

#include <elf.h>

// ---- assembling a kernel

typedef struct bytes {
    char *data;
    size_t count;
} bytes;

static bytes read_whole(const char *path) {
    bytes b = {malloc(1 << 20), 0};
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    b.count = fread(b.data, 1, 1 << 20, f);
    fclose(f);
    return b;
}

/** Makes a code object with one kernel `k` of a body, by clang's assembler. */
static bytes assemble(const char *cpu, const char *body) {
    static const char *const rest =
        ".amdhsa_code_object_version 5\n.text\n.globl k\n.p2align 8\n.type k,@function\nk:\n%s\n"
        ".Lend:\n.size k, .Lend-k\n.section .rodata,\"a\"\n.p2align 6\n.amdhsa_kernel k\n"
        ".amdhsa_next_free_vgpr 24\n.amdhsa_next_free_sgpr 16\n.amdhsa_accum_offset 16\n"
        ".amdhsa_group_segment_fixed_size 4096\n.end_amdhsa_kernel\n"
        ".amdgpu_metadata\n---\namdhsa.version: [1, 2]\namdhsa.kernels:\n"
        "  - .name: other\n    .symbol: other.kd\n    .kernarg_segment_size: 8\n"
        "    .group_segment_fixed_size: 1\n    .private_segment_fixed_size: 2\n"
        "    .kernarg_segment_align: 8\n    .wavefront_size: 64\n    .sgpr_count: 16\n"
        "    .vgpr_count: 99\n    .max_flat_workgroup_size: 64\n"
        "  - .name: k\n    .symbol: k.kd\n    .kernarg_segment_size: 72\n"
        "    .group_segment_fixed_size: 4096\n    .private_segment_fixed_size: 12\n"
        "    .kernarg_segment_align: 8\n    .wavefront_size: 64\n    .sgpr_count: 16\n"
        "    .vgpr_count: 24\n    .agpr_count: 8\n    .sgpr_spill_count: 3\n    "
        ".max_flat_workgroup_size: 256\n"
        "    .args:\n      - .size: 72\n        .offset: 0\n        .value_kind: by_value\n"
        "...\n.end_amdgpu_metadata\n";
    char folder[64], source[96], object[96], mcpu[32], output[2000];
    const qni_compiler *compiler = nullptr;
    int exit_code = 0;
    make_folder(folder, sizeof folder);
    snprintf(source, sizeof source, "%s/k.s", folder);
    snprintf(object, sizeof object, "%s/k.co", folder);
    snprintf(mcpu, sizeof mcpu, "-mcpu=%s", cpu);
    FILE *f = fopen(source, "we");
    assert_non_null(f);
    fprintf(f, rest, body);
    fclose(f);
    assert_int_equal(qni_compiler_find(&compiler), QN_OK);
    char *const argv[] = {(char *)compiler->path,
                          "--target=amdgcn-amd-amdhsa",
                          mcpu,
                          "-nogpulib",
                          "-o",
                          object,
                          source,
                          nullptr};
    assert_int_equal(qni_spawn(argv, nullptr, 600, output, sizeof output, &exit_code), QN_OK);
    if (exit_code != 0)
        fail_msg("%s", output);
    bytes b = read_whole(object);
    remove_folder(folder);
    return b;
}

static void test_usage(void **) {
    bytes b = assemble("gfx942", "s_nop 0\ns_endpgm");
    qni_object_kernel k;
    assert_int_equal(qni_object_kernel_find(&k, b.data, b.count, "k"), QN_OK);
    assert_int_equal(k.usage.vgprs, 24);
    assert_int_equal(k.usage.agprs, 8);
    assert_int_equal(k.usage.scratch_bytes, 12);
    assert_int_equal(k.usage.sgpr_spills, 3);
    assert_int_equal(k.usage.lds_bytes, 4096);
    assert_int_equal(k.usage.max_threads, 256);
    assert_int_equal(k.usage.kernarg_bytes, 72);
    assert_int_equal(k.code_bytes, 8);
    assert_memory_equal(k.code, "\x00\x00\x80\xbf\x00\x00\x81\xbf", 8);
    assert_int_equal(qni_object_kernel_find(&k, b.data, b.count, "kk"), QN_E_NOT_FOUND);
    assert_int_equal(qni_object_kernel_find(&k, b.data, b.count, "other"), QN_E_INVALID); // no code
    free(b.data);
}

/** Looks at damaged data: damage must never crash the reader (under sanitizers) and never make it
 *  point outside the file. */
static void look(const char *data, size_t count) {
    qni_object_kernel k;
    if (qni_object_kernel_find(&k, data, count, "k") != QN_OK)
        return;
    assert_true(k.code >= (const uint8_t *)data &&
                k.code + k.code_bytes <= (const uint8_t *)data + count);
    bool is_good;
    size_t at;
    assert_int_equal(qni_waits_check(k.code, k.code_bytes, &is_good, &at), QN_OK);
}

static void test_damage(void **) {
    bytes b = assemble("gfx942", "s_nop 0\ns_endpgm");
    for (size_t count = 0; count < b.count; count++) {
        char *exact = malloc(count + 1); // so that a read past the end is seen
        memcpy(exact, b.data, count);
        look(exact, count);
        free(exact);
    }
    uint64_t random = 88172645463325252u; // xorshift64
    for (int round = 0; round < 20000; round++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        const size_t at = random % b.count;
        const char was = b.data[at];
        b.data[at] = (char)(random >> 32);
        look(b.data, b.count);
        b.data[at] = was;
    }
    free(b.data);
}

/** A symbol table that claims to be larger than the file must not be walked to its claimed end. */
static void test_endless_table(void **) {
    bytes b = assemble("gfx942", "s_endpgm");
    Elf64_Ehdr header;
    Elf64_Shdr section;
    qni_object_kernel k;
    int changed = 0;
    memcpy(&header, b.data, sizeof header);
    for (int i = 0; i < header.e_shnum; i++) {
        char *at = b.data + header.e_shoff + (size_t)i * sizeof section;
        memcpy(&section, at, sizeof section);
        if (section.sh_type != SHT_DYNSYM)
            continue;
        section.sh_size = UINT64_MAX - 100;
        memcpy(at, &section, sizeof section);
        changed++;
    }
    assert_int_equal(changed, 1);
    alarm(20);
    assert_int_equal(qni_object_kernel_find(&k, b.data, b.count, "other"), QN_E_INVALID);
    alarm(0);
    free(b.data);
}

// ---- waits

#define DMA "buffer_load_dword v1, s[4:7], 0 offen lds\n"
#define GLOBAL_DMA "global_load_lds_dword v[2:3], off\n"

static bool is_good(const char *cpu, const char *body) {
    bytes b = assemble(cpu, body);
    qni_object_kernel k;
    bool result = false;
    size_t at = 0;
    assert_int_equal(qni_object_kernel_find(&k, b.data, b.count, "k"), QN_OK);
    assert_int_equal(qni_waits_check(k.code, k.code_bytes, &result, &at), QN_OK);
    if (!result) // the offset is a barrier's
        assert_memory_equal(k.code + at, "\x00\x00\x8a\xbf", 4);
    free(b.data);
    return result;
}

static void test_waits(void **) {
    static const struct {
        const char *body;
        bool is_good;
    } cases[] = {
        {"s_endpgm", true},
        {"s_barrier\ns_endpgm", true},
        {DMA "s_barrier\ns_endpgm", false},
        {GLOBAL_DMA "s_barrier\ns_endpgm", false},
        {DMA "s_waitcnt vmcnt(0)\ns_barrier\ns_endpgm", true},
        {DMA "s_waitcnt vmcnt(28) lgkmcnt(0)\ns_barrier\ns_endpgm", true},
        {DMA "s_waitcnt lgkmcnt(0)\ns_barrier\ns_endpgm", false},
        {"s_waitcnt vmcnt(0)\n" DMA "s_barrier\ns_endpgm", false},
        {"buffer_load_dword v1, v2, s[4:7], 0 offen\ns_barrier\ns_endpgm", true}, // not to LDS
        {"global_load_dword v1, v[2:3], off\ns_barrier\ns_endpgm", true},
        // One of two branches waits; both do.
        {DMA "s_cbranch_scc0 a\ns_waitcnt vmcnt(0)\na: s_barrier\ns_endpgm", false},
        {DMA "s_cbranch_scc0 a\ns_waitcnt vmcnt(0)\ns_branch b\na: s_waitcnt vmcnt(1)\n"
             "b: s_barrier\ns_endpgm",
         true},
        // Over the back edge of a loop.
        {"a: s_barrier\n" DMA "s_cbranch_scc0 a\ns_endpgm", false},
        {"a: s_waitcnt vmcnt(0)\ns_barrier\n" DMA "s_cbranch_scc0 a\ns_endpgm", true},
        {"a: s_barrier\n" DMA "s_cbranch_scc0 a\ns_waitcnt vmcnt(0)\ns_barrier\ns_endpgm", false},
        // Jumped over; ended before.
        {DMA "s_branch a\ns_barrier\na: s_endpgm", true},
        {DMA "s_endpgm\ns_barrier\ns_endpgm", true},
        // Literals that look like barriers and waits, in every format that has one.
        {DMA "s_mov_b32 s0, 0xbf8a0000\ns_add_u32 s0, s1, 0xbf8a0000\n"
             "s_cmp_eq_u32 s0, 0xbf8a0000\ns_setreg_imm32_b32 hwreg(1), 0xbf8a0000\n"
             "v_add_f32 v0, 0xbf8a0000, v1\nv_mov_b32 v0, 0xbf8a0000\n"
             "v_cmp_lt_f32 vcc, 0xbf8a0000, v1\nv_fmaak_f32 v0, v1, v2, 0xbf8a0000\n"
             "v_fmamk_f32 v0, v1, 0xbf8a0000, v2\ns_endpgm",
         true},
        {DMA "s_mov_b32 s0, 0xbf8c0f70\nv_fmaak_f32 v0, v1, v2, 0xbf8c0f70\n"
             "v_mov_b32_dpp v0, v1 row_shl:1\ns_barrier\ns_endpgm",
         false},
        {DMA "v_mfma_f32_32x32x16_fp8_fp8 a[0:15], v[2:3], v[4:5], a[0:15]\nds_read_b32 v0, v1\n"
             "s_load_dword s0, s[2:3], 0\nv_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]\n"
             "s_waitcnt vmcnt(0)\ns_barrier\ns_endpgm",
         true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (is_good("gfx942", cases[i].body) != cases[i].is_good)
            fail_msg("judged wrongly, it is %s:\n%s", cases[i].is_good ? "good" : "bad",
                     cases[i].body);
    assert_false(
        is_good("gfx950", "buffer_load_dwordx4 v1, s[4:7], 0 offen lds\ns_barrier\ns_endpgm"));
    assert_false(is_good("gfx950", "global_load_lds_dwordx4 v[2:3], off\ns_barrier\ns_endpgm"));
    assert_false(is_good("gfx90a", "global_load_dword v[2:3], off lds\ns_barrier\ns_endpgm"));
}

// ---- the images of this build

static void test_built_images(void **) {
    int count = 0;
    for (const qni_image *image = qni_images; image->id; image++, count++) {
        const qni_target *target = qni_target_find(image->target, strlen(image->target));
        assert_non_null(target);
        const bool is_ptx = qni_target_is_ptx(target);
        void *data;
        size_t bytes;
        assert_int_equal(qni_image_unpack(image, &data, &bytes), QN_OK);
        if (!is_ptx)
            assert_memory_equal(data,
                                "\x7f"
                                "ELF",
                                4);
        qni_object_kernel k;
        assert_int_equal((is_ptx ? qni_ptx_kernel_find
                                 : qni_object_kernel_find)(&k, data, bytes, "qk_no_such_kernel"),
                         QN_E_NOT_FOUND); // the whole metadata was read
        free(data);
    }
    assert_true(count > 0);
}

static void test_ptx(void **) {
    static const char text[] =
        ".version 8.0\n.visible .entry kk(\n\t.param .align 8 .b8 kk_param_0[8]\n)\n"
        ".visible .entry k(\n\t.param .align 8 .b8 k_param_0[96]\n)\n{\n}\n"
        ".visible .entry empty()\n{\n}\n.b8 data[4];\n";
    qni_object_kernel k;
    assert_int_equal(qni_ptx_kernel_find(&k, text, sizeof text, "k"), QN_OK);
    assert_int_equal(k.usage.kernarg_bytes, 96);
    assert_int_equal(qni_ptx_kernel_find(&k, text, sizeof text, "kk"), QN_OK);
    assert_int_equal(k.usage.kernarg_bytes, 8);
    assert_int_equal(qni_ptx_kernel_find(&k, text, sizeof text, "kkk"), QN_E_NOT_FOUND);
    assert_int_equal(qni_ptx_kernel_find(&k, text, sizeof text, "empty"), QN_E_INVALID);
    assert_int_equal(qni_ptx_kernel_find(&k, text, sizeof text - 1, "k"), QN_E_INVALID); // no zero
    assert_int_equal(qni_ptx_kernel_find(&k, text, 0, "k"), QN_E_INVALID);
    assert_int_equal(qni_ptx_kernel_find(&k, "kernel", 7, "k"), QN_E_INVALID);
}

/** A kernel's body tells whether it waits by itself; a remark's directives go into the head of the
 *  remark's kernel. */
static void test_ptx_words(void **) {
    static const char text[] = ".version 8.0\n// quern: k .maxnreg 40\n// quern: kkk .maxnreg 80\n"
                               ".entry kk(.param .b8 a[8])\n{\n}\n"
                               ".entry k(.param .b8 a[8])\n{griddepcontrol.wait;}\n"
                               ".entry kkk(.param .b8 a[8])\n{\n}\n"
                               ".visible .global .align 4 .u32 k_lds_bytes = 200000;\n";
    char *bounded = nullptr;
    qni_object_kernel k;
    assert_int_equal(qni_ptx_kernel_find(&k, text, sizeof text, "k"), QN_OK);
    assert_true(k.usage.waits_itself);
    assert_int_equal(k.usage.launch_lds_bytes, 200000);
    assert_int_equal(qni_ptx_kernel_find(&k, text, sizeof text, "kk"), QN_OK);
    assert_false(k.usage.waits_itself);
    assert_int_equal(qni_ptx_kernel_find(&k, text, sizeof text, "kkk"), QN_OK);
    assert_false(k.usage.waits_itself);
    assert_int_equal(k.usage.launch_lds_bytes, 0);
    assert_int_equal(qni_ptx_bound(&bounded, text, sizeof text), QN_OK);
    assert_non_null(strstr(bounded, ".entry kk(.param .b8 a[8])\n{"));
    assert_non_null(strstr(bounded, ".entry k(.param .b8 a[8]) .maxnreg 40\n{griddepcontrol"));
    assert_non_null(strstr(bounded, ".entry kkk(.param .b8 a[8]) .maxnreg 80\n{\n}\n"));
    free(bounded);
}

static void test_capabilities(void **) {
    static const struct {
        int major, minor;
        const char *target;
    } cases[] = {{7, 5, nullptr}, {8, 0, "sm_80"},  {8, 9, "sm_80"},  {9, 0, "sm_90a"},
                 {9, 1, "sm_80"}, {10, 0, "sm_80"}, {12, 0, "sm_80"}, {0, 0, nullptr}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const qni_target *target = qni_target_of_capability(cases[i].major, cases[i].minor);
        if (cases[i].target)
            assert_string_equal(target ? target->name : "none", cases[i].target);
        else
            assert_null(target);
    }
    assert_string_equal(qni_target_generic(qni_target_find("sm_90a", 6))->name, "sm_80");
}

static void test_targets(void **) {
    static const struct {
        const char *arch, *target;
    } cases[] = {{"gfx942:sramecc+:xnack-", "gfx942"},
                 {"gfx1100", "gfx11-generic"},
                 {"gfx1151", "gfx1151"},
                 {"gfx1153", "gfx11-generic"},
                 {"gfx1200", "gfx12-generic"},
                 {"gfx1201", "gfx1201"},
                 {"gfx1250", nullptr},
                 {"gfx94", nullptr},
                 {"gfx9420", nullptr},
                 {"gfx1030", nullptr},
                 {"", nullptr}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const qni_target *target = qni_target_of_arch(cases[i].arch);
        if (cases[i].target)
            assert_string_equal(target ? target->name : "none", cases[i].target);
        else
            assert_null(target);
    }
    assert_string_equal(qni_target_generic(qni_target_find("gfx1201", 7))->name, "gfx12-generic");
    assert_null(qni_target_generic(qni_target_find("gfx942", 6)));
    assert_null(qni_target_generic(qni_target_find("gfx11-generic", 13)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usage),         cmocka_unit_test(test_damage),
        cmocka_unit_test(test_endless_table), cmocka_unit_test(test_waits),
        cmocka_unit_test(test_built_images),  cmocka_unit_test(test_targets),
        cmocka_unit_test(test_ptx),           cmocka_unit_test(test_ptx_words),
        cmocka_unit_test(test_capabilities),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
