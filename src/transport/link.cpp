// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/link.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "transport/node_memory.hpp"

namespace onebit {

// ------------------------------------------------------------------------------------------------- notices ----

Notice Link::make_notice(int channel, const Status& why) {
    Notice notice;
    notice.channel = channel;
    notice.status = why.code();
    std::snprintf(notice.reason.data(), notice.reason.size(), "%s", why.message().c_str());
    return notice;
}

/// A reason that itself came from a peer names that peer already.
void Link::keep(int from, const Notice& notice) {
    const std::string reason(notice.reason.data(), strnlen(notice.reason.data(), notice.reason.size()));
    const char* const what = notice.channel < 0 ? "aborted" : "gave up";
    const std::string by = reason.starts_with("rank ") ? "" : "rank " + std::to_string(from) + " " + what + ": ";
    const Status why =
        Status::error(told_status(static_cast<std::uint32_t>(notice.status)), "%s%s", by.c_str(), reason.c_str());
    std::shared_ptr<AbortSwitch> abort_switch;
    {
        const std::lock_guard lock(mutex_);
        Heard& heard = heard_[notice.channel];
        if (heard.ranks.empty()) heard.first = why;
        heard.ranks.push_back(from);
        has_heard_.store(true, std::memory_order_release);
        const auto found = switches_.find(notice.channel);
        if (found != switches_.end()) abort_switch = found->second;
    }
    if (abort_switch != nullptr) abort_switch->hear(why);
}

void Link::tell_by(AbortSwitch& abort_switch, const std::vector<int>& ranks, int first_tag) {
    abort_switch.set_messenger(
        [this, &ranks, first_tag](const Status& why) { return try_tell(ranks, everything_of(first_tag), why); },
        takes_any_thread());
}

/// A peer may have made the group, and given everything up, before this rank makes the group.
void Link::enlist(int first_tag, const std::shared_ptr<AbortSwitch>& abort_switch) {
    const int everything = everything_of(first_tag);
    Status why;
    {
        const std::lock_guard lock(mutex_);
        switches_[everything] = abort_switch;
        const auto found = heard_.find(everything);
        if (found != heard_.end()) why = found->second.first;
    }
    if (!why.ok()) abort_switch->hear(why);
}

void Link::strike(int first_tag) {
    const std::lock_guard lock(mutex_);
    switches_.erase(everything_of(first_tag));
}

Status Link::listen(int channel) {
    ONEBIT_RETURN_IF_ERROR(look_for_notices());
    return heard(channel);
}

Status Link::heard(int channel) const {
    if (abort_switch_->tripped()) return abort_switch_->why();
    if (!has_heard_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(mutex_);
    const auto found = heard_.find(channel);
    return found == heard_.end() ? Status() : found->second.first;
}

bool Link::has_told(int rank, int channel) const {
    const std::lock_guard lock(mutex_);
    const auto found = heard_.find(channel);
    if (found == heard_.end()) return false;
    const std::vector<int>& ranks = found->second.ranks;
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// ---------------------------------------------------------------------------------------------------- tags ----

TakenTags::TakenTags(TakenTags&& other) noexcept
    : group_(std::move(other.group_)), first_(other.first_), lost_(other.lost_.load()) {}

TakenTags& TakenTags::operator=(TakenTags&& other) noexcept {
    let_go();
    group_ = std::move(other.group_);
    first_ = other.first_;
    lost_ = other.lost_.load();
    return *this;
}

Status TakenTags::take(const std::shared_ptr<Group>& group, int tags, TakenTags* taken) {
    int first = 0;
    ONEBIT_RETURN_IF_ERROR(group->tags().take(tags, &first));
    *taken = TakenTags(group, first);
    return {};
}

Status TakenTags::take_part(const std::shared_ptr<Group>& group, TakenTags* taken) {
    int first = 0;
    ONEBIT_RETURN_IF_ERROR(group->tags().take_part(&first));
    *taken = TakenTags(group, first);
    return {};
}

/// A rank that aborts a group tells the others under the group's tags. They may hear of it much later.
void TakenTags::let_go() noexcept {
    if (group_ == nullptr) return;
    if (lost_ || group_->abort_switch()->tripped()) {
        group_->lose_tags();
    } else {
        group_->tags().let_go(first_);
    }
    group_.reset();
}

// -------------------------------------------------------------------------------------------------- groups ----

Group::Group(std::shared_ptr<Link> link)
    : link_(std::move(link)),
      members_(link_->everyone()),
      tags_(Link::kFirstTag, link_->last_tag() - Link::kFirstTag),
      abort_switch_(link_->abort_switch()) {
    link_->enlist(first_tag(), abort_switch_);
}

Group::Group(TakenTags of_whole, std::vector<int> members)
    : link_(of_whole.group()->link_),
      of_whole_(std::move(of_whole)),
      members_(std::move(members)),
      tags_(of_whole_.first(), of_whole_.group()->tags().tags_of_part()),
      abort_switch_(std::make_shared<AbortSwitch>(of_whole_.group()->abort_switch_)) {
    link_->tell_by(*abort_switch_, members_, first_tag());
    link_->enlist(first_tag(), abort_switch_);
}

Group::~Group() {
    if (!is_part()) return; // the link takes care of its own switch
    link_->strike(first_tag());
    abort_switch_->set_messenger(nullptr, false);   // handles may keep the switch
    if (abort_switch_->tripped()) of_whole_.lose(); // by another thread, while the last channel went
}

bool Group::has_told(int rank, int channel) const {
    if (link_->has_gone(rank) || link_->has_told(rank, channel)) return true;
    for (const Group* group = this; group != nullptr; group = group->of_whole_.group().get()) {
        if (link_->has_told(rank, Link::everything_of(group->first_tag()))) return true;
    }
    return false;
}

// ------------------------------------------------------------------------------------------------ channels ----

Status LinkTransport::take_root(const std::shared_ptr<Link>& link, Channel* channel) {
    return take_root(std::make_shared<Group>(link), link->rank(), channel);
}

Status LinkTransport::take_root(const std::shared_ptr<Group>& group, int rank, Channel* channel) {
    TakenTags taken;
    ONEBIT_RETURN_IF_ERROR(TakenTags::take(group, kFewTags, &taken));
    const int first_tag = taken.first();
    *channel = {std::make_shared<TakenTags>(std::move(taken)), group->members(), rank, first_tag, kFewTags};
    return {};
}

Status LinkTransport::duplicate(int tags, std::unique_ptr<Transport>* channel) {
    ONEBIT_RETURN_IF_ERROR(check_is_of_all());
    TakenTags taken;
    ONEBIT_RETURN_IF_ERROR(TakenTags::take(channel_.group(), tags_with_splits(tags), &taken));
    const int first_tag = taken.first();
    *channel = open({std::make_shared<TakenTags>(std::move(taken)), channel_.members, channel_.rank, first_tag, tags});
    return {};
}

/// Parts share the tags if no two of them have a rank in common: their messages never meet.
Status LinkTransport::make_group(const std::vector<int>& members, std::unique_ptr<Transport>* channel) {
    ONEBIT_RETURN_IF_ERROR(check_is_of_all());
    TakenTags taken;
    ONEBIT_RETURN_IF_ERROR(TakenTags::take_part(channel_.group(), &taken));
    if (members.empty()) return {};
    const auto mine = std::find(members.begin(), members.end(), rank());
    std::vector<int> of_link;
    of_link.reserve(members.size());
    for (const int member : members) of_link.push_back(channel_.member(member));
    Channel root;
    ONEBIT_RETURN_IF_ERROR(take_root(std::make_shared<Group>(std::move(taken), std::move(of_link)),
                                     static_cast<int>(mine - members.begin()), &root));
    *channel = open(std::move(root));
    return {};
}

Status LinkTransport::split(const std::vector<int>& color_of_rank, std::unique_ptr<Transport>* channel) {
    Channel part;
    ONEBIT_RETURN_IF_ERROR(take_split(&part));
    const int color = color_of_rank[static_cast<std::size_t>(rank())];
    for (std::size_t r = 0; r < color_of_rank.size(); ++r) {
        if (color_of_rank[r] != color) continue;
        if (static_cast<int>(r) == rank()) part.rank = static_cast<int>(part.members.size());
        part.members.push_back(channel_.members[r]);
    }
    *channel = open(std::move(part));
    return {};
}

Status LinkTransport::share_memory(std::size_t bytes, const Patience& patience, std::unique_ptr<SharedMemory>* memory) {
    const std::uint64_t before = bytes_sent_;
    const Status shared = share_node_memory(bytes, patience, memory);
    bytes_sent_ = before; // counts operations alone
    return shared;
}

Status LinkTransport::plan_exchange(std::vector<Part> sends, std::vector<Part> receives, int tag,
                                    std::unique_ptr<Exchange>* exchange) {
    if (tag >= channel_.tags) return Status::error(ONEBIT_ERROR_INTERNAL, "%s: the channel has no tag %d", name(), tag);
    if (!reaches_devices()) ONEBIT_RETURN_IF_ERROR(check_on_host(sends, receives));
    drop_empty(sends, receives);
    return plan(sends, receives, tag, exchange);
}

void LinkTransport::give_up(const Status& why) {
    channel_.taken->lose();
    if (!std::exchange(given_up_, true)) link_->tell(channel_.members, channel_.first_tag, why);
}

std::vector<int> LinkTransport::silent_ranks() {
    std::vector<int> silent;
    for (int r = 0; r < size(); ++r) {
        if (r != rank() && !channel_.group()->has_told(channel_.member(r), channel_.first_tag)) silent.push_back(r);
    }
    return silent;
}

/// The other ranks would not know which tags the channel of some of them has taken.
Status LinkTransport::check_is_of_all() const {
    if (is_of_all()) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s: a channel of some of the ranks has no channels of its own",
                         name());
}

/// A part of the first channel, which can be split any number of times, has new tags. Others use their channel's.
Status LinkTransport::take_split(Channel* part) {
    part->tags = kSplitTags;
    if (is_root()) {
        ONEBIT_RETURN_IF_ERROR(check_is_of_all());
        TakenTags taken;
        ONEBIT_RETURN_IF_ERROR(TakenTags::take(channel_.group(), kSplitTags, &taken));
        part->first_tag = taken.first();
        part->taken = std::make_shared<TakenTags>(std::move(taken));
        return {};
    }
    part->first_tag = channel_.first_tag + channel_.tags + splits_ * kSplitTags;
    part->taken = channel_.taken;
    if (is_of_all() && splits_++ < kMostSplits) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s: a channel is split %d times at most", name(), kMostSplits);
}

} // namespace onebit
