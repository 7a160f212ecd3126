#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Says which of the tracked C and C++ files clang-format would change, and fails if there is any. Stored copies of
# earlier headers (tests/abi) stay as they were.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/packages.sh style
git ls-files -- '*.c' '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh' ':!tests/abi/*' | xargs clang-format --dry-run -Werror
echo "==> All C and C++ files are formatted"
