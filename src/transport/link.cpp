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

Status Link::take_tags(int tags, int* first) {
    *first = next_tag_.fetch_add(tags);
    if (*first > 0 && *first <= last_tag_ - tags) return {};
    next_tag_ = last_tag_; // and so for good
    return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                         "the communicator has used up its %d tags: make a new communicator for further handles",
                         last_tag_);
}

// ------------------------------------------------------------------------------------------------- notices ----

Notice Link::make_notice(int channel, const Status& why) {
    Notice notice;
    notice.channel = channel;
    notice.status = why.code();
    std::snprintf(notice.reason.data(), notice.reason.size(), "%s", why.message().c_str());
    return notice;
}

/// A reason that is itself a peer's names that peer already.
void Link::keep(int from, const Notice& notice) {
    const std::string reason(notice.reason.data(), strnlen(notice.reason.data(), notice.reason.size()));
    const char* const what = notice.channel == kEverything ? "aborted" : "gave up";
    const std::string by = reason.starts_with("rank ") ? "" : "rank " + std::to_string(from) + " " + what + ": ";
    const Status why = Status::error(static_cast<onebit_status_t>(notice.status), "%s%s", by.c_str(), reason.c_str());
    if (notice.channel == kEverything) abort_switch_->hear(why);
    const std::lock_guard lock(mutex_);
    Heard& heard = heard_[notice.channel];
    if (heard.ranks.empty()) heard.first = why;
    heard.ranks.push_back(from);
    has_heard_.store(true, std::memory_order_release);
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
    if (has_gone(rank)) return true;
    const std::lock_guard lock(mutex_);
    for (const int about : {channel, kEverything}) {
        const auto found = heard_.find(about);
        if (found == heard_.end()) continue;
        const std::vector<int>& ranks = found->second.ranks;
        if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return true;
    }
    return false;
}

// ------------------------------------------------------------------------------------------------ channels ----

Status LinkTransport::take_root(Link& link, Channel* channel) {
    int first_tag = 0;
    ONEBIT_RETURN_IF_ERROR(link.take_tags(kFewTags, &first_tag));
    *channel = {link.everyone(), link.rank(), first_tag, kFewTags};
    return {};
}

Status LinkTransport::duplicate(int tags, std::unique_ptr<Transport>* channel) {
    int first_tag = 0; // taken first, so that ranks keep step whatever fails
    ONEBIT_RETURN_IF_ERROR(take_tags(tags + kMostSplits * kFewTags, &first_tag));
    *channel = open({channel_.members, channel_.rank, first_tag, tags});
    return {};
}

Status LinkTransport::split(const std::vector<int>& color_of_rank, std::unique_ptr<Transport>* channel) {
    int first_tag = 0;
    ONEBIT_RETURN_IF_ERROR(is_root() ? take_tags(kFewTags, &first_tag) : take_tags_of_split(&first_tag));
    const int color = color_of_rank[static_cast<std::size_t>(rank())];
    Channel part = {{}, 0, first_tag, kFewTags};
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
    bytes_sent_ = before; // of operations alone
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
    if (!std::exchange(given_up_, true)) link_->tell(channel_.members, channel_.first_tag, why);
}

std::vector<int> LinkTransport::silent_ranks() {
    std::vector<int> silent;
    for (int r = 0; r < size(); ++r) {
        if (r != rank() && !link_->has_told(channel_.member(r), channel_.first_tag)) silent.push_back(r);
    }
    return silent;
}

/// The other ranks would not know which tags the channel of some of them has taken.
Status LinkTransport::take_tags(int tags, int* first) const {
    if (size() == link_->size()) return link_->take_tags(tags, first);
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s: a channel of some of the ranks has no channels of its own",
                         name());
}

Status LinkTransport::take_tags_of_split(int* first) {
    *first = channel_.first_tag + channel_.tags + splits_ * kFewTags;
    if (size() == link_->size() && splits_++ < kMostSplits) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s: a channel is split %d times at most", name(), kMostSplits);
}

} // namespace onebit
