// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/handshake.hpp"

#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace onebit {
namespace {

constexpr std::array<char, 8> kMagic = {'o', 'n', 'e', 'b', 'i', 't', '0', '1'};
constexpr std::size_t kMostStrangers = 64; ///< besides the ranks that may be among them
constexpr int kMilliseconds = 50;          ///< between two looks at the clock
/// The time that the others have to connect after a connected peer has gone.
constexpr std::chrono::seconds kForTheRest{1};

/// Takes the same time wherever they differ.
bool same(const Secret& a, const Secret& b) {
    std::byte differs{};
    for (std::size_t i = 0; i < a.size(); ++i) differs |= a[i] ^ b[i];
    return differs == std::byte{};
}

Status failed(const char* call, int error) {
    return Status::error(ONEBIT_ERROR_TRANSPORT, "%s: %s", call, std::strerror(error));
}

} // namespace

Status draw_secret(Secret* secret) {
    std::size_t drawn = 0;
    while (drawn < secret->size()) {
        const ssize_t more = getrandom(secret->data() + drawn, secret->size() - drawn, 0);
        if (more < 0 && errno != EINTR) return failed("getrandom", errno);
        if (more > 0) drawn += static_cast<std::size_t>(more);
    }
    return {};
}

Status Listener::open(Address* address, Listener* listener) {
    Socket opened(socket(address->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!opened) return failed("socket", errno);
    sockaddr_storage storage;
    socklen_t length = to_system(*address, &storage);
    auto* const name = reinterpret_cast<sockaddr*>(&storage);
    if (bind(opened.get(), name, length) != 0 || listen(opened.get(), SOMAXCONN) != 0) {
        const int reason = errno;
        const bool taken = reason == EADDRINUSE; // every port is, because none was asked for
        return Status::error(ONEBIT_ERROR_TRANSPORT, "can't listen at %s: %s%s", to_string(*address).c_str(),
                             std::strerror(reason), taken ? "; widen net.ipv4.ip_local_port_range" : "");
    }
    if (getsockname(opened.get(), name, &length) != 0) return failed("getsockname", errno);
    address->port = port_of(storage);
    listener->socket_ = std::move(opened);
    return {};
}

Greeting::Outcome Greeting::read() {
    auto* const bytes = reinterpret_cast<char*>(&hello);
    const ssize_t received = recv(socket.get(), bytes + got, sizeof(Hello) - got, MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return Outcome::kMore;
    if (received <= 0) return Outcome::kClosed;
    got += static_cast<std::size_t>(received);
    return got == sizeof(Hello) ? Outcome::kWhole : Outcome::kMore;
}

Handshake::Handshake(int rank, const Listener& listener, std::vector<Place> places, std::vector<bool> sees_memory)
    : rank_(static_cast<std::size_t>(rank)),
      listener_(listener),
      places_(std::move(places)),
      sees_memory_(std::move(sees_memory)),
      peers_(places_.size()),
      gone_(peers_.size()) {
    strangers_.reserve(kMostStrangers + peers_.size());
    polled_.reserve(1 + peers_.size() + strangers_.capacity());
    peers_[rank_].stage = Stage::kDone;
}

Status Handshake::run(double timeout) {
    const auto begin = Clock::now();
    for (std::size_t r = 0; r < rank_; ++r) ONEBIT_RETURN_IF_ERROR(connect_to(r));
    while (!std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.connected(); })) {
        ONEBIT_RETURN_IF_ERROR(look());
        ONEBIT_RETURN_IF_ERROR(check_clock(begin, timeout));
    }
    return {};
}

/// Whether to go on waiting.
Status Handshake::check_clock(Clock::time_point begin, double timeout) const {
    const auto now = Clock::now();
    if (gone_ < peers_.size() && now - gone_at_ > kForTheRest) {
        return Status::error(ONEBIT_ERROR_TRANSPORT, "%s has given up, or ended, while ranks connected",
                             name(gone_).c_str());
    }
    if (timeout <= 0 || std::chrono::duration<double>(now - begin).count() <= timeout) return {};
    return Status::error(ONEBIT_ERROR_TIMEOUT, "no connection after %g seconds with %s (ONEBIT_TIMEOUT)", timeout,
                         missing().c_str());
}

Connected Handshake::take(std::size_t rank) {
    Greeting& greeting = peers_[rank].greeting;
    return {std::move(greeting.socket), greeting.hello.sees_memory != 0};
}

std::string Handshake::name(std::size_t rank) const {
    return "rank " + std::to_string(rank) + " at " + to_string(places_[rank].address);
}

/// The ranks that are not connected.
std::string Handshake::missing() const {
    constexpr int kNamed = 8;
    std::string text;
    int number = 0;
    for (std::size_t r = 0; r < peers_.size(); ++r) {
        if (peers_[r].connected() || ++number > kNamed) continue;
        text += (text.empty() ? "" : ", ") + name(r);
    }
    return number > kNamed ? text + " and " + std::to_string(number - kNamed) + " others" : text;
}

Status Handshake::connect_to(std::size_t rank) {
    const Address& to = places_[rank].address;
    sockaddr_storage storage;
    Peer& peer = peers_[rank];
    peer.greeting.socket = Socket(socket(to.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!peer.greeting.socket) return failed("socket", errno);
    Address from = places_[rank_].address; // the traffic stays on the interface that was chosen
    from.port = 0;
    const int descriptor = peer.greeting.socket.get();
    socklen_t length = to_system(from, &storage);
    if (from.family == to.family && bind(descriptor, reinterpret_cast<sockaddr*>(&storage), length) != 0) {
        return failed("bind", errno);
    }
    length = to_system(to, &storage);
    peer.stage = Stage::kConnecting;
    if (connect(descriptor, reinterpret_cast<sockaddr*>(&storage), length) == 0 || errno == EINPROGRESS) return {};
    return unreachable(rank, errno);
}

Status Handshake::unreachable(std::size_t rank, int error) const {
    return Status::error(ONEBIT_ERROR_TRANSPORT,
                         "can't connect to %s: %s. ONEBIT_INTERFACE names the network interface to use",
                         name(rank).c_str(), std::strerror(error));
}

Status Handshake::greet(std::size_t rank) {
    const Greeting::Hello hello = {kMagic, static_cast<std::uint32_t>(rank_), sees_memory_[rank] ? 1U : 0U,
                                   places_[rank].secret};
    const int descriptor = peers_[rank].greeting.socket.get();
    const int at_once = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
    // It fits into the buffer of an empty socket.
    if (send(descriptor, &hello, sizeof(hello), MSG_NOSIGNAL) == ssize_t{sizeof(hello)}) return {};
    return unreachable(rank, errno);
}

/// Waits for a moment, and goes on with whatever has happened.
Status Handshake::look() {
    polled_.assign(1, {listener_.descriptor(), POLLIN, 0});
    for (const Peer& peer : peers_) {
        constexpr std::array<short, 5> kEvents = {0, POLLOUT, POLLIN, POLLRDHUP, 0}; // by stage
        const int descriptor = peer.stage == Stage::kGone ? -1 : peer.greeting.socket.get();
        polled_.push_back({descriptor, kEvents[static_cast<std::size_t>(peer.stage)], 0});
    }
    for (const Greeting& stranger : strangers_) polled_.push_back({stranger.socket.get(), POLLIN, 0});
    if (poll(polled_.data(), polled_.size(), kMilliseconds) < 0) return {};
    for (std::size_t r = 0; r < peers_.size(); ++r) {
        if (polled_[1 + r].revents != 0) ONEBIT_RETURN_IF_ERROR(go_on(r));
    }
    ONEBIT_RETURN_IF_ERROR(read_strangers());
    if (polled_[0].revents != 0) accept_stranger();
    return {};
}

Status Handshake::go_on(std::size_t rank) {
    Peer& peer = peers_[rank];
    if (peer.stage == Stage::kConnecting) {
        int error = 0;
        socklen_t length = sizeof(error);
        getsockopt(peer.greeting.socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
        if (error != 0) return unreachable(rank, error);
        peer.stage = Stage::kGreeted;
        return greet(rank);
    }
    if (peer.stage == Stage::kDone) {
        // The peer may have said why. That is read once the others are connected.
        peer.stage = Stage::kGone;
        if (gone_ == peers_.size()) {
            gone_ = rank;
            gone_at_ = Clock::now();
        }
        return {};
    }
    const auto outcome = peer.greeting.read();
    if (outcome == Greeting::Outcome::kMore) return {};
    const Greeting::Hello& hello = peer.greeting.hello;
    if (outcome == Greeting::Outcome::kClosed || hello.magic != kMagic || hello.rank != rank ||
        !same(hello.secret, places_[rank_].secret)) {
        return Status::error(ONEBIT_ERROR_TRANSPORT, "what answers in the place of %s is not that rank",
                             name(rank).c_str());
    }
    peer.stage = Stage::kDone;
    return {};
}

Status Handshake::read_strangers() {
    for (std::size_t s = 0; s < strangers_.size(); ++s) {
        if (polled_[1 + peers_.size() + s].revents == 0) continue;
        const auto outcome = strangers_[s].read();
        if (outcome == Greeting::Outcome::kMore) continue;
        Greeting stranger = std::move(strangers_[s]);
        if (outcome == Greeting::Outcome::kWhole) ONEBIT_RETURN_IF_ERROR(admit(std::move(stranger)));
    }
    std::erase_if(strangers_, [](const Greeting& stranger) { return !stranger.socket; });
    return {};
}

void Handshake::accept_stranger() {
    Socket accepted(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted) return;
    if (strangers_.size() == kMostStrangers + peers_.size()) strangers_.erase(strangers_.begin());
    strangers_.push_back({std::move(accepted), {}, 0});
}

/// A stranger that shows the secret is the peer that it says. Any other is turned away.
Status Handshake::admit(Greeting stranger) {
    const Greeting::Hello& hello = stranger.hello;
    const std::size_t rank = hello.rank;
    if (hello.magic != kMagic || !same(hello.secret, places_[rank_].secret)) return {};
    if (rank <= rank_ || rank >= peers_.size() || peers_[rank].stage != Stage::kAwaited) return {};
    peers_[rank] = {Stage::kDone, std::move(stranger)};
    return greet(rank);
}

} // namespace onebit
