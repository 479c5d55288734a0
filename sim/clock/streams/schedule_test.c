// SPDX-License-Identifier: Apache-2.0
// Tests of the schedule: when launches end that share a chip of four units.
#include "schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

constexpr int UNITS = 4, NS = 1000, LAUNCH_NS = 50;
static sim_schedule schedule;

static int begin(void **) {
    sim_schedule_init(&schedule);
    return 0;
}

static int end(void **) {
    sim_schedule_deinit(&schedule);
    return 0;
}

/** What a test says of a launch: workgroups, how many a unit holds, what part it keeps busy. */
typedef struct kind {
    uint64_t groups;
    uint32_t fits;
    sim_part part;
    double busy; // of all units, by all workgroups
    int priority;
} kind;

/** Returns what a launch of such workgroups, which all take NS, asks for. */
static sim_demand *demand_of(const kind *k) {
    const uint64_t rounds = (k->groups + (uint64_t)UNITS * k->fits - 1) / (UNITS * k->fits);
    sim_demand *d = calloc(1, sizeof *d + k->groups * sizeof *d->spans);
    assert_non_null(d);
    d->ns = LAUNCH_NS + rounds * NS;
    d->launch_ns = LAUNCH_NS;
    d->room[SIM_LIMIT_LDS] = 1.0 / k->fits;
    const uint64_t most = (uint64_t)UNITS * k->fits, held = k->groups < most ? k->groups : most;
    d->busy[k->part] = k->busy / (double)held * (k->part < SIM_PART_L2 ? UNITS : 1);
    d->power_root = 0.5;
    d->units = UNITS;
    d->groups = d->num_spans = k->groups;
    d->round = most;
    for (uint64_t i = 0; i < k->groups; i++)
        d->spans[i] = NS;
    return d;
}

/** A launch that runs at once, after a moment. Returns its end. */
static sim_moment *launch(kind k, sim_moment *after) {
    sim_moment *m = sim_schedule_queue(&schedule, k.priority);
    assert_non_null(m);
    assert_true(sim_schedule_is_next(&schedule, m));
    sim_schedule_ran(&schedule, m, after, demand_of(&k));
    return m;
}

/** Returns a moment, which is released. */
static uint64_t take(sim_moment *m) {
    uint64_t ns;
    sim_schedule_wait(&schedule, m);
    assert_true(sim_schedule_find(&schedule, m, &ns));
    sim_moment_release(m);
    return ns;
}

/** Tests that two launches end at some times. */
static void expect(kind first, kind second, double first_ns, double second_ns) {
    sim_schedule_init(&schedule);
    sim_moment *a = launch(first, nullptr), *b = launch(second, nullptr);
    const uint64_t b_ns = take(b), a_ns = take(a);
    if (fabs((double)a_ns - first_ns) > 1 || fabs((double)b_ns - second_ns) > 1)
        fail_msg("%d, %d of a unit, beside %d, %d: %d and %d ns; expected %.0f and %.0f",
                 (int)first.groups, (int)first.fits, (int)second.groups, (int)second.fits,
                 (int)a_ns, (int)b_ns, first_ns, second_ns);
    sim_schedule_deinit(&schedule);
}

/** Tests who gets places: first come, first served, as units have room. */
static void test_places(void **) {
    const double one = LAUNCH_NS + NS, two = one + NS, three = two + NS;
    expect((kind){2, 1, 0, 0, 0}, (kind){2, 1, 0, 0, 0}, one, one); // half of the units each
    expect((kind){4, 1, 0, 0, 0}, (kind){4, 1, 0, 0, 0}, one, two); // all of them
    expect((kind){4, 2, 0, 0, 0}, (kind){4, 2, 0, 0, 0}, one, one); // side by side on each
    expect((kind){4, 2, 0, 0, 0}, (kind){4, 1, 0, 0, 0}, one, two); // no room beside the first
    expect((kind){3, 1, 0, 0, 0}, (kind){2, 1, 0, 0, 0}, one, two); // one of two has room
    expect((kind){6, 1, 0, 0, 0}, (kind){2, 1, 0, 0, 0}, two, two); // beside the last round
    expect((kind){8, 1, 0, 0, 0}, (kind){4, 1, 0, 0, 0}, two, three);
    expect((kind){8, 1, 0, 0, 1}, (kind){4, 1, 0, 0, -1}, three, one); // by priority
}

/** Tests that launches slow each other down where a part is asked for too much, and only there. */
static void test_parts(void **) {
    for (sim_part part = 0; part < SIM_NUM_PARTS; part++) {
        const double slower = part == SIM_PART_POWER ? sqrt(1.6) : 1.6;
        expect((kind){4, 2, part, 0.4, 0}, (kind){4, 2, part, 0.6, 0}, LAUNCH_NS + NS,
               LAUNCH_NS + NS);
        expect((kind){4, 2, part, 0.8, 0}, (kind){4, 2, part, 0.8, 0}, LAUNCH_NS + slower * NS,
               LAUNCH_NS + slower * NS);
        const sim_part other = (part + 1) % SIM_NUM_PARTS;
        expect((kind){4, 2, part, 0.8, 0}, (kind){4, 2, other, 0.8, 0}, LAUNCH_NS + NS,
               LAUNCH_NS + NS);
    }
    // Launches on units of their own do not share what is a unit's.
    expect((kind){2, 1, SIM_PART_LANES, 0.5, 0}, (kind){2, 1, SIM_PART_LANES, 0.5, 0},
           LAUNCH_NS + NS, LAUNCH_NS + NS);
    // Beside the first one's 2, 14 of the second one's 24 workgroups run. The others run alone.
    const double together = (0.75 + 0.75 * 14 / 16) * NS;
    expect((kind){2, 4, SIM_PART_MEMORY, 0.75, 0}, (kind){24, 4, SIM_PART_MEMORY, 0.75, 0},
           LAUNCH_NS + together, LAUNCH_NS + together + NS);
}

/** Tests that a launch that is alone takes what it took, to the digit, and that others wait for
 *  what they are told to. */
static void test_order(void **) {
    sim_moment *a = launch((kind){9, 1, 0, 0, 0}, nullptr);
    sim_moment *b = launch((kind){1, 1, 0, 0, 0}, a), *c = launch((kind){1, 1, 0, 0, 0}, nullptr);
    sim_moment *both = sim_schedule_later(&schedule, b, c);
    sim_moment *d = launch((kind){1, 1, 0, 0, 0}, both);
    const uint64_t first = LAUNCH_NS + 3 * NS;
    assert_int_equal(take(d), first + 2 * (LAUNCH_NS + NS));
    assert_int_equal(take(both), first + LAUNCH_NS + NS);
    assert_int_equal(take(a), first);
    assert_int_equal(take(b), first + LAUNCH_NS + NS);
    assert_in_range(take(c), first - NS, first); // beside the first one's last round
}

/** Tests that nothing is said before all is known that may matter, and that launches which the
 *  program queues after a wait begin after what it has waited for. */
static void test_waits(void **) {
    uint64_t ns;
    const kind all = {4, 1, 0, 0, 0};
    sim_moment *a = launch(all, nullptr), *b = sim_schedule_queue(&schedule, -1);
    sim_schedule_wait(&schedule, a);
    assert_false(sim_schedule_find(&schedule, a, &ns)); // b may come first
    sim_moment *c = sim_schedule_queue(&schedule, 0);
    assert_false(sim_schedule_is_next(&schedule, c));
    sim_schedule_ran(&schedule, b, nullptr, demand_of(&all));
    assert_true(sim_schedule_find(&schedule, a, &ns)); // c cannot
    assert_int_equal(ns, LAUNCH_NS + 2 * NS);
    sim_schedule_ran(&schedule, c, nullptr, demand_of(&all));
    assert_int_equal(take(c), ns + LAUNCH_NS + NS);
    assert_int_equal(take(b), LAUNCH_NS + NS);
    sim_moment_release(a);
}

/** Tests that what is dropped takes no time, and that a program is so many launches ahead at
 *  most. */
static void test_queue(void **) {
    sim_moment *dropped = sim_schedule_queue(&schedule, 0), *first = nullptr, *last = nullptr;
    sim_schedule_ran(&schedule, dropped, nullptr, nullptr);
    assert_int_equal(take(dropped), 0);
    for (int i = 0; i < SIM_QUEUE_DEPTH + 1; i++) {
        sim_moment_release(last);
        last = launch((kind){1, 1000, 0, 0, 0}, nullptr);
        first = first ? first : sim_moment_keep(last);
    }
    assert_true(first->is_known); // so no more of them are kept than that
    assert_int_equal(take(last), take(first) + LAUNCH_NS + NS);
}

/** Tests that rounds of which nothing is known take as long as those before. */
static void test_rounds(void **) {
    const kind k = {4 * 6 + 1, 1, 0, 0, 0};
    sim_demand *d = demand_of(&k);
    d->num_spans = UNITS * SIM_ROUNDS + 1;
    for (uint64_t i = 0; i < d->num_spans; i++)
        d->spans[i] = (float)(NS * (i < UNITS ? 4 : i < 2 * UNITS ? 2 : i < 3 * UNITS ? 1 : 0.5));
    sim_moment *a = sim_schedule_queue(&schedule, 0);
    sim_schedule_ran(&schedule, a, nullptr, d);
    sim_moment *b = launch((kind){4, 1, 0, 0, 0}, nullptr);
    const double rounds = 4 + 2 + 1 + 2 + 1 + 2 + 0.5;
    assert_int_equal(take(a), LAUNCH_NS + rounds * NS);
    assert_int_equal(take(b), LAUNCH_NS + (rounds + 1) * NS); // one waits for the last one
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_parts),
        cmocka_unit_test_setup_teardown(test_order, begin, end),
        cmocka_unit_test_setup_teardown(test_waits, begin, end),
        cmocka_unit_test_setup_teardown(test_queue, begin, end),
        cmocka_unit_test_setup_teardown(test_rounds, begin, end),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
