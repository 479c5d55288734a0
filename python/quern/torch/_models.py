# SPDX-License-Identifier: Apache-2.0
"""quern's attention as one of the implementations that transformers and diffusers choose by name.

enable() reaches these libraries as well where they call scaled_dot_product_attention. The implementations here also
have what this function lacks: soft caps, sinks and windows.
"""

from ._sdpa import _staging, attend, known_device

_NAME = "quern"


def _refuse(op, **arguments):
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"{op}: {name} is not supported")


def _transformers_attention(device, allow_slow=False):
    op = "quern attention of transformers"

    def forward(module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None, sliding_window=None,
                softcap=None, s_aux=None, position_bias=None, cache=None, output_attentions=None, **kwargs):
        """Takes query [batch, heads, n, head_dim] and returns (result [batch, n, heads, head_dim], None), as
        transformers wants."""
        _refuse(op, position_bias=position_bias, cache=cache, output_attentions=output_attentions)
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        n, kv_len = query.shape[2], key.shape[2]
        is_causal = bool(is_causal and attention_mask is None and n > 1)
        window = -1
        if sliding_window is not None and attention_mask is None:  # a mask includes the window
            # Several queries start a sequence, so the window counts from the top left; one query stands after all keys.
            window = sliding_window - 1
            if n == 1 and kv_len > sliding_window:
                key, value, window = key[:, :, -sliding_window:], value[:, :, -sliding_window:], -1
        sinks = None if s_aux is None else s_aux.float().contiguous()
        out = attend(query, key, value, attention_mask, dropout, is_causal, scaling, query.shape[1] != key.shape[1],
                     _staging(device), sinks, window if n > 1 else -1, softcap or 0.0, allow_slow)
        return out.transpose(1, 2).contiguous(), None

    return forward


def register_transformers(device=None, allow_slow=False):
    """Registers "quern" with transformers: model = ...from_pretrained(..., attn_implementation="quern"), or
    model.set_attn_implementation("quern"). Soft caps, sliding windows and sinks act.

    device  "sim:gfx942" and the like: tensors on the CPU are copied there for each call; None: where the tensors are
    allow_slow  as in enable(). Else PyTorch computes slow calls; a call with something that PyTorch's function lacks is
    an error. Gradients are computed as under enable(). A call with position_bias,
    output_attentions or transformers' own paged cache NotImplementedError. Raises ImportError without transformers 4.48
    or later, ValueError (device).
    """
    device = known_device("register_transformers", device)
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    AttentionInterface.register(_NAME, _transformers_attention(device, allow_slow))
    AttentionMaskInterface.register(_NAME, sdpa_mask)


def _diffusers_attention(device, allow_slow=False):
    op = "quern attention of diffusers"

    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False,
                  return_lse=False, _parallel_config=None):
        """Takes query [batch, n, heads, head_dim] and returns a result of that shape."""
        _refuse(op, return_lse=return_lse, _parallel_config=_parallel_config)
        if attn_mask is not None and is_causal:
            raise ValueError(f"{op}: attn_mask and is_causal are both given; accepted: one of them")
        if attn_mask is not None and attn_mask.shape == (query.shape[0], key.shape[1]):
            attn_mask = attn_mask[:, None, None]  # says which keys each request has
        query, key, value = (t.transpose(1, 2) for t in (query, key, value))
        out = attend(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, _staging(device),
                     allow_slow=allow_slow)
        return out.transpose(1, 2)

    return attention


def _add_member(names):
    """Adds one more name to the enumeration of diffusers' implementations."""
    if _NAME not in names._value2member_map_:
        member = str.__new__(names, _NAME)
        member._name_, member._value_ = _NAME.upper(), _NAME
        names._member_map_[_NAME.upper()] = names._value2member_map_[_NAME] = member
        names._member_names_.append(_NAME.upper())
    return names(_NAME)


def register_diffusers(device=None, allow_slow=False):
    """Registers "quern" with diffusers: model.set_attention_backend("quern"), or attention_backend("quern") around a call.

    This reaches models that call diffusers' dispatch, such as FLUX. SD3 calls PyTorch's function, which enable()
    reaches. device and allow_slow act as in register_transformers. Raises ImportError without diffusers 0.35 or later,
    ValueError (device).
    """
    device = known_device("register_diffusers", device)
    from diffusers.models import attention_dispatch as place
    register = place._AttentionBackendRegistry.register
    register(_add_member(place.AttentionBackendName), constraints=[place._check_device, place._check_shape])(
        _diffusers_attention(device, allow_slow))
