// SPDX-License-Identifier: Apache-2.0
// What the parts of a profile's HTML page share. Each page_ function writes one part of a kernel's
// section; those that show modelled time are called only if there is any.
#ifndef CLI_PAGE_H
#define CLI_PAGE_H

#include "../sim/profile.h"

/** A kernel while its section is written. */
typedef struct page {
    FILE *to;
    int number; // of the kernel, from 0
    int rank;   // in the page, from 0: the dearest kernel comes first
    const json_t *kernel;
    const json_t *clock, *chip, *memory; // null: no time is modelled
    double ns;                           // of all launches, modelled
    double scale;                        // from what ran at modelled time to all workgroups
    double rate;                         // clock of the last launch over the highest one
} page;

/** A level of memory, from the far end on. */
typedef struct page_level {
    const char *name, *class, *peak; // class in page.css; peak: member of chip.mb_per_s
    const char *lines, *hits;        // members of clock.memory; null: has none
    bool has_own_clock;              // its rate does not follow the shader clock
} page_level;

enum { PAGE_LEVELS = 5, PAGE_LINE = 128 };
extern const page_level page_levels[PAGE_LEVELS];

int64_t page_integer(const json_t *object, const char *name);
double page_number(const json_t *object, const char *name);
/** Writes text that others made, for an element or an attribute in double quotes. */
void page_text(FILE *to, const char *text);
/** Writes "1.5 T" to buf: a rate, with three digits and a unit's prefix. Returns buf. */
const char *page_rate(double value, char *buf, size_t room);
/** Returns bytes that a level was asked for by all workgroups. */
double page_level_bytes(const page *p, const page_level *level);
/** Returns the bytes a nanosecond that a level gives at most, at the kernel's clock. */
double page_level_peak(const page *p, const page_level *level);

/** What a kernel computes. */
typedef struct page_work {
    const char *name;   // of the operations
    double operations;  // of all launches
    double peak;        // operations a nanosecond at the kernel's clock
    double vector_peak; // the same of vector instructions
} page_work;
page_work page_work_of(const page *p);

/** Writes which launches ran when, if there are several streams. */
void page_streams(FILE *to, const page *pages, int count); // page_streams.c
void page_tiles(const page *p);                            // page_time.c
void page_stalls(const page *p);                           // page_time.c
void page_memory(const page *p);                           // page_time.c
void page_roofline(const page *p);                         // page_roofline.c
void page_mix(const page *p);                              // page_counts.c
void page_occupancy(const page *p);                        // page_counts.c
void page_lines(const page *p);                            // page_code.c
void page_instructions(const page *p);                     // page_code.c

#endif
