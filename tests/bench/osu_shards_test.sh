#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# usage: osu_shards_test.sh COMMAND...
# COMMAND: starts osu_onebit_reduce_scatter or osu_onebit_all_gather on two ranks. Tests its table, with every codec and
# each algorithm; sizes that are rounded; refused arguments.

set -uo pipefail

readonly run=("$@" -i 3 -x 1 -c -f)
# shellcheck source=tests/tools/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/expect.sh"

readonly header='# OSU onebit (Reduce_scatter|Allgather) Latency Test v[0-9.]+, Size: bytes of the whole buffer'
for codec in sign int8 int4 fp4 bfloat16; do
    expect 0 "$header.* WireBytes +RelError +BusBW.* pipelined over .*65536 .* Pass " \
        "${run[@]}" -m 8:64K --algorithm pipelined --codec "$codec"
done
for check in none full_low_memory; do
    expect 0 '65536 .* Pass ' "${run[@]}" -m 64K:64K --algorithm pipelined --check "$check"
done
expect 0 ' dense over .*65536 .* Pass .* 0\.0000 +[0-9.]+' "${run[@]}" -m 8:64K --algorithm dense
expect 0 '65536 .* Pass ' "${run[@]}" -m 64K:64K --algorithm pipelined --codec int4 --rounding stochastic
expect 1 'rounding' "${run[@]}" -m 64K:64K --algorithm pipelined --rounding stochastic # of the sign
expect 0 ' over tcp .*65536 .* Pass ' "${run[@]}" -m 64K:64K --transport tcp --group buffer --scale l1
expect 0 ', buffers: onebit_mem_alloc.*65536 .* Pass ' "${run[@]}" -m 64K:64K --buffers shared
# 20000 bytes are 2500 elements for each of two ranks.
expect 0 $'Skipped: 5 bytes .*\n8 .* Pass .*\n16 .* Pass ' "${run[@]}" -m 5:20
expect 0 $'\n20000 .* Pass ' "${run[@]}" -m 20007:20007
expect 1 'ring not in' "${run[@]}" --algorithm ring
expect 1 'not expected: --bf16' "${run[@]}" --bf16
expect 1 'not expected: cuda -d' "${run[@]}" -d cuda
((failures == 0))
