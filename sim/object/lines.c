// SPDX-License-Identifier: Apache-2.0
// DWARF line tables: a header with folders and files, then a program whose rows say which line
// starts at which address. Source: "DWARF Debugging Information Format", version 5, section 6.2,
// and version 4 where the two differ.
//
// Nothing in a section is trusted: a cursor never leaves its bytes. A cursor that would leave them
// has failed: it reads zeros from then on, and ends every loop.
#include "lines.h"

#include <stdio.h>
#include <string.h>

typedef struct cursor {
    const uint8_t *at, *end;
    bool failed;
} cursor;

static const uint8_t *take(cursor *c, uint64_t bytes) {
    if (c->failed || bytes > (uint64_t)(c->end - c->at)) {
        c->failed = true;
        c->at = c->end;
        return nullptr;
    }
    const uint8_t *from = c->at;
    c->at += bytes;
    return from;
}

/** Reads a little-endian number of 1 to 8 bytes. */
static uint64_t number(cursor *c, unsigned bytes) {
    const uint8_t *from = take(c, bytes);
    uint64_t value = 0;
    for (unsigned i = 0; from && i < bytes; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

static uint64_t byte(cursor *c) {
    return number(c, 1);
}

/** Reads a ULEB128; bits above 64 are lost. On return *shift is that of the group after the
 *  last. */
static uint64_t leb(cursor *c, unsigned *shift, uint8_t *last) {
    uint64_t value = 0;
    *shift = 0;
    do {
        *last = (uint8_t)byte(c);
        value |= *shift < 64 ? (uint64_t)(*last & 127) << *shift : 0;
        *shift += 7;
    } while (*last & 128);
    return value;
}

static uint64_t unsigned_leb(cursor *c) {
    unsigned shift;
    uint8_t last;
    return leb(c, &shift, &last);
}

static int64_t signed_leb(cursor *c) {
    unsigned shift;
    uint8_t last;
    const uint64_t value = leb(c, &shift, &last);
    const bool is_negative = last & 64;
    return (int64_t)(is_negative && shift < 64 ? value | UINT64_MAX << shift : value);
}

/** Reads a string that ends within the cursor's bytes; "" otherwise. */
static const char *string(cursor *c) {
    const size_t left = (size_t)(c->end - c->at);
    const uint8_t *end = left ? memchr(c->at, 0, left) : nullptr;
    const uint8_t *from = take(c, end ? (uint64_t)(end - c->at) + 1 : UINT64_MAX);
    return from ? (const char *)from : "";
}

static cursor cursor_at(const sim_section *section, uint64_t offset) {
    const bool inside = offset < section->size;
    const uint8_t *end = section->size ? section->bytes + section->size : nullptr;
    return (cursor){inside ? section->bytes + offset : end, end, !inside};
}

// ---- a unit's header

typedef struct unit {
    const sim_debug *debug;
    cursor tables;  // folders and files
    cursor program; // after them
    unsigned version, offset_bytes;
    unsigned min_length, opcode_base, line_range;
    int line_base;
    const uint8_t *lengths; // operands of standard opcodes, from opcode 1
} unit;

/** Reads the header at *c and moves *c to the next unit. Returns false if this unit cannot be
 *  used. */
static bool read_header(const sim_debug *debug, cursor *c, unit *u) {
    enum { DWARF64 = 0xffffffff, MAX_VERSION = 5, MIN_VERSION = 2 };
    *u = (unit){.debug = debug, .offset_bytes = 4};
    uint64_t length = number(c, 4);
    if (length == DWARF64) {
        u->offset_bytes = 8;
        length = number(c, 8);
    }
    const uint8_t *start = take(c, length);
    cursor rest = {start, start ? start + length : nullptr, !start};
    u->version = (unsigned)number(&rest, 2);
    if (u->version < MIN_VERSION || u->version > MAX_VERSION)
        return false;
    take(&rest, u->version >= 5 ? 2 : 0); // sizes of addresses and segment selectors
    const uint64_t header_bytes = number(&rest, u->offset_bytes);
    u->tables = rest;
    const uint8_t *program = take(&rest, header_bytes);
    u->program = rest;
    u->tables.end = program ? program + header_bytes : u->tables.at;
    u->min_length = (unsigned)byte(&u->tables);
    const unsigned operations = u->version >= 4 ? (unsigned)byte(&u->tables) : 1;
    byte(&u->tables); // whether rows begin statements
    u->line_base = (int8_t)byte(&u->tables);
    u->line_range = (unsigned)byte(&u->tables);
    u->opcode_base = (unsigned)byte(&u->tables);
    u->lengths = take(&u->tables, u->opcode_base ? u->opcode_base - 1 : 0);
    return !rest.failed && !u->tables.failed && u->line_range && u->opcode_base && operations == 1;
}

// ---- names of folders and files

/** One entry of a table; a folder's entry has a path alone. */
typedef struct entry {
    const char *name;
    uint64_t folder;
} entry;

enum { CONTENT_PATH = 1, CONTENT_FOLDER = 2 };

static const char *string_at(const sim_section *section, uint64_t offset) {
    cursor c = cursor_at(section, offset);
    return string(&c);
}

/** Reads one field of an entry of version 5. An unknown form fails. */
static void read_field(const unit *u, cursor *c, uint64_t content, uint64_t form, entry *out) {
    enum {
        DATA2 = 5,
        DATA4,
        DATA8,
        STRING,
        BLOCK,
        DATA1 = 11,
        STRP = 14,
        UDATA,
        DATA16 = 30,
        LINE_STRP
    };
    const char *name = "";
    uint64_t value = 0;
    switch (form) {
    case STRING:
        name = string(c);
        break;
    case LINE_STRP:
        name = string_at(&u->debug->line_str, number(c, u->offset_bytes));
        break;
    case STRP:
        name = string_at(&u->debug->str, number(c, u->offset_bytes));
        break;
    case UDATA:
        value = unsigned_leb(c);
        break;
    case DATA1:
        value = byte(c);
        break;
    case DATA2:
    case DATA4:
    case DATA8:
        value = number(c, 2u << (form - DATA2));
        break;
    case DATA16:
        take(c, 16);
        break;
    case BLOCK:
        take(c, unsigned_leb(c));
        break;
    default:
        c->failed = true;
    }
    out->name = content == CONTENT_PATH ? name : out->name;
    out->folder = content == CONTENT_FOLDER ? value : out->folder;
}

/** Returns entry `wanted` of a table of version 5, and moves *c behind the table. */
static entry read_table(const unit *u, cursor *c, uint64_t wanted) {
    entry found = {.name = ""};
    const uint64_t num_fields = byte(c);
    cursor formats = *c;
    for (uint64_t i = 0; i < num_fields; i++) {
        unsigned_leb(c);
        unsigned_leb(c);
    }
    const uint64_t count = unsigned_leb(c);
    for (uint64_t i = 0; i < count && num_fields && !c->failed;
         i++) { // a field has at least a byte
        entry e = {.name = ""};
        cursor format = formats;
        for (uint64_t k = 0; k < num_fields; k++) {
            const uint64_t content = unsigned_leb(&format);
            read_field(u, c, content, unsigned_leb(&format), &e);
        }
        found = i == wanted && !c->failed ? e : found;
    }
    return found;
}

/** Returns entry `wanted`, counted from 1, of a table before version 5, which ends with an empty
 *  name. */
static entry read_old_table(cursor *c, uint64_t wanted, bool are_files) {
    entry found = {.name = ""};
    for (uint64_t i = 1; !c->failed; i++) {
        entry e = {.name = string(c)};
        if (!*e.name)
            break;
        if (are_files) {
            e.folder = unsigned_leb(c);
            unsigned_leb(c); // time
            unsigned_leb(c); // size
        }
        found = i == wanted && !c->failed ? e : found;
    }
    return found;
}

static entry read_one(const unit *u, cursor *c, uint64_t wanted, bool are_files) {
    return u->version >= 5 ? read_table(u, c, wanted) : read_old_table(c, wanted, are_files);
}

static const char *folder_name(const unit *u, uint64_t folder) {
    cursor c = u->tables;
    return read_one(u, &c, folder, false).name;
}

/** Writes the name of a file. The table of files follows that of folders. From version 5 on, the
 *  paths of all other folders begin in folder 0. */
static void name_file(const unit *u, uint64_t file, sim_source_line *out) {
    cursor c = u->tables;
    read_one(u, &c, 0, false);
    entry e = read_one(u, &c, file, true);
    const char *folder = *e.name == '/' ? "" : folder_name(u, e.folder);
    const char *top = *e.name == '/' || *folder == '/' || !e.folder ? "" : folder_name(u, 0);
    snprintf(out->file, sizeof out->file, "%s%s%s%s%s", top, *top ? "/" : "", folder,
             *folder ? "/" : "", e.name);
}

// ---- the program

typedef struct row {
    uint64_t address, file;
    uint32_t line, column;
} row;

typedef struct machine {
    const unit *unit;
    cursor c;
    row now, before; // before: the last row of the sequence
    bool has_before, is_left_out;
    uint64_t wanted;
    bool found;   // in `before`
    uint64_t end; // of that row
} machine;

static void reset(machine *m) {
    m->now = (row){.file = 1, .line = 1};
    m->has_before = false;
}

/** Ends the row before the current one. Sequences of code that the linker left out begin at 0. */
static void emit(machine *m) {
    m->is_left_out = m->has_before ? m->is_left_out : !m->now.address;
    if (m->has_before && !m->is_left_out && m->before.address <= m->wanted &&
        m->wanted < m->now.address) {
        m->found = true;
        m->end = m->now.address;
        return;
    }
    m->before = m->now;
    m->has_before = true;
}

static void advance(machine *m, uint64_t operations) {
    m->now.address += operations * m->unit->min_length;
}

static void run_special(machine *m, unsigned opcode) {
    const unsigned adjusted = opcode - m->unit->opcode_base;
    advance(m, adjusted / m->unit->line_range);
    m->now.line += (uint32_t)(m->unit->line_base + (int)(adjusted % m->unit->line_range));
    emit(m);
}

static void run_extended(machine *m) {
    enum { END_SEQUENCE = 1, SET_ADDRESS = 2 };
    const uint64_t length = unsigned_leb(&m->c);
    const uint8_t *start = take(&m->c, length);
    cursor operands = {start, start ? start + length : nullptr, !start};
    const uint64_t opcode = byte(&operands);
    if (opcode == END_SEQUENCE) {
        emit(m);
        reset(m);
    } else if (opcode == SET_ADDRESS) {
        m->now.address = number(&operands, length == 5 ? 4 : 8);
    }
}

static void run_standard(machine *m, unsigned opcode) {
    enum {
        COPY = 1,
        ADVANCE_PC,
        ADVANCE_LINE,
        SET_FILE,
        SET_COLUMN,
        CONST_ADD_PC = 8,
        FIXED_ADVANCE_PC
    };
    switch (opcode) {
    case COPY:
        emit(m);
        break;
    case ADVANCE_PC:
        advance(m, unsigned_leb(&m->c));
        break;
    case ADVANCE_LINE:
        m->now.line += (uint32_t)signed_leb(&m->c);
        break;
    case SET_FILE:
        m->now.file = unsigned_leb(&m->c);
        break;
    case SET_COLUMN:
        m->now.column = (uint32_t)unsigned_leb(&m->c);
        break;
    case CONST_ADD_PC:
        advance(m, (255 - m->unit->opcode_base) / m->unit->line_range);
        break;
    case FIXED_ADVANCE_PC:
        m->now.address += number(&m->c, 2);
        break;
    default: // operations that do not move a row
        for (unsigned i = 0; i < m->unit->lengths[opcode - 1]; i++)
            unsigned_leb(&m->c);
    }
}

/** Finds the last row at or before the wanted address, if the unit has one, and where the next one
 *  begins. Each step takes at least a byte. */
static bool find_row(const unit *u, uint64_t wanted, row *out, uint64_t *end) {
    machine m = {.unit = u, .c = u->program, .wanted = wanted};
    reset(&m);
    while (!m.c.failed && m.c.at < m.c.end && !m.found) {
        const unsigned opcode = (unsigned)byte(&m.c);
        if (opcode >= u->opcode_base)
            run_special(&m, opcode);
        else if (opcode)
            run_standard(&m, opcode);
        else
            run_extended(&m);
    }
    *out = m.before;
    *end = m.end;
    return m.found;
}

bool sim_line_find(const sim_debug *debug, uint64_t address, sim_source_line *out) {
    cursor c = cursor_at(&debug->line, 0);
    while (!c.failed && c.at < c.end) {
        unit u;
        row found;
        uint64_t end;
        if (read_header(debug, &c, &u) && find_row(&u, address, &found, &end)) {
            *out = (sim_source_line){.line = found.line, .column = found.column, .end = end};
            name_file(&u, found.file, out);
            return found.line && *out->file; // line 0 stands for no line
        }
    }
    return false;
}
