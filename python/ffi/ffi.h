// SPDX-License-Identifier: Apache-2.0
// What the files of the Python package's shared object share: streams for tensors, arguments,
// exceptions.
#ifndef QUERN_FFI_H
#define QUERN_FFI_H

#include <quern/quern.h>

#include <tvm/ffi/c_api.h>

#define FFI_EXPORT __attribute__((visibility("default")))
/** A function that Python sees under this name. */
#define FFI_FUNCTION(name)                                                                         \
    FFI_EXPORT int __tvm_ffi_##name(void *self, const TVMFFIAny *args, int32_t count,              \
                                    TVMFFIAny *result);                                            \
    int __tvm_ffi_##name([[maybe_unused]] void *self, [[maybe_unused]] const TVMFFIAny *args,      \
                         [[maybe_unused]] int32_t count, [[maybe_unused]] TVMFFIAny *result)

/** Raises the Python exception of this name. Returns -1, which a TVM-FFI function returns when it
 *  failed. */
int ffi_raise(const char *kind, const char *message);
/** Returns 0 for QN_OK; else raises the status's exception with the library's message and returns
 *  -1. */
int ffi_finish(qn_status status);

/** Returns 0 if the arguments are of the kinds that `parameters` names, in the form of ops.def;
 *  else raises TypeError or ValueError, which names the parameter, and returns -1. */
int ffi_check_args(const char *op, const char *parameters, const TVMFFIAny *args, int32_t count);

/** Gives the open device behind a DLPack device. The CPU, cuda:N and hip:N are opened when they are
 *  first asked for; only device_open opens simulated devices, as their DLPack number does not say
 *  which they are. The device stays open as long as the process. */
qn_status ffi_device(qn_device **out, DLDevice id);
/** Wraps the stream on which the caller's framework works on the device. The caller destroys the
 *  stream. */
qn_status ffi_stream_create(qn_stream **out, DLDevice id);

/** Returns the tensor that an argument holds; null for None. */
static inline DLTensor *ffi_tensor(const TVMFFIAny *arg) {
    if (arg->type_index == kTVMFFIDLTensorPtr)
        return arg->v_ptr;
    if (arg->type_index == kTVMFFITensor)
        return (DLTensor *)((char *)arg->v_obj + sizeof(TVMFFIObject));
    return nullptr;
}

/** Returns the number that an argument holds, an integer's or a float's. */
static inline float ffi_number(const TVMFFIAny *arg) {
    return (float)(arg->type_index == kTVMFFIFloat ? arg->v_float64 : (double)arg->v_int64);
}

/** The parameters of attention's inputs, with a name for its workspace; of ops.def's line
 *  `attention`, which another function shares; and of its backward pass's line, which ends with
 *  those of the call of attention. */
#define FFI_ATTENTION_INPUTS(workspace)                                                            \
    " q k v kv_indices? plan@? schedule? " workspace " custom_mask? mask? q_scales? k_scales? "    \
    "v_scales? sinks? is_hnd:i1 is_causal:i1 is_top_left:i1 window_left:i window_right:i "         \
    "pos_encoding:i32 lse_base:i32 dropout_seed:i dropout_offset:i rope_scale:f rope_theta:f "     \
    "sm_scale:f logits_soft_cap:f q_scale:f k_scale:f v_scale:f dropout_p:f"
#define FFI_ATTENTION_PARAMETERS "o! lse!?" FFI_ATTENTION_INPUTS("workspace!?")
#define FFI_ATTENTION_BACKWARD_PARAMETERS                                                          \
    "dq! dk! dv! dmask!? dsinks!? workspace!? d_o o lse" FFI_ATTENTION_INPUTS("forward_workspace?")
/** These run ops.def's lines `attention`, `attention_backward` and `mla_decode`. attention.c. */
qn_status ffi_attention(qn_stream *stream, const TVMFFIAny *args);
qn_status ffi_attention_backward(qn_stream *stream, const TVMFFIAny *args);
qn_status ffi_mla_decode(qn_stream *stream, const TVMFFIAny *args);

/** The parameters of ops.def's line `norm_backward`, which another function shares; and what runs
 *  it. norm.c. */
#define FFI_NORM_BACKWARD_PARAMETERS                                                                 \
    "dx! dweight!? dbeta!? d_gated!? dgate!? workspace!? d_out x weight? d_sum? gate? gated? eps:f " \
    "subtracts_mean:i1 adds_one:i1"
qn_status ffi_norm_backward(qn_stream *stream, const TVMFFIAny *args);

#endif
