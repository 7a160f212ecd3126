// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl.hpp"

#include <array>
#include <cstring>
#include <utility>

#include "core/aligned_buffer.hpp"
#include "core/copy_bytes.hpp"
#include "transport/nccl_channel.hpp"
#include "transport/nodes.hpp"

namespace onebit {
namespace {

using nccl::Channel;
using nccl::Comm;

/// Parts of an exchange. Those in the host's memory have room on the GPU, and in pinned memory on the way there.
class DeviceStopover {
  public:
    DeviceStopover(std::vector<Part> parts, cuda::DeviceMemory& memory) : parts_(std::move(parts)), on_device_(parts_) {
        std::size_t bytes = 0;
        for (const Part& part : parts_) bytes += part.on_device ? 0 : room_of(part);
        pinned_ = AlignedBuffer<std::byte>(bytes, cuda::pinned_memory());
        device_ = AlignedBuffer<std::byte>(bytes, memory);
        std::size_t next = 0;
        for (Part& part : on_device_) {
            if (part.on_device) continue;
            part.data = device_.data() + next;
            next += room_of(part);
        }
    }

    /// To be called at the end, with the GPU current.
    void free() {
        device_ = {}; // first: this waits for copies to and from pinned_
        pinned_ = {};
    }

    const std::vector<Part>& on_device() const { return on_device_; }
    bool needed() const { return device_.size() > 0; }

    /// From the host's memory to the GPU's, there in order with the stream.
    Status bring_up(cuda::Stream stream) {
        if (!needed()) return {};
        each_on_host([](std::byte* pinned, const Part& part) { copy_bytes(pinned, part.data, part.bytes); });
        return cuda::copy_later(device_.data(), pinned_.data(), device_.size(), stream);
    }
    Status bring_down(cuda::Stream stream) {
        return needed() ? cuda::copy_later(pinned_.data(), device_.data(), device_.size(), stream) : Status();
    }
    /// Copies what has come down to its place.
    void hand_over() {
        each_on_host([](const std::byte* pinned, const Part& part) { copy_bytes(part.data, pinned, part.bytes); });
    }

  private:
    static std::size_t room_of(const Part& part) { return (part.bytes + 63) / 64 * 64; }

    template <typename Visit>
    void each_on_host(const Visit& visit) {
        std::size_t next = 0;
        for (const Part& part : parts_) {
            if (part.on_device) continue;
            visit(pinned_.data() + next, part);
            next += room_of(part);
        }
    }

    std::vector<Part> parts_;
    std::vector<Part> on_device_;
    AlignedBuffer<std::byte> pinned_;
    AlignedBuffer<std::byte> device_;
};

// ----------------------------------------------------------------------------------------------------- Exchange ----

class NcclExchange final : public Exchange, private nccl::Operation {
  public:
    NcclExchange(std::shared_ptr<Channel> channel, std::vector<Part> sends, std::vector<Part> receives)
        : channel_(std::move(channel)),
          sends_(std::move(sends), channel_->memory()),
          receives_(std::move(receives), channel_->memory()) {
        for (const Part& part : sends_.on_device()) bytes_per_start_ += part.peer == channel_->rank() ? 0 : part.bytes;
    }

    ~NcclExchange() override {
        const cuda::OnDevice entered(channel_->device()); // whose memory is freed
        channel_->forget(*this);
        sends_.free();
        receives_.free();
    }
    NcclExchange(const NcclExchange&) = delete;
    NcclExchange& operator=(const NcclExchange&) = delete;

    Status start() override {
        if (sends_.on_device().empty() && receives_.on_device().empty()) return {};
        state_ = State::kStarted;
        channel_->bytes_sent += bytes_per_start_;
        return channel_->start(*this);
    }

    Status test(bool* done) override {
        const cuda::OnDevice entered(channel_->device());
        ONEBIT_RETURN_IF_ERROR(channel_->advance());
        if (state_ == State::kComingDown) {
            bool reached = false;
            ONEBIT_RETURN_IF_ERROR(down_.test(&reached));
            if (reached) {
                receives_.hand_over();
                state_ = State::kDone;
            }
        }
        *done = state_ == State::kDone;
        return {};
    }

  private:
    enum class State { kStarted, kComingDown, kDone };

    Status issue(const NcclApi& api, Comm comm, cuda::Stream stream) override {
        ONEBIT_RETURN_IF_ERROR(sends_.bring_up(stream));
        ONEBIT_RETURN_IF_ERROR(nccl::check(api, comm, api.group_start(), "ncclGroupStart"));
        const Status given = give_parts(api, comm, stream);
        const Status ended = nccl::check(api, comm, api.group_end(), "ncclGroupEnd"); // an open group must be closed
        return given.ok() ? ended : given;
    }

    Status give_parts(const NcclApi& api, Comm comm, cuda::Stream stream) const {
        for (const Part& part : sends_.on_device()) {
            ONEBIT_RETURN_IF_ERROR(nccl::check(
                api, comm, api.send(part.data, part.bytes, nccl::kUint8, part.peer, comm, stream), "ncclSend"));
        }
        for (const Part& part : receives_.on_device()) {
            ONEBIT_RETURN_IF_ERROR(nccl::check(
                api, comm, api.recv(part.data, part.bytes, nccl::kUint8, part.peer, comm, stream), "ncclRecv"));
        }
        return {};
    }

    Status accepted(cuda::Stream stream) override {
        state_ = State::kDone;
        // Also where the host only sends: pinned memory that is still being read must not be filled again.
        if (!sends_.needed() && !receives_.needed()) return {};
        state_ = State::kComingDown;
        ONEBIT_RETURN_IF_ERROR(receives_.bring_down(stream));
        return down_.record(stream);
    }

    std::shared_ptr<Channel> channel_;
    DeviceStopover sends_;
    DeviceStopover receives_;
    cuda::Event down_;
    std::uint64_t bytes_per_start_ = 0;
    State state_ = State::kDone;
};

/// One call of NCCL's, on a GPU's memory alone: done as soon as it is in the stream.
template <typename Interface>
class OneCall : public Interface, // NOLINT(cppcoreguidelines-virtual-class-destructor): Interface's is virtual
                private nccl::Operation {
  public:
    explicit OneCall(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}
    ~OneCall() override { channel_->forget(*this); } // forget() may still call accepted(), but not issue()
    OneCall(const OneCall&) = delete;
    OneCall& operator=(const OneCall&) = delete;

    Status test(bool* done) override {
        ONEBIT_RETURN_IF_ERROR(channel_->advance());
        *done = done_;
        return {};
    }

  protected:
    Status begin(std::uint64_t bytes_to_others) {
        done_ = false;
        channel_->bytes_sent += bytes_to_others;
        return channel_->start(*this);
    }
    const Channel& channel() const { return *channel_; }

  private:
    Status accepted(cuda::Stream /*stream*/) override {
        done_ = true;
        return {};
    }

    std::shared_ptr<Channel> channel_;
    bool done_ = true;
};

class NcclSum final : public OneCall<Sum> {
  public:
    NcclSum(std::shared_ptr<Channel> channel, std::size_t count) : OneCall(std::move(channel)), count_(count) {}

    Status start(const float* input, float* output) override {
        if (count_ == 0) return {};
        input_ = input;
        output_ = output;
        return begin(ring_bytes(count_ * sizeof(float), channel().size()));
    }

  private:
    Status issue(const NcclApi& api, Comm comm, cuda::Stream stream) override {
        return nccl::check(api, comm, api.all_reduce(input_, output_, count_, nccl::kFloat32, nccl::kSum, comm, stream),
                           "ncclAllReduce");
    }

    std::size_t count_;
    const float* input_ = nullptr;
    float* output_ = nullptr;
};

class NativeExchange final : public OneCall<Exchange> {
  public:
    NativeExchange(std::shared_ptr<Channel> channel, Pattern pattern, const void* from, void* to, std::size_t row_bytes)
        : OneCall(std::move(channel)), pattern_(pattern), from_(from), to_(to), row_bytes_(row_bytes) {}

    Status start() override { return begin(row_bytes_ * static_cast<std::uint64_t>(channel().size() - 1)); }

  private:
    Status issue(const NcclApi& api, Comm comm, cuda::Stream stream) override {
        const bool gathers = pattern_ == Pattern::kAllGather;
        const auto call = gathers ? api.all_gather : api.all_to_all;
        return nccl::check(api, comm, call(from_, to_, row_bytes_, nccl::kUint8, comm, stream),
                           gathers ? "ncclAllGather" : "ncclAlltoAll");
    }

    Pattern pattern_;
    const void* from_;
    void* to_;
    std::size_t row_bytes_;
};

// ---------------------------------------------------------------------------------------------------- Transport ----

class NcclTransport final : public Transport {
  public:
    explicit NcclTransport(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}
    ~NcclTransport() override { channel_->close(); }
    NcclTransport(const NcclTransport&) = delete;
    NcclTransport& operator=(const NcclTransport&) = delete;

    const char* name() const override { return "nccl"; }
    int rank() const override { return channel_->rank(); }
    int size() const override { return channel_->size(); }
    bool reaches_devices() const override { return true; }
    bool is_stream_ordered() const override { return true; }
    std::optional<void*> stream() const override { return channel_->stream(); }

    std::shared_ptr<AbortSwitch> abort_switch() const override { return channel_->abort_switch(); }
    std::uint64_t node_identity() const override { return host_identity(); }

    Status duplicate(int /*tags*/, std::unique_ptr<Transport>* channel) override { return split_off(0, channel); }
    Status split(const std::vector<int>& color_of_rank, std::unique_ptr<Transport>* channel) override {
        return split_off(color_of_rank[static_cast<std::size_t>(rank())], channel);
    }

    Status share_memory(std::size_t /*bytes*/, const Patience& /*patience*/,
                        std::unique_ptr<SharedMemory>* /*memory*/) override {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "nccl: GPUs share no memory that the host could see");
    }
    Status plan_memory(std::unique_ptr<SharedMemory>* /*memory*/) override { return {}; } // share_memory() refuses

    Status plan_exchange(std::vector<Part> sends, std::vector<Part> receives, int /*tag*/,
                         std::unique_ptr<Exchange>* exchange) override {
        drop_empty(sends, receives);
        const cuda::OnDevice entered(channel_->device()); // whose memory is allocated
        *exchange = std::make_unique<NcclExchange>(channel_, std::move(sends), std::move(receives));
        return {};
    }
    Status plan_sum(std::size_t count, std::unique_ptr<Sum>* sum) override {
        *sum = std::make_unique<NcclSum>(channel_, count);
        return {};
    }

    bool has_native(Pattern pattern) const override {
        return pattern == Pattern::kAllGather || channel_->api().all_to_all != nullptr;
    }
    Status plan_native(Pattern pattern, const void* from, void* to, std::size_t row_bytes,
                       std::unique_ptr<Exchange>* exchange) override {
        *exchange = std::make_unique<NativeExchange>(channel_, pattern, from, to, row_bytes);
        return {};
    }

    Status progress() override { return channel_->advance(); }
    std::uint64_t bytes_sent() const override { return channel_->bytes_sent; }
    void give_up(const Status& /*why*/) override { channel_->give_up(); }

  private:
    Status split_off(int color, std::unique_ptr<Transport>* transport) {
        std::shared_ptr<Channel> channel;
        ONEBIT_RETURN_IF_ERROR(channel_->split(color, rank(), &channel));
        *transport = std::make_unique<NcclTransport>(std::move(channel));
        return {};
    }

    std::shared_ptr<Channel> channel_; // exchanges may outlive the transport
};

Status make_on(const NcclApi& api, Comm comm, const nccl::Site& site, double timeout,
               std::unique_ptr<Transport>* transport) {
    std::shared_ptr<Channel> channel;
    ONEBIT_RETURN_IF_ERROR(Channel::create(api, comm, site, timeout, std::make_shared<nccl::Queue>(), &channel));
    *transport = std::make_unique<NcclTransport>(std::move(channel));
    return {};
}

/// A communicator of one GPU can't have its work in a stream of another.
Status check_device(const NcclApi& api, Comm users_comm, const nccl::Site& site) {
    int device = 0;
    ONEBIT_RETURN_IF_ERROR(nccl::check(api, users_comm, api.comm_cu_device(users_comm, &device), "ncclCommCuDevice"));
    if (device == site.device->number()) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "stream: %s of GPU %d, nccl_comm is of GPU %d",
                         site.stream == nullptr ? "NULL is the default stream of the current GPU, that is" : "it is",
                         site.device->number(), device);
}

/// What rank 0 tells the others before there is a communicator.
struct Opening {
    nccl::UniqueId id;
    std::uint32_t status; ///< its own
    std::array<char, 252> reason;
};

void open(const NcclApi& api, Opening* opening) {
    const Status status = nccl::check(api, nullptr, api.get_unique_id(&opening->id), "ncclGetUniqueId");
    opening->status = static_cast<std::uint32_t>(status.code());
    std::strncpy(opening->reason.data(), status.message().c_str(), opening->reason.size() - 1);
}

} // namespace

Status open_nccl_device(cuda::Stream stream, std::shared_ptr<const cuda::Device>* device) {
    ONEBIT_RETURN_IF_ERROR(cuda::check_same_in_all_threads(stream));
    return cuda::open_device(stream, device);
}

Status make_nccl_transport(const NcclApi& api, Comm users_comm, cuda::Stream stream, double timeout,
                           std::unique_ptr<Transport>* transport) {
    if (users_comm == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "nccl_comm is NULL");
    nccl::Result state = nccl::kSuccess;
    ONEBIT_RETURN_IF_ERROR(
        nccl::check(api, users_comm, api.comm_get_async_error(users_comm, &state), "ncclCommGetAsyncError"));
    if (state == nccl::kInProgress) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "nccl_comm: a call on it is still in progress");
    }
    ONEBIT_RETURN_IF_ERROR(nccl::check(api, users_comm, state, "nccl_comm"));
    nccl::Site site{nullptr, stream};
    ONEBIT_RETURN_IF_ERROR(open_nccl_device(stream, &site.device));
    ONEBIT_RETURN_IF_ERROR(check_device(api, users_comm, site));
    const cuda::OnDevice entered(*site.device);
    int rank = 0;
    ONEBIT_RETURN_IF_ERROR(nccl::check(api, users_comm, api.comm_user_rank(users_comm, &rank), "ncclCommUserRank"));
    Comm comm = nullptr;
    ONEBIT_RETURN_IF_ERROR(nccl::split_comm(api, users_comm, 0, rank, timeout, &comm));
    return make_on(api, comm, site, timeout, transport);
}

Status bootstrap_nccl_transport(const NcclApi& api, Transport& host, cuda::Stream stream, double timeout,
                                std::unique_ptr<Transport>* transport) {
    nccl::Site site{nullptr, stream};
    ONEBIT_RETURN_IF_ERROR(open_nccl_device(stream, &site.device));
    const cuda::OnDevice entered(*site.device); // the communicator's GPU is the one that is current
    auto opening = std::make_unique<Opening>();
    std::vector<Part> sends;
    std::vector<Part> receives;
    if (host.rank() == 0) {
        open(api, opening.get());
        for (int peer = 1; peer < host.size(); ++peer) sends.push_back({peer, opening.get(), sizeof(Opening)});
    } else {
        receives.push_back({0, opening.get(), sizeof(Opening)});
    }
    std::unique_ptr<Exchange> exchange;
    ONEBIT_RETURN_IF_ERROR(host.plan_exchange(std::move(sends), std::move(receives), 0, &exchange));
    ONEBIT_RETURN_IF_ERROR(exchange->start());
    const Status told =
        nccl::poll("nccl: rank 0's opening word", timeout, [&](bool* done) { return exchange->test(done); });
    if (!told.ok()) {
        (void)opening.release(); // it may still be read or written
        return told;
    }
    if (opening->status != ONEBIT_SUCCESS) {
        return Status::error(told_status(opening->status), "%s%.*s",
                             host.rank() == 0 ? "" : "the first rank: ", static_cast<int>(opening->reason.size()),
                             opening->reason.data());
    }
    Comm comm = nullptr;
    ONEBIT_RETURN_IF_ERROR(nccl::join_comm(api, opening->id, host.size(), host.rank(), timeout, &comm));
    return make_on(api, comm, site, timeout, transport);
}

} // namespace onebit
