// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/meeting.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "transport/nodes.hpp"
#include "transport/tcp/addresses.hpp"
#include "transport/tcp/handshake.hpp"
#include "transport/tcp/ring.hpp"

namespace onebit {
namespace {

/// What a record of each gathering begins with.
struct RecordHead {
    std::uint32_t magic = 0x32626e6f; ///< changes with what follows
    std::uint32_t rank = 0;
    std::uint32_t ranks = 0;
    std::uint32_t status = ONEBIT_SUCCESS; ///< what is wrong on that rank
};

/// The record of a gathering that tells which ranks have the memory for the next step.
struct Ticket {
    RecordHead head;

    void set_reason(const Status& /*own*/) {}
    const char* reason() {
        return head.status == ONEBIT_ERROR_OUT_OF_MEMORY ? "out of memory" : "an unexpected exception";
    }
};

/// A record that says what is wrong.
struct Explained {
    RecordHead head;
    std::array<char, 256> text{};

    void set_reason(const Status& own) { std::snprintf(text.data(), text.size(), "%s", own.message().c_str()); }
    const char* reason() {
        text.back() = '\0';
        return text.data();
    }
};

/// Who and where a rank is.
struct Introduction : Explained {
    static constexpr std::size_t kMostAddresses = 8;
    std::uint64_t node = 0;
    std::uint64_t num_addresses = 0;
    std::array<Address, kMostAddresses> addresses{};
};

/// How a rank is reached.
struct Invitation : Explained {
    Place place;
    MappedMemory::Address inbox; ///< of no bytes where there is none
};

/// The most ranks of a node that use rings: each rank has a ring for every other.
constexpr std::size_t kMostInNode = 32;

class Meeting {
  public:
    explicit Meeting(const Bootstrap& bootstrap)
        : bootstrap_(bootstrap),
          rank_(static_cast<std::size_t>(bootstrap.rank)),
          ranks_(static_cast<std::size_t>(bootstrap.ranks)),
          many_tickets_(ranks_ > few_tickets_.size() ? ranks_ : 0) {}

    Status take_memory() {
        return gather_tickets(catch_exceptions([&] {
            introductions_.resize(ranks_);
            invitations_.resize(ranks_);
            return Status();
        }));
    }

    Status introduce(const Status& own) {
        Introduction mine;
        const Status looked = catch_exceptions([&] {
            ONEBIT_RETURN_IF_ERROR(own);
            mine.node = host_identity();
            ONEBIT_RETURN_IF_ERROR(find_own_addresses(bootstrap_.interface, &own_));
            if (own_.size() > Introduction::kMostAddresses) own_.resize(Introduction::kMostAddresses);
            mine.num_addresses = own_.size();
            std::copy(own_.begin(), own_.end(), mine.addresses.begin());
            return Status();
        });
        return gather(looked, &mine, std::span(introductions_));
    }

    Status invite() {
        Invitation mine;
        const Status opened = catch_exceptions([&] {
            find_node();
            return open(&mine.place);
        });
        if (inbox_ != nullptr) mine.inbox = inbox_->address();
        return gather(opened, &mine, std::span(invitations_));
    }

    Status prepare(std::vector<TcpLink::Peer>* peers) {
        return gather_tickets(catch_exceptions([&] {
            peers->resize(ranks_);
            make_ways();
            return Status();
        }));
    }

    /// Success needs no memory: a rank without memory could tell nobody here.
    Status connect(std::vector<TcpLink::Peer>* peers) {
        ONEBIT_RETURN_IF_ERROR(handshake_->run(bootstrap_.timeout));
        if (inbox_ != nullptr) inbox_->close();
        for (std::size_t r = 0; r < ranks_; ++r) {
            if (r == rank_) continue;
            Connected connected = handshake_->take(r);
            Way& way = ways_[r];
            TcpLink::Peer& peer = (*peers)[r];
            peer.descriptor = connected.socket.get();
            if (way.by_memory != nullptr && connected.sees_memory) {
                peer.connection = std::move(way.by_memory);
                peer.watched = std::move(connected.socket);
            } else {
                peer.connection = std::move(way.by_socket);
                way.stream->open(std::move(connected.socket));
            }
        }
        return {};
    }

  private:
    /// The two possible connections to a peer. One of them is used.
    struct Way {
        std::unique_ptr<Connection> by_socket;
        SocketStream* stream = nullptr; ///< its own
        std::unique_ptr<Connection> by_memory;
    };

    /// Gathers every rank's record. All ranks get one result: that of the first rank where something is wrong.
    template <typename Record>
    Status gather(const Status& own, Record* mine, std::span<Record> all) const {
        const RecordHead head = {RecordHead().magic, static_cast<std::uint32_t>(rank_),
                                 static_cast<std::uint32_t>(ranks_), static_cast<std::uint32_t>(own.code())};
        mine->head = head;
        mine->set_reason(own);
        ONEBIT_RETURN_IF_ERROR(bootstrap_.allgather(mine, all.data(), sizeof(Record)));
        for (std::size_t r = 0; r < ranks_; ++r) {
            const RecordHead& there = all[r].head;
            if (there.magic == head.magic && there.rank == r && there.ranks == head.ranks) continue;
            return Status::error(
                ONEBIT_ERROR_INVALID_ARGUMENT,
                "allgather: place %zu of %zu has not what rank %zu gave: ranks are to be in order, and "
                "all of one communicator and one version of onebit",
                r, ranks_, r);
        }
        for (std::size_t r = 0; r < ranks_; ++r) {
            const std::uint32_t status = all[r].head.status;
            if (status == ONEBIT_SUCCESS) continue;
            return Status::error(told_status(status), "rank %zu: %s", r, all[r].reason());
        }
        return {};
    }

    /// Whether all ranks have the memory for what follows.
    Status gather_tickets(const Status& own) {
        Ticket mine;
        const std::span few = std::span(few_tickets_).first(std::min(ranks_, few_tickets_.size()));
        return gather(own, &mine, many_tickets_.empty() ? few : std::span(many_tickets_));
    }

    void find_node() {
        const std::uint64_t node = introductions_[rank_].node;
        for (std::size_t r = 0; r < ranks_; ++r) {
            const Introduction& other = introductions_[r];
            if (other.node == node) {
                if (r == rank_) own_index_ = in_node_.size();
                in_node_.push_back(r);
            } else {
                const auto number = std::min(other.num_addresses, std::uint64_t{Introduction::kMostAddresses});
                others_.emplace_back(other.addresses.begin(), other.addresses.begin() + static_cast<int>(number));
            }
        }
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

    /// Where all ranks are on one node, loopback is enough.
    Address choose() const {
        if (others_.empty() && bootstrap_.interface.empty()) {
            const Address loopback = find_loopback();
            if (loopback.family != 0) return loopback;
        }
        return choose_address(own_, others_);
    }

    /// The inboxes of this rank's node that it can see, by rank.
    std::vector<std::unique_ptr<const Inbox>> find_inboxes() const {
        std::vector<std::unique_ptr<const Inbox>> inboxes(ranks_);
        for (const std::size_t r : in_node_) {
            std::unique_ptr<MappedMemory> memory;
            if (inbox_ == nullptr || r == rank_) continue;
            const std::size_t bytes = Inbox::bytes(in_node_.size());
            if (!MappedMemory::open(invitations_[r].inbox, bytes, &memory).ok()) continue; // then over TCP
            inboxes[r] = std::make_unique<Inbox>(std::move(memory));
        }
        return inboxes;
    }

    void make_ways() {
        std::vector<Place> places;
        places.reserve(ranks_);
        for (const Invitation& invitation : invitations_) places.push_back(invitation.place);
        std::vector<std::unique_ptr<const Inbox>> inboxes = find_inboxes();
        std::vector<bool> found(ranks_);
        ways_.resize(ranks_);
        for (std::size_t r = 0; r < ranks_; ++r) {
            if (r == rank_) continue;
            auto stream = std::make_unique<SocketStream>();
            ways_[r].stream = stream.get();
            ways_[r].by_socket = std::make_unique<Connection>(std::move(stream));
            found[r] = inboxes[r] != nullptr;
            if (found[r]) ways_[r].by_memory = through_memory(r, std::move(inboxes[r]));
        }
        handshake_.emplace(bootstrap_.rank, listener_, std::move(places), std::move(found));
    }

    std::unique_ptr<Connection> through_memory(std::size_t rank, std::unique_ptr<const Inbox> peers) const {
        const auto place = std::find(in_node_.begin(), in_node_.end(), rank) - in_node_.begin();
        Ring& in = inbox_->from(static_cast<std::size_t>(place));
        Ring& out = peers->from(own_index_);
        return std::make_unique<Connection>(std::make_unique<RingStream>(inbox_, in, std::move(peers), out));
    }

    const Bootstrap& bootstrap_;
    std::size_t rank_;
    std::size_t ranks_;
    std::array<Ticket, 1024> few_tickets_; ///< so that a rank which has no memory can say so
    std::vector<Ticket> many_tickets_;     ///< used instead with more ranks
    std::vector<Introduction> introductions_;
    std::vector<Address> own_;
    std::vector<std::vector<Address>> others_; ///< of ranks on other nodes
    std::vector<std::size_t> in_node_;         ///< ranks of this node
    std::size_t own_index_ = 0;                ///< of this rank among them
    Listener listener_;
    std::shared_ptr<Inbox> inbox_;
    std::vector<Invitation> invitations_;
    std::vector<Way> ways_; ///< by rank
    std::optional<Handshake> handshake_;
};

} // namespace

Status meet_peers(const Bootstrap& bootstrap, const Status& own, std::vector<TcpLink::Peer>* peers) {
    if (bootstrap.ranks == 1) {
        peers->resize(1);
        return own;
    }
    Meeting meeting(bootstrap);
    ONEBIT_RETURN_IF_ERROR(meeting.take_memory());
    ONEBIT_RETURN_IF_ERROR(meeting.introduce(own));
    ONEBIT_RETURN_IF_ERROR(meeting.invite());
    ONEBIT_RETURN_IF_ERROR(meeting.prepare(peers));
    return meeting.connect(peers);
}

} // namespace onebit
