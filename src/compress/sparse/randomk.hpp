// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "compress/sparse/sparse_codec.hpp"

namespace onebit {

constexpr SparseLayout randomk_layout(const SparseSettings& settings) {
    return {settings, 0};
}

/// A few random elements of each block, the same on all ranks in a call, on the host (docs/WIRE_FORMAT.md, "Few
/// elements of each block").
Status make_randomk_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec);

} // namespace onebit
