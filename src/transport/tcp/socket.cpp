// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/socket.hpp"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <type_traits>

namespace onebit {
namespace {

Status lost(const char* what) {
    return Status::error(ONEBIT_ERROR_TRANSPORT, "%s", what);
}

} // namespace

/// A list whose links lie in its members.
class Socket::OpenSockets {
  public:
    static OpenSockets& instance() noexcept {
        static OpenSockets sockets; // never destroyed: a process may fork while it ends
        static_assert(std::is_trivially_destructible_v<OpenSockets>);
        return sockets;
    }
    void add(Socket& socket, int descriptor) noexcept {
        const std::lock_guard lock(mutex_);
        link(socket, descriptor);
    }
    void move(Socket& from, Socket& to) noexcept {
        const std::lock_guard lock(mutex_);
        if (from.descriptor_ >= 0) link(to, unlink(from));
    }
    void close(Socket& socket) noexcept {
        const std::lock_guard lock(mutex_);
        if (socket.descriptor_ >= 0) ::close(unlink(socket));
    }

  private:
    /// No thread uses the list while a process forks: else the child would find it locked for ever.
    OpenSockets() noexcept {
        pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                       [] {
                           OpenSockets& sockets = instance();
                           while (sockets.first_ != nullptr) ::close(sockets.unlink(*sockets.first_));
                           sockets.mutex_.unlock();
                       });
    }
    void link(Socket& socket, int descriptor) noexcept {
        socket.descriptor_ = descriptor;
        socket.behind_ = std::exchange(first_, &socket);
        if (socket.behind_ != nullptr) socket.behind_->before_ = &socket;
    }
    int unlink(Socket& socket) noexcept {
        (socket.before_ == nullptr ? first_ : socket.before_->behind_) = socket.behind_;
        if (socket.behind_ != nullptr) socket.behind_->before_ = socket.before_;
        socket.before_ = nullptr;
        socket.behind_ = nullptr;
        return std::exchange(socket.descriptor_, -1);
    }

    std::mutex mutex_;
    Socket* first_ = nullptr;
};

Socket::Socket(int descriptor) noexcept {
    if (descriptor >= 0) OpenSockets::instance().add(*this, descriptor);
}

Socket::Socket(Socket&& other) noexcept {
    OpenSockets::instance().move(other, *this);
}

Socket& Socket::operator=(Socket&& other) noexcept {
    if (this == &other) return *this;
    OpenSockets::instance().close(*this);
    OpenSockets::instance().move(other, *this);
    return *this;
}

Socket::~Socket() {
    OpenSockets::instance().close(*this);
}

Status SocketStream::send(std::span<const std::byte> head, std::span<const std::byte> body, std::size_t* taken) {
    *taken = 0;
    std::array<iovec, 2> parts = {iovec{const_cast<std::byte*>(head.data()), head.size()},
                                  iovec{const_cast<std::byte*>(body.data()), body.size()}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
        *taken = static_cast<std::size_t>(sent);
        return {};
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS) return {};
    return lost(std::strerror(errno));
}

Status SocketStream::receive(std::span<std::byte> into, std::size_t* got) {
    *got = 0;
    const ssize_t received = recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
    if (received > 0) {
        *got = static_cast<std::size_t>(received);
        return {};
    }
    if (received == 0) return lost(kPeerHasGone);
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
    return lost(std::strerror(errno));
}

} // namespace onebit
