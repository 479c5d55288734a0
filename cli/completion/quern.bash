# SPDX-License-Identifier: Apache-2.0
# Completion of the quern command for bash. tests/cli/test_usage.py holds it to what --help lists.

# Words that can follow an option, or a command, go to COMPREPLY; files where a path is wanted.
_quern_values() { # _quern_values OPTION CURRENT
    case $1 in
    --device)
        mapfile -t COMPREPLY < <(compgen -W "$(quern devices --json 2>/dev/null |
            sed -n 's/.*"spec": "\(.*\)",*/\1/p') auto" -- "$2")
        ;;
    --to) mapfile -t COMPREPLY < <(compgen -W "e4m3fnuz e4m3fn" -- "$2") ;;
    --out-dtype) mapfile -t COMPREPLY < <(compgen -W "bf16 f32" -- "$2") ;;
    --mfma) mapfile -t COMPREPLY < <(compgen -W "exact fast" -- "$2") ;;
    --prompts) mapfile -t COMPREPLY < <(compgen -W "whole causal" -- "$2") ;;
    --clock) mapfile -t COMPREPLY < <(compgen -W "sample on xcd full" -- "$2") ;;
    --dtype) mapfile -t COMPREPLY < <(compgen -W "fp8 e4m3fn e4m3fnuz bf16" -- "$2") ;;
    --peer) mapfile -t COMPREPLY < <(compgen -W "torch" -- "$2") ;;
    --chip | --input | --model | --original | --out | --output | --python | --report | --svg | --trace-file | --weights) mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    --dim | --exclude | --include | --k | --kernels | --m | --n | --only | --random | --rows | --rounds | --runs | --seed | --seq | --shapes | --tensor | --tokens | --tp | --arch | --devices | --check | --kernel | --trace) ;; # a number or a pattern: nothing to offer
    *) return 1 ;;
    esac
}

# Sets typed to the words before and at the cursor, as the user typed them: bash splits at ':' and '=' as well.
_quern_typed() {
    local word
    typed=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [ ${#typed[@]} -gt 0 ] && [[ $word == : || ${typed[-1]} == *: ]]; then
            typed[-1]+=$word
        elif [[ $word != "=" ]]; then
            typed+=("$word")
        elif [ "${COMP_WORDS[COMP_CWORD]}" = "=" ]; then
            typed+=("")
        fi
    done
}

_quern() {
    local -a typed
    _quern_typed
    local current=${typed[-1]} previous=${typed[-2]:-}
    local commands="devices doctor check quantize convert gemm bench sim profile cache tune probe help" options="" words=""
    COMPREPLY=()
    if [ ${#typed[@]} -eq 2 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$current")
        return
    fi
    if _quern_values "$previous" "$current"; then
        COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*:}"}"}") # bash keeps what stands before a colon
        return
    fi
    case ${typed[1]} in
    devices)
        options="--json --verbose"
        ;;
    doctor)
        options="--json --verbose --device --root"
        ;;
    check)
        options="--device --quick --seed --report --force --json --verbose"
        words="quantize dequantize quantize_rows packbits scales scales_k_grouped norm norm_backward activation activation_backward rope kvcache kvcache_positions kvcache_seq_lens kvcache_gather kvcache_groups moe_route moe_sort moe_permute moe_activate moe_sum moe_few attention merge_states attention_dropout attention_backward mla gemm gemm_pack sampling"
        ;;
    quantize)
        options="--include --exclude --allow-nonfinite --force --json"
        ;;
    convert)
        options="--to --allow-rounding --force --json"
        ;;
    gemm)
        options="--weights --tensor --input --random --seed --device --original --out-dtype --output --runs --force --json"
        ;;
    bench)
        options="--device --runs --clock --m --n --k --seq --heads --prompts --rows --dim --peer --python --svg --force --json"
        words="attention attention_backward mla gemm quantize norm rmsnorm fused_add_rmsnorm layernorm rmsnorm_quant rmsnorm_token_quant rmsnorm_group_quant adaptive_layernorm gated_residual_layernorm norm_backward rmsnorm_backward activation silu_and_mul gelu_tanh_and_mul silu_and_mul_group_quant activation_backward silu_and_mul_backward rope rope_pos_ids"
        ;;
    sim)
        options="--arch --devices --check --mfma --clock --chip --trace --trace-file --timeline --json --error-exitcode --env"
        ;;
    profile)
        options="--arch --devices --kernel --json --svg --html --clock --timeline --force"
        ;;
    cache)
        options="--device --op --json"
        words="path list verify fill clear"
        ;;
    tune)
        options="--device --shapes --model --tp --tokens --ranges --seq --dtype --output --force --rounds --kernels --clock --dry-run --json"
        if [ ${#typed[@]} -eq 3 ]; then # a file may follow
            words="path list verify gemm attention mla norm activation quantize"
        fi
        ;;
    probe)
        options="--device --only --runs --out --force --list --json"
        ;;
    help)
        options="--json"
        words="$commands"
        ;;
    esac
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options --help" -- "$current")
    elif [ -n "$words" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}
complete -o filenames -F _quern quern
