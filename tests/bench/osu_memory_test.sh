#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# usage: osu_memory_test.sh COMMAND...
# COMMAND: starts osu_onebit_allreduce on two ranks. Tests the places of values: always the host, memory of both kinds,
# GPUs if there are any, and the message if there are none.

set -uo pipefail

readonly run=("$@" -m 4K:64K -i 3 -x 1 -c -f)
# shellcheck source=tests/tools/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/expect.sh"

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
        fail "on GPUs: $said"
elif ! [[ $said =~ $nothing ]]; then
    fail "on GPUs: $said"
fi
((failures == 0))
