// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hwy/highway.h>

#include <span>
#include <vector>

#include "core/instruction_sets.hpp"

/// To be included after Highway: tells which kernel tables, one per instruction set, were compiled and run here.

#if HWY_TARGETS & HWY_AVX3
#define ONEBIT_ROW_AVX3(row) row(kAvx512, N_AVX3, "avx512")
#else
#define ONEBIT_ROW_AVX3(row)
#endif
#if HWY_TARGETS & HWY_AVX2
#define ONEBIT_ROW_AVX2(row) row(kAvx2, N_AVX2, "avx2")
#else
#define ONEBIT_ROW_AVX2(row)
#endif
#if HWY_TARGETS & HWY_SSE4
#define ONEBIT_ROW_SSE4(row) row(kSse4, N_SSE4, "sse4")
#else
#define ONEBIT_ROW_SSE4(row)
#endif
#if HWY_TARGETS & HWY_NEON
#define ONEBIT_ROW_NEON(row) row(kNeon, N_NEON, "neon")
#else
#define ONEBIT_ROW_NEON(row)
#endif

/// Defines `std::span<const Table* const> available()`: best first, reference() last. Each instruction set's namespace
/// has a constexpr `Table make_table(const char* name)`. Inside namespace onebit.
#define ONEBIT_ADD_TABLE(set, space, name)                      \
    if (machine_has(InstructionSet::set)) {                     \
        static constexpr auto kTable = space::make_table(name); \
        list.push_back(&kTable);                                \
    }
#define ONEBIT_DEFINE_TABLES(Table, available, reference)   \
    std::span<const Table* const> available() {             \
        static const std::vector<const Table*> kList = [] { \
            std::vector<const Table*> list;                 \
            ONEBIT_ROW_AVX3(ONEBIT_ADD_TABLE)               \
            ONEBIT_ROW_AVX2(ONEBIT_ADD_TABLE)               \
            ONEBIT_ROW_SSE4(ONEBIT_ADD_TABLE)               \
            ONEBIT_ROW_NEON(ONEBIT_ADD_TABLE)               \
            list.push_back(&reference());                   \
            return list;                                    \
        }(); /* never changes */                            \
        return kList;                                       \
    }
