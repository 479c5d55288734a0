// SPDX-License-Identifier: Apache-2.0
// Part of hip.h: hiprtc, which compiles programs while they run (rtc.c, link.c).
#ifndef SIM_HIP_HIP_RTC_H
#define SIM_HIP_HIP_RTC_H

typedef struct _hiprtcProgram *hiprtcProgram;
typedef struct ihiprtcLinkState *hiprtcLinkState;

typedef enum hiprtcResult {
    HIPRTC_SUCCESS = 0,
    HIPRTC_ERROR_OUT_OF_MEMORY = 1,
    HIPRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
    HIPRTC_ERROR_INVALID_INPUT = 3,
    HIPRTC_ERROR_INVALID_PROGRAM = 4,
    HIPRTC_ERROR_INVALID_OPTION = 5,
    HIPRTC_ERROR_COMPILATION = 6,
    HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE = 7,
    HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION = 8,
    HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION = 9,
    HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID = 10,
    HIPRTC_ERROR_INTERNAL_ERROR = 11,
    HIPRTC_ERROR_LINKING = 100,
} hiprtcResult;

HIP_API const char *hiprtcGetErrorString(hiprtcResult result);
HIP_API hiprtcResult hiprtcVersion(int *major, int *minor);
HIP_API hiprtcResult hiprtcCreateProgram(hiprtcProgram *out, const char *source, const char *name,
                                         int num_headers, const char **headers,
                                         const char **include_names);
HIP_API hiprtcResult hiprtcDestroyProgram(hiprtcProgram *program);
HIP_API hiprtcResult hiprtcAddNameExpression(hiprtcProgram program, const char *expression);
HIP_API hiprtcResult hiprtcCompileProgram(hiprtcProgram program, int num_options,
                                          const char **options);
HIP_API hiprtcResult hiprtcGetLoweredName(hiprtcProgram program, const char *expression,
                                          const char **out);
HIP_API hiprtcResult hiprtcGetProgramLogSize(hiprtcProgram program, size_t *bytes);
HIP_API hiprtcResult hiprtcGetProgramLog(hiprtcProgram program, char *log);
HIP_API hiprtcResult hiprtcGetCodeSize(hiprtcProgram program, size_t *bytes);
HIP_API hiprtcResult hiprtcGetCode(hiprtcProgram program, char *code);
HIP_API hiprtcResult hiprtcGetBitcodeSize(hiprtcProgram program, size_t *bytes);
HIP_API hiprtcResult hiprtcGetBitcode(hiprtcProgram program, char *bitcode);
HIP_API hiprtcResult hiprtcLinkCreate(unsigned num_options, int *options, void **values,
                                      hiprtcLinkState *out);
HIP_API hiprtcResult hiprtcLinkAddFile(hiprtcLinkState link, int type, const char *path,
                                       unsigned num_options, int *options, void **values);
HIP_API hiprtcResult hiprtcLinkAddData(hiprtcLinkState link, int type, void *data, size_t bytes,
                                       const char *name, unsigned num_options, int *options,
                                       void **values);
HIP_API hiprtcResult hiprtcLinkComplete(hiprtcLinkState link, void **code, size_t *bytes);
HIP_API hiprtcResult hiprtcLinkDestroy(hiprtcLinkState link);

#endif
