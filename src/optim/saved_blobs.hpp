// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "optim/saved_format.hpp"

namespace onebit {

/// The blobs that one rank has of a save. Each has the bytes of a file, in the program's memory. If the number of ranks
/// is the same as in the save, a rank has at least its own blob, and the ranks tell each other the blobs' heads.
/// Otherwise a rank has all blobs.
class SavedBlobs {
  public:
    /// Makes sure that the blobs are whole and of one save, and that all blobs that this rank needs are there. Copies
    /// nothing; the blobs must stay. INVALID_ARGUMENT, BAD_STATE, MISMATCH with the number of a blob.
    Status open(const void* const* blobs, const std::uint64_t* bytes, std::size_t num_blobs,
                const ExpectedFile& expected);

    int saved_ranks() const { return saved_ranks_; }
    /// A hash of the save and of all that the sizes of heads depend on.
    std::uint64_t identity_hash() const;
    /// The number of steps after which the state was saved.
    std::uint64_t steps() const { return steps_; }

    /// Whether the ranks must tell each other their heads; the sizes of heads are the same on every rank.
    bool needs_heads() const { return same_seats_ && saved_ranks_ > 1; }
    std::vector<std::size_t> head_sizes(const ExpectedFile& expected) const;
    Status copy_own_head(std::span<std::byte> head) const;

    /// Puts this rank's arrays together. head_of(rank): the head that the rank told, if heads are needed.
    using HeadOf = std::function<std::span<const std::byte>(std::size_t rank)>;
    Status assemble(const ExpectedFile& expected, const HeadOf& head_of, LoadedOptimizer* loaded) const;

  private:
    Status add(SavedPart part);
    Status compare(const SavedPart& part) const;
    Status check_complete(int ranks) const;

    int rank_ = 0;
    bool same_seats_ = false; ///< see Assembly
    int saved_ranks_ = 0;
    SaveMark mark_;
    std::uint64_t steps_ = 0;
    std::map<int, SavedPart> parts_; ///< by the rank that saved
};

} // namespace onebit
