// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/selection/plan.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <vector>

#include "collectives/communicator/compare_ranks.hpp"
#include "collectives/selection/estimates.hpp"
#include "collectives/selection/factors_plan.hpp"
#include "collectives/selection/tune.hpp"
#include "collectives/sums/halving_doubling.hpp"
#include "collectives/sums/shared_allreduce.hpp"
#include "compress/codec.hpp"
#include "core/hash.hpp"
#include "core/partition.hpp"
#include "numeric/elements.hpp"

namespace onebit {
namespace {

/// "4096 elements: dense 12 us, pipelined 8.2 us (estimated)".
std::string describe_choice(std::uint64_t count, const Costs& costs, const std::string& source,
                            std::span<const onebit_algorithm_t> forms) {
    std::string text = std::to_string(count) + " elements:";
    const char* separator = " ";
    for (const onebit_algorithm_t form : forms) {
        const double time = costs.microseconds(form, count);
        if (time == Costs::kNever) continue;
        char item[48];
        std::snprintf(item, sizeof(item), "%s%s %.3g us", separator, algorithm_name(form), time);
        text += item;
        separator = ", ";
    }
    return text + " (" + source + ")";
}

std::size_t radix_of(const onebit_allreduce_config_t& config, const Communicator& communicator) {
    const std::size_t forced = communicator.environment().radix;
    return forced != 0 ? forced : best_radix(communicator.groups(), config.codec, config.count);
}

/// Fewer elements are averaged as they are, on any network.
constexpr std::uint64_t kFewestMeasured = 1024;

/// What AUTO becomes, and TWO_LEVEL where there are no two levels. `why`: the reason for config.algorithm; NULL: it is
/// the caller's own choice.
void choose_algorithm(const onebit_allreduce_config_t& config, const char* why, Communicator& communicator,
                      Plan* plan) {
    const onebit_algorithm_t forced = communicator.environment().algorithm;
    const char* const objection =
        objection_to(ONEBIT_ALGORITHM_TWO_LEVEL, communicator.groups(), config.memory, communicator.transport());
    if (config.algorithm != ONEBIT_ALGORITHM_AUTO) {
        plan->algorithm = config.algorithm;
        plan->reason = why != nullptr ? why : "asked for by config.algorithm";
    } else if (forced != ONEBIT_ALGORITHM_AUTO) {
        plan->algorithm = forced;
        plan->reason = std::string("forced by ONEBIT_ALGORITHM=") + algorithm_name(forced);
    } else if (communicator.size() == 1) {
        plan->algorithm = ONEBIT_ALGORITHM_DENSE;
        plan->reason = "one rank: nothing to send";
    } else if (config.codec == ONEBIT_CODEC_POWERSGD) {
        choose_factors(config, communicator, plan);
    } else {
        const KnownCosts& known = communicator.costs(config.memory, config.codec);
        const std::vector<onebit_algorithm_t> forms =
            forms_for(communicator.groups(), config.memory, communicator.transport());
        const Costs costs = for_elements(known.costs(), bytes_of(config.datatype), communicator.groups());
        plan->algorithm = costs.quickest(config.count, forms);
        plan->reason = describe_choice(config.count, costs, known.source(), forms);
        if (plan->algorithm == ONEBIT_ALGORITHM_BRUCK &&
            radix_of(config, communicator) >= static_cast<std::size_t>(communicator.size())) {
            plan->algorithm = ONEBIT_ALGORITHM_PIPELINED; // PIPELINED sends straight
        }
    }
    if (config.codec == ONEBIT_CODEC_POWERSGD) take_factors(plan);
    if (plan->algorithm == ONEBIT_ALGORITHM_BRUCK) plan->radix = radix_of(config, communicator);
    plan->compressed_algorithm = plan->algorithm;
    if (plan->algorithm == ONEBIT_ALGORITHM_TWO_LEVEL && objection != nullptr) {
        plan->fall_back_from_two_levels(objection);
    }
}

/// What a handle with levels is.
void take_levels(const onebit_allreduce_config_t& config, const Communicator& communicator, Plan* plan) {
    plan->algorithm = plan->compressed_algorithm = ONEBIT_ALGORITHM_LEVELS;
    plan->reason =
        "config.levels: " + plan->levels.describe(static_cast<std::size_t>(communicator.size()), config.codec);
}

} // namespace

bool Plan::sum_tells() const {
    return compressed_algorithm == ONEBIT_ALGORITHM_DENSE && check != ONEBIT_CHECK_NONE && datatype == ONEBIT_FLOAT32 &&
           memory == ONEBIT_MEMORY_HOST && !shares_sums && count <= HalvingDoubling::kFew;
}

void Plan::fall_back_from_two_levels(const std::string& why) {
    algorithm = compressed_algorithm = ONEBIT_ALGORITHM_PIPELINED;
    reason += "; not two_level: " + why;
}

void Plan::do_without_shared_memory(const std::string& why) {
    if (!shares_sums) return fall_back_from_two_levels(why);
    shares_sums = false;
    reason = "not through shared memory (" + why + "); " + reason; // first: info.reason is short
}

void Plan::tell(const Communicator& communicator, const char* collective) const {
    log.write(ONEBIT_LOG_INFO, "%s of %llu elements over %d ranks (%s): %s, because %s", collective,
              static_cast<unsigned long long>(count), communicator.size(), communicator.transport().name(),
              algorithm_name(algorithm), reason.c_str());
}

namespace {

/// `form`: what is wrong with this rank's config already. `levels`: this rank's, taken over. `shards`: empty for an
/// allreduce. `why`: as for choose_algorithm.
Status decide(Communicator& communicator, const Status& form, const onebit_allreduce_config_t& config,
              const std::vector<onebit_level_t>& levels, Kind kind, std::span<const Chunk> shards, const char* why,
              Plan* plan) {
    const Environment& environment = communicator.environment();
    onebit_allreduce_config_t asked = config;
    if (asked.algorithm == ONEBIT_ALGORITHM_AUTO) asked.algorithm = environment.algorithm;
    if (asked.algorithm == ONEBIT_ALGORITHM_AUTO && !levels.empty()) asked.algorithm = ONEBIT_ALGORITHM_LEVELS;
    // All that the choice depends on: what the environment says may differ between ranks.
    const NamedValue others[] = {
        {"ONEBIT_PIECE", environment.piece},
        {"ONEBIT_NODE_SIZE", environment.node_size},
        {"ONEBIT_RADIX", environment.radix},
        {"ONEBIT_MEASURE", environment.measure ? 1U : 0U},
        {"ONEBIT_SECOND_ERROR", environment.second_error},
        {"ONEBIT_DETERMINISTIC", environment.deterministic ? 1U : 0U},
        {"the collective (0 allreduce, 1 reduce-scatter, 2 all-gather)", static_cast<std::uint64_t>(kind)},
        {"config.counts (their hash)", shards.empty() ? 0 : hash_bytes(shards.data(), shards.size_bytes())},
        {"config.shapes (their hash)", form.ok() ? hash_of_shapes(config) : 0},
        {"config.num_levels", config.num_levels},
        {"config.levels (what is the same on every rank, its hash)", form.ok() ? hash_of(levels) : 0}};
    const auto fields = fields_of(asked);
    std::array<NamedValue, std::size(others) + std::tuple_size_v<std::remove_const_t<decltype(fields)>>> values{};
    std::ranges::copy(others, std::ranges::transform(fields, values.begin(), &Field::value).out);
    ONEBIT_RETURN_IF_ERROR(compare_across_ranks(communicator, form, values));
    // All ranks return by themselves: a rank that has no memory to say what is wrong must not wait for others.
    const Status supported = catch_exceptions([&] {
        const Status config_alone = check_supported(config, kind);
        return config_alone.ok() ? check_levels(config, levels) : config_alone;
    });
    ONEBIT_RETURN_IF_ERROR(supported);

    const bool chooses = asked.algorithm == ONEBIT_ALGORITHM_AUTO;
    if (config.codec == ONEBIT_CODEC_POWERSGD) {
        asked.codec = kTimedForFactors;
        asked.matrix_rank = 0;
        asked.shapes = nullptr;
        asked.num_shapes = 0;
    }
    if (chooses) ONEBIT_RETURN_IF_ERROR(know_costs(communicator, config.memory, asked.codec));
    const bool measure = chooses && config.count >= kFewestMeasured &&
                         communicator.costs(config.memory, asked.codec).wants_measuring(config.count);
    if (measure) ONEBIT_RETURN_IF_ERROR(measure_at_start(communicator, asked));
    if (config.codec == ONEBIT_CODEC_POWERSGD) {
        plan->matrices = matrices_of(config);
    }
    plan->threads = config.threads != 0 ? config.threads : environment.threads;
    if (asked.algorithm == ONEBIT_ALGORITHM_LEVELS) {
        ONEBIT_RETURN_IF_ERROR(plan_levels(communicator, levels, plan->threads, &plan->levels));
        take_levels(config, communicator, plan);
    } else {
        choose_algorithm(config, why, communicator, plan);
    }
    plan->count = config.count;
    plan->piece_blocks = ceil_divide(communicator.environment().piece, kBlockElements);
    plan->datatype = config.datatype;
    plan->memory = config.memory;
    plan->stream = config.stream;
    plan->codec = config.codec;
    plan->scale = config.scale;
    plan->group = config.group;
    plan->kept = config.kept;
    plan->value_bits = config.value_bits;
    plan->error_type = config.error_type;
    plan->rounding = config.rounding;
    plan->check = config.check;
    plan->op = config.op;
    plan->log = communicator.log();
    const bool on_host = config.memory == ONEBIT_MEMORY_HOST;
    plan->tentative = config.check == ONEBIT_CHECK_FULL && on_host && config.count >= environment.second_error &&
                      !plan->averages_factors() && // where no encoder looks at values
                      plan->levels.empty();        // where one rank's error would have to be put back by all
    plan->nodes = communicator.groups();
    plan->can_share_sums = on_host && SharedAllreduce::suits(config.count, communicator.groups());
    return {};
}

} // namespace

Status choose_exchange(Communicator& communicator, onebit_memory_t memory, onebit_codec_t codec, std::uint64_t count,
                       onebit_algorithm_t* form, std::string* reason) {
    ONEBIT_RETURN_IF_ERROR(know_costs(communicator, memory, codec));
    return communicator.agree(catch_exceptions([&] {
        const bool on_host = memory == ONEBIT_MEMORY_HOST;
        const onebit_algorithm_t forced = communicator.environment().algorithm;
        const bool everywhere = forced == ONEBIT_ALGORITHM_FLAT || forced == ONEBIT_ALGORITHM_PIPELINED;
        const bool of_use = everywhere || (on_host && forced > ONEBIT_ALGORITHM_DENSE);
        const char* const objection = on_host ? communicator.groups().objection() : "values are in a GPU's memory";
        if (of_use) {
            *form = forced;
            *reason = std::string("forced by ONEBIT_ALGORITHM=") + algorithm_name(forced);
        } else if (objection != nullptr) {
            *form = ONEBIT_ALGORITHM_PIPELINED;
            *reason = std::string("not two_level: ") + objection;
        } else {
            constexpr std::array kForms = {ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_TWO_LEVEL};
            const KnownCosts& known = communicator.costs(memory, codec);
            *form = known.lasting().quickest(count, kForms);
            *reason = describe_choice(count, known.lasting(), known.lasting_source(), kForms);
        }
        return Status();
    }));
}

Status make_plan(Communicator& communicator, const onebit_allreduce_config_t* caller, const Status& own,
                 const char* why, Plan* plan) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(0);
    std::vector<onebit_level_t> levels;
    const Status form = catch_exceptions(
        [&] { return own.ok() ? take_config(caller, communicator.transport(), &config, &levels) : own; });
    return decide(communicator, form, config, levels, Kind::kAllreduce, {}, why, plan);
}

Status make_plan(Communicator& communicator, const onebit_shard_config_t* caller, Kind kind, const Status& own,
                 ShardPlan* plan) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(0);
    const Status form = catch_exceptions(
        [&] { return own.ok() ? take_config(caller, kind, communicator.transport(), &config, &plan->shards) : own; });
    ONEBIT_RETURN_IF_ERROR(decide(communicator, form, config, {}, kind, plan->shards, nullptr, &plan->plan));
    if (plan->plan.algorithm != ONEBIT_ALGORITHM_DENSE && plan->plan.algorithm != ONEBIT_ALGORITHM_PIPELINED) {
        plan->plan.algorithm = ONEBIT_ALGORITHM_PIPELINED;
        plan->plan.reason = "pipelined, as all that are compressed; " + plan->plan.reason;
    }
    plan->plan.compressed_algorithm = plan->plan.algorithm;
    // No rank knows what became of another rank's error: it must not be left to a reset of all ranks.
    if (kind == Kind::kReduceScatter) plan->plan.tentative = plan->plan.check == ONEBIT_CHECK_FULL;
    return {};
}

} // namespace onebit
