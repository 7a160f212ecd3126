// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/ring.hpp"

#include <algorithm>
#include <cstring>

namespace onebit {
namespace {

/// Bytes that are handed over together, so that the reader copies while the writer does.
constexpr std::size_t kAtOnce = std::size_t{1} << 14;

/// The number of bytes from `position` to the end of `data`.
std::size_t until_wrap(std::uint64_t position) {
    return Ring::kCapacity - position % Ring::kCapacity;
}

} // namespace

std::size_t RingStream::put(std::span<const std::byte> bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
        if (written_ - known_read_ >= Ring::kCapacity) {
            known_read_ = out_.read.load(std::memory_order_acquire);
            if (written_ - known_read_ >= Ring::kCapacity) break; // full; or the peer's number makes no sense
        }
        const std::size_t room = Ring::kCapacity - (written_ - known_read_);
        const std::size_t length = std::min({bytes.size() - done, room, until_wrap(written_), kAtOnce});
        std::memcpy(out_.data + written_ % Ring::kCapacity, bytes.data() + done, length);
        written_ += length;
        done += length;
        if (done < bytes.size()) out_.written.store(written_, std::memory_order_release);
    }
    return done;
}

Status RingStream::send(std::span<const std::byte> head, std::span<const std::byte> body, std::size_t* taken) {
    *taken = put(head);
    if (*taken == head.size()) *taken += put(body);
    out_.written.store(written_, std::memory_order_release);
    return {};
}

Status RingStream::receive(std::span<std::byte> into, std::size_t* got) {
    *got = 0;
    while (*got < into.size()) {
        const std::uint64_t there = in_.written.load(std::memory_order_acquire) - read_;
        if (there == 0) break;
        if (there > Ring::kCapacity) {
            return Status::error(ONEBIT_ERROR_TRANSPORT, "it wrote nonsense to the memory that both share");
        }
        const std::size_t length =
            std::min({into.size() - *got, static_cast<std::size_t>(there), until_wrap(read_), kAtOnce});
        std::memcpy(into.data() + *got, in_.data + read_ % Ring::kCapacity, length);
        read_ += length;
        *got += length;
        in_.read.store(read_, std::memory_order_release);
    }
    return {};
}

} // namespace onebit
