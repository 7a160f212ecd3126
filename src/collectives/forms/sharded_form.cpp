// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/forms/sharded_form.hpp"

#include <utility>

namespace onebit {

Status ShardedForm::overflow(bool reset) {
    return Status::error(ONEBIT_ERROR_NONFINITE, "the sum of values and error overflowed float32%s",
                         reset ? "; the error state has been reset" : "");
}

AlignedBuffer<std::uint32_t> ShardedForm::shard_of(const AlignedBuffer<std::uint32_t>& mask) const {
    AlignedBuffer<std::uint32_t> part(mask.size() == 0 ? 0 : shard().words(), codec_.memory());
    part.copy_from(mask.data() + shard().begin / kWordElements);
    return part;
}

void ShardedForm::set_mask(AlignedBuffer<std::uint32_t> mask, AlignedBuffer<std::uint32_t> of_shard) {
    flat_->set_mask(std::move(of_shard));
    mask_ = std::move(mask);
}

} // namespace onebit
