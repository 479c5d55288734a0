#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a few of vLLM's, AITER's and FlashInfer's own tests over quern: one case each of some of their files. The whole of them is
# run by tests/clients/*_tests.py. Sources are in UPSTREAM, else in build/upstream, where tools/setup.sh --upstream puts vLLM's and
# SGLang's; checkouts of AITER and FlashInfer are taken there too, if they are there.
set -euo pipefail
. "${QUERN_SOURCE_DIR:?}/tests/engines_stage.sh"
sources=${UPSTREAM:-$source/build/upstream}
[ -d "$sources" ] || skip "there is no $sources; tools/setup.sh --upstream makes it"
stage torch vllm sglang tvm_ffi pytest pandas scipy

# NAME FILE...: a case of each test in these files of NAME's.
run() {
  [ -d "$sources/$1" ] || { echo "left out: there is no $sources/$1"; return 0; }
  (cd "$tmp" && "$python" "$source/tests/clients/$1_tests.py" "$sources/$1" "${@:2}" --most 1 --seconds 10)
}

run aiter test_kvcache.py test_mha_fp8.py
run flashinfer utils/test_quantization.py
run vllm kernels/core/test_pos_encoding.py kernels/attention/test_rocm_aiter_mla_head_padding.py kernels/attention/test_rocm_aiter_mla_decode.py
