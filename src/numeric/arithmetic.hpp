// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <span>

#include "core/memory.hpp"
#include "core/status.hpp"

namespace onebit {

/// How a sum over ranks, added up in steps, becomes their average and never overflows. Values times `before` are added
/// up and then multiplied by `after`. `before` is 2^-k, with 2^k the number of ranks or the next power of two; `after`
/// is 2^k (1/n). Powers of two change only values below 2^(k - 126), which may become zero.
struct Averaging {
    float before = 1;
    float after = 1;

    explicit Averaging(int ranks) {
        const auto n = static_cast<unsigned>(ranks);
        before = 1.0F / static_cast<float>(std::bit_ceil(n));
        after = static_cast<float>(std::bit_ceil(n)) * (1.0F / static_cast<float>(n));
    }
};

/// What an exact sum does to values, wherever they lie. On a GPU in order with a stream; nothing waits for it.
class Arithmetic {
  public:
    virtual ~Arithmetic() = default;

    virtual Memory& memory() = 0;
    /// What went wrong so far, if anything did: a GPU may fail.
    virtual Status failure() const = 0;
    /// to[i] += from[i].
    virtual void add(const float* from, std::size_t count, float* to) = 0;
    /// to[i] = factor from[i]; in place where they are the same. An overflow gives the largest float, if from[i] is
    /// finite and the factor is not 1.
    virtual void multiply(const float* from, float factor, std::size_t count, float* to) = 0;
    /// to[i] = factor (parts[0][i] + parts[1][i] + ...), added up in this order; `to` may be one of them. The first may
    /// be overwritten. A mean is finite where its parts are, though their sum may overflow.
    virtual void sum(std::span<float* const> parts, float factor, std::size_t count, float* to) = 0;
};

/// On the host.
class HostArithmetic final : public Arithmetic {
  public:
    explicit HostArithmetic(unsigned threads) : threads_(threads) {}

    Memory& memory() override { return host_memory(); }
    Status failure() const override { return {}; }
    void add(const float* from, std::size_t count, float* to) override;
    void multiply(const float* from, float factor, std::size_t count, float* to) override;
    void sum(std::span<float* const> parts, float factor, std::size_t count, float* to) override;

  private:
    unsigned threads_;
};

} // namespace onebit
