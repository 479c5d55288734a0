#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests quern inside the serving engines' own code, on tensors of the CPU: vLLM's and SGLang's classes with quern's plugins and
# stand-ins, where the platform says that it is a GPU. The work is in tests/clients/in_vllm and in_sglang. The engines' Python is
# ENGINES_PYTHON, else the one that tools/setup.sh --engines makes.
set -euo pipefail
. "${QUERN_SOURCE_DIR:?}/tests/engines_stage.sh"
stage torch vllm sglang tvm_ffi pytest

for tests in in_vllm in_sglang in_sglang/with_aiter; do # SGLang reads its switches when it is imported
  SGLANG_USE_AITER=$([ $tests = in_sglang/with_aiter ] && echo 1 || echo 0) \
    "$python" -m pytest -q -p no:cacheprovider "$@" "$source/tests/clients/$tests"/*_test.py
done
