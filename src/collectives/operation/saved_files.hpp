// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/operation/collective.hpp"
#include "core/file.hpp"
#include "core/status.hpp"

namespace onebit {

// The files of a save, one for each rank, with any content: PREFIX.RANK-of-RANKS.onebit. A save replaces the files on
// all ranks or on none. Meanwhile each rank has the earlier file as well (ReplacedFile::previous_name). A rank removes
// the earlier file only once all ranks have the new one. So there is at every moment, even if ranks die, a save of
// which all ranks have their file in one of two places.

/// What every such file begins with; little-endian, no padding.
struct SaveHead {
    std::array<char, 8> magic;
    std::uint32_t version;
    std::uint32_t rank;
    std::uint32_t ranks;
    std::uint32_t sequence; ///< of the save: one more than that of any save that was there before
    std::uint64_t save;     ///< the save's random number; 0: these bytes were never a file
};
static_assert(sizeof(SaveHead) == 32);

/// Which save a file belongs to; save == 0: to none.
struct SaveMark {
    std::uint64_t save = 0;
    std::uint32_t sequence = 0;
    bool operator==(const SaveMark&) const = default;
};

/// No genuine save reaches this sequence.
inline constexpr std::uint32_t kImpossibleSequence = std::uint32_t{1} << 31;

/// Where a rank's file of a save may be: under its own name, or under the name of an earlier file.
inline constexpr std::size_t kPlaces = 2;
using Places = std::array<SaveMark, kPlaces>;
std::string saved_file_name(const std::string& prefix, int rank, int ranks);
std::string saved_file_name(const std::string& prefix, int rank, int ranks, std::size_t place);

/// INVALID_ARGUMENT unless the prefix can begin a file's name.
Status check_prefix(const char* prefix);

/// BAD_STATE unless `head` is `wanted`'s kind and version, of that rank and number of ranks, and of a save.
Status check_head(const SaveHead& head, const SaveHead& wanted);

/// The newest save of which every rank has a file.
std::optional<SaveMark> newest_complete(std::span<const Places> ranks);

/// Where there is no such save: BAD_STATE with two files' names if this rank's file is of another save than rank 0's.
Status of_two_saves(const std::string& prefix, std::span<const Places> ranks, std::size_t rank);

/// Which of its places a rank's file of that save is in; kPlaces: in none.
std::size_t place_of(const SaveMark& mark, const Places& places);

/// What to say of a save that was found where a crash has left it: a success with a message, which rank 0 logs.
Status tell_of_recovery(const Collective& collective, const char* prefix, const SaveMark& found,
                        std::span<const Places> ranks);

/// All ranks' places, or what is wrong on one rank. Collective; blocks.
Status gather_places(Collective& collective, const Status& own, const Places& places, std::vector<Places>* all);

/// Writes what pack(mark, &bytes) makes to this rank's file, on all ranks or on none: see onebit_allreduce_save.
/// Collective; blocks.
Status save_file(Collective& collective, const char* prefix,
                 const std::function<Status(const SaveMark&, std::vector<std::byte>*)>& pack);

} // namespace onebit
