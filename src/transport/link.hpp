// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/abort_switch.hpp"
#include "core/status.hpp"
#include "transport/tag_space.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// What a rank tells its peers, as it travels.
struct Notice {
    int channel = 0;
    int status = 0;
    std::array<char, 504> reason{};
};

/// What a communicator, its parts and all their handles send messages through. A channel is a range of tags on it, so
/// that making one asks nothing of anybody. Ranks tell each other that they give up a channel, or all of a group's
/// (notices).
class Link {
  public:
    /// Of the first channel.
    static constexpr int kFirstTag = 1;
    int last_tag() const { return last_tag_; }

    virtual ~Link() = default;
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    virtual const char* name() const = 0;
    int rank() const { return rank_; }
    int size() const { return size_; }
    const std::vector<int>& everyone() const { return everyone_; }
    const std::shared_ptr<AbortSwitch>& abort_switch() const { return abort_switch_; }

    /// Tells these ranks that this one gives up the channel whose first tag is `channel`. Never waits. The first notice
    /// needs no memory. A later one that has none is not sent; the others then wait until their own time is up.
    /// `channel` may be a whole group's (everything_of).
    virtual void tell(std::span<const int> ranks, int channel, const Status& why) noexcept = 0;
    /// The same from any thread. False where this one may not speak to the others now.
    virtual bool try_tell(std::span<const int> ranks, int channel, const Status& why) noexcept = 0;
    /// Whether messages may be sent while another thread is in a call.
    virtual bool takes_any_thread() const = 0;

    /// In the place of a channel: all channels of the group whose first tag this is.
    static constexpr int everything_of(int first_tag) { return -first_tag; }
    /// From now on the switch of the group whose first tag this is, when it is tripped, tells these ranks, which stay
    /// where they are until its messenger is taken away.
    void tell_by(AbortSwitch& abort_switch, const std::vector<int>& ranks, int first_tag);
    /// Trips the switch of a group when a peer tells that it gives up everything, until it is struck off.
    void enlist(int first_tag, const std::shared_ptr<AbortSwitch>& abort_switch);
    void strike(int first_tag);

    /// Looks for notices. What the first peer said that gave the channel up, or everything; else a success.
    Status listen(int channel);
    /// The same from what is known already.
    Status heard(int channel) const;
    /// Whether this rank has given the channel up, in words of its own.
    bool has_told(int rank, int channel) const;
    /// Whether the peer is known to have gone without a word.
    virtual bool has_gone(int /*rank*/) const { return false; }

  protected:
    Link(int rank, int size) : rank_(rank), size_(size), everyone_(static_cast<std::size_t>(size)) {
        std::iota(everyone_.begin(), everyone_.end(), 0);
    }

    /// keep()s what peers have told.
    virtual Status look_for_notices() = 0;
    static Notice make_notice(int channel, const Status& why);
    /// Of a peer that has told it.
    void keep(int from, const Notice& notice);
    void set_last_tag(int last_tag) { last_tag_ = last_tag; }

  private:
    int rank_;
    int size_;
    int last_tag_ = std::numeric_limits<int>::max();
    std::vector<int> everyone_; ///< all ranks
    std::shared_ptr<AbortSwitch> abort_switch_ = std::make_shared<AbortSwitch>();

    struct Heard {
        Status first;
        std::vector<int> ranks;
    };
    mutable std::mutex mutex_;                             ///< of what follows
    std::map<int, Heard> heard_;                           ///< by channel
    std::map<int, std::shared_ptr<AbortSwitch>> switches_; ///< of groups, by what stands for everything of them
    std::atomic<bool> has_heard_ = false;
};

class Group;

/// Tags of a group that a channel or a part has taken. They are let go with it. Copies of the channel share it.
class TakenTags {
  public:
    /// None.
    TakenTags() = default;
    TakenTags(TakenTags&& other) noexcept;
    TakenTags& operator=(TakenTags&& other) noexcept;
    ~TakenTags() { let_go(); }
    TakenTags(const TakenTags&) = delete;
    TakenTags& operator=(const TakenTags&) = delete;

    /// For a channel with so many tags. Needs no memory, so that ranks keep step whatever fails.
    static Status take(const std::shared_ptr<Group>& group, int tags, TakenTags* taken);
    static Status take_part(const std::shared_ptr<Group>& group, TakenTags* taken);

    int first() const { return first_; }
    const std::shared_ptr<Group>& group() const { return group_; }

    /// Messages that have them may be under way for ever, so nobody is to take them again.
    void lose() { lost_ = true; }

  private:
    TakenTags(std::shared_ptr<Group> group, int first) : group_(std::move(group)), first_(first) {}
    void let_go() noexcept;

    std::shared_ptr<Group> group_; ///< NULL: nothing is taken
    int first_ = 0;
    std::atomic<bool> lost_ = false;
};

/// The ranks of a communicator, what ends its calls, and the tags that its channels have.
class Group {
  public:
    /// Everyone, and all tags.
    explicit Group(std::shared_ptr<Link> link);
    /// A part of a group. Its tags are those of the whole. Others that it is divided into may have the same.
    Group(TakenTags of_whole, std::vector<int> members);
    ~Group();
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    const std::vector<int>& members() const { return members_; }
    int first_tag() const { return tags_.first(); }
    TagSpace& tags() { return tags_; }
    const std::shared_ptr<AbortSwitch>& abort_switch() const { return abort_switch_; }

    /// Of a part: the whole never gives the part's tags again.
    void lose_tags() { of_whole_.lose(); }

    /// Whether this rank of the link has given up the channel, everything of this group, or of one that it is in.
    bool has_told(int rank, int channel) const;

  private:
    bool is_part() const { return of_whole_.group() != nullptr; }

    std::shared_ptr<Link> link_;
    TakenTags of_whole_;       ///< nothing where there is no whole
    std::vector<int> members_; ///< ranks of the link
    TagSpace tags_;
    std::shared_ptr<AbortSwitch> abort_switch_;
};

/// The members of a channel, by their ranks in it, and its tags.
struct Channel {
    std::shared_ptr<TakenTags> taken; ///< its own are some of them
    std::vector<int> members;         ///< ranks of the link
    int rank = 0;                     ///< of this process
    int first_tag = 0;
    int tags = 0;

    const std::shared_ptr<Group>& group() const { return taken->group(); }
    int member(int peer) const { return members[static_cast<std::size_t>(peer)]; }
};

/// A channel of a link, but for how its messages travel.
class LinkTransport : public Transport {
  public:
    const char* name() const final { return link_->name(); }
    int rank() const final { return channel_.rank; }
    int size() const final { return static_cast<int>(channel_.members.size()); }
    std::shared_ptr<AbortSwitch> abort_switch() const final { return channel_.group()->abort_switch(); }
    TagSpace* tag_space() final { return &channel_.group()->tags(); }

    Status duplicate(int tags, std::unique_ptr<Transport>* channel) final;
    Status split(const std::vector<int>& color_of_rank, std::unique_ptr<Transport>* channel) final;
    Status make_group(const std::vector<int>& members, std::unique_ptr<Transport>* channel) final;
    Status share_memory(std::size_t bytes, const Patience& patience, std::unique_ptr<SharedMemory>* memory) final;
    Status plan_exchange(std::vector<Part> sends, std::vector<Part> receives, int tag,
                         std::unique_ptr<Exchange>* exchange) final;
    void give_up(const Status& why) final;
    std::vector<int> silent_ranks() final;

  protected:
    LinkTransport(std::shared_ptr<Link> link, Channel channel) : link_(std::move(link)), channel_(std::move(channel)) {}

    /// The first channel of a link, of all ranks.
    static Status take_root(const std::shared_ptr<Link>& link, Channel* channel);
    /// Another channel of the same link.
    virtual std::unique_ptr<Transport> open(Channel channel) const = 0;
    /// An exchange of messages that have bytes, and lie where this transport reaches them.
    virtual Status plan(const std::vector<Part>& sends, const std::vector<Part>& receives, int tag,
                        std::unique_ptr<Exchange>* exchange) = 0;

    const Channel& channel() const { return channel_; }

  private:
    /// The first channel of a group, with the first of its tags.
    static Status take_root(const std::shared_ptr<Group>& group, int rank, Channel* channel);
    bool is_root() const { return channel_.first_tag == channel_.group()->first_tag(); }
    bool is_of_all() const { return channel_.members.size() == channel_.group()->members().size(); }
    /// Of a channel of all ranks.
    Status check_is_of_all() const;
    Status take_split(Channel* part);

    std::shared_ptr<Link> link_;
    Channel channel_;
    int splits_ = 0;
    bool given_up_ = false;
};

} // namespace onebit
