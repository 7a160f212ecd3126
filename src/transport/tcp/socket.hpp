// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "transport/tcp/stream.hpp"

namespace onebit {

/// A socket's descriptor, which the object closes. The descriptor is closed in a child of this process, too: else a
/// child that lives on would hide from the peers that its parent has ended. Needs no memory.
class Socket {
  public:
    Socket() = default;
    explicit Socket(int descriptor) noexcept;
    Socket(Socket&& other) noexcept;
    Socket& operator=(Socket&& other) noexcept;
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    ~Socket();

    int get() const { return descriptor_; }
    explicit operator bool() const { return descriptor_ >= 0; }

  private:
    class OpenSockets;

    int descriptor_ = -1;
    // Among this process's open sockets.
    Socket* before_ = nullptr;
    Socket* behind_ = nullptr;
};

/// What is known of a peer whose end of a socket is closed.
inline constexpr const char* kPeerHasGone = "its process has ended, or has closed the connection";

/// A TCP socket that doesn't block.
class SocketStream final : public Stream {
  public:
    /// A connected one, before anything is sent or received.
    void open(Socket socket) { socket_ = std::move(socket); }

    Status send(std::span<const std::byte> head, std::span<const std::byte> body, std::size_t* taken) override;
    Status receive(std::span<std::byte> into, std::size_t* got) override;
    bool reads_ahead() const override { return true; }

  private:
    Socket socket_;
};

} // namespace onebit
