// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "collectives/communicator/node_groups.hpp"
#include "collectives/selection/level_plan.hpp"
#include "collectives/selection/matrix_layout.hpp"
#include "collectives/selection/read_config.hpp"
#include "core/log.hpp"
#include "core/partition.hpp"
#include "core/status.hpp"

namespace onebit {

/// All that is decided about a collective before anything is allocated; the same on every rank, except for the threads
/// and the stream.
struct Plan {
    std::uint64_t count = 0;
    onebit_algorithm_t algorithm = ONEBIT_ALGORITHM_PIPELINED;            ///< never AUTO
    onebit_algorithm_t compressed_algorithm = ONEBIT_ALGORITHM_PIPELINED; ///< the compressed form; DENSE: there is none
    std::size_t piece_blocks = 1;                                         ///< of a chunk, for PIPELINED
    std::size_t radix = 0;                                                ///< for BRUCK; else 0
    onebit_datatype_t datatype = ONEBIT_FLOAT32;
    onebit_memory_t memory = ONEBIT_MEMORY_HOST;
    void* stream = nullptr; ///< of a GPU's memory
    onebit_codec_t codec = ONEBIT_CODEC_SIGN;
    onebit_scale_t scale = ONEBIT_SCALE_L2;
    onebit_group_t group = ONEBIT_GROUP_BLOCK;
    std::uint32_t kept = 0;       ///< of codecs of few elements; 0: the default
    std::uint32_t value_bits = 0; ///< likewise
    MatrixLayout matrices;        ///< of ONEBIT_CODEC_POWERSGD
    LevelsPlan levels;            ///< of LEVELS
    onebit_datatype_t error_type = ONEBIT_FLOAT32;
    onebit_rounding_t rounding = ONEBIT_ROUNDING_NEAREST;
    onebit_check_t check = ONEBIT_CHECK_FULL;
    onebit_op_t op = ONEBIT_OP_AVERAGE;
    bool tentative = false;      ///< compressed calls without a mask: values are checked as they are encoded
    NodeGroups nodes;            ///< of the ranks
    bool can_share_sums = false; ///< exact sums may go through memory that all ranks share
    bool shares_sums = false;    ///< and do
    unsigned threads = 1;
    Log log;            ///< for what a program doesn't see otherwise
    std::string reason; ///< why this algorithm

    /// Whether ranks average factors of matrices instead of the values, and no message is encoded.
    bool averages_factors() const { return codec == ONEBIT_CODEC_POWERSGD; }
    /// A plan that can't compress is always dense.
    bool compresses() const { return compressed_algorithm != ONEBIT_ALGORITHM_DENSE; }
    /// Exact sums of many values through shared memory: where every rank's result lies apart from its values, the
    /// values are looked at while they are added up. A pass before would read a fourth more.
    bool checks_sums_on_the_way() const {
        constexpr std::uint64_t kLeast = std::uint64_t{1} << 18;
        return shares_sums && check == ONEBIT_CHECK_FULL && count >= kLeast;
    }
    /// Few values of a checked handle that is always dense, where they don't go through shared memory: what is wrong
    /// with the values shows in their sum. Final only once it is known whether there is memory to share.
    bool sum_tells() const;
    /// Sums may overflow where averages can't, so sums are looked at.
    bool checks_sums() const { return op == ONEBIT_OP_SUM && check != ONEBIT_CHECK_NONE; }
    /// Averages that are decoded and rounded to 16 bits may overflow, too.
    bool checks_results() const { return checks_sums() || (datatype != ONEBIT_FLOAT32 && check != ONEBIT_CHECK_NONE); }
    /// TWO_LEVEL becomes PIPELINED.
    void fall_back_from_two_levels(const std::string& why);
    /// TWO_LEVEL that would use it becomes PIPELINED; exact sums become the transport's.
    void do_without_shared_memory(const std::string& why);
    /// Says what was chosen, in the log.
    void tell(const Communicator& communicator, const char* collective) const;
};

/// All that is decided about a collective between a whole buffer and its shards.
struct ShardPlan {
    Plan plan;
    std::vector<Chunk> shards; ///< by rank
};

/// Turns a caller's config into a plan. Collective; blocks. `own`: what is already wrong on this rank, if anything, so
/// that it is said on every rank. `why`: the reason for an algorithm that isn't the caller's own choice, or NULL.
/// Errors as for onebit_allreduce_create.
Status make_plan(Communicator& communicator, const onebit_allreduce_config_t* caller, const Status& own,
                 const char* why, Plan* plan);

/// What AUTO becomes for exchanges that must compress, and why: what the environment says, if possible, else PIPELINED
/// or TWO_LEVEL by lasting costs, because a training's bits must not depend on a measurement. `count`: of the largest
/// exchange. Collective; blocks.
Status choose_exchange(Communicator& communicator, onebit_memory_t memory, onebit_codec_t codec, std::uint64_t count,
                       onebit_algorithm_t* form, std::string* reason);

/// A plan for onebit_reduce_scatter_create and onebit_all_gather_create. The algorithm is DENSE or PIPELINED.
Status make_plan(Communicator& communicator, const onebit_shard_config_t* caller, Kind kind, const Status& own,
                 ShardPlan* plan);

} // namespace onebit
