// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/sums/shared_operands.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace onebit {

SharedOperands::SharedOperands(SharedMemory& memory, std::size_t offset, std::size_t rank, std::size_t ranks,
                               std::shared_ptr<const SharedBuffers> buffers, std::size_t bytes)
    : memory_(memory),
      offset_(offset),
      rank_(rank),
      ranks_(ranks),
      buffers_(std::move(buffers)),
      bytes_(bytes),
      counters_(memory, rank, ranks, offset),
      inputs_(ranks),
      outputs_(ranks) {
    held_.reserve(2 * ranks);
}

void SharedOperands::begin(const void* input, void* output) {
    asks_results_ = output != nullptr;
    Whereabouts own{buffers_->find(input, bytes_), asks_results_ ? buffers_->find(output, bytes_) : Place()};
    const bool here = own.input.buffer != 0 && (!asks_results_ || own.output.buffer != 0);
    answer_ = here ? Answer::kUnknown : Answer::kNo;
    if (!here) own = {};
    // No rank looks at the last call's places any more: that call has ended here, so its answer is known everywhere.
    new (&whereabouts_of(rank_)) Whereabouts(own);
    counters_.tell(kPlaced, ++calls_);
}

bool SharedOperands::look() {
    if (answer_ == Answer::kUnknown && counters_.all_reached(kPlaced, calls_)) {
        answer_ = all_have_places() ? Answer::kFoundHere : Answer::kNo;
        if (answer_ == Answer::kFoundHere) {
            if (!find_all()) counters_.tell(kMissed, calls_);
            counters_.tell(kFound, calls_);
        }
    }
    if (answer_ == Answer::kFoundHere && counters_.all_reached(kFound, calls_)) {
        answer_ = counters_.any_reached(kMissed, calls_) ? Answer::kNo : Answer::kYes;
    }
    return answer_ == Answer::kNo || answer_ == Answer::kYes;
}

SharedOperands::Whereabouts& SharedOperands::whereabouts_of(std::size_t rank) const {
    std::byte* const part = memory_.of(static_cast<int>(rank)) + offset_ + SharedCounters::bytes(kCounters);
    return *reinterpret_cast<Whereabouts*>(part);
}

bool SharedOperands::all_have_places() const {
    for (std::size_t r = 0; r < ranks_; ++r) {
        if (whereabouts_of(r).input.buffer == 0) return false;
    }
    return true;
}

bool SharedOperands::find_all() {
    held_.clear();
    for (std::size_t r = 0; r < ranks_; ++r) {
        inputs_[r] = find(whereabouts_of(r).input, r);
        outputs_[r] = asks_results_ ? find(whereabouts_of(r).output, r) : nullptr;
        if (inputs_[r] == nullptr || (asks_results_ && outputs_[r] == nullptr)) return false;
    }
    return true;
}

void* SharedOperands::find(Place place, std::size_t rank) {
    std::shared_ptr<SharedBuffer> buffer = buffers_->get(place.buffer);
    if (buffer == nullptr) return nullptr;
    std::byte* const found = buffer->at(rank, place.offset, bytes_);
    if (found == nullptr) return nullptr;
    held_.push_back(std::move(buffer));
    return found;
}

} // namespace onebit
