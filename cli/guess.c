// SPDX-License-Identifier: Apache-2.0
// Guesses which word a mistyped word was meant to be.
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_WORD = 48 };

static int least(int a, int b, int c) {
    const int m = a < b ? a : b;
    return m < c ? m : c;
}

/** Returns how many letters have to be added, left out, replaced, or swapped with a neighbour
 *  (optimal string alignment). */
static int distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    int rows[3][MAX_WORD + 1];
    int *old = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b_length; j++)
        now[j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        int *free_row = old;
        old = last, last = now, now = free_row;
        now[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            now[j] = least(last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], old[j - 2] + 1, now[j]);
        }
    }
    return now[b_length];
}

const char *cli_guess(const char *found, size_t length, const char *accepted, char *buf,
                      size_t room) {
    static const char blanks[] = ", |";
    int nearest = (int)(length / 3) + 2; // a word so far away is no guess
    *buf = '\0';
    if (length > MAX_WORD)
        return buf;
    for (const char *at = accepted + strspn(accepted, blanks); *at; at += strspn(at, blanks)) {
        const size_t n = strcspn(at, blanks);
        const int d = n <= MAX_WORD ? distance(found, length, at, n) : MAX_WORD;
        if (d == 0) { // it is good, and something else is wrong
            *buf = '\0';
            break;
        }
        if (d < nearest) {
            nearest = d;
            snprintf(buf, room, "; did you mean %.*s?", (int)n, at);
        }
        at += n;
    }
    return buf;
}
