#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Runs all that onebit has for GPUs on this machine, and writes down what came out.

set -euo pipefail

usage() {
    cat <<'END'
usage: gpu_check.sh [FOLDER]

Runs the GPU tests and benchmarks, and writes what they print to FOLDER/gpu_check.txt and their figures to
FOLDER/gpu_check.json (default: the current folder). In a checkout it builds them first, with nvcc; in a bundle, which
scripts/bundle.sh makes for machines without packages, everything lies beside it.
Exit status: 0 all passed, 77 there is no GPU, else 1.
END
}

# Sets `programs`, a folder that has them all.
find_programs() {
    local here
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
    if [[ -d $here/bin && -d $here/lib ]]; then
        export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        programs=$here/bin
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

check_all() {
    local tests kernels allreduce figures results=()
    step "The machine" "$programs/onebit_info"
    step "Tests" "$programs/onebit_cuda_tests"
    tests=$result
    results+=("$result")
    measure "Kernels beside a copy from device to device" "$programs/cuda_kernel_benchmark"
    kernels=$figures
    results+=("$result")
    measure "Allreduces between two ranks on one GPU" "$programs/cuda_allreduce_benchmark"
    allreduce=$figures
    results+=("$result")
    printf '{"tests": "%s", "kernels": %s, "allreduce": %s}\n' "$tests" "$kernels" "$allreduce" \
        >"$folder/gpu_check.json"
    case "${results[*]}" in
        "passed passed passed") return 0 ;;
        "skipped skipped skipped") return 77 ;;
        *) return 1 ;;
    esac
}

main() {
    local folder programs result
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
