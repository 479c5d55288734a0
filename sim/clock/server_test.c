// SPDX-License-Identifier: Apache-2.0
// Tests how a part of the chip serves requests.
#include "server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static sim_server server;

static void begin_anew(void) {
    memset(&server, 0, sizeof server);
}

/** Tests that requests that come in order wait for each other, and for nothing else. */
static void test_in_order(void **) {
    begin_anew();
    uint64_t at = 0, free_from = 0;
    srand(1);
    for (int i = 0; i < 100000; i++) {
        at += (uint64_t)(rand() % 50);
        const uint64_t units = (uint64_t)(1 + rand() % 45);
        const uint64_t begin = free_from > at ? free_from : at;
        assert_int_equal(sim_serve(&server, at, units, 1), begin);
        free_from = begin + units;
    }
    assert_int_equal(server.end, free_from);
}

/** Tests that a request for a later moment does not hold up one for an earlier moment. */
static void test_out_of_order(void **) {
    begin_anew();
    assert_int_equal(sim_serve(&server, 20 * SIM_WINDOW_TICKS, 100, 1), 20 * SIM_WINDOW_TICKS);
    assert_int_equal(sim_serve(&server, 50, 100, 1), 50);
    assert_int_equal(sim_serve(&server, 60, 100, 1), 150);
    assert_int_equal(sim_serve(&server, 20 * SIM_WINDOW_TICKS, 1, 1), 20 * SIM_WINDOW_TICKS + 100);
}

/** Tests that in a window a request may come before one that is booked already. */
static void test_gap(void **) {
    begin_anew();
    assert_int_equal(sim_serve(&server, SIM_WINDOW_TICKS - 10, 10, 1), SIM_WINDOW_TICKS - 10);
    assert_int_equal(sim_serve(&server, 100, 10, 1), 100);
    // What is late in the window finds no time there: the part cannot be busy in the past.
    assert_int_equal(sim_serve(&server, SIM_WINDOW_TICKS - 20, 10, 1), SIM_WINDOW_TICKS);
}

/** Tests that a part never serves more than it can, nor much less, whatever the order. */
static void test_capacity(void **) {
    enum { REQUESTS = 40000, UNITS = 37, SPREAD = 100000 };
    begin_anew();
    srand(2);
    uint64_t at = 0;
    for (int i = 0; i < REQUESTS; i++) {
        at += UNITS / 2; // twice as many as it can serve
        sim_serve(&server, at + (uint64_t)(rand() % SPREAD), UNITS, 1);
    }
    const double ends = (double)server.end / ((double)REQUESTS * UNITS);
    assert_true(ends > 1 && ends < 1.1);
}

/** Tests a request that takes many windows, and those behind it. */
static void test_long_request(void **) {
    begin_anew();
    const uint64_t units = 5 * SIM_WINDOW_TICKS / 2;
    assert_int_equal(sim_serve(&server, 10, units, 1), 10);
    assert_int_equal(sim_serve(&server, 20, 1, 1), units + 10);
}

/** Tests units of which a tick has many: lines through a fabric of 708 bytes a cycle. */
static void test_units(void **) {
    begin_anew();
    uint64_t begin = 0;
    for (int i = 0; i <= 10000; i++)
        begin = sim_serve(&server, 0, UINT64_C(128) * 16, 708);
    assert_int_equal(begin, UINT64_C(10000) * 128 * 16 / 708);
}

/** Tests that moments far apart, whose windows share a place, do not meet. */
static void test_far_apart(void **) {
    begin_anew();
    const uint64_t far = 7 * SIM_WINDOWS * SIM_WINDOW_TICKS;
    for (int i = 0; i < 5000; i++)
        sim_serve(&server, 0, 1, 1);
    assert_int_equal(sim_serve(&server, far, 1, 1), far);
    assert_true(sim_serve(&server, 0, 1, 1) <= far + SIM_WINDOWS * SIM_WINDOW_TICKS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order), cmocka_unit_test(test_out_of_order),
        cmocka_unit_test(test_gap),      cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_units),    cmocka_unit_test(test_long_request),
        cmocka_unit_test(test_far_apart)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
