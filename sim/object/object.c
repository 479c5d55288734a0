// SPDX-License-Identifier: Apache-2.0
// Code objects: an AMDGPU ELF file laid out in guest memory, its kernels, globals and relocations.
//
// The file may come from anywhere, so every offset and size in it is checked before use. Formats:
// LLVM's AMDGPUUsage, "ELF Code Object" and "Kernel Descriptor"; code object versions 4, 5 and 6.
#include "object.h"

#include "../isa/decode.h"
#include "elf.h"
#include "entries.h"
#include "reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MACHINE_AMDGPU = 224,
    OSABI_HSA = 64,
    NOTE_METADATA = 32,
    DESCRIPTOR_BYTES = 64,
    PRELOAD_PROLOGUE = 256, // code for firmware that cannot preload kernel arguments; skipped
};
constexpr uint64_t MAX_IMAGE = UINT64_C(1) << 30;
constexpr uint64_t MAX_CODE_PADDING =
    1 << 20; // bytes between code segments that need not be in the file
enum { BUDGET_FACTOR = 4 };

typedef struct symbol {
    char *name;
    uint64_t value, bytes; // value: offset in the image
} symbol;

struct sim_object {
    sim_memory *memory;
    const sim_region *region; // the image's memory
    uint64_t bytes;           // of the image
    sim_text text;
    uint8_t *text_copy;
    sim_sources sources;
    sim_formats formats;
    sim_kernel *kernels;
    symbol *globals, *functions; // functions include kernels
    size_t num_kernels, num_globals, num_functions;
    uint64_t budget; // bytes of the file that may still be read
};

bool sim_complain(sim_complaint *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(c->text, c->bytes, format, args);
    va_end(args);
    return false;
}

bool sim_complain_no_memory(sim_complaint *c) {
    c->is_no_memory = true;
    return sim_complain(c, "out of memory");
}

/** Takes bytes off the budget. The parts of a sound file lie apart, so that all of them together
 *  are no longer than the file. A hostile file has a thousand tables in one place, to cost a
 *  thousand times its size. */
static bool spend(sim_object *o, uint64_t bytes, sim_complaint *c) {
    if (bytes > o->budget) {
        return sim_complain(
            c, "its tables lie over each other: they are many times longer than the file");
    }
    o->budget -= bytes;
    return true;
}

// ---- the header

static sim_object_status check_header(const sim_elf *elf, const sim_chip *chip, sim_complaint *c) {
    Elf64_Ehdr h = elf->header;
    if (h.e_machine != MACHINE_AMDGPU || h.e_ident[EI_OSABI] != OSABI_HSA || h.e_type != ET_DYN) {
        sim_complain(c, "an ELF file, but not an AMDGPU HSA code object (machine %u, OS ABI %u)",
                     h.e_machine, h.e_ident[EI_OSABI]);
        return SIM_OBJECT_INVALID;
    }
    const uint32_t version = h.e_ident[EI_ABIVERSION] + 2u;
    if (version < 4 || version > 6) {
        sim_complain(c, "code object version %u; accepted: 4, 5, 6", version);
        return SIM_OBJECT_INVALID;
    }
    const uint32_t mach = h.e_flags & 0xff, xnack = h.e_flags >> 8 & 3,
                   sramecc = h.e_flags >> 10 & 3;
    if (mach != chip->elf_mach && (mach != chip->generic_mach || !mach)) {
        const char *name = sim_chip_mach_name(mach);
        sim_complain(c, "compiled for %s (machine 0x%02x); the device is %s (0x%02x)",
                     name ? name : "another chip", mach, chip->name, chip->elf_mach);
        return SIM_OBJECT_WRONG_ARCH;
    }
    enum { FEATURE_OFF = 2, FEATURE_ON = 3 };
    if (xnack == FEATURE_ON || (sramecc == FEATURE_OFF && strstr(chip->gcn_name, "sramecc+"))) {
        sim_complain(c, "compiled for %s%s%s; the device is %s", chip->name,
                     sramecc == FEATURE_OFF ? ":sramecc-" : "",
                     xnack == FEATURE_ON ? ":xnack+" : "", chip->gcn_name);
        return SIM_OBJECT_WRONG_ARCH;
    }
    return SIM_OBJECT_OK;
}

// ---- segments

static bool check_segment(const sim_elf *elf, const Elf64_Phdr *p, sim_complaint *c) {
    if (!sim_elf_range(elf, p->p_offset, p->p_filesz) || p->p_filesz > p->p_memsz ||
        p->p_vaddr > MAX_IMAGE || p->p_memsz > MAX_IMAGE - p->p_vaddr) {
        return sim_complain(c,
                            "a segment (file offset 0x%llx, %llu bytes; address 0x%llx, %llu "
                            "bytes) does not fit a file of %zu bytes",
                            (unsigned long long)p->p_offset, (unsigned long long)p->p_filesz,
                            (unsigned long long)p->p_vaddr, (unsigned long long)p->p_memsz,
                            elf->size);
    }
    return true;
}

/** Finds the image's size and its code: from the first executable byte to the last. */
static bool measure(sim_object *o, const sim_elf *elf, sim_complaint *c) {
    uint64_t first = UINT64_MAX, last = 0;
    Elf64_Phdr p;
    for (size_t i = 0; sim_elf_segment(elf, i, &p); i++) {
        if (p.p_type != PT_LOAD || p.p_memsz == 0)
            continue;
        if (!check_segment(elf, &p, c) || !spend(o, p.p_filesz, c))
            return false;
        const uint64_t end = p.p_vaddr + p.p_memsz;
        o->bytes = end > o->bytes ? end : o->bytes;
        if (p.p_flags & PF_X) {
            first = p.p_vaddr < first ? p.p_vaddr : first;
            last = end > last ? end : last;
        }
    }
    if (last <= first) // variables alone, or nothing
        first = last = 0;
    first &= ~UINT64_C(3);
    if (last - first > elf->size + MAX_CODE_PADDING) {
        return sim_complain(c, "%llu bytes of code in a file of %zu bytes",
                            (unsigned long long)(last - first), elf->size);
    }
    o->text.start = first; // becomes a guest address once the image is placed
    o->text.size = last - first;
    return true;
}

/** Copies the segments that measure() has checked. */
static void load_segments(sim_object *o, const sim_elf *elf) {
    Elf64_Phdr p;
    for (size_t i = 0; sim_elf_segment(elf, i, &p); i++)
        if (p.p_type == PT_LOAD && p.p_memsz)
            memcpy(o->region->host + p.p_vaddr, elf->bytes + p.p_offset, p.p_filesz);
}

typedef bool section_fn(sim_object *o, const sim_elf *elf, const Elf64_Shdr *section,
                        sim_complaint *c);

/** Calls fn for each section of a type until it fails. */
static bool each_section(sim_object *o, const sim_elf *elf, uint32_t type, section_fn *fn,
                         sim_complaint *c) {
    Elf64_Shdr section;
    for (size_t i = 0; sim_elf_section(elf, i, &section); i++)
        if (section.sh_type == type && !fn(o, elf, &section, c))
            return false;
    return true;
}

// ---- symbols

static bool read_descriptor(sim_object *o, sim_kernel *kernel, uint64_t at, sim_complaint *c) {
    const uint8_t *d = o->region->host + at;
    int64_t entry;
    memcpy(&kernel->lds_bytes, d, 4);
    memcpy(&kernel->scratch_bytes, d + 4, 4);
    memcpy(&kernel->kernarg_bytes, d + 8, 4);
    memcpy(&entry, d + 16, 8);
    memcpy(&kernel->rsrc3, d + 44, 4);
    memcpy(&kernel->rsrc1, d + 48, 4);
    memcpy(&kernel->rsrc2, d + 52, 4);
    memcpy(&kernel->properties, d + 56, 2);
    memcpy(&kernel->preload, d + 58, 2);
    kernel->wave32 = kernel->properties >> 10 & 1;
    kernel->uses_dynamic_stack = kernel->properties >> 11 & 1;
    kernel->descriptor = o->region->base + at;
    kernel->entry = kernel->descriptor + (uint64_t)entry + (kernel->preload ? PRELOAD_PROLOGUE : 0);
    kernel->max_threads = 1024;
    const uint64_t offset = kernel->entry - o->text.start;
    if (offset >= o->text.size || offset % 4) {
        return sim_complain(c,
                            "kernel %s: its first instruction is at offset %lld of its "
                            "descriptor, outside the code",
                            kernel->name, (long long)entry);
    }
    return true;
}

/** Returns a list with room for one more item. Room grows to the next power of two, so that adding
 *  many items copies them seldom. Returns null without memory; the list is then unchanged. */
static void *make_room(void *list, size_t count, size_t item_bytes) {
    const bool is_full = (count & (count - 1)) == 0;
    return is_full ? realloc(list, (count ? 2 * count : 1) * item_bytes) : list;
}

static bool add_kernel(sim_object *o, const char *name, size_t length, uint64_t at,
                       sim_complaint *c) {
    if (at > o->bytes || o->bytes - at < DESCRIPTOR_BYTES) {
        return sim_complain(c, "the descriptor of kernel %.*s lies outside the image", (int)length,
                            name);
    }
    sim_kernel *grown = make_room(o->kernels, o->num_kernels, sizeof *grown);
    if (!grown)
        return sim_complain_no_memory(c);
    o->kernels = grown;
    sim_kernel *kernel = &grown[o->num_kernels];
    *kernel = (sim_kernel){.name = strndup(name, length)};
    if (!kernel->name)
        return sim_complain_no_memory(c);
    o->num_kernels++;
    return read_descriptor(o, kernel, at, c);
}

static bool add_global(sim_object *o, const char *name, const Elf64_Sym *s, sim_complaint *c) {
    if (s->st_value > o->bytes || s->st_size > o->bytes - s->st_value)
        return sim_complain(c, "the variable %s lies outside the image", name);
    symbol *grown = make_room(o->globals, o->num_globals, sizeof *grown);
    if (!grown)
        return sim_complain_no_memory(c);
    o->globals = grown;
    grown[o->num_globals] = (symbol){strdup(name), s->st_value, s->st_size};
    return grown[o->num_globals].name ? (o->num_globals++, true) : sim_complain_no_memory(c);
}

/** Reads functions, for reports. The loader needs none of them, so a fault in one is no reason to
 *  refuse the object. */
static bool read_functions(sim_object *o, const sim_elf *elf, const Elf64_Shdr *section,
                           sim_complaint *c) {
    Elf64_Sym s;
    for (size_t i = 0; sim_elf_entry(elf, section, i, &s, sizeof s); i++) {
        if (s.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(s.st_info) != STT_FUNC || !s.st_size)
            continue;
        const char *name = sim_elf_string(elf, section->sh_link, s.st_name);
        if (!name || !spend(o, sizeof s + strlen(name), c))
            return true;
        symbol *grown = realloc(o->functions, (o->num_functions + 1) * sizeof *grown);
        if (!grown)
            return sim_complain_no_memory(c);
        o->functions = grown;
        grown[o->num_functions] = (symbol){strdup(name), s.st_value, s.st_size};
        if (!grown[o->num_functions].name)
            return sim_complain_no_memory(c);
        o->num_functions++;
    }
    return true;
}

static bool read_symbols(sim_object *o, const sim_elf *elf, const Elf64_Shdr *section,
                         sim_complaint *c) {
    Elf64_Sym s;
    for (size_t i = 0; sim_elf_entry(elf, section, i, &s, sizeof s); i++) {
        if (s.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(s.st_info) != STT_OBJECT)
            continue;
        const char *name = sim_elf_string(elf, section->sh_link, s.st_name);
        if (!name)
            return sim_complain(c, "symbol %zu has no name", i);
        const size_t length = strlen(name);
        if (!spend(o, sizeof s + length, c))
            return false;
        const bool is_kernel = length > 3 && strcmp(name + length - 3, ".kd") == 0;
        if (is_kernel ? !add_kernel(o, name, length - 3, s.st_value, c)
                      : !add_global(o, name, &s, c)) {
            return false;
        }
    }
    return true;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const sim_kernel *)a)->name, ((const sim_kernel *)b)->name);
}

/** Sorts kernels by name, as some libraries' objects have ten thousand of them. */
static void sort_kernels(sim_object *o) {
    if (o->num_kernels)
        qsort(o->kernels, o->num_kernels, sizeof *o->kernels, compare_names);
}

// ---- relocations

enum relocation { // R_AMDGPU_...
    NONE,
    ABS32_LO,
    ABS32_HI,
    ABS64,
    REL32,
    REL64,
    ABS32,
    REL32_LO = 10,
    REL32_HI,
    RELATIVE64 = 13,
};

/** Finds the guest address of the symbol that a relocation names. */
static bool symbol_address(sim_object *o, const sim_elf *elf, const Elf64_Shdr *section,
                           size_t index, uint64_t *out, sim_complaint *c) {
    Elf64_Shdr table;
    Elf64_Sym s;
    if (!sim_elf_section(elf, section->sh_link, &table) ||
        !sim_elf_entry(elf, &table, index, &s, sizeof s)) {
        return sim_complain(c, "a relocation names symbol %zu, which is not there", index);
    }
    if (s.st_shndx == SHN_UNDEF) {
        const char *name = sim_elf_string(elf, table.sh_link, s.st_name);
        *out = 0;
        return ELF64_ST_BIND(s.st_info) == STB_WEAK || index == 0 ||
               sim_complain(c, "undefined symbol %s", name ? name : "without a name");
    }
    *out = o->region->base + s.st_value;
    return true;
}

static bool apply(sim_object *o, uint64_t type, uint64_t offset, uint64_t value, sim_complaint *c) {
    const size_t bytes = type == ABS64 || type == REL64 || type == RELATIVE64 ? 8 : 4;
    if (offset > o->bytes || o->bytes - offset < bytes) {
        return sim_complain(c, "a relocation at 0x%llx lies outside the image",
                            (unsigned long long)offset);
    }
    const uint64_t place = o->region->base + offset;
    switch (type) {
    case ABS32_LO:
    case ABS32:
    case ABS64:
        break;
    case ABS32_HI:
        value >>= 32;
        break;
    case REL32:
    case REL32_LO:
    case REL64:
        value -= place;
        break;
    case REL32_HI:
        value = (value - place) >> 32;
        break;
    case RELATIVE64:
        break;
    default:
        return sim_complain(c, "relocation type %llu is not supported", (unsigned long long)type);
    }
    memcpy(o->region->host + offset, &value, bytes);
    return true;
}

static bool relocate(sim_object *o, const sim_elf *elf, const Elf64_Shdr *section,
                     sim_complaint *c) {
    Elf64_Rela r;
    for (size_t i = 0; sim_elf_entry(elf, section, i, &r, sizeof r); i++) {
        uint64_t type = ELF64_R_TYPE(r.r_info), value = o->region->base;
        if (!spend(o, sizeof r, c))
            return false;
        if (type == NONE)
            continue;
        if (type != RELATIVE64 &&
            !symbol_address(o, elf, section, ELF64_R_SYM(r.r_info), &value, c)) {
            return false;
        }
        if (!apply(o, type, r.r_offset, value + (uint64_t)r.r_addend, c))
            return false;
    }
    return true;
}

// ---- notes

static uint64_t align4(uint64_t value) {
    return (value + 3) & ~UINT64_C(3);
}

/** Reads the metadata among the notes of a segment. Other notes, and those that do not fit, are
 *  passed over. */
static bool read_notes(sim_object *o, const uint8_t *notes, uint64_t left, sim_complaint *c) {
    Elf64_Nhdr note;
    while (left >= sizeof note) {
        memcpy(&note, notes, sizeof note);
        const uint64_t desc = sizeof note + align4(note.n_namesz),
                       end = desc + align4(note.n_descsz);
        if (desc + note.n_descsz > left)
            return true;
        if (note.n_type == NOTE_METADATA && note.n_namesz == sizeof "AMDGPU" &&
            memcmp(notes + sizeof note, "AMDGPU", sizeof "AMDGPU") == 0 &&
            !sim_metadata_read(o->kernels, o->num_kernels, &o->formats, notes + desc, note.n_descsz,
                               c)) {
            return false;
        }
        notes += end < left ? end : left;
        left -= end < left ? end : left;
    }
    return true;
}

static bool read_metadata(sim_object *o, const sim_elf *elf, sim_complaint *c) {
    Elf64_Phdr p;
    for (size_t i = 0; sim_elf_segment(elf, i, &p); i++) {
        const uint8_t *notes =
            p.p_type == PT_NOTE ? sim_elf_range(elf, p.p_offset, p.p_filesz) : nullptr;
        if (notes && (!spend(o, p.p_filesz, c) || !read_notes(o, notes, p.p_filesz, c)))
            return false;
    }
    return true;
}

// ---- loading

/** Makes the decoder's view of the code: a copy that no kernel can write, and a slot for each
 *  dword. */
static bool make_text(sim_object *o, const sim_chip *chip) {
    enum { DECODE_SLACK = 16 }; // the longest instruction; the decoder may look past the end
    const uint64_t size = o->text.size;
    o->text_copy = calloc(size + DECODE_SLACK, 1);
    o->text.slots = calloc(size / 4 + 1, sizeof *o->text.slots);
    if (!o->text_copy || !o->text.slots)
        return false;
    memcpy(o->text_copy, o->region->host + (o->text.start - o->region->base), size);
    o->text.bytes = o->text_copy;
    o->text.chip = chip;
    sim_memory_tag_code(o->memory, o->region->base, o->text.start, size);
    return true;
}

static sim_object_status load(sim_object *o, const sim_elf *elf, const sim_chip *chip,
                              uint32_t device, sim_complaint *c) {
    o->budget = BUDGET_FACTOR * (uint64_t)elf->size;
    if (!measure(o, elf, c))
        return SIM_OBJECT_INVALID;
    o->region = sim_memory_alloc(o->memory, o->bytes, SIM_REGION_CODE, device);
    if (!o->region) {
        sim_complain(c, "no memory for its image of %llu bytes", (unsigned long long)o->bytes);
        return SIM_OBJECT_NO_MEMORY;
    }
    o->text.start += o->region->base;
    load_segments(o, elf);
    if (!each_section(o, elf, SHT_RELA, relocate, c) ||
        !each_section(o, elf, SHT_DYNSYM, read_symbols, c) ||
        !each_section(o, elf, SHT_SYMTAB, read_functions, c)) {
        return c->is_no_memory ? SIM_OBJECT_NO_MEMORY : SIM_OBJECT_INVALID;
    }
    sort_kernels(o);
    if (!read_metadata(o, elf, c))
        return c->is_no_memory ? SIM_OBJECT_NO_MEMORY : SIM_OBJECT_INVALID;
    if (!make_text(o, chip)) {
        sim_complain_no_memory(c);
        return SIM_OBJECT_NO_MEMORY;
    }
    return SIM_OBJECT_OK;
}

static sim_object_status load_image(sim_object **out, sim_memory *memory, const sim_chip *chip,
                                    uint32_t device, const void *image, size_t bytes,
                                    sim_complaint *c) {
    sim_object_status status = SIM_OBJECT_OK;
    if (sim_bundle_is(image, bytes))
        status = sim_bundle_find(chip, image, bytes, &image, &bytes, c);
    sim_elf elf;
    if (status == SIM_OBJECT_OK && !sim_elf_init(&elf, image, bytes)) {
        sim_complain(c, "not an ELF64 file (%zu bytes)", bytes);
        status = SIM_OBJECT_INVALID;
    }
    status = status == SIM_OBJECT_OK ? check_header(&elf, chip, c) : status;
    if (status != SIM_OBJECT_OK)
        return status;
    sim_object *o = calloc(1, sizeof *o);
    if (!o) {
        sim_complain_no_memory(c);
        return SIM_OBJECT_NO_MEMORY;
    }
    o->memory = memory;
    status = load(o, &elf, chip, device, c);
    if (status == SIM_OBJECT_OK) {
        sim_sources_keep(&o->sources, &elf);
        *out = o;
    } else {
        sim_object_unload(o);
    }
    return status;
}

sim_object_status sim_object_load(sim_object **out, sim_memory *memory, const sim_chip *chip,
                                  uint32_t device, const void *image, size_t bytes, char *error,
                                  size_t error_bytes) {
    sim_complaint c = {.text = error, .bytes = error_bytes};
    if (!sim_compressed_is(image, bytes))
        return load_image(out, memory, chip, device, image, bytes, &c);
    void *expanded = nullptr;
    sim_object_status status = sim_compressed_expand(image, bytes, &expanded, &bytes, &c);
    if (status == SIM_OBJECT_OK)
        status = load_image(out, memory, chip, device, expanded, bytes, &c);
    free(expanded);
    return status;
}

void sim_object_unload(sim_object *o) {
    if (!o)
        return;
    if (o->region)
        sim_memory_free(o->memory, o->region->base);
    for (size_t i = 0; i < o->num_kernels; i++) {
        free(o->kernels[i].name);
        free(o->kernels[i].args);
    }
    for (size_t i = 0; i < o->num_globals; i++)
        free(o->globals[i].name);
    for (size_t i = 0; i < o->num_functions; i++)
        free(o->functions[i].name);
    if (o->text.slots)
        sim_text_deinit(&o->text);
    sim_sources_deinit(&o->sources);
    sim_formats_deinit(&o->formats);
    free(o->text_copy);
    free(o->kernels);
    free(o->globals);
    free(o->functions);
    free(o);
}

sim_text *sim_object_text(sim_object *o) {
    return &o->text;
}

const sim_kernel *sim_object_kernel(const sim_object *o, const char *name) {
    sim_kernel key = {.name = (char *)(uintptr_t)name};
    return o->num_kernels ? bsearch(&key, o->kernels, o->num_kernels, sizeof key, compare_names)
                          : nullptr;
}

size_t sim_object_num_kernels(const sim_object *o) {
    return o->num_kernels;
}

const sim_kernel *sim_object_kernel_at(const sim_object *o, size_t index) {
    return &o->kernels[index];
}

const void *sim_object_entry(const sim_chip *chip, const void *image, size_t bytes,
                             size_t *out_bytes) {
    const void *entry = nullptr;
    char text[256];
    sim_complaint c = {.text = text, .bytes = sizeof text};
    const bool ok = sim_bundle_is(image, bytes) &&
                    sim_bundle_find(chip, image, bytes, &entry, out_bytes, &c) == SIM_OBJECT_OK;
    return ok ? entry : nullptr;
}

const char *sim_object_format(const sim_object *o, uint64_t id) {
    for (size_t i = 0; i < o->formats.count; i++)
        if (o->formats.list[i].id == id)
            return o->formats.list[i].text;
    return nullptr;
}

bool sim_object_global(const sim_object *o, const char *name, uint64_t *addr, uint64_t *bytes) {
    for (size_t i = 0; i < o->num_globals; i++) {
        if (strcmp(o->globals[i].name, name) == 0) {
            *addr = o->region->base + o->globals[i].value;
            *bytes = o->globals[i].bytes;
            return true;
        }
    }
    return false;
}

const char *sim_object_global_at(const sim_object *o, size_t index) {
    return index < o->num_globals ? o->globals[index].name : nullptr;
}

bool sim_object_source(const sim_object *o, uint64_t pc, sim_source *out) {
    const bool found = sim_sources_find(&o->sources, pc - o->region->base, out);
    out->end += o->region->base;
    return found;
}

const char *sim_object_function(const sim_object *o, uint64_t pc, uint64_t *start) {
    for (size_t i = 0; i < o->num_functions; i++) {
        const symbol *s = &o->functions[i];
        if (pc - o->region->base - s->value < s->bytes) {
            *start = o->region->base + s->value;
            return s->name;
        }
    }
    return nullptr;
}

const char *sim_object_variable(const sim_object *o, uint64_t addr, uint64_t *start,
                                uint64_t *bytes) {
    enum { BEHIND = 1 << 16 }; // where an access counts as one past the image's end
    const symbol *best = nullptr;
    const uint64_t offset = addr - o->region->base;
    for (size_t i = 0; offset < o->region->size + BEHIND && i < o->num_globals; i++) {
        const symbol *s = &o->globals[i];
        if (s->value <= offset && (!best || s->value > best->value))
            best = s;
    }
    if (!best)
        return nullptr;
    *start = o->region->base + best->value;
    *bytes = best->bytes;
    return best->name;
}
