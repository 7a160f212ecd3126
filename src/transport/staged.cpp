// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/staged.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/aligned_buffer.hpp"

namespace onebit {
namespace {

/// Parts of an exchange, those in a GPU's memory with room for them on the host; none where they travel `direct`.
class Stopover {
  public:
    Stopover(std::vector<Part> parts, bool direct) : parts_(std::move(parts)), across_(parts_) {
        if (direct) return;
        std::size_t bytes = 0;
        for (const Part& part : parts_) bytes += part.on_device ? room_of(part) : 0;
        room_ = AlignedBuffer<std::byte>(bytes, cuda::pinned_memory());
        std::byte* next = room_.data();
        for (Part& part : across_) {
            if (!part.on_device) continue;
            part.data = next;
            part.on_device = false;
            next += room_of(part);
        }
    }

    /// What the inner transport sends or receives.
    const std::vector<Part>& across() const { return across_; }
    bool has_device_parts() const {
        return std::ranges::any_of(parts_, [](const Part& part) { return part.on_device; });
    }

    Status copy_from_device(cuda::Stream stream) const { return copy(across_, parts_, stream); }
    Status copy_to_device(cuda::Stream stream) const { return copy(parts_, across_, stream); }

  private:
    static std::size_t room_of(const Part& part) { return (part.bytes + 63) / 64 * 64; }

    Status copy(const std::vector<Part>& to, const std::vector<Part>& from, cuda::Stream stream) const {
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            if (parts_[i].data == across_[i].data) continue;
            ONEBIT_RETURN_IF_ERROR(cuda::copy_later(to[i].data, from[i].data, parts_[i].bytes, stream));
        }
        return {};
    }

    std::vector<Part> parts_;
    std::vector<Part> across_;
    AlignedBuffer<std::byte> room_;
};

class StagedExchange;

/// Exchanges whose messages are on their way down. They set out in the order in which they were started, whichever of
/// them is asked for, as those of any transport do.
struct Departures {
    StagedExchange* first = nullptr;
    StagedExchange* last = nullptr;
};

/// Down, across, up; or across alone, when the stream has come there. The room is free again as soon as it has been
/// across: the next way down is behind the last way up in the stream.
class StagedExchange final : public Exchange {
  public:
    StagedExchange(Stopover sends, Stopover receives, cuda::Stream stream, std::shared_ptr<Departures> departures)
        : sends_(std::move(sends)),
          receives_(std::move(receives)),
          stream_(stream),
          departures_(std::move(departures)) {}

    ~StagedExchange() override {
        leave();
        (void)cuda::wait_for(stream_); // for the last way up, out of memory that is about to go
    }

    Status plan(Transport& inner, int tag) {
        return inner.plan_exchange(sends_.across(), receives_.across(), tag, &across_);
    }

    Status start() override {
        ONEBIT_RETURN_IF_ERROR(sends_.copy_from_device(stream_));
        // Also where nothing is copied: what is received must not arrive in room that is still being read.
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

    /// All that are down set out.
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

    Stopover sends_;
    Stopover receives_;
    cuda::Stream stream_;
    std::shared_ptr<Departures> departures_;
    StagedExchange* next_ = nullptr;
    std::unique_ptr<Exchange> across_;
    cuda::Event down_;
    State state_ = State::kArrived;
};

class StagedTransport final : public Transport {
  public:
    StagedTransport(std::unique_ptr<Transport> inner, cuda::Stream stream, bool direct)
        : inner_(std::move(inner)),
          stream_(stream),
          direct_(direct),
          name_(std::string(inner_->name()) + (direct ? ", direct" : ", staged")) {}

    const char* name() const override { return name_.c_str(); }
    bool reaches_devices() const override { return true; }
    int rank() const override { return inner_->rank(); }
    int size() const override { return inner_->size(); }

    Status duplicate(std::unique_ptr<Transport>* channel) override {
        std::unique_ptr<Transport> inner;
        ONEBIT_RETURN_IF_ERROR(inner_->duplicate(&inner));
        *channel = make_staged_transport(std::move(inner), stream_, direct_);
        return {};
    }
    Status find_nodes(std::vector<int>* node_of_rank) override { return inner_->find_nodes(node_of_rank); }
    Status split(const std::vector<int>& color_of_rank, std::unique_ptr<Transport>* channel) override {
        std::unique_ptr<Transport> inner;
        ONEBIT_RETURN_IF_ERROR(inner_->split(color_of_rank, &inner));
        *channel = make_staged_transport(std::move(inner), stream_, direct_);
        return {};
    }
    Status share_memory(std::size_t bytes, std::unique_ptr<SharedMemory>* memory) override {
        return inner_->share_memory(bytes, memory);
    }

    Status plan_exchange(std::vector<Part> sends, std::vector<Part> receives, int tag,
                         std::unique_ptr<Exchange>* exchange) override {
        drop_empty(sends);
        drop_empty(receives);
        Stopover from(std::move(sends), direct_);
        Stopover to(std::move(receives), direct_);
        if (!from.has_device_parts() && !to.has_device_parts()) {
            return inner_->plan_exchange(from.across(), to.across(), tag, exchange);
        }
        auto staged = std::make_unique<StagedExchange>(std::move(from), std::move(to), stream_, departures_);
        ONEBIT_RETURN_IF_ERROR(staged->plan(*inner_, tag));
        *exchange = std::move(staged);
        return {};
    }
    /// Of values in the host's memory.
    Status plan_sum(std::size_t count, std::unique_ptr<Sum>* sum) override { return inner_->plan_sum(count, sum); }

    std::uint64_t bytes_sent() const override { return inner_->bytes_sent(); }
    void give_up() override { inner_->give_up(); }

  private:
    std::unique_ptr<Transport> inner_;
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
