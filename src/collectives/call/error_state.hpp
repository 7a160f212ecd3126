// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "compress/codec.hpp"
#include "core/partition.hpp"

namespace onebit {

/// The worker error of a level below the flat exchange, and the elements of the whole buffer that it belongs to.
struct LevelError {
    Feedback* error = nullptr;
    Chunk part;
};

/// What a collective's error state consists of.
struct ErrorState {
    Feedback* worker = nullptr; ///< of `worker_part`; NULL: there is none
    Feedback* server = nullptr; ///< of `server_chunk`; likewise
    Chunk worker_part;          ///< of the whole buffer
    Chunk server_chunk;
    std::span<const LevelError> of_levels = {}; ///< worker errors of levels below
};

} // namespace onebit
