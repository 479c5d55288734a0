// SPDX-License-Identifier: Apache-2.0
// Which devices ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES leave, in which
// order: each list in a process of its own, over five devices.
#include "hip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const chips[] = {"gfx90a", "gfx942", "gfx950", "gfx1151", "gfx1201"};

static void set(const char *variable, const char *value) {
    if (value)
        setenv(variable, value, 1);
    else
        unsetenv(variable);
}

/** Prints the places of the visible devices among all five, as digits, and checks what each says of
 *  itself. */
static void print_visible(FILE *out) {
    int count = -1;
    hipError_t error = hipGetDeviceCount(&count);
    fprintf(out, error == hipSuccess ? "" : error == hipErrorNoDevice ? "none" : "error");
    for (int i = 0; i < count; i++) {
        hipDeviceProp_tR0600 p;
        char bus[16];
        int place = 0, again = -1;
        if (hipGetDevicePropertiesR0600(&p, i) != hipSuccess) {
            fprintf(out, "?");
            return;
        }
        while (strncmp(p.gcnArchName, chips[place], strlen(chips[place])) != 0)
            place++;
        const bool ok = p.pciBusID == place + 1 && p.uuid[15] == '0' + place &&
                        hipDeviceGetPCIBusId(bus, sizeof bus, i) == hipSuccess &&
                        hipDeviceGetByPCIBusId(&again, bus) == hipSuccess && again == i;
        fprintf(out, ok ? "%d" : "!", place);
    }
}

static void expect_of(const char *sim, const char *rocr, const char *hip, const char *cuda,
                      const char *want) {
    int ends[2];
    char got[64] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        set("QUERN_SIM", sim);
        set("ROCR_VISIBLE_DEVICES", rocr);
        set("HIP_VISIBLE_DEVICES", hip);
        set("CUDA_VISIBLE_DEVICES", cuda);
        FILE *out = fdopen(ends[1], "w");
        print_visible(out);
        fclose(out);
        _exit(0);
    }
    close(ends[1]);
    assert_true(read(ends[0], got, sizeof got - 1) >= 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, nullptr, 0), child);
    if (strcmp(got, want) != 0) {
        fail_msg("ROCR %s, HIP %s, CUDA %s: found %s, expected %s", rocr ? rocr : "-",
                 hip ? hip : "-", cuda ? cuda : "-", got, want);
    }
}

static void expect(const char *rocr, const char *hip, const char *cuda, const char *want) {
    expect_of("arch=gfx90a,gfx942,gfx950,gfx1151,gfx1201", rocr, hip, cuda, want);
}

static void test_hip(void **) {
    expect(nullptr, nullptr, nullptr, "01234");
    expect(nullptr, "", nullptr, "01234");
    expect(nullptr, "2", nullptr, "2");
    expect(nullptr, "3,0", nullptr, "30");
    expect(nullptr, "1,1,2", nullptr, "12");
    expect(nullptr, "1,7,2", nullptr, "1");
    expect(nullptr, "1,x,2", nullptr, "1");
    expect(nullptr, "1, 2", nullptr, "1");
    expect(nullptr, "01", nullptr, "none");
    expect(nullptr, "-1", nullptr, "none");
    expect(nullptr, "GPU-717565726e000003,0", nullptr, "30");
    expect(nullptr, "GPU-717565726e00000", nullptr, "none");
    expect(nullptr, nullptr, "4", "4");
    expect(nullptr, "", "4", "4");
    expect(nullptr, "2", "4", "2");
}

static void test_rocr(void **) {
    expect("", nullptr, nullptr, "none");
    expect("4,1", nullptr, nullptr, "41");
    expect(" 4 , 0x1", nullptr, nullptr, "41");
    expect("1,1,2", nullptr, nullptr, "1");
    expect("1,,2", nullptr, nullptr, "1");
    expect("5", nullptr, nullptr, "none");
    expect("gpu-717565726E000002,0", nullptr, nullptr, "20");
    expect("GPU-7175", nullptr, nullptr, "none"); // any of the five
    expect("GPU-", nullptr, nullptr, "none");
}

/** HIP counts what ROCR has left. */
static void test_both(void **) {
    expect("4,2,0", "1,0", nullptr, "24");
    expect("4", "1", nullptr, "none");
    expect("3,4", "GPU-717565726e000004", nullptr, "4");
    expect("3,4", "GPU-717565726e000000", nullptr, "none");
}

/** The default device, if QUERN_SIM lists none. */
static void test_default(void **) {
    expect_of(nullptr, nullptr, "0", nullptr, "!"); // gfx942, which differs from the second device
                                                    // here
    expect_of(nullptr, nullptr, "1", nullptr, "none");
}

/** A device that is asked for by name comes behind the others, whatever is hidden. */
static void test_added(void **) {
    pid_t child = fork();
    if (child == 0) {
        int count = 0;
        hipDeviceProp_tR0600 p;
        set("QUERN_SIM", "arch=gfx942,gfx942");
        set("HIP_VISIBLE_DEVICES", "1");
        const bool ok = hipGetDeviceCount(&count) == hipSuccess && count == 1 &&
                        quernsim_configure("arch=gfx1201") == 0 &&
                        hipGetDeviceCount(&count) == hipSuccess && count == 2 &&
                        hipGetDevicePropertiesR0600(&p, 1) == hipSuccess &&
                        strcmp(p.gcnArchName, "gfx1201") == 0 && p.pciBusID == 3;
        _exit(!ok);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hip), cmocka_unit_test(test_rocr),
                                       cmocka_unit_test(test_both), cmocka_unit_test(test_default),
                                       cmocka_unit_test(test_added)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
