// SPDX-License-Identifier: Apache-2.0
// A kernel for listings: a loop of five turns, and a line that no wave comes to.
#include "mini.h"

constexpr int WAVES = 16, TURNS = 5, NEVER = 1 << 30;

__global__ void add(int *sums, int turns) {
    for (int i = 0; i < turns; i++)
        sums[1] = __atomic_fetch_add(&sums[0], 1, __ATOMIC_RELAXED); // loop
    if (turns == NEVER)
        sums[2] = 7; // never
} // end

int main() {
    int *sums = device_array<int>(3), result[3];
    OK(hipMemset(sums, 0, sizeof result));
    add<<<dim3(WAVES), dim3(64), 0, nullptr>>>(sums, TURNS);
    OK(hipMemcpy(result, sums, sizeof result, hipMemcpyDeviceToHost));
    OK(hipFree(sums));
    return result[2] == 7;
}
