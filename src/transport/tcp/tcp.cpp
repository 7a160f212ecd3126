// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp.hpp"

#include <utility>
#include <vector>

#include "transport/nodes.hpp"
#include "transport/tcp/meeting.hpp"
#include "transport/tcp/tcp_link.hpp"

namespace onebit {
namespace {

/// The link is closed with the last channel: exchanges that were left behind must not keep it open.
struct OpenLink {
    explicit OpenLink(std::shared_ptr<TcpLink> opened) : link(std::move(opened)) {}
    ~OpenLink() { link->close(); }
    OpenLink(const OpenLink&) = delete;
    OpenLink& operator=(const OpenLink&) = delete;

    std::shared_ptr<TcpLink> link;
};

class TcpExchange final : public Exchange {
  public:
    TcpExchange(std::shared_ptr<TcpLink> link, const Channel& channel, std::uint64_t& bytes_sent)
        : link_(std::move(link)), taken_(channel.taken), channel_(channel.first_tag), bytes_sent_(bytes_sent) {}
    ~TcpExchange() override {
        if (pending_ < messages_.size()) taken_->lose();
        link_->cancel(messages_);
    }
    TcpExchange(const TcpExchange&) = delete;
    TcpExchange& operator=(const TcpExchange&) = delete;

    void plan(const Channel& channel, const std::vector<Part>& sends, const std::vector<Part>& receives, int tag) {
        const auto add = [&](const Part& part, bool is_send) {
            const Transfer transfer = {channel.first_tag + tag, static_cast<std::byte*>(part.data), part.bytes};
            messages_.push_back({channel.member(part.peer), is_send, transfer});
        };
        messages_.reserve(sends.size() + receives.size());
        for (const Part& part : receives) add(part, false);
        for (const Part& part : sends) {
            add(part, true);
            bytes_per_start_ += part.bytes;
        }
        pending_ = messages_.size();
    }

    Status start() override {
        pending_ = 0;
        bytes_sent_ += bytes_per_start_;
        link_->post(messages_);
        return {};
    }

    Status test(bool* done) override {
        Status moved;
        if (pending_ < messages_.size()) moved = link_->advance(messages_, &pending_);
        *done = moved.ok() && pending_ == messages_.size();
        if (*done) return {};
        Status heard = link_->heard(channel_); // it says more than that the peer is gone
        return heard.ok() ? moved : heard;
    }

  private:
    std::shared_ptr<TcpLink> link_;       ///< exchanges may outlive the transport
    std::shared_ptr<TakenTags> taken_;    ///< the channel's
    int channel_;                         ///< its first tag
    std::vector<TcpLink::Post> messages_; ///< receives first
    std::size_t pending_ = 0;             ///< those before it are done
    std::uint64_t bytes_per_start_ = 0;
    std::uint64_t& bytes_sent_;
};

class TcpTransport final : public LinkTransport {
  public:
    TcpTransport(std::shared_ptr<OpenLink> open_link, Channel channel)
        : LinkTransport(open_link->link, std::move(channel)), open_link_(std::move(open_link)) {}

    /// The first channel.
    static Status create(std::shared_ptr<TcpLink> link, std::unique_ptr<Transport>* transport) {
        Channel root;
        ONEBIT_RETURN_IF_ERROR(take_root(link, &root));
        *transport = std::make_unique<TcpTransport>(std::make_shared<OpenLink>(std::move(link)), std::move(root));
        return {};
    }

    std::uint64_t node_identity() const override { return host_identity(); }

    Status progress() override { return open_link_->link->listen(channel().first_tag); }

  private:
    std::unique_ptr<Transport> open(Channel channel) const override {
        return std::make_unique<TcpTransport>(open_link_, std::move(channel));
    }
    Status plan(const std::vector<Part>& sends, const std::vector<Part>& receives, int tag,
                std::unique_ptr<Exchange>* exchange) override {
        auto planned = std::make_unique<TcpExchange>(open_link_->link, channel(), bytes_sent_);
        planned->plan(channel(), sends, receives, tag);
        *exchange = std::move(planned);
        return {};
    }

    std::shared_ptr<OpenLink> open_link_;
};

} // namespace

Status make_tcp_transport(const Bootstrap& bootstrap, const Status& own, std::unique_ptr<Transport>* transport) {
    std::shared_ptr<TcpLink> link;
    std::unique_ptr<Transport> made;
    const Status prepared = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(own);
        ONEBIT_RETURN_IF_ERROR(TcpLink::create(bootstrap.rank, bootstrap.ranks, &link));
        return TcpTransport::create(link, &made);
    });
    std::vector<TcpLink::Peer> peers;
    ONEBIT_RETURN_IF_ERROR(meet_peers(bootstrap, prepared, &peers));
    ONEBIT_RETURN_IF_ERROR(link->join(std::move(peers)));
    *transport = std::move(made);
    return {};
}

} // namespace onebit
