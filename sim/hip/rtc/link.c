// SPDX-License-Identifier: Apache-2.0
// hiprtc's linker: bitcode of several programs becomes one code object, by clang and lld.
#include "../../object/entries.h"
#include "../runtime.h"
#include "clang.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INPUT_BITCODE = 100, INPUT_BUNDLE, INPUT_ARCHIVE }; // hiprtcJITInputType
enum { BACKEND_OPTIONS = 10000, BACKEND_COUNT = 10001 };   // hiprtcJIT_option

struct ihiprtcLinkState {
    char folder[RTC_PATH_BYTES];
    pid_t process; // that made the folder
    unsigned num_inputs;
    rtc_args options;
    char *code;
    bool is_linking, is_destroyed; // by one thread; by another one, meanwhile
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of all links, but while one links

/** Takes the lock for a link that no thread completes. Returns false, without the lock, if there is
 *  none. */
static bool enter(hiprtcLinkState link) {
    pthread_mutex_lock(&lock);
    if (link && sim_handle_is(SIM_HANDLE_LINK, link) && !link->is_linking)
        return true;
    pthread_mutex_unlock(&lock);
    return false;
}

static hiprtcResult leave(hiprtcResult result) {
    pthread_mutex_unlock(&lock);
    return result;
}

static void free_link(hiprtcLinkState link) {
    if (link->process == getpid())
        rtc_folder_remove(link->folder);
    rtc_args_clear(&link->options);
    free(link->code);
    free(link);
}

void rtc_links_free_all(void) {
    for (hiprtcLinkState link; (link = sim_handle_take(SIM_HANDLE_LINK));)
        free_link(link);
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
        if (ok)
            rtc_folder_remove(link->folder);
        rtc_args_clear(&link->options);
        free(link);
        return is_known ? HIPRTC_ERROR_INTERNAL_ERROR : HIPRTC_ERROR_INVALID_OPTION;
    }
    link->process = getpid();
    *out = link;
    return HIPRTC_SUCCESS;
}

/** Adds bitcode. The lock is held. */
static hiprtcResult add(hiprtcLinkState link, const void *bitcode, size_t bytes) {
    char file[32];
    snprintf(file, sizeof file, "input%u.bc", link->num_inputs);
    if (!rtc_write(link->folder, file, bitcode, bytes))
        return HIPRTC_ERROR_INTERNAL_ERROR;
    link->num_inputs++;
    return HIPRTC_SUCCESS;
}

/** Adds a bundle's entry for the current device. */
static hiprtcResult add_entry(hiprtcLinkState link, const void *bundle, size_t bytes) {
    size_t entry_bytes;
    const void *entry = sim_object_entry(sim_hip_device()->chip, bundle, bytes, &entry_bytes);
    return entry && entry_bytes ? add(link, entry, entry_bytes) : HIPRTC_ERROR_INVALID_INPUT;
}

/** Adds the entries of an archive's bundles (ar's format); members that are none are passed
 *  over. */
static hiprtcResult add_archive(hiprtcLinkState link, const char *archive, size_t bytes) {
    enum { MAGIC_BYTES = 8, HEADER_BYTES = 60, SIZE_AT = 48, SIZE_BYTES = 10 };
    const unsigned before = link->num_inputs;
    if (bytes < MAGIC_BYTES || memcmp(archive, "!<arch>\n", MAGIC_BYTES) != 0)
        return HIPRTC_ERROR_INVALID_INPUT;
    for (size_t at = MAGIC_BYTES, size; bytes - at > HEADER_BYTES; at += size + size % 2) {
        char text[SIZE_BYTES + 1] = "";
        memcpy(text, archive + at + SIZE_AT, SIZE_BYTES);
        size = strtoul(text, nullptr, 10);
        at += HEADER_BYTES;
        if (size > bytes - at)
            return HIPRTC_ERROR_INVALID_INPUT;
        add_entry(link, archive + at, size);
        if (size == bytes - at)
            break;
    }
    return link->num_inputs > before ? HIPRTC_SUCCESS : HIPRTC_ERROR_INVALID_INPUT;
}

hiprtcResult hiprtcLinkAddData(hiprtcLinkState link, int type, void *data, size_t bytes,
                               const char *name, unsigned num_options, int *options,
                               void **values) {
    (void)name, (void)options, (void)values;
    if (!data || !bytes || !enter(link))
        return HIPRTC_ERROR_INVALID_INPUT;
    if (num_options)
        return leave(HIPRTC_ERROR_INVALID_OPTION);
    switch (type) {
    case INPUT_BITCODE:
        return leave(add(link, data, bytes));
    case INPUT_BUNDLE:
        return leave(add_entry(link, data, bytes));
    case INPUT_ARCHIVE:
        return leave(add_archive(link, data, bytes));
    }
    sim_hip_report("hiprtcLinkAddData",
                   "input of type %d; accepted: %d, bitcode, %d, a bundle of it, %d, an archive of "
                   "bundles",
                   type, INPUT_BITCODE, INPUT_BUNDLE, INPUT_ARCHIVE);
    return leave(HIPRTC_ERROR_INVALID_INPUT);
}

hiprtcResult hiprtcLinkAddFile(hiprtcLinkState link, int type, const char *path,
                               unsigned num_options, int *options, void **values) {
    if (!path || type < INPUT_BITCODE || type > INPUT_ARCHIVE || !enter(link))
        return HIPRTC_ERROR_INVALID_INPUT;
    leave(HIPRTC_SUCCESS);
    size_t bytes;
    char *data = rtc_read(*path == '/' ? "" : ".", path, &bytes);
    if (!data)
        return HIPRTC_ERROR_PROGRAM_CREATION_FAILURE; // as AMD's runtime has it
    hiprtcResult result =
        hiprtcLinkAddData(link, type, data, bytes, path, num_options, options, values);
    free(data);
    return result;
}

/** Links into code that the link then has. Nobody else changes the link meanwhile. */
static bool run(hiprtcLinkState link, size_t *bytes) {
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
    return link->code;
}

hiprtcResult hiprtcLinkComplete(hiprtcLinkState link, void **code, size_t *bytes) {
    if (!code || !bytes || !enter(link))
        return HIPRTC_ERROR_INVALID_INPUT;
    link->is_linking = true;
    pthread_mutex_unlock(&lock);
    const bool ok = run(link, bytes);
    pthread_mutex_lock(&lock);
    link->is_linking = false;
    *code = link->is_destroyed ? nullptr : link->code;
    if (link->is_destroyed)
        free_link(link);
    return leave(ok ? HIPRTC_SUCCESS : HIPRTC_ERROR_LINKING);
}

hiprtcResult hiprtcLinkDestroy(hiprtcLinkState link) {
    pthread_mutex_lock(&lock);
    if (!link || !sim_handle_remove(SIM_HANDLE_LINK, link))
        return leave(HIPRTC_ERROR_INVALID_INPUT);
    link->is_destroyed = true;
    if (!link->is_linking)
        free_link(link);
    return leave(HIPRTC_SUCCESS);
}
