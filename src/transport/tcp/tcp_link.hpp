// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "transport/link.hpp"
#include "transport/tcp/connection.hpp"
#include "transport/tcp/socket.hpp"

namespace onebit {

/// A connection to each peer: over TCP or, inside a node, through memory that both see. Inside a node, a socket without
/// traffic tells that the peer is gone. Messages move only during a call, in whichever thread.
class TcpLink final : public Link {
  public:
    struct Peer {
        std::unique_ptr<Connection> connection; ///< none to this rank itself
        Socket watched;                         ///< inside a node
        int descriptor = -1;                    ///< of the socket, whoever owns it
    };
    /// A message to or from a rank.
    struct Post {
        int peer = 0;
        bool is_send = false;
        Transfer transfer;
    };

    /// Without peers so far.
    static Status create(int rank, int size, std::shared_ptr<TcpLink>* link);
    /// `peers` by rank. Once, before anything travels. Needs no memory.
    Status join(std::vector<Peer> peers);
    ~TcpLink() override;
    TcpLink(const TcpLink&) = delete;
    TcpLink& operator=(const TcpLink&) = delete;

    const char* name() const override { return "tcp"; }

    /// Begins all messages, in order.
    void post(std::span<Post> messages);
    /// Moves all messages on. `*first`: index of the first of these that is pending; their number where none is.
    /// TRANSPORT where that one's peer is gone.
    Status advance(std::span<const Post> messages, std::size_t* first);
    /// Afterwards nothing touches the messages' memory.
    void cancel(std::span<Post> messages);

    void tell(std::span<const int> ranks, int channel, const Status& why) noexcept override;
    bool try_tell(std::span<const int> ranks, int channel, const Status& why) noexcept override {
        tell(ranks, channel, why);
        return true;
    }
    bool takes_any_thread() const override { return true; }
    bool has_gone(int rank) const override;
    /// No channel is left. Peers hear that this rank has gone.
    void close();

  private:
    TcpLink(int rank, int size);
    Status look_for_notices() override;

    std::size_t skip_done(std::span<const Post> messages, std::size_t first) const;
    void pump();
    void pump_sockets();
    bool pump_peer(std::size_t rank);
    void heed_watched(std::size_t rank);
    void want_output(std::size_t rank);

    mutable std::mutex mutex_; ///< guards what follows
    std::vector<Peer> peers_;
    std::vector<std::size_t> in_node_;  ///< peers through shared memory
    bool has_remote_ = false;           ///< there are peers on other nodes
    std::vector<std::uint32_t> events_; ///< by rank: what epoll looks for
    int epoll_ = -1;
    unsigned looks_ = 0;
};

} // namespace onebit
