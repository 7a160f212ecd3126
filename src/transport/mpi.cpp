// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Point-to-point messages on a duplicated communicator. Neither MPI makes progress by itself: test() must be called. A
// channel has tags of its own, so that operations in flight together can't take each other's messages, whatever order
// the ranks advance them in.
//
// The requests are not persistent ones: MPICH reports what fails in MPI_Start to the program's communicators, whose
// handlers would end the program.

#include "transport/mpi.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "transport/mpi_link.hpp"
#include "transport/node_memory.hpp"
#include "transport/nodes.hpp"

namespace onebit {
namespace {

/// Whether this MPI sends from and receives into a GPU's memory. Not every MPI can be asked.
bool is_cuda_aware() {
    auto* const query = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
    return query != nullptr && query() == 1;
}

/// The members of a channel, by their ranks in it, and its tags.
struct Channel {
    std::shared_ptr<MpiLink> link;
    std::vector<int> members; ///< ranks of the link
    int rank = 0;             ///< of this process
    int first_tag = 0;
    int tags = 0;

    /// Looks for notices. What the first peer said that gave the channel up, or everything.
    Status listen() const {
        ONEBIT_RETURN_IF_ERROR(link->listen());
        if (link->abort_switch()->tripped()) return link->abort_switch()->why();
        return link->heard(first_tag);
    }
};

/// As MPI is asked for it.
struct Message {
    void* data = nullptr;
    int words = 0;
    int peer = 0; ///< rank of the link
    int tag = 0;
    bool is_send = false;
};

class MpiExchange final : public Exchange {
  public:
    MpiExchange(std::shared_ptr<const Channel> channel, std::uint64_t& bytes_sent)
        : channel_(std::move(channel)), bytes_sent_(bytes_sent) {}

    Status plan(const std::vector<Part>& sends, const std::vector<Part>& receives, int tag) {
        if (tag >= channel_->tags) return Status::error(ONEBIT_ERROR_INTERNAL, "mpi: the channel has no tag %d", tag);
        messages_.reserve(sends.size() + receives.size());
        for (const Part& part : receives) ONEBIT_RETURN_IF_ERROR(add(part, tag, false));
        for (const Part& part : sends) {
            ONEBIT_RETURN_IF_ERROR(add(part, tag, true));
            bytes_per_start_ += part.bytes;
        }
        requests_.assign(messages_.size(), MPI_REQUEST_NULL);
        return {};
    }

    Status start() override {
        if (requests_.empty()) return {};
        active_ = true;
        pending_ = 0;
        bytes_sent_ += bytes_per_start_;
        const MPI_Comm comm = channel_->link->comm();
        for (std::size_t i = 0; i < messages_.size(); ++i) { // in order, which tells a peer's messages apart
            const Message& m = messages_[i];
            const int code = m.is_send ? MPI_Isend(m.data, m.words, MPI_UINT32_T, m.peer, m.tag, comm, &requests_[i])
                                       : MPI_Irecv(m.data, m.words, MPI_UINT32_T, m.peer, m.tag, comm, &requests_[i]);
            ONEBIT_RETURN_IF_ERROR(check(code, m, m.is_send ? "MPI_Isend" : "MPI_Irecv"));
        }
        return {};
    }

    Status test(bool* done) override {
        // The first one that is missing will do: MPI_Testall looks at all of them each time, and there may be hundreds.
        for (; active_ && pending_ < requests_.size(); ++pending_) {
            int flag = 0;
            const int code = MPI_Test(&requests_[pending_], &flag, MPI_STATUS_IGNORE);
            ONEBIT_RETURN_IF_ERROR(check(code, messages_[pending_], "MPI_Test"));
            *done = flag != 0;
            if (!*done) return look_around();
        }
        active_ = false;
        *done = true;
        return {};
    }

  private:
    /// Names the peer, which MPI may have found dead.
    static Status check(int code, const Message& message, const char* call) {
        if (code == MPI_SUCCESS) return {};
        return Status::error(ONEBIT_ERROR_TRANSPORT, "a message %s rank %d: %s", message.is_send ? "to" : "from",
                             message.peer, check_mpi(code, call).message().c_str());
    }

    /// A message that does not come may have been called off. Seldom enough to cost nothing while messages come.
    Status look_around() {
        constexpr unsigned kLooksBetweenNotices = 64;
        return ++idle_looks_ % kLooksBetweenNotices == 0 ? channel_->listen() : Status();
    }

    Status add(const Part& part, int tag, bool is_send) {
        // Words, so that a message may be four times as long as a count of bytes could say.
        const std::size_t words = part.bytes / sizeof(std::uint32_t);
        if (part.bytes % sizeof(std::uint32_t) != 0 || words > std::numeric_limits<int>::max()) {
            return Status::error(ONEBIT_ERROR_UNSUPPORTED, "mpi: a message of %zu bytes", part.bytes);
        }
        const int peer = channel_->members[static_cast<std::size_t>(part.peer)];
        messages_.push_back({part.data, static_cast<int>(words), peer, channel_->first_tag + tag, is_send});
        return {};
    }

    std::shared_ptr<const Channel> channel_; // exchanges may outlive the transport
    std::vector<Message> messages_;          ///< receives first
    /// By message. What a dead peer left active can be neither freed nor waited for: it is abandoned.
    std::vector<MPI_Request> requests_;
    std::size_t pending_ = 0; ///< those before it are done
    unsigned idle_looks_ = 0;
    std::uint64_t bytes_per_start_ = 0;
    std::uint64_t& bytes_sent_;
    bool active_ = false;
};

class MpiTransport final : public Transport {
  public:
    explicit MpiTransport(std::shared_ptr<const Channel> channel) : channel_(std::move(channel)) {}

    /// Of these ranks of the link, this process among them.
    static Status create(const std::shared_ptr<MpiLink>& link, std::vector<int> members, int first_tag, int tags,
                         std::unique_ptr<Transport>* transport) {
        const auto self = std::find(members.begin(), members.end(), link->rank());
        const int rank = static_cast<int>(self - members.begin());
        *transport = std::make_unique<MpiTransport>(
            std::make_shared<const Channel>(Channel{link, std::move(members), rank, first_tag, tags}));
        return {};
    }

    const char* name() const override { return "mpi"; }
    int rank() const override { return channel_->rank; }
    int size() const override { return static_cast<int>(channel_->members.size()); }
    bool reaches_devices() const override { return cuda_aware_; }
    std::shared_ptr<AbortSwitch> abort_switch() const override { return channel_->link->abort_switch(); }
    std::uint64_t node_identity() const override {
        std::array<char, MPI_MAX_PROCESSOR_NAME + 1> name{};
        int length = 0;
        MPI_Get_processor_name(name.data(), &length);
        return host_identity(name.data());
    }

    Status duplicate(int tags, std::unique_ptr<Transport>* channel) override {
        int first_tag = 0; // taken first, so that ranks keep step whatever fails
        ONEBIT_RETURN_IF_ERROR(take_tags(tags + kMostSplits * kFewTags, &first_tag));
        return create(channel_->link, channel_->members, first_tag, tags, channel);
    }

    Status split(const std::vector<int>& color_of_rank, std::unique_ptr<Transport>* channel) override {
        int first_tag = 0;
        ONEBIT_RETURN_IF_ERROR(is_root() ? take_tags(kFewTags, &first_tag) : take_tags_of_split(&first_tag));
        const int color = color_of_rank[static_cast<std::size_t>(rank())];
        std::vector<int> members;
        for (std::size_t r = 0; r < color_of_rank.size(); ++r) {
            if (color_of_rank[r] == color) members.push_back(channel_->members[r]);
        }
        return create(channel_->link, std::move(members), first_tag, kFewTags, channel);
    }

    Status share_memory(std::size_t bytes, const Patience& patience, std::unique_ptr<SharedMemory>* memory) override {
        const std::uint64_t before = bytes_sent_;
        const Status shared = share_node_memory(bytes, patience, memory);
        bytes_sent_ = before; // of operations alone
        return shared;
    }

    Status plan_exchange(std::vector<Part> sends, std::vector<Part> receives, int tag,
                         std::unique_ptr<Exchange>* exchange) override {
        if (!cuda_aware_) {
            ONEBIT_RETURN_IF_ERROR(check_on_host(sends));
            ONEBIT_RETURN_IF_ERROR(check_on_host(receives));
        }
        drop_empty(sends);
        drop_empty(receives);
        auto planned = std::make_unique<MpiExchange>(channel_, bytes_sent_);
        ONEBIT_RETURN_IF_ERROR(planned->plan(sends, receives, tag));
        *exchange = std::move(planned);
        return {};
    }

    Status progress() override {
        int there = 0;
        const MPI_Comm comm = channel_->link->comm();
        ONEBIT_RETURN_IF_ERROR(
            check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &there, MPI_STATUS_IGNORE), "MPI_Iprobe"));
        return channel_->listen();
    }

    void give_up(const Status& why) override {
        if (!std::exchange(given_up_, true)) channel_->link->tell(channel_->members, channel_->first_tag, why);
    }

    std::vector<int> silent_ranks() override {
        std::vector<int> silent;
        for (int r = 0; r < size(); ++r) {
            const int member = channel_->members[static_cast<std::size_t>(r)];
            if (r != rank() && !channel_->link->has_told(member, channel_->first_tag)) silent.push_back(r);
        }
        return silent;
    }

  private:
    /// Channels of some of the ranks that a channel of all is split into; their tags are behind its own.
    static constexpr int kMostSplits = 2;

    bool is_root() const { return channel_->first_tag == MpiLink::kFirstTag; }
    /// The other ranks would not know which tags the channel of some of them has taken.
    Status take_tags(int tags, int* first) const {
        if (size() == channel_->link->size()) return channel_->link->take_tags(tags, first);
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "mpi: a channel of some of the ranks has no channels of its own");
    }
    Status take_tags_of_split(int* first) {
        *first = channel_->first_tag + channel_->tags + splits_ * kFewTags;
        if (size() == channel_->link->size() && splits_++ < kMostSplits) return {};
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "mpi: a channel is split %d times at most", kMostSplits);
    }

    std::shared_ptr<const Channel> channel_;
    int splits_ = 0;
    bool cuda_aware_ = is_cuda_aware();
    bool given_up_ = false;
};

} // namespace

Status make_mpi_transport(MPI_Comm comm, double timeout, std::unique_ptr<Transport>* transport) {
    if (!mpi_is_up()) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "mpi_comm: MPI is not initialised, or already finalised");
    }
    if (comm == MPI_COMM_NULL) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "mpi_comm is MPI_COMM_NULL");
    std::shared_ptr<MpiLink> link;
    ONEBIT_RETURN_IF_ERROR(MpiLink::create(comm, timeout, &link));
    std::vector<int> everyone(static_cast<std::size_t>(link->size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    int first_tag = 0;
    ONEBIT_RETURN_IF_ERROR(link->take_tags(kFewTags, &first_tag));
    return MpiTransport::create(link, std::move(everyone), first_tag, kFewTags, transport);
}

} // namespace onebit
