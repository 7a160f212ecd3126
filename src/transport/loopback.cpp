// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads. A send is a pointer left in the hub; the receiver copies from it when it next looks. Everything
// happens under the hub's one lock: plain, and quick enough for tests and for parallelism within a process.

#include "transport/loopback.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "core/aligned_buffer.hpp"
#include "core/copy_bytes.hpp"

namespace onebit {
namespace {

/// A message that waits for its receiver; belongs to the sender's exchange.
struct Posted {
    int from = 0;
    int to = 0;
    int tag = 0;
    const void* data = nullptr;
    std::size_t bytes = 0;
    bool taken = false;
};

struct Hub;

/// A group that not all of its members have taken yet.
struct Grouping {
    std::shared_ptr<Hub> hub;
    std::size_t taken = 0;
};

/// What all ranks of one channel share.
struct Hub {
    Hub(int n, std::shared_ptr<AbortSwitch> of_all)
        : ranks(n),
          abort_switch(std::move(of_all)),
          gone(static_cast<std::size_t>(n), false),
          given_up(gone.size()),
          duplicated(gone.size(), 0),
          split(gone.size(), 0),
          shared(gone.size(), 0),
          grouped(gone.size(), 0) {}

    /// Room for what an exchange has under way, so that its start needs no memory.
    void make_room(std::size_t posts) {
        posted.reserve(planned_posts + posts);
        planned_posts += posts; // once there is room for them
    }

    const int ranks;
    const std::shared_ptr<AbortSwitch> abort_switch; ///< of all ranks and channels
    std::mutex mutex;
    std::vector<Posted*> posted;
    std::size_t planned_posts = 0;
    std::vector<bool> gone;              ///< ranks that have destroyed their end
    std::vector<Status> given_up;        ///< why each rank has given the channel up, if it has
    std::vector<std::size_t> duplicated; ///< how many duplicates each rank has taken
    std::vector<std::shared_ptr<Hub>> duplicates;
    std::vector<std::size_t> split;                                    ///< how many splits each rank has taken part in
    std::vector<std::size_t> shared;                                   ///< and how many times it shared memory
    std::map<std::pair<std::size_t, int>, std::shared_ptr<Hub>> parts; ///< by number of the split, and color
    std::vector<std::size_t> grouped;                                  ///< how many groups each rank has made
    std::map<std::pair<std::size_t, int>, Grouping> groups;            ///< by their number, and first member
    std::vector<std::shared_ptr<std::vector<AlignedBuffer<std::byte>>>> memories;
};

Status peer_is_gone(int peer) {
    return Status::error(ONEBIT_ERROR_TRANSPORT, "loopback: rank %d has left the communicator", peer);
}

class LoopbackExchange final : public Exchange {
  public:
    LoopbackExchange(std::shared_ptr<Hub> hub, int rank, const std::vector<Part>& sends, std::vector<Part> receives,
                     int tag, std::uint64_t& bytes_sent)
        : hub_(std::move(hub)), rank_(rank), tag_(tag), receives_(std::move(receives)), bytes_sent_(bytes_sent) {
        for (const Part& part : sends) posts_.push_back({rank, part.peer, tag, part.data, part.bytes, true});
        received_.assign(receives_.size(), true);
        const std::lock_guard lock(hub_->mutex);
        hub_->make_room(posts_.size());
    }

    ~LoopbackExchange() override {
        const std::lock_guard lock(hub_->mutex);
        std::erase_if(hub_->posted, [this](const Posted* post) {
            return post >= posts_.data() && post < posts_.data() + posts_.size();
        });
        hub_->planned_posts -= posts_.size();
    }
    LoopbackExchange(const LoopbackExchange&) = delete;
    LoopbackExchange& operator=(const LoopbackExchange&) = delete;

    Status start() override {
        const std::lock_guard lock(hub_->mutex);
        for (Posted& post : posts_) {
            post.taken = false;
            hub_->posted.push_back(&post);
            bytes_sent_ += post.bytes;
        }
        received_.assign(receives_.size(), false);
        return {};
    }

    Status test(bool* done) override {
        const std::lock_guard lock(hub_->mutex);
        *done = true;
        for (std::size_t i = 0; i < receives_.size(); ++i) {
            if (!received_[i]) ONEBIT_RETURN_IF_ERROR(try_receive(i));
            if (!received_[i]) *done = false;
        }
        for (const Posted& post : posts_) {
            if (post.taken) continue;
            if (hub_->gone[static_cast<std::size_t>(post.to)]) return peer_is_gone(post.to);
            *done = false;
        }
        return *done ? Status() : given_up();
    }

  private:
    /// What the first rank said that gave the channel up; a success if none has.
    Status given_up() const {
        for (std::size_t rank = 0; rank < hub_->given_up.size(); ++rank) {
            const Status& why = hub_->given_up[rank];
            if (why.ok()) continue;
            const bool named = why.message().starts_with("rank "); // a reason that it heard from another rank
            return named ? why : Status::error(why.code(), "rank %zu gave up: %s", rank, why.message().c_str());
        }
        return {};
    }

    /// Takes the oldest matching message, if it has come.
    Status try_receive(std::size_t i) {
        const Part& part = receives_[i];
        const auto match = std::find_if(hub_->posted.begin(), hub_->posted.end(), [&](const Posted* post) {
            return post->from == part.peer && post->to == rank_ && post->tag == tag_;
        });
        if (match == hub_->posted.end()) {
            return hub_->gone[static_cast<std::size_t>(part.peer)] ? peer_is_gone(part.peer) : Status();
        }
        if ((*match)->bytes != part.bytes) {
            return Status::error(ONEBIT_ERROR_TRANSPORT, "loopback: rank %d sent %zu bytes where %zu were expected",
                                 part.peer, (*match)->bytes, part.bytes);
        }
        copy_bytes(part.data, (*match)->data, part.bytes);
        (*match)->taken = true;
        hub_->posted.erase(match);
        received_[i] = true;
        return {};
    }

    std::shared_ptr<Hub> hub_;
    int rank_;
    int tag_;
    std::vector<Posted> posts_;
    std::vector<Part> receives_;
    std::vector<bool> received_;
    std::uint64_t& bytes_sent_;
};

class LoopbackSharedMemory final : public SharedMemory {
  public:
    explicit LoopbackSharedMemory(std::shared_ptr<std::vector<AlignedBuffer<std::byte>>> segments)
        : segments_(std::move(segments)) {}
    std::byte* of(int rank) override { return (*segments_)[static_cast<std::size_t>(rank)].data(); }

  private:
    std::shared_ptr<std::vector<AlignedBuffer<std::byte>>> segments_;
};

class LoopbackTransport final : public Transport {
  public:
    LoopbackTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

    ~LoopbackTransport() override {
        const std::lock_guard lock(hub_->mutex);
        hub_->gone[static_cast<std::size_t>(rank_)] = true;
    }
    LoopbackTransport(const LoopbackTransport&) = delete;
    LoopbackTransport& operator=(const LoopbackTransport&) = delete;

    const char* name() const override { return "loopback"; }
    int rank() const override { return rank_; }
    int size() const override { return hub_->ranks; }

    std::shared_ptr<AbortSwitch> abort_switch() const override { return hub_->abort_switch; }
    std::uint64_t node_identity() const override { return 0; }

    Status duplicate(int /*tags*/, std::unique_ptr<Transport>* channel) override {
        const std::lock_guard lock(hub_->mutex);
        const std::size_t number = hub_->duplicated[static_cast<std::size_t>(rank_)]++;
        while (number >= hub_->duplicates.size())
            hub_->duplicates.push_back(std::make_shared<Hub>(hub_->ranks, hub_->abort_switch));
        std::shared_ptr<Hub>& hub = hub_->duplicates[number];
        *channel = std::make_unique<LoopbackTransport>(hub, rank_);
        const bool taken_by_all = std::all_of(hub_->duplicated.begin(), hub_->duplicated.end(),
                                              [number](std::size_t taken) { return taken > number; });
        if (taken_by_all) hub.reset();
        return {};
    }

    Status split(const std::vector<int>& color_of_rank, std::unique_ptr<Transport>* channel) override {
        const std::lock_guard lock(hub_->mutex);
        const auto mine = static_cast<std::size_t>(rank_);
        const int color = color_of_rank[mine];
        std::shared_ptr<Hub>& part = hub_->parts[{hub_->split[mine]++, color}];
        const auto ranks = std::count(color_of_rank.begin(), color_of_rank.end(), color);
        if (part == nullptr) part = std::make_shared<Hub>(static_cast<int>(ranks), hub_->abort_switch);
        const auto before = std::count(color_of_rank.begin(), color_of_rank.begin() + rank_, color);
        *channel = std::make_unique<LoopbackTransport>(part, static_cast<int>(before));
        return {};
    }

    Status make_group(const std::vector<int>& members, std::unique_ptr<Transport>* channel) override {
        const std::lock_guard lock(hub_->mutex);
        const std::size_t number = hub_->grouped[static_cast<std::size_t>(rank_)]++;
        if (members.empty()) return {};
        const auto key = std::pair(number, members.front());
        Grouping& group = hub_->groups[key];
        if (group.hub == nullptr) {
            group.hub = std::make_shared<Hub>(static_cast<int>(members.size()),
                                              std::make_shared<AbortSwitch>(hub_->abort_switch));
        }
        const auto mine = std::find(members.begin(), members.end(), rank_) - members.begin();
        *channel = std::make_unique<LoopbackTransport>(group.hub, static_cast<int>(mine));
        if (++group.taken == members.size()) hub_->groups.erase(key);
        return {};
    }

    /// The ranks don't wait for each other: they hear of a rank that fails alone in the next agreement.
    Status plan_memory(std::unique_ptr<SharedMemory>* /*memory*/) override { return {}; }
    Status share_memory(std::size_t bytes, const Patience& /*patience*/,
                        std::unique_ptr<SharedMemory>* memory) override {
        const std::lock_guard lock(hub_->mutex);
        const std::size_t number = hub_->shared[static_cast<std::size_t>(rank_)]++;
        while (number >= hub_->memories.size()) { // a rank may have failed to make an earlier one
            auto segments = std::make_shared<std::vector<AlignedBuffer<std::byte>>>();
            for (int r = 0; r < hub_->ranks; ++r) segments->emplace_back(bytes);
            hub_->memories.push_back(std::move(segments));
        }
        *memory = std::make_unique<LoopbackSharedMemory>(hub_->memories[number]);
        return {};
    }

    Status plan_exchange(std::vector<Part> sends, std::vector<Part> receives, int tag,
                         std::unique_ptr<Exchange>* exchange) override {
        ONEBIT_RETURN_IF_ERROR(check_on_host(sends, receives));
        drop_empty(sends, receives);
        *exchange =
            std::make_unique<LoopbackExchange>(hub_, rank_, std::move(sends), std::move(receives), tag, bytes_sent_);
        return {};
    }

    /// Other ranks see it while this rank's end exists: nothing is under way that could reach what it gives up.
    void give_up(const Status& why) override {
        const std::lock_guard lock(hub_->mutex);
        hub_->given_up[static_cast<std::size_t>(rank_)] = why;
    }
    std::vector<int> silent_ranks() override {
        const std::lock_guard lock(hub_->mutex);
        std::vector<int> silent;
        for (std::size_t r = 0; r < hub_->gone.size(); ++r) {
            if (static_cast<int>(r) != rank_ && hub_->given_up[r].ok() && !hub_->gone[r]) {
                silent.push_back(static_cast<int>(r));
            }
        }
        return silent;
    }

  private:
    std::shared_ptr<Hub> hub_;
    int rank_;
};

} // namespace

std::vector<std::unique_ptr<Transport>> make_loopback_transports(int ranks) {
    auto hub = std::make_shared<Hub>(ranks, std::make_shared<AbortSwitch>());
    std::vector<std::unique_ptr<Transport>> transports;
    transports.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) transports.push_back(std::make_unique<LoopbackTransport>(hub, rank));
    return transports;
}

} // namespace onebit
