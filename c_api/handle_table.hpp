// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "c_api/operations.hpp"
#include "c_api/process_table.hpp"
#include "collectives/allreduce.hpp"
#include "collectives/communicator/communicator.hpp"
#include "collectives/shards/all_gather.hpp"
#include "collectives/shards/reduce_scatter.hpp"
#include "optim/optimizer.hpp"

namespace onebit {

/// An object with operations that one call starts and other calls finish.
template <typename Object>
concept HasOperations = requires(Object& object) {
    object.under_way();
};

/// Whether a thread is in a call on a handle. Only one thread at a time can be.
class InUse {
  public:
    /// False if another thread has taken it. The thread that has taken it leaves it.
    bool try_take() { return !taken_.exchange(true, std::memory_order_acquire); }
    void leave() { taken_.store(false, std::memory_order_release); }

  private:
    std::atomic<bool> taken_ = false;
};

/// What every C handle stands for.
template <typename Object>
struct AnyEntry {
    std::unique_ptr<Object> object;             ///< gone once the handle is destroyed
    InUse in_use;                               ///< a thread that has taken it keeps the entry in its table
    std::shared_ptr<AbortSwitch> abort_switch;  ///< the object's; any thread may trip it
    std::shared_ptr<OpenOperations> operations; ///< of a communicator; shared by all objects made from it
    int rank = 0;                               ///< of a communicator
};

/// What a handle with operations stands for.
template <typename Object>
struct OperationEntry final : AnyEntry<Object>, Operation, std::enable_shared_from_this<OperationEntry<Object>> {
    bool progress() noexcept override; // guard.hpp
    /// After each call, with its status: finds whether something is under way now, and whether a callback is due.
    void settle(const Status& status, Completion* completion) noexcept;
    [[gnu::noinline]] void change(UnderWay now, const Status& status, Completion* completion) noexcept;

    const void* handle = nullptr;
    Callback callback;
    UnderWay under_way = UnderWay::kNothing;                    ///< after the last call
    OpenOperations::Place place = OpenOperations::make_place(); ///< while nothing is under way
};

template <typename Object>
using Entry = std::conditional_t<HasOperations<Object>, OperationEntry<Object>, AnyEntry<Object>>;

/// The tables of all types share these numbers, so that no handle is valid as two types.
std::uintptr_t next_handle_number();

/// Finds the objects of C handles. A handle is a number, cast to a pointer, that is never given twice. So a destroyed
/// handle, or a handle of another type, is recognised without touching memory that may be gone.
///
/// The library's only mutable globals are these tables, their counter, the table of memory given out (memory.cpp), the
/// log's callbacks (core/log.cpp) and threads' helpers (core/parallel.cpp). A C caller has only the handle to find its
/// object by.
template <typename Object>
using HandleTable = ProcessTable<Object, const void*, Entry<Object>>;

/// The name of a type of handle in messages.
template <typename Object>
inline constexpr const char* kHandleName = nullptr;
template <>
inline constexpr const char* kHandleName<Communicator> = "comm";
template <>
inline constexpr const char* kHandleName<Allreduce> = "allreduce";
template <>
inline constexpr const char* kHandleName<ReduceScatter> = "reduce_scatter";
template <>
inline constexpr const char* kHandleName<AllGather> = "all_gather";
template <>
inline constexpr const char* kHandleName<Optimizer> = "optimizer";

} // namespace onebit
