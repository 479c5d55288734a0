// SPDX-License-Identifier: Apache-2.0
// The command's error message, and the exit status that each code means.
#include "cli.h"

#include <string.h>

static char message[2048];

qn_status cli_fail(qn_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char text[sizeof message]; // the old message may be among the arguments
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++) // names come from files and must not control the terminal
        if ((unsigned char)*c < ' ' || *c == 0x7F)
            *c = '?';
    memcpy(message, text, sizeof text);
    return status;
}

const char *cli_error(void) {
    return message;
}

int cli_finish(const char *command, qn_status status) {
    if (status == QN_OK)
        return CLI_DONE;
    fflush(stdout);
    fprintf(stderr, "quern %s: %s\n", command, message);
    return status == QN_E_MISMATCH ? CLI_CHECK_FAILED : CLI_BAD_INPUT;
}
