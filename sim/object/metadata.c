// SPDX-License-Identifier: Apache-2.0
// A code object's metadata: what its kernels use and how their arguments lie (LLVM's AMDGPUUsage,
// "Code Object V3 Metadata" and later).
#include "object.h"
#include "reader.h"

#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16, MAX_ARGS = 4096 };

static uint64_t big_endian(const uint8_t *bytes, size_t count) {
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

/** The bytes of a MessagePack header and its payload, and how many values are nested in it. */
typedef struct token {
    uint64_t bytes, values;
} token;

/** Returns the token whose first byte is at p. `left` bytes exist; a header that they cut off reads
 *  as longer than they are. */
static token read_token(const uint8_t *p, uint64_t left) {
    static const uint8_t header[32] = {// 0xc0..0xdf: bytes with the length field
                                       1, 1, 1, 1, 2, 3, 5, 3,  4,  6, 5, 9, 2, 3, 5, 9,
                                       2, 3, 5, 9, 3, 4, 6, 10, 18, 2, 3, 5, 3, 5, 3, 5};
    const uint8_t b = *p;
    if (b < 0x80 || b >= 0xe0)
        return (token){1, 0};
    if (b < 0xa0) // fixmap, fixarray
        return (token){1, (uint64_t)(b & 15) * (b < 0x90 ? 2 : 1)};
    if (b < 0xc0)
        return (token){1 + (uint64_t)(b & 31), 0};
    const uint64_t bytes = header[b - 0xc0];
    if (bytes > left)
        return (token){bytes, 0};
    const bool is_sized = (b >= 0xc4 && b <= 0xc9) || (b >= 0xd9 && b <= 0xdb);
    const bool is_ext = b >= 0xc7 && b <= 0xc9;
    if (is_sized)
        return (token){bytes + big_endian(p + 1, bytes - 1 - is_ext), 0};
    const uint64_t count = b >= 0xdc ? big_endian(p + 1, bytes - 1) : 0;
    return (token){bytes, b >= 0xde ? 2 * count : count};
}

/** Returns whether every count in the note fits the bytes that follow it. msgpack-c reserves memory
 *  for all that a header claims before it has read it, so a few hostile bytes would cost
 *  gigabytes. */
static bool is_sane(const uint8_t *p, uint64_t left) {
    uint64_t open[MAX_DEPTH] = {1};
    size_t depth = 1;
    while (depth) {
        if (open[depth - 1] == 0) {
            depth--;
            continue;
        }
        open[depth - 1]--;
        if (left == 0)
            return false;
        token t = read_token(p, left);
        if (t.bytes > left || t.values > left - t.bytes)
            return false;
        p += t.bytes;
        left -= t.bytes;
        if (t.values) {
            if (depth == MAX_DEPTH)
                return false;
            open[depth++] = t.values;
        }
    }
    return true;
}

static bool is_text(const msgpack_object *o, const char *text) {
    return o->type == MSGPACK_OBJECT_STR && o->via.str.size == strlen(text) &&
           memcmp(o->via.str.ptr, text, o->via.str.size) == 0;
}

/** Returns a map's value, or null. */
static const msgpack_object *get(const msgpack_object *map, const char *key) {
    if (map->type != MSGPACK_OBJECT_MAP)
        return nullptr;
    for (uint32_t i = 0; i < map->via.map.size; i++)
        if (is_text(&map->via.map.ptr[i].key, key))
            return &map->via.map.ptr[i].val;
    return nullptr;
}

/** Sets *out to a map's number, if there is one of 32 bits. */
static void get_u32(const msgpack_object *map, const char *key, uint32_t *out) {
    const msgpack_object *value = get(map, key);
    if (value && value->type == MSGPACK_OBJECT_POSITIVE_INTEGER && value->via.u64 <= UINT32_MAX)
        *out = (uint32_t)value->via.u64;
}

static bool get_bool(const msgpack_object *map, const char *key) {
    const msgpack_object *value = get(map, key);
    return value && value->type == MSGPACK_OBJECT_BOOLEAN && value->via.boolean;
}

/** Returns which hidden argument a ".value_kind" names; -1: an explicit one. */
static int16_t hidden_of(const msgpack_object *kind) {
    static const char *const names[SIM_HIDDEN_UNSERVED] = {
        "hidden_block_count_x",   "hidden_block_count_y",     "hidden_block_count_z",
        "hidden_group_size_x",    "hidden_group_size_y",      "hidden_group_size_z",
        "hidden_remainder_x",     "hidden_remainder_y",       "hidden_remainder_z",
        "hidden_global_offset_x", "hidden_global_offset_y",   "hidden_global_offset_z",
        "hidden_grid_dims",       "hidden_dynamic_lds_size",  "hidden_private_base",
        "hidden_shared_base",     "hidden_hostcall_buffer",   "hidden_printf_buffer",
        "hidden_heap_v1",         "hidden_multigrid_sync_arg"};
    if (!kind || kind->type != MSGPACK_OBJECT_STR || kind->via.str.size < 7 ||
        memcmp(kind->via.str.ptr, "hidden_", 7) != 0) {
        return -1;
    }
    for (int16_t i = 0; i < SIM_HIDDEN_UNSERVED; i++)
        if (is_text(kind, names[i]))
            return i;
    return SIM_HIDDEN_UNSERVED;
}

static bool read_args(sim_kernel *kernel, const msgpack_object *args, sim_complaint *c) {
    if (!args || args->type != MSGPACK_OBJECT_ARRAY || args->via.array.size == 0)
        return true;
    const uint32_t count = args->via.array.size;
    if (count > MAX_ARGS) {
        return sim_complain(c, "kernel %s: %u arguments; accepted: at most %d", kernel->name, count,
                            MAX_ARGS);
    }
    if (!(kernel->args = calloc(count, sizeof *kernel->args)))
        return sim_complain_no_memory(c);
    for (uint32_t i = 0; i < count; i++) {
        const msgpack_object *from = &args->via.array.ptr[i];
        sim_arg arg = {.hidden = hidden_of(get(from, ".value_kind"))};
        get_u32(from, ".offset", &arg.offset);
        get_u32(from, ".size", &arg.bytes);
        if (arg.offset > kernel->kernarg_bytes || arg.bytes > kernel->kernarg_bytes - arg.offset) {
            return sim_complain(c,
                                "kernel %s: argument %u (offset %u, %u bytes) lies outside its "
                                "segment of %u bytes",
                                kernel->name, i, arg.offset, arg.bytes, kernel->kernarg_bytes);
        }
        kernel->args[i] = arg;
        kernel->num_args = i + 1;
        kernel->num_explicit_args += arg.hidden < 0;
    }
    return true;
}

/** Compares a kernel's name with a metadata symbol, which is the name and ".kd". */
static int compare_symbol(const void *symbol, const void *kernel) {
    const msgpack_object_str *s = symbol;
    const char *name = ((const sim_kernel *)kernel)->name;
    const size_t length = strlen(name), have = s->size - 3;
    const int order = memcmp(s->ptr, name, length < have ? length : have);
    return order ? order : (have > length) - (have < length);
}

/** Finds a kernel; kernels are sorted by name. */
static sim_kernel *kernel_by_symbol(sim_kernel *kernels, size_t count,
                                    const msgpack_object *symbol) {
    if (!count || !symbol || symbol->type != MSGPACK_OBJECT_STR || symbol->via.str.size < 3 ||
        memcmp(symbol->via.str.ptr + symbol->via.str.size - 3, ".kd", 3) != 0) {
        return nullptr;
    }
    return bsearch(&symbol->via.str, kernels, count, sizeof *kernels, compare_symbol);
}

static bool read_kernel(sim_kernel *kernel, const msgpack_object *from, sim_complaint *c) {
    free(kernel->args); // a second entry for the same kernel replaces the first
    kernel->args = nullptr;
    kernel->num_args = kernel->num_explicit_args = 0;
    get_u32(from, ".vgpr_count", &kernel->num_vgprs);
    get_u32(from, ".agpr_count", &kernel->num_agprs);
    get_u32(from, ".sgpr_count", &kernel->num_sgprs);
    get_u32(from, ".max_flat_workgroup_size", &kernel->max_threads);
    get_u32(from, ".kernarg_segment_size", &kernel->kernarg_bytes);
    kernel->uses_dynamic_stack = get_bool(from, ".uses_dynamic_stack");
    return read_args(kernel, get(from, ".args"), c);
}

/** Adds a format, "0:0:HASH,FORMAT", as clang makes it of HIP's printf. The form that clang makes
 *  of OpenCL's printf is left out, as no HIP program has it. Returns false without memory. */
static bool add_format(sim_formats *formats, const msgpack_object *from) {
    if (from->type != MSGPACK_OBJECT_STR || from->via.str.size < 5 ||
        memcmp(from->via.str.ptr, "0:0:", 4) != 0) {
        return true;
    }
    const char *text = from->via.str.ptr + 4, *end = from->via.str.ptr + from->via.str.size;
    uint64_t id = 0;
    for (; text < end && *text != ','; text++) {
        const int digit = *text >= 'a' && *text <= 'f' ? *text - 'a' + 10 : *text - '0';
        if (digit < 0 || digit > 15 || id >> 60)
            return true;
        id = id << 4 | (unsigned)digit;
    }
    if (text == end)
        return true;
    char *copy = strndup(text + 1, (size_t)(end - text - 1));
    if (copy)
        formats->list[formats->count++] = (sim_format){id, copy};
    return copy;
}

static bool read_formats(sim_formats *formats, const msgpack_object *list, sim_complaint *c) {
    if (!list || list->type != MSGPACK_OBJECT_ARRAY || list->via.array.size == 0)
        return true;
    const size_t most = formats->count + list->via.array.size;
    sim_format *grown = realloc(formats->list, most * sizeof *grown);
    if (!grown)
        return sim_complain_no_memory(c);
    formats->list = grown;
    for (uint32_t i = 0; i < list->via.array.size; i++)
        if (!add_format(formats, &list->via.array.ptr[i]))
            return sim_complain_no_memory(c);
    return true;
}

void sim_formats_deinit(sim_formats *formats) {
    for (size_t i = 0; i < formats->count; i++)
        free(formats->list[i].text);
    free(formats->list);
}

static bool read_root(sim_kernel *kernels, size_t count, sim_formats *formats,
                      const msgpack_object *root, sim_complaint *c) {
    const msgpack_object *list = get(root, "amdhsa.kernels");
    if (!list || list->type != MSGPACK_OBJECT_ARRAY)
        return sim_complain(c, "the metadata has no list amdhsa.kernels");
    for (uint32_t i = 0; i < list->via.array.size; i++) {
        const msgpack_object *from = &list->via.array.ptr[i];
        sim_kernel *kernel = kernel_by_symbol(kernels, count, get(from, ".symbol"));
        if (kernel && !read_kernel(kernel, from, c))
            return false;
    }
    return read_formats(formats, get(root, "amdhsa.printf"), c);
}

bool sim_metadata_read(sim_kernel *kernels, size_t num_kernels, sim_formats *formats,
                       const void *note, size_t bytes, sim_complaint *c) {
    if (!is_sane(note, bytes))
        return sim_complain(c, "the metadata of %zu bytes is not MessagePack", bytes);
    msgpack_unpacked unpacked;
    msgpack_unpacked_init(&unpacked);
    size_t at = 0;
    msgpack_unpack_return got = msgpack_unpack_next(&unpacked, note, bytes, &at);
    bool ok = got == MSGPACK_UNPACK_SUCCESS || got == MSGPACK_UNPACK_EXTRA_BYTES;
    if (ok)
        ok = read_root(kernels, num_kernels, formats, &unpacked.data, c);
    else if (got == MSGPACK_UNPACK_NOMEM_ERROR)
        sim_complain_no_memory(c);
    else
        sim_complain(c, "the metadata of %zu bytes is not MessagePack", bytes);
    msgpack_unpacked_destroy(&unpacked);
    return ok;
}
