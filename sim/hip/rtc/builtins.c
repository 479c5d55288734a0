// SPDX-License-Identifier: Apache-2.0
// What hiprtc's programs find without including a header.
#include "clang.h"

#include <stdio.h>
#include <stdlib.h>

// What AMD's hiprtc has within it: HIP's headers, which for hiprtc do not include each other and of
// which this machine may lack some, and the types of the C library that programs use without one.
static const char *const builtin_headers[] = {
    "hip_common.h",
    "amd_detail/device_library_decls.h",
    "amd_detail/hip_assert.h",
    "library_types.h",
    "driver_types.h",
    "surface_types.h",
    "amd_detail/amd_channel_descriptor.h",
    "texture_types.h",
    "amd_detail/ockl_image.h",
    "amd_detail/texture_fetch_functions.h",
    "amd_detail/texture_indirect_functions.h",
    "amd_detail/amd_surface_functions.h",
    "amd_detail/amd_hip_complex.h",
    "amd_detail/amd_hip_math_constants.h",
    "amd_detail/math_fwd.h",
    "amd_detail/amd_warp_functions.h",
    "amd_detail/amd_device_functions.h",
    "amd_detail/amd_warp_sync_functions.h",
    "amd_detail/hip_cooperative_groups_helper.h",
    "amd_detail/amd_hip_cooperative_groups.h",
    "amd_detail/amd_hip_unsafe_atomics.h",
    "amd_detail/amd_hip_atomic.h",
    "amd_detail/hip_fp16_math_fwd.h",
    "amd_detail/amd_hip_fp16.h",
    "amd_detail/amd_math_functions.h",
};
static const char builtin_types[] = "#if !__HIP_NO_STD_DEFS__\n"
                                    "#if __HIPRTC_PTRDIFF_T_IS_LONG_LONG__ + 0 == 1\n"
                                    "typedef long long ptrdiff_t;\n"
                                    "#else\n"
                                    "typedef __PTRDIFF_TYPE__ ptrdiff_t;\n"
                                    "#endif\n"
                                    "typedef long clock_t;\n"
                                    "namespace std { using ::ptrdiff_t; using ::clock_t; }\n"
                                    "#endif\n";

bool rtc_write_builtins(const char *folder) {
    char *header = nullptr;
    size_t bytes;
    FILE *to = open_memstream(&header, &bytes);
    if (!to)
        return false;
    fputs("#ifndef __AMDGCN_WAVEFRONT_SIZE\n" // which clang 22 has no more, and HIP 6's headers use
          "#if __GFX9__\n#define __AMDGCN_WAVEFRONT_SIZE 64\n"
          "#else\n#define __AMDGCN_WAVEFRONT_SIZE 32\n#endif\n#endif\n"
          "#define CHAR_BIT __CHAR_BIT__\n#define INT_MAX __INT_MAX__\n"
          "#include <hip/hip_runtime.h>\n"
          "#if __has_include(<hip/hip_bfloat16.h>)\n#include <hip/hip_bfloat16.h>\n#endif\n"
          "#undef CHAR_BIT\n#undef INT_MAX\n",
          to);
    fputs(builtin_types, to);
    for (size_t i = 0; i < sizeof builtin_headers / sizeof *builtin_headers; i++)
        fprintf(to, "#if __has_include(<hip/%s>)\n#include <hip/%s>\n#endif\n", builtin_headers[i],
                builtin_headers[i]);
    const bool ok = fclose(to) == 0 && rtc_write(folder, RTC_BUILTINS, header, bytes);
    free(header);
    return ok;
}
