#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Runs clang-tidy on the library's and the tools' sources that differ from another commit. Fails if clang-tidy reports
# anything.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/check_tidy.sh [COMMIT]

COMMIT: the commit to compare with; default: the commit before the last one (HEAD~1). Without such a commit nothing is
checked. Sources are checked as the preset dev compiles them.
END
}

MOST=24 # files; the others are left out, as each file takes about ten seconds

main() {
    if [[ ${1:-} == -h || ${1:-} == --help ]]; then
        usage
        exit 0
    fi
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    # shellcheck source=scripts/quietly.sh
    source scripts/quietly.sh
    scripts/packages.sh tidy
    local before=${1:-HEAD~1} build=build/tidy
    if ! git rev-parse --verify --quiet "$before^{commit}" >/dev/null; then
        echo "==> clang-tidy: there is no $before to compare with"
        exit 0
    fi
    # Only configures, for the compile commands of all files. clang can't read headers that g++ has precompiled.
    quietly cmake --preset dev -B "$build" -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
    local -a files=()
    local file
    while IFS= read -r file; do # files that are part of this build
        if grep -q "/$file\"" "$build/compile_commands.json"; then files+=("$file"); fi
    done < <(git diff --name-only --diff-filter=d "$before" -- 'src/*.cpp' 'c_api/*.cpp' 'tools/*.cpp')
    if ((${#files[@]} == 0)); then
        echo "==> clang-tidy: no source differs from $before"
        exit 0
    fi
    if ((${#files[@]} > MOST)); then
        echo "==> clang-tidy: ${#files[@]} sources differ from $before; the first $MOST are looked at"
        files=("${files[@]:0:MOST}")
    fi
    printf '%s\n' "${files[@]}" | xargs -P 2 -n 2 clang-tidy -p "$build" --quiet \
        --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option # clang doesn't know all flags of g++
    echo "==> clang-tidy has nothing to say on ${#files[@]} sources"
}

main "$@"
