// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/status.hpp"
#include "transport/tcp/addresses.hpp"
#include "transport/tcp/socket.hpp"

namespace onebit {

/// Random bytes that a rank tells its peers through the bootstrap. The rank that connects shows the other's secret, and
/// the other answers with the connecting rank's. So neither takes a stranger for a peer. The traffic is not encrypted.
using Secret = std::array<std::byte, 32>;
Status draw_secret(Secret* secret);

/// A socket that peers connect to.
class Listener {
  public:
    /// Only at `address`. The system chooses the port, which is written to `*address`.
    static Status open(Address* address, Listener* listener);
    int descriptor() const { return socket_.get(); }

  private:
    Socket socket_;
};

/// What a peer must know of a rank to connect to it.
struct Place {
    Address address;
    Secret secret{};
};

/// A peer, once it is connected.
struct Connected {
    Socket socket;
    bool sees_memory = false; ///< it has found this rank's shared memory
};

/// What comes in on a socket until it is a whole Hello. Both sides send a Hello first.
struct Greeting {
    struct Hello {
        std::array<char, 8> magic{};
        std::uint32_t rank = 0;
        std::uint32_t sees_memory = 0;
        Secret secret{}; ///< the receiver's
    };
    enum class Outcome { kMore, kWhole, kClosed };
    Outcome read();

    Socket socket;
    Hello hello;
    std::size_t got = 0;
};

/// Connects to the ranks below this one and waits for those above. Strangers are turned away.
class Handshake {
  public:
    /// Takes all memory that is needed.
    ///   places       by rank
    ///   sees_memory  by rank: whether this rank has found that rank's shared memory; that rank is told
    Handshake(int rank, const Listener& listener, std::vector<Place> places, std::vector<bool> sees_memory);

    /// Blocks, no longer than `timeout` seconds (0: for ever). Success needs no memory. TIMEOUT and TRANSPORT name the
    /// ranks and their addresses.
    Status run(double timeout);
    /// A peer, after run(). Needs no memory.
    Connected take(std::size_t rank);

  private:
    enum class Stage { kAwaited, kConnecting, kGreeted, kDone, kGone };
    struct Peer {
        bool connected() const { return stage >= Stage::kDone; }

        Stage stage = Stage::kAwaited;
        Greeting greeting;
    };
    using Clock = std::chrono::steady_clock;

    std::string name(std::size_t rank) const;
    std::string missing() const;
    Status unreachable(std::size_t rank, int error) const;
    Status check_clock(Clock::time_point begin, double timeout) const;
    Status connect_to(std::size_t rank);
    Status greet(std::size_t rank);
    Status look();
    Status go_on(std::size_t rank);
    Status read_strangers();
    void accept_stranger();
    Status admit(Greeting stranger);

    std::size_t rank_;
    const Listener& listener_;
    std::vector<Place> places_;
    std::vector<bool> sees_memory_;
    std::vector<Peer> peers_;
    std::vector<Greeting> strangers_; ///< accepted, and not known yet
    std::vector<pollfd> polled_;      ///< the listener, peers, strangers
    std::size_t gone_;                ///< the first peer that has gone; peers_.size(): none
    Clock::time_point gone_at_;       ///< when it was seen
};

} // namespace onebit
