#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Prints which tracked C and C++ files clang-format would change, and which lines are longer than 120 characters; fails
# if there are any. Stored copies of earlier headers (tests/abi) are not checked.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/packages.sh style
mapfile -t files < <(git ls-files -- '*.c' '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh' ':!tests/abi/*')
clang-format --dry-run -Werror "${files[@]}"
# clang-format does not shorten comments (ReflowComments).
if LC_ALL=C.UTF-8 grep --line-number --extended-regexp '^.{121,}' "${files[@]}"; then
    echo "check_format.sh: these lines are longer than 120 characters" >&2
    exit 1
fi
echo "==> All C and C++ files are formatted"
