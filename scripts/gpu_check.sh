#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Runs all that onebit has for GPUs on this machine, and writes down what came out.

set -euo pipefail

usage() {
    cat <<'END'
usage: gpu_check.sh [FOLDER]

Runs the GPU tests and benchmarks, and writes what they print to FOLDER/gpu_check.txt and their figures to
FOLDER/gpu_check.json (default: the current folder). Where python3 has a PyTorch for GPUs, its fused Adam is timed, too.
In a checkout it builds them first, with nvcc; in a bundle, which
scripts/bundle.sh makes for machines without packages, everything lies beside it.
Exit status: 0 all passed, 77 there is no GPU, else 1.
END
}

# Sets `programs` and `scripts`, folders that have them all.
find_programs() {
    local here
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
    if [[ -d $here/bin && -d $here/lib ]]; then
        export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        programs=$here/bin
        scripts=$here
    else
        "$here/bundle.sh" "$here/../build/bundle"
        exec "$here/../build/bundle/gpu_check.sh" "$folder"
    fi
}

# Prints a step's name, runs it, and sets `result` to passed, skipped or failed.
step() {
    local name=$1 code=0
    shift
    echo "==> $name"
    "$@" || code=$?
    case $code in
        0) result=passed ;;
        77) result=skipped ;;
        *) result=failed ;;
    esac
    echo "==> $name: $result"
}

# A benchmark's step: what it writes as JSON comes into `figures`.
measure() {
    local file=$folder/figures.json
    rm -f "$file"
    step "$1" "${@:2}" --json "$file"
    figures=null
    if [[ -s $file ]]; then figures=$(<"$file"); fi
    rm -f "$file"
}

# FIGURES OF THE PASSES, OPTIONS...
beside_torch() {
    if [[ ! -s $1 ]]; then
        echo "skipped: there are no times of onebit's passes"
    elif ! command -v python3 >/dev/null; then
        echo "skipped: there is no python3"
    else
        python3 "$scripts/torch_fused_adam.py" "$@"
        return
    fi
    return 77
}

check_all() {
    local tests nccl kernels passes torch allreduce figures file=$folder/passes.json results=()
    step "The machine" "$programs/onebit_info"
    step "Tests" "$programs/onebit_cuda_tests"
    tests=$result
    results+=("$result")
    step "NCCL between processes" "$programs/onebit_nccl_processes"
    nccl=$result
    if [[ $result == failed ]]; then results+=("$result"); fi # there need not be an NCCL
    measure "Kernels beside a copy from device to device" "$programs/cuda_kernel_benchmark"
    kernels=$figures
    results+=("$result")
    measure "The optimizers' passes beside a copy from device to device" "$programs/cuda_passes_benchmark"
    passes=$figures
    results+=("$result")
    if [[ $passes != null ]]; then echo "$passes" >"$file"; fi
    measure "PyTorch's fused Adam beside onebit's steps" beside_torch "$file"
    torch=$figures
    if [[ $result == failed ]]; then results+=("$result"); fi # it need not be there
    rm -f "$file"
    measure "Allreduces between two ranks on one GPU" "$programs/cuda_allreduce_benchmark"
    allreduce=$figures
    results+=("$result")
    printf '{"tests": "%s", "nccl": "%s", "kernels": %s, "passes": %s, "torch": %s, "allreduce": %s}\n' \
        "$tests" "$nccl" "$kernels" "$passes" "$torch" "$allreduce" >"$folder/gpu_check.json"
    case "${results[*]}" in
        "passed passed passed passed") return 0 ;;
        "skipped skipped skipped skipped") return 77 ;;
        *) return 1 ;;
    esac
}

main() {
    local folder programs scripts result
    if [[ ${1:-} == -h || ${1:-} == --help ]]; then
        usage
        exit 0
    fi
    folder=${1:-.}
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    find_programs
    check_all 2>&1 | tee "$folder/gpu_check.txt"
}

main "$@"
