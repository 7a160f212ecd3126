// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level_form.hpp"

#include <utility>

namespace onebit {

void TwoLevelForm::Channels::give_up(const Status& why) {
    for (const auto* channel : {&node, &across}) {
        if (*channel != nullptr) (*channel)->give_up(why);
    }
}

TwoLevelForm::TwoLevelForm(Channels& channels, const Codec& codec, onebit_op_t op, std::size_t count)
    : codec_(codec),
      op_(op),
      channels_(channels),
      place_(static_cast<std::size_t>(channels_.node->rank())),
      nodes_(static_cast<std::size_t>(channels_.across->size())),
      shards_(partition(count, static_cast<std::size_t>(channels_.node->size()))) {
    for (const Chunk& shard : shards_) chunks_.push_back(partition(shard.count, nodes_));
}

void TwoLevelForm::make_flat(FlatAllreduce::Extras extras, std::uint32_t* messages) {
    extras.op = op_;
    extras.messages = messages;
    flat_ = std::make_unique<FlatAllreduce>(codec_, shard().count, static_cast<std::size_t>(channels_.across->rank()),
                                            nodes_, extras);
}

Status TwoLevelForm::overflow(bool reset) {
    return Status::error(ONEBIT_ERROR_NONFINITE, "the sum of values and error overflowed float32%s",
                         reset ? "; the error state has been reset" : "");
}

AlignedBuffer<std::uint32_t> TwoLevelForm::shard_of(const AlignedBuffer<std::uint32_t>& mask) const {
    AlignedBuffer<std::uint32_t> part(mask.size() == 0 ? 0 : shard().words(), codec_.memory());
    part.copy_from(mask.data() + shard().begin / kWordElements);
    return part;
}

void TwoLevelForm::set_mask(AlignedBuffer<std::uint32_t> mask, AlignedBuffer<std::uint32_t> of_shard) {
    flat_->set_mask(std::move(of_shard));
    mask_ = std::move(mask);
}

} // namespace onebit
