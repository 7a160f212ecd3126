#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# usage: osu_allreduce_persistent_test.sh COMMAND...
# COMMAND: starts osu_onebit_allreduce_persistent on two ranks. Its table, and the same as JSON.

set -uo pipefail

readonly run=("$@" -m 4K:64K -i 3 -x 1)
# shellcheck source=tests/tools/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/expect.sh"

expect 0 $'# OSU onebit Allreduce Persistent Latency Test v[0-9.]+\n# Size +Avg Latency\\(us\\)\n4096 +[0-9.]+\n' "${run[@]}"
expect 0 ' flat over .*65536 .* Pass .* 0\.[0-9]+' "${run[@]}" -f -c --algorithm flat
readonly start='\{"comment":"OSU onebit Allreduce Persistent Latency Test v[0-9.]+"\}'
readonly row='\{"size":4096,"avg_latency_us":[0-9.]+,"min_latency_us":[0-9.]+,"max_latency_us":[0-9.]+,"iterations":3,"valid":true,'
expect 0 "$start.*$row" "${run[@]}" -f -c --json
if ! "${run[@]}" -f -c --json 2>&1 |
    python3 -c 'import json, sys; assert sum("size" in json.loads(line) for line in sys.stdin) == 5'; then
    fail "--json: not five rows of JSON"
fi
expect 1 'not expected: 3 -t' "${run[@]}" -t 3
((failures == 0))
