// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/give_up.hpp"

#include <sched.h>

#include <chrono>
#include <string>

namespace onebit {
namespace {

/// "rank 3 has not answered", "ranks 1, 5 and 9 others have not answered".
std::string describe(const std::vector<int>& ranks) {
    constexpr std::size_t kNamed = 8;
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size() && i < kNamed; ++i) {
        if (i > 0) text += ", ";
        text += std::to_string(ranks[i]);
    }
    if (ranks.size() > kNamed) text += " and " + std::to_string(ranks.size() - kNamed) + " others";
    return text + (ranks.size() == 1 ? " has not answered" : " have not answered");
}

} // namespace

Status give_up_on(Transport& channel, const Status& why) {
    constexpr std::chrono::milliseconds kMoment{300};
    channel.give_up(why);
    const bool waited_in_vain = why.code() == ONEBIT_ERROR_TIMEOUT || channel.abort_switch()->tripped();
    if (!waited_in_vain) return why;
    return catch_exceptions([&] {
        const auto end = std::chrono::steady_clock::now() + kMoment;
        while (!channel.silent_ranks().empty() && std::chrono::steady_clock::now() < end) {
            (void)channel.progress(); // receives the others' notices
            sched_yield();
        }
        const std::vector<int> silent = channel.silent_ranks();
        if (silent.empty()) return why;
        return Status::error(why.code(), "%s; %s", why.message().c_str(), describe(silent).c_str());
    });
}

} // namespace onebit
