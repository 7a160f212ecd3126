#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Builds everything and runs all tests, by default with Open MPI and then with MPICH.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/test.sh [PRESET...]

Installs what is missing (Debian; needs root or sudo), builds everything and runs the tests, once for each preset of
CMakePresets.json that is named. Default: release release-mpich. These run the tests with Open MPI, and with MPICH those
that depend on the MPI, on 1 and 2 ranks. Simulated clusters and fuzzing are not included: see CONTRIBUTING.md.
docs/RELIABILITY.md lists what else is left out.
Other presets: dev, clang, asan, tsan.
END
}

main() {
    if [[ ${1:-} == -h || ${1:-} == --help ]]; then
        usage
        exit 0
    fi
    local -a presets=("$@")
    if ((${#presets[@]} == 0)); then presets=(release release-mpich); fi
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    # shellcheck source=scripts/quietly.sh
    source scripts/quietly.sh

    echo "==> Installing what is missing"
    scripts/packages.sh build openmpi mpich test bench python
    if [[ " ${presets[*]} " == *" clang "* ]]; then scripts/packages.sh clang; fi
    local preset
    for preset in "${presets[@]}"; do
        echo "==> Building preset $preset into build/$preset"
        quietly cmake --preset "$preset"
        quietly cmake --build --preset "$preset"
        echo "==> Testing preset $preset"
        ctest --preset "$preset"
    done
    echo "==> All tests passed with: ${presets[*]}"
}

main "$@"
