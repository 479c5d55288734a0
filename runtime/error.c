// SPDX-License-Identifier: Apache-2.0
// The thread's last error message, and the names of status codes.
#include "runtime.h"

#include <string.h>

// A message has room for every kernel's reason, or for the first screen of a compiler's complaint.
static thread_local char last_error[4096];

qn_status qni_fail(qn_status status, const char *format, ...) {
    // Arguments may point into last_error, as in a message that quotes the one before, hence the
    // copy.
    char text[sizeof last_error];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(last_error, text, strlen(text) + 1);
    return status;
}

const char *qn_last_error(void) {
    return last_error;
}

const char *qn_status_name(qn_status status) {
    switch (status) {
    case QN_OK:
        return "QN_OK";
    case QN_E_INVALID:
        return "QN_E_INVALID";
    case QN_E_UNSUPPORTED:
        return "QN_E_UNSUPPORTED";
    case QN_E_DEVICE:
        return "QN_E_DEVICE";
    case QN_E_MEMORY:
        return "QN_E_MEMORY";
    case QN_E_IO:
        return "QN_E_IO";
    case QN_E_NOT_FOUND:
        return "QN_E_NOT_FOUND";
    case QN_E_MISMATCH:
        return "QN_E_MISMATCH";
    default:
        return "QN_E_?";
    }
}

const char *qn_version(void) {
    return QN_VERSION;
}
