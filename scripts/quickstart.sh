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
readonly root build=$root/build/quickstart
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

# Writes the text without verse numbers: bible prints "Gen1:1 In the beginning ...", one verse per line.
make_bible() {
    bible -f 'Gen1:1-Rev22:21' | sed 's/^[^ ]* //' >"$1.part"
    mv "$1.part" "$1"
}

train() {
    local -a mpi_options=(--oversubscribe -n "$ranks")
    local progress=lines
    if ((EUID == 0)); then mpi_options+=(--allow-run-as-root); fi
    # The program can't detect a terminal itself: mpirun redirects its output.
    if [[ -t 1 ]]; then progress=bar; fi
    # By its full name: if two MPIs are installed, mpirun may be that of the other MPI.
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
    # shellcheck source=scripts/quietly.sh
    source scripts/quietly.sh

    announce "Installing what is missing" "Run it as root or with sudo, and check that apt can reach a Debian mirror."
    scripts/packages.sh build openmpi text

    announce "Building onebit into build/quickstart" "If an older build is in the way, remove build/quickstart and try again."
    quietly cmake --preset quickstart
    quietly cmake --build --preset quickstart --target train_lm

    if [[ -z $text ]]; then
        announce "Writing the King James Bible to build/quickstart/text.txt" "Give a TEXT_FILE of your own instead."
        text=$build/text.txt
        make_bible "$text"
    fi

    announce "Training twice on $ranks ranks" "The messages above say why; -- --help lists the program's options."
    train "$text" "$@"
}

main "$@"
