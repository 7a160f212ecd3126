#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Stores the public headers in tests/abi under their version, MAJOR.MINOR. The tests compare later headers with these.
# Run this when a minor version is released, and before its release whenever its structs have changed. Headers of a
# released version (with a tag vMAJOR.MINOR.0) are not replaced.

set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ${1-} == -h || ${1-} == --help || $# -gt 0 ]]; then
    echo "usage: scripts/store_headers.sh"
    exit 0
fi

number() {
    sed -n "s/^#define ONEBIT_VERSION_$1 \([0-9]*\)$/\1/p" include/onebit/onebit.h
}

version=$(number MAJOR).$(number MINOR)
if [[ -n $(git tag --list "v$version.0") ]]; then
    echo "store_headers.sh: version $version has been released, and what programs were compiled against stays" >&2
    exit 1
fi
stored=tests/abi/$version/include/onebit
rm -rf "$stored"
mkdir -p "$stored"
cp include/onebit/*.h "$stored"
echo "stored as $stored"
