// SPDX-License-Identifier: Apache-2.0
// Faults of several threads at once, each on a device of its own (REPORTS threads), and of a child of fork (REPORTS fork).
#include "mini.h"

#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

enum { THREADS = 4, COUNT = 1000, LAUNCH_FAILED_ADDRESS = 700 };

/** Two faults: a load and a store past the end. */
__global__ void shift(int *data, int n) {
    int i = (int)global_id();
    data[n + i] = data[n + i + 1] + 1;
}

static void run_on(int device) {
    OK(hipSetDevice(device));
    int *data = device_array<int>(COUNT);
    shift<<<8, 128>>>(data, COUNT);
    CHECK(hipDeviceSynchronize() == LAUNCH_FAILED_ADDRESS);
}

static int run_threads() {
    std::thread threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = std::thread(run_on, i);
    for (std::thread &t : threads)
        t.join();
    return 0;
}

/** The child has faults and the parent none; the child's exit status becomes the parent's. */
static int run_fork() {
    int status, count;
    OK(hipGetDeviceCount(&count));
    pid_t child = fork();
    if (child == 0) {
        run_on(0);
        std::exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(int, char **argv) {
    return std::strcmp(argv[1], "fork") == 0 ? run_fork() : run_threads();
}
