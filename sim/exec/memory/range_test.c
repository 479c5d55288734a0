// SPDX-License-Identifier: Apache-2.0
// Tests of what compare and store leaves in LDS, and of which lanes a buffer's range holds, by the
// manual's table.
#include "../exec.h"
#include "../program_testing.h"

static void test_compare_store(void **) {
    program p =
        start("gfx1151",
              "ds_store_b32 v2, v3\n ds_cmpstore_rtn_b32 v20, v2, v5, v6\n ds_load_b32 v21, v2\n");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(p.t, (uint32_t)random_exec(round));
        for (unsigned lane = 0; lane < 32; lane++) {
            p.t->wave.v[2][lane] = 4 * lane;
            p.t->wave.v[6][lane] = next_random() & 1 ? p.t->wave.v[3][lane] : 77;
        }
        memcpy(&p.t->before, &p.t->wave, sizeof p.t->wave);
        run(&p);
        for (unsigned lane = 0; lane < 32; lane++) {
            const sim_wave *b = &p.t->before;
            const bool on = b->exec >> lane & 1, equal = b->v[3][lane] == b->v[6][lane];
            assert_int_equal(p.t->wave.v[20][lane], b->v[on ? 3 : 20][lane]);
            assert_int_equal(p.t->wave.v[21][lane], b->v[!on ? 21 : equal ? 5 : 3][lane]);
        }
    }
    stop(&p);
}

// ---- buffers: what OOB_SELECT checks

enum { BUFFER_BYTES = 4096, STRIDE = 16 };

static bool in_range(unsigned select, uint32_t index, uint32_t offset, uint32_t records) {
    bool held[] = {index < records && offset + 4 <= STRIDE, index < records, records != 0,
                   offset + 4 <= records};
    return held[select];
}

static void check_ranges(program *p, const sim_region *region, unsigned select, uint32_t records) {
    randomise(p->t, UINT32_MAX);
    const uint32_t srd[] = {(uint32_t)region->base,
                            (uint32_t)(region->base >> 32) | (uint32_t)STRIDE << 16, records,
                            select << 28 | 0x31000};
    memcpy(&p->t->wave.s[4], srd, sizeof srd);
    for (unsigned lane = 0; lane < 32; lane++) {
        p->t->wave.v[2][lane] = lane % 8;
        p->t->wave.v[3][lane] = lane / 8 * 8;
    }
    run(p);
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint32_t index = lane % 8, offset = lane / 8 * 8 + 4, want;
        memcpy(&want, region->host + index * STRIDE + offset, sizeof want);
        want = in_range(select, index, offset, records) ? want : 0;
        assert_int_equal(p->t->wave.v[20][lane], want);
    }
}

static void test_buffer_ranges(void **) {
    static const char source[] = "buffer_load_b32 v20, v[2:3], s[4:7], 0 idxen offen offset:4\n";
    sim_memory *memory = sim_memory_create();
    assert_non_null(memory);
    const sim_region *region = sim_memory_alloc(memory, BUFFER_BYTES, SIM_REGION_DEVICE, 0);
    assert_non_null(region);
    for (unsigned i = 0; i < BUFFER_BYTES; i++)
        region->host[i] = (uint8_t)(1 + i % 255);
    program p = start("gfx1151", source);
    p.t->dispatch.memory = memory;
    for (unsigned select = 0; select < 4; select++)
        for (uint32_t records = 0; records < 36; records += 5)
            check_ranges(&p, region, select, records);
    stop(&p);
    sim_memory_destroy(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_compare_store),
                                       cmocka_unit_test(test_buffer_ranges)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
