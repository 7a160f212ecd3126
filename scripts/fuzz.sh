#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Feeds the library random inputs: tests/fuzz, by libFuzzer with the address and undefined-behaviour sanitizers.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/fuzz.sh --short|--long [TARGET...]

Builds the preset "fuzz" and runs its targets (all: allreduce_state c_calls optimizer_state topology_xml tuning_table),
each starting from the inputs in tests/fuzz/corpus/TARGET (topology_xml: also from tests/topology/machines).
  --short  10 seconds for each
  --long   10,000,000 inputs for each, 100,000 programs of C calls: hours
Inputs that reach new code are kept in build/fuzz/corpus/TARGET, inputs that broke a promise in
build/fuzz/broken/TARGET. Prints one line for each target; fails if a promise was broken. An input that makes hwloc
crash while it reads a file breaks no promise, as onebit_info reads files in a child process. Such inputs go to
build/fuzz/hwloc.
END
}

die() {
    echo "fuzz.sh: $*" >&2
    exit 1
}

ALL=(allreduce_state c_calls optimizer_state topology_xml tuning_table)

put_hwlocs_aside() {
    local input report
    mkdir -p build/fuzz/hwloc
    for input in build/fuzz/broken/topology_xml/*; do
        [[ -e $input ]] || continue
        report=$(build/fuzz/tests/fuzz/fuzz_topology_xml "$input" 2>&1 || true)
        if grep -q 'in hwloc_topology_load\|in hwloc_topology_set_xml' <<<"$report"; then mv "$input" build/fuzz/hwloc/; fi
    done
}

fuzz() {
    local target=$1 log=build/fuzz/$1.log status=0 runs broken
    local -a seeds=("tests/fuzz/corpus/$target")
    local -a options=(-timeout=120 -report_slow_units=120 -rss_limit_mb=4096 "-artifact_prefix=build/fuzz/broken/$target/")
    if [[ $length == short ]]; then
        options+=(-seed=1 -max_total_time=10) # the same inputs each time, as many as fit
    elif [[ $target == c_calls ]]; then
        options+=(-runs=100000)
    else
        options+=(-runs=10000000)
    fi
    if [[ -e tests/fuzz/$target.dict ]]; then options+=("-dict=tests/fuzz/$target.dict"); fi
    # hwloc's crashes leak memory, and some end the process: libFuzzer then continues in a new process.
    if [[ $target == topology_xml ]]; then
        options+=(-fork=1 -ignore_crashes=1)
        seeds+=(tests/topology/machines)
    fi
    mkdir -p "build/fuzz/corpus/$target" "build/fuzz/broken/$target"
    rm -f "build/fuzz/broken/$target"/*
    "build/fuzz/tests/fuzz/fuzz_$target" "${options[@]}" "build/fuzz/corpus/$target" "${seeds[@]}" \
        >"$log" 2>&1 || status=$?
    if [[ $target == topology_xml ]]; then
        put_hwlocs_aside
        status=0 # the status only reports inputs that crashed hwloc
    fi
    runs=$(grep -oE '^#[0-9]+' "$log" | tail -n 1 | tr -d '#')
    broken=$(find "build/fuzz/broken/$target" -type f | head -n 1)
    if [[ -n $broken ]] || ((status != 0)) || ((${runs:-0} == 0)); then
        tail -n 40 "$log"
        echo "fuzz $target: BROKEN after ${runs:-0} inputs: $broken"
        return 1
    fi
    echo "fuzz $target: ${runs:-0} inputs, no promise broken"
}

main() {
    local length=
    case ${1:-} in
        --short) length=short ;;
        --long) length=long ;;
        -h | --help)
            usage
            exit 0
            ;;
        *)
            usage >&2
            exit 1
            ;;
    esac
    shift
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    # shellcheck source=scripts/quietly.sh
    source scripts/quietly.sh
    scripts/packages.sh build openmpi fuzz
    quietly cmake --preset fuzz
    quietly cmake --build --preset fuzz
    ONEBIT_FUZZ_DIRECTORY=$(mktemp -d /dev/shm/onebit-fuzz-XXXXXX) # for the files that the targets write
    export ONEBIT_FUZZ_DIRECTORY
    trap 'rm -rf "$ONEBIT_FUZZ_DIRECTORY"' EXIT
    local target
    local -a targets=("$@") broken=()
    if ((${#targets[@]} == 0)); then targets=("${ALL[@]}"); fi
    for target in "${targets[@]}"; do
        [[ -x build/fuzz/tests/fuzz/fuzz_$target ]] || die "there is no target \"$target\" (see --help)"
        fuzz "$target" || broken+=("$target")
    done
    ((${#broken[@]} == 0)) || die "broken: ${broken[*]}"
}

main "$@"
