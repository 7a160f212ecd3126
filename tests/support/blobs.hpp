// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Optimizers' states as blobs in memory.
#pragma once

#include <onebit/onebit.h>

#include <cstdint>
#include <vector>

#include "support/ranks.hpp"

namespace onebit_test {

// This rank's.
inline Bytes packed(onebit_optimizer_t optimizer, RankLog& log) {
    std::uint64_t size = 0;
    ONEBIT_EXPECT_OK(log, onebit_optimizer_state_size(optimizer, &size));
    Bytes blob(size + 16, 0xa5); // at an odd address, with bytes after it that must stay unchanged
    ONEBIT_EXPECT_OK(log, onebit_optimizer_pack_state(optimizer, blob.data() + 1, size));
    ONEBIT_EXPECT(log, blob[0] == 0xa5 && blob[size + 1] == 0xa5 && blob.back() == 0xa5);
    return {blob.begin() + 1, blob.begin() + 1 + static_cast<std::ptrdiff_t>(size)};
}

// All ranks' blobs, by rank. Collective.
inline std::vector<Bytes> all_packed(onebit_optimizer_t optimizer, RankLog& log) {
    const Bytes own = packed(optimizer, log);
    return log.gather_bytes(own.data(), own.size());
}

inline onebit_status_t unpack(onebit_optimizer_t optimizer, const std::vector<Bytes>& blobs) {
    std::vector<const void*> pointers;
    std::vector<std::uint64_t> sizes;
    for (const Bytes& blob : blobs) {
        pointers.push_back(blob.data());
        sizes.push_back(blob.size());
    }
    return onebit_optimizer_unpack_state(optimizer, pointers.data(), sizes.data(), blobs.size());
}

} // namespace onebit_test
