// SPDX-License-Identifier: Apache-2.0
// Lists the code of a kernel: texts and source lines, looked up once for each instruction.
#include "listing.h"

#include "../clock/report.h"
#include "../isa/decode.h"
#include "../report/plain.h"

#include <stdlib.h>
#include <string.h>

// ---- listing

/** What is known of the place that is listed. */
typedef struct place {
    const sim_dispatch *d;
    const char *function; // null: not known
    sim_source source;    // of the instructions before source.end
    bool has_source;
} place;

static bool keep(char **to, const char *text) {
    *to = strdup(text);
    return *to;
}

/** Finds the source of the instruction at pc, unless it is that of the one before. */
static void find_source(place *p, uint64_t pc) {
    if (p->has_source && pc < p->source.end)
        return;
    p->has_source = p->d->object && sim_object_source(p->d->object, pc, &p->source);
}

/** Lists the instruction at pc, if it is not listed yet. Returns its bytes; 0 if there is none or
 *  memory runs out. */
static uint32_t list_one(sim_listed *to, place *p, uint64_t pc) {
    char text[SIM_INST_TEXT_BYTES];
    const uint32_t bytes = sim_inst_text(p->d->text, sim_wave_size(p->d) == 64, pc, text);
    const bool is_own = !p->function || strcmp(p->function, p->d->kernel->name) == 0;
    if (to->text || !bytes)
        return bytes;
    find_source(p, pc);
    if (!keep(&to->text, text) || (!is_own && !keep(&to->function, p->function)) ||
        (p->has_source && !keep(&to->file, p->source.file)))
        return 0;
    to->line = p->has_source ? p->source.line : 0;
    return bytes;
}

/** Lists the function that has the instruction at pc, as far as it can be disassembled. */
static void list_function(sim_listing *listing, place *p, uint64_t pc) {
    const uint64_t start = p->d->text->start, size = p->d->text->size;
    uint64_t first = pc, bytes;
    p->function = p->d->object ? sim_object_function(p->d->object, pc, &first) : nullptr;
    for (pc = first; p->function && pc - start < size; pc += bytes) {
        bytes = list_one(&listing->insts[(pc - start) / 4], p, pc);
        if (!bytes || sim_object_function(p->d->object, pc + bytes, &first) != p->function)
            return;
    }
}

static bool reserve(sim_listing *listing, uint64_t count) {
    if (listing->insts)
        return true;
    listing->insts = calloc(count, sizeof *listing->insts);
    listing->num_insts = listing->insts ? count : 0;
    return listing->insts || !count;
}

bool sim_listing_add(sim_listing *listing, const sim_dispatch *d) {
    bool ok = reserve(listing, d->timed.num_insts);
    for (uint64_t i = 0; ok && i < listing->num_insts && i < d->timed.num_insts; i++) {
        if (d->timed.insts[i].name && !listing->insts[i].text) {
            const uint64_t pc = d->text->start + 4 * i;
            place p = {.d = d};
            list_function(listing, &p, pc);
            ok = list_one(&listing->insts[i], &p, pc); // also without symbols
        }
    }
    return ok;
}

void sim_listing_deinit(sim_listing *listing) {
    for (uint64_t i = 0; i < listing->num_insts; i++) {
        free(listing->insts[i].text);
        free(listing->insts[i].function);
        free(listing->insts[i].file);
    }
    free(listing->insts);
    *listing = (sim_listing){};
}

// ---- writing

/** Writes the instruction's name: the text's first word, unless the instruction ran. */
static void write_name(FILE *out, const sim_listed *inst, const char *name) {
    if (name)
        fputs(name, out);
    else
        fwrite(inst->text, 1, strcspn(inst->text, " "), out);
}

static void write_field(FILE *out, const char *name, const char *text) {
    fprintf(out, "\"%s\": ", name);
    sim_print_json(out, text);
}

static void write_one(FILE *out, const sim_listed *inst, const sim_inst_cost *cost, uint64_t at) {
    fprintf(out, "{\"offset\": %llu, \"instruction\": \"", 4 * (unsigned long long)at);
    write_name(out, inst, cost->name);
    fputs("\", ", out);
    sim_clock_write_inst(out, cost);
    fputs(", ", out);
    write_field(out, "text", inst->text);
    if (inst->function) {
        fputs(", ", out);
        write_field(out, "function", inst->function);
    }
    if (inst->file) {
        fprintf(out, ", \"source\": {\"line\": %u, ", inst->line);
        write_field(out, "file", inst->file);
        fputc('}', out);
    }
    fputc('}', out);
}

void sim_listing_write(FILE *out, const sim_listing *listing, const sim_clock_result *timed) {
    const char *comma = "\n       ";
    for (uint64_t i = 0; i < listing->num_insts && i < timed->num_insts; i++) {
        if (listing->insts[i].text) {
            fputs(comma, out);
            write_one(out, &listing->insts[i], &timed->insts[i], i);
            comma = ",\n       ";
        }
    }
}
