// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: sampling on the CPU: softmax, tokens, filters, penalties, speculative sampling.
// The bytes choose a function, make a small valid problem for it, then change what they like of it:
// any field of any tensor, any number, the entries of vectors, indices and drafted tokens.
//
// Fuzzes: libquern
#include "fuzz_tensors.h"

#include <quern/quern.h>

/** The tensor of the array t that the call is given. */
#define T(i) given(&t[i])
#define CALL(name, ...) check_call(#name, qn_##name(stream, __VA_ARGS__), t, COUNT)

static int64_t take_vocab(input *in) {
    return take(in, 4) == 3 ? 256 * (1 + take(in, 20)) + take(in, 40) : take_size(in);
}

/** Takes one of the numbers that a parameter accepts, or now and then any number. */
static float take_near(input *in, const float right[4]) {
    return take(in, 16) == 15 ? take_float(in) : right[take(in, 4)];
}

static const float temperatures[] = {1, 0.7f, 2, 0x1p-100f}, shares[] = {1, 0.5f, 0.9f, 1e-6f};
static const float least_shares[] = {0, 0.1f, 1, 1e-6f}, strengths[] = {1, 1.2f, 0.3f, 3e38f};

/** Writes a vector's numbers. */
static void put_numbers(tensor *x, const float right[4], input *in) {
    const float some[] = {take_near(in, right), take_near(in, right), take_near(in, right)};
    for (int64_t i = 0; x->is_there && x->home == x && i < x->shape[0] && i < MAX_ELEMENTS; i++)
        put(x, i, &some[i % 3], sizeof *some);
}

/** Writes a vector's integers: mostly `low` to below `low` + `count`. */
static void put_integers(tensor *x, int64_t low, int64_t count, input *in) {
    const int64_t at = take(in, 256);
    const bool is_wild = take(in, 16) == 15;
    for (int64_t i = 0; x->is_there && x->home == x && i < x->shape[0] && i < MAX_ELEMENTS; i++)
        put_i32(x, i, is_wild ? take_wild(in) : low + (count > 0 ? (at + 7 * i) % count : 0));
}

static void set_rows(tensor *x, int64_t rows, int64_t vocab, input *in) {
    SET(x, take_float_dtype(in), rows, vocab);
}

/** Makes most logits finite, and most probabilities from 0 to below 2. */
static void calm_most(tensor *x, bool is_probs, input *in) {
    if (take(in, 8) != 7)
        calm(x, is_probs);
}

static void fuzz_softmax(input *in) {
    enum { PROBS, LOGITS, TEMPERATURES, COUNT };
    tensor t[COUNT] = {};
    const int64_t rows = take(in, 5), vocab = take_vocab(in);
    SET_WRITTEN(&t[PROBS], f32, rows, vocab);
    set_rows(&t[LOGITS], rows, vocab, in);
    SET(&t[TEMPERATURES], f32, rows);
    t[TEMPERATURES].is_there = take_bool(in);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    calm_most(&t[LOGITS], false, in);
    put_numbers(&t[TEMPERATURES], temperatures, in);
    CALL(softmax, T(PROBS), T(LOGITS), T(TEMPERATURES), take_near(in, temperatures));
    free_tensors(t, COUNT);
}

static void fuzz_greedy(input *in) {
    enum { OUT, VALID, LOGITS, COUNT };
    tensor t[COUNT] = {};
    const int64_t rows = take(in, 5), vocab = take_vocab(in);
    SET_WRITTEN(&t[OUT], i32, rows);
    SET_WRITTEN(&t[VALID], take_bool(in) ? u8 : boolean, rows);
    set_rows(&t[LOGITS], rows, vocab, in);
    t[VALID].is_there = take_bool(in);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    calm_most(&t[LOGITS], false, in);
    CALL(sample_greedy, T(OUT), T(VALID), T(LOGITS));
    free_tensors(t, COUNT);
}

static void fuzz_sample(input *in) {
    enum { OUT, VALID, X, INDICES, TEMPERATURES, TOP_KS, TOP_PS, MIN_PS, SEEDS, OFFSETS, OTHER };
    enum { COUNT = OTHER + 1 };
    tensor t[COUNT] = {};
    const int64_t rows = take(in, 5), vocab = take_vocab(in), batch = take(in, 6);
    const bool is_probs = take_bool(in), has_indices = take_bool(in);
    const int64_t results = has_indices ? batch : rows;
    SET_WRITTEN(&t[OUT], i32, results);
    SET_WRITTEN(&t[VALID], take_bool(in) ? u8 : boolean, results);
    set_rows(&t[X], rows, vocab, in);
    SET(&t[INDICES], i32, results);
    for (int i = TEMPERATURES; i <= MIN_PS; i++)
        SET(&t[i], i == TOP_KS ? i32 : f32, results);
    SET(&t[SEEDS], i64, take_bool(in) ? results : 1);
    SET(&t[OFFSETS], i64, take_bool(in) ? results : 1);
    set_rows(&t[OTHER], rows, vocab, in);
    for (int i = VALID; i <= OFFSETS; i++)
        t[i].is_there = i == X || (i == INDICES ? has_indices : take_bool(in));
    t[TEMPERATURES].is_there &= !is_probs, t[OTHER].is_there = false;
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    calm_most(&t[X], is_probs, in);
    put_integers(&t[INDICES], 0, rows, in);
    put_numbers(&t[TEMPERATURES], temperatures, in);
    put_integers(&t[TOP_KS], 1, vocab + 1, in);
    put_numbers(&t[TOP_PS], shares, in);
    put_numbers(&t[MIN_PS], least_shares, in);
    const int64_t top_k = take_bool(in) ? take(in, 256) : 0;
    const qn_sample_args args = {.struct_size = (size_t)take_mostly(in, sizeof args),
                                 .out = T(OUT),
                                 .valid = T(VALID),
                                 .logits = is_probs ? T(OTHER) : T(X),
                                 .probs = is_probs ? T(X) : T(OTHER),
                                 .indices = T(INDICES),
                                 .temperatures = T(TEMPERATURES),
                                 .top_ks = T(TOP_KS),
                                 .top_ps = T(TOP_PS),
                                 .min_ps = T(MIN_PS),
                                 .temperature = is_probs ? 0 : take_near(in, temperatures),
                                 .top_k = take_mostly(in, top_k),
                                 .top_p = take_bool(in) ? take_near(in, shares) : 0,
                                 .min_p = take_near(in, least_shares),
                                 .order = (qn_filter_order)take_mostly(in, take(in, 2)),
                                 .seeds = T(SEEDS),
                                 .offsets = T(OFFSETS),
                                 .seed = take_wild(in),
                                 .offset = take_wild(in)};
    CALL(sample, take(in, 64) == 63 ? nullptr : &args);
    free_tensors(t, COUNT);
}

/** The functions that keep a part of each row. */
static void fuzz_filters(input *in) {
    enum { OUT, X, VECTOR, COUNT };
    tensor t[COUNT] = {};
    const int64_t rows = take(in, 5), vocab = take_vocab(in);
    const DLDataType dtype = take_float_dtype(in);
    const uint32_t which = take(in, 3);
    SET_WRITTEN(&t[OUT], dtype, rows, vocab);
    SET(&t[X], dtype, rows, vocab);
    SET(&t[VECTOR], which == 2 ? f32 : i32, rows);
    t[VECTOR].is_there = take_bool(in);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    calm_most(&t[X], which > 0, in);
    if (which == 2)
        put_numbers(&t[VECTOR], shares, in);
    else
        put_integers(&t[VECTOR], 1, vocab + 1, in);
    const int64_t top_k = take_mostly(in, 1 + take(in, 255));
    if (which == 0)
        CALL(top_k_mask_logits, T(OUT), T(X), T(VECTOR), top_k);
    else if (which == 1)
        CALL(top_k_renorm_probs, T(OUT), T(X), T(VECTOR), top_k);
    else
        CALL(top_p_renorm_probs, T(OUT), T(X), T(VECTOR), take_near(in, shares));
    free_tensors(t, COUNT);
}

static void fuzz_penalties(input *in) {
    enum { OUT, LOGITS, COUNTS, IN_PROMPT, REPETITIONS, PRESENCES, FREQUENCIES, COUNT };
    tensor t[COUNT] = {};
    const int64_t rows = take(in, 5), vocab = take_vocab(in);
    const DLDataType dtype = take_float_dtype(in);
    SET_WRITTEN(&t[OUT], dtype, rows, vocab);
    SET(&t[LOGITS], dtype, rows, vocab);
    SET(&t[COUNTS], i32, rows, vocab);
    SET(&t[IN_PROMPT], take_bool(in) ? u8 : boolean, rows, vocab);
    for (int i = REPETITIONS; i <= FREQUENCIES; i++)
        SET(&t[i], f32, rows);
    for (int i = COUNTS; i <= FREQUENCIES; i++)
        t[i].is_there = take_bool(in);
    t[OUT].source = &t[LOGITS];
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    calm_most(&t[LOGITS], false, in);
    for (int i = REPETITIONS; i <= FREQUENCIES; i++)
        put_numbers(&t[i], strengths, in);
    const qn_penalties_args args = {.struct_size = (size_t)take_mostly(in, sizeof args),
                                    .out = T(OUT),
                                    .logits = T(LOGITS),
                                    .counts = T(COUNTS),
                                    .in_prompt = T(IN_PROMPT),
                                    .repetitions = T(REPETITIONS),
                                    .presences = T(PRESENCES),
                                    .frequencies = T(FREQUENCIES),
                                    .repetition = take_near(in, strengths),
                                    .presence = take_near(in, strengths),
                                    .frequency = take_near(in, strengths)};
    CALL(apply_penalties, take(in, 64) == 63 ? nullptr : &args);
    free_tensors(t, COUNT);
}

/** Writes drafted tokens, whose tensor is contiguous where the call accepts it. */
static void put_drafts(tensor *x, int64_t vocab, input *in) {
    const int64_t at = take(in, 256);
    const bool is_wild = take(in, 16) == 15;
    for (int64_t i = 0; x->home == x && i < x->bytes / 4; i++) {
        const int32_t id = (int32_t)(is_wild ? take_wild(in) : (at + 7 * i) % vocab);
        memcpy(x->memory + 4 * i, &id, sizeof id);
        memcpy(x->copy + 4 * i, &id, sizeof id);
    }
}

static void fuzz_chain(input *in) {
    enum { OUT, ACCEPTED, SENT, DRAFT, IDS, TARGET, SEEDS, OFFSETS, COUNT };
    tensor t[COUNT] = {};
    const int64_t batch = take(in, 4), n = take(in, 4), vocab = take_size(in);
    SET_WRITTEN(&t[OUT], i32, batch, n + 1);
    SET_WRITTEN(&t[ACCEPTED], i32, batch);
    SET_WRITTEN(&t[SENT], i32, batch);
    SET(&t[DRAFT], f32, batch, n, vocab);
    SET(&t[IDS], i32, batch, n);
    SET(&t[TARGET], f32, batch, n + 1, vocab);
    SET(&t[SEEDS], i64, take_bool(in) ? batch : 1);
    SET(&t[OFFSETS], i64, take_bool(in) ? batch : 1);
    t[ACCEPTED].is_there = take_bool(in), t[SENT].is_there = take_bool(in);
    t[SEEDS].is_there = take_bool(in), t[OFFSETS].is_there = take_bool(in);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    calm_most(&t[DRAFT], true, in);
    calm_most(&t[TARGET], true, in);
    put_drafts(&t[IDS], vocab, in);
    const qn_chain_speculative_sampling_args args = {.struct_size =
                                                         (size_t)take_mostly(in, sizeof args),
                                                     .out = T(OUT),
                                                     .accepted = T(ACCEPTED),
                                                     .sent = T(SENT),
                                                     .draft_probs = T(DRAFT),
                                                     .draft_ids = T(IDS),
                                                     .target_probs = T(TARGET),
                                                     .seeds = T(SEEDS),
                                                     .offsets = T(OFFSETS),
                                                     .seed = take_wild(in),
                                                     .offset = take_wild(in)};
    CALL(chain_speculative_sampling, take(in, 64) == 63 ? nullptr : &args);
    free_tensors(t, COUNT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const functions[])(input *) = {fuzz_softmax, fuzz_greedy,    fuzz_sample,
                                                 fuzz_filters, fuzz_penalties, fuzz_chain};
    input in = {data, data + size};
    take_cpu(&in);
    TAKE_ONE(&in, functions)(&in);
    return 0;
}
