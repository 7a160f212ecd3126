// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A peer that lies: its messages are refused, or kept within bounds, and no memory outside those bounds is touched.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "core/status.hpp"
#include "support/catch2.hpp"
#include "transport/mapped_memory.hpp"
#include "transport/tcp/connection.hpp"
#include "transport/tcp/ring.hpp"

namespace onebit {
namespace {

/// The frame on the wire, as in connection.hpp.
struct Frame {
    std::uint32_t kind = 0;
    std::int32_t tag = 7;
    std::uint64_t bytes = 0;
};
enum Kind : std::uint32_t { kMessage = 1, kReady = 2, kNotice = 3 };

/// A peer's frame, repeated a number of times; data sent to the peer is discarded.
class Speech final : public Stream {
  public:
    Speech(const Frame& frame, std::size_t times) : words_(std::bit_cast<Words>(frame)), left_(times * words_.size()) {}

    Status send(std::span<const std::byte> head, std::span<const std::byte> body, std::size_t* taken) override {
        *taken = head.size() + body.size();
        return {};
    }
    Status receive(std::span<std::byte> into, std::size_t* got) override {
        *got = std::min(into.size(), left_);
        for (std::size_t i = 0; i < *got; ++i) into[i] = words_[(said_ + i) % words_.size()];
        said_ += *got;
        left_ -= *got;
        return {};
    }
    bool reads_ahead() const override { return true; }

    std::size_t left() const { return left_; }

  private:
    using Words = std::array<std::byte, sizeof(Frame)>;
    Words words_;
    std::size_t left_;
    std::size_t said_ = 0;
};

struct Peer {
    Peer(const Frame& frame, std::size_t times) {
        auto stream = std::make_unique<Speech>(frame, times);
        speech = stream.get();
        connection = std::make_unique<Connection>(std::move(stream));
        for (int look = 0; look < 3; ++look) (void)connection->pump();
    }

    Speech* speech = nullptr; ///< the connection's
    std::unique_ptr<Connection> connection;
};

std::unique_ptr<MappedMemory> memory_of(std::size_t bytes) {
    std::unique_ptr<MappedMemory> memory;
    REQUIRE(MappedMemory::create("onebit.test", bytes, &memory).ok());
    return memory;
}

TEST_CASE("a peer that sends what is no frame is given up") {
    for (const Frame& frame : {Frame{0}, Frame{99}, Frame{kNotice, 0, 1}, Frame{kNotice, 0, ~std::uint64_t{0}}}) {
        CAPTURE(frame.kind, frame.bytes);
        const Peer peer(frame, 4);
        CHECK(peer.connection->lost().code() == ONEBIT_ERROR_TRANSPORT);
        CHECK_THAT(peer.connection->lost().message(), ContainsSubstring("no message"));
    }
}

TEST_CASE("a peer that announces receives without end is given up") {
    const Peer peer({kReady, 7, 1 << 20}, 3 << 20);
    CHECK(peer.connection->lost().code() == ONEBIT_ERROR_TRANSPORT);
    CHECK(peer.speech->left() > 0);
}

TEST_CASE("messages that nobody waits for are read up to a bound, empty ones too") {
    const Peer peer({kMessage, 7, 0}, 4 << 20);
    CHECK(peer.connection->lost().ok());
    CHECK(peer.speech->left() > (std::size_t{2} << 20) * sizeof(Frame));

    Transfer receive{7, nullptr, 0}; // a receive gets one, and makes room for another
    peer.connection->post_receive(receive);
    CHECK_FALSE(receive.pending);
}

TEST_CASE("a message of an impossible length takes no memory") {
    const Peer peer({kMessage, 7, ~std::uint64_t{0}}, 1 << 16);
    CHECK(peer.connection->lost().ok());
    CHECK(peer.speech->left() == 0);
}

TEST_CASE("a ring whose writer counts more than it holds is given up") {
    const auto own = std::make_shared<const Inbox>(memory_of(Inbox::bytes(2)));
    auto peers = std::make_unique<const Inbox>(memory_of(Inbox::bytes(2)));
    Ring& in = own->from(1);
    Ring& out = peers->from(0);
    RingStream stream(own, in, std::move(peers), out);
    std::array<std::byte, 64> bytes{};
    std::size_t got = 0;
    for (const std::uint64_t written : {std::uint64_t{Ring::kCapacity} + 1, ~std::uint64_t{0}}) {
        in.written = written;
        CHECK(stream.receive(bytes, &got).code() == ONEBIT_ERROR_TRANSPORT);
        CHECK(got == 0);
    }

    const std::vector<std::byte> whole(Ring::kCapacity);
    std::size_t taken = 0;
    REQUIRE(stream.send(whole, {}, &taken).ok());
    CHECK(taken == Ring::kCapacity);
    out.read = Ring::kCapacity + 1; // more than was ever written
    CHECK(stream.send(bytes, {}, &taken).ok());
    CHECK(taken == 0);
}

TEST_CASE("memory that a peer shares is mapped only where it has the bytes that are to be there") {
    constexpr std::size_t kBytes = 1 << 16;
    const std::unique_ptr<MappedMemory> memory = memory_of(kBytes);
    MappedMemory::Address address = memory->address();
    std::unique_ptr<MappedMemory> seen;
    REQUIRE(MappedMemory::open(address, kBytes, &seen).ok());
    std::memset(seen->data(), 1, kBytes);

    const auto expect_refused = [&](std::size_t bytes, onebit_status_t code) {
        std::unique_ptr<MappedMemory> other;
        CHECK(MappedMemory::open(address, bytes, &other).code() == code);
        CHECK(other == nullptr);
    };
    expect_refused(2 * kBytes, ONEBIT_ERROR_TRANSPORT); // another size than it announces
    address.bytes = 2 * kBytes;
    expect_refused(2 * kBytes, ONEBIT_ERROR_TRANSPORT); // what it says isn't there
    address.bytes = kBytes;
    REQUIRE(ftruncate(static_cast<int>(address.descriptor), kBytes / 2) == 0);
    expect_refused(kBytes, ONEBIT_ERROR_TRANSPORT); // nor is it any more
    address.inode += 1;
    expect_refused(kBytes, ONEBIT_ERROR_UNSUPPORTED); // something else
}

TEST_CASE("a status that is none is a transport's error") {
    CHECK(told_status(ONEBIT_ERROR_CANCELLED) == ONEBIT_ERROR_CANCELLED);
    CHECK(told_status(ONEBIT_ERROR_CANCELLED + 1) == ONEBIT_ERROR_TRANSPORT);
    CHECK(told_status(~0U) == ONEBIT_ERROR_TRANSPORT);
}

} // namespace
} // namespace onebit
