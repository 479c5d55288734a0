// SPDX-License-Identifier: Apache-2.0
// Tests of exchanges, atomics and compares in LDS, and loads straight to it, each against a formula
// written for the test from the ISA documents.
#include "../../options.h"
#include "../run_testing.h"

#include <math.h>

// ---- lanes have 64 bytes of LDS of their own, so that their order does not matter

static void prepare_lds(void) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        t->wave.v[1][lane] = 64 * lane;
}

static uint64_t lds(const uint8_t *from, unsigned at, unsigned bytes) {
    uint64_t value = 0;
    memcpy(&value, from + at, bytes);
    return value;
}

static void check_exchanges(void) {
    ACTIVE_LANES(lane) {
        const unsigned at = 64 * lane;
        assert_int_equal(t->wave.v[20][lane], lds(t->lds_before, at + 4, 4));
        assert_int_equal(t->wave.v[21][lane], lds(t->lds_before, at + 8, 4));
        assert_int_equal(lds(t->lds, at + 4, 4), t->before.v[2][lane]);
        assert_int_equal(lds(t->lds, at + 8, 4), t->before.v[3][lane]);
        assert_true(wide(&t->wave, 22, lane) == lds(t->lds_before, at + 16, 8));
        assert_true(wide(&t->wave, 24, lane) == lds(t->lds_before, at + 24, 8));
        assert_true(lds(t->lds, at + 16, 8) == wide(&t->before, 4, lane));
        assert_true(lds(t->lds, at + 24, 8) == wide(&t->before, 6, lane));
        uint64_t old = lds(t->lds_before, at + 32, 8), data = wide(&t->before, 8, lane), want = old;
        for (unsigned shift = 0; shift < 64; shift += 32) {
            if (data >> (shift + 31) & 1) {
                want &= ~(UINT64_C(0xffffffff) << shift);
                want |= (data >> shift & 0x7fffffff) << shift;
            }
        }
        assert_true(wide(&t->wave, 26, lane) == old && lds(t->lds, at + 32, 8) == want);
    }
}

static void test_exchanges(void **) {
    run("gfx942",
        "ds_wrxchg2_rtn_b32 v[20:21], v1, v2, v3 offset0:1 offset1:2\n"
        "ds_wrxchg2_rtn_b64 v[22:25], v1, v[4:5], v[6:7] offset0:2 offset1:3\n"
        "ds_condxchg32_rtn_b64 v[26:27], v1, v[8:9] offset:32\n",
        prepare_lds, check_exchanges);
    run("gfx1201",
        "ds_storexchg_2addr_rtn_b32 v[20:21], v1, v2, v3 offset0:1 offset1:2\n"
        "ds_storexchg_2addr_rtn_b64 v[22:25], v1, v[4:5], v[6:7] offset0:2 offset1:3\n"
        "ds_condxchg32_rtn_b64 v[26:27], v1, v[8:9] offset:32\n",
        prepare_lds, check_exchanges);
}

static void check_gfx12_atomics(void) {
    ACTIVE_LANES(lane) {
        const unsigned at = 64 * lane;
        const uint32_t old = (uint32_t)lds(t->lds_before, at, 4), data = t->before.v[2][lane];
        assert_int_equal(lds(t->lds, at, 4), old > data ? old - data : 0);
        const uint32_t second = (uint32_t)lds(t->lds_before, at + 4, 4);
        assert_int_equal(t->wave.v[20][lane], second);
        assert_int_equal(lds(t->lds, at + 4, 4), second >= data ? second - data : second);
        const uint64_t third = lds(t->lds_before, at + 8, 8), mask = wide(&t->before, 4, lane);
        assert_true(lds(t->lds, at + 8, 8) == ((third & ~mask) | wide(&t->before, 6, lane)));
        double x, y, z;
        memcpy(&x, t->lds_before + at + 16, sizeof x);
        uint64_t bits = wide(&t->before, 8, lane);
        memcpy(&y, &bits, sizeof y);
        memcpy(&z, t->lds + at + 16, sizeof z);
        assert_true(isnan(x) || isnan(y) || z == fmax(x, y));
    }
}

static void test_gfx12_atomics(void **) {
    run("gfx1201",
        "ds_sub_clamp_u32 v1, v2\n ds_cond_sub_rtn_u32 v20, v1, v2 offset:4\n"
        "ds_mskor_b64 v1, v[4:5], v[6:7] offset:8\n ds_max_num_f64 v1, v[8:9] offset:16\n",
        prepare_lds, check_gfx12_atomics);
}

static void check_cmpstore(void) {
    ACTIVE_LANES(lane) {
        float old, compare, stored;
        memcpy(&old, t->lds_before + 64 * lane, 4);
        memcpy(&compare, &t->before.v[3][lane], 4);
        memcpy(&stored, t->lds + 64 * lane, 4);
        uint32_t want =
            old == compare ? t->before.v[2][lane] : (uint32_t)lds(t->lds_before, 64 * lane, 4);
        assert_int_equal(lds(t->lds, 64 * lane, 4), want);
    }
}

static void prepare_equal(void) {
    prepare_lds();
    for (unsigned lane = 0; lane < SIM_LANES; lane += 2)
        t->wave.v[3][lane] = (uint32_t)lds(t->lds, 64 * lane, 4);
}

static void test_cmpstore(void **) {
    run("gfx1151", "ds_cmpstore_f32 v1, v2, v3\n", prepare_equal, check_cmpstore);
}

static void prepare_direct(void) {
    static const uint32_t types[] = {0, 1, 2, 4, 5};
    t->wave.m0 = (uint32_t)(next_random() % 1024 * 4) | types[next_random() % 5] << 16;
}

static void check_direct(void) {
    const uint32_t type = OLD(124) >> 16, x = (uint32_t)lds(t->lds_before, OLD(124) & 0xffff, 4);
    const uint32_t want = type == 0   ? x & 255
                          : type == 1 ? x & 0xffff
                          : type == 2 ? x
                          : type == 4 ? (uint32_t)(int8_t)x
                                      : (uint32_t)(int16_t)x;
    ACTIVE_LANES(lane) {
        assert_int_equal(t->wave.v[20][lane], want);
    }
}

static void test_direct(void **) {
    run("gfx1151", "lds_direct_load v20 wait_vdst:15\n", prepare_direct, check_direct);
    run("gfx1201", "ds_direct_load v20 wait_va_vdst:15 wait_vm_vsrc:1\n", prepare_direct,
        check_direct);
}

// ---- floats, rings and masks

static uint64_t lds64(const uint8_t *lds, unsigned at) {
    uint64_t value;
    memcpy(&value, lds + at, sizeof value);
    return value;
}

/** Prepares 32 bytes for each lane. The value to compare with matches in half of them. */
static void prepare_pairs(void) {
    for (unsigned i = 0; i < TEST_LDS_BYTES; i += 8) {
        uint64_t bits = next_biased();
        memcpy(t->lds + i, &bits, sizeof bits);
    }
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        t->wave.v[1][lane] = 32 * lane;
        t->wave.v[2][lane] = (uint32_t)lds64(t->lds, 32 * lane) ^ (lane & 1);
        if (lane % 4 == 0) // the ring is exactly at its step
            memcpy(t->lds + 32 * lane + 8, &t->wave.v[2][lane], 4);
        t->wave.v[8][lane] = (uint32_t)lds64(t->lds, 32 * lane + 24) ^ (lane & 1);
        t->wave.v[9][lane] = (uint32_t)(lds64(t->lds, 32 * lane + 24) >> 32);
    }
}

static void check_pairs(unsigned lane) {
    uint32_t old = (uint32_t)lds64(t->lds_before, 32 * lane), data = before(3, lane);
    const uint32_t ring = (uint32_t)lds64(t->lds_before, 32 * lane + 8);
    const uint64_t masked = lds64(t->lds_before, 32 * lane + 16);
    uint64_t pair64 = lds64(t->lds_before, 32 * lane + 24), compare = wide(&t->before, 8, lane);
    float x, y;
    double p, q;
    memcpy(&x, &old, sizeof x);
    memcpy(&y, &t->before.v[2][lane], sizeof y);
    memcpy(&p, &pair64, sizeof p);
    memcpy(&q, &compare, sizeof q);
    expect(20, lane, old);
    expect(21, lane, ring);
    assert_int_equal((uint32_t)lds64(t->lds, 32 * lane), x == y ? data : old);
    assert_int_equal((uint32_t)lds64(t->lds, 32 * lane + 8),
                     ring >= before(2, lane) ? ring - before(2, lane) : ring + data);
    assert_int_equal(lds64(t->lds, 32 * lane + 16),
                     (masked & ~wide(&t->before, 4, lane)) | wide(&t->before, 6, lane));
    assert_int_equal(lds64(t->lds, 32 * lane + 24), p == q ? wide(&t->before, 6, lane) : pair64);
}

static void test_pairs(void **) {
    run_lanes(
        "gfx950",
        "ds_cmpst_rtn_f32 v20, v1, v2, v3\n ds_wrap_rtn_b32 v21, v1, v2, v3 offset:8\n"
        "ds_mskor_b64 v1, v[4:5], v[6:7] offset:16\n ds_cmpst_f64 v1, v[8:9], v[6:7] offset:24\n",
        prepare_pairs, check_pairs);
}

// ---- loads to LDS: gfx950's 160 KiB need more than 16 bits of M0

enum { BIG_LDS = 163840, DMA_AT = 140000 };

static void check_big_dma(const uint8_t *lds, const uint8_t *memory, bool whole) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        uint8_t zero[16] = {};
        const unsigned at = whole ? DMA_AT : DMA_AT & 0xffff;
        const uint8_t *want = t->before.exec >> lane & 1 ? memory + 16 * (63 - lane) : zero;
        assert_memory_equal(lds + at + 32 + 16 * lane, want, 16);
    }
}

static void run_big_dma(uint8_t *lds, uint64_t guest) {
    size_t size;
    uint8_t *text = assemble("gfx950", "global_load_lds_dwordx4 v[2:3], off offset:32\n", &size);
    sim_inst inst = decode_at("gfx950", text, size, 0);
    memset(lds, 0, BIG_LDS);
    randomise(t, 0x0ff0123456789abc);
    t->wave.m0 = DMA_AT;
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint64_t at = guest + 16 * (63 - lane) - 32;
        t->wave.v[2][lane] = (uint32_t)at;
        t->wave.v[3][lane] = (uint32_t)(at >> 32);
    }
    memcpy(&t->before, &t->wave, sizeof t->wave);
    inst.exec(&t->wave, &inst);
    assert_int_equal(t->wave.state, SIM_RUNNING);
    free(text);
}

static void test_big_lds(void **) {
    start("gfx950");
    static const sim_region nothing;
    sim_memory *memory = t->dispatch.memory = sim_memory_create();
    const uint64_t guest = sim_memory_alloc(memory, 1024, SIM_REGION_DEVICE, 0)->base;
    uint8_t *host = sim_memory_host(memory, guest, 1024), *lds = malloc(BIG_LDS);
    assert_non_null(lds);
    for (unsigned i = 0; i < 1024; i++)
        host[i] = (uint8_t)next_random();
    t->group.lds = lds;
    t->dispatch.lds_bytes = BIG_LDS;
    run_big_dma(lds, guest);
    check_big_dma(lds, host, true);
    t->dispatch.chip = sim_chip_by_name("gfx942"); // takes 16 bits
    run_big_dma(lds, guest);
    check_big_dma(lds, host, false);
    t->dispatch.chip = sim_chip_by_name("gfx950");
    t->dispatch.lds_bytes = TEST_LDS_BYTES;
    t->group.lds = t->lds;
    t->wave.region = &nothing;
    sim_memory_destroy(memory);
    free(lds);
}

/** Tests slots that begin below LDS: their addresses wrap at 32 bits, and nothing outside LDS is
 *  written. */
static void test_dma_below_lds(void **) {
    start("gfx942");
    enum { BELOW = 7 }; // lanes
    sim_memory *memory = t->dispatch.memory = sim_memory_create();
    const uint64_t guest = sim_memory_alloc(memory, 1024, SIM_REGION_DEVICE, 0)->base;
    uint8_t *host = sim_memory_host(memory, guest, 1024);
    size_t size;
    uint8_t *text = assemble("gfx942", "global_load_lds_dword v[2:3], off offset:-28\n", &size);
    sim_inst inst = decode_at("gfx942", text, size, 0);
    for (unsigned i = 0; i < 1024; i++)
        host[i] = (uint8_t)next_random();
    memset(t->lds, 0, TEST_LDS_BYTES);
    randomise(t, UINT64_MAX);
    t->wave.m0 = 0;
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint64_t at = guest + 4 * lane + 28;
        t->wave.v[2][lane] = (uint32_t)at;
        t->wave.v[3][lane] = (uint32_t)(at >> 32);
    }
    t->dispatch.check = SIM_CHECK_BOUNDS;
    inst.exec(&t->wave, &inst);
    assert_memory_equal(t->lds, host + 4 * BELOW, 4 * (SIM_LANES - BELOW));
    for (unsigned i = 4 * (SIM_LANES - BELOW); i < TEST_LDS_BYTES; i++)
        assert_int_equal(t->lds[i], 0);
    assert_int_equal(t->dispatch.faults.count, 1);
    sim_faults_deinit(&t->dispatch.faults);
    free(text);
    sim_memory_destroy(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchanges),    cmocka_unit_test(test_gfx12_atomics),
        cmocka_unit_test(test_cmpstore),     cmocka_unit_test(test_direct),
        cmocka_unit_test(test_pairs),        cmocka_unit_test(test_big_lds),
        cmocka_unit_test(test_dma_below_lds)};
    return cmocka_run_group_tests(tests, nullptr, tear_down);
}
