// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "c_api/operations.hpp"

#include <algorithm>
#include <utility>

#include "c_api/guard.hpp"

namespace onebit {

bool Completion::tell() const noexcept {
    if (callback_.function == nullptr) return false;
    (void)report(status_); // for onebit_last_error in the callback
    callback_.function(callback_.context, status_.code());
    (void)report(status_); // and after the call, whatever the callback has called
    return true;
}

OpenOperations::Place OpenOperations::make_place() {
    Map one;
    one.emplace(nullptr, Open{});
    return one.extract(one.begin());
}

void OpenOperations::add(const void* handle, std::shared_ptr<Operation> operation, Place place) noexcept {
    place.key() = handle;
    const std::lock_guard lock(mutex_);
    place.mapped() = {std::move(operation), ++last_number_};
    open_.insert(std::move(place));
}

OpenOperations::Place OpenOperations::remove(const void* handle) noexcept {
    Place place;
    {
        const std::lock_guard lock(mutex_);
        place = open_.extract(handle);
    }
    place.mapped() = {};
    return place;
}

bool OpenOperations::holds(const void* handle) noexcept {
    const std::lock_guard lock(mutex_);
    return open_.contains(handle);
}

/// A callback may start, finish and destroy any operation. So no iterator lasts from one operation to the next, and the
/// remaining operations are counted at the end.
int OpenOperations::progress() noexcept {
    const void* handle = nullptr;
    for (Open open = next_after(&handle); open.operation != nullptr; open = next_after(&handle)) {
        const bool left = open.operation->progress();
        keep(handle, open.number, !left);
    }
    return count_active();
}

OpenOperations::Open OpenOperations::next_after(const void** handle) noexcept {
    const std::lock_guard lock(mutex_);
    const auto next = open_.upper_bound(*handle);
    if (next == open_.end()) return {};
    *handle = next->first;
    return next->second;
}

/// Keeps `idle`, unless the operation has been started again meanwhile.
void OpenOperations::keep(const void* handle, std::uint64_t number, bool idle) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(handle);
    if (found != open_.end() && found->second.number == number) found->second.idle = idle;
}

int OpenOperations::count_active() noexcept {
    const std::lock_guard lock(mutex_);
    const auto active = [](const auto& entry) { return !entry.second.idle; };
    return static_cast<int>(std::ranges::count_if(open_, active));
}

} // namespace onebit
