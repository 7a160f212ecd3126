// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/mapped_memory.hpp"
#include "transport/tcp/stream.hpp"

namespace onebit {

/// Bytes from one process to another through memory that both see. One writes, one reads. All zero: an empty ring.
struct Ring {
    static constexpr std::size_t kCapacity = std::size_t{1} << 17;

    alignas(64) std::atomic<std::uint64_t> written; ///< bytes in all; the writer's
    alignas(64) std::atomic<std::uint64_t> read;    ///< likewise the reader's
    alignas(64) std::byte data[kCapacity];
};

/// The rings that the other ranks of a node write to for this rank, by their numbers among the node's ranks. Or a
/// peer's inbox, as this rank sees it.
class Inbox {
  public:
    explicit Inbox(std::unique_ptr<MappedMemory> memory) : memory_(std::move(memory)) {}

    static std::size_t bytes(std::size_t ranks) { return ranks * sizeof(Ring); }
    Ring& from(std::size_t rank) const { return reinterpret_cast<Ring*>(memory_->data())[rank]; }
    MappedMemory::Address address() const { return memory_->address(); }
    /// No more ranks will look for it.
    void close() { memory_->close(); }

  private:
    std::unique_ptr<MappedMemory> memory_;
};

/// A pair of rings. They don't show that the peer is gone.
class RingStream final : public Stream {
  public:
    /// `in` lies in `own`, `out` in `peers`.
    RingStream(std::shared_ptr<const Inbox> own, Ring& in, std::unique_ptr<const Inbox> peers, Ring& out)
        : own_(std::move(own)), peers_(std::move(peers)), in_(in), out_(out) {}

    Status send(std::span<const std::byte> head, std::span<const std::byte> body, std::size_t* taken) override;
    Status receive(std::span<std::byte> into, std::size_t* got) override;
    bool reads_ahead() const override { return false; }

  private:
    std::size_t put(std::span<const std::byte> bytes);

    std::shared_ptr<const Inbox> own_;
    std::unique_ptr<const Inbox> peers_;
    Ring& in_;
    Ring& out_;
    std::uint64_t written_ = 0; ///< to `out_`
    std::uint64_t known_read_ = 0;
    std::uint64_t read_ = 0; ///< from `in_`
};

} // namespace onebit
