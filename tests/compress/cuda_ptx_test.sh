#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# What the compiler made of the kernels, seen without a GPU: all of them are there, no operation rounds otherwise than
# the CPU's, no array of a thread's went to memory, and no call became a trap. (nvcc makes one, without a word, of
# whatever a GPU can't call.)
# usage: cuda_ptx_test.sh PTX

set -euo pipefail

kernels=$(grep -cE '^\.(visible )?entry|\.entry ' "$1" || true)
if ((kernels != 6)); then
    echo "$1: $kernels kernels instead of 6"
    exit 1
fi
if grep -nE '\b(fma|mad)\.(rn\.)?f(32|64)|\.(ftz|approx|full)\b|\.local\b|\btrap;' "$1"; then
    echo "$1: none of the above may be there"
    exit 1
fi
