// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Point-to-point messages on a duplicated communicator. Neither MPI makes progress by itself: test() must be called. A
// channel has tags of its own, so that operations in flight together can't take each other's messages, whatever order
// the ranks advance them in.

#include "transport/mpi.hpp"

#include <limits>
#include <utility>
#include <vector>

#include "transport/mpi_link.hpp"

namespace onebit {
namespace {

/// A message in the form that MPI takes.
struct Message {
    void* data = nullptr;
    int words = 0;
    int peer = 0; ///< rank of the link
    int tag = 0;
    bool is_send = false;
};

class MpiExchange final : public Exchange {
  public:
    MpiExchange(std::shared_ptr<MpiLink> link, const Channel& channel, std::uint64_t& bytes_sent)
        : link_(std::move(link)), taken_(channel.taken), channel_(channel.first_tag), bytes_sent_(bytes_sent) {}

    /// Requests that a dead peer left active can be neither freed nor waited for. They and their tags are abandoned.
    ~MpiExchange() override {
        if (active_) taken_->lose();
        if (!persistent() || active_ || !MpiLink::check_up().ok()) return;
        for (MpiCalls::Handle& request : requests_) {
            if (request != link_->calls().request_null) (void)link_->calls().request_free(&request);
        }
    }
    MpiExchange(const MpiExchange&) = delete;
    MpiExchange& operator=(const MpiExchange&) = delete;

    Status plan(const Channel& channel, const std::vector<Part>& sends, const std::vector<Part>& receives, int tag) {
        ONEBIT_RETURN_IF_ERROR(MpiLink::check_up());
        messages_.reserve(sends.size() + receives.size());
        for (const Part& part : receives) ONEBIT_RETURN_IF_ERROR(add(channel, part, tag, false));
        for (const Part& part : sends) {
            ONEBIT_RETURN_IF_ERROR(add(channel, part, tag, true));
            bytes_per_start_ += part.bytes;
        }
        requests_.assign(messages_.size(), link_->calls().request_null);
        for (std::size_t i = 0; persistent() && i < messages_.size(); ++i) ONEBIT_RETURN_IF_ERROR(make_request(i));
        return {};
    }

    Status start() override {
        if (requests_.empty()) return {};
        ONEBIT_RETURN_IF_ERROR(MpiLink::check_up());
        active_ = true;
        pending_ = 0;
        idle_looks_ = 0;
        bytes_sent_ += bytes_per_start_;
        for (std::size_t i = 0; i < messages_.size(); ++i) { // the order tells a peer's messages apart
            ONEBIT_RETURN_IF_ERROR(persistent() ? check(link_->calls().start(&requests_[i]), messages_[i], "MPI_Start")
                                                : make_request(i));
        }
        return {};
    }

    Status test(bool* done) override {
        ONEBIT_RETURN_IF_ERROR(MpiLink::check_up());
        // Tests the first missing one only: MPI_Testall looks at all of them each time, and there may be hundreds.
        for (; active_ && pending_ < requests_.size(); ++pending_) {
            int flag = 0;
            const int code = link_->calls().test(&requests_[pending_], &flag);
            ONEBIT_RETURN_IF_ERROR(check(code, messages_[pending_], "MPI_Test"));
            *done = flag != 0;
            if (!*done) return look_around();
        }
        active_ = false;
        *done = true;
        return {};
    }

  private:
    bool persistent() const { return link_->calls().start != nullptr; }

    /// Makes a message's request. One that is not persistent is thereby started.
    Status make_request(std::size_t i) {
        const MpiCalls& mpi = link_->calls();
        const Message& m = messages_[i];
        const auto make = [&](const auto& call, const char* name) {
            return check(call(m.data, m.words, m.peer, m.tag, link_->comm(), &requests_[i]), m, name);
        };
        if (persistent())
            return m.is_send ? make(mpi.send_init, "MPI_Send_init") : make(mpi.recv_init, "MPI_Recv_init");
        return m.is_send ? make(mpi.isend, "MPI_Isend") : make(mpi.irecv, "MPI_Irecv");
    }

    /// Names the peer, which MPI may have found dead.
    Status check(int code, const Message& message, const char* call) const {
        if (code == 0) return {};
        return Status::error(ONEBIT_ERROR_TRANSPORT, "a message %s rank %d: %s", message.is_send ? "to" : "from",
                             message.peer, link_->check(code, call).message().c_str());
    }

    /// Listens for notices: a missing message may have been called off. Seldom enough to cost nothing otherwise.
    Status look_around() {
        constexpr unsigned kLooksBetweenNotices = 64;
        return ++idle_looks_ % kLooksBetweenNotices == 0 ? link_->listen(channel_) : Status();
    }

    Status add(const Channel& channel, const Part& part, int tag, bool is_send) {
        // Counts words, so that a message may be four times as long as with a count of bytes.
        const std::size_t words = part.bytes / sizeof(std::uint32_t);
        if (part.bytes % sizeof(std::uint32_t) != 0 || words > std::numeric_limits<int>::max()) {
            return Status::error(ONEBIT_ERROR_UNSUPPORTED, "mpi: a message of %zu bytes", part.bytes);
        }
        messages_.push_back(
            {part.data, static_cast<int>(words), channel.member(part.peer), channel.first_tag + tag, is_send});
        return {};
    }

    std::shared_ptr<MpiLink> link_;          ///< exchanges may outlive the transport
    std::shared_ptr<TakenTags> taken_;       ///< the channel's
    int channel_;                            ///< its first tag
    std::vector<Message> messages_;          ///< receives first
    std::vector<MpiCalls::Handle> requests_; ///< by message
    std::size_t pending_ = 0;                ///< those before it are done
    unsigned idle_looks_ = 0;
    std::uint64_t bytes_per_start_ = 0;
    std::uint64_t& bytes_sent_;
    bool active_ = false;
};

class MpiTransport final : public LinkTransport {
  public:
    MpiTransport(std::shared_ptr<MpiLink> link, Channel channel)
        : LinkTransport(link, std::move(channel)), link_(std::move(link)) {}

    /// The first channel.
    static Status create(const std::shared_ptr<MpiLink>& link, std::unique_ptr<Transport>* transport) {
        Channel root;
        ONEBIT_RETURN_IF_ERROR(take_root(link, &root));
        *transport = std::make_unique<MpiTransport>(link, std::move(root));
        return {};
    }

    bool reaches_devices() const override { return link_->is_cuda_aware(); }
    std::uint64_t node_identity() const override { return link_->node_identity(); }

    Status progress() override {
        ONEBIT_RETURN_IF_ERROR(MpiLink::check_up());
        ONEBIT_RETURN_IF_ERROR(link_->check(link_->calls().probe_any(link_->comm()), "MPI_Iprobe"));
        return link_->listen(channel().first_tag);
    }

  private:
    std::unique_ptr<Transport> open(Channel channel) const override {
        return std::make_unique<MpiTransport>(link_, std::move(channel));
    }
    Status plan(const std::vector<Part>& sends, const std::vector<Part>& receives, int tag,
                std::unique_ptr<Exchange>* exchange) override {
        auto planned = std::make_unique<MpiExchange>(link_, channel(), bytes_sent_);
        ONEBIT_RETURN_IF_ERROR(planned->plan(channel(), sends, receives, tag));
        *exchange = std::move(planned);
        return {};
    }

    std::shared_ptr<MpiLink> link_;
};

} // namespace

Status make_mpi_transport(const MpiCalls& calls, MpiCalls::Handle comm, double timeout,
                          std::unique_ptr<Transport>* transport) {
    if (comm == calls.comm_null) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "mpi_comm is MPI_COMM_NULL");
    std::shared_ptr<MpiLink> link;
    ONEBIT_RETURN_IF_ERROR(MpiLink::create(calls, comm, timeout, &link));
    Status made = catch_exceptions([&] { return MpiTransport::create(link, transport); });
    if (!made.ok()) link->tell(link->everyone(), Link::kFirstTag, made); // the others wait in their first agreement
    return made;
}

} // namespace onebit
