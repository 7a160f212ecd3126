// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "collectives/stages.hpp"

namespace onebit {

/// What one call works on: `input` and `output` are count floats each, the same or not overlapping.
struct Operands {
    const float* input = nullptr;
    float* output = nullptr;
    bool may_block = false; ///< the caller is going to wait anyway
};

/// One way of averaging over the ranks, written once over Transport and Codec. Everything is planned and allocated when
/// it is made; a call only walks through the stages.
class Algorithm {
  public:
    virtual ~Algorithm() = default;
    virtual std::span<const Stage> stages() const = 0;
    /// The next call's operands; to be set before its stages run.
    virtual void set_operands(const Operands& operands) = 0;
};

} // namespace onebit
