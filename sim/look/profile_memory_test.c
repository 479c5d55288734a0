// SPDX-License-Identifier: Apache-2.0
// The profile's counters of memory, for programs whose counts follow from their source: the bytes
// that the lanes want, the lines of these bytes, and the LDS banks of their words.
#include "count.h"
#include "profile_testing.h"

// ---- coalescing

/** One wave loads from addresses that are the lane's number times 2^shift, with lines of 128
 *  bytes. */
static void test_lines(void **) {
    static const struct {
        const char *load;
        int shift;
        uint32_t bytes, offset;
        uint32_t lines[2], touched[2]; // of 64 lanes, of 32
    } cases[] = {
        {"global_load_dword v4, v1, s[4:5]", 2, 4, 0, {2, 1}, {256, 128}},
        {"global_load_dword v4, v1, s[4:5] offset:4", 2, 4, 4, {3, 2}, {256, 128}},
        {"global_load_dword v4, v1, s[4:5]", 3, 4, 0, {4, 2}, {256, 128}},
        {"global_load_dword v4, v1, s[4:5]", 7, 4, 0, {64, 32}, {256, 128}},
        {"global_load_dword v4, v1, s[4:5]", 9, 4, 0, {64, 32}, {256, 128}},
        {"global_load_dword v4, v2, s[4:5]", 2, 4, 0, {1, 1}, {4, 4}},
        {"global_load_ubyte v4, v0, s[4:5]", 0, 1, 0, {1, 1}, {64, 32}},
        {"global_load_dwordx2 v[4:5], v1, s[4:5]", 3, 8, 0, {4, 2}, {512, 256}},
        {"global_load_dwordx2 v[4:5], v1, s[4:5]", 2, 8, 0, {3, 2}, {260, 132}},
        {"global_load_dwordx4 v[4:7], v1, s[4:5]", 4, 16, 0, {8, 4}, {1024, 512}},
        {"global_load_dwordx4 v[4:7], v1, s[4:5] offset:120", 7, 16, 120, {65, 33}, {1024, 512}},
    };
    for (size_t i = 1; i < NUM_ARCHS; i++) { // gfx90a has other lines
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            const uint32_t lanes = lanes_of(archs[i]);
            char source[256];
            snprintf(source, sizeof source,
                     "s_load_dwordx2 s[4:5], s[0:1], 0x0\n v_lshlrev_b32 v1, %d, v0\n"
                     "v_mov_b32 v2, 0\n %s\n s_endpgm\n",
                     cases[c].shift, cases[c].load);
            char *json =
                profile(&(test_launch){.arch = archs[i], .groups = 1, .threads = lanes}, source);
            expect(cases[c].load, json, "memory_load_bytes", (uint64_t)lanes * cases[c].bytes);
            expect(cases[c].load, json, is_rdna(archs[i]) ? "TCP_REQ" : "TCP_TOTAL_CACHE_ACCESSES",
                   cases[c].lines[lanes == 32]);
            expect(cases[c].load, json, "memory_line_bytes", 128ull * cases[c].lines[lanes == 32]);
            expect(cases[c].load, json, "memory_touched_bytes", cases[c].touched[lanes == 32]);
            free(json);
        }
    }
}

/** Lanes outside a buffer want nothing; gfx90a's lines have 64 bytes; scratch is interleaved by
 *  dwords. */
static void test_lines_of_others(void **) {
    char *json = profile(&(test_launch){.arch = "gfx90a", .groups = 1, .threads = 64},
                         "s_load_dwordx2 s[8:9], s[0:1], 0x0\n s_movk_i32 s10, 164\n"
                         "s_mov_b32 s11, 0x27000\n v_lshlrev_b32 v1, 2, v0\n"
                         "buffer_load_dword v3, v1, s[8:11], 0 offen\n s_endpgm\n");
    expect("buffer", json, "memory_load_bytes", 164);
    expect("buffer", json, "TCP_TOTAL_CACHE_ACCESSES", 3);
    free(json);
    json = profile(&(test_launch){.arch = "gfx942", .groups = 1, .threads = 64},
                   "s_load_dwordx2 s[8:9], s[0:1], 0x0\n s_movk_i32 s10, 0x100\n"
                   "s_mov_b32 s11, 0x27000\n v_lshlrev_b32 v1, 2, v0\n"
                   "tbuffer_load_format_x v3, v1, s[8:11], 0 "
                   "format:[BUF_DATA_FORMAT_32,BUF_NUM_FORMAT_UINT] offen\n s_endpgm\n");
    expect("typed buffer", json, "memory_load_bytes", 256);
    expect("typed buffer", json, "SQ_INSTS_FLAT", 0);
    free(json);
    json = profile(
        &(test_launch){.arch = "gfx942", .groups = 1, .threads = 64, .scratch_bytes = 64},
        "scratch_store_dwordx4 off, v[0:3], off offset:16\n scratch_load_dword v4, off, off\n"
        "s_endpgm\n");
    expect("scratch", json, "scratch_store_bytes", 1024);
    expect("scratch", json, "scratch_load_bytes", 256);
    expect("scratch", json, "TCP_TOTAL_CACHE_ACCESSES", 4 * 2 + 2);
    expect("scratch", json, "memory_load_bytes", 0);
    free(json);
}

/** Two workgroups of two waves. All waves load the same 16 KiB by dwords of lines that lie 256
 *  bytes apart, twice; each stores 64 dwords of its own, and adds to one of all. */
static void test_footprints(void **) {
    static const char source[] = "s_load_dwordx2 s[4:5], s[0:1], 0x0\n"
                                 "v_and_b32 v1, 63, v0\n v_lshlrev_b32 v2, 8, v1\n"
                                 "global_load_dword v3, v2, s[4:5]\n"
                                 "global_load_dword v3, v2, s[4:5]\n"
                                 "v_lshlrev_b32 v4, 2, v0\n s_lshl_b32 s6, s2, 9\n"
                                 "s_add_u32 s6, s6, 0x4000\n v_add_u32 v4, s6, v4\n"
                                 "global_store_dword v4, v0, s[4:5]\n"
                                 "v_mov_b32 v5, 0\n global_atomic_add v5, v0, s[4:5]\n s_endpgm\n";
    enum { KERNARG = 128, LINE = 128, READ = 64 * LINE, WRITTEN = 4 * LINE };
    char *json = profile(&(test_launch){.arch = "gfx942", .groups = 2, .threads = 128}, source);
    expect("groups", json, "group_load_bytes", 2 * (KERNARG + READ));
    expect("groups", json, "group_store_bytes", 2 * (WRITTEN + LINE));
    expect("launch", json, "launch_load_bytes", KERNARG + READ);
    expect("launch", json, "launch_store_bytes", 2 * WRITTEN + LINE);
    free(json);
    json = profile(&(test_launch){.arch = "gfx90a", .groups = 2, .threads = 128}, source);
    expect("gfx90a", json, "launch_load_bytes", KERNARG + READ);
    free(json);
}

/** The table grows, keeps its lines, and tells line 0 and pages that differ in their upper bits
 *  alone. */
static void test_footprint_table(void **) {
    enum { PAGES = 5000 };
    sim_footprint a = {}, b = {};
    for (uint64_t i = 0; i < PAGES; i++) {
        sim_footprint_add(&a, i << 40);
        sim_footprint_add(&a, (i << 40) + 127); // the same line
        sim_footprint_add(&b, (i << 40) + (i % 2 ? 128 : 0));
    }
    assert_int_equal(sim_footprint_lines(&a), PAGES);
    sim_footprint_merge(&a, &b);
    assert_int_equal(sim_footprint_lines(&a), PAGES + PAGES / 2);
    assert_false(a.is_incomplete);
    sim_footprint_deinit(&a);
    sim_footprint_deinit(&b);
}

/** Copies of global memory straight to LDS, and flat accesses of which some lanes go to LDS. */
static void test_lds_by_other_ways(void **) {
    char *json =
        profile(&(test_launch){.arch = "gfx942", .groups = 1, .threads = 64, .lds_bytes = 1024},
                "s_load_dwordx2 s[4:5], s[0:1], 0x0\n v_lshlrev_b32 v1, 2, v0\n s_mov_b32 m0, 0\n"
                "global_load_lds_dword v1, s[4:5]\n"
                "s_mov_b64 s[6:7], src_shared_base\n v_mov_b32 v2, s4\n v_mov_b32 v3, s5\n"
                "v_mov_b32 v4, s7\n v_cmp_gt_u32 vcc, 16, v0\n v_cndmask_b32 v2, v2, v1, vcc\n"
                "v_cndmask_b32 v3, v3, v4, vcc\n flat_load_dword v5, v[2:3]\n s_endpgm\n");
    expect("lds", json, "lds_dma_bytes", 256);
    expect("lds", json, "memory_load_bytes", 256 + 48 * 4);
    expect("lds", json, "lds_load_bytes", 16 * 4);
    expect("lds", json, "SQ_LDS_BANK_CONFLICT", 0);
    free(json);
}

// ---- LDS banks

typedef struct lds_case {
    const char *access;
    int shift; // of the lane's number, to its address
    struct {
        uint32_t active, conflict;
    } cdna3, cdna4, rdna; // 64 lanes and 32 banks, 64 and 64, 32 and 32
} lds_case;

static void check_lds(const char *arch, const char *address, const char *access, uint32_t active,
                      uint32_t conflict) {
    char source[512];
    snprintf(source, sizeof source, "%s\n %s\n s_endpgm\n", address, access);
    char *json = profile(
        &(test_launch){.arch = arch, .groups = 1, .threads = lanes_of(arch), .lds_bytes = 32768},
        source);
    const bool rdna = is_rdna(arch);
    expect(access, json, rdna ? "SQC_LDS_IDX_ACTIVE" : "SQ_LDS_IDX_ACTIVE", active);
    expect(access, json, rdna ? "SQC_LDS_BANK_CONFLICT" : "SQ_LDS_BANK_CONFLICT", conflict);
    free(json);
}

static void test_banks(void **) {
    static const lds_case cases[] = {
        {"ds_read_b32 v4, v1", 2, {2, 0}, {1, 0}, {1, 0}}, // stride 1 word
        {"ds_read_b32 v4, v1", 3, {4, 2}, {2, 1}, {2, 1}}, // 2 words
        {"ds_read_b32 v4, v1",
         7,
         {64, 62},
         {32, 31},
         {32, 31}}, // 32 words: CDNA4 has two banks for it
        {"ds_read_b32 v4, v1", 8, {64, 62}, {64, 63}, {32, 31}}, // 64 words: one bank
        {"ds_read_b32 v4, v2", 0, {2, 0}, {1, 0}, {1, 0}},       // all lanes the same word
        {"ds_read_u8 v4, v0", 0, {2, 0}, {1, 0}, {1, 0}},        // four lanes a word
        {"ds_write_b32 v1, v3", 2, {2, 0}, {2, 0}, {1, 0}},
        {"ds_write_b32 v1, v3", 3, {4, 2}, {2, 0}, {2, 1}},
        {"ds_read_b64 v[4:5], v1", 3, {4, 0}, {2, 0}, {2, 0}},
        {"ds_read_b64 v[4:5], v1", 4, {8, 4}, {4, 2}, {4, 2}},
        {"ds_write_b64 v1, v[4:5]", 3, {4, 0}, {4, 0}, {2, 0}},
        {"ds_read_b128 v[4:7], v1", 4, {8, 0}, {4, 0}, {4, 0}},
        {"ds_read_b128 v[4:7], v1", 5, {16, 8}, {8, 4}, {8, 4}},
        {"ds_read_b128 v[4:7], v2", 0, {8, 0}, {4, 0}, {4, 0}},
        {"ds_write_b128 v1, v[4:7]", 4, {8, 0}, {8, 0}, {4, 0}},
        {"ds_read2_b32 v[4:5], v1 offset1:1", 2, {4, 0}, {2, 0}, {2, 0}}, // two accesses
        {"ds_add_u32 v1, v3", 2, {2, 0}, {2, 0}, {1, 0}},
        {"ds_add_u32 v2, v3", 2, {64, 62}, {64, 62}, {32, 31}}, // atomics on one word take turns
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const lds_case *c = &cases[i];
        char address[128];
        snprintf(address, sizeof address, "v_lshlrev_b32 v1, %d, v0\n v_mov_b32 v2, 0", c->shift);
        check_lds("gfx90a", address, c->access, c->cdna3.active, c->cdna3.conflict);
        check_lds("gfx942", address, c->access, c->cdna3.active, c->cdna3.conflict);
        check_lds("gfx950", address, c->access, c->cdna4.active, c->cdna4.conflict);
        check_lds("gfx1151", address, c->access, c->rdna.active, c->rdna.conflict);
        check_lds("gfx1201", address, c->access, c->rdna.active, c->rdna.conflict);
    }
}

/** Shows which lanes are served together, by rows of 128 bytes, of which lanes 0 to 15 take the
 *  first 64 bytes and lanes 16 to 31 the others. Eight lanes in order then share 16 banks; the
 *  groups in which the chips read 16 bytes do not. */
static void test_phases(void **) {
    static const char address[] = "v_lshrrev_b32 v1, 2, v0\n v_lshlrev_b32 v1, 7, v1\n"
                                  "v_bfe_u32 v2, v0, 4, 1\n v_lshlrev_b32 v2, 6, v2\n"
                                  "v_or_b32 v1, v1, v2\n v_and_b32 v2, 3, v0\n"
                                  "v_lshlrev_b32 v2, 4, v2\n v_or_b32 v1, v1, v2";
    check_lds("gfx942", address, "ds_read_b128 v[4:7], v1", 8, 0);
    check_lds("gfx942", address, "ds_write_b128 v1, v[4:7]", 16, 8);
    check_lds("gfx950", address, "ds_read_b128 v[4:7], v1", 4, 0);
    check_lds("gfx1151", address, "ds_read_b128 v[4:7], v1", 8, 4);
}

/** Groups without an active lane take no time. */
static void test_inactive_lanes(void **) {
    check_lds("gfx942", "s_mov_b64 exec, 0xff\n v_lshlrev_b32 v1, 7, v0", "ds_read_b32 v4, v1", 8,
              7);
    check_lds("gfx942", "s_mov_b64 exec, 0\n v_mov_b32 v1, 0", "ds_read_b32 v4, v1", 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_lines_of_others),
        cmocka_unit_test(test_footprints),
        cmocka_unit_test(test_footprint_table),
        cmocka_unit_test(test_lds_by_other_ways),
        cmocka_unit_test(test_banks),
        cmocka_unit_test(test_phases),
        cmocka_unit_test(test_inactive_lanes),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
