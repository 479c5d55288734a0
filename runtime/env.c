// SPDX-License-Identifier: Apache-2.0
// Environment variables: all are read here, once. docs/env.md describes them.
#include "runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TIMEOUT_S = 600 };

static qni_env env;
static pthread_once_t env_once = PTHREAD_ONCE_INIT;

/** Returns a variable's allocated copy; "" if allocation failed, which env.lacks_memory notes, so
 *  that nobody takes it for unset. */
static const char *kept(char *copy) {
    env.lacks_memory |= !copy;
    return copy ? copy : "";
}

/** Returns a copy, which later changes of the environment do not affect; "" if the variable is
 *  unset. */
static const char *text_of(const char *name) {
    const char *value = getenv(name);
    return value && *value ? kept(strdup(value)) : "";
}

static const char *joined(const char *folder, const char *rest) {
    char *path = nullptr;
    return kept(asprintf(&path, "%s%s", folder, rest) < 0 ? nullptr : path);
}

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...) {
    if (*env.error) // the first mistake is the one to mend first
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(env.error, sizeof env.error, format, args);
    va_end(args);
}

static bool flag_of(const char *name) {
    const char *value = getenv(name);
    if (!value || !*value || strcmp(value, "0") == 0)
        return false;
    if (strcmp(value, "1") != 0)
        complain("%s is \"%.64s\"; accepted: 0, 1", name, value);
    return true;
}

static int count_of(const char *name, int limit) {
    const char *value = getenv(name);
    if (!value || !*value)
        return 0;
    char *end;
    const long count = strtol(value, &end, 10);
    if (*end || count < 1 || count > limit) {
        complain("%s is \"%.64s\"; accepted: a number from 1 to %d", name, value, limit);
        return 0;
    }
    return (int)count;
}

static unsigned log_topics_of(const char *name) {
    static const struct {
        const char *word;
        unsigned bits;
    } topics[] = {{"kernel", QNI_LOG_KERNEL},
                  {"jit", QNI_LOG_JIT},
                  {"launch", QNI_LOG_LAUNCH},
                  {"all", QNI_LOG_KERNEL | QNI_LOG_JIT | QNI_LOG_LAUNCH}};
    unsigned bits = 0;
    const char *at = getenv(name);
    while (at && *at) {
        size_t length = strcspn(at, ","), t = 0, count = sizeof topics / sizeof *topics;
        while (t < count &&
               (strlen(topics[t].word) != length || strncmp(topics[t].word, at, length)))
            t++;
        if (t < count)
            bits |= topics[t].bits;
        else if (length > 0)
            complain("%s has \"%.*s\"; accepted: kernel, jit, launch, all", name, (int)length, at);
        at += length + (at[length] == ',');
    }
    return bits;
}

/** Returns QUERN_CACHE_DIR, else $XDG_CACHE_HOME/quern, else ~/.cache/quern; "" if there is no
 *  home. */
static const char *cache_dir(void) {
    const char *set = text_of("QUERN_CACHE_DIR");
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (*set)
        return set;
    // The XDG specification says that a relative XDG_CACHE_HOME is ignored.
    if (base && *base == '/')
        return joined(base, "/quern");
    if (home && *home)
        return joined(home, "/.cache/quern");
    return "";
}

static void read_all(void) {
    env.device = text_of("QUERN_DEVICE");
    env.disable = text_of("QUERN_DISABLE");
    env.force = text_of("QUERN_FORCE");
    env.tune = text_of("QUERN_TUNE");
    env.cache_dir = cache_dir();
    env.clang = text_of("QUERN_CLANG");
    env.hip_library = text_of("QUERN_HIP_LIBRARY");
    env.cuda_library = text_of("QUERN_CUDA_LIBRARY");
    env.sim_library = text_of("QUERN_SIM_LIBRARY");
    env.rocm_path = text_of("ROCM_PATH");
    env.hip_path = text_of("HIP_PATH");
    env.rocm_wheels = text_of("QUERN_ROCM_WHEELS");
    env.path = text_of("PATH");
    const char *tmp = text_of("TMPDIR");
    env.tmp_dir = *tmp ? tmp : "/tmp";
    env.log = log_topics_of("QUERN_LOG");
    env.num_threads = count_of("QUERN_NUM_THREADS", 1024);
    const int timeout_s = count_of("QUERN_JIT_TIMEOUT", 86400);
    env.jit_timeout_s = timeout_s ? timeout_s : DEFAULT_TIMEOUT_S;
    env.no_jit = flag_of("QUERN_NO_JIT");
    env.batch_invariant = flag_of("QUERN_BATCH_INVARIANT");
    env.validate = flag_of("QUERN_VALIDATE");
    // Both variables are the HIP runtime's own: any value but 0 makes launches wait.
    const char *serialize = text_of("AMD_SERIALIZE_KERNEL"),
               *blocking = text_of("HIP_LAUNCH_BLOCKING");
    env.serialize_kernel =
        (*serialize && strcmp(serialize, "0")) || (*blocking && strcmp(blocking, "0"));
}

const qni_env *qni_env_get(void) {
    pthread_once(&env_once, read_all);
    return &env;
}
