// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "core/float_environment.hpp"

namespace onebit {

/// Calls body(i) for i in [begin, end), spread over OpenMP threads where the build has OpenMP and `threads` > 1. The
/// bodies must be independent: which thread runs which is of no consequence to any result.
template <typename Body>
void parallel_for(std::size_t begin, std::size_t end, [[maybe_unused]] unsigned threads, const Body& body) {
#ifdef _OPENMP
    if (threads > 1 && end - begin > 1) {
#pragma omp parallel num_threads(threads)
        {
            const FloatEnvironment environment; // a thread's own: it keeps what it once had from its maker
#pragma omp for schedule(static)
            for (std::size_t i = begin; i < end; ++i) body(i);
        }
        return;
    }
#endif
    for (std::size_t i = begin; i < end; ++i) body(i);
}

} // namespace onebit
