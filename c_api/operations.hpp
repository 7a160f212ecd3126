// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "core/status.hpp"

namespace onebit {

/// What a program wants to hear when a started operation is finished.
struct Callback {
    onebit_callback_fn function = nullptr; ///< NULL: nothing
    void* context = nullptr;
};

/// A callback that is due. It is made behind the call that has finished the operation: there the handle is free, and
/// the caller's floating-point environment is back.
class Completion {
  public:
    void set(const Callback& callback, const Status& status) noexcept {
        callback_ = callback;
        status_ = status;
    }
    /// Whether there was one.
    bool tell() const noexcept;

  private:
    Callback callback_;
    Status status_;
};

/// A handle that has something under way.
class Operation {
  public:
    virtual ~Operation() = default;
    /// Moves it on by a slice, unless another thread uses it. Whether something is left to do.
    virtual bool progress() noexcept = 0;
};

/// The handles made from one communicator that have something under way, by their numbers. They keep it.
class OpenOperations {
    struct Open {
        std::shared_ptr<Operation> operation;
        std::uint64_t number = 0; ///< one more than that of any that was added before
        bool idle = false;        ///< it had nothing left to do when it was last moved on
    };
    using Map = std::map<const void*, Open>;

  public:
    /// All the memory that an entry needs here: a call that starts something allocates nothing.
    using Place = Map::node_type;
    static Place make_place();

    void add(const void* handle, std::shared_ptr<Operation> operation, Place place) noexcept;
    Place remove(const void* handle) noexcept;
    bool holds(const void* handle) noexcept;
    /// Moves all on, in the order in which they were created. How many have something left to do.
    int progress() noexcept;

  private:
    /// Of the handle behind *handle, which becomes that; none: no operation.
    Open next_after(const void** handle) noexcept;
    void keep(const void* handle, std::uint64_t number, bool idle) noexcept;
    int count_active() noexcept;

    std::mutex mutex_; ///< not held while an operation moves
    Map open_;
    std::uint64_t last_number_ = 0;
};

} // namespace onebit
