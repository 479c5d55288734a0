// SPDX-License-Identifier: Apache-2.0
// The backward pass of norms for Python: its arguments, and the bytes of its workspace.
#include "ffi.h"

static qn_norm_backward_args make_args(const TVMFFIAny *args) {
    return (qn_norm_backward_args){.struct_size = sizeof(qn_norm_backward_args),
                                   .dx = ffi_tensor(&args[0]),
                                   .dweight = ffi_tensor(&args[1]),
                                   .dbeta = ffi_tensor(&args[2]),
                                   .d_gated = ffi_tensor(&args[3]),
                                   .dgate = ffi_tensor(&args[4]),
                                   .workspace = ffi_tensor(&args[5]),
                                   .d_out = ffi_tensor(&args[6]),
                                   .x = ffi_tensor(&args[7]),
                                   .weight = ffi_tensor(&args[8]),
                                   .d_sum = ffi_tensor(&args[9]),
                                   .gate = ffi_tensor(&args[10]),
                                   .gated = ffi_tensor(&args[11]),
                                   .eps = ffi_number(&args[12]),
                                   .subtracts_mean = args[13].v_int64 != 0,
                                   .adds_one = args[14].v_int64 != 0};
}

qn_status ffi_norm_backward(qn_stream *stream, const TVMFFIAny *args) {
    const qn_norm_backward_args a = make_args(args);
    return qn_norm_backward(stream, &a);
}

/** norm_backward_workspace_bytes(the arguments of norm_backward) -> bytes that they need */
FFI_FUNCTION(norm_backward_workspace_bytes) {
    qn_stream *stream;
    int64_t bytes;
    if (ffi_check_args("norm_backward", FFI_NORM_BACKWARD_PARAMETERS, args, count) != 0)
        return -1;
    const qn_norm_backward_args a = make_args(args);
    qn_status status = ffi_stream_create(&stream, a.x->device);
    if (status != QN_OK)
        return ffi_finish(status);
    status = qn_norm_backward_workspace_bytes(&bytes, stream, &a);
    qn_stream_destroy(stream);
    if (status != QN_OK)
        return ffi_finish(status);
    *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = bytes};
    return 0;
}
