#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# usage: tune_test.sh ONEBIT_TUNE OSU_ONEBIT_ALLREDUCE COMMAND...
# COMMAND: starts what follows it on two ranks.

set -uo pipefail

readonly tune=$1 osu=$2
shift 2
readonly run=("$@")
folder=$(mktemp -d)
readonly folder
trap 'rm -rf "$folder"' EXIT
# shellcheck source=tests/tools/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

bad_input() {
    expect fails '--output is required' "${run[@]}" "$tune"
    expect fails '--max-size' "${run[@]}" "$tune" -o "$folder/table.json" -m much
    expect fails 'max_count' "${run[@]}" "$tune" -o "$folder/table.json" -m 0
    expect fails '--codec' "${run[@]}" "$tune" -o "$folder/table.json" -c int9
    expect fails '--seconds' "${run[@]}" "$tune" -o "$folder/table.json" -s 0
    expect fails "onebit_tune: .*$folder/no/table.json" "${run[@]}" "$tune" -o "$folder/no/table.json" -m 4K -s 0.1
    [[ ! -e $folder/table.json ]] || fail "a table was written for all that"
}

a_table_and_its_use() {
    local table=$folder/table.json
    expect 0 "ONEBIT_CODEC_SIGN.*bytes +dense .*quickest.*ONEBIT_CODEC_INT8.*bytes +dense .*ONEBIT_TUNING=$table" \
        "${run[@]}" "$tune" -o "$table" -m 64K -s 0.5 --codec sign int8
    grep -q '"ranks":2' "$table" || fail "no number of ranks in the table: $(cat "$table")"
    local codec said
    for codec in sign int8; do
        said=$(ONEBIT_LOG=1 ONEBIT_TUNING=$table timeout 60 "${run[@]}" "$osu" -m 16K:16K -i 2 -x 1 --codec "$codec" \
            2>&1) || fail "'$osu' failed: $said"
        (($(grep -c '^onebit: allreduce of .* because .* elements: dense .*(tuned)' <<<"$said") == 1)) ||
            fail "not one line about one choice: $said"
    done
}

# It looks to the others as one whose host is gone: nothing comes, nothing is closed.
a_rank_that_vanishes() {
    timeout 60 "${run[@]}" "$tune" -o "$folder/never.json" -m 64M -s 600 --limit 4 >"$folder/said" 2>&1 &
    local started=$! stopped=
    for ((i = 0; i < 100; ++i)); do
        stopped=$(pgrep -f "^[^ ]*onebit_tune -o $folder/never.json" | tail -n 1)
        [[ -z $stopped ]] || break
        sleep 0.05
    done
    sleep 1.5
    kill -STOP "$stopped"
    (sleep 6; kill -KILL "$stopped") 2>/dev/null & # mpirun waits for it to end
    wait "$started"
    local status=$?
    ((status != 0 && status != 124)) || fail "a stopped rank: ended with $status"
    grep -q 'onebit_tune: rank . gives up after 4 seconds (--limit): a host may have vanished' "$folder/said" ||
        fail "a stopped rank: it said: $(cat "$folder/said")"
    [[ ! -e $folder/never.json ]] || fail "a stopped rank: a table was written"
}

bad_input
a_table_and_its_use
a_rank_that_vanishes
((failures == 0))
