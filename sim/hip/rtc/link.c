// SPDX-License-Identifier: Apache-2.0
// hiprtc's linker: bitcode of several programs becomes one code object, by clang and lld.
#include "../runtime.h"
#include "clang.h"

#include <stdio.h>
#include <stdlib.h>

enum { INPUT_BITCODE = 100 };                            // hiprtcJITInputType
enum { BACKEND_OPTIONS = 10000, BACKEND_COUNT = 10001 }; // hiprtcJIT_option

struct ihiprtcLinkState {
    char folder[RTC_PATH_BYTES];
    unsigned num_inputs;
    rtc_args options;
    char *code;
};

static bool is_link(hiprtcLinkState link) {
    return link && sim_handle_is(SIM_HANDLE_LINK, link);
}

static void free_link(hiprtcLinkState link) {
    rtc_folder_remove(link->folder);
    rtc_args_clear(&link->options);
    free(link->code);
    free(link);
}

/** Takes the options for clang that the program gives. Returns false at any other option. */
static bool take_options(rtc_args *args, unsigned count, const int *options, void **values) {
    const char *const *list = nullptr;
    size_t length = 0;
    for (unsigned i = 0; i < count; i++)
        if (options[i] == BACKEND_OPTIONS)
            list = values[i];
        else if (options[i] == BACKEND_COUNT)
            length = (size_t)values[i];
        else
            return false;
    for (size_t i = 0; list && i < length; i++)
        rtc_arg(args, "%s", list[i]);
    return true;
}

hiprtcResult hiprtcLinkCreate(unsigned num_options, int *options, void **values,
                              hiprtcLinkState *out) {
    if (!out || (num_options && (!options || !values)))
        return HIPRTC_ERROR_INVALID_INPUT;
    hiprtcLinkState link = calloc(1, sizeof *link);
    if (!link)
        return HIPRTC_ERROR_OUT_OF_MEMORY;
    const bool is_known = take_options(&link->options, num_options, options, values);
    const bool ok = is_known && sim_hip_start() == hipSuccess && rtc_folder_create(link->folder);
    if (!ok || !sim_handle_add(SIM_HANDLE_LINK, link)) {
        rtc_args_clear(&link->options);
        free(link);
        return is_known ? HIPRTC_ERROR_INTERNAL_ERROR : HIPRTC_ERROR_INVALID_OPTION;
    }
    *out = link;
    return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcLinkAddData(hiprtcLinkState link, int type, void *data, size_t bytes,
                               const char *name, unsigned num_options, int *options,
                               void **values) {
    (void)name, (void)options, (void)values;
    if (!is_link(link) || !data || !bytes)
        return HIPRTC_ERROR_INVALID_INPUT;
    if (num_options)
        return HIPRTC_ERROR_INVALID_OPTION;
    if (type != INPUT_BITCODE) {
        sim_hip_report("hiprtcLinkAddData", "input of type %d; accepted: %d, bitcode", type,
                       INPUT_BITCODE);
        return HIPRTC_ERROR_INVALID_INPUT;
    }
    char file[32];
    snprintf(file, sizeof file, "input%u.bc", link->num_inputs);
    if (!rtc_write(link->folder, file, data, bytes))
        return HIPRTC_ERROR_INTERNAL_ERROR;
    link->num_inputs++;
    return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcLinkAddFile(hiprtcLinkState link, int type, const char *path,
                               unsigned num_options, int *options, void **values) {
    if (!is_link(link) || !path)
        return HIPRTC_ERROR_INVALID_INPUT;
    size_t bytes;
    char *data = rtc_read(*path == '/' ? "" : ".", path, &bytes);
    if (!data)
        return HIPRTC_ERROR_PROGRAM_CREATION_FAILURE; // as AMD's runtime has it
    hiprtcResult result =
        hiprtcLinkAddData(link, type, data, bytes, path, num_options, options, values);
    free(data);
    return result;
}

hiprtcResult hiprtcLinkComplete(hiprtcLinkState link, void **code, size_t *bytes) {
    if (!is_link(link) || !code || !bytes)
        return HIPRTC_ERROR_INVALID_INPUT;
    rtc_args args = {};
    rtc_arg(&args, "--target=amdgcn-amd-amdhsa");
    rtc_arg(&args, "-mcpu=%s", sim_hip_device()->chip->name);
    rtc_arg(&args, "-nogpulib");
    rtc_arg(&args, "-O3");
    for (int i = 0; i < link->options.count; i++)
        rtc_arg(&args, "%s", link->options.list[i]);
    for (unsigned i = 0; i < link->num_inputs; i++)
        rtc_arg(&args, "%s/input%u.bc", link->folder, i);
    rtc_arg(&args, "-o");
    rtc_arg(&args, "%s/linked.co", link->folder);
    free(link->code);
    link->code = nullptr;
    const bool ok = link->num_inputs && rtc_run_clang(link->folder, &args);
    rtc_args_clear(&args);
    if (ok)
        link->code = rtc_read(link->folder, "linked.co", bytes);
    size_t log_bytes;
    char *log = ok ? nullptr : rtc_read(link->folder, "log", &log_bytes);
    if (log)
        sim_hip_report("hiprtcLinkComplete", "%s", log);
    free(log);
    *code = link->code;
    return link->code ? HIPRTC_SUCCESS : HIPRTC_ERROR_LINKING;
}

hiprtcResult hiprtcLinkDestroy(hiprtcLinkState link) {
    if (!link || !sim_handle_remove(SIM_HANDLE_LINK, link))
        return HIPRTC_ERROR_INVALID_INPUT;
    free_link(link);
    return HIPRTC_SUCCESS;
}
