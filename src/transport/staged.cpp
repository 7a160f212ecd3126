// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/staged.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/aligned_buffer.hpp"
#include "core/partition.hpp"
#include "transport/forwarding.hpp"

namespace onebit {
namespace {

/// Parts of an exchange. Those in a GPU's memory have room on the host, unless they travel `direct`. A part that goes
/// to several ranks has one room. Parts in rows of an array are copied at once.
class HostStopover {
  public:
    HostStopover(std::vector<Part> parts, bool direct) : across_(std::move(parts)) {
        has_device_parts_ = std::ranges::any_of(across_, &Part::on_device);
        if (direct) return;
        std::vector<std::size_t> places; // of those on the device, in the room
        std::size_t room = 0;
        const Part* before = nullptr;
        for (const Part& part : across_) {
            if (!part.on_device) continue;
            const bool again = before != nullptr && part.data == before->data && part.bytes == before->bytes;
            if (!again) {
                const bool next_row = before != nullptr && is_next_row(part, *before);
                if (!next_row) copies_.push_back({part.data, part.pitch, room, part.bytes, 0});
                ++copies_.back().rows;
            }
            places.push_back(again ? places.back() : room);
            room += again ? 0 : pitch_in_room(part.bytes);
            before = &part;
        }
        room_ = AlignedBuffer<std::byte>(room, cuda::pinned_memory());
        auto place = places.begin();
        for (Part& part : across_) {
            if (std::exchange(part.on_device, false)) part.data = room_.data() + *place++;
        }
    }

    /// What the inner transport sends or receives.
    const std::vector<Part>& across() const { return across_; }
    bool has_device_parts() const { return has_device_parts_; }

    Status copy_from_device(cuda::Stream stream) {
        for (const Copy& copy : copies_) {
            ONEBIT_RETURN_IF_ERROR(cuda::copy_rows_later(room_.data() + copy.place, pitch_in_room(copy.bytes),
                                                         copy.on_device, copy.pitch, copy.bytes, copy.rows, stream));
        }
        return {};
    }
    Status copy_to_device(cuda::Stream stream) const {
        for (const Copy& copy : copies_) {
            ONEBIT_RETURN_IF_ERROR(cuda::copy_rows_later(copy.on_device, copy.pitch, room_.data() + copy.place,
                                                         pitch_in_room(copy.bytes), copy.bytes, copy.rows, stream));
        }
        return {};
    }

  private:
    struct Copy {
        void* on_device;
        std::size_t pitch; ///< there
        std::size_t place; ///< in the room
        std::size_t bytes; ///< of each row
        std::size_t rows;
    };
    static std::size_t pitch_in_room(std::size_t bytes) { return ceil_divide(bytes, 64) * 64; }
    static bool is_next_row(const Part& part, const Part& before) {
        return before.pitch > 0 && std::max(before.pitch, pitch_in_room(before.bytes)) <= cuda::kMostPitch &&
               part.pitch == before.pitch && part.bytes == before.bytes &&
               part.data == static_cast<std::byte*>(before.data) + before.pitch;
    }

    std::vector<Part> across_;
    bool has_device_parts_ = false;
    std::vector<Copy> copies_;
    AlignedBuffer<std::byte> room_;
};

class StagedExchange;

/// Exchanges whose messages are on their way down. They set out in the order in which they were started, whichever
/// exchange is tested, as in any transport.
struct Departures {
    StagedExchange* first = nullptr;
    StagedExchange* last = nullptr;
};

/// Copies down, sends across, copies up; or only sends across, when the stream has come there. The room is free again
/// as soon as the messages are across: in the stream, the next copy down is behind the last copy up.
class StagedExchange final : public Exchange {
  public:
    StagedExchange(HostStopover sends, HostStopover receives, cuda::Stream stream,
                   std::shared_ptr<Departures> departures)
        : sends_(std::move(sends)),
          receives_(std::move(receives)),
          stream_(stream),
          departures_(std::move(departures)) {}
    StagedExchange(const StagedExchange&) = delete;
    StagedExchange& operator=(const StagedExchange&) = delete;

    ~StagedExchange() override {
        leave();
        (void)cuda::wait_for(stream_); // for the last copy up, out of memory that is about to be freed
    }

    Status plan(Transport& inner, int tag) {
        return inner.plan_exchange(sends_.across(), receives_.across(), tag, &across_);
    }

    Status start() override {
        ONEBIT_RETURN_IF_ERROR(sends_.copy_from_device(stream_));
        // Also where nothing is copied: messages must not arrive in room that is still being read.
        ONEBIT_RETURN_IF_ERROR(down_.record(stream_));
        StagedExchange*& end = departures_->last == nullptr ? departures_->first : departures_->last->next_;
        end = departures_->last = this;
        state_ = State::kDeparting;
        return {};
    }

    Status test(bool* done) override {
        ONEBIT_RETURN_IF_ERROR(depart());
        if (state_ == State::kAcross) {
            bool received = false;
            ONEBIT_RETURN_IF_ERROR(across_->test(&received));
            if (received) {
                ONEBIT_RETURN_IF_ERROR(receives_.copy_to_device(stream_));
                state_ = State::kArrived;
            }
        }
        *done = state_ == State::kArrived;
        return {};
    }

  private:
    enum class State { kDeparting, kAcross, kArrived };

    /// All exchanges that are down set out.
    Status depart() {
        while (StagedExchange* const first = departures_->first) {
            bool down = false;
            ONEBIT_RETURN_IF_ERROR(first->down_.test(&down));
            if (!down) return {};
            first->leave();
            first->state_ = State::kAcross;
            ONEBIT_RETURN_IF_ERROR(first->across_->start());
        }
        return {};
    }

    /// Takes this one out of the queue, if it is there.
    void leave() {
        StagedExchange* before = nullptr;
        for (StagedExchange** at = &departures_->first; *at != nullptr; before = *at, at = &(*at)->next_) {
            if (*at != this) continue;
            if (departures_->last == this) departures_->last = before;
            *at = std::exchange(next_, nullptr);
            return;
        }
    }

    HostStopover sends_;
    HostStopover receives_;
    cuda::Stream stream_;
    std::shared_ptr<Departures> departures_;
    StagedExchange* next_ = nullptr;
    std::unique_ptr<Exchange> across_;
    cuda::Event down_;
    State state_ = State::kArrived;
};

class StagedTransport final : public ForwardingTransport {
  public:
    StagedTransport(std::unique_ptr<Transport> inner, cuda::Stream stream, bool direct)
        : ForwardingTransport(std::move(inner)),
          stream_(stream),
          direct_(direct),
          name_(std::string(inner_->name()) + (direct ? ", direct" : ", staged")) {}

    const char* name() const override { return name_.c_str(); }
    bool reaches_devices() const override { return true; }

    Status duplicate(int tags, std::unique_ptr<Transport>* channel) override {
        return wrap([&](std::unique_ptr<Transport>* inner) { return inner_->duplicate(tags, inner); }, channel);
    }
    Status split(const std::vector<int>& color_of_rank, std::unique_ptr<Transport>* channel) override {
        return wrap([&](std::unique_ptr<Transport>* inner) { return inner_->split(color_of_rank, inner); }, channel);
    }
    Status split_nodes(const std::vector<int>& node_of_rank, std::unique_ptr<Transport>* channel) override {
        return wrap([&](std::unique_ptr<Transport>* inner) { return inner_->split_nodes(node_of_rank, inner); },
                    channel);
    }

    Status plan_exchange(std::vector<Part> sends, std::vector<Part> receives, int tag,
                         std::unique_ptr<Exchange>* exchange) override {
        drop_empty(sends, receives);
        HostStopover from(std::move(sends), direct_);
        HostStopover to(std::move(receives), direct_);
        if (!from.has_device_parts() && !to.has_device_parts()) {
            return inner_->plan_exchange(from.across(), to.across(), tag, exchange);
        }
        auto staged = std::make_unique<StagedExchange>(std::move(from), std::move(to), stream_, departures_);
        ONEBIT_RETURN_IF_ERROR(staged->plan(*inner_, tag));
        *exchange = std::move(staged);
        return {};
    }

  private:
    /// Channels of the inner transport are staged like it, unless they need no stopover.
    template <typename Make>
    Status wrap(const Make& make, std::unique_ptr<Transport>* channel) {
        std::unique_ptr<Transport> inner;
        ONEBIT_RETURN_IF_ERROR(make(&inner));
        *channel =
            inner->is_stream_ordered() ? std::move(inner) : make_staged_transport(std::move(inner), stream_, direct_);
        return {};
    }

    cuda::Stream stream_;
    bool direct_;
    std::string name_;
    std::shared_ptr<Departures> departures_ = std::make_shared<Departures>(); // exchanges may outlive the transport
};

} // namespace

std::unique_ptr<Transport> make_staged_transport(std::unique_ptr<Transport> inner, cuda::Stream stream, bool direct) {
    return std::make_unique<StagedTransport>(std::move(inner), stream, direct);
}

} // namespace onebit
