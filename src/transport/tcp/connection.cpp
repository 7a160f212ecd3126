// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/connection.hpp"

#include <algorithm>
#include <cstring>

#include "core/copy_bytes.hpp"

namespace onebit {
namespace {

/// Bytes read at once, where that saves system calls. A read of at least kDirect bytes goes straight to its place.
constexpr std::size_t kReadAhead = std::size_t{1} << 16;
constexpr std::size_t kDirect = 4096;
/// Bytes of messages that no receive waits for. A peer that sends more is not read further until a receive waits.
constexpr std::size_t kMostUnexpected = std::size_t{64} << 20;
/// Receives that a peer may announce before their sends are there: more than all handles of a rank can have under way.
constexpr std::size_t kMostReady = std::size_t{1} << 20;
constexpr std::size_t kNoticeBytes = sizeof(Notice);

} // namespace

// --------------------------------------------------------------------------------------------------- queue ----

void TransferQueue::push(Transfer& transfer) {
    transfer.next = nullptr;
    *end_ = &transfer;
    end_ = &transfer.next;
}

Transfer* TransferQueue::take_from(Transfer** place) {
    Transfer* const taken = *place;
    *place = taken->next;
    if (end_ == &taken->next) end_ = place;
    taken->next = nullptr;
    return taken;
}

Transfer* TransferQueue::take(int tag, std::size_t bytes) {
    for (Transfer** place = &first_; *place != nullptr; place = &(*place)->next) {
        if ((*place)->tag == tag && (*place)->bytes == bytes) return take_from(place);
    }
    return nullptr;
}

bool TransferQueue::remove(Transfer& transfer) {
    for (Transfer** place = &first_; *place != nullptr; place = &(*place)->next) {
        if (*place == &transfer) return take_from(place) != nullptr;
    }
    return false;
}

// ----------------------------------------------------------------------------------------------- transfers ----

Connection::Connection(std::unique_ptr<Stream> stream)
    : stream_(std::move(stream)), ahead_(stream_->reads_ahead() ? kReadAhead : 0) {
    notices_.reserve(1); // the first one needs no memory
}

void Connection::post_send(Transfer& transfer) {
    transfer.pending = true;
    if (transfer.bytes > kEager) {
        const auto ready =
            std::find(ready_.begin(), ready_.end(), std::pair(transfer.tag, std::uint64_t{transfer.bytes}));
        if (ready == ready_.end()) return waiting_.push(transfer);
        ready_.erase(ready);
    }
    sends_.push(transfer);
}

void Connection::post_receive(Transfer& transfer) {
    transfer.pending = true;
    const auto arrived = std::find_if(unexpected_.begin(), unexpected_.end(), [&](const Unexpected& message) {
        return message.taker == nullptr && message.tag == transfer.tag && message.bytes == transfer.bytes;
    });
    if (arrived == unexpected_.end()) {
        transfer.announced = transfer.bytes <= kEager;
        if (!transfer.announced) ++unannounced_;
        return receives_.push(transfer);
    }
    arrived->taker = &transfer;
    if (!arrived->whole) return;
    copy_bytes(transfer.data, arrived->data.get(), transfer.bytes);
    transfer.pending = false;
    unexpected_bytes_ -= room_for(transfer.bytes);
    unexpected_.erase(arrived);
}

void Connection::cancel_send(Transfer& transfer) {
    transfer.pending = false;
    if (waiting_.remove(transfer) || sends_.remove(transfer)) return;
    if (!outgoing_ || outgoing_->transfer != &transfer) return;
    const Status copied = catch_exceptions([&] { // the peer has a part of it and waits for the rest
        rest_.assign(outgoing_->body.begin(), outgoing_->body.end());
        return Status();
    });
    if (!copied.ok()) return lose(copied);
    outgoing_->transfer = nullptr;
    outgoing_->body = rest_;
}

void Connection::cancel_receive(Transfer& transfer) {
    transfer.pending = false;
    if (receives_.remove(transfer)) {
        if (!transfer.announced) --unannounced_;
    } else if (incoming_ && incoming_->transfer == &transfer) {
        incoming_->transfer = nullptr;
        incoming_->target = nullptr;
    } else {
        for (Unexpected& message : unexpected_) {
            if (message.taker == &transfer) message.taker = nullptr;
        }
    }
}

void Connection::tell(const Notice& notice) noexcept {
    (void)catch_exceptions([&] {
        notices_.push_back(notice);
        return Status();
    });
}

void Connection::lose(const Status& why) {
    if (!lost_.ok()) return;
    lost_ = departed_ ? Status::error(ONEBIT_ERROR_TRANSPORT, "it has destroyed its communicator") : why;
}

/// Sends first, because a peer waits for the bytes.
bool Connection::pump() {
    bool moved = pump_out();
    if (pump_in()) {
        moved = true;
        (void)pump_out(); // what the peer has become ready for
    }
    return moved;
}

// ----------------------------------------------------------------------------------------------------- in ----

/// Reads frames until no more bytes are there, or something has to be waited for.
bool Connection::pump_in() {
    bool moved = false;
    drained_ = false;
    while (lost_.ok() && !has_notice_) {
        const bool more = incoming_ ? read_body() : header_ ? begin_frame() : read_header();
        if (!more) break;
        moved = true;
    }
    return moved;
}

std::optional<Notice> Connection::take_notice() {
    if (!has_notice_) return {};
    has_notice_ = false;
    return notice_;
}

/// Up to `bytes` bytes: from those read ahead, if there are any, else from the stream. False where there are none.
bool Connection::read(std::byte* into, std::size_t bytes, std::size_t* got) {
    const std::size_t length = std::min(bytes, ahead_end_ - ahead_begin_);
    if (length > 0) {
        std::memcpy(into, ahead_.data() + ahead_begin_, length);
        ahead_begin_ += length;
        *got = length;
        return true;
    }
    if (drained_) return false;
    const bool through_buffer = bytes < kDirect && !ahead_.empty();
    const std::span<std::byte> room = through_buffer ? std::span(ahead_) : std::span(into, bytes);
    const Status received = stream_->receive(room, got);
    if (!received.ok()) lose(received);
    drained_ = *got < room.size();
    if (*got == 0) return false;
    if (!through_buffer) return true;
    ahead_begin_ = 0;
    ahead_end_ = *got;
    return read(into, bytes, got);
}

bool Connection::read_header() {
    std::size_t got = 0;
    if (!read(header_bytes_.data() + header_got_, sizeof(Header) - header_got_, &got)) return false;
    header_got_ += got;
    if (header_got_ < sizeof(Header)) return true;
    header_got_ = 0;
    Header header;
    std::memcpy(&header, header_bytes_.data(), sizeof(Header));
    header_ = header;
    return true;
}

/// The bytes that a message without a receive counts for: an empty one takes memory, too.
std::size_t Connection::room_for(std::size_t bytes) {
    return bytes + sizeof(Unexpected);
}

/// False where there is no memory for what follows: the next pump tries again.
bool Connection::begin_frame() {
    const Status begun = catch_exceptions([&] {
        switch (header_->kind) {
            case Kind::kMessage:
                begin_message();
                return Status();
            case Kind::kReady:
                if (ready_.size() == kMostReady) break;
                take_ready();
                return Status();
            case Kind::kNotice:
                if (header_->bytes != kNoticeBytes) break;
                incoming_ = Incoming{reinterpret_cast<std::byte*>(&notice_), kNoticeBytes};
                incoming_->notice = true;
                return Status();
            case Kind::kGoodbye:
                departed_ = true;
                return Status();
        }
        return Status::error(ONEBIT_ERROR_TRANSPORT, "it sent what is no message");
    });
    if (begun.code() == ONEBIT_ERROR_OUT_OF_MEMORY) return false;
    if (!begun.ok()) lose(begun);
    header_.reset();
    return lost_.ok();
}

void Connection::begin_message() {
    Incoming incoming;
    incoming.bytes = header_->bytes;
    incoming.transfer = receives_.take(header_->tag, header_->bytes);
    if (incoming.transfer != nullptr) {
        incoming.target = incoming.transfer->data;
    } else if (header_->bytes <= kEager) {
        if (unexpected_bytes_ + room_for(header_->bytes) > kMostUnexpected) throw std::bad_alloc();
        unexpected_.push_back({header_->tag, header_->bytes, std::make_unique<std::byte[]>(header_->bytes)});
        unexpected_bytes_ += room_for(header_->bytes);
        incoming.unexpected = &unexpected_.back();
        incoming.target = incoming.unexpected->data.get();
    } // else its receive was cancelled
    incoming_ = incoming;
}

void Connection::take_ready() {
    if (Transfer* const send = waiting_.take(header_->tag, header_->bytes); send != nullptr) {
        sends_.push(*send);
    } else {
        ready_.emplace_back(header_->tag, header_->bytes);
    }
}

bool Connection::read_body() {
    Incoming& incoming = *incoming_;
    std::size_t got = 0;
    if (incoming.got < incoming.bytes) {
        std::array<std::byte, 4096> nowhere;
        const std::size_t left = incoming.bytes - incoming.got;
        const bool wanted = incoming.target != nullptr;
        std::byte* const into = wanted ? incoming.target + incoming.got : nowhere.data();
        if (!read(into, wanted ? left : std::min(left, nowhere.size()), &got)) return false;
        incoming.got += got;
    }
    if (incoming.got == incoming.bytes) end_body();
    return true;
}

void Connection::end_body() {
    const Incoming incoming = *std::exchange(incoming_, std::nullopt);
    if (incoming.notice) has_notice_ = true;
    if (incoming.transfer != nullptr) incoming.transfer->pending = false;
    if (incoming.unexpected == nullptr) return;
    incoming.unexpected->whole = true;
    Transfer* const taker = incoming.unexpected->taker;
    if (taker == nullptr) return;
    copy_bytes(taker->data, incoming.unexpected->data.get(), taker->bytes);
    taker->pending = false;
    unexpected_bytes_ -= room_for(taker->bytes);
    std::erase_if(unexpected_, [&](const Unexpected& message) { return &message == incoming.unexpected; });
}

// ---------------------------------------------------------------------------------------------------- out ----

bool Connection::has_output() const {
    return lost_.ok() &&
           (outgoing_ || notices_sent_ < notices_.size() || unannounced_ > 0 || !sends_.empty() || goodbye_);
}

bool Connection::pump_out() {
    bool moved = false;
    while (lost_.ok() && (outgoing_ || next_frame())) {
        Outgoing& frame = *outgoing_;
        const auto header = std::as_bytes(std::span(&frame.header, 1)).subspan(frame.header_sent);
        std::size_t taken = 0;
        const Status sent = stream_->send(header, frame.body, &taken);
        if (!sent.ok()) {
            (void)pump_in(); // what the peer said before it went
            lose(sent);
        }
        if (taken == 0) break;
        moved = true;
        const std::size_t of_header = std::min(taken, header.size());
        frame.header_sent += of_header;
        frame.body = frame.body.subspan(taken - of_header);
        if (frame.header_sent < sizeof(Header) || !frame.body.empty()) break; // there is no more room
        if (frame.transfer != nullptr) frame.transfer->pending = false;
        outgoing_.reset();
    }
    return moved;
}

void Connection::start_frame(const Header& header, std::span<const std::byte> body, Transfer* transfer) {
    outgoing_ = Outgoing{header, 0, body, transfer};
}

/// What is to be sent next, if there is anything.
bool Connection::next_frame() {
    if (notices_sent_ < notices_.size()) {
        sent_notice_ = notices_[notices_sent_++];
        if (notices_sent_ == notices_.size()) {
            notices_.clear(); // keeps its memory
            notices_sent_ = 0;
        }
        start_frame({Kind::kNotice, 0, kNoticeBytes}, std::as_bytes(std::span(&sent_notice_, 1)));
    } else if (unannounced_ > 0) {
        Transfer* receive = receives_.first();
        while (receive->announced) receive = receive->next;
        receive->announced = true;
        --unannounced_;
        start_frame({Kind::kReady, receive->tag, receive->bytes}, {});
    } else if (!sends_.empty()) {
        Transfer& send = *sends_.first();
        sends_.remove(send);
        start_frame({Kind::kMessage, send.tag, send.bytes}, {send.data, send.bytes}, &send);
    } else if (goodbye_) {
        goodbye_ = false;
        start_frame({Kind::kGoodbye, 0, 0}, {});
    }
    return outgoing_.has_value();
}

} // namespace onebit
