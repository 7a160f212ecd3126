// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "core/cuda/device.hpp"
#include "core/status.hpp"

namespace onebit::cuda {

/// Tells in which memory addresses lie, and remembers it by the allocation's number. CUDA never gives a number again:
/// an address that was freed and has come back as memory of another kind has another number. Asking for the number
/// takes one short call; asking for all else takes several. One thread at a time.
class Pointers {
  public:
    Status find(const void* address, Place* place);

  private:
    struct Known {
        std::uint64_t allocation = 0; ///< 0: none yet
        Place place;
    };
    std::array<Known, 64> known_{}; ///< by the number's last bits
};

} // namespace onebit::cuda
