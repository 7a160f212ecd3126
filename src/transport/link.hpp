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

/// What a rank tells its peers, in the form in which it travels.
struct Notice {
    int channel = 0;
    int status = 0;
    std::array<char, 504> reason{};
};

/// A communicator, its parts and all their handles send messages through a link. A channel is a range of the link's
/// tags, so making a channel needs no other rank. Ranks tell each other that they give up a channel, or all channels of
/// a group (notices).
class Link {
  public:
    /// The first channel's first tag.
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
    /// needs no memory. A later notice without memory is not sent; the other ranks then wait until their own time is
    /// up. `channel` may stand for a whole group (everything_of).
    virtual void tell(std::span<const int> ranks, int channel, const Status& why) noexcept = 0;
    /// The same from any thread. False where this thread may not send to the other ranks now.
    virtual bool try_tell(std::span<const int> ranks, int channel, const Status& why) noexcept = 0;
    /// Whether messages may be sent while another thread is in a call.
    virtual bool takes_any_thread() const = 0;

    /// In the place of a channel: all channels of the group whose first tag is `first_tag`.
    static constexpr int everything_of(int first_tag) { return -first_tag; }
    /// From now on `abort_switch`, the switch of the group with this first tag, tells these ranks when it is tripped.
    /// `ranks` must stay in place until the switch's messenger is taken away.
    void tell_by(AbortSwitch& abort_switch, const std::vector<int>& ranks, int first_tag);
    /// Trips the group's switch when a peer tells that it gives up the whole group. Ends with strike().
    void enlist(int first_tag, const std::shared_ptr<AbortSwitch>& abort_switch);
    void strike(int first_tag);

    /// Looks for notices. Returns what the first peer said that gave up the channel or everything; else a success.
    Status listen(int channel);
    /// The same, from the notices known already.
    Status heard(int channel) const;
    /// Whether the rank `rank` has itself told that it gives the channel up.
    bool has_told(int rank, int channel) const;
    /// Whether the peer is known to have gone without a notice.
    virtual bool has_gone(int /*rank*/) const { return false; }

  protected:
    Link(int rank, int size) : rank_(rank), size_(size), everyone_(static_cast<std::size_t>(size)) {
        std::iota(everyone_.begin(), everyone_.end(), 0);
    }

    /// keep()s what peers have told.
    virtual Status look_for_notices() = 0;
    static Notice make_notice(int channel, const Status& why);
    /// Stores a notice that the peer `from` has told.
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
    mutable std::mutex mutex_;                             ///< guards what follows
    std::map<int, Heard> heard_;                           ///< by channel
    std::map<int, std::shared_ptr<AbortSwitch>> switches_; ///< of groups, by everything_of(their first tag)
    std::atomic<bool> has_heard_ = false;
};

class Group;

/// Tags of a group that a channel or a part has taken. This object lets them go. Copies of the channel share it.
class TakenTags {
  public:
    /// None.
    TakenTags() = default;
    TakenTags(TakenTags&& other) noexcept;
    TakenTags& operator=(TakenTags&& other) noexcept;
    ~TakenTags() { let_go(); }
    TakenTags(const TakenTags&) = delete;
    TakenTags& operator=(const TakenTags&) = delete;

    /// For a channel with `tags` tags. Needs no memory, so that all ranks take the same tags whatever fails.
    static Status take(const std::shared_ptr<Group>& group, int tags, TakenTags* taken);
    static Status take_part(const std::shared_ptr<Group>& group, TakenTags* taken);

    int first() const { return first_; }
    const std::shared_ptr<Group>& group() const { return group_; }

    /// Messages with these tags may be under way for ever, so no channel may take the tags again.
    void lose() { lost_ = true; }

  private:
    TakenTags(std::shared_ptr<Group> group, int first) : group_(std::move(group)), first_(first) {}
    void let_go() noexcept;

    std::shared_ptr<Group> group_; ///< NULL: nothing is taken
    int first_ = 0;
    std::atomic<bool> lost_ = false;
};

/// The ranks of a communicator, the switch that ends its calls, and the tags of its channels.
class Group {
  public:
    /// All ranks of the link, and all tags.
    explicit Group(std::shared_ptr<Link> link);
    /// A part of a group. Its tags come from the whole group. Other parts of that group may have the same tags.
    Group(TakenTags of_whole, std::vector<int> members);
    ~Group();
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    const std::vector<int>& members() const { return members_; }
    int first_tag() const { return tags_.first(); }
    TagSpace& tags() { return tags_; }
    const std::shared_ptr<AbortSwitch>& abort_switch() const { return abort_switch_; }

    /// Of a part: the whole group never gives the part's tags again.
    void lose_tags() { of_whole_.lose(); }

    /// Whether the link's rank `rank` has given up the channel, this whole group, or a whole group that contains it.
    bool has_told(int rank, int channel) const;

  private:
    bool is_part() const { return of_whole_.group() != nullptr; }

    std::shared_ptr<Link> link_;
    TakenTags of_whole_;       ///< nothing unless this group is a part
    std::vector<int> members_; ///< ranks of the link
    TagSpace tags_;
    std::shared_ptr<AbortSwitch> abort_switch_;
};

/// The members of a channel, by their ranks in it, and its tags.
struct Channel {
    std::shared_ptr<TakenTags> taken; ///< the channel's own tags are some of these
    std::vector<int> members;         ///< ranks of the link
    int rank = 0;                     ///< of this process
    int first_tag = 0;
    int tags = 0;

    const std::shared_ptr<Group>& group() const { return taken->group(); }
    int member(int peer) const { return members[static_cast<std::size_t>(peer)]; }
};

/// A channel of a link, except for how its messages travel.
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
    /// An exchange of messages that are not empty and lie where this transport reaches them.
    virtual Status plan(const std::vector<Part>& sends, const std::vector<Part>& receives, int tag,
                        std::unique_ptr<Exchange>* exchange) = 0;

    const Channel& channel() const { return channel_; }

  private:
    /// The first channel of a group, with the first of its tags.
    static Status take_root(const std::shared_ptr<Group>& group, int rank, Channel* channel);
    bool is_root() const { return channel_.first_tag == channel_.group()->first_tag(); }
    bool is_of_all() const { return channel_.members.size() == channel_.group()->members().size(); }
    /// UNSUPPORTED unless the channel is of all ranks.
    Status check_is_of_all() const;
    Status take_split(Channel* part);

    std::shared_ptr<Link> link_;
    Channel channel_;
    int splits_ = 0;
    bool given_up_ = false;
};

} // namespace onebit
