// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp_link.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace onebit {

TcpLink::TcpLink(int rank, int size)
    : Link(rank, size), peers_(static_cast<std::size_t>(size)), events_(peers_.size(), EPOLLIN) {
    in_node_.reserve(peers_.size());
    tell_by(*abort_switch(), everyone(), kFirstTag);
}

Status TcpLink::create(int rank, int size, std::shared_ptr<TcpLink>* link) {
    std::shared_ptr<TcpLink> made(new TcpLink(rank, size));
    made->epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (made->epoll_ < 0) return Status::error(ONEBIT_ERROR_TRANSPORT, "epoll_create1: %s", std::strerror(errno));
    *link = std::move(made);
    return {};
}

Status TcpLink::join(std::vector<Peer> peers) {
    const std::lock_guard lock(mutex_);
    peers_ = std::move(peers);
    for (std::size_t r = 0; r < peers_.size(); ++r) {
        if (peers_[r].connection == nullptr) continue;
        if (peers_[r].watched) {
            in_node_.push_back(r); // there is room for it
        } else {
            has_remote_ = true;
        }
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = r;
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, peers_[r].descriptor, &event) != 0) {
            return Status::error(ONEBIT_ERROR_TRANSPORT, "epoll_ctl: %s", std::strerror(errno));
        }
    }
    return {};
}

TcpLink::~TcpLink() {
    close();
}

/// Peers that are in calls of their own learn from the goodbye which rank has gone.
void TcpLink::close() {
    abort_switch()->set_messenger(nullptr, false);
    const std::lock_guard lock(mutex_);
    const Status closed = Status::error(ONEBIT_ERROR_TRANSPORT, "this rank has destroyed its communicator");
    for (Peer& peer : peers_) {
        if (peer.connection == nullptr) continue;
        peer.connection->say_goodbye();
        (void)peer.connection->pump();
        peer.connection->lose(closed);
        peer.connection->close();
        peer.watched = Socket();
    }
    if (epoll_ >= 0) ::close(std::exchange(epoll_, -1));
}

// ------------------------------------------------------------------------------------------------ messages ----

void TcpLink::post(std::span<Post> messages) {
    const std::lock_guard lock(mutex_);
    for (Post& message : messages) {
        Connection& connection = *peers_[static_cast<std::size_t>(message.peer)].connection;
        if (message.is_send) {
            connection.post_send(message.transfer);
        } else {
            connection.post_receive(message.transfer);
        }
    }
    int last = -1;
    for (const Post& message : messages) { // usually several of one peer, one behind the other
        if (std::exchange(last, message.peer) != message.peer) pump_peer(static_cast<std::size_t>(message.peer));
    }
}

std::size_t TcpLink::skip_done(std::span<const Post> messages, std::size_t first) const {
    while (first < messages.size() && !messages[first].transfer.pending) ++first;
    return first;
}

Status TcpLink::advance(std::span<const Post> messages, std::size_t* first) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return {}; // another thread moves messages
    *first = skip_done(messages, *first);
    if (*first == messages.size()) return {};
    pump();
    *first = skip_done(messages, *first);
    if (*first == messages.size()) return {};
    const Post& missing = messages[*first];
    const Status& lost = peers_[static_cast<std::size_t>(missing.peer)].connection->lost();
    if (lost.ok()) return {};
    return Status::error(ONEBIT_ERROR_TRANSPORT, "a message %s rank %d: %s", missing.is_send ? "to" : "from",
                         missing.peer, lost.message().c_str());
}

void TcpLink::cancel(std::span<Post> messages) {
    const std::lock_guard lock(mutex_);
    for (Post& message : messages) {
        if (!message.transfer.pending) continue;
        Connection& connection = *peers_[static_cast<std::size_t>(message.peer)].connection;
        if (message.is_send) {
            connection.cancel_send(message.transfer);
        } else {
            connection.cancel_receive(message.transfer);
        }
    }
}

// ------------------------------------------------------------------------------------------------- notices ----

void TcpLink::tell(std::span<const int> ranks, int channel, const Status& why) noexcept {
    const Notice notice = make_notice(channel, why);
    const std::lock_guard lock(mutex_);
    for (const int rank : ranks) {
        if (rank == this->rank()) continue;
        peers_[static_cast<std::size_t>(rank)].connection->tell(notice);
        (void)pump_peer(static_cast<std::size_t>(rank));
    }
}

Status TcpLink::look_for_notices() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) pump();
    return {};
}

bool TcpLink::has_gone(int rank) const {
    const std::lock_guard lock(mutex_);
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    return peer.connection != nullptr && !peer.connection->lost().ok();
}

// ------------------------------------------------------------------------------------------------ progress ----

/// Looks at shared memory several times, because a look costs little and a waiting thread gives its core away after a
/// number of calls. Looks seldom at sockets that are only watched.
void TcpLink::pump() {
    constexpr unsigned kLooks = 4;
    constexpr unsigned kLooksBetweenSockets = 64;
    constexpr unsigned kMovesBetweenSockets = 8;
    bool moved = false;
    for (unsigned look = 0; look < kLooks && !moved; ++look) {
        for (const std::size_t rank : in_node_) {
            if (pump_peer(rank)) moved = true;
        }
    }
    ++looks_;
    const unsigned between = !has_remote_ ? kLooksBetweenSockets : moved ? kMovesBetweenSockets : 1;
    if (looks_ % between == 0) pump_sockets();
}

void TcpLink::pump_sockets() {
    std::array<epoll_event, 16> events;
    const int there = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < there; ++i) {
        const auto rank = static_cast<std::size_t>(events[static_cast<std::size_t>(i)].data.u64);
        if (peers_[rank].watched) {
            heed_watched(rank);
        } else {
            (void)pump_peer(rank);
        }
    }
}

/// Whether anything has moved.
bool TcpLink::pump_peer(std::size_t rank) {
    Connection& connection = *peers_[rank].connection;
    bool moved = false;
    for (bool again = true; again;) {
        if (connection.pump()) moved = true;
        const std::optional<Notice> notice = connection.take_notice();
        again = notice.has_value();
        if (again)
            (void)catch_exceptions([&] {
                keep(static_cast<int>(rank), *notice);
                return Status();
            });
    }
    want_output(rank);
    return moved;
}

/// The peer has ended. What it has written before is still read.
void TcpLink::heed_watched(std::size_t rank) {
    (void)pump_peer(rank);
    peers_[rank].connection->lose(Status::error(ONEBIT_ERROR_TRANSPORT, "%s", kPeerHasGone));
    want_output(rank);
}

/// Has epoll look for room as long as bytes wait for it, and for nothing once the peer is gone.
void TcpLink::want_output(std::size_t rank) {
    const Peer& peer = peers_[rank];
    std::uint32_t events = 0;
    if (peer.connection->lost().ok()) {
        events = EPOLLIN;
        if (!peer.watched && peer.connection->has_output()) events |= EPOLLOUT;
    }
    if (epoll_ < 0 || std::exchange(events_[rank], events) == events) return;
    epoll_event event{};
    event.events = events;
    event.data.u64 = rank;
    epoll_ctl(epoll_, events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD, peer.descriptor, &event);
}

} // namespace onebit
