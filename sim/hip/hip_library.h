// SPDX-License-Identifier: Apache-2.0
// Part of hip.h: code that any device may run (library.c), bitcode that is linked (rtc/driver.c).
#ifndef SIM_HIP_HIP_LIBRARY_H
#define SIM_HIP_HIP_LIBRARY_H

typedef struct sim_library *hipLibrary_t;
typedef struct sim_library_kernel *hipKernel_t; // a hipFunction_t of every device
typedef struct ihiprtcLinkState *hipLinkState_t;

// Libraries.
HIP_API hipError_t hipLibraryLoadData(hipLibrary_t *out, const void *code, int **jit_options,
                                      void **jit_values, unsigned num_jit, int **options,
                                      void **values, unsigned num_options);
HIP_API hipError_t hipLibraryLoadFromFile(hipLibrary_t *out, const char *path, int **jit_options,
                                          void **jit_values, unsigned num_jit, int **options,
                                          void **values, unsigned num_options);
HIP_API hipError_t hipLibraryUnload(hipLibrary_t library);
HIP_API hipError_t hipLibraryGetKernel(hipKernel_t *out, hipLibrary_t library, const char *name);
HIP_API hipError_t hipLibraryGetKernelCount(unsigned *count, hipLibrary_t library);
HIP_API hipError_t hipLibraryEnumerateKernels(hipKernel_t *kernels, unsigned count,
                                              hipLibrary_t library);
HIP_API hipError_t hipKernelGetFunction(hipFunction_t *out, hipKernel_t kernel);
HIP_API hipError_t hipKernelGetLibrary(hipLibrary_t *out, hipKernel_t kernel);
HIP_API hipError_t hipKernelGetName(const char **out, hipKernel_t kernel);
HIP_API hipError_t hipKernelGetParamInfo(hipKernel_t kernel, size_t index, size_t *offset,
                                         size_t *bytes);
HIP_API hipError_t hipKernelGetAttribute(int *value, hipFunction_attribute attribute,
                                         hipKernel_t kernel, hipDevice_t device);
HIP_API hipError_t hipKernelSetAttribute(hipFunction_attribute attribute, int value,
                                         hipKernel_t kernel, hipDevice_t device);

// Linking, which hiprtc's calls do too.
HIP_API hipError_t hipLinkCreate(unsigned num_options, int *options, void **values,
                                 hipLinkState_t *out);
HIP_API hipError_t hipLinkAddData(hipLinkState_t link, int type, void *data, size_t bytes,
                                  const char *name, unsigned num_options, int *options,
                                  void **values);
HIP_API hipError_t hipLinkAddFile(hipLinkState_t link, int type, const char *path,
                                  unsigned num_options, int *options, void **values);
HIP_API hipError_t hipLinkComplete(hipLinkState_t link, void **code, size_t *bytes);
HIP_API hipError_t hipLinkDestroy(hipLinkState_t link);

#endif
