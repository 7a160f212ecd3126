// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "collectives/allreduce.hpp"
#include "collectives/communicator.hpp"
#include "optim/optimizer.hpp"

namespace onebit {

/// What a C handle stands for.
template <typename Object>
struct Entry {
    std::unique_ptr<Object> object;            ///< gone once the handle is destroyed
    std::mutex in_use;                         ///< held by the thread that is in a call
    std::shared_ptr<AbortSwitch> abort_switch; ///< the object's; any thread may trip it
    int rank = 0;                              ///< of a communicator
};

/// Shared by the tables of all types, so that no handle is valid as two of them.
std::uintptr_t next_handle_number();

/// Gives C handles their meaning. A handle is a number that is never given twice, dressed up as a pointer, so that a
/// destroyed handle, or one of another type, is recognised without touching memory that may be gone.
///
/// These tables, their counter and that of memory given out (memory.cpp) are the library's only mutable globals: a C
/// caller has only the handle to find its object by.
template <typename Object>
class HandleTable {
  public:
    static HandleTable& instance() {
        static HandleTable table;
        return table;
    }

    void* add(std::unique_ptr<Object> object) {
        auto entry = std::make_shared<Entry<Object>>();
        entry->abort_switch = object->abort_switch();
        if constexpr (requires { object->rank(); }) entry->rank = object->rank();
        entry->object = std::move(object);
        const std::lock_guard lock(mutex_);
        const std::uintptr_t number = next_handle_number();
        entries_.emplace(number, std::move(entry));
        return reinterpret_cast<void*>(number);
    }

    /// NULL where the handle is not in the table. Sharing keeps the object alive while a call uses it.
    std::shared_ptr<Entry<Object>> find(const void* handle) {
        const std::lock_guard lock(mutex_);
        const auto found = entries_.find(reinterpret_cast<std::uintptr_t>(handle));
        return found == entries_.end() ? nullptr : found->second;
    }

    void remove(const void* handle) {
        const std::lock_guard lock(mutex_);
        entries_.erase(reinterpret_cast<std::uintptr_t>(handle));
    }

  private:
    std::mutex mutex_;
    std::unordered_map<std::uintptr_t, std::shared_ptr<Entry<Object>>> entries_;
};

/// How a message calls a type of handle.
template <typename Object>
inline constexpr const char* kHandleName = nullptr;
template <>
inline constexpr const char* kHandleName<Communicator> = "comm";
template <>
inline constexpr const char* kHandleName<Allreduce> = "allreduce";
template <>
inline constexpr const char* kHandleName<Optimizer> = "optimizer";

} // namespace onebit
