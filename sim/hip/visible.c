// SPDX-License-Identifier: Apache-2.0
// Which devices a process sees: ROCR_VISIBLE_DEVICES, and of those HIP_VISIBLE_DEVICES, each read
// as ROCm reads it (ROCR-Runtime, amd_filter_device.cpp; CLR, rocdevice.cpp). Either is a comma
// list of indices or UUIDs, in the order wanted, which ends at the first entry that names no
// device.
#include "runtime.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { UUID_DIGITS = 16, TOKEN_BYTES = 64 };

void sim_hip_uuid(uint32_t number, char uuid[SIM_UUID_BYTES]) {
    snprintf(uuid, SIM_UUID_BYTES, "717565726e0000%02x", number); // "quern" in hexadecimal
}

/** Reads the next entry of a comma list. Returns false at the list's end, and at an entry that is
 *  longer than any device's name. */
static bool next_token(const char **list, char token[TOKEN_BYTES]) {
    const char *from = *list;
    const size_t length = from ? strcspn(from, ",") : TOKEN_BYTES;
    if (length >= TOKEN_BYTES)
        return false;
    snprintf(token, TOKEN_BYTES, "%.*s", (int)length, from);
    *list = from[length] ? from + length + 1 : nullptr;
    return true;
}

static bool has(const uint32_t *numbers, uint32_t count, uint32_t number) {
    for (uint32_t i = 0; i < count; i++)
        if (numbers[i] == number)
            return true;
    return false;
}

// ---- ROCR: a device twice ends the list; UUIDs may be cut short, as long as they name one device

static char *trimmed(char *token) {
    size_t length = strlen(token);
    while (length && isspace((unsigned char)token[length - 1]))
        token[--length] = 0;
    return token + strspn(token, " \t\n\v\f\r");
}

/** Returns the device whose UUID begins with the letters behind "GPU-"; -1 if no device's does, or
 *  several devices' do. */
static long device_of_uuid(const char *token, uint32_t count) {
    const size_t length = strlen(token);
    long found = -1;
    if (length < 5 || length > 4 + UUID_DIGITS || strncasecmp(token, "GPU-", 4) != 0)
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        char uuid[SIM_UUID_BYTES];
        sim_hip_uuid(i, uuid);
        if (strncasecmp(uuid, token + 4, length - 4) == 0) {
            if (found >= 0)
                return -1;
            found = i;
        }
    }
    return found;
}

static long device_of_rocr(const char *token, uint32_t count) {
    if (toupper((unsigned char)*token) == 'G')
        return device_of_uuid(token, count);
    char *end;
    const long index = strtol(token, &end, 0);
    return *token && !*end ? index : -1;
}

static uint32_t keep_rocr(const char *list, uint32_t *numbers, uint32_t count) {
    char token[TOKEN_BYTES];
    uint32_t kept = 0;
    list = *list ? list : nullptr; // an empty list means no device
    while (next_token(&list, token)) {
        const long index = device_of_rocr(trimmed(token), count);
        if (index < 0 || index >= count || has(numbers, kept, (uint32_t)index))
            break;
        numbers[kept++] = (uint32_t)index;
    }
    return kept;
}

// ---- HIP: indices among those that ROCR has left, as decimal numbers, or whole UUIDs; a device
// twice counts once

static long place_of_hip(const char *token, const uint32_t *numbers, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        char index[16], uuid[SIM_UUID_BYTES], name[SIM_UUID_BYTES + 4];
        snprintf(index, sizeof index, "%u", i);
        sim_hip_uuid(numbers[i], uuid);
        snprintf(name, sizeof name, "GPU-%s", uuid);
        if (strcmp(token, index) == 0 || strcmp(token, name) == 0)
            return i;
    }
    return -1;
}

static uint32_t keep_hip(const char *list, uint32_t *numbers, uint32_t count) {
    uint32_t before[SIM_MAX_DEVICES], kept = 0;
    char token[TOKEN_BYTES];
    memcpy(before, numbers, count * sizeof *numbers);
    while (next_token(&list, token)) {
        const long place = place_of_hip(token, before, count);
        if (place < 0)
            break;
        if (!has(numbers, kept, before[place]))
            numbers[kept++] = before[place];
    }
    return kept;
}

uint32_t sim_hip_visible(uint32_t count, uint32_t numbers[SIM_MAX_DEVICES]) {
    const char *rocr = getenv("ROCR_VISIBLE_DEVICES"), *hip = getenv("HIP_VISIBLE_DEVICES");
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = i;
    count = rocr ? keep_rocr(rocr, numbers, count) : count;
    hip = hip && *hip ? hip : getenv("CUDA_VISIBLE_DEVICES");
    return hip && *hip ? keep_hip(hip, numbers, count) : count;
}
