// SPDX-License-Identifier: Apache-2.0
// A launch's faults as JSON Lines. docs/simulator.md, "Reports as JSON", documents the fields.
#include "../chip/chip.h"
#include "../isa/decode.h"
#include "../memory.h"
#include "../object/object.h"
#include "../wave.h"
#include "fault.h"
#include "plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef unsigned long long number;

static void print_field(FILE *out, const char *name, const char *text) {
    fprintf(out, ", \"%s\": ", name);
    sim_print_json(out, text);
}

static void print_source(FILE *out, const sim_dispatch *d, uint64_t pc) {
    sim_source source;
    if (!d->object || !sim_object_source(d->object, pc, &source))
        return;
    fprintf(out, ", \"source\": {\"line\": %u", source.line);
    print_field(out, "file", source.file);
    if (source.column)
        fprintf(out, ", \"column\": %u", source.column);
    if (*source.function)
        print_field(out, "function", source.function);
    fputc('}', out);
}

static void print_inst(FILE *out, const char *name, const sim_dispatch *d, uint64_t pc) {
    char text[SIM_INST_TEXT_BYTES];
    sim_place place = sim_place_of(d, pc);
    fprintf(out, ", \"%s\": {\"pc\": \"0x%llx\"", name, (number)pc);
    print_field(out, "function", place.function);
    fprintf(out, ", \"offset\": %lld", (long long)place.offset);
    if (sim_inst_text(d->text, sim_wave_size(d) == 64, pc, text))
        print_field(out, "text", text);
    print_source(out, d, pc);
    fputc('}', out);
}

static void print_place(FILE *out, const sim_fault *f) {
    fprintf(out, ", \"workgroup\": [%u, %u, %u], \"wave\": %u", f->group[0], f->group[1],
            f->group[2], f->wave);
    if (f->lane >= 0) {
        fprintf(out, ", \"lane\": %d, \"work_item\": [%u, %u, %u]", f->lane, f->work_item[0],
                f->work_item[1], f->work_item[2]);
    }
}

static void print_variable(FILE *out, const sim_dispatch *d, uint64_t address) {
    uint64_t start, bytes;
    const char *name =
        d->object ? sim_object_variable(d->object, address, &start, &bytes) : nullptr;
    if (name) {
        fprintf(out, ", \"variable\": {\"size\": %llu, \"offset\": %llu", (number)bytes,
                (number)(address - start));
        print_field(out, "name", name);
        fputc('}', out);
    }
}

static void print_region(FILE *out, const sim_region *region, uint64_t address) {
    static const char *const kinds[] = {"device", "host", "code", "kernarg", "registered"};
    if (region->size) {
        fprintf(out,
                ", \"allocation\": {\"kind\": \"%s\", \"base\": \"0x%llx\", \"size\": %llu, "
                "\"offset\": %lld, \"freed\": %s, \"device\": %u}",
                kinds[region->kind], (number)region->base, (number)region->size,
                (long long)(address - region->base), region->bytes ? "false" : "true",
                region->device);
    }
}

/** Prints the address and what it belongs to. */
static void print_address(FILE *out, const sim_dispatch *d, const sim_fault *f) {
    static const char *const spaces[] = {"", "memory", "lds", "scratch"};
    const sim_fault_about *about = &f->about;
    if (about->space == SIM_SPACE_NONE)
        return;
    fprintf(out, ", \"address\": {\"space\": \"%s\", \"value\": \"0x%llx\", \"access\": \"%s\"",
            spaces[about->space], (number)about->address, about->is_store ? "store" : "load");
    if (about->bytes)
        fprintf(out, ", \"bytes\": %u", about->bytes);
    if (about->space == SIM_SPACE_MEMORY) {
        print_region(out, &f->region, about->address);
        print_variable(out, d, about->address);
    } else {
        fprintf(out, ", \"size\": %u",
                about->space == SIM_SPACE_LDS ? d->lds_bytes : sim_kernel_scratch(d->kernel));
    }
    fputc('}', out);
}

static void print_fault(FILE *out, const sim_dispatch *d, const sim_fault *f) {
    fprintf(out, "{\"kind\": \"%s\"", sim_fault_name(f->kind));
    print_field(out, "kernel", d->kernel->name);
    print_field(out, "message", f->message);
    fprintf(out, ", \"target\": \"%s\", \"launch\": %llu, \"process\": %ld, \"count\": %llu",
            d->chip->name, (number)d->id, (long)getpid(), (number)f->count);
    if (f->has_place) {
        print_inst(out, "instruction", d, f->pc);
        if (f->about.other_pc)
            print_inst(out, "other", d, f->about.other_pc);
        print_place(out, f);
        print_address(out, d, f);
    }
    fputs("}\n", out);
}

char *sim_faults_json(const sim_dispatch *d) {
    char *text = nullptr;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return nullptr;
    for (uint32_t i = 0; i < d->faults.count; i++)
        print_fault(out, d, &d->faults.list[i]);
    const bool ok = !ferror(out);
    if (fclose(out) != 0 || !ok) {
        free(text);
        return nullptr;
    }
    return text;
}
