#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# The compiler's output for the kernels, checked without a GPU: all kernels are there, no operation rounds differently
# from the CPU's or keeps subnormal numbers, no array of a thread is in memory, and no call became a trap. (nvcc
# silently makes a trap of any call that a GPU can't make.)
# usage: cuda_ptx_test.sh KERNELS PTX...

set -euo pipefail

expected=$1
shift
kernels=$(cat "$@" | grep -cE '^\.(visible )?entry|\.entry ' || true)
if ((kernels != expected)); then
    echo "$*: $kernels kernels instead of $expected"
    exit 1
fi
if grep -nE '\b(fma|mad)\.(rn\.)?f(32|64)|\.(approx|full)\b|\b(add|sub|mul|div|sqrt)\.r[nzmp]\.f32\b|\.local\b|\btrap;' "$@"; then
    echo "$*: none of the above may be there"
    exit 1
fi
