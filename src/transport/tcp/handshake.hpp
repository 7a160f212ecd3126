// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "core/status.hpp"
#include "transport/tcp/addresses.hpp"
#include "transport/tcp/socket.hpp"

namespace onebit {

/// Random bytes that a rank tells its peers through the bootstrap. Who connects shows the other's, who is connected to
/// answers with the first one's, so that neither takes a stranger for a peer. What travels is not encrypted.
using Secret = std::array<std::byte, 32>;
Status draw_secret(Secret* secret);

/// A socket that peers connect to.
class Listener {
  public:
    /// At `address`, and nowhere else; the system chooses a port, which is put there.
    static Status open(Address* address, Listener* listener);
    int descriptor() const { return socket_.get(); }

  private:
    Socket socket_;
};

/// What is to be known of a rank before it can be connected to.
struct Place {
    Address address;
    Secret secret{};
};

/// A peer, once it is connected.
struct Connected {
    Socket socket;
    bool sees_memory = false; ///< it has found this rank's shared memory
};

/// Connects to the ranks below this one and waits for those above. Strangers are turned away. Blocks, no longer than
/// `timeout` seconds (0: for ever).
///   places       by rank
///   sees_memory  by rank: whether this rank has found that one's shared memory; the other is told
///   connected    [out] by rank; nothing for this rank itself
/// TIMEOUT and TRANSPORT name the ranks and their addresses.
Status connect_peers(int rank, const Listener& listener, std::span<const Place> places,
                     const std::vector<bool>& sees_memory, double timeout, std::vector<Connected>* connected);

} // namespace onebit
