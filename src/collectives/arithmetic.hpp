// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "core/memory.hpp"
#include "core/status.hpp"

namespace onebit {

/// What an exact sum does to values, wherever they lie. On a GPU in order with a stream, for which nothing waits.
class Arithmetic {
  public:
    virtual ~Arithmetic() = default;

    virtual Memory& memory() = 0;
    /// What went wrong so far, if anything did: a GPU may fail.
    virtual Status failure() const = 0;
    /// to[i] += from[i].
    virtual void add(const float* from, std::size_t count, float* to) = 0;
    /// to[i] = factor from[i]; in place where they are the same.
    virtual void multiply(const float* from, float factor, std::size_t count, float* to) = 0;
    /// to[i] = factor (parts[0][i] + parts[1][i] + ...), added up in this order; `to` may be one of them. The first may
    /// be lost.
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
