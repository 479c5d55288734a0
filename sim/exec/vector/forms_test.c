// SPDX-License-Identifier: Apache-2.0
// Tests of each vector instruction in every form it has (plain, scalar and constant sources,
// modifiers, clamp, DPP, SDWA, op_sel). LLVM assembles them, the best build of exec/ and the
// portable one run them, and all registers are compared with lane-by-lane references.
#include "../exec_testing.h"
#include "refs.h"

enum { ROUNDS = 10, DST = 20 };

typedef enum form_kind { PLAIN, SCALAR, CONSTANT, NEG_ABS, CLAMP, DPP, SDWA, NUM_FORMS } form_kind;

/** One instruction of the test: a case in a form. */
typedef struct form {
    const valu_case *c;
    form_kind kind;
    int variant; // which DPP control, which selections
    char text[160];
} form;

static form *forms;
static size_t num_forms;

// ---- types

static char source_type(const valu_case *c, int i) {
    return c->types[2 + i] == '+' ? c->types[0] : c->types[2 + i];
}
static int arity(const valu_case *c) {
    return (int)strlen(c->types) - 2;
}
static bool is_wide(char type) {
    return strchr("qQd", type);
}
static bool is_float(char type) {
    return strchr("fhxd", type);
}
static bool is_half(char type) {
    return strchr("hxwk", type);
}

// ---- DPP controls: text, and the lane they read, written from the manual's table

typedef struct control {
    const char *text;
    uint64_t rows, banks; // lanes that the masks leave on
    bool bound;
} control;

static const control controls[] = {
    {"quad_perm:[3,1,0,2] row_mask:0xf bank_mask:0xf", UINT64_MAX, UINT64_MAX, false},
    {"row_shl:1 row_mask:0xf bank_mask:0xf", UINT64_MAX, UINT64_MAX, false},
    {"row_shr:3 row_mask:0xf bank_mask:0xf bound_ctrl:1", UINT64_MAX, UINT64_MAX, true},
    {"row_ror:5 row_mask:0xa bank_mask:0xf", 0xffff0000ffff0000, UINT64_MAX, false},
    {"wave_shl:1 row_mask:0xf bank_mask:0xf", UINT64_MAX, UINT64_MAX, false},
    {"wave_rol:1 row_mask:0xf bank_mask:0x3", UINT64_MAX, 0x00ff00ff00ff00ff, false},
    {"wave_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1", UINT64_MAX, UINT64_MAX, true},
    {"wave_ror:1 row_mask:0xf bank_mask:0xf", UINT64_MAX, UINT64_MAX, false},
    {"row_mirror row_mask:0xf bank_mask:0xf", UINT64_MAX, UINT64_MAX, false},
    {"row_half_mirror row_mask:0xf bank_mask:0xf", UINT64_MAX, UINT64_MAX, false},
    {"row_bcast:15 row_mask:0xa bank_mask:0xf", 0xffff0000ffff0000, UINT64_MAX, false},
    {"row_bcast:31 row_mask:0xc bank_mask:0xf", 0xffffffff00000000, UINT64_MAX, false},
    {"row_newbcast:6 row_mask:0xf bank_mask:0xf", UINT64_MAX, UINT64_MAX, false},
};
enum { NUM_CONTROLS = sizeof controls / sizeof *controls };

static int lane_read(int variant, int lane) {
    static const int perm[] = {3, 1, 0, 2};
    const int row = lane / 16, pos = lane % 16;
    switch (variant) {
    case 0:
        return lane / 4 * 4 + perm[lane % 4];
    case 1:
        return pos < 15 ? lane + 1 : -1;
    case 2:
        return pos > 2 ? lane - 3 : -1;
    case 3:
        return row * 16 + (pos + 11) % 16;
    case 4:
        return lane < 63 ? lane + 1 : -1;
    case 5:
        return (lane + 1) % 64;
    case 6:
        return lane - 1;
    case 7:
        return (lane + 63) % 64;
    case 8:
        return row * 16 + 15 - pos;
    case 9:
        return lane / 8 * 8 + 7 - lane % 8;
    case 10:
        return row ? row * 16 - 1 : -1;
    case 11:
        return row >= 2 ? 31 : -1;
    default:
        return row * 16 + 6;
    }
}

// ---- SDWA selections

static const char *const sdwa_texts[] = {
    "dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1",
    "dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0",
    "dst_sel:BYTE_2 dst_unused:UNUSED_SEXT src0_sel:BYTE_3",
    "dst_sel:WORD_0 dst_unused:UNUSED_SEXT src0_sel:WORD_1",
};
enum { NUM_SDWA = sizeof sdwa_texts / sizeof *sdwa_texts };

static u64 sdwa_source(int variant, u64 value) {
    static const int shifts[] = {8, 0, 24, 16}, bits[] = {8, 16, 8, 16};
    return value >> shifts[variant] & ((1u << bits[variant]) - 1);
}

static u64 sdwa_result(int variant, u64 old, u64 value) {
    switch (variant) {
    case 0:
        return value;
    case 1:
        return (old & 0xffff) | (value & 0xffff) << 16;
    case 2:
        return (u32)((int32_t)(int8_t)value * 65536);
    default:
        return (u32)(int16_t)value;
    }
}

// ---- texts

static void append_register(char *text, char file, char type, int reg) {
    char one[24];
    snprintf(one, sizeof one, is_wide(type) ? "%c[%d:%d]" : "%c%d", file, reg, reg + 1);
    strcat(text, one);
}

static void append_source(form *f, int i) {
    const char type = source_type(f->c, i);
    const bool modified = f->kind == NEG_ABS && is_float(type);
    strcat(f->text, ", ");
    if (i == 0 && f->kind == SCALAR) {
        append_register(f->text, 's', type, 2);
    } else if (i == 0 && f->kind == CONSTANT) {
        strcat(f->text, is_float(type) ? "0.5" : "-7");
    } else {
        strcat(f->text, modified ? i == 1 ? "|" : "-" : "");
        append_register(f->text, 'v', type, 2 + 2 * i);
        strcat(f->text, modified && i == 1 ? "|" : "");
    }
}

static void make_text(form *f) {
    const char *types = f->c->types;
    const bool vop3 = (f->kind == NEG_ABS || f->kind == CLAMP) && f->c->encoding < 3;
    snprintf(f->text, sizeof f->text, "%s%s ", f->c->name,
             vop3              ? "_e64"
             : f->kind == DPP  ? "_dpp"
             : f->kind == SDWA ? "_sdwa"
                               : "");
    append_register(f->text, 'v', types[0], DST);
    for (int i = 0; i < arity(f->c); i++)
        if (types[2 + i] != '+')
            append_source(f, i);
    if (f->kind == CLAMP) {
        strcat(f->text, " clamp");
    } else if (f->kind == DPP) {
        strcat(strcat(f->text, " "), controls[f->variant].text);
    } else if (f->kind == SDWA) {
        strcat(strcat(f->text, " "), sdwa_texts[f->variant]);
        strcat(f->text, arity(f->c) > 1 && types[3] != '+' ? " src1_sel:DWORD" : "");
    }
    strcat(f->text, "\n");
}

static bool has_form(const valu_case *c, form_kind kind) {
    switch (kind) {
    case NEG_ABS:
        return is_float(source_type(c, 0));
    case CLAMP:
        return is_float(c->types[0]);
    case DPP:
        return c->encoding == 2;
    case SDWA: // gfx9 has no SDWA form of the multiply-accumulates
        return c->encoding == 2 && !strchr(c->types, '+');
    default:
        return true;
    }
}

static void make_forms(void) {
    const size_t num_cases = sizeof valu_cases / sizeof *valu_cases;
    forms = calloc(num_cases * (NUM_FORMS + NUM_CONTROLS + NUM_SDWA), sizeof *forms);
    assert_non_null(forms);
    for (size_t i = 0; i < num_cases; i++) {
        for (form_kind kind = PLAIN; kind < NUM_FORMS; kind++) {
            const int variants = kind == DPP ? NUM_CONTROLS : kind == SDWA ? NUM_SDWA : 1;
            for (int v = 0; has_form(&valu_cases[i], kind) && v < variants; v++) {
                forms[num_forms] = (form){.c = &valu_cases[i], .kind = kind, .variant = v};
                make_text(&forms[num_forms++]);
            }
        }
    }
}

// ---- expected results

static u64 row_value(const sim_wave *w, int reg, char type, unsigned lane) {
    return w->v[reg][lane] | (is_wide(type) ? (u64)w->v[reg + 1][lane] << 32 : 0);
}

static u64 constant_of(char type) {
    switch (type) {
    case 'f':
        return 0x3f000000;
    case 'h':
        return 0x3800;
    case 'd':
        return UINT64_C(0x3fe0000000000000);
    default:
        return is_wide(type) ? (u64)-7 : (u32)-7;
    }
}

static u64 sign_of(char type) {
    return type == 'd' ? UINT64_C(1) << 63 : is_half(type) ? 0x8000 : 0x80000000;
}

static u64 source_value(const form *f, const sim_wave *w, int i, unsigned lane) {
    const char type = source_type(f->c, i);
    if (f->c->types[2 + i] == '+')
        return row_value(w, DST, type, lane);
    if (i == 0 && f->kind == SCALAR)
        return w->s[2] | (is_wide(type) ? (u64)w->s[3] << 32 : 0);
    if (i == 0 && f->kind == CONSTANT)
        return constant_of(type);
    if (i == 0 && f->kind == DPP) {
        const int from = lane_read(f->variant, (int)lane);
        return from >= 0 && (w->exec >> from & 1) ? row_value(w, 2, type, (unsigned)from) : 0;
    }
    u64 value = row_value(w, 2 + 2 * i, type, lane);
    value = i == 0 && f->kind == SDWA ? sdwa_source(f->variant, value) : value;
    if (f->kind == NEG_ABS && is_float(type))
        value = i == 1 ? value & ~sign_of(type) : value ^ sign_of(type);
    return value;
}

static double number_of(char type, u64 bits) {
    return type == 'd' ? f64(bits) : is_half(type) ? (double)f16(bits) : (double)f32(bits);
}

static u64 clamped(char type, u64 bits) {
    const double x = number_of(type, bits);
    if (x > 0 && x <= 1)
        return bits;
    const double y = x > 1 ? 1 : 0;
    return type == 'd' ? of_f64(y) : is_half(type) ? of_f16((_Float16)y) : of_f32((float)y);
}

static bool writes_lane(const form *f, const sim_wave *w, unsigned lane) {
    if (f->kind == DPP) {
        const control *c = &controls[f->variant];
        const int from = lane_read(f->variant, (int)lane);
        const bool valid = c->bound || (from >= 0 && (w->exec >> from & 1));
        return (w->exec & c->rows & c->banks) >> lane & 1 && valid;
    }
    return w->exec >> lane & 1;
}

static u64 expected_lane(const form *f, const sim_wave *w, unsigned lane) {
    u64 in[3] = {};
    for (int i = 0; i < arity(f->c); i++) {
        u64 value = source_value(f, w, i, lane);
        in[i] = is_half(source_type(f->c, i)) ? value & 0xffff : value;
    }
    const char type = f->c->types[0];
    u64 value = f->c->ref(in[0], in[1], in[2]), old = row_value(w, DST, type, lane);
    value = f->kind == CLAMP ? clamped(type, value) : value;
    if (f->kind == SDWA)
        return sdwa_result(f->variant, old, value);
    return type == 'k' || type == 'x' ? (old & 0xffff0000) | (value & 0xffff) : value;
}

/** Returns whether two values agree. NaNs are equal to each other whatever their payload. */
static bool agree(const form *f, u64 got, u64 want) {
    const char type = f->c->types[0];
    const bool partial = f->kind == SDWA && f->variant; // parts of floats are bits
    if (got == want || !is_float(type) || partial)
        return got == want;
    if (is_half(type) && got >> 16 != want >> 16)
        return false;
    const double x = number_of(type, got), y = number_of(type, want);
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y);
    if (f->c->ulps < 0)
        return fabs(x - y) <= ldexp(1, f->c->ulps);
    return f->c->ulps && signbit(x) == signbit(y) &&
           llabs((int64_t)got - (int64_t)want) <= f->c->ulps;
}

/** Returns whether a lane's result is open: SDWA's parts of a NaN depend on its payload, which the
 *  manual does not define. */
static bool is_open(const form *f, const sim_wave *w, unsigned lane) {
    if (f->kind != SDWA || !f->variant || !is_float(f->c->types[0]))
        return false;
    u64 a = source_value(f, w, 0, lane), b = arity(f->c) > 1 ? source_value(f, w, 1, lane) : 0;
    const bool rounded = f->c->ulps; // the low bits of an approximation are open too
    return rounded || isnan(number_of(f->c->types[0], f->c->ref(a, b, 0)));
}

static void check_lane(const form *f, const test_wave *t, const char *build, unsigned lane) {
    const char type = f->c->types[0];
    u64 got = row_value(&t->wave, DST, type, lane), old = row_value(&t->before, DST, type, lane);
    const bool written = writes_lane(f, &t->before, lane);
    u64 want = written ? expected_lane(f, &t->before, lane) : old;
    const bool right = written ? agree(f, got, want) || is_open(f, &t->before, lane) : got == want;
    if (!right) {
        fail_msg("%s (%s) lane %u: got %llx, want %llx; sources %llx %llx %llx", f->text, build,
                 lane, (unsigned long long)got, (unsigned long long)want,
                 (unsigned long long)source_value(f, &t->before, 0, lane),
                 (unsigned long long)(arity(f->c) > 1 ? source_value(f, &t->before, 1, lane) : 0),
                 (unsigned long long)(arity(f->c) > 2 ? source_value(f, &t->before, 2, lane) : 0));
    }
}

/** Checks that nothing but the destination has changed. */
static void check_rest(const form *f, test_wave *t) {
    const size_t rows = is_wide(f->c->types[0]) ? 2 : 1;
    memcpy(t->wave.v[DST], t->before.v[DST], rows * sizeof t->wave.v[0]);
    if (memcmp(&t->wave, &t->before, sizeof t->wave))
        fail_msg("%s: changed more than its destination", f->text);
}

static void run_form(const form *f, test_wave *t, const sim_inst *inst, sim_exec_fn exec,
                     const char *build) {
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(t, random_exec(round));
        exec(&t->wave, inst);
        for (unsigned lane = 0; lane < SIM_LANES; lane++)
            check_lane(f, t, build, lane);
        check_rest(f, t);
    }
}

static char *join_texts(void) {
    char *source = calloc(num_forms, sizeof forms->text);
    size_t used = 0;
    for (size_t i = 0; i < num_forms; i++) {
        const size_t n = strlen(forms[i].text);
        memcpy(source + used, forms[i].text, n);
        used += n;
    }
    return source;
}

static void test_all_forms(void **) {
    make_forms();
    char *source = join_texts();
    size_t size, at = 0;
    uint8_t *text = assemble("gfx942", source, &size);
    test_wave *t = make_wave("gfx942");
    for (size_t i = 0; i < num_forms; i++) {
        sim_inst inst = decode_at("gfx942", text, size, at);
        run_form(&forms[i], t, &inst, inst.exec, "best");
        run_form(&forms[i], t, &inst, sim_opcode_portable(inst.opcode)->exec, "portable");
        at += inst.bytes;
    }
    print_message("%zu forms of %zu instructions\n", num_forms,
                  sizeof valu_cases / sizeof *valu_cases);
    free(t);
    free(text);
    free(source);
    free(forms);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_forms)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
