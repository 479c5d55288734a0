// SPDX-License-Identifier: Apache-2.0
// Part of hip.h: memory in three dimensions, arrays, and memory that host and device share.
#ifndef SIM_HIP_HIP_MEMORY_H
#define SIM_HIP_HIP_MEMORY_H

typedef struct hipArray *hipArray_t; // a grid of elements in device memory (arrays.c)
typedef const struct hipArray *hipArray_const_t;

typedef struct hipPitchedPtr {
    void *ptr;
    size_t pitch, xsize, ysize; // bytes; of the rows of a slice, ysize counts them
} hipPitchedPtr;

typedef struct hipExtent {
    size_t width, height, depth; // width: bytes; elements if an array takes part
} hipExtent;

typedef struct hipPos {
    size_t x, y, z;
} hipPos;

typedef struct hipMemcpy3DParms {
    hipArray_t srcArray;
    hipPos srcPos;
    hipPitchedPtr srcPtr;
    hipArray_t dstArray;
    hipPos dstPos;
    hipPitchedPtr dstPtr;
    hipExtent extent;
    hipMemcpyKind kind;
} hipMemcpy3DParms;

typedef struct HIP_MEMCPY3D {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    hipMemoryType srcMemoryType;
    const void *srcHost;
    hipDeviceptr_t srcDevice;
    hipArray_t srcArray;
    size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD;
    hipMemoryType dstMemoryType;
    void *dstHost;
    hipDeviceptr_t dstDevice;
    hipArray_t dstArray;
    size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} HIP_MEMCPY3D;

typedef struct hipMemcpy3DPeerParms {
    hipArray_t srcArray;
    hipPos srcPos;
    hipPitchedPtr srcPtr;
    int srcDevice;
    hipArray_t dstArray;
    hipPos dstPos;
    hipPitchedPtr dstPtr;
    int dstDevice;
    hipExtent extent;
} hipMemcpy3DPeerParms;

typedef struct hipChannelFormatDesc {
    int x, y, z, w; // bits of each channel
    int f;          // 0 signed, 1 unsigned, 2 float, 3 none
} hipChannelFormatDesc;

typedef enum hipArray_Format {
    HIP_AD_FORMAT_UNSIGNED_INT8 = 0x01,
    HIP_AD_FORMAT_UNSIGNED_INT16 = 0x02,
    HIP_AD_FORMAT_UNSIGNED_INT32 = 0x03,
    HIP_AD_FORMAT_SIGNED_INT8 = 0x08,
    HIP_AD_FORMAT_SIGNED_INT16 = 0x09,
    HIP_AD_FORMAT_SIGNED_INT32 = 0x0a,
    HIP_AD_FORMAT_HALF = 0x10,
    HIP_AD_FORMAT_FLOAT = 0x20,
} hipArray_Format;

typedef struct HIP_ARRAY_DESCRIPTOR {
    size_t Width, Height;
    hipArray_Format Format;
    unsigned NumChannels;
} HIP_ARRAY_DESCRIPTOR;

typedef struct HIP_ARRAY3D_DESCRIPTOR {
    size_t Width, Height, Depth;
    hipArray_Format Format;
    unsigned NumChannels, Flags;
} HIP_ARRAY3D_DESCRIPTOR;

// Volumes (volumes.c).
HIP_API hipError_t hipMalloc3D(hipPitchedPtr *out, hipExtent extent);
HIP_API hipError_t hipMemset3D(hipPitchedPtr dst, int value, hipExtent extent);
HIP_API hipError_t hipMemset3DAsync(hipPitchedPtr dst, int value, hipExtent extent,
                                    hipStream_t stream);
HIP_API hipError_t hipMemcpy3D(const hipMemcpy3DParms *copy);
HIP_API hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms *copy, hipStream_t stream);
HIP_API hipError_t hipMemcpy3DPeer(hipMemcpy3DPeerParms *copy);
HIP_API hipError_t hipMemcpy3DPeerAsync(hipMemcpy3DPeerParms *copy, hipStream_t stream);
HIP_API hipError_t hipDrvMemcpy3D(const HIP_MEMCPY3D *copy);
HIP_API hipError_t hipDrvMemcpy3DAsync(const HIP_MEMCPY3D *copy, hipStream_t stream);
HIP_API hipError_t hipMemset3D_spt(hipPitchedPtr dst, int value, hipExtent extent);
HIP_API hipError_t hipMemset3DAsync_spt(hipPitchedPtr dst, int value, hipExtent extent,
                                        hipStream_t stream);
HIP_API hipError_t hipMemcpy3D_spt(const hipMemcpy3DParms *copy);
HIP_API hipError_t hipMemcpy3DAsync_spt(const hipMemcpy3DParms *copy, hipStream_t stream);

// Arrays (arrays.c, array_copies.c).
HIP_API hipError_t hipMallocArray(hipArray_t *out, const hipChannelFormatDesc *desc, size_t width,
                                  size_t height, unsigned flags);
HIP_API hipError_t hipMalloc3DArray(hipArray_t *out, const hipChannelFormatDesc *desc,
                                    hipExtent extent, unsigned flags);
HIP_API hipError_t hipArrayCreate(hipArray_t *out, const HIP_ARRAY_DESCRIPTOR *desc);
HIP_API hipError_t hipArray3DCreate(hipArray_t *out, const HIP_ARRAY3D_DESCRIPTOR *desc);
HIP_API hipError_t hipFreeArray(hipArray_t array);
HIP_API hipError_t hipArrayDestroy(hipArray_t array);
HIP_API hipError_t hipArrayGetInfo(hipChannelFormatDesc *desc, hipExtent *extent, unsigned *flags,
                                   hipArray_t array);
HIP_API hipError_t hipArrayGetDescriptor(HIP_ARRAY_DESCRIPTOR *desc, hipArray_t array);
HIP_API hipError_t hipArray3DGetDescriptor(HIP_ARRAY3D_DESCRIPTOR *desc, hipArray_t array);
HIP_API hipError_t hipGetChannelDesc(hipChannelFormatDesc *desc, hipArray_const_t array);
HIP_API hipError_t hipMemcpy2DToArray(hipArray_t dst, size_t x, size_t y, const void *src,
                                      size_t pitch, size_t width, size_t height,
                                      hipMemcpyKind kind);
HIP_API hipError_t hipMemcpy2DToArrayAsync(hipArray_t dst, size_t x, size_t y, const void *src,
                                           size_t pitch, size_t width, size_t height,
                                           hipMemcpyKind kind, hipStream_t stream);
HIP_API hipError_t hipMemcpy2DFromArray(void *dst, size_t pitch, hipArray_const_t src, size_t x,
                                        size_t y, size_t width, size_t height, hipMemcpyKind kind);
HIP_API hipError_t hipMemcpy2DFromArrayAsync(void *dst, size_t pitch, hipArray_const_t src,
                                             size_t x, size_t y, size_t width, size_t height,
                                             hipMemcpyKind kind, hipStream_t stream);
HIP_API hipError_t hipMemcpy2DToArray_spt(hipArray_t dst, size_t x, size_t y, const void *src,
                                          size_t pitch, size_t width, size_t height,
                                          hipMemcpyKind kind);
HIP_API hipError_t hipMemcpy2DToArrayAsync_spt(hipArray_t dst, size_t x, size_t y, const void *src,
                                               size_t pitch, size_t width, size_t height,
                                               hipMemcpyKind kind, hipStream_t stream);
HIP_API hipError_t hipMemcpy2DFromArray_spt(void *dst, size_t pitch, hipArray_const_t src, size_t x,
                                            size_t y, size_t width, size_t height,
                                            hipMemcpyKind kind);
HIP_API hipError_t hipMemcpy2DFromArrayAsync_spt(void *dst, size_t pitch, hipArray_const_t src,
                                                 size_t x, size_t y, size_t width, size_t height,
                                                 hipMemcpyKind kind, hipStream_t stream);
HIP_API hipError_t hipMemcpy2DArrayToArray(hipArray_t dst, size_t dst_x, size_t dst_y,
                                           hipArray_const_t src, size_t src_x, size_t src_y,
                                           size_t width, size_t height, hipMemcpyKind kind);
HIP_API hipError_t hipMemcpyToArray(hipArray_t dst, size_t x, size_t y, const void *src,
                                    size_t bytes, hipMemcpyKind kind);
HIP_API hipError_t hipMemcpyFromArray(void *dst, hipArray_const_t src, size_t x, size_t y,
                                      size_t bytes, hipMemcpyKind kind);
HIP_API hipError_t hipMemcpyFromArray_spt(void *dst, hipArray_const_t src, size_t x, size_t y,
                                          size_t bytes, hipMemcpyKind kind);
HIP_API hipError_t hipMemcpyHtoA(hipArray_t dst, size_t offset, const void *src, size_t bytes);
HIP_API hipError_t hipMemcpyHtoAAsync(hipArray_t dst, size_t offset, const void *src, size_t bytes,
                                      hipStream_t stream);
HIP_API hipError_t hipMemcpyAtoH(void *dst, hipArray_t src, size_t offset, size_t bytes);
HIP_API hipError_t hipMemcpyAtoHAsync(void *dst, hipArray_t src, size_t offset, size_t bytes,
                                      hipStream_t stream);
HIP_API hipError_t hipMemcpyDtoA(hipArray_t dst, size_t offset, hipDeviceptr_t src, size_t bytes);
HIP_API hipError_t hipMemcpyAtoD(hipDeviceptr_t dst, hipArray_t src, size_t offset, size_t bytes);
HIP_API hipError_t hipMemcpyAtoA(hipArray_t dst, size_t dst_offset, hipArray_t src,
                                 size_t src_offset, size_t bytes);

// Memory that host and devices share (managed.c).
typedef struct hipMemLocation {
    int type; // 1 device, 2 host
    int id;
} hipMemLocation;

typedef struct hipMemPoolProps {
    int allocType, handleTypes;
    hipMemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize; // bytes; 0: as much as there is
    unsigned char reserved[56];
} hipMemPoolProps;

typedef struct hipMemAccessDesc {
    hipMemLocation location;
    int flags; // 0: none, 1: reads, 3: reads and writes
} hipMemAccessDesc;

typedef struct sim_pool_of_memory *hipMemPool_t;

HIP_API hipError_t hipMallocManaged(void **out, size_t bytes, unsigned flags);
HIP_API hipError_t hipMemPrefetchAsync(const void *ptr, size_t bytes, int device,
                                       hipStream_t stream);
HIP_API hipError_t hipMemPrefetchAsync_v2(const void *ptr, size_t bytes, hipMemLocation location,
                                          unsigned flags, hipStream_t stream);
HIP_API hipError_t hipMemAdvise(const void *ptr, size_t bytes, int advice, int device);
HIP_API hipError_t hipMemAdvise_v2(const void *ptr, size_t bytes, int advice,
                                   hipMemLocation location);
HIP_API hipError_t hipMemRangeGetAttribute(void *data, size_t data_bytes, int attribute,
                                           const void *ptr, size_t bytes);
HIP_API hipError_t hipMemRangeGetAttributes(void **data, size_t *data_bytes, int *attributes,
                                            size_t count, const void *ptr, size_t bytes);
HIP_API hipError_t hipStreamAttachMemAsync(hipStream_t stream, void *ptr, size_t bytes,
                                           unsigned flags);

// Pools (pools.c).
HIP_API hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t *out, int device);
HIP_API hipError_t hipDeviceGetMemPool(hipMemPool_t *out, int device);
HIP_API hipError_t hipDeviceSetMemPool(int device, hipMemPool_t pool);
HIP_API hipError_t hipMemPoolCreate(hipMemPool_t *out, const hipMemPoolProps *props);
HIP_API hipError_t hipMemPoolDestroy(hipMemPool_t pool);
HIP_API hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t bytes);
HIP_API hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, int attribute, void *value);
HIP_API hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, int attribute, void *value);
HIP_API hipError_t hipMemPoolSetAccess(hipMemPool_t pool, const hipMemAccessDesc *list,
                                       size_t count);
HIP_API hipError_t hipMemPoolGetAccess(int *flags, hipMemPool_t pool, hipMemLocation *location);
HIP_API hipError_t hipMallocFromPoolAsync(void **out, size_t bytes, hipMemPool_t pool,
                                          hipStream_t stream);

HIP_API hipChannelFormatDesc hipCreateChannelDesc(int x, int y, int z, int w, int kind);

// Several copies by one call (batches.c).

typedef struct hipMemcpyAttributes {
    int srcAccessOrder;
    hipMemLocation srcLocHint, dstLocHint;
    unsigned flags;
} hipMemcpyAttributes;

typedef struct hipMemcpy3DOperand {
    int type;
    union {
        struct {
            void *ptr;
            size_t rowLength, layerHeight;
            hipMemLocation locHint;
        } ptr;
        struct {
            hipArray_t array;
            struct {
                size_t x, y, z;
            } offset; // elements
        } array;
    };
} hipMemcpy3DOperand;

typedef struct hipMemcpy3DBatchOp {
    hipMemcpy3DOperand src, dst;
    hipExtent extent;
    int srcAccessOrder;
    unsigned flags;
} hipMemcpy3DBatchOp;

static_assert(sizeof(hipMemcpyAttributes) == 24 && sizeof(hipMemcpy3DBatchOp) == 112);

HIP_API hipError_t hipMemcpyBatchAsync(void **dsts, void **srcs, size_t *sizes, size_t count,
                                       hipMemcpyAttributes *attributes, size_t *starts, size_t num,
                                       size_t *fail_index, hipStream_t stream);
HIP_API hipError_t hipMemcpy3DBatchAsync(size_t count, hipMemcpy3DBatchOp *ops, size_t *fail_index,
                                         unsigned long long flags, hipStream_t stream);

// Pools of other processes (ipc/pools.c).

typedef struct hipMemPoolPtrExportData {
    char reserved[64];
} hipMemPoolPtrExportData;

HIP_API hipError_t hipMemPoolExportToShareableHandle(void *out, hipMemPool_t pool, int type,
                                                     unsigned flags);
HIP_API hipError_t hipMemPoolImportFromShareableHandle(hipMemPool_t *out, void *handle, int type,
                                                       unsigned flags);
HIP_API hipError_t hipMemPoolExportPointer(hipMemPoolPtrExportData *out, void *ptr);
HIP_API hipError_t hipMemPoolImportPointer(void **out, hipMemPool_t pool,
                                           hipMemPoolPtrExportData *data);

HIP_API hipError_t hipPointerSetAttribute(const void *value, hipPointer_attribute attribute,
                                          hipDeviceptr_t ptr);

#endif
