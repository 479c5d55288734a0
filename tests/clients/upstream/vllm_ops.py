# SPDX-License-Identifier: Apache-2.0
"""vLLM's compiled ops by quern's functions, under vLLM's names and schemas, for tensors of the CPU: torch.ops._C, _C_cache_ops, _moe_C.

What an op of vLLM's can and quern cannot is a NotImplementedError of quern's, or of `_refuse`; the rest is reshaping. An op that is not
here has no quern function, and a test that calls it is listed with that reason in vllm.txt.
"""

import math

import torch

import quern

from .cases import QuernHasNot

_LIBRARIES = {}


def _op(library, schema):
    """Registers the function under schema's name, as vLLM's kernel of the CPU."""
    def register(function):
        if library not in _LIBRARIES:
            _LIBRARIES[library] = torch.library.Library(library, "FRAGMENT")
        of = _LIBRARIES[library]
        try:
            of.define(schema)
        except RuntimeError:  # vLLM's conftest or plug-in has the schema already
            pass
        of.impl(schema.split("(")[0], function, "CPU")
        return function
    return register


def _refuse(op, what, condition):
    if condition:
        raise QuernHasNot(f"{op}: quern has no {what}")


def _rows(x):
    return x.reshape(-1, x.shape[-1])


def _ones(x, weight):
    return torch.ones(x.shape[-1], dtype=x.dtype) if weight is None else weight


# ---- norms

@_op("_C", "rms_norm(Tensor! result, Tensor input, Tensor? weight, float epsilon) -> ()")
def _rms_norm(result, x, weight, epsilon):
    _refuse("rms_norm", "weights that differ by row", weight is not None and weight.dim() > 1)
    result.copy_(quern.rmsnorm(_rows(x), _ones(x, weight), epsilon).view(result.shape))


@_op("_C", "fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor? weight, float epsilon) -> ()")
def _fused_add_rms_norm(x, residual, weight, epsilon):
    quern.fused_add_rmsnorm(x.view(-1, x.shape[-1]), residual.view(-1, x.shape[-1]), _ones(x, weight), epsilon)


@_op("_C", "rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor weight, Tensor scale, float epsilon) -> ()")
def _rms_norm_static(result, x, weight, scale, epsilon):
    quern.rmsnorm_quant(_rows(x), weight, scale.view(1), epsilon, out=result.view(-1, x.shape[-1]))


@_op("_C", "fused_add_rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor! residual, Tensor weight, Tensor scale, "
           "float epsilon) -> ()")
def _fused_add_rms_norm_static(result, x, residual, weight, scale, epsilon):
    quern.fused_add_rmsnorm_quant(_rows(x), residual.view(-1, x.shape[-1]), weight, scale.view(1), epsilon,
                                  out=result.view(-1, x.shape[-1]))


@_op("_C", "rms_norm_dynamic_per_token_quant(Tensor! result, Tensor input, Tensor weight, Tensor! scale, float epsilon, "
           "Tensor? scale_ub, Tensor!? residual) -> ()")
def _rms_norm_dynamic(result, x, weight, scale, epsilon, scale_ub, residual):
    _refuse("rms_norm_dynamic_per_token_quant", "bound of scales", scale_ub is not None)
    _refuse("rms_norm_dynamic_per_token_quant", "int8 there", result.dtype == torch.int8)
    residual = None if residual is None else residual.view(-1, x.shape[-1])
    quern.rmsnorm_dynamic_quant(_rows(x), weight, epsilon, residual, scale_eps=1 / 512,  # vLLM's least scale is 1 / (512 max)
                                out=result.view(-1, x.shape[-1]), scale=scale.view(-1, 1))


@_op("_C", "rms_norm_per_block_quant(Tensor! result, Tensor input, Tensor weight, Tensor! scale, float epsilon, Tensor? scale_ub, "
           "Tensor!? residual, int group_size, bool is_scale_transposed) -> ()")
def _rms_norm_blocks(result, x, weight, scale, epsilon, scale_ub, residual, group_size, is_scale_transposed):
    op = "rms_norm_per_block_quant"
    _refuse(op, "bound of scales", scale_ub is not None)
    _refuse(op, "int8 there", result.dtype == torch.int8)
    _refuse(op, f"groups of {group_size}", group_size != 128)
    residual = None if residual is None else residual.view(-1, x.shape[-1])
    _, scales = quern.rmsnorm_dynamic_quant(_rows(x), weight, epsilon, residual, group=128, scale_eps=1 / 512,
                                            out=result.view(-1, x.shape[-1]))
    scale.copy_(scales.view(scale.shape))


# ---- gated activations

def _gated(name, function):
    @_op("_C", f"{name}(Tensor! result, Tensor input) -> ()")
    def call(result, x):
        function(_rows(x), out=result.view(-1, result.shape[-1]))


for _name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"):
    _gated(_name, getattr(quern, _name))


@_op("_C", "silu_and_mul_with_clamp(Tensor! result, Tensor input, float limit, float alpha=1.0, float beta=0.0) -> ()")
def _clamped(result, x, limit, alpha=1.0, beta=0.0):
    _refuse("silu_and_mul_with_clamp", f"beta {beta} with alpha {alpha}", beta != 1 and (alpha, beta) != (1, 0))
    quern.moe_activate(_rows(x), *(("swiglu", limit, alpha) if beta else ("silu", limit)), out=result.view(-1, result.shape[-1]))


@_op("_C", "swigluoai_and_mul(Tensor! result, Tensor input, float alpha=1.702, float limit=7.0) -> ()")
def _oai(result, x, alpha=1.702, limit=7.0):
    quern.moe_activate(_rows(x), "swiglu", limit, alpha, interleaved=True, out=result.view(-1, result.shape[-1]))


@_op("_C", "silu_and_mul_quant(Tensor! result, Tensor input, Tensor scale) -> ()")
def _silu_static(result, x, scale):
    quern.act_and_mul_quant(x, scale.view(1), out=result)


@_op("_C", "silu_and_mul_per_block_quant(Tensor! out, Tensor input, Tensor! scales, int group_size, Tensor? scale_ub=None, "
           "bool is_scale_transposed=False) -> ()")
def _silu_blocks(out, x, scales, group_size, scale_ub=None, is_scale_transposed=False):
    op = "silu_and_mul_per_block_quant"
    _refuse(op, "bound of scales", scale_ub is not None)
    _refuse(op, "int8 there", out.dtype == torch.int8)
    _refuse(op, f"groups of {group_size}", group_size != 128)
    _, scale = quern.act_and_mul_dynamic_quant(x, group=128, scale_eps=1 / 512, out=out)
    scales.copy_(scale)


# ---- quantisation

def _quantise(name, x, result, group, scale, eps):
    _, got = quern.quantize_groups(_rows(x), group, eps=eps, q=result.view(-1, x.shape[-1]))
    scale.copy_(got.view(scale.shape))


@_op("_C", "static_scaled_fp8_quant(Tensor! result, Tensor input, Tensor scale, int[]? group_shape=None) -> ()")
def _static_fp8(result, x, scale, group_shape=None):
    _refuse("static_scaled_fp8_quant", f"scale of shape {list(scale.shape)}", scale.numel() != 1)
    quern.quantize_static(x, scale.view(1), q=result)


@_op("_C", "dynamic_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale) -> ()")
def _tensor_fp8(result, x, scale):
    quern.quantize_tensor(x, q=result, scale=scale.view(1))


@_op("_C", "dynamic_per_token_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale, Tensor? scale_ub) -> ()")
def _token_fp8(result, x, scale, scale_ub):
    _refuse("dynamic_per_token_scaled_fp8_quant", "bound of scales", scale_ub is not None)
    _quantise("dynamic_per_token_scaled_fp8_quant", x, result, 0, scale, 1 / 512)


@_op("_C", "static_scaled_int8_quant(Tensor! result, Tensor input, Tensor scale, Tensor? azp) -> ()")
def _static_int8(result, x, scale, azp):
    _refuse("static_scaled_int8_quant", "zero point", azp is not None)
    quern.quantize_static(x, scale.view(1), q=result)


@_op("_C", "dynamic_scaled_int8_quant(Tensor! result, Tensor input, Tensor! scale, Tensor!? azp) -> ()")
def _token_int8(result, x, scale, azp):
    _refuse("dynamic_scaled_int8_quant", "zero point", azp is not None)
    _quantise("dynamic_scaled_int8_quant", x, result, 0, scale, 1e-10)


@_op("_C", "per_token_group_fp8_quant(Tensor input, Tensor! output_q, Tensor! output_s, int group_size, float eps, float fp8_min, "
           "float fp8_max, bool scale_ue8m0, bool dummy_is_scale_transposed, bool dummy_is_tma_aligned) -> ()")
def _groups_fp8(x, q, scale, group_size, eps, least, most, scale_ue8m0, _, __):
    op = "per_token_group_fp8_quant"
    _refuse(op, f"largest value {most} of {q.dtype}", most != torch.finfo(q.dtype).max)
    _, got = quern.quantize_groups(_rows(x), group_size, eps=eps, round_scale=scale_ue8m0, q=q.view(-1, x.shape[-1]))
    scale.copy_(got.view(scale.shape))


@_op("_C", "per_token_group_quant_int8(Tensor input, Tensor! output_q, Tensor! output_s, int group_size, float eps, float int8_min, "
           "float int8_max) -> ()")
def _groups_int8(x, q, scale, group_size, eps, _, __):
    _quantise("per_token_group_quant_int8", x, q, group_size, scale, eps)


# ---- rotary embeddings

def _heads(x, tokens, head_size):
    return x.view(tokens, -1, head_size)


@_op("_C", "rotary_embedding(Tensor positions, Tensor! query, Tensor!? key, int head_size, Tensor cos_sin_cache, bool is_neox, "
           "int rope_dim_offset=0, bool inverse=False) -> ()")
def _rotary(positions, query, key, head_size, cache, is_neox, rope_dim_offset=0, inverse=False):
    positions, width = positions.flatten().to(torch.int32), cache.shape[1]
    q, k = (None if x is None else _heads(x, len(positions), head_size)[..., rope_dim_offset:rope_dim_offset + width]
            for x in (query, key))
    cosines, sines = cache.float().chunk(2, -1)
    cache = torch.cat((cosines, -sines if inverse else sines), -1)
    quern.apply_rope_with_cos_sin_cache(q, k, cache, positions, not is_neox, q_out=q, k_out=k)


@_op("_C", "fused_qk_norm_rope(Tensor! qkv, int num_heads_q, int num_heads_k, int num_heads_v, int head_dim, float eps, "
           "Tensor q_weight, Tensor k_weight, Tensor cos_sin_cache, bool is_neox, Tensor position_ids, "
           "int forced_token_heads_per_warp=-1) -> ()")
def _fused_qk_norm_rope(qkv, heads_q, heads_k, heads_v, head_dim, eps, q_weight, k_weight, cache, is_neox, positions, _=-1):
    heads = qkv.view(len(qkv), -1, head_dim)
    q, k = heads[:, :heads_q], heads[:, heads_q:heads_q + heads_k]
    cos, sin = cache.float()[positions.flatten().long()].chunk(2, -1)
    quern.qk_rmsnorm_rope(q, k, q_weight, k_weight, cos.contiguous(), sin.contiguous(), cache.shape[1], eps, not is_neox, q_out=q, k_out=k)


# ---- caches

_KINDS = {"fp8": torch.float8_e4m3fnuz, "fp8_e4m3": torch.float8_e4m3fnuz, "fp8_e5m2": torch.float8_e5m2}


def _as_kind(op, cache, kind):
    """Returns a cache of vLLM's bytes as the dtype that kind names."""
    if kind in ("auto", "float16", "bfloat16"):
        return cache
    _refuse(op, f"cache of kind {kind}", kind not in _KINDS)
    return cache.view(_KINDS[kind])


def _append(op, key, value, k_cache, v_cache, slots, kind, k_scale, v_scale):
    caches = [_as_kind(op, cache, kind) for cache in (k_cache, v_cache)]
    scaled = caches[0].element_size() == 1
    scales = [scale.view(-1) if scaled else None for scale in (k_scale, v_scale)]
    quern.reshape_and_cache(*caches, key[:len(slots)], value[:len(slots)], slots.to(torch.int32), *scales)


@_op("_C_cache_ops", "reshape_and_cache_flash(Tensor key, Tensor value, Tensor! key_cache, Tensor! value_cache, Tensor slot_mapping, "
                     "str kv_cache_dtype, Tensor k_scale, Tensor v_scale) -> ()")
def _reshape_and_cache_flash(*arguments):
    _append("reshape_and_cache_flash", *arguments)


def _groups(cache):
    """Returns the parts of a cache of kind fp8_ds_mla: codes, their scales, rotated keys."""
    codes, scales, rope = cache.view(torch.uint8).split([512, 16, 128], dim=-1)
    return codes.view(_KINDS["fp8"]), scales.view(torch.float32), rope.view(torch.bfloat16)


@_op("_C_cache_ops", "concat_and_cache_mla(Tensor kv_c, Tensor k_pe, Tensor! kv_cache, Tensor slot_mapping, str kv_cache_dtype, "
                     "Tensor scale, bool skip_scale=False) -> ()")
def _concat_and_cache_mla(kv_c, k_pe, cache, slots, kind, scale, skip_scale=False):
    if kind == "fp8_ds_mla":
        quern.quantize_and_cache_mla(*_groups(cache), kv_c[:len(slots)], k_pe[:len(slots)], slots.to(torch.int32))
        return
    cache = _as_kind("concat_and_cache_mla", cache, kind)
    quern.concat_and_cache_mla(cache, kv_c[:len(slots)], k_pe[:len(slots)], slots.to(torch.int32),
                               scale.view(1) if cache.element_size() == 1 else None)


@_op("_C_cache_ops", "gather_and_maybe_dequant_cache(Tensor src_cache, Tensor! dst, Tensor block_table, Tensor cu_seq_lens, "
                     "Tensor token_to_seq, int num_tokens, str kv_cache_dtype, Tensor scale, Tensor? seq_starts) -> ()")
def _gather(cache, out, block_table, cu_seq_lens, token_to_seq, num_tokens, kind, scale, seq_starts):
    cache, page = _as_kind("gather_and_maybe_dequant_cache", cache, kind), cache.shape[1]
    sequence = token_to_seq[:num_tokens].long()
    position = torch.arange(num_tokens) - cu_seq_lens.long()[sequence]
    position += 0 if seq_starts is None else seq_starts.long()[sequence]
    slots = block_table.long()[sequence, position // page] * page + position % page
    quern.gather_paged_mla_kv_cache(cache, slots.to(torch.int32), scale.view(1) if cache.element_size() == 1 else None,
                                    out=out[:num_tokens])


@_op("_C_cache_ops", "cp_gather_and_upconvert_fp8_kv_cache(Tensor src_cache, Tensor! dst, Tensor block_table, Tensor workspace_starts, "
                     "int batch_size, Tensor? seq_starts=None, Tensor? host_cache=None, Tensor? host_row_ids=None, "
                     "Tensor? device_row_ids=None) -> ()")
def _cp_gather_and_upconvert(cache, out, block_table, starts, batch_size, seq_starts=None, host_cache=None, *_row_ids):
    _refuse("cp_gather_and_upconvert_fp8_kv_cache", "rows in the host's memory", host_cache is not None)
    ends = torch.cat([starts[1:batch_size].long(), torch.tensor([len(out)])])
    sequence = torch.repeat_interleave(torch.arange(batch_size), ends - starts[:batch_size].long())
    position = torch.arange(len(out)) - starts.long()[sequence] + (0 if seq_starts is None else seq_starts.long()[sequence])
    codes, scales, rope = _groups(cache)
    page = codes.shape[1]
    slots = (block_table.long()[sequence, position // page] * page + position % page).to(torch.int32)
    quern.gather_paged_mla_kv_cache(codes, slots, scales=scales, out=out[:, :512])
    quern.gather_paged_mla_kv_cache(rope, slots, out=out[:, 512:])


@_op("_C_cache_ops", "cp_gather_cache(Tensor src_cache, Tensor! dst, Tensor block_table, Tensor cu_seq_lens, int batch_size, "
                     "Tensor? seq_starts) -> ()")
def _cp_gather(cache, out, block_table, cu_seq_lens, batch_size, seq_starts):
    token_to_seq = torch.repeat_interleave(torch.arange(batch_size), cu_seq_lens.diff()[:batch_size].long())
    _gather(cache, out, block_table, cu_seq_lens, token_to_seq, len(token_to_seq), "auto", None, seq_starts)


# ---- experts

def _route(name, weights, ids, token_expert_indices, logits, renormalise, bias, scaling=1.0, scoring="softmax", padding=None):
    _refuse(name, "mask of padding", padding is not None)
    got, chosen = quern.moe_route(logits, ids.shape[1], bias, scoring, renormalize=renormalise, scaling=scaling)
    weights.copy_(got)
    ids.copy_(chosen)
    token_expert_indices.copy_((torch.arange(ids.shape[1])[:, None] * len(ids) + torch.arange(len(ids))).T)


@_op("_moe_C", "topk_softmax(Tensor! topk_weights, Tensor! topk_indices, Tensor! token_expert_indices, Tensor gating_output, "
               "bool renormalize, Tensor? bias, Tensor? is_padding) -> ()")
def _topk_softmax(weights, ids, indices, logits, renormalise, bias, padding):
    _route("topk_softmax", weights, ids, indices, logits, renormalise, bias, padding=padding)


@_op("_moe_C", "topk_sigmoid(Tensor! topk_weights, Tensor! topk_indices, Tensor! token_expert_indices, Tensor gating_output, "
               "bool renormalize, Tensor? bias, float routed_scaling_factor, Tensor? is_padding) -> ()")
def _topk_sigmoid(weights, ids, indices, logits, renormalise, bias, scaling, padding):
    _route("topk_sigmoid", weights, ids, indices, logits, renormalise, bias, scaling, "sigmoid", padding)


@_op("_moe_C", "grouped_topk(Tensor scores, int n_group, int topk_group, int topk, bool renormalize, float routed_scaling_factor, "
               "Tensor bias, int scoring_func) -> (Tensor, Tensor)")
def _grouped_topk(scores, groups, topk_groups, topk, renormalise, scaling, bias, scoring):
    _refuse("grouped_topk", "scores without a scoring function", scoring != 1)
    return quern.moe_route(scores, topk, bias.float(), "sigmoid", groups, topk_groups, renormalise, scaling)


@_op("_moe_C", "moe_sum(Tensor input, Tensor! output, Tensor? topk_ids=None, Tensor? expert_map=None) -> ()")
def _moe_sum(x, output, topk_ids=None, expert_map=None):
    _refuse("moe_sum", "choice by an expert map", expert_map is not None)
    tokens, top_k, n = x.shape
    pairs = torch.arange(tokens * top_k, dtype=torch.int32).view(tokens, top_k)
    if topk_ids is not None:
        pairs = torch.where(topk_ids < 0, -1, pairs)
    quern.moe_sum(x.reshape(-1, n), row_of_pair=pairs, out=output)


@_op("_moe_C", "moe_align_block_size(Tensor topk_ids, int num_experts, int block_size, Tensor! sorted_token_ids, "
               "Tensor! experts_ids, Tensor! num_tokens_post_pad, Tensor? maybe_expert_map, Tensor(a!)? scatter_idx=None) -> ()")
def _align(ids, experts, block, sorted_ids, expert_ids, num_padded, expert_map, scatter=None):
    _refuse("moe_align_block_size", "scattering", scatter is not None)
    given = ids.view(-1, 1) if ids.dim() < 2 else ids
    _, _, pair_of_row, _, expert_of_block, num_rows = quern.moe_sort(given.to(torch.int32), experts, block, expert_map)
    rows = int(num_rows)
    sorted_ids.fill_(given.numel())
    sorted_ids[:rows] = torch.where(pair_of_row[:rows] < 0, given.numel(), pair_of_row[:rows])
    expert_ids.fill_(-1)
    expert_ids[:rows // block] = expert_of_block[:rows // block]
    num_padded.fill_(rows)


# ---- sampling

@_op("_C", "apply_repetition_penalties_(Tensor! logits, Tensor prompt_mask, Tensor output_mask, Tensor repetition_penalties) -> ()")
def _penalties(logits, prompt_mask, output_mask, penalties):
    quern.apply_penalties(logits, output_mask.to(torch.int32), prompt_mask, penalties.float(), out=logits)


# ---- attention

@_op("_C", "merge_attn_states(Tensor! output, Tensor!? output_lse, Tensor prefix_output, Tensor prefix_lse, Tensor suffix_output, "
           "Tensor suffix_lse, int? prefill_tokens_with_context, Tensor? output_scale=None) -> ()")
def _merge(output, output_lse, v_a, s_a, v_b, s_b, tokens, output_scale=None):
    _refuse("merge_attn_states", "FP8 result", output_scale is not None)
    _refuse("merge_attn_states", "part of the tokens", tokens is not None and tokens != len(output))
    v, s = quern.merge_state(v_a, s_a.T.contiguous() / math.log(2), v_b, s_b.T.contiguous() / math.log(2))
    output.copy_(v)
    if output_lse is not None:
        output_lse.copy_(s.T * math.log(2))


# ---- ops that quern has no function for: a test that calls one is counted as refused

_ABSENT = {
    "_C": ["gelu_fast(Tensor! out, Tensor input) -> ()", "gelu_new(Tensor! out, Tensor input) -> ()",
           "gelu_quick(Tensor! out, Tensor input) -> ()", "fatrelu_and_mul(Tensor! out, Tensor input, float threshold) -> ()",
           "mul_and_silu(Tensor! out, Tensor input) -> ()", "relu_squared(Tensor! out, Tensor input) -> ()",
           "per_token_group_fp8_quant_packed(Tensor input, Tensor! output_q, Tensor! output_s_packed, int group_size, float eps, "
           "float fp8_min, float fp8_max) -> ()",
           "masked_moe_activation(Tensor! out, Tensor input, Tensor valid_token_counts, str activation, float clamp_limit=0.0, "
           "float alpha=1.0, float beta=0.0, float situ_beta=1.0, float situ_linear_beta=-1.0) -> ()"],
    "_C_cache_ops": ["convert_fp8(Tensor! dst_cache, Tensor src_cache, float scale, str kv_cache_dtype) -> ()",
                     "swap_blocks(Tensor src, Tensor! dst, int block_size_in_bytes, Tensor block_mapping) -> ()",
                     "reshape_and_cache(Tensor key, Tensor value, Tensor! key_cache, Tensor! value_cache, Tensor slot_mapping, "
                     "str kv_cache_dtype, Tensor k_scale, Tensor v_scale, bool interleaved_v=False) -> ()"],
    "_moe_C": ["batched_moe_align_block_size(int max_tokens_per_batch, int block_size, Tensor expert_num_tokens, "
               "Tensor! sorted_token_ids, Tensor! experts_ids, Tensor! num_tokens_post_pad) -> ()"],
}


def _absent(library, schema):
    name = schema.split("(")[0]

    @_op(library, schema)
    def call(*_):
        _refuse(name, "such function", True)


for _library, _schemas in _ABSENT.items():
    for _schema in _schemas:
        _absent(_library, _schema)
