#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# From a fresh Debian 12 to a trained model: installs, builds, trains with dense and with 1-bit Adam, compares.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/quickstart.sh [TEXT_FILE] [-- TRAIN_LM_OPTION...]

Installs what is missing (needs root or sudo), builds onebit, and trains a small language model on four ranks of this
machine, once with dense Adam and once with 1-bit Adam. Takes a few minutes and ends with a table of both.

  TEXT_FILE         what to learn from; the King James Bible (4 MB, a Debian package) if none is given
  TRAIN_LM_OPTION   handed to the program, for example: -- --steps 500 --seed 2
                    (-- --help lists them)
END
}

readonly ranks=4
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root build=$root/build/release
step="starting"
hint=""

announce() { # what is being done, and what to do if it fails
    step=$1
    hint=$2
    echo "==> $step"
}

explain_failure() {
    local code=$?
    if ((code != 0)); then echo "quickstart.sh: failed at: $step. $hint" >&2; fi
}

# Runs a command whose output is of interest only if it fails.
quietly() {
    local log
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        echo "quickstart.sh: the whole output is in $log" >&2
        return 1
    fi
    rm -f "$log"
}

# The text alone: bible prints "Gen1:1 In the beginning ...", one verse a line.
make_bible() {
    bible -f 'Gen1:1-Rev22:21' | sed 's/^[^ ]* //' >"$1.part"
    mv "$1.part" "$1"
}

# The library and the example alone, so that a new user needs no more packages than they do. A build folder that is
# there already keeps what its owner chose.
configure() {
    local -a only_examples=()
    if [[ ! -f $build/CMakeCache.txt ]]; then only_examples=(-D ONEBIT_TESTS=OFF -D ONEBIT_BENCH=OFF); fi
    quietly cmake --preset release "${only_examples[@]}"
}

train() {
    local -a mpi_options=(--oversubscribe -n "$ranks")
    local progress=lines
    if ((EUID == 0)); then mpi_options+=(--allow-run-as-root); fi
    # The program cannot tell by itself: what it writes to is made by mpirun.
    if [[ -t 1 ]]; then progress=bar; fi
    # By its full name: where two MPIs are installed, plain mpirun may be the other one's.
    mpirun.openmpi "${mpi_options[@]}" "$build/examples/train_lm" "$@" --progress "$progress"
}

main() {
    local text=""
    if (($# > 0)) && [[ $1 == -h || $1 == --help ]]; then
        usage
        exit 0
    fi
    if (($# > 0)) && [[ $1 != -- ]]; then
        text=$1
        shift
    fi
    if (($# > 0)) && [[ $1 != -- ]]; then
        usage >&2
        exit 1
    fi
    if (($# > 0)); then shift; fi
    trap explain_failure EXIT

    if [[ -n $text ]]; then
        announce "Reading $text" "Is it a file that you may read?"
        text=$(realpath -e -- "$text")
        [[ -f $text && -r $text ]]
    fi
    cd "$root"

    announce "Installing what is missing" "Run it as root or with sudo, and check that apt can reach a Debian mirror."
    scripts/packages.sh build openmpi text

    announce "Building onebit into build/release" "If an older build is in the way, remove build/release and try again."
    configure
    quietly cmake --build --preset release --target train_lm

    if [[ -z $text ]]; then
        announce "Writing the King James Bible to build/release/text.txt" "Give a TEXT_FILE of your own instead."
        text=$build/text.txt
        make_bible "$text"
    fi

    announce "Training twice on $ranks ranks" "The messages above say why; -- --help lists the program's options."
    train "$text" "$@"
}

main "$@"
