#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# usage: osu_memory_test.sh COMMAND...
# COMMAND: starts osu_onebit_allreduce on two ranks. Where values lie: on the host always, in memory of both kinds, on
# GPUs where there are any, and what it says where there are none.

set -uo pipefail

readonly run=("$@" -m 4K:64K -i 3 -x 1 -c -f)
failures=0

expect() { # STATUS, PATTERN IN WHAT IT SAYS, COMMAND...
    local wanted=$1 pattern=$2 said status=0
    shift 2
    said=$("$@" 2>&1) || status=$?
    if ((status != wanted)) || ! [[ $said =~ $pattern ]]; then
        echo "FAILED: '$*' ended with $status, not $wanted, or said nothing like '$pattern': $said" >&2
        failures=$((failures + 1))
    fi
}

readonly nothing='--accelerator cuda: (no CUDA device|this onebit was built without CUDA)'
expect 1 "$nothing" env CUDA_VISIBLE_DEVICES= "${run[@]}" -d cuda
expect 1 '--bf16: it sums in the host' "${run[@]}" -d cuda --bf16
expect 1 'rocm not in' "${run[@]}" -d rocm
expect 1 '--buffers: shared is the host' "${run[@]}" -d cuda --buffers shared
expect 0 '# OSU onebit Allreduce.*65536 .* Pass ' "${run[@]}" -d host
expect 0 ', buffers: onebit_mem_alloc.* dense over [a-z]+, shared buffers .*65536 .* Pass ' \
    "${run[@]}" --algorithm dense --buffers shared
if said=$("${run[@]}" -d cuda 2>&1); then
    [[ $said =~ '# OSU onebit-CUDA Allreduce'.*', MPI_Allreduce: of the '.*'65536 '.*' Pass ' ]] ||
        { echo "FAILED: on GPUs: $said" >&2; failures=$((failures + 1)); }
elif ! [[ $said =~ $nothing ]]; then
    echo "FAILED: on GPUs: $said" >&2
    failures=$((failures + 1))
fi
((failures == 0))
