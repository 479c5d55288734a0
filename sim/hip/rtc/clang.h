// SPDX-License-Identifier: Apache-2.0
// clang, as hiprtc uses it: in a folder of its own, which is removed afterwards.
#ifndef SIM_HIP_RTC_CLANG_H
#define SIM_HIP_RTC_CLANG_H

#include <stddef.h>

enum { RTC_PATH_BYTES = 512, RTC_MAX_ARGS = 512 };

/** A list of arguments for clang; each is a copy. */
typedef struct rtc_args {
    char *list[RTC_MAX_ARGS + 1];
    int count;
    bool is_short_of_room;
} rtc_args;

[[gnu::format(printf, 2, 3)]] void rtc_arg(rtc_args *args, const char *format, ...);
void rtc_args_clear(rtc_args *args);
/** Returns the folder of an installed ROCm, or of a tree like it: ROCM_PATH, HIP_PATH, or
 *  /opt/rocm. */
const char *rtc_rocm(void);
/** Makes an empty folder for files. Returns false if that fails. */
bool rtc_folder_create(char path[RTC_PATH_BYTES]);
void rtc_folder_remove(const char *path);
/** Writes a file in a folder; its name may have folders of its own, which are made, but may not
 *  lead out of the folder. */
bool rtc_write(const char *folder, const char *name, const void *data, size_t bytes);
/** Reads a file whole, with a zero behind it; null if that fails. */
char *rtc_read(const char *folder, const char *name, size_t *bytes);
#define RTC_BUILTINS "quern_hiprtc_builtins.h"
/** Writes a header of that name, which includes what AMD's hiprtc has within it. (builtins.c) */
bool rtc_write_builtins(const char *folder);
/** Frees links that the program has left; their folders, unless they are a parent process's.
 *  (link.c) */
void rtc_links_free_all(void);
/** Runs clang with the arguments, in the folder; what it says goes to the folder's file "log".
 *  Returns whether it succeeded. */
bool rtc_run_clang(const char *folder, rtc_args *args);

#endif
