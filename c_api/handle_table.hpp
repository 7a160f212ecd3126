// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "c_api/process_table.hpp"
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
/// These tables, their counter, that of memory given out (memory.cpp), the log's callbacks (core/log.cpp) and threads'
/// helpers (core/parallel.cpp) are the library's only mutable globals: a C caller has only the handle to find its
/// object by.
template <typename Object>
using HandleTable = ProcessTable<Object, const void*, Entry<Object>>;

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
