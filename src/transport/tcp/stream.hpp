// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "core/status.hpp"

namespace onebit {

/// Bytes in order between this rank and one peer, both ways. Never blocks. Used by one thread at a time.
class Stream {
  public:
    virtual ~Stream() = default;
    /// Takes as many bytes as it has room for: of `head` first, then of `body`. TRANSPORT: the peer is gone.
    virtual Status send(std::span<const std::byte> head, std::span<const std::byte> body, std::size_t* taken) = 0;
    /// Gives as many bytes as have arrived and `into` has room for. TRANSPORT: the peer is gone, and all that it sent
    /// has been given.
    virtual Status receive(std::span<std::byte> into, std::size_t* got) = 0;
    /// Whether reading more at once than is needed saves a system call.
    virtual bool reads_ahead() const = 0;
};

} // namespace onebit
