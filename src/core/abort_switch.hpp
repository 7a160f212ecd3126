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
/// thread may trip it. Calls that wait look at it; the last of them to leave tells the peers, as does the thread that
/// trips it where no call is in flight. That of a part of a communicator's ranks is tripped with the whole's, too.
class AbortSwitch {
  public:
    /// `whole`: that of the communicator that this one's is a part of.
    explicit AbortSwitch(std::shared_ptr<AbortSwitch> whole = nullptr) : whole_(std::move(whole)) {}

    /// Tells the peers why. False where this thread may not speak to them now.
    using Messenger = std::function<bool(const Status& why)>;

    /// While it lives this thread is in a call on the communicator or one of its handles.
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

    /// By this process. The first reason stays.
    void trip(const Status& why);
    /// Because a peer says so: nobody need be told.
    void hear(const Status& why);

    bool tripped() const { return tripped_ || (whole_ != nullptr && whole_->tripped()); }
    /// Why, once it is tripped; else a success.
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

    // A call that begins adds itself, then looks whether the switch is tripped; who trips it does so first, then looks
    // for calls. One of the two sees the other, so that peers are told, and not while a call goes on.
    const std::shared_ptr<AbortSwitch> whole_;
    std::atomic<int> calls_ = 0; ///< in flight
    std::atomic<bool> tripped_ = false;
    mutable std::mutex mutex_; ///< of all below; held while peers are told
    Status why_;
    Messenger messenger_;
    bool any_thread_ = false;
    bool told_ = false;
};

} // namespace onebit
