// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// bfloat16, which has half of float32's bytes: its values, and a rival of osu_onebit_allreduce, MPI_Allreduce of them.
// MPI has no such type. So the rival uses MPI_UINT16_T with a sum of our own, as frameworks do. The values are bfloat16
// already: nothing is converted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "osu_support.hpp"

namespace onebit::bench {

// To nearest, ties to even; of finite values. And back.
void round_to_bfloat16(const float* values, std::size_t count, std::uint16_t* rounded);
void widen_bfloat16(const std::uint16_t* values, std::size_t count, float* widened);

class Bfloat16Rival {
  public:
    // Rounds `count` values, and keeps them to be summed.
    Bfloat16Rival(const Ranks& ranks, const float* values, std::size_t count);
    ~Bfloat16Rival() { MPI_Op_free(&sum_); }
    Bfloat16Rival(const Bfloat16Rival&) = delete;
    Bfloat16Rival& operator=(const Bfloat16Rival&) = delete;

    // Of the first `count` values.
    void allreduce(std::size_t count);

  private:
    MPI_Comm comm_;
    MPI_Op sum_ = MPI_OP_NULL;
    std::vector<std::uint16_t> send_;
    std::vector<std::uint16_t> receive_;
};

} // namespace onebit::bench
