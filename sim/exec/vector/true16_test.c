// SPDX-License-Identifier: Apache-2.0
// Tests of RDNA's vector instructions on gfx1151 and gfx1201, in waves of 32 lanes: halves of
// registers (true16), RDNA's DPP controls, dual instructions. LLVM assembles them, the best
// build of exec/ and the portable one run them, and all registers are compared with lane-by-lane
// references.
#include "../exec_testing.h"
#include "refs.h"

enum { ROUNDS = 8, DST = 20 };

typedef enum form_kind { LOW, HIGH, NEG_ABS, DPP, NUM_FORMS } form_kind;

/** One instruction of the test: a case in a form. */
typedef struct form {
    const valu_case *c;
    const char *name;
    u64 (*ref)(u64, u64, u64);
    form_kind kind;
    int variant; // which DPP control
    char text[160];
} form;

// ---- names: gfx9's, RDNA3's, RDNA4's; "" where there is none

static const char *const names[][3] = {
    {"v_min_f32", "v_min_f32", "v_min_num_f32"},
    {"v_max_f32", "v_max_f32", "v_max_num_f32"},
    {"v_min3_f32", "v_min3_f32", "v_min3_num_f32"},
    {"v_max3_f32", "v_max3_f32", "v_max3_num_f32"},
    {"v_med3_f32", "v_med3_f32", "v_med3_num_f32"},
    {"v_min_f16", "v_min_f16", "v_min_num_f16"},
    {"v_max_f16", "v_max_f16", "v_max_num_f16"},
    {"v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32", "v_cvt_pk_rtz_f16_f32"},
    {"v_add_u32", "v_add_nc_u32", "v_add_nc_u32"},
    {"v_sub_u32", "v_sub_nc_u32", "v_sub_nc_u32"},
    {"v_subrev_u32", "v_subrev_nc_u32", "v_subrev_nc_u32"},
    {"v_ffbh_u32", "v_clz_i32_u32", "v_clz_i32_u32"},
    {"v_ffbl_b32", "v_ctz_i32_b32", "v_ctz_i32_b32"},
    {"v_ffbh_i32", "v_cls_i32", "v_cls_i32"},
    {"v_add_u16", "v_add_nc_u16", "v_add_nc_u16"},
    {"v_mov_b64", "", ""},
    {"v_lshl_add_u64", "", ""},
};

static const char *name_on(const char *name, bool rdna4) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i][0], name))
            return names[i][rdna4 ? 2 : 1];
    return name;
}

/** Computes RDNA4's min_num and max_num, where a number beats every NaN, signalling ones too. */
static u64 r_min_num(u64 a, u64 b, u64) {
    const float x = f32(a), y = f32(b);
    return isnan(x) ? b : isnan(y) ? a : x < y ? a : y < x ? b : a | b;
}
static u64 r_max_num(u64 a, u64 b, u64) {
    const float x = f32(a), y = f32(b);
    return isnan(x) ? b : isnan(y) ? a : x > y ? a : y > x ? b : a & b;
}

static u64 r_min3_num(u64 a, u64 b, u64 c) {
    return r_min_num(r_min_num(a, b, 0), c, 0);
}
static u64 r_max3_num(u64 a, u64 b, u64 c) {
    return r_max_num(r_max_num(a, b, 0), c, 0);
}
static u64 r_med3_num(u64 a, u64 b, u64 c) {
    const bool nan = isnan(f32(a)) || isnan(f32(b)) || isnan(f32(c));
    return nan ? r_min3_num(a, b, c) : r_med3_f32(a, b, c);
}
static u64 r_min_num_f16(u64 a, u64 b, u64) {
    return of_f16((_Float16)lesser((float)f16(a), (float)f16(b)));
}
static u64 r_max_num_f16(u64 a, u64 b, u64) {
    return of_f16((_Float16)greater((float)f16(a), (float)f16(b)));
}

static u64 (*ref_on(const valu_case *c, bool rdna4))(u64, u64, u64) {
    static const struct {
        const char *name;
        u64 (*ref)(u64, u64, u64);
    } other[] = {
        {"v_min_f32", r_min_num},     {"v_max_f32", r_max_num},   {"v_min3_f32", r_min3_num},
        {"v_max3_f32", r_max3_num},   {"v_med3_f32", r_med3_num}, {"v_min_f16", r_min_num_f16},
        {"v_max_f16", r_max_num_f16},
    };
    for (size_t i = 0; rdna4 && i < sizeof other / sizeof *other; i++)
        if (!strcmp(c->name, other[i].name))
            return other[i].ref;
    return c->ref;
}

// ---- types

static char source_type(const valu_case *c, int i) {
    if (!strcmp(c->name, "v_alignbit_b32") && i == 2)
        return 'w'; // RDNA takes the shift from a half
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

/** Returns whether a register is a high half: in the form HIGH the destination and the first source
 *  are, the others are low halves. */
static bool is_high(const form *f, int source) {
    return f->kind == HIGH && source <= 0;
}

// ---- DPP controls of RDNA: the lane they read

typedef struct control {
    const char *text;
    bool bound, fetches_inactive;
} control;

static const control controls[] = {
    {"dpp8:[3,0,7,1,6,5,2,4]", true, false},
    {"dpp8:[3,0,7,1,6,5,2,4] fi:1", true, true},
    {"row_share:6 row_mask:0xf bank_mask:0xf", false, false},
    {"row_xmask:5 row_mask:0xf bank_mask:0xf bound_ctrl:1", true, false},
    {"row_ror:3 row_mask:0xf bank_mask:0xf fi:1", false, true},
};
enum { NUM_CONTROLS = sizeof controls / sizeof *controls };

static unsigned lane_read(int variant, unsigned lane) {
    static const unsigned eight[] = {3, 0, 7, 1, 6, 5, 2, 4};
    const unsigned row = lane / 16 * 16, pos = lane % 16;
    switch (variant) {
    case 0:
    case 1:
        return lane / 8 * 8 + eight[lane % 8];
    case 2:
        return row + 6;
    case 3:
        return row + (pos ^ 5);
    default:
        return row + (pos + 13) % 16;
    }
}

// ---- texts

static void append_register(char *text, char type, int reg, bool high) {
    char one[24];
    const char *half = !is_half(type) ? "" : high ? ".h" : ".l";
    snprintf(one, sizeof one, is_wide(type) ? "v[%d:%d]%.0s" : "v%d%.0d%s", reg,
             is_wide(type) ? reg + 1 : 0, half);
    strcat(text, one);
}

static void make_text(form *f) {
    const char *types = f->c->types;
    snprintf(f->text, sizeof f->text, "%s%s ", f->name,
             f->kind == DPP                             ? "_dpp"
             : f->kind == NEG_ABS && f->c->encoding < 3 ? "_e64"
                                                        : "");
    append_register(f->text, types[0], DST, is_high(f, -1));
    for (int i = 0; i < arity(f->c); i++) {
        const bool modified = f->kind == NEG_ABS && is_float(source_type(f->c, i));
        if (types[2 + i] == '+')
            continue;
        strcat(strcat(f->text, ", "), !modified ? "" : i == 1 ? "|" : "-");
        append_register(f->text, source_type(f->c, i), 2 + 2 * i, is_high(f, i));
        strcat(f->text, modified && i == 1 ? "|" : "");
    }
    strcat(strcat(f->text, " "), f->kind == DPP ? controls[f->variant].text : "");
    strcat(f->text, "\n");
}

static bool has_half(const valu_case *c) {
    return strpbrk(c->types, "hxwk") || !strcmp(c->name, "v_alignbit_b32");
}

static bool has_form(const valu_case *c, form_kind kind) {
    const bool vop3_only = is_half(c->types[0]) && strstr(c->name, "16") &&
                           strpbrk(c->types, "wk") && !strncmp(c->types, "w:w", 3);
    switch (kind) {
    case HIGH:
        return has_half(c);
    case NEG_ABS:
        return is_float(source_type(c, 0));
    case DPP:
        return c->encoding == 2 && !vop3_only && strcmp(c->name, "v_cvt_pkrtz_f16_f32") != 0;
    default:
        return true;
    }
}

static size_t make_forms(form *forms, bool rdna4) {
    size_t n = 0;
    for (size_t i = 0; i < sizeof valu_cases / sizeof *valu_cases; i++) {
        const valu_case *c = &valu_cases[i];
        const char *name = name_on(c->name, rdna4);
        for (form_kind kind = LOW; kind < NUM_FORMS && *name; kind++) {
            const int variants = kind == DPP ? NUM_CONTROLS : 1;
            for (int v = 0; has_form(c, kind) && v < variants; v++) {
                forms[n] = (form){c, name, ref_on(c, rdna4), kind, v, ""};
                make_text(&forms[n++]);
            }
        }
    }
    return n;
}

// ---- expected results

static u64 row_value(const sim_wave *w, int reg, char type, unsigned lane) {
    return w->v[reg][lane] | (is_wide(type) ? (u64)w->v[reg + 1][lane] << 32 : 0);
}

static u64 source_value(const form *f, const sim_wave *w, int i, unsigned lane) {
    const char type = source_type(f->c, i);
    const bool is_dst = f->c->types[2 + i] == '+';
    if (i == 0 && f->kind == DPP) {
        const unsigned from = lane_read(f->variant, lane);
        const bool read = controls[f->variant].fetches_inactive || (w->exec >> from & 1);
        u64 value = read ? row_value(w, 2, type, from) : 0;
        return is_half(type) ? value & 0xffff : value;
    }
    u64 value = row_value(w, is_dst ? DST : 2 + 2 * i, type, lane);
    if (is_half(type))
        value = is_high(f, is_dst ? -1 : i) ? value >> 16 : value & 0xffff;
    if (f->kind == NEG_ABS && is_float(type) && !is_dst) {
        u64 sign = type == 'd' ? UINT64_C(1) << 63 : is_half(type) ? 0x8000 : 0x80000000;
        value = i == 1 ? value & ~sign : value ^ sign;
    }
    return value;
}

static bool writes_lane(const form *f, const sim_wave *w, unsigned lane) {
    const control *c = &controls[f->variant];
    const bool valid = f->kind != DPP || c->bound || c->fetches_inactive ||
                       (w->exec >> lane_read(f->variant, lane) & 1);
    return (w->exec >> lane & 1) && valid;
}

static double number_of(char type, u64 bits) {
    return type == 'd' ? f64(bits) : is_half(type) ? (double)f16(bits) : (double)f32(bits);
}

/** Returns whether two values agree. NaNs are equal to each other whatever their payload. */
static bool agree(const form *f, u64 got, u64 want) {
    const char type = f->c->types[0];
    if (got == want || !is_float(type))
        return got == want;
    const double x = number_of(type, got), y = number_of(type, want);
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y);
    if (f->c->ulps < 0)
        return fabs(x - y) <= ldexp(1, f->c->ulps);
    return f->c->ulps && signbit(x) == signbit(y) &&
           llabs((int64_t)got - (int64_t)want) <= f->c->ulps;
}

static void check_lane(const form *f, const test_wave *t, const char *chip, unsigned lane) {
    const char type = f->c->types[0];
    u64 got = row_value(&t->wave, DST, type, lane), old = row_value(&t->before, DST, type, lane);
    u64 in[3] = {}, want = old;
    bool right = got == old;
    if (writes_lane(f, &t->before, lane)) {
        for (int i = 0; i < arity(f->c); i++)
            in[i] = source_value(f, &t->before, i, lane);
        want = f->ref(in[0], in[1], in[2]);
        if (is_half(type)) { // the other half keeps its value
            const unsigned shift = is_high(f, -1) ? 16 : 0;
            right = agree(f, got >> shift & 0xffff, want & 0xffff) &&
                    (got >> (16 - shift) & 0xffff) == (old >> (16 - shift) & 0xffff);
        } else {
            right = agree(f, got, want);
        }
    }
    if (!right) {
        fail_msg("%s: %s lane %u: got %llx, want %llx, was %llx; sources %llx %llx %llx", chip,
                 f->text, lane, (unsigned long long)got, (unsigned long long)want,
                 (unsigned long long)old, (unsigned long long)in[0], (unsigned long long)in[1],
                 (unsigned long long)in[2]);
    }
}

static void run_form(const form *f, test_wave *t, const char *chip, const sim_inst *inst,
                     sim_exec_fn exec) {
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(t, (uint32_t)random_exec(round));
        exec(&t->wave, inst);
        for (unsigned lane = 0; lane < SIM_LANES; lane++)
            check_lane(f, t, chip, lane);
        const size_t rows = is_wide(f->c->types[0]) ? 2 : 1;
        memcpy(t->wave.v[DST], t->before.v[DST], rows * sizeof t->wave.v[0]);
        if (memcmp(&t->wave, &t->before, sizeof t->wave))
            fail_msg("%s: %s: changed more than its destination", chip, f->text);
    }
}

static test_wave *make_wave32(const char *chip) {
    test_wave *t = make_wave(chip);
    t->kernel.wave32 = t->wave.wave32 = true;
    return t;
}

static void test_chip(const char *chip, bool rdna4) {
    size_t num_cases = sizeof valu_cases / sizeof *valu_cases, size, at = 0;
    form *forms = calloc(num_cases * (NUM_FORMS + NUM_CONTROLS), sizeof *forms);
    const size_t num_forms = make_forms(forms, rdna4);
    char *source = calloc(num_forms, sizeof forms->text);
    for (size_t i = 0, used = 0; i < num_forms; i++) {
        strcpy(source + used, forms[i].text);
        used += strlen(forms[i].text);
    }
    uint8_t *text = assemble(chip, source, &size);
    test_wave *t = make_wave32(chip);
    for (size_t i = 0; i < num_forms; i++) {
        sim_inst inst = decode_at(chip, text, size, at);
        run_form(&forms[i], t, chip, &inst, inst.exec);
        run_form(&forms[i], t, chip, &inst, sim_opcode_portable(inst.opcode)->exec);
        at += inst.bytes;
    }
    print_message("%s: %zu forms\n", chip, num_forms);
    free(t);
    free(text);
    free(source);
    free(forms);
}

static void test_gfx1151(void **) {
    test_chip("gfx1151", false);
}
static void test_gfx1201(void **) {
    test_chip("gfx1201", true);
}

// ---- dual instructions: both halves read before either writes

typedef struct dual {
    const char *text;
    int x_dst, y_dst;
    u64 (*x_ref)(u64, u64, u64), (*y_ref)(u64, u64, u64);
    int x_src[3], y_src[3];
} dual;

static u64 r_select(u64 a, u64 b, u64 c) {
    return c ? b : a;
}

enum { VCC = -1 };
static const dual duals[] = {
    {"v_dual_mov_b32 v20, v21 :: v_dual_mov_b32 v21, v20\n", 20, 21, r_mov, r_mov, {21}, {20}},
    {"v_dual_fmac_f32 v20, v3, v6 :: v_dual_fmac_f32 v21, v20, v5\n",
     20,
     21,
     r_fma_f32,
     r_fma_f32,
     {3, 6, 20},
     {20, 5, 21}},
    {"v_dual_add_f32 v20, v21, v6 :: v_dual_mul_f32 v21, v20, v5\n",
     20,
     21,
     r_add_f32,
     r_mul_f32,
     {21, 6},
     {20, 5}},
    {"v_dual_cndmask_b32 v20, v1, v2 :: v_dual_add_nc_u32 v21, v20, v3\n",
     20,
     21,
     r_select,
     r_add_u32,
     {1, 2, VCC},
     {20, 3}},
    {"v_dual_sub_f32 v20, v1, v2 :: v_dual_lshlrev_b32 v21, v6, v3\n",
     20,
     21,
     r_sub_f32,
     r_lshlrev_b32,
     {1, 2},
     {6, 3}},
};

static u64 dual_ref(const sim_wave *w, u64 (*ref)(u64, u64, u64), const int *src, unsigned lane) {
    u64 in[3];
    for (int i = 0; i < 3; i++)
        in[i] = src[i] == VCC ? w->vcc >> lane & 1 : w->v[src[i]][lane];
    return ref(in[0], in[1], in[2]);
}

static void check_dual(const dual *d, const test_wave *t, unsigned lane) {
    static const valu_case f32_case = {.name = "", .types = "f:f"};
    const form f = {.c = &f32_case};
    const bool on = t->before.exec >> lane & 1;
    u64 x = on ? dual_ref(&t->before, d->x_ref, d->x_src, lane) : t->before.v[d->x_dst][lane];
    u64 y = on ? dual_ref(&t->before, d->y_ref, d->y_src, lane) : t->before.v[d->y_dst][lane];
    if (!agree(&f, t->wave.v[d->x_dst][lane], x) || !agree(&f, t->wave.v[d->y_dst][lane], y)) {
        fail_msg("%s lane %u: got %x and %x, want %llx and %llx", d->text, lane,
                 t->wave.v[d->x_dst][lane], t->wave.v[d->y_dst][lane], (unsigned long long)x,
                 (unsigned long long)y);
    }
}

static void test_duals(void **) {
    static const char *const chips[] = {"gfx1151", "gfx1201"};
    for (size_t i = 0; i < 2 * sizeof duals / sizeof *duals; i++) {
        const dual *d = &duals[i / 2];
        size_t size;
        uint8_t *text = assemble(chips[i % 2], d->text, &size);
        test_wave *t = make_wave32(chips[i % 2]);
        sim_inst inst = decode_at(chips[i % 2], text, size, 0);
        for (unsigned round = 0; round < ROUNDS; round++) {
            randomise(t, (uint32_t)random_exec(round));
            inst.exec(&t->wave, &inst);
            for (unsigned lane = 0; lane < SIM_LANES; lane++)
                check_dual(d, t, lane);
        }
        sim_inst_deinit(&inst);
        free(text);
        free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gfx1151),
                                       cmocka_unit_test(test_gfx1201),
                                       cmocka_unit_test(test_duals)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
