// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/abort_switch.hpp"

#include <utility>

namespace onebit {

void AbortSwitch::await_telling() {
    const std::lock_guard until_peers_are_told(mutex_);
}

void AbortSwitch::tell_if_last() {
    const std::lock_guard lock(mutex_);
    if (calls_ == 0) tell_peers();
}

void AbortSwitch::set_messenger(Messenger messenger, bool any_thread) {
    const std::lock_guard lock(mutex_);
    messenger_ = std::move(messenger);
    any_thread_ = any_thread;
}

void AbortSwitch::trip(const Status& why) {
    const std::lock_guard lock(mutex_);
    set(why);
    if (calls_ == 0 || any_thread_) tell_peers();
}

/// Never waits: the thread that holds the lock trips the switch, or has, and may wait for the link on which this thread
/// has heard the reason.
void AbortSwitch::hear(const Status& why) {
    if (tripped_) return; // this thread may hold the lock: telling peers also reads their notices
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    if (!tripped_) told_ = true;
    set(why);
}

Status AbortSwitch::why() const {
    if (!tripped_) return whole_ == nullptr ? Status() : whole_->why();
    const std::lock_guard lock(mutex_);
    return why_;
}

void AbortSwitch::set(const Status& why) {
    if (tripped_) return;
    why_ = why;
    tripped_ = true;
}

void AbortSwitch::tell_peers() {
    if (tripped_ && !told_ && messenger_) told_ = messenger_(why_);
}

} // namespace onebit
