// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "osu_bfloat16.hpp"

#include <bit>

namespace onebit::bench {
namespace {

float widen(std::uint16_t value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

// To nearest, ties to even; of finite values.
std::uint16_t round_to_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

// An MPI_User_function. Compilers make vector instructions of it.
void add(void* in, void* in_and_out, int* count, MPI_Datatype*) {
    const auto* const a = static_cast<const std::uint16_t*>(in);
    auto* const b = static_cast<std::uint16_t*>(in_and_out);
    for (int i = 0; i < *count; ++i) b[i] = round_to_bfloat16(widen(a[i]) + widen(b[i]));
}

} // namespace

void round_to_bfloat16(const float* values, std::size_t count, std::uint16_t* rounded) {
    for (std::size_t i = 0; i < count; ++i) rounded[i] = round_to_bfloat16(values[i]);
}

void widen_bfloat16(const std::uint16_t* values, std::size_t count, float* widened) {
    for (std::size_t i = 0; i < count; ++i) widened[i] = widen(values[i]);
}

Bfloat16Rival::Bfloat16Rival(const Ranks& ranks, const float* values, std::size_t count)
    : comm_(ranks.comm), send_(count), receive_(count) {
    round_to_bfloat16(values, count, send_.data());
    MPI_Op_create(add, 1, &sum_);
}

void Bfloat16Rival::allreduce(std::size_t count) {
    MPI_Allreduce(send_.data(), receive_.data(), static_cast<int>(count), MPI_UINT16_T, sum_, comm_);
}

} // namespace onebit::bench
