#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# usage: osu_optimizer_step_test.sh COMMAND...
# COMMAND: starts osu_onebit_optimizer_step on two ranks. Its table, with every optimizer, and other codecs and forms.

set -uo pipefail

readonly at_all_sizes=("$@" -i 3 -x 1 -f -c)
readonly run=("${at_all_sizes[@]}" -m 64K:128K)
# shellcheck source=tests/tools/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/expect.sh"

readonly header='# OSU onebit Optimizer Step Latency Test .*Validation +Dense.* WireBytes'
for optimizer in adam onebit_adam lamb onebit_lamb zero_one_adam; do
    expect 0 "$header.*65536 .* Pass .*131072 .* Pass " "${run[@]}" --optimizer "$optimizer"
done
expect 0 ' pipelined over .*131072 .* Pass ' "${run[@]}" --algorithm pipelined --codec int8
expect 0 ', optimizer: lamb, codec: none.*8388608 .* Pass ' "${at_all_sizes[@]}" -m 8M:8M --optimizer lamb # several tensors
expect 0 ', optimizer: onebit_adam, codec: topk.*131072 .* Pass ' "${run[@]}" --codec topk --kept 32 --error-type bfloat16
expect 0 'over tcp .*131072 .* Pass ' "${run[@]}" --transport tcp --buffers shared
expect 1 'dense not in' "${run[@]}" --algorithm dense
expect 1 'sgd not in' "${run[@]}" --optimizer sgd
expect 1 'not expected: --bf16' "${run[@]}" --bf16
expect 1 'not expected: none --check' "${run[@]}" --check none
((failures == 0))
