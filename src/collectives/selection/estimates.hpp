// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "collectives/communicator/costs.hpp"
#include "collectives/communicator/node_groups.hpp"
#include "core/status.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The expected costs of calls between these ranks, from constants alone: the same everywhere and every time.
Costs estimate_costs(const NodeGroups& groups, onebit_memory_t memory, onebit_codec_t codec);

/// The radix with which BRUCK takes least time, by the same estimate. A radix of at least the number of ranks would
/// send every message straight to its destination, as the other forms do.
std::size_t best_radix(const NodeGroups& groups, onebit_codec_t codec, std::uint64_t count);

/// The same costs for elements of `bytes` bytes instead of a float's four. Exact messages are shorter. But few values
/// go straight to every rank, as PIPELINED's do, while few floats have a quicker way between many ranks.
Costs for_elements(const Costs& costs, std::size_t bytes, const NodeGroups& groups);

/// Why a form that AUTO chooses from would make no sense between some ranks, or is impossible for values in some
/// memory; NULL: no objection.
const char* objection_to(onebit_algorithm_t form, const NodeGroups& groups, onebit_memory_t memory,
                         const Transport& transport);

/// The forms without an objection; DENSE is the first.
std::vector<onebit_algorithm_t> forms_for(const NodeGroups& groups, onebit_memory_t memory, const Transport& transport);

/// Makes sure that communicator.costs() has costs of this codec and memory: a tuning table's, else an estimate that is
/// to be measured. Collective; blocks.
Status know_costs(Communicator& communicator, onebit_memory_t memory, onebit_codec_t codec);

} // namespace onebit
