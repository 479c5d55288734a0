// SPDX-License-Identifier: Apache-2.0
// Reads AMDGPU code objects: the ELF file, its metadata note (MessagePack), its kernels'
// instructions.
//
// Layout: LLVM's AMDGPUUsage, "Code Object" and "Code Object Metadata". Every offset is checked
// against the file's size before it is followed, since an object may come from a cache that
// something damaged.
#include "object.h"

#include "../runtime.h"

#include <elf.h>
#include <string.h>

enum { NT_AMDGPU_METADATA_NOTE = 32 };

// ---- MessagePack, as much as the metadata uses

typedef struct pack {
    const uint8_t *at, *end;
    bool is_bad; // something ran past the end or was of another type: all that follows reads as
                 // nothing
} pack;

static uint64_t take(pack *p, size_t bytes) {
    uint64_t value = 0;
    if ((size_t)(p->end - p->at) < bytes) {
        p->is_bad = true;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | *p->at++;
    return value;
}

static void pass(pack *p, uint64_t bytes) {
    if ((uint64_t)(p->end - p->at) < bytes)
        p->is_bad = true;
    else
        p->at += bytes;
}

/** Returns the number of entries of a map (pairs) or an array; 0, and is_bad, if the value is of
 *  another kind. */
static uint64_t take_count(pack *p, uint8_t fix, uint8_t kind16) {
    const uint64_t tag = take(p, 1);
    if ((tag & 0xf0) == fix)
        return tag & 0x0f;
    if (tag == kind16)
        return take(p, 2);
    if (tag == kind16 + 1u)
        return take(p, 4);
    p->is_bad = true;
    return 0;
}

static uint64_t take_map(pack *p) {
    return take_count(p, 0x80, 0xde);
}

static uint64_t take_array(pack *p) {
    return take_count(p, 0x90, 0xdc);
}

typedef struct text {
    const char *at;
    size_t length;
} text;

static text take_text(pack *p) {
    uint64_t tag = take(p, 1), length = 0;
    if ((tag & 0xe0) == 0xa0)
        length = tag & 0x1f;
    else if (tag >= 0xd9 && tag <= 0xdb)
        length = take(p, (size_t)1 << (tag - 0xd9));
    else
        p->is_bad = true;
    text found = {(const char *)p->at, (size_t)length};
    pass(p, length);
    return p->is_bad ? (text){"", 0} : found;
}

static bool is_text(text t, const char *word) {
    return t.length == strlen(word) && memcmp(t.at, word, t.length) == 0;
}

/** Returns a non-negative integer that fits an int32_t. */
static int32_t take_int(pack *p) {
    uint64_t tag = take(p, 1), value = tag;
    if (tag >= 0xcc && tag <= 0xcf)
        value = take(p, (size_t)1 << (tag - 0xcc));
    else if (tag >= 0xd0 && tag <= 0xd3)
        value = take(p, (size_t)1 << (tag - 0xd0));
    else if (tag > 0x7f)
        p->is_bad = true;
    if (value > INT32_MAX)
        p->is_bad = true;
    return p->is_bad ? 0 : (int32_t)value;
}

/** Passes over one value of any kind. `depth` bounds recursion in hostile files. */
static void skip(pack *p, int depth) {
    if (depth == 0 || p->at >= p->end) {
        p->is_bad = true;
        return;
    }
    const uint8_t tag = *p->at;
    const bool is_map = (tag & 0xf0) == 0x80 || tag == 0xde || tag == 0xdf;
    const bool is_array = (tag & 0xf0) == 0x90 || tag == 0xdc || tag == 0xdd;
    if (is_map || is_array) {
        uint64_t count = is_map ? 2 * take_map(p) : take_array(p);
        while (count-- > 0 && !p->is_bad)
            skip(p, depth - 1);
    } else if ((tag & 0xe0) == 0xa0 || (tag >= 0xd9 && tag <= 0xdb)) {
        take_text(p);
    } else if (tag >= 0xca &&
               tag <= 0xd3) { // float 32, 64; unsigned and signed of 1, 2, 4, 8 bytes
        static const uint8_t sizes[] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8};
        pass(p, 1u + sizes[tag - 0xca]);
    } else if (tag >= 0xc4 && tag <= 0xc6) { // binary
        p->at++;
        pass(p, take(p, (size_t)1 << (tag - 0xc4)));
    } else if (tag == 0xc0 || tag == 0xc2 || tag == 0xc3 || tag <= 0x7f || tag >= 0xe0) {
        p->at++;
    } else {
        p->is_bad = true; // extension types: the metadata has none
    }
}

/** Reads one kernel's map. Returns true if the kernel is called `entry`. */
static bool take_kernel(pack *p, const char *entry, qni_kernel_usage *usage) {
    const struct {
        const char *key;
        int32_t *value;
    } fields[] = {
        {".vgpr_count", &usage->vgprs},
        {".agpr_count", &usage->agprs},
        {".private_segment_fixed_size", &usage->scratch_bytes},
        {".sgpr_spill_count", &usage->sgpr_spills},
        {".group_segment_fixed_size", &usage->lds_bytes},
        {".max_flat_workgroup_size", &usage->max_threads},
        {".kernarg_segment_size", &usage->kernarg_bytes},
    };
    bool is_entry = false;
    *usage = (qni_kernel_usage){0};
    for (uint64_t pairs = take_map(p); pairs > 0 && !p->is_bad; pairs--) {
        text key = take_text(p);
        size_t f = 0, count = sizeof fields / sizeof *fields;
        while (f < count && !is_text(key, fields[f].key))
            f++;
        if (f < count)
            *fields[f].value = take_int(p);
        else if (is_text(key, ".name"))
            is_entry = is_text(take_text(p), entry);
        else
            skip(p, 16);
    }
    return is_entry && !p->is_bad;
}

static qn_status find_usage(pack p, const char *entry, qni_kernel_usage *usage) {
    for (uint64_t pairs = take_map(&p); pairs > 0 && !p.is_bad; pairs--) {
        if (!is_text(take_text(&p), "amdhsa.kernels")) {
            skip(&p, 16);
            continue;
        }
        for (uint64_t kernels = take_array(&p); kernels > 0 && !p.is_bad; kernels--)
            if (take_kernel(&p, entry, usage))
                return QN_OK;
    }
    if (p.is_bad)
        return QN_FAIL(QN_E_INVALID, "code object: damaged metadata");
    return QN_FAIL(QN_E_NOT_FOUND, "code object: no kernel %s", entry);
}

// ---- ELF

typedef struct elf_file {
    const uint8_t *data;
    size_t bytes;
    Elf64_Ehdr header;
} elf_file;

static bool has_range(const elf_file *elf, uint64_t offset, uint64_t bytes) {
    return offset <= elf->bytes && bytes <= elf->bytes - offset;
}

/** Copies a struct out of the file, which need not be aligned. */
static bool read_at(const elf_file *elf, uint64_t offset, void *to, size_t bytes) {
    if (!has_range(elf, offset, bytes))
        return false;
    memcpy(to, elf->data + offset, bytes);
    return true;
}

static bool read_section(const elf_file *elf, uint64_t index, Elf64_Shdr *section) {
    return index < elf->header.e_shnum &&
           read_at(elf, elf->header.e_shoff + index * sizeof *section, section, sizeof *section);
}

/** Finds the metadata note among the notes of one segment. */
static bool find_note(const elf_file *elf, const Elf64_Phdr *segment, pack *out) {
    uint64_t at = segment->p_offset, end = at + segment->p_filesz;
    Elf64_Nhdr note;
    while (at < end && read_at(elf, at, &note, sizeof note)) {
        const uint64_t name = at + sizeof note, body = name + ((note.n_namesz + 3u) & ~UINT64_C(3));
        if (!has_range(elf, body, note.n_descsz))
            return false;
        if (note.n_type == NT_AMDGPU_METADATA_NOTE && note.n_namesz == sizeof "AMDGPU" &&
            memcmp(elf->data + name, "AMDGPU", sizeof "AMDGPU") == 0) {
            *out = (pack){elf->data + body, elf->data + body + note.n_descsz, false};
            return true;
        }
        at = body + ((note.n_descsz + 3u) & ~UINT64_C(3));
    }
    return false;
}

static bool find_metadata(const elf_file *elf, pack *out) {
    Elf64_Phdr segment;
    for (uint64_t i = 0; i < elf->header.e_phnum; i++)
        if (read_at(elf, elf->header.e_phoff + i * sizeof segment, &segment, sizeof segment) &&
            segment.p_type == PT_NOTE && find_note(elf, &segment, out))
            return true;
    return false;
}

/** Returns whether the string at `offset` of a string table is `name`. */
static bool is_name(const elf_file *elf, const Elf64_Shdr *strings, uint64_t offset,
                    const char *name) {
    const size_t length = strlen(name) + 1;
    return offset < strings->sh_size && length <= strings->sh_size - offset &&
           memcmp(elf->data + strings->sh_offset + offset, name, length) == 0;
}

static bool set_code(const elf_file *elf, const Elf64_Sym *symbol, qni_object_kernel *out) {
    Elf64_Shdr section;
    if (!read_section(elf, symbol->st_shndx, &section) || symbol->st_value < section.sh_addr)
        return false;
    const uint64_t offset = section.sh_offset + (symbol->st_value - section.sh_addr);
    if (!has_range(elf, offset, symbol->st_size))
        return false;
    out->code = elf->data + offset;
    out->code_bytes = symbol->st_size;
    return true;
}

/** Finds the dynamic symbol table, of which an object has one, and its strings. Both must lie in
 *  the file. */
static bool find_symbols(const elf_file *elf, Elf64_Shdr *table, Elf64_Shdr *strings) {
    for (uint64_t s = 0; s < elf->header.e_shnum; s++)
        if (read_section(elf, s, table) && table->sh_type == SHT_DYNSYM)
            return has_range(elf, table->sh_offset, table->sh_size) &&
                   read_section(elf, table->sh_link, strings) &&
                   has_range(elf, strings->sh_offset, strings->sh_size);
    return false;
}

/** Finds the function symbol `entry` in the dynamic symbol table, which has every kernel. */
static bool find_code(const elf_file *elf, const char *entry, qni_object_kernel *out) {
    Elf64_Shdr table, strings;
    Elf64_Sym symbol;
    if (!find_symbols(elf, &table, &strings))
        return false;
    for (uint64_t i = 0; i < table.sh_size / sizeof symbol; i++)
        if (read_at(elf, table.sh_offset + i * sizeof symbol, &symbol, sizeof symbol) &&
            ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
            is_name(elf, &strings, symbol.st_name, entry))
            return set_code(elf, &symbol, out);
    return false;
}

static bool open_elf(elf_file *elf, const void *object, size_t bytes) {
    *elf = (elf_file){.data = object, .bytes = bytes};
    const Elf64_Ehdr *h = &elf->header;
    return read_at(elf, 0, &elf->header, sizeof elf->header) &&
           memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 && h->e_ident[EI_CLASS] == ELFCLASS64 &&
           h->e_ident[EI_DATA] == ELFDATA2LSB && h->e_machine == EM_AMDGPU &&
           h->e_phentsize == sizeof(Elf64_Phdr) && h->e_shentsize == sizeof(Elf64_Shdr);
}

qn_status qni_object_kernel_find(qni_object_kernel *out, const void *object, size_t bytes,
                                 const char *entry) {
    elf_file elf;
    pack metadata;
    *out = (qni_object_kernel){0};
    if (!open_elf(&elf, object, bytes) || !find_metadata(&elf, &metadata))
        return QN_FAIL(QN_E_INVALID, "code object: not an AMDGPU code object, or damaged");
    qn_status st = find_usage(metadata, entry, &out->usage);
    if (st == QN_OK && !find_code(&elf, entry, out))
        st = QN_FAIL(QN_E_INVALID, "code object: kernel %s has no code", entry);
    return st;
}
