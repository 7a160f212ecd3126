// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "compress/sparse/sparse_codec.hpp"

namespace onebit {

/// Bits of a position in a block.
inline constexpr unsigned kPositionBits = 12;
static_assert(kBlockElements <= std::size_t{1} << kPositionBits);

constexpr SparseLayout topk_layout(const SparseSettings& settings) {
    return {settings, kPositionBits};
}

/// The few largest elements of each block, on the host (docs/WIRE_FORMAT.md, "Few elements of each block").
Status make_topk_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec);

} // namespace onebit
