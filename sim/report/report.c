// SPDX-License-Identifier: Apache-2.0
// A launch's faults in words. All slow steps, such as disassembling, are done here, once.
#include "../isa/decode.h"
#include "../object/object.h"
#include "../wave.h"
#include "fault.h"
#include "plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sim_place sim_place_of(const sim_dispatch *d, uint64_t pc) {
    uint64_t start;
    const char *name = d->object ? sim_object_function(d->object, pc, &start) : nullptr;
    if (!name || strcmp(name, d->kernel->name) == 0)
        return (sim_place){d->kernel->name, (int64_t)(pc - d->kernel->entry)};
    return (sim_place){name, (int64_t)(pc - start)};
}

void sim_place_text(const sim_dispatch *d, uint64_t pc, char text[SIM_PLACE_BYTES]) {
    sim_place place = sim_place_of(d, pc);
    const bool is_before = place.offset < 0;
    const uint64_t distance = is_before ? -(uint64_t)place.offset : (uint64_t)place.offset;
    snprintf(text, SIM_PLACE_BYTES, "%.64s%c0x%llx", place.function, is_before ? '-' : '+',
             (unsigned long long)distance);
}

static void print_source(FILE *out, const sim_dispatch *d, uint64_t pc, const char *function) {
    sim_source source;
    if (!d->object || !sim_object_source(d->object, pc, &source))
        return;
    fputs(" (", out);
    sim_print_plain(out, source.file);
    fprintf(out, ":%u", source.line);
    if (*source.function && strcmp(source.function, function) != 0) {
        fputs(" in ", out);
        sim_print_plain(out, source.function);
    }
    fputc(')', out);
}

/** Prints an instruction as "kernel+0x2c (kernel.hip:12): global_load_dword v1, v0, s[0:1]". */
static void print_inst(FILE *out, const sim_dispatch *d, uint64_t pc) {
    char text[SIM_INST_TEXT_BYTES];
    sim_place place = sim_place_of(d, pc);
    const bool is_before = place.offset < 0; // in a function without a symbol
    const uint64_t distance = is_before ? -(uint64_t)place.offset : (uint64_t)place.offset;
    sim_print_plain(out, place.function);
    fprintf(out, "%c0x%llx", is_before ? '-' : '+', (unsigned long long)distance);
    print_source(out, d, pc, place.function);
    if (sim_inst_text(d->text, sim_wave_size(d) == 64, pc, text))
        fprintf(out, ": %s", text);
}

/** Prints which of the module's own variables is near the address. */
static void print_variable(FILE *out, const sim_dispatch *d, const sim_fault *f) {
    uint64_t start, bytes;
    const char *name = f->about.space == SIM_SPACE_MEMORY && d->object
                           ? sim_object_variable(d->object, f->about.address, &start, &bytes)
                           : nullptr;
    if (name) {
        const uint64_t offset = f->about.address - start;
        const bool is_past = offset >= bytes;
        fprintf(out, "\n  %llu bytes %s variable ",
                (unsigned long long)(is_past ? offset - bytes : offset),
                is_past ? "past the end of" : "into");
        sim_print_plain(out, name);
        fprintf(out, " of %llu bytes", (unsigned long long)bytes);
    }
}

static void print_place(FILE *out, const sim_fault *f) {
    fprintf(out, "\n  in workgroup (%u, %u, %u), wave %u", f->group[0], f->group[1], f->group[2],
            f->wave);
    if (f->lane >= 0) {
        fprintf(out, ", lane %d, work-item (%u, %u, %u)", f->lane, f->work_item[0], f->work_item[1],
                f->work_item[2]);
    }
    fprintf(out, ", pc 0x%llx", (unsigned long long)f->pc);
}

/** Prints how each message begins. */
static void print_kernel(FILE *out, const sim_dispatch *d) {
    fputs("quernsim: kernel ", out);
    sim_print_plain(out, d->kernel->name);
    fputs(": ", out);
}

static void print_fault(FILE *out, const sim_dispatch *d, const sim_fault *f) {
    print_kernel(out, d);
    sim_print_plain(out, f->message);
    if (f->has_place) {
        fprintf(out, "\n  at ");
        print_inst(out, d, f->pc);
        if (f->about.other_pc) {
            fprintf(out, "\n  and ");
            print_inst(out, d, f->about.other_pc);
        }
        print_variable(out, d, f);
        print_place(out, f);
    }
    if (f->count > 1)
        fprintf(out, "; met %llu times", (unsigned long long)f->count);
    fputc('\n', out);
}

char *sim_faults_text(const sim_dispatch *d) {
    char *text = nullptr;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return nullptr;
    for (uint32_t i = 0; i < d->faults.count; i++)
        print_fault(out, d, &d->faults.list[i]);
    if (d->faults.are_too_many) {
        print_kernel(out, d);
        fprintf(out, "stopped after %u different faults; faults=N in QUERN_SIM sets how many\n",
                sim_faults_failing(&d->faults));
    }
    const bool ok = !ferror(out);
    if (fclose(out) != 0 || !ok) {
        free(text);
        return nullptr;
    }
    return text;
}
