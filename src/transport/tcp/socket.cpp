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
#include <set>

namespace onebit {
namespace {

/// All sockets of this process.
class OpenSockets {
  public:
    static OpenSockets& instance() {
        static OpenSockets& sockets = *new OpenSockets; // for good: a process may fork while it ends
        return sockets;
    }
    void add(int descriptor) {
        const std::lock_guard lock(mutex_);
        descriptors_.insert(descriptor);
    }
    /// Closes it unless it is a parent's, whose number may be another file's by now.
    void close(int descriptor) {
        const std::lock_guard lock(mutex_);
        if (descriptors_.erase(descriptor) > 0) ::close(descriptor);
    }

  private:
    /// Nobody is in the table while a process forks: the child would find it locked for ever.
    OpenSockets() {
        pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                       [] {
                           for (const int descriptor : instance().descriptors_) ::close(descriptor);
                           instance().descriptors_.clear();
                           instance().mutex_.unlock();
                       });
    }

    std::mutex mutex_;
    std::set<int> descriptors_;
};

Status lost(const char* what) {
    return Status::error(ONEBIT_ERROR_TRANSPORT, "%s", what);
}

} // namespace

Socket::Socket(int descriptor) : descriptor_(descriptor) {
    if (descriptor >= 0) OpenSockets::instance().add(descriptor);
}

Socket::~Socket() {
    if (descriptor_ >= 0) OpenSockets::instance().close(descriptor_);
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
