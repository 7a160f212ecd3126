// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "compress/codec.hpp"
#include "core/status.hpp"

namespace onebit {

/// The largest number of levels below the one between the last groups.
inline constexpr std::size_t kMostLevels = 2;

/// Who exchanges with whom on one level, and how.
struct LevelPlan {
    std::vector<int> exchange_of_rank; ///< ranks with the same number exchange with each other
    std::optional<CodecConfig> codec;  ///< none: exact
};

/// The levels of an allreduce: those of config.levels, and after them the level between the last groups, which has the
/// handle's own codec.
struct LevelsPlan {
    std::vector<LevelPlan> lower;         ///< the smallest groups first
    std::vector<int> across_of_rank;      ///< as exchange_of_rank, on the last level
    std::uint64_t hash = 0;               ///< of all that a saved error depends on
    std::vector<std::size_t> group_ranks; ///< of a group, by lower level

    bool empty() const { return lower.empty(); }
    /// "2 exactly, 2 by ONEBIT_CODEC_INT8, 4 by ONEBIT_CODEC_SIGN"
    std::string describe(std::size_t ranks, onebit_codec_t across) const;
};

/// Takes over a caller's levels. INVALID_ARGUMENT, with the member's name. Local.
Status read_levels(const onebit_allreduce_config_t& config, std::vector<onebit_level_t>* levels);
/// The hash of what must be the same on every rank.
std::uint64_t hash_of(const std::vector<onebit_level_t>& levels);
/// UNSUPPORTED or INVALID_ARGUMENT, the same on all ranks: as check_codec, for each level.
Status check_levels(const onebit_allreduce_config_t& config, const std::vector<onebit_level_t>& levels);

/// Finds out which ranks have come with the same colors. `threads`: of the levels' codecs. INVALID_ARGUMENT on every
/// rank where groups aren't equally large, or one group is in two groups of the next level. Collective; blocks.
Status plan_levels(Communicator& communicator, const std::vector<onebit_level_t>& levels, unsigned threads,
                   LevelsPlan* plan);

} // namespace onebit
