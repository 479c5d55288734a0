// SPDX-License-Identifier: Apache-2.0
// The base of every GPU kernel: vector types, address spaces, the wave and its lanes.
//
// Kernels are plain C23 for clang's GPU targets, AMD's and NVIDIA's. Names of helpers begin with
// qd_, names of entry points with qk_. A kernel takes one struct by value.
#ifndef QD_GPU_H
#define QD_GPU_H

#include <gpuintrin.h>
#include <stddef.h>
#include <stdint.h>

#define QD_INLINE static inline __attribute__((always_inline))
#define QD_UNROLL _Pragma("clang loop unroll(full)")
#define QD_PRAGMA(x) _Pragma(#x)
#define QD_UNROLL_BY(n) QD_PRAGMA(clang loop unroll_count(n))
#define QD_NO_UNROLL _Pragma("clang loop unroll(disable)")

// The address space of LDS. A variable in LDS is static, and an attribute says that its first value
// is undefined:
//   [[clang::loader_uninitialized]] static QD_LDS uint32_t rows[64];
// With distinct static arrays the compiler sees that a copy into one does not change another. With
// `extern` arrays clang 22 even drops the wait between a copy to LDS and a read of the copy.
#define QD_LDS __attribute__((address_space(3)))

// QD_WAVES_PER_EU says for how many waves of a kernel AMD's compiler makes room on a SIMD: for at
// least so many, and if a second number is given, for no more than that.
//
// QD_KERNEL_UP_TO names the most threads of a workgroup, for which the compiler leaves registers:
// NVIDIA's gives a thread up to 255 if nothing bounds it, and the driver then refuses a launch of
// more than 256 threads. QD_KERNEL_WITHIN bounds the registers of a thread themselves on NVIDIA,
// where the compiler would take more and so leave room for fewer workgroups. clang cannot write
// these bounds in PTX: ptx.c reads the remark and puts the bound into the kernel's head.
//
// QD_KERNEL_HEAD begins a kernel for NVIDIA alone: its very number of threads, one workgroup a
// multiprocessor, and the bytes of LDS that the runtime gives each launch, at qd_launch_lds: more
// than a kernel can declare. QD_KERNEL_HEAD_BESIDE makes room in registers for so many workgroups a
// multiprocessor. CLUSTER is "", or QD_CLUSTER(n) for workgroups in clusters of n side
// by side, of which the grid has whole ones. What a head says, no line of variants.def repeats.
#if defined(__NVPTX__)
#define QD_TEXT_OF(x) #x
#define QD_TEXT(x) QD_TEXT_OF(x)
#define QD_CLUSTER(n) " .explicitcluster .reqnctapercluster " #n ", 1, 1"
#define QD_KERNEL_HEAD(threads, lds_bytes, cluster, entry)                                         \
    QD_KERNEL_HEAD_BESIDE(1, threads, lds_bytes, cluster, entry)
#define QD_KERNEL_HEAD_BESIDE(workgroups, threads, lds_bytes, cluster, entry)                      \
    __asm__("// quern: " #entry                                                                    \
            " .maxntid " QD_TEXT(threads) ", 1, 1 .minnctapersm " QD_TEXT(workgroups) cluster);    \
    extern const uint32_t entry##_lds_bytes;                                                       \
    const uint32_t entry##_lds_bytes = lds_bytes; /* ptx.c reads it */                             \
    __gpu_kernel void entry
#define QD_KERNEL(threads) __gpu_kernel void // the driver needs no word of the number of threads
#define QD_KERNEL_UP_TO(threads, entry)                                                            \
    __asm__("// quern: " #entry " .maxntid " QD_TEXT(threads));                                    \
    __gpu_kernel void entry
#define QD_KERNEL_WITHIN(threads, registers, entry)                                                \
    __asm__("// quern: " #entry " .maxnreg " #registers);                                          \
    __gpu_kernel void entry
#define QD_WAVES_PER_EU(...)
#else
#define QD_WAVES_PER_EU(...) __attribute__((amdgpu_waves_per_eu(__VA_ARGS__)))
#define QD_KERNEL_UP_TO(threads, entry)                                                            \
    __attribute__((amdgpu_flat_work_group_size(1, threads))) __gpu_kernel void entry
#define QD_KERNEL_WITHIN(threads, registers, entry) QD_KERNEL_UP_TO(threads, entry)
#define QD_KERNEL(threads)                                                                         \
    __attribute__((amdgpu_flat_work_group_size(threads, threads))) __gpu_kernel void
#endif

#if defined(__NVPTX__)
extern QD_LDS uint8_t qd_launch_lds[] __attribute__((aligned(1024))); // of QD_KERNEL_HEAD
#endif

typedef float qd_f32x2 __attribute__((ext_vector_type(2)));
typedef float qd_f32x4 __attribute__((ext_vector_type(4)));
typedef float qd_f32x8 __attribute__((ext_vector_type(8)));
typedef float qd_f32x16 __attribute__((ext_vector_type(16)));
typedef uint32_t qd_u32x2 __attribute__((ext_vector_type(2)));
typedef uint32_t qd_u32x4 __attribute__((ext_vector_type(4)));
typedef uint32_t qd_u32x8 __attribute__((ext_vector_type(8)));
typedef int64_t qd_i64x2 __attribute__((ext_vector_type(2)));
typedef short qd_i16x8 __attribute__((ext_vector_type(8)));
typedef short qd_i16x16 __attribute__((ext_vector_type(16)));
typedef __bf16 qd_bf16x4 __attribute__((ext_vector_type(4)));

#if defined(__GFX9__)
enum { QD_WAVE = 64 }; // lanes a wave
#else
enum { QD_WAVE = 32 };
#endif

QD_INLINE uint32_t qd_thread(void) {
    return __gpu_thread_id(0);
}
QD_INLINE uint32_t qd_lane(void) {
    return __gpu_lane_id();
}
QD_INLINE uint32_t qd_block(void) {
    return __gpu_block_id(0);
}

/** Returns x, which is equal in all lanes, in a scalar register if the target has such. */
QD_INLINE uint32_t qd_uniform(uint32_t x) {
#if defined(__NVPTX__)
    return x;
#else
    return (uint32_t)__builtin_amdgcn_readfirstlane((int)x);
#endif
}

/** Returns this wave's index in the workgroup. */
QD_INLINE uint32_t qd_wave(void) {
    return qd_uniform(qd_thread() / QD_WAVE);
}

/** Returns lane `from`'s x, which is uniform; `from` is uniform. */
QD_INLINE uint32_t qd_read_lane(uint32_t x, uint32_t from) {
#if defined(__NVPTX__)
    return __gpu_shuffle_idx_u32(__gpu_lane_mask(), from, x, QD_WAVE);
#else
    return (uint32_t)__builtin_amdgcn_readlane((int)x, (int)from);
#endif
}

/** The value of x in another lane of this lane's row of 16. On AMD that lane is `step` places away,
 *  around the row; on NVIDIA its index differs in the bit `step`. To reduce a row, combine x with
 *  its partner's value for steps 8, 4, 2 and 1 by a commutative operation: all 16 lanes then hold
 *  the total, with equal bits. The whole wave takes part. On NVIDIA a shuffle names its lanes, and
 *  where it names a row's alone, the wave first finds out which lanes name the same (MATCH). */
#if defined(__NVPTX__)
#define QD_ROW_PARTNER(x, step)                                                                    \
    ((uint32_t)__nvvm_shfl_sync_bfly_i32(0xFFFFFFFF, (int)(x), step, 31))
#else
#define QD_ROW_PARTNER(x, step)                                                                    \
    ((uint32_t)__builtin_amdgcn_update_dpp(0, (int)(x), 0x120 + (step), 0xF, 0xF, false))
#endif

/** Returns the x of the lane whose index differs in the bit `step`, a constant: 1, 2, 4 or 8.
 *  The whole wave takes part. */
QD_INLINE uint32_t qd_swap_lanes(uint32_t x, uint32_t step) {
#if defined(__NVPTX__)
    return QD_ROW_PARTNER(x, (int)step);
#else
#define QD_DPP(control) (uint32_t)__builtin_amdgcn_update_dpp(0, (int)x, control, 0xF, 0xF, false)
    if (step == 1)
        return QD_DPP(0xB1); // quad_perm:[1,0,3,2]
    if (step == 2)
        return QD_DPP(0x4E); // quad_perm:[2,3,0,1]
    // Both rotations come before the choice, as no lane may be off while other lanes read it.
    const uint32_t before = QD_ROW_PARTNER(x, 4), after = QD_ROW_PARTNER(x, 12);
    if (step == 4)
        return qd_lane() & 4 ? before : after;
    return QD_ROW_PARTNER(x, 8);
#undef QD_DPP
#endif
}

/** Returns the value of x in the lane half a wave away. All lanes take part. */
QD_INLINE uint32_t qd_other_half(uint32_t x) {
#if defined(__NVPTX__)
    return (uint32_t)__nvvm_shfl_sync_bfly_i32(0xFFFFFFFF, (int)x, QD_WAVE / 2, 31);
#elif defined(__GFX9__)
    return (uint32_t)__builtin_amdgcn_ds_bpermute((int)((qd_lane() ^ 32) * 4), (int)x);
#else
    const uint32_t any = __builtin_nondeterministic_value(x); // what lanes that are off would keep
    return __builtin_amdgcn_permlanex16(any, x, 0x76543210, 0xFEDCBA98, false, false);
#endif
}

/** Returns a bit for each lane, lane 0's the lowest: 1 where x holds. */
QD_INLINE uint64_t qd_ballot(bool x) {
    return __gpu_ballot(__gpu_lane_mask(), x);
}

/** Returns the sum of x over this lane and the lanes below; all lanes take part. */
QD_INLINE uint32_t qd_scan_sum(uint32_t x) {
    QD_UNROLL for (uint32_t step = 1; step < QD_WAVE; step *= 2) {
        const uint32_t below =
            __gpu_shuffle_idx_u32(__gpu_lane_mask(), qd_lane() - step, x, QD_WAVE);
        x += qd_lane() >= step ? below : 0;
    }
    return x;
}

/** The first step of a kernel that may start early: the driver may start it while the stream's
 *  kernel before it still runs. qd_begin waits until that kernel has ended and its writes are
 *  visible, and lets the stream's next kernel start. No memory access may come before qd_begin. */
QD_INLINE void qd_begin(void) {
#if defined(__NVPTX__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/** Returns the kernel's arguments, which are at `args`. On AMD they are read anew where they are
 *  needed: some kernels have more arguments than there are scalar registers. */
QD_INLINE const void *qd_reread(const void *args) {
#if defined(__NVPTX__)
    return args;
#else
    (void)args;
    __attribute__((address_space(4))) void *anew;
    asm volatile("" : "=s"(anew) : "0"(__builtin_amdgcn_kernarg_segment_ptr()));
    return (const void *)anew;
#endif
}

/** Loads 16 bytes that are read only once. On an H200 a hint to the first cache not to keep them
 *  costs 5 % of a norm's speed, so PTX has none. */
QD_INLINE qd_u32x4 qd_stream_load4(const qd_u32x4 *p) {
#if defined(__NVPTX__)
    qd_u32x4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"((uint64_t)p));
    return v;
#else
    return __builtin_nontemporal_load(p);
#endif
}

/** Returns x, for which `loaded` has to be there as well: what uses x then stands behind that load.
 *  ptxas lets a load wait until registers are free for it, and its time is then not shared with
 *  other loads'. Grids have no third dimension, but ptxas does not know. */
QD_INLINE uint32_t qd_after([[maybe_unused]] uint32_t loaded, uint32_t x) {
#if defined(__NVPTX__)
    return x | (loaded & __gpu_block_id(2));
#else
    return x;
#endif
}

/** Loads 16 bytes as qd_stream_load4 does if `is_in`, else returns zeros; without a branch if the
 *  target can do that. */
QD_INLINE qd_u32x4 qd_stream_load4_if(bool is_in, const qd_u32x4 *p) {
#if defined(__NVPTX__)
    qd_u32x4 v = 0;
    asm volatile(
        "{.reg .pred in; setp.ne.u32 in, %5, 0; @in ld.global.v4.u32 {%0, %1, %2, %3}, [%4];}"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
        : "l"((uint64_t)p), "r"((uint32_t)is_in));
    return v;
#else
    return is_in ? __builtin_nontemporal_load(p) : (qd_u32x4)0;
#endif
}

/** Loads 16 bytes that nobody writes while the kernel runs, so that the compiler may move the load
 *  before stores. */
QD_INLINE qd_u32x4 qd_const_load4(const qd_u32x4 *p) {
#if defined(__NVPTX__)
    qd_u32x4 v;
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"((uint64_t)p));
    return v;
#else
    return *p;
#endif
}

/** Stores 16 bytes if `is_in`; without a branch if the target can do that, so that loads and stores
 *  around this store overlap. */
QD_INLINE void qd_store4_if(bool is_in, qd_u32x4 *p, qd_u32x4 v) {
#if defined(__NVPTX__)
    asm volatile(
        "{.reg .pred in; setp.ne.u32 in, %5, 0; @in st.global.v4.u32 [%0], {%1, %2, %3, %4};}"
        :
        : "l"((uint64_t)p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"((uint32_t)is_in)
        : "memory");
#else
    if (is_in)
        *p = v;
#endif
}
/** Stores 8 bytes as qd_store4_if stores 16. */
QD_INLINE void qd_store2_if(bool is_in, qd_u32x2 *p, qd_u32x2 v) {
#if defined(__NVPTX__)
    asm volatile("{.reg .pred in; setp.ne.u32 in, %3, 0; @in st.global.v2.u32 [%0], {%1, %2};}"
                 :
                 : "l"((uint64_t)p), "r"(v.x), "r"(v.y), "r"((uint32_t)is_in)
                 : "memory");
#else
    if (is_in)
        *p = v;
#endif
}

/** Returns v as a value of which the compiler knows nothing. What was computed from v before is
 *  then computed again, which for conversions costs less than keeping their results. */
QD_INLINE qd_u32x4 qd_opaque4(qd_u32x4 v) {
#if defined(__NVPTX__)
    uint32_t x = v.x, y = v.y, z = v.z, w = v.w;
    asm volatile("" : "+r"(x), "+r"(y), "+r"(z), "+r"(w));
    return (qd_u32x4){x, y, z, w};
#else
    asm volatile("" : "+v"(v));
    return v;
#endif
}

QD_INLINE uint32_t qd_opaque(uint32_t x) {
#if defined(__NVPTX__)
    asm volatile("" : "+r"(x));
#else
    asm volatile("" : "+v"(x));
#endif
    return x;
}

/** Returns x, which every lane computes: the compiler puts no branch around what x is computed
 *  from. */
QD_INLINE uint32_t qd_by_all_lanes(uint32_t x) {
#if defined(__NVPTX__)
    asm("" : "+r"(x));
#else
    asm("" : "+v"(x));
#endif
    return x;
}

/** A point across which AMD's compiler schedules no instruction; NVIDIA's has its own order. */
QD_INLINE void qd_pin(void) {
#if !defined(__NVPTX__)
    __builtin_amdgcn_sched_barrier(0);
#endif
}

/** Returns 1 / sqrt(x), off by at most 2 units in the last place. */
QD_INLINE float qd_rsqrt(float x) {
#if defined(__NVPTX__)
    return __nvvm_rsqrt_approx_f(x);
#else
    return __builtin_amdgcn_rsqf(x);
#endif
}

/** Returns 1 / sqrt(x) for a norm: 0 for x = 0, which a row of zeros has if eps is 0, so that the
 *  row's results are 0. */
QD_INLINE float qd_inverse_root(float x) {
    return x <= 0 ? 0 : qd_rsqrt(x);
}

/** Makes all waves of the workgroup meet. Writes to LDS before the barrier are visible to all waves
 *  after it. */
QD_INLINE void qd_barrier(void) {
#if defined(__NVPTX__)
    __gpu_sync_threads();
#else
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
#endif
}

/** Makes writes of a wave's lanes to LDS visible to the wave's other lanes. */
QD_INLINE void qd_wave_barrier(void) {
#if defined(__NVPTX__)
    __nvvm_bar_warp_sync(0xFFFFFFFF);
#else
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront", "local");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront", "local");
#endif
}

/** Adds to a word of LDS that other lanes may be adding to. */
QD_INLINE void qd_lds_add(QD_LDS uint32_t *p, uint32_t x) {
    __scoped_atomic_fetch_add(p, x, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
}

/** Adds as qd_lds_add does. Returns what was there before. */
QD_INLINE uint32_t qd_lds_fetch_add(QD_LDS uint32_t *p, uint32_t x) {
    return __scoped_atomic_fetch_add(p, x, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
}

typedef uint32_t __attribute__((may_alias)) qd_half;

/** Adds to the low half of 64 bits of LDS; the sum of all that is added is below 2^32. */
QD_INLINE void qd_lds_add_low(QD_LDS uint64_t *p, uint32_t x) {
    __scoped_atomic_fetch_add((QD_LDS qd_half *)p, x, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
}

/** Adds to 64 bits of LDS as qd_lds_add does. NVIDIA has no instruction for that, and would try in
 *  a loop until no other lane came between: there the carry goes by hand. */
QD_INLINE void qd_lds_add64(QD_LDS uint64_t *p, uint64_t x) {
#if defined(__NVPTX__)
    QD_LDS qd_half *const halves = (QD_LDS qd_half *)p;
    const uint32_t low = (uint32_t)x;
    const uint32_t before =
        __scoped_atomic_fetch_add(halves, low, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
    const uint32_t high = (uint32_t)(x >> 32) + (before + low < low);
    if (high)
        __scoped_atomic_fetch_add(halves + 1, high, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
#else
    __scoped_atomic_fetch_add(p, x, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
#endif
}

QD_INLINE uint32_t qd_min(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}
QD_INLINE uint32_t qd_max(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}
QD_INLINE uint32_t qd_div_up(uint32_t a, uint32_t b) {
    return a / b + (a % b != 0);
}

QD_INLINE float qd_as_f32(uint32_t bits) {
    return __builtin_bit_cast(float, bits);
}
QD_INLINE uint32_t qd_as_u32(float x) {
    return __builtin_bit_cast(uint32_t, x);
}

#endif
