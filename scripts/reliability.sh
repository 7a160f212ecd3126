#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Kills, stops and cuts off ranks in every collective call, and checks whether the other ranks end as promised.

set -euo pipefail

usage() {
    cat <<'END_OF_USAGE'
usage: scripts/reliability.sh --short [OPTION...]    one fault in each call, with Open MPI: a minute and a half
       scripts/reliability.sh --long [OPTION...]     208 faults with each of Open MPI and MPICH: half an hour

--long also cuts hosts off, which needs root.

Options are passed to scripts/reliability.py (--help): --build DIR, --seed S, --call NAME, ... Run this before:
  cmake --preset release && cmake --build --preset release --target onebit_reliability
and for --long the same with release-mpich. docs/RELIABILITY.md says what is promised.
END_OF_USAGE
}

main() {
    local -r program=$(dirname "${BASH_SOURCE[0]}")/reliability.py
    local -r length=${1:-}
    shift || true
    local failed=0
    case $length in
        --short) "$program" "$@" ;;
        --long)
            "$program" --mpi openmpi --faults 208 --cuts "$@" || failed=1
            "$program" --mpi mpich --faults 208 --cuts "$@" || failed=1
            exit "$failed"
            ;;
        -h | --help) usage ;;
        *)
            usage >&2
            exit 2
            ;;
    esac
}

main "$@"
