#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# usage: osu_iallreduce_test.sh COMMAND...
# COMMAND: starts osu_onebit_iallreduce on two ranks. Its table, with test calls in flight and without.

set -uo pipefail

readonly run=("$@" -m 4K:64K -i 3 -x 1)
# shellcheck source=tests/tools/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/expect.sh"

readonly head='# Size +Overall\(us\) +Compute\(us\) +Pure Comm.\(us\)'
expect 0 "# OSU onebit Non-blocking Allreduce Latency Test.*$head +Overlap.*65536( +[0-9.]+){4}" "${run[@]}"
expect 0 "$head +Min Comm.* flat over .*65536( +[0-9.]+){6} +Pass( +[0-9.]+){4}" "${run[@]}" -f -c --algorithm flat
expect 0 '65536 .* Pass' "${run[@]}" -c -t 0 --algorithm pipelined
expect 0 '65536 ' "${run[@]}" -t 7 --transport tcp
expect 0 '"size":65536,"overall_us":[0-9.]+.*"overlap_percent":[0-9.]+' "${run[@]}" --json
expect 1 'not in range' "${run[@]}" -t -1
expect 1 'not expected: cuda -d' "${run[@]}" -d cuda
((failures == 0))
