// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/link.hpp"
#include "transport/tcp/stream.hpp"

namespace onebit {

/// One message, which belongs to its exchange. While the message is pending, it is in the connection.
struct Transfer {
    int tag = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    bool pending = false;
    bool announced = false; ///< a receive: the peer knows of it
    Transfer* next = nullptr;
};

/// Transfers in order. A transfer must not be destroyed while it is in the queue.
class TransferQueue {
  public:
    bool empty() const { return first_ == nullptr; }
    Transfer* first() const { return first_; }
    void push(Transfer& transfer);
    /// The first of this tag and length, if there is one.
    Transfer* take(int tag, std::size_t bytes);
    /// False where it isn't there.
    bool remove(Transfer& transfer);

  private:
    Transfer* take_from(Transfer** place);

    Transfer* first_ = nullptr;
    Transfer** end_ = &first_;
};

/// The messages between this rank and one peer, in frames on a stream. A receive takes the first message of its tag and
/// length. A message of at most kEager bytes is sent at once; the receiver keeps it if no receive waits for it yet. A
/// longer message is sent when the peer has said that it is ready, so the message always has a place to go to. Nothing
/// here blocks. Used under the link's lock.
class Connection {
  public:
    static constexpr std::size_t kEager = std::size_t{1} << 16;

    explicit Connection(std::unique_ptr<Stream> stream);
    ~Connection() = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void post_send(Transfer& transfer);
    void post_receive(Transfer& transfer);
    /// Afterwards nothing touches the transfer's memory.
    void cancel_send(Transfer& transfer);
    void cancel_receive(Transfer& transfer);
    void tell(const Notice& notice) noexcept;
    void say_goodbye() { goodbye_ = true; }

    /// Moves on what can move. Returns whether anything has moved.
    bool pump();
    /// Whether bytes wait for room in the stream.
    bool has_output() const;
    /// A notice of the peer's that pump() has found; the next pump() goes on behind it.
    std::optional<Notice> take_notice();

    /// Why the peer can't be talked to any more; else a success.
    const Status& lost() const { return lost_; }
    void lose(const Status& why);
    /// Lets go of the stream; only after lose().
    void close() { stream_.reset(); }

  private:
    enum class Kind : std::uint32_t { kMessage = 1, kReady = 2, kNotice = 3, kGoodbye = 4 };
    struct Header {
        Kind kind = Kind::kMessage;
        std::int32_t tag = 0;
        std::uint64_t bytes = 0; ///< of the message, which follows, except after kReady
    };
    /// A message that no receive has waited for so far.
    struct Unexpected {
        int tag;
        std::size_t bytes;
        std::unique_ptr<std::byte[]> data;
        bool whole = false;
        Transfer* taker = nullptr; ///< the receive that has begun to wait meanwhile
    };
    /// What is being read behind a header.
    struct Incoming {
        std::byte* target = nullptr; ///< nullptr: nobody wants it
        std::size_t bytes = 0;
        std::size_t got = 0;
        Transfer* transfer = nullptr;
        Unexpected* unexpected = nullptr;
        bool notice = false;
    };
    /// What is being sent.
    struct Outgoing {
        Header header;
        std::size_t header_sent = 0;
        std::span<const std::byte> body; ///< what is left of it
        Transfer* transfer = nullptr;
    };

    static std::size_t room_for(std::size_t bytes);
    bool pump_in();
    bool read(std::byte* into, std::size_t bytes, std::size_t* got);
    bool read_header();
    bool read_body();
    bool begin_frame();
    void begin_message();
    void take_ready();
    void end_body();

    bool pump_out();
    bool next_frame();
    void start_frame(const Header& header, std::span<const std::byte> body, Transfer* transfer = nullptr);

    std::unique_ptr<Stream> stream_;
    Status lost_;

    std::vector<std::byte> ahead_; ///< bytes that were read ahead
    std::size_t ahead_begin_ = 0;
    std::size_t ahead_end_ = 0;
    bool drained_ = false;         ///< the stream had less than was asked for
    std::optional<Header> header_; ///< of the frame that is being read
    std::size_t header_got_ = 0;
    std::array<std::byte, sizeof(Header)> header_bytes_{};
    std::optional<Incoming> incoming_;
    TransferQueue receives_;
    int unannounced_ = 0; ///< the receives_ that the peer is still to be told of
    std::list<Unexpected> unexpected_;
    std::size_t unexpected_bytes_ = 0;
    Notice notice_;
    bool has_notice_ = false;
    bool departed_ = false; ///< the peer has said goodbye

    TransferQueue waiting_;                            ///< sends that the peer isn't ready for
    std::vector<std::pair<int, std::uint64_t>> ready_; ///< what the peer is ready for, of sends to come: tag and bytes
    TransferQueue sends_;
    std::optional<Outgoing> outgoing_;
    std::vector<std::byte> rest_; ///< of a message that was cancelled half way
    std::vector<Notice> notices_; ///< to be sent
    std::size_t notices_sent_ = 0;
    Notice sent_notice_;
    bool goodbye_ = false;
};

} // namespace onebit
