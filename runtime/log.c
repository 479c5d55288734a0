// SPDX-License-Identifier: Apache-2.0
// The log: one line on stderr for each message, of the topics that QUERN_LOG names alone.
#include "runtime.h"

#include <string.h>
#include <unistd.h>

bool qni_log_is_on(qni_log_topic topic) {
    return (qni_env_get()->log & topic) != 0;
}

static const char *topic_name(qni_log_topic topic) {
    switch (topic) {
    case QNI_LOG_KERNEL:
        return "kernel";
    case QNI_LOG_JIT:
        return "jit";
    case QNI_LOG_LAUNCH:
        return "launch";
    }
    return "?";
}

void qni_log(qni_log_topic topic, const char *format, ...) {
    if (!qni_log_is_on(topic))
        return;
    char line[2048];
    const int used = snprintf(line, sizeof line, "quern: %s: ", topic_name(topic));
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    const size_t length = strlen(line);
    line[length] = '\n';
    // One write, so that lines of several threads and processes do not mix.
    const ssize_t written = write(STDERR_FILENO, line, length + 1);
    (void)written; // a closed stderr is no reason to fail a launch
}
