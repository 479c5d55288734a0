// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the library's own reader of code objects, and its check of waits, on arbitrary
// bytes.
// Fuzzes: runtime/image/object.c runtime/image/waits.c runtime/error.c
#include "../../runtime/image/object.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *const entries[] = {"k", "qk_gemm_pack", "qk_gemm_fp8", "qk_gemm_any"};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        qni_object_kernel kernel;
        bool is_good;
        size_t at = 0;
        if (qni_object_kernel_find(&kernel, data, bytes, entries[i]) != QN_OK)
            continue;
        if (kernel.code < data || kernel.code + kernel.code_bytes > data + bytes)
            abort();
        if (qni_waits_check(kernel.code, kernel.code_bytes, &is_good, &at) == QN_OK && !is_good &&
            at >= kernel.code_bytes)
            abort();
    }
    bool is_good;
    size_t at;
    qni_waits_check(data, bytes, &is_good, &at); // bare code
    return 0;
}
