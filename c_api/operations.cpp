// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "c_api/operations.hpp"

#include <functional>
#include <utility>

#include "c_api/guard.hpp"

namespace onebit {

bool Completion::tell() const noexcept {
    if (callback_.function == nullptr) return false;
    (void)report(status_); // for onebit_last_error in the callback
    callback_.function(callback_.context, status_.code());
    (void)report(status_); // and behind the call, whatever the callback has called
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
    place.mapped() = {std::move(operation), std::less<>()(handle, moving_)};
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

/// A callback may start, finish and destroy what it likes, so that no iterator lasts from one operation to the next.
int OpenOperations::progress() noexcept {
    int unfinished = 0;
    const void* handle = nullptr;
    while (const std::shared_ptr<Operation> operation = next_after(&handle)) unfinished += operation->progress();
    return unfinished + count_those_behind();
}

int OpenOperations::count_those_behind() noexcept {
    int behind = 0;
    const std::lock_guard lock(mutex_);
    for (auto& [handle, open] : open_) behind += std::exchange(open.behind, false) ? 1 : 0;
    return behind;
}

std::shared_ptr<Operation> OpenOperations::next_after(const void** handle) noexcept {
    const std::lock_guard lock(mutex_);
    const auto next = open_.upper_bound(*handle);
    moving_ = next == open_.end() ? nullptr : next->first;
    if (moving_ == nullptr) return nullptr;
    *handle = moving_;
    return next->second.operation;
}

} // namespace onebit
