// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/forms/two_level_form.hpp"

namespace onebit {

void TwoLevelForm::Channels::give_up(const Status& why) {
    for (const auto* channel : {&node, &across}) {
        if (*channel != nullptr) (*channel)->give_up(why);
    }
}

TwoLevelForm::TwoLevelForm(Channels& channels, const Codec& codec, onebit_op_t op, std::size_t count)
    : ShardedForm(codec),
      op_(op),
      channels_(channels),
      place_(static_cast<std::size_t>(channels_.node->rank())),
      nodes_(static_cast<std::size_t>(channels_.across->size())),
      shards_(partition(count, static_cast<std::size_t>(channels_.node->size()))) {}

void TwoLevelForm::make_flat(FlatAllreduce::Extras extras, std::uint32_t* messages) {
    extras.op = op_;
    extras.messages = messages;
    flat_ = std::make_unique<FlatAllreduce>(codec_, shard().count, static_cast<std::size_t>(channels_.across->rank()),
                                            nodes_, extras);
}

} // namespace onebit
