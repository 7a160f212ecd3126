// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/fiber.hpp"
#include "core/status.hpp"

namespace onebit {

/// Makes sure that the calling thread has `threads` - 1 helpers for its parallel_for. OUT_OF_MEMORY, with the number of
/// threads, where the system gives no more (a limit of processes, of address space, a container's).
Status reserve_threads(unsigned threads);

/// Calls part(context, k) for k in [0, parts), some by the calling thread, the others by its helpers. The calling
/// thread does more parts where it has too few helpers (it didn't reserve them, and the system gives none) or is one.
void run_parts(unsigned parts, void (*part)(const void* context, unsigned k), const void* context) noexcept;

/// Calls body(i) for i in [begin, end), spread over `threads` threads. The bodies must be independent, and throw
/// nothing. No result depends on which thread runs which body.
template <typename Body>
void parallel_for(std::size_t begin, std::size_t end, unsigned threads, const Body& body) {
    if (threads <= 1 || end - begin <= 1) {
        for (std::size_t i = begin; i < end; ++i) body(i);
        return;
    }
    struct Range {
        std::size_t begin, count;
        unsigned parts;
        const Body& body;
    };
    const std::size_t count = end - begin;
    const Range range = {begin, count, static_cast<unsigned>(std::min<std::size_t>(threads, count)), body};
    const auto part = [](const void* context, unsigned k) {
        const auto& r = *static_cast<const Range*>(context);
        const std::size_t to = r.begin + r.count * (k + 1) / r.parts;
        for (std::size_t i = r.begin + r.count * k / r.parts; i < to; ++i) r.body(i);
    };
    run_parts(range.parts, part, &range);
}

/// The same for passes over blocks of values, of which there may be many: on a fiber that may pause, it pauses now and
/// then, some milliseconds apart.
template <typename Body>
void parallel_for_blocks(std::size_t begin, std::size_t end, unsigned threads, const Body& body) {
    constexpr std::size_t kBlocksBetweenPauses = 256; // of at most 4096 values
    while (end - begin > kBlocksBetweenPauses && Fiber::may_pause()) {
        parallel_for(begin, begin + kBlocksBetweenPauses, threads, body);
        begin += kBlocksBetweenPauses;
        (void)Fiber::pause();
    }
    parallel_for(begin, end, threads, body);
}

} // namespace onebit
