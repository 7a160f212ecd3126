// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/meeting.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "transport/nodes.hpp"
#include "transport/tcp/addresses.hpp"
#include "transport/tcp/handshake.hpp"
#include "transport/tcp/ring.hpp"

namespace onebit {
namespace {

/// What a record of either gathering begins with. Changes with what follows.
struct RecordHead {
    std::uint64_t magic = 0x316e6f6974656e6f;
    std::uint32_t rank = 0;
    std::uint32_t ranks = 0;
    std::uint32_t status = ONEBIT_SUCCESS; ///< what is wrong on that rank
    std::array<char, 252> reason{};
};

/// The first: who and where a rank is.
struct Introduction {
    static constexpr std::size_t kMostAddresses = 8;
    RecordHead head;
    std::uint64_t node = 0;
    std::uint64_t num_addresses = 0;
    std::array<Address, kMostAddresses> addresses{};
};

/// The second: how it is reached.
struct Invitation {
    RecordHead head;
    Place place;
    MappedMemory::Address inbox; ///< of no bytes where there is none
};

/// Rings between so many ranks of a node at most: each has one for every other.
constexpr std::size_t kMostInNode = 32;

class Meeting {
  public:
    explicit Meeting(const Bootstrap& bootstrap)
        : bootstrap_(bootstrap),
          rank_(static_cast<std::size_t>(bootstrap.rank)),
          ranks_(static_cast<std::size_t>(bootstrap.ranks)) {}

    Status introduce(const Status& own) {
        Introduction mine;
        mine.node = host_identity();
        const Status looked = catch_exceptions([&] {
            ONEBIT_RETURN_IF_ERROR(own);
            ONEBIT_RETURN_IF_ERROR(find_own_addresses(bootstrap_.interface, &own_));
            if (own_.size() > Introduction::kMostAddresses) own_.resize(Introduction::kMostAddresses);
            return Status();
        });
        mine.num_addresses = own_.size();
        std::copy(own_.begin(), own_.end(), mine.addresses.begin());
        std::vector<Introduction> all;
        ONEBIT_RETURN_IF_ERROR(gather(looked, &mine, &all));
        for (std::size_t r = 0; r < ranks_; ++r) {
            if (all[r].node == mine.node) {
                if (r == rank_) own_index_ = in_node_.size();
                in_node_.push_back(r);
            } else {
                const auto number = std::min(all[r].num_addresses, std::uint64_t{Introduction::kMostAddresses});
                others_.emplace_back(all[r].addresses.begin(), all[r].addresses.begin() + static_cast<int>(number));
            }
        }
        return {};
    }

    Status invite() {
        Invitation mine;
        const Status opened = catch_exceptions([&] { return open(&mine.place); });
        if (inbox_ != nullptr) mine.inbox = inbox_->address();
        return gather(opened, &mine, &invitations_);
    }

    Status connect(std::vector<TcpLink::Peer>* peers) {
        std::vector<Place> places;
        places.reserve(ranks_);
        for (const Invitation& invitation : invitations_) places.push_back(invitation.place);
        std::vector<std::unique_ptr<const Inbox>> inboxes = find_inboxes();
        std::vector<bool> found;
        found.reserve(ranks_);
        for (const auto& inbox : inboxes) found.push_back(inbox != nullptr);
        std::vector<Connected> connected;
        ONEBIT_RETURN_IF_ERROR(
            connect_peers(bootstrap_.rank, listener_, places, found, bootstrap_.timeout, &connected));
        if (inbox_ != nullptr) inbox_->close();
        peers->resize(ranks_);
        for (std::size_t r = 0; r < ranks_; ++r) {
            if (r == rank_) continue;
            const bool by_memory = inboxes[r] != nullptr && connected[r].sees_memory;
            (*peers)[r] = by_memory ? in_node(r, std::move(inboxes[r]), std::move(connected[r].socket))
                                    : remote(std::move(connected[r].socket));
        }
        return {};
    }

  private:
    /// Every rank's record. All ranks come to one end, that of the first rank that something is wrong on.
    template <typename Record>
    Status gather(const Status& own, Record* mine, std::vector<Record>* all) {
        const RecordHead expected = {RecordHead().magic, 0, static_cast<std::uint32_t>(ranks_)};
        mine->head.rank = static_cast<std::uint32_t>(rank_);
        mine->head.ranks = expected.ranks;
        mine->head.status = static_cast<std::uint32_t>(own.code());
        std::snprintf(mine->head.reason.data(), mine->head.reason.size(), "%s", own.message().c_str());
        all->resize(ranks_);
        ONEBIT_RETURN_IF_ERROR(bootstrap_.allgather(mine, all->data(), sizeof(Record)));
        for (std::size_t r = 0; r < ranks_; ++r) {
            const RecordHead& head = (*all)[r].head;
            if (head.magic == expected.magic && head.rank == r && head.ranks == expected.ranks) continue;
            return Status::error(
                ONEBIT_ERROR_INVALID_ARGUMENT,
                "allgather: place %zu of %zu has not what rank %zu gave: ranks are to be in order, and "
                "all of one communicator and one version of onebit",
                r, ranks_, r);
        }
        for (std::size_t r = 0; r < ranks_; ++r) {
            RecordHead& head = (*all)[r].head;
            head.reason.back() = '\0';
            if (head.status == ONEBIT_SUCCESS) continue;
            return Status::error(static_cast<onebit_status_t>(head.status), "rank %zu: %s", r, head.reason.data());
        }
        return {};
    }

    Status open(Place* place) {
        place->address = choose();
        ONEBIT_RETURN_IF_ERROR(draw_secret(&place->secret));
        ONEBIT_RETURN_IF_ERROR(Listener::open(&place->address, &listener_));
        if (!bootstrap_.shares_memory || in_node_.size() < 2 || in_node_.size() > kMostInNode) return {};
        std::unique_ptr<MappedMemory> memory;
        const Status made = MappedMemory::create("onebit.rings", Inbox::bytes(in_node_.size()), &memory);
        if (made.code() == ONEBIT_ERROR_UNSUPPORTED) return {}; // then over TCP
        ONEBIT_RETURN_IF_ERROR(made);
        inbox_ = std::make_shared<Inbox>(std::move(memory));
        return {};
    }

    /// Where all ranks are on one node nobody else need reach it.
    Address choose() const {
        if (others_.empty() && bootstrap_.interface.empty()) {
            const Address loopback = find_loopback();
            if (loopback.family != 0) return loopback;
        }
        return choose_address(own_, others_);
    }

    /// Those of this rank's node that it can see, by rank.
    std::vector<std::unique_ptr<const Inbox>> find_inboxes() const {
        std::vector<std::unique_ptr<const Inbox>> inboxes(ranks_);
        for (const std::size_t r : in_node_) {
            std::unique_ptr<MappedMemory> memory;
            const MappedMemory::Address& address = invitations_[r].inbox;
            if (inbox_ == nullptr || r == rank_ || address.bytes != Inbox::bytes(in_node_.size())) continue;
            if (MappedMemory::open(address, &memory).ok()) inboxes[r] = std::make_unique<Inbox>(std::move(memory));
        }
        return inboxes;
    }

    TcpLink::Peer in_node(std::size_t rank, std::unique_ptr<const Inbox> peers, Socket socket) const {
        const auto place = std::find(in_node_.begin(), in_node_.end(), rank) - in_node_.begin();
        Ring& in = inbox_->from(static_cast<std::size_t>(place));
        Ring& out = peers->from(own_index_);
        auto stream = std::make_unique<RingStream>(inbox_, in, std::move(peers), out);
        const int descriptor = socket.get();
        return {std::make_unique<Connection>(std::move(stream)), std::move(socket), descriptor};
    }

    static TcpLink::Peer remote(Socket socket) {
        const int descriptor = socket.get();
        return {std::make_unique<Connection>(std::make_unique<SocketStream>(std::move(socket))), {}, descriptor};
    }

    const Bootstrap& bootstrap_;
    std::size_t rank_;
    std::size_t ranks_;
    std::vector<Address> own_;
    std::vector<std::vector<Address>> others_; ///< of ranks on other nodes
    std::vector<std::size_t> in_node_;         ///< ranks of this node
    std::size_t own_index_ = 0;                ///< of this rank among them
    Listener listener_;
    std::shared_ptr<Inbox> inbox_;
    std::vector<Invitation> invitations_;
};

} // namespace

Status meet_peers(const Bootstrap& bootstrap, const Status& own, std::vector<TcpLink::Peer>* peers) {
    if (bootstrap.ranks == 1) {
        peers->resize(1);
        return own;
    }
    Meeting meeting(bootstrap);
    ONEBIT_RETURN_IF_ERROR(meeting.introduce(own));
    ONEBIT_RETURN_IF_ERROR(meeting.invite());
    return meeting.connect(peers);
}

} // namespace onebit
