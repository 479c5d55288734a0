// SPDX-License-Identifier: Apache-2.0
// A kernel's contract on LDS DMA: a wait before the barrier, which clang 22 can leave out.
//
// A DMA (buffer_load … lds, global_load_lds) writes LDS on its own time; only s_waitcnt vmcnt tells
// when. The kernel's code is cut into the few instructions that matter, and from each DMA every
// path is followed to the next vmcnt wait (good) or barrier (bad). The count of the wait is not
// judged: a pipelined kernel rightly leaves younger DMAs in flight. Calls and computed jumps are
// not followed; the kernels have none. Encodings: AMD's "CDNA3" ISA manual, chapter 13; checked
// against llvm-mc.
#include "../runtime.h"
#include "object.h"

#include <stdlib.h>
#include <string.h>

typedef enum event_kind { DMA, WAIT, BARRIER, JUMP, BRANCH, END } event_kind;

typedef struct event {
    event_kind kind;
    size_t at, target; // offsets into the code; target of JUMP and BRANCH
} event;

enum { // SOPP opcodes
    S_ENDPGM = 1,
    S_BRANCH = 2,
    S_CBRANCH_FIRST = 4,
    S_CBRANCH_LAST = 9,
    S_BARRIER = 10,
    S_WAITCNT = 12,
    S_ENDPGM_SAVED = 27
};

static uint32_t word_at(const uint8_t *code, size_t at) {
    uint32_t word;
    memcpy(&word, code + at, sizeof word);
    return word;
}

static bool is_scalar_literal(uint32_t source) {
    return (source & 0xff) == 0xff;
}

static size_t scalar_length(uint32_t w) {
    if (w >> 23 == 0x17f) // SOPP
        return 4;
    if (w >> 23 == 0x17d) // SOP1
        return is_scalar_literal(w) ? 8 : 4;
    if (w >> 28 == 0xb && w >> 23 != 0x17e) // SOPK: only s_setreg_imm32_b32 has a literal
        return (w >> 23 & 0x1f) == 0x14 ? 8 : 4;
    return is_scalar_literal(w) || is_scalar_literal(w >> 8) ? 8 : 4; // SOPC, SOP2
}

static size_t vector_length(uint32_t w) {
    const uint32_t source = w & 0x1ff, op = w >> 25;
    const bool has_constant =
        op == 0x17 || op == 0x18 || op == 0x24 || op == 0x25; // v_madmk and its like
    return source == 0xff || source == 0xf9 || source == 0xfa || has_constant ? 8 : 4;
}

/** Returns the bytes of the gfx9 instruction that begins with this word. */
static size_t length_of(uint32_t w) {
    if (w >> 31 == 0)
        return vector_length(w);
    if (w >> 30 == 2)
        return scalar_length(w);
    return w >> 26 == 0x35 ? 4 : 8; // VINTRP; all other formats have two words
}

static bool is_lds_dma(uint32_t w) {
    const uint32_t op = w >> 18 & 0x7f;
    if (w >> 26 == 0x38) // MUBUF
        return w >> 16 & 1;
    if (w >> 26 != 0x37 || (w >> 14 & 3) != 2) // FLAT, of which only global
        return false;
    return (w >> 13 & 1) || (op >= 0x26 && op <= 0x2a) || op == 0x7d || op == 0x7e;
}

/** Finds the event that an instruction is. Returns false if it is none. */
static bool event_of(uint32_t w, size_t at, event *out) {
    *out = (event){.at = at};
    if (is_lds_dma(w)) {
        out->kind = DMA;
        return true;
    }
    if (w >> 23 != 0x17f)
        return false;
    const uint32_t op = w >> 16 & 0x7f, vmcnt = (w & 0xf) | (w >> 14 & 3) << 4;
    out->target = at + 4 + (size_t)((int64_t)(int16_t)(w & 0xffff) * 4);
    if (op == S_BRANCH)
        out->kind = JUMP;
    else if (op >= S_CBRANCH_FIRST && op <= S_CBRANCH_LAST)
        out->kind = BRANCH;
    else if (op == S_BARRIER)
        out->kind = BARRIER;
    else if (op == S_ENDPGM || op == S_ENDPGM_SAVED)
        out->kind = END;
    else if (op == S_WAITCNT && vmcnt < 63)
        out->kind = WAIT;
    else
        return false;
    return true;
}

/** Collects the events in the order of the code, with an END after the last. */
static size_t collect(const uint8_t *code, size_t bytes, event *events) {
    size_t count = 0;
    for (size_t at = 0; at + 4 <= bytes; at += length_of(word_at(code, at)))
        count += event_of(word_at(code, at), at, &events[count]);
    events[count] = (event){.kind = END, .at = bytes};
    return count + 1;
}

/** Returns the first event at or after an offset; the last (END) for an offset outside the
 *  code. */
static size_t event_from(const event *events, size_t count, size_t at) {
    size_t low = 0, high = count - 1;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (events[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/** Follows every path from events[start]. Returns the barrier that is reached without a wait, or
 *  `count`. Events that were seen from an earlier start lead to no such barrier, or the search
 *  would have ended; they are passed over, so that the whole search is linear. `todo` has room for
 *  each event. */
static size_t follow(const event *events, size_t count, size_t start, bool *seen, size_t *todo) {
    size_t num_todo = 0;
    todo[num_todo++] = start;
    while (num_todo > 0) {
        for (size_t i = todo[--num_todo]; !seen[i]; i++) {
            seen[i] = true;
            const event *e = &events[i];
            if (e->kind == BARRIER)
                return i;
            if (e->kind == WAIT || e->kind == END)
                break;
            if (e->kind == DMA)
                continue;
            const size_t target = event_from(events, count, e->target);
            if (!seen[target])
                todo[num_todo++] = target;
            if (e->kind == JUMP)
                break;
        }
    }
    return count;
}

qn_status qni_waits_check(const uint8_t *code, size_t bytes, bool *is_good, size_t *offset) {
    const size_t room = bytes / 4 + 1;
    event *events = malloc(room * sizeof *events);
    size_t *todo = malloc((room + 1) * sizeof *todo);
    bool *seen = calloc(room, sizeof *seen);
    qn_status st = QN_OK;
    if (!events || !todo || !seen) {
        st = QN_FAIL(QN_E_MEMORY, "code object: out of memory");
        goto out;
    }
    size_t count = collect(code, bytes, events), barrier = count;
    for (size_t i = 0; i < count && barrier == count; i++)
        if (events[i].kind == DMA)
            barrier = follow(events, count, i, seen, todo);
    *is_good = barrier == count;
    if (!*is_good)
        *offset = events[barrier].at;
out:
    free(events);
    free(todo);
    free(seen);
    return st;
}
