// SPDX-License-Identifier: Apache-2.0
// Compressed offload bundles of every version and method, and with damage in each part.
#include "object.h"
#include "reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

enum { BYTES = 5000, ROOM = 2 * BYTES };
static uint8_t inside[BYTES], image[ROOM];

/** Makes a compressed bundle of `inside`. Returns its size. */
static size_t make(uint16_t version, uint16_t method) {
    static const size_t headers[] = {0, 20, 24, 32};
    size_t at = headers[version], packed = ROOM - at;
    if (method == 1) {
        packed = ZSTD_compress(image + at, packed, inside, BYTES, 3);
        assert_false(ZSTD_isError(packed));
    } else {
        uLongf size = packed;
        assert_int_equal(compress(image + at, &size, inside, BYTES), Z_OK);
        packed = size;
    }
    uint64_t file = at + packed, out = BYTES;
    memset(image, 0xAA, at); // the hash, which nobody reads
    memcpy(image, "CCOB", 4);
    memcpy(image + 4, &version, 2);
    memcpy(image + 6, &method, 2);
    if (version == 3) {
        memcpy(image + 8, &file, 8);
        memcpy(image + 16, &out, 8);
    } else if (version == 2) {
        memcpy(image + 8, &file, 4);
        memcpy(image + 12, &out, 4);
    } else {
        memcpy(image + 8, &out, 4);
    }
    return file;
}

static sim_object_status expand(size_t bytes, void **out, size_t *out_bytes) {
    char text[256] = "";
    sim_complaint c = {.text = text, .bytes = sizeof text};
    *out = nullptr;
    sim_object_status status = sim_compressed_expand(image, bytes, out, out_bytes, &c);
    assert_int_equal(status != SIM_OBJECT_OK, strstr(text, "compressed") != nullptr);
    return status;
}

static void test_round_trip(void **state) {
    (void)state;
    for (int i = 0; i < BYTES; i++)
        inside[i] = (uint8_t)(i * i >> 5);
    for (uint16_t version = 1; version <= 3; version++) {
        for (uint16_t method = 0; method <= 1; method++) {
            size_t bytes = make(version, method), out_bytes;
            void *out;
            assert_true(sim_compressed_is(image, bytes));
            assert_int_equal(sim_compressed_extent(image), version == 1 ? 0 : bytes);
            // zstd's frames have an end of their own; zlib's would have to be expanded to find it.
            assert_int_equal(sim_object_extent(image), version == 1 && method == 0 ? 0 : bytes);
            // What follows the bundle in memory does not matter if the bundle's size is known.
            assert_int_equal(expand(bytes + (version == 1 ? 0 : 100), &out, &out_bytes),
                             SIM_OBJECT_OK);
            assert_int_equal(out_bytes, BYTES);
            assert_memory_equal(out, inside, BYTES);
            free(out);
        }
    }
}

/** The end is found of frames of one block and of many, of repeated and incompressible ones, with a
 *  checksum and without. */
static void test_frames(void **state) {
    (void)state;
    enum { LARGE = 600000 };
    uint8_t *in = malloc(LARGE), *file = malloc(20 + ZSTD_compressBound(LARGE) + 64);
    for (int kind = 0; kind < 3; kind++) {
        for (size_t bytes = 1; bytes <= LARGE; bytes = bytes * 7 + 13) {
            uint32_t state32 = 1;
            for (size_t i = 0; i < bytes; i++) {
                state32 = state32 * 1664525 + 1013904223;
                in[i] = (uint8_t)(kind == 0 ? 7 : kind == 1 ? state32 >> 24 : i / 300);
            }
            for (int checksum = 0; checksum < 2; checksum++) {
                ZSTD_CCtx *context = ZSTD_createCCtx();
                ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, checksum);
                ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, bytes % 2);
                const size_t room = ZSTD_compressBound(bytes) + 64;
                const size_t packed = ZSTD_compress2(context, file + 20, room, in, bytes);
                assert_false(ZSTD_isError(packed));
                ZSTD_freeCCtx(context);
                memcpy(file, (uint8_t[20]){'C', 'C', 'O', 'B', 1, 0, 1, 0}, 20);
                assert_int_equal(sim_object_extent(file), 20 + packed);
            }
        }
    }
    free(in);
    free(file);
}

static void test_damage(void **state) {
    (void)state;
    void *out;
    size_t out_bytes;
    for (uint16_t method = 0; method <= 1; method++) {
        const size_t bytes = make(3, method);
        for (size_t cut = 4; cut < bytes; cut += cut < 64 ? 1 : 97) // cuts the image short
            assert_int_equal(expand(cut, &out, &out_bytes), SIM_OBJECT_INVALID);
        static const size_t places[] = {4, 6, 8, 16, 20, 32}; // versions, methods, sizes, contents
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            image[places[i]] ^= 0x55;
            assert_int_equal(expand(bytes, &out, &out_bytes), SIM_OBJECT_INVALID);
            image[places[i]] ^= 0x55;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
