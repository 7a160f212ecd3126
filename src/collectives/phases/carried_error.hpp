// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "compress/codec.hpp"

namespace onebit {

/// The error that an encoder carries from call to call. Where calls may be called off, it has beside it the new error
/// that the call in flight makes.
class CarriedError {
  public:
    /// `stream`: as in Feedback::Draw.
    CarriedError(const Codec& codec, std::span<const Chunk> chunks, bool tentative_calls, std::size_t stream)
        : now_(codec.make_feedback(chunks)), next_(tentative_calls ? codec.make_feedback(chunks) : nullptr) {
        now_->set_stream(static_cast<std::uint32_t>(stream));
        if (next_ != nullptr) next_->set_stream(static_cast<std::uint32_t>(stream));
    }

    Feedback& now() { return *now_; }
    const Feedback& now() const { return *now_; }
    /// Where a call leaves the new error.
    Feedback& after(bool tentative) { return tentative ? *next_ : *now_; }
    /// Before each call; as Operands::number.
    void begin_call(std::uint64_t number) {
        now_->set_call(number);
        if (next_ != nullptr) next_->set_call(number);
    }
    /// The error that a tentative call has left is the error from now on.
    void commit() { std::swap(now_, next_); }

    void set_mask(std::span<const std::uint32_t> mask) {
        now_->set_mask(mask);
        if (next_ != nullptr) next_->set_mask(mask);
    }
    /// All but the error itself.
    std::size_t workspace_bytes() const {
        const std::size_t of_next = next_ == nullptr ? 0 : next_->state_bytes() + next_->workspace_bytes();
        return now_->workspace_bytes() + of_next;
    }

  private:
    std::unique_ptr<Feedback> now_;
    std::unique_ptr<Feedback> next_; ///< NULL: no call may be called off
};

} // namespace onebit
