// SPDX-License-Identifier: Apache-2.0
// Compressed offload bundles: every version and method, and damage in each part.
#include "object.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

enum { BYTES = 5000, ROOM = 2 * BYTES };
static uint8_t inside[BYTES], image[ROOM];

/** Makes a compressed bundle of `inside`; gives its size. */
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
    sim_complaint c = {text, sizeof text};
    *out = nullptr;
    sim_object_status status = sim_compressed_expand(image, bytes, out, out_bytes, &c);
    assert_int_equal(status != SIM_OBJECT_OK, strstr(text, "compressed") != nullptr);
    return status;
}

static void test_round_trip(void **state) {
    (void)state;
    for (int i = 0; i < BYTES; i++) {
        inside[i] = (uint8_t)(i * i >> 5);
    }
    for (uint16_t version = 1; version <= 3; version++) {
        for (uint16_t method = 0; method <= 1; method++) {
            size_t bytes = make(version, method), out_bytes;
            void *out;
            assert_true(sim_compressed_is(image, bytes));
            assert_int_equal(sim_compressed_extent(image), version == 1 ? 0 : bytes);
            // What follows the bundle in memory does not matter, where its size is known.
            assert_int_equal(expand(bytes + (version == 1 ? 0 : 100), &out, &out_bytes),
                             SIM_OBJECT_OK);
            assert_int_equal(out_bytes, BYTES);
            assert_memory_equal(out, inside, BYTES);
            free(out);
        }
    }
}

static void test_damage(void **state) {
    (void)state;
    void *out;
    size_t out_bytes;
    for (uint16_t method = 0; method <= 1; method++) {
        size_t bytes = make(3, method);
        for (size_t cut = 4; cut < bytes; cut += cut < 64 ? 1 : 97) { // short of some of it
            assert_int_equal(expand(cut, &out, &out_bytes), SIM_OBJECT_INVALID);
        }
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
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
