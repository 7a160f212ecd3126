// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "core/status.hpp"

namespace onebit {

/// Ends all that a communicator and its handles have in flight. One for each communicator, shared by its handles; any
/// thread may trip it. Calls that wait look at the switch, and the last of them to leave tells the peers. If no call is
/// in flight, the thread that trips the switch does. The switch of a part of a communicator's ranks is tripped with the
/// whole's, too.
class AbortSwitch {
  public:
    /// `whole`: the switch of the communicator of which this one's is a part.
    explicit AbortSwitch(std::shared_ptr<AbortSwitch> whole = nullptr) : whole_(std::move(whole)) {}

    /// Tells the peers why. False where this thread may not send to them now.
    using Messenger = std::function<bool(const Status& why)>;

    /// While it lives, this thread is in a call on the communicator or one of its handles.
    class Use {
      public:
        explicit Use(AbortSwitch& abort_switch) : switch_(abort_switch) { switch_.enter(); }
        ~Use() { switch_.leave(); }
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

      private:
        AbortSwitch& switch_;
    };

    /// `any_thread`: messages may be sent while another thread is in a call.
    void set_messenger(Messenger messenger, bool any_thread);

    /// Trips it in this process. The first reason stays.
    void trip(const Status& why);
    /// Trips it because a peer says so: no peer need be told.
    void hear(const Status& why);

    bool tripped() const { return tripped_ || (whole_ != nullptr && whole_->tripped()); }
    /// The reason, once it is tripped; else a success.
    Status why() const;

  private:
    void enter() {
        if (whole_ != nullptr) whole_->enter();
        ++calls_;
        if (tripped_) await_telling();
    }
    void leave() {
        if (--calls_ == 0 && tripped_) tell_if_last();
        if (whole_ != nullptr) whole_->leave();
    }
    void await_telling(); ///< until the thread that trips the switch has told the peers
    void tell_if_last();  ///< tells the peers unless another call has begun
    void set(const Status& why);
    void tell_peers();

    // A call that begins adds itself, then looks whether the switch is tripped. A thread that trips the switch first
    // does so, then looks for calls. One of the two sees the other, so peers are told, and not during a call.
    const std::shared_ptr<AbortSwitch> whole_;
    std::atomic<int> calls_ = 0; ///< in flight
    std::atomic<bool> tripped_ = false;
    mutable std::mutex mutex_; ///< guards all below; held while peers are told
    Status why_;
    Messenger messenger_;
    bool any_thread_ = false;
    bool told_ = false;
};

} // namespace onebit
