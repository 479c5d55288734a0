// SPDX-License-Identifier: Apache-2.0
// Tests of memory instructions: LDS, global, flat, scratch and buffer forms, atomics, LDS-DMA,
// scalar loads, against a model of bytes.
#include "../../options.h"
#include "../exec_testing.h"

enum { ROUNDS = 30, BYTES = 16384, SCRATCH = 256 };

static test_wave *t;
static uint8_t model[BYTES], lds_model[TEST_LDS_BYTES];
static uint8_t *memory; // host address of the guest's BYTES bytes
static uint64_t guest;
static uint8_t scratch[SIM_LANES * SCRATCH];

static int set_up(void **) {
    t = make_wave("gfx942");
    t->dispatch.check = SIM_CHECK_BOUNDS; // faults are recorded, and the wave goes on
    t->dispatch.memory = sim_memory_create();
    guest = sim_memory_alloc(t->dispatch.memory, BYTES, SIM_REGION_DEVICE, 0)->base;
    memory = sim_memory_host(t->dispatch.memory, guest, BYTES);
    t->wave.scratch = scratch;
    t->wave.scratch_bytes = SCRATCH;
    return 0;
}

static int tear_down(void **) {
    sim_memory_destroy(t->dispatch.memory);
    free(t);
    return 0;
}

static void fill_random(void *out, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)out)[i] = (uint8_t)next_random();
}

#define LANES(lane) for (unsigned lane = 0; lane < SIM_LANES; lane++)
#define V(reg, lane) (t->wave.v[reg][lane])
#define B(reg, lane) (t->before.v[reg][lane])

static bool active(unsigned lane) {
    return t->before.exec >> lane & 1;
}

/** Runs the instructions of `source` one after another, after `prepare` has set registers and
 *  before `check`. */
static void run(const char *source, void (*prepare)(void), void (*check)(void)) {
    size_t size;
    uint8_t *text = assemble("gfx942", source, &size);
    for (unsigned round = 0; round < 2 * ROUNDS; round++) {
        randomise(t, random_exec(round / 2));
        fill_random(memory, BYTES);
        fill_random(t->lds, TEST_LDS_BYTES);
        prepare();
        memcpy(model, memory, BYTES);
        memcpy(lds_model, t->lds, TEST_LDS_BYTES);
        memcpy(&t->before, &t->wave, sizeof t->wave);
        for (size_t at = 0; at < size;) {
            sim_inst inst = decode_at("gfx942", text, size, at);
            (round & 1 ? inst.exec : sim_opcode_portable(inst.opcode)->exec)(&t->wave, &inst);
            at += inst.bytes;
        }
        assert_int_equal(t->wave.state, SIM_RUNNING);
        check();
        sim_faults_deinit(&t->dispatch.faults);
    }
    free(text);
}

static uint32_t dword(const uint8_t *from) {
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static void check_register(int reg, unsigned lane, uint32_t want) {
    const uint32_t right = active(lane) ? want : B(reg, lane);
    if (V(reg, lane) != right)
        fail_msg("v%d lane %u: got %08x, want %08x", reg, lane, V(reg, lane), right);
}

// ---- LDS

/** Sets v1 to addresses, 16 bytes apart in random order, some beyond the end. */
static void prepare_lds(void) {
    LANES(lane) {
        const uint64_t r = next_random();
        V(1, lane) = (uint32_t)(16 * (lane * 37 % 64) + 1024 * (r % 4) + (r >> 8) % 13);
        V(1, lane) = (r >> 32) % 16 ? V(1, lane) : TEST_LDS_BYTES - 8 + (uint32_t)(r >> 40) % 64;
    }
}

/** Sets v1 to addresses of sixteen lanes side by side, some further or nearer, all at one place, or
 *  anywhere. EXEC has whole sixteens. */
static void prepare_lds_chunks(void) {
    static const uint32_t strides[] = {0, 4, 8, 16, 4, 8, 16, 12};
    uint64_t exec = 0;
    for (unsigned chunk = 0; chunk < SIM_LANES; chunk += 16) {
        const uint64_t r = next_random();
        const uint32_t base = (uint32_t)(r % 512), stride = strides[r >> 16 & 7];
        exec |= (r >> 32 & 3 ? UINT64_C(0xffff) : 0) << chunk;
        for (unsigned i = 0; i < 16; i++) {
            V(1, chunk + i) = base + stride * i;
            const bool strays = (r >> 40 & 3) == 0 && next_random() % 16 == 0;
            V(1, chunk + i) += strays ? (uint32_t)(next_random() % 64) : 0;
        }
    }
    t->wave.exec = exec ? exec : 0xffff;
}

static uint32_t lds_dword(uint64_t at, unsigned bytes) {
    return at + bytes <= TEST_LDS_BYTES ? dword(lds_model + at) : 0;
}

static uint32_t lds_narrow(uint64_t at, unsigned bytes) {
    uint32_t value = 0;
    if (at + bytes <= TEST_LDS_BYTES)
        memcpy(&value, lds_model + at, bytes);
    return value;
}

static void check_lds_reads(void) {
    LANES(lane) {
        const uint64_t a = B(1, lane);
        check_register(20, lane, lds_dword(a + 4, 4));
        for (unsigned k = 0; k < 4; k++) {
            const uint64_t at = a + 16 + 4 * k;
            check_register(24 + (int)k, lane, a + 32 <= TEST_LDS_BYTES ? dword(lds_model + at) : 0);
        }
        check_register(30, lane, lds_dword(a + 12, 4));
        check_register(31, lane, lds_dword(a + 4, 4));
        check_register(32, lane, a + 520 <= TEST_LDS_BYTES ? dword(lds_model + a + 512) : 0);
        check_register(33, lane, a + 520 <= TEST_LDS_BYTES ? dword(lds_model + a + 516) : 0);
        check_register(34, lane, a + 8 <= TEST_LDS_BYTES ? dword(lds_model + a) : 0);
        check_register(36, lane, lds_narrow(a, 1));
        check_register(37, lane, (uint32_t)(int16_t)lds_narrow(a + 2, 2));
        check_register(38, lane, (B(38, lane) & 0xffff) | lds_narrow(a, 2) << 16);
        check_register(39, lane, (B(39, lane) & 0xffff0000) | (uint16_t)(int8_t)lds_narrow(a, 1));
    }
}

static const char lds_reads[] =
    "ds_read_b32 v20, v1 offset:4\n ds_read_b128 v[24:27], v1 offset:16\n"
    "ds_read2_b32 v[30:31], v1 offset0:3 offset1:1\n ds_read2st64_b64 v[32:35], v1 offset0:1\n"
    "ds_read_u8 v36, v1\n ds_read_i16 v37, v1 offset:2\n ds_read_u16_d16_hi v38, v1\n "
    "ds_read_i8_d16 v39, v1\n";

static void test_lds_reads(void **) {
    run(lds_reads, prepare_lds, check_lds_reads);
    run(lds_reads, prepare_lds_chunks, check_lds_reads);
}

/** Sets bases below zero. clang adds offsets to such bases: the sum wraps at 32 bits. */
static void prepare_negative_bases(void) {
    LANES(lane) V(1, lane) = 4 * lane - 64;
}

static void check_negative_bases(void) {
    LANES(lane) check_register(20, lane, dword(lds_model + 4 * lane));
}

static void test_lds_offset_wraps(void **) {
    run("ds_read_b32 v20, v1 offset:64\n", prepare_negative_bases, check_negative_bases);
}

static void write_lds_model(uint64_t at, const void *data, unsigned bytes) {
    if (at + bytes <= TEST_LDS_BYTES)
        memcpy(lds_model + at, data, bytes);
}

static void check_lds_writes(void) {
    static const struct {
        unsigned offset, dwords;
        int reg;
    } writes[] = {{0, 4, 4}, {4096, 1, 8}, {1024, 2, 10}, {2048, 2, 12}};
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++) {
        LANES(lane) {
            uint32_t data[4];
            for (unsigned k = 0; k < writes[i].dwords; k++)
                data[k] = B(writes[i].reg + (int)k, lane);
            if (active(lane)) {
                write_lds_model(B(1, lane) + (uint64_t)writes[i].offset, data,
                                4 * writes[i].dwords);
            }
        }
    }
    LANES(lane) {
        uint16_t high = (uint16_t)(B(14, lane) >> 16);
        if (active(lane))
            write_lds_model(B(1, lane) + UINT64_C(6144), &high, 2);
    }
    LANES(lane) {
        uint8_t byte = (uint8_t)B(14, lane);
        if (active(lane))
            write_lds_model(B(1, lane) + UINT64_C(6150), &byte, 1);
    }
    assert_memory_equal(t->lds, lds_model, TEST_LDS_BYTES);
    assert_memory_equal(&t->wave, &t->before, sizeof t->wave);
}

static const char lds_writes[] =
    "ds_write_b128 v1, v[4:7]\n ds_write_b32 v1, v8 offset:4096\n"
    "ds_write2st64_b64 v1, v[10:11], v[12:13] offset0:2 offset1:4\n ds_write_b16_d16_hi v1, "
    "v14 offset:6144\n"
    "ds_write_b8 v1, v14 offset:6150\n";

static void test_lds_writes(void **) {
    run(lds_writes, prepare_lds, check_lds_writes);
    run(lds_writes, prepare_lds_chunks, check_lds_writes);
}

// ---- global memory. v[2:3]: addresses, v1: 32-bit offsets from s[2:3]

static void prepare_global(void) {
    LANES(lane) {
        const uint64_t r = next_random(), at = 64 * (uint64_t)(lane * 13 % 64) + 4096 + 4 * (r % 8);
        V(1, lane) = (uint32_t)at;
        V(2, lane) = (uint32_t)(guest + at);
        V(3, lane) = (uint32_t)((guest + at) >> 32);
    }
    t->wave.s[2] = (uint32_t)guest;
    t->wave.s[3] = (uint32_t)(guest >> 32);
}

/** Prepares the same with sixteen lanes side by side or not. */
static void prepare_global_chunks(void) {
    prepare_lds_chunks();
    LANES(lane) {
        V(1, lane) += 4096;
        V(2, lane) = (uint32_t)(guest + V(1, lane));
        V(3, lane) = (uint32_t)((guest + V(1, lane)) >> 32);
    }
    t->wave.s[2] = (uint32_t)guest;
    t->wave.s[3] = (uint32_t)(guest >> 32);
}

static void check_global_loads(void) {
    LANES(lane) {
        const uint8_t *p = model + B(1, lane);
        uint16_t half;
        memcpy(&half, p + 2, sizeof half);
        for (int k = 0; k < 4; k++)
            check_register(20 + k, lane, dword(p - 16 + 4 * k));
        check_register(24, lane, dword(p + 32));
        check_register(25, lane, *(p + 1));
        check_register(26, lane, (uint32_t)(int8_t)*(p + 1));
        check_register(27, lane, (uint32_t)(int16_t)half);
        check_register(28, lane, (B(28, lane) & 0xffff) | (uint32_t)half << 16);
        check_register(2, lane, dword(p + 8)); // loads over its own address
        check_register(3, lane, dword(p + 12));
    }
}

static const char global_loads[] =
    "global_load_dwordx4 v[20:23], v[2:3], off offset:-16\n global_load_dword v24, v1, s[2:3] "
    "offset:32\n"
    "global_load_ubyte v25, v1, s[2:3] offset:1\n global_load_sbyte v26, v1, s[2:3] offset:1\n"
    "flat_load_sshort v27, v[2:3] offset:2\n global_load_short_d16_hi v28, v1, s[2:3] "
    "offset:2\n"
    "flat_load_dwordx2 v[2:3], v[2:3] offset:8\n";

static void test_global_loads(void **) {
    run(global_loads, prepare_global, check_global_loads);
    run(global_loads, prepare_global_chunks, check_global_loads);
}

static void check_global_stores(void) {
    LANES(lane) {
        if (active(lane)) {
            uint8_t *p = model + B(1, lane);
            for (int k = 0; k < 3; k++)
                memcpy(p + 4 * k, &B(4 + k, lane), 4);
            uint16_t high = (uint16_t)(B(8, lane) >> 16);
            memcpy(p + 14, &high, 2);
            p[16] = (uint8_t)B(8, lane);
        }
    }
    assert_memory_equal(memory, model, BYTES);
    assert_memory_equal(&t->wave, &t->before, sizeof t->wave);
}

static void test_global_stores(void **) {
    run("global_store_dwordx3 v[2:3], v[4:6], off\n global_store_short_d16_hi v1, v8, s[2:3] "
        "offset:14\n"
        "flat_store_byte v[2:3], v8 offset:16\n",
        prepare_global, check_global_stores);
}

// ---- scratch, and flat addresses of all three kinds

static void prepare_scratch(void) {
    fill_random(scratch, sizeof scratch);
    t->wave.s[4] = 32;
    LANES(lane) {
        const uint64_t at = 4 * (next_random() % 32);
        uint64_t bases[] = {guest + 8192 + 128 * lane, SIM_SHARED_APERTURE + 16 * lane,
                            SIM_PRIVATE_APERTURE};
        const uint64_t flat = bases[next_random() % 3] + at % 16;
        V(1, lane) = (uint32_t)at;
        V(2, lane) = (uint32_t)flat;
        V(3, lane) = (uint32_t)(flat >> 32);
    }
}

static void check_scratch(void) {
    LANES(lane) {
        const uint8_t *own = scratch + SCRATCH * lane;
        const uint64_t flat = B(2, lane) | (uint64_t)B(3, lane) << 32;
        const uint8_t *at =
            flat >= SIM_PRIVATE_APERTURE && flat - SIM_PRIVATE_APERTURE < SCRATCH
                ? own + (uint32_t)flat
            : flat >= SIM_SHARED_APERTURE && flat - SIM_SHARED_APERTURE < TEST_LDS_BYTES
                ? lds_model + (uint32_t)flat
                : model + (flat - guest);
        check_register(20, lane, dword(own + B(1, lane) + 8));
        check_register(21, lane, dword(own + 32 + 64));
        check_register(22, lane, dword(at));
        if (active(lane))
            assert_int_equal(dword(own + 200), B(9, lane));
    }
}

static void test_scratch(void **) {
    run("scratch_load_dword v20, v1, off offset:8\n scratch_load_dword v21, off, s4 offset:64\n"
        "flat_load_dword v22, v[2:3]\n scratch_store_dword off, v9, off offset:200\n",
        prepare_scratch, check_scratch);
}

// ---- buffers: s[4:7] raw of 6000 bytes, s[8:11] structured, 100 records of 24 bytes

static void prepare_buffer(void) {
    const uint64_t raw = guest + 1024, structured = guest + 8192;
    uint32_t descriptors[] = {(uint32_t)raw,
                              (uint32_t)(raw >> 32),
                              6000,
                              0x00027000,
                              (uint32_t)structured,
                              (uint32_t)(structured >> 32) | 24 << 16,
                              100,
                              0x00027000};
    memcpy(&t->wave.s[4], descriptors, sizeof descriptors);
    t->wave.s[3] = 16; // soffset
    LANES(lane) {
        const uint64_t r = next_random();
        V(1, lane) = (uint32_t)(4 * (r % 1504));
        V(1, lane) = r >> 32 & 7 ? V(1, lane) : 0x80000000;
        V(2, lane) = (uint32_t)(r >> 40) % 110; // index
        V(3, lane) = 4 * ((uint32_t)(r >> 52) % 4);
    }
}

static void check_buffer_loads(void) {
    LANES(lane) {
        for (unsigned k = 0; k < 4; k++) { // each dword has its own check, soffset included
            const uint64_t offset = (uint64_t)B(1, lane) + 8 + 4 * k;
            check_register(20 + (int)k, lane,
                           offset + 16 + 4 <= 6000 ? dword(model + 1024 + 16 + offset) : 0);
        }
        const uint64_t at = 8192 + 24 * (uint64_t)B(2, lane) + B(3, lane) + 4;
        check_register(24, lane, B(2, lane) < 100 ? dword(model + at) : 0);
        const uint64_t byte = (uint64_t)B(1, lane) + 3;
        check_register(25, lane, byte + 1 <= 6000 ? model[1024 + byte] : 0);
    }
}

static void test_buffer_loads(void **) {
    run("buffer_load_dwordx4 v[20:23], v1, s[4:7], s3 offen offset:8\n"
        "buffer_load_dword v24, v[2:3], s[8:11], 0 idxen offen offset:4\n"
        "buffer_load_ubyte v25, v1, s[4:7], 0 offen offset:3\n",
        prepare_buffer, check_buffer_loads);
}

static void check_buffer_stores(void) {
    LANES(lane) {
        for (unsigned k = 0; k < 2 && active(lane); k++) {
            const uint64_t offset = (uint64_t)B(1, lane) + 4 * k;
            if (offset + 4 <= 6000)
                memcpy(model + 1024 + offset, &B(30 + (int)k, lane), 4);
        }
    }
    assert_memory_equal(memory, model, BYTES);
}

static void prepare_buffer_stores(void) {
    prepare_buffer();
    LANES(lane) { // no two lanes may write the same place
        V(1, lane) = V(1, lane) == 0x80000000
                         ? V(1, lane)
                         : 5992 - 96 * (63 - lane) + 4 * (uint32_t)(next_random() % 2);
    }
}

static void test_buffer_stores(void **) {
    run("buffer_store_dwordx2 v[30:31], v1, s[4:7], 0 offen\n", prepare_buffer_stores,
        check_buffer_stores);
}

// ---- LDS-DMA

static void prepare_dma(void) {
    prepare_buffer();
    t->wave.m0 = 512;
}

static void check_dma(void) {
    LANES(lane) {
        const uint64_t offset = (uint64_t)B(1, lane) + 12;
        uint32_t value = offset + 4 <= 6000 ? dword(model + 1024 + offset) : 0;
        if (active(lane)) // the slot of an inactive lane keeps its value
            memcpy(lds_model + 512 + 12 + 4 * lane, &value, 4);
    }
    assert_memory_equal(t->lds, lds_model, TEST_LDS_BYTES);
    assert_memory_equal(t->wave.v, t->before.v, sizeof t->wave.v);
}

static void test_dma(void **) {
    run("buffer_load_dword v1, s[4:7], 0 offen offset:12 lds\n", prepare_dma, check_dma);
}

// ---- atomics: lanes may share an address; they act in order

static void prepare_atomics(void) {
    t->wave.s[2] = (uint32_t)guest;
    t->wave.s[3] = (uint32_t)(guest >> 32);
    LANES(lane) {
        V(1, lane) = 8 * (uint32_t)(next_random() % 40);
    }
}

static void check_atomics(void) {
    for (int step = 0; step < 6; step++) {
        LANES(lane) {
            uint8_t *p = model + 256 * step + B(1, lane), *q = lds_model + B(1, lane);
            const uint32_t old = dword(p), data = B(4, lane), compare = B(5, lane);
            uint64_t old64, data64 = data | (uint64_t)compare << 32;
            memcpy(&old64, p, 8);
            if (!active(lane))
                continue;
            uint32_t next[] = {old + data, (int32_t)old > (int32_t)data ? old : data,
                               old == compare ? data : old, old >= data ? 0 : old + 1};
            if (step < 4) {
                check_register(20 + step, lane, old);
                memcpy(p, &next[step], 4);
            } else if (step == 4) {
                old64 += data64;
                memcpy(p, &old64, 8);
            } else {
                check_register(25, lane, dword(q));
                uint32_t sum = dword(q) + data;
                memcpy(q, &sum, 4);
            }
        }
    }
    assert_memory_equal(memory, model, BYTES);
    assert_memory_equal(t->lds, lds_model, TEST_LDS_BYTES);
}

static void test_atomics(void **) {
    run("global_atomic_add v20, v1, v4, s[2:3] sc0\n global_atomic_smax v21, v1, v4, s[2:3] "
        "offset:256 sc0\n"
        "global_atomic_cmpswap v22, v1, v[4:5], s[2:3] offset:512 sc0\n"
        "global_atomic_inc v23, v1, v4, s[2:3] offset:768 sc0\n global_atomic_add_x2 v1, v[4:5], "
        "s[2:3] offset:1024\n"
        "ds_add_rtn_u32 v25, v1, v4\n",
        prepare_atomics, check_atomics);
}

static float bf16(uint32_t bits) {
    float x;
    bits <<= 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/** Prepares small integers, which add exactly in any format. */
static void prepare_float_atomics(void) {
    prepare_atomics();
    for (unsigned i = 0; i < 1024; i += 4) {
        float one = (float)(i / 4 % 5);
        uint32_t f, pair = i & 4 ? 0x40003f80 : 0x3f804000; // bf16 2 and 1
        memcpy(&f, &one, 4);
        memcpy(memory + i, &f, 4);
        memcpy(memory + 1024 + i, &pair, 4);
    }
    LANES(lane) {
        V(1, lane) = 4 * lane;
        V(4, lane) = 0x40400000; // 3.0f
        V(5, lane) = 0x3f804040; // bf16 3 and 1
    }
}

static void check_float_atomics(void) {
    LANES(lane) {
        float before, after;
        const uint32_t pair = dword(memory + 1024 + 4 * lane), old = dword(model + 1024 + 4 * lane);
        memcpy(&before, model + 4 * lane, 4);
        memcpy(&after, memory + 4 * lane, 4);
        assert_true(after == (active(lane) ? before + 3 : before));
        assert_true(bf16(pair & 0xffff) ==
                    (active(lane) ? bf16(old & 0xffff) + 3 : bf16(old & 0xffff)));
        assert_true(bf16(pair >> 16) == (active(lane) ? bf16(old >> 16) + 1 : bf16(old >> 16)));
    }
}

static void test_float_atomics(void **) {
    run("global_atomic_add_f32 v1, v4, s[2:3]\n global_atomic_pk_add_bf16 v1, v5, s[2:3] "
        "offset:1024\n",
        prepare_float_atomics, check_float_atomics);
}

// ---- scalar loads

static void check_scalar_loads(void) {
    for (unsigned k = 0; k < 4; k++) {
        assert_int_equal(t->wave.s[20 + k], dword(model + 64 + 4 * k));
        assert_int_equal(t->wave.s[k], dword(model + 32 + 4 * k)); // over its own base
    }
    assert_int_equal(t->wave.s[24], dword(model + 40));
}

static void prepare_scalar_loads(void) {
    t->wave.s[0] = (uint32_t)guest;
    t->wave.s[1] = (uint32_t)(guest >> 32);
    t->wave.s[5] = 36;
}

static void test_scalar_loads(void **) {
    run("s_load_dwordx4 s[20:23], s[0:1], 0x40\n s_load_dword s24, s[0:1], s5 offset:0x4\n"
        "s_load_dwordx4 s[0:3], s[0:1], 0x20\n",
        prepare_scalar_loads, check_scalar_loads);
}

// ---- faults

static void expect_fault(const char *source, const char *want) {
    size_t size;
    uint8_t *text = assemble("gfx942", source, &size);
    sim_inst inst = decode_at("gfx942", text, size, 0);
    sim_text code = {.chip = t->dispatch.chip, .bytes = text, .start = 0x1000, .size = size};
    t->kernel.entry = code.start;
    t->dispatch.text = &code;
    inst.exec(&t->wave, &inst);
    assert_int_equal(t->wave.state, SIM_FAULTED);
    char *report = sim_faults_text(&t->dispatch);
    if (!strstr(report, want))
        fail_msg("'%s' does not say '%s'", report, want);
    free(report);
    free(text);
    sim_faults_deinit(&t->dispatch.faults);
    t->dispatch.text = nullptr;
}

static void test_faults(void **) {
    t->dispatch.check = 0; // so the first fault stops the wave
    randomise(t, UINT64_C(1) << 9);
    prepare_global();
    V(2, 9) = (uint32_t)(guest + BYTES);
    V(3, 9) = (uint32_t)((guest + BYTES) >> 32);
    expect_fault("global_load_dword v0, v[2:3], off\n", "lane 9");
    V(1, 9) = BYTES - 4;
    expect_fault("global_store_dwordx2 v1, v[4:5], s[2:3]\n", "store of 8 bytes");
    V(1, 9) = SCRATCH - 2;
    expect_fault("scratch_load_dword v0, v1, off\n", "256 bytes a lane");
    V(1, 9) = 2;
    expect_fault("global_atomic_add v1, v4, s[2:3]\n", "multiple");
    t->wave.s[0] = t->wave.s[1] = 0;
    expect_fault("s_load_dword s4, s[0:1], 0x0\n", "load of 4 bytes at 0x0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lds_reads),     cmocka_unit_test(test_lds_offset_wraps),
        cmocka_unit_test(test_lds_writes),    cmocka_unit_test(test_global_loads),
        cmocka_unit_test(test_global_stores), cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_buffer_loads),  cmocka_unit_test(test_buffer_stores),
        cmocka_unit_test(test_dma),           cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_float_atomics), cmocka_unit_test(test_scalar_loads),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
