// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/rank_sum.hpp"

#include <utility>

#include "collectives/call/stages.hpp"
#include "core/wait.hpp"
#include "numeric/arithmetic.hpp"
#include "transport/give_up.hpp"

namespace onebit {

RankSum::RankSum(std::unique_ptr<Transport> channel, std::size_t count, const char* what, Patience patience)
    : channel_(std::move(channel)), what_(what), patience_(std::move(patience)), values_(count) {}

Status RankSum::create(Communicator& communicator, std::size_t count, const char* what, std::unique_ptr<RankSum>* sum) {
    ONEBIT_RETURN_IF_ERROR(communicator.make_room());
    std::unique_ptr<Transport> channel;
    ONEBIT_RETURN_IF_ERROR(communicator.open_channel(&channel));
    std::unique_ptr<RankSum> made;
    ONEBIT_RETURN_IF_ERROR(communicator.agree(catch_exceptions([&] {
        made.reset(new RankSum(std::move(channel), count, what, communicator.patience()));
        const auto rank = static_cast<std::size_t>(communicator.rank());
        return DirectSum::create(*made->channel_, one_sum_level(static_cast<std::size_t>(communicator.size()), rank),
                                 std::make_unique<HostArithmetic>(1), made->values_.data(), count, 0, &made->sum_);
    })));
    *sum = std::move(made);
    return {};
}

RankSum::~RankSum() {
    if (!broken_.ok()) values_.leak(); // a sum that never ended may still write to it
}

Status RankSum::add_up() {
    StageRunner runner;
    runner.start(sum_->stages());
    return wait_until_done(what_, patience_, [&](bool* done, bool*) {
        Step step = Step::kDone;
        ONEBIT_RETURN_IF_ERROR(runner.advance(&step));
        *done = runner.finished();
        return Status();
    });
}

Status RankSum::run() {
    const Status added = catch_exceptions([&] { return add_up(); });
    if (!added.ok()) broken_ = give_up_on(*channel_, added); // or a stream would wait for other ranks for ever
    return broken_;
}

void RankSum::give_up(const Status& why) {
    if (!broken_.ok()) return;
    channel_->give_up(why);
    broken_ = why;
}

} // namespace onebit
