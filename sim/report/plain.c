// SPDX-License-Identifier: Apache-2.0
// Makes text from code objects safe to show.
#include "plain.h"

#include <stdint.h>

/** Returns the bytes of the UTF-8 character at `c`, which must have more than one; 0: it is no
 *  character. */
static unsigned utf8_bytes(const unsigned char *c) {
    const unsigned bytes = *c >= 0xf0 ? 4 : *c >= 0xe0 ? 3 : 2;
    uint32_t value = *c & (0xffu >> (bytes + 1));
    for (unsigned i = 1; i < bytes; i++) {
        if ((c[i] & 0xc0) != 0x80) // the string's end too
            return 0;
        value = value << 6 | (c[i] & 0x3f);
    }
    static const uint32_t first[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool is_surrogate = value >= 0xd800 && value < 0xe000;
    return *c < 0xc2 || *c > 0xf4 || value < first[bytes] || value > 0x10ffff || is_surrogate
               ? 0
               : bytes;
}

/** Returns whether a character is a control character: one of a single byte, or U+0080 to U+009F,
 *  which terminals obey as well. */
static bool is_control(const unsigned char *c) {
    return *c < ' ' || *c == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0);
}

void sim_print_plain(FILE *out, const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    while (*c) {
        unsigned bytes = *c < 0x80 ? 1 : utf8_bytes(c);
        if (!bytes || is_control(c)) {
            bytes = bytes ? bytes : 1;
            for (unsigned i = 0; i < bytes; i++)
                fprintf(out, "\\x%02x", c[i]);
        } else {
            fwrite(c, 1, bytes, out);
        }
        c += bytes;
    }
}

void sim_print_json(FILE *out, const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    fputc('"', out);
    while (*c) {
        const unsigned bytes = *c < 0x80 ? 1 : utf8_bytes(c);
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < ' ' || *c == 0x7f || !bytes)
            fprintf(out, "\\u%04x", *c);
        else
            fwrite(c, 1, bytes, out);
        c += bytes ? bytes : 1;
    }
    fputc('"', out);
}
