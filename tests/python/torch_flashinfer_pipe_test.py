# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer's pipelines from logits to tokens, against their steps one by one."""

import pytest

torch = pytest.importorskip("torch")
from flashinfer_tools import randn  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402
from quern.compat.flashinfer.logits_processor import (  # noqa: E402
    LogitsPipe, LogitsProcessor, MinP, Sample, Softmax, TaggedTensor, Temperature, TensorType, TopK, TopP)

LOGITS = randn(200, 50, dtype=torch.float32)
PROBS = LOGITS.softmax(-1)
DRAWN = {"seed": 3, "offset": 5}


@pytest.mark.parametrize("compile", [True, False])
@pytest.mark.parametrize("steps, x, given, want", [
    ([Softmax()], LOGITS, {}, lambda: PROBS),
    ([Temperature()], LOGITS, {"temperature": 0.5}, lambda: LOGITS / 0.5),
    ([Temperature(), Softmax()], LOGITS, {"temperature": 0.5}, lambda: (LOGITS / 0.5).softmax(-1)),
    ([Temperature(temperature=0.5), Softmax()], LOGITS, {}, lambda: (LOGITS / 0.5).softmax(-1)),
    ([Temperature(), Softmax(), TopP()], LOGITS, {"temperature": 2.0, "top_p": 0.7},
     lambda: flashinfer.top_p_renorm_probs((LOGITS / 2).softmax(-1), 0.7)),
    ([TopP(is_deterministic=True)], PROBS, {"top_p": 0.7, "is_deterministic": False}, lambda: flashinfer.top_p_renorm_probs(PROBS, 0.7)),
    ([TopK()], LOGITS, {"top_k": 5}, lambda: torch.where(LOGITS >= LOGITS.topk(5).values[:, -1:], LOGITS, -torch.inf)),
    ([TopK(), Softmax()], LOGITS, {"top_k": 5},
     lambda: torch.where(LOGITS >= LOGITS.topk(5).values[:, -1:], LOGITS, -torch.inf).softmax(-1)),
    ([TopK()], PROBS, {"top_k": 5}, lambda: flashinfer.top_k_renorm_probs(PROBS, 5)),
    ([MinP()], PROBS, {"min_p": 0.3}, lambda: (kept := torch.where(PROBS >= 0.3 * PROBS.amax(1, keepdim=True), PROBS, 0)) / kept.sum(1, keepdim=True)),
])
def test_distributions(compile, steps, x, given, want):
    kind = TensorType.PROBS if x is PROBS else TensorType.LOGITS
    pipe = LogitsPipe(steps, compile, input_type=kind)
    assert pipe.initial_type is kind
    torch.testing.assert_close(pipe(x, **given), want(), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(pipe(TaggedTensor(x, kind), **given), want(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("compile", [True, False])
@pytest.mark.parametrize("steps, x, given, want", [
    ([Sample()], LOGITS, {}, lambda: flashinfer.sampling_from_logits(LOGITS, **DRAWN)),
    ([Sample()], PROBS, {}, lambda: flashinfer.sampling_from_probs(PROBS, **DRAWN)),
    ([TopK(), Sample()], PROBS, {"top_k": 5}, lambda: flashinfer.top_k_sampling_from_probs(PROBS, 5, **DRAWN)),
    ([TopP(), Sample()], PROBS, {"top_p": 0.5}, lambda: flashinfer.top_p_sampling_from_probs(PROBS, 0.5, **DRAWN)),
    ([MinP(), Sample()], PROBS, {"min_p": 0.2}, lambda: flashinfer.min_p_sampling_from_probs(PROBS, 0.2, **DRAWN)),
    ([TopP(), Sample()], PROBS, {"top_p": 0.5, "is_deterministic": True}, lambda: flashinfer.top_p_sampling_from_probs(PROBS, 0.5, **DRAWN)),
    ([TopK(), TopP(), Sample()], PROBS, {"top_k": 9, "top_p": 0.6},
     lambda: flashinfer.top_k_top_p_sampling_from_probs(PROBS, 9, 0.6, filter_apply_order="top_k_first", **DRAWN)),
    ([TopK(joint_topk_topp=True), TopP(), Sample()], PROBS, {"top_k": 9, "top_p": 0.6},
     lambda: flashinfer.top_k_top_p_sampling_from_probs(PROBS, 9, 0.6, filter_apply_order="joint", **DRAWN)),
    ([Softmax(), TopK(joint_topk_topp=True), TopP(), Sample()], LOGITS, {"top_k": 9, "top_p": 0.6},
     lambda: flashinfer.top_k_top_p_sampling_from_logits(LOGITS, 9, 0.6, filter_apply_order="joint", **DRAWN)),
    ([TopP(), TopK(), Sample()], PROBS, {"top_k": 9, "top_p": 0.6},
     lambda: flashinfer.top_k_sampling_from_probs(flashinfer.top_p_renorm_probs(PROBS, 0.6), 9, **DRAWN)),
    ([Temperature(), Softmax(), TopK(), Sample()], LOGITS, {"top_k": 5, "temperature": torch.full((200,), 2.0)},
     lambda: flashinfer.top_k_sampling_from_probs(flashinfer.softmax(LOGITS, 2.0), 5, **DRAWN)),
])
def test_tokens(compile, steps, x, given, want):
    pipe = LogitsPipe(steps, compile, input_type=TensorType.PROBS if x is PROBS else TensorType.LOGITS)
    assert torch.equal(pipe(x, **given, **DRAWN), want())
    indices = torch.arange(100)
    got = pipe(x, **{name: value if not isinstance(value, torch.Tensor) else 2.0 for name, value in given.items()}, **DRAWN, indices=indices)
    assert got.shape == (100,) and got.dtype == torch.int64


@pytest.mark.parametrize("steps, options, message", [
    ([], {}, "processors is empty"), ([Softmax(), Softmax()], {}, "more than one Softmax"), ([TopK()], {}, "input_type is None; needed as TopK takes both"),
    ([TopP()], {"input_type": TensorType.LOGITS}, "TopP gets logits; accepted: probs"), ([Softmax(), Temperature()], {}, "Temperature gets probs"),
    ([Softmax(), Sample(), TopK()], {}, "TopK comes behind tokens"), ([TopK()], {"input_type": "probs"}, "input_type is 'probs'; accepted: a TensorType"),
])
def test_wrong_pipelines(steps, options, message):
    with pytest.raises(ValueError, match=f"LogitsPipe: .*{message}"):
        LogitsPipe(steps, **options)


def test_wrong_calls():
    pipe = LogitsPipe([Temperature(), Softmax()])
    for given, message in (({}, "Temperature: temperature is missing"), ({"temperature": 1.0, "top_k": 3}, "top_k is 3; accepted: temperature")):
        with pytest.raises(ValueError, match=message):
            pipe(LOGITS, **given)
    with pytest.raises(ValueError, match="x is probs; accepted: logits"):
        pipe(TaggedTensor.probs(PROBS), temperature=1.0)
    with pytest.raises(ValueError, match="TopK: top_p is 0.5; accepted: top_k"):
        TopK(top_p=0.5)
    with pytest.raises(ValueError, match="Temperature: temperature is 0"):
        LogitsPipe([Temperature()])(LOGITS, temperature=0)


def test_refused():
    with pytest.raises(NotImplementedError, match="custom_fusion_rules is not supported; found a list of 1"):
        LogitsPipe([Softmax()], custom_fusion_rules=[1])
    with pytest.raises(NotImplementedError, match="processors has a LogitsProcessor; accepted: Temperature"):
        LogitsPipe([LogitsProcessor()])
    seen = []
    LogitsPipe([Softmax()], custom_validity_checks=[seen.append]).compile(custom_validity_checks=[seen.append])
    assert len(seen) == 2 and repr(LogitsPipe([Softmax(), Sample()])) == "LogitsPipe([Softmax -> Sample])"


def test_joint_filters_of_logits_are_one_call():
    """Softmax apart rounds to f32, and then some rows in a hundred thousand get another token."""
    for joint, calls in ((True, 1), (False, 2)):
        assert len(LogitsPipe([Softmax(), TopK(joint_topk_topp=joint), TopP(), Sample()])._calls) == calls
