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

/// The function to call when a started operation is finished.
struct Callback {
    onebit_callback_fn function = nullptr; ///< NULL: none
    void* context = nullptr;
};

/// A callback that is due. It is called after the call that has finished the operation. By then the handle is free, and
/// the caller's floating-point environment is restored.
class Completion {
  public:
    void set(const Callback& callback, const Status& status) noexcept {
        callback_ = callback;
        status_ = status;
    }
    /// Calls the callback. Returns whether there was one.
    bool tell() const noexcept;

  private:
    Callback callback_;
    Status status_;
};

/// A handle that has something under way.
class Operation {
  public:
    virtual ~Operation() = default;
    /// Moves the operation on by a slice, unless another thread uses it. Returns whether something is left to do.
    virtual bool progress() noexcept = 0;
};

/// The handles made from one communicator that have something under way, by their numbers. They keep this object.
class OpenOperations {
    struct Open {
        std::shared_ptr<Operation> operation;
        std::uint64_t number = 0; ///< one more than the number of the operation added before
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
    /// Moves all operations on, in the order of their handles' creation. Returns how many have something left to do.
    int progress() noexcept;

  private:
    /// Sets *handle to the next handle after it, and returns that handle's entry. No operation if there is none.
    Open next_after(const void** handle) noexcept;
    void keep(const void* handle, std::uint64_t number, bool idle) noexcept;
    int count_active() noexcept;

    std::mutex mutex_; ///< not held while an operation moves
    Map open_;
    std::uint64_t last_number_ = 0;
};

} // namespace onebit
