// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/pointers.hpp"

namespace onebit::cuda {

Status Pointers::find(const void* address, Place* place) {
    const std::uint64_t allocation = allocation_of(address);
    // Memory without a number, the host's own or of an unusual kind, is looked at every time.
    if (allocation == 0) return place_of(address, place);
    Known& known = known_[allocation % known_.size()];
    if (known.allocation != allocation) {
        ONEBIT_RETURN_IF_ERROR(place_of(address, &known.place));
        known.allocation = allocation;
    }
    *place = known.place;
    return {};
}

} // namespace onebit::cuda
