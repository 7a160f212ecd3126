// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/selection/choose_codec.hpp"

#include <algorithm>
#include <array>

#include "collectives/communicator/compare_ranks.hpp"
#include "collectives/selection/estimates.hpp"
#include "collectives/selection/plan.hpp"
#include "compress/codec.hpp"
#include "core/structs.hpp"
#include "numeric/elements.hpp"

namespace onebit {
namespace {

using Candidates = std::array<bool, kCodecs>; ///< by codec

onebit_codec_t codec_of(std::size_t number) {
    return static_cast<onebit_codec_t>(number);
}

/// With the default settings of a codec, and the algorithm left open.
onebit_allreduce_config_t with_codec(onebit_allreduce_config_t config, onebit_codec_t codec) {
    config.codec = codec;
    config.algorithm = ONEBIT_ALGORITHM_AUTO;
    config.scale = ONEBIT_SCALE_L2;
    config.group = ONEBIT_GROUP_BLOCK;
    config.kept = 0;
    config.value_bits = 0;
    config.matrix_rank = 0;
    config.shapes = nullptr;
    config.num_shapes = 0;
    config.rounding = ONEBIT_ROUNDING_NEAREST;
    config.levels = nullptr;
    config.num_levels = 0;
    return config;
}

Status read_order(const onebit_allreduce_config_t* caller, double max_error, onebit_allreduce_config_t* config) {
    if (caller == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config is NULL");
    ONEBIT_RETURN_IF_ERROR(read_struct("config", caller, config));
    onebit_codec_t finest = ONEBIT_CODEC_SIGN;
    for (std::size_t i = 0; i < kCodecs; ++i) {
        if (error_of_call(codec_of(i)) < error_of_call(finest)) finest = codec_of(i);
    }
    if (max_error >= error_of_call(finest)) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "max_error: %g is less than %g, the error of %s", max_error,
                         error_of_call(finest), name_of(finest));
}

/// Codecs with a small enough error that such a handle can have. Measures for each what AUTO measures. Collective.
Status find_candidates(Communicator& communicator, const onebit_allreduce_config_t& config, double max_error,
                       Candidates* candidates) {
    Status none;
    *candidates = {};
    for (std::size_t i = 0; i < kCodecs; ++i) {
        const onebit_codec_t codec = codec_of(i);
        if (!(error_of_call(codec) <= max_error)) continue; // on every rank
        const onebit_allreduce_config_t of_codec = with_codec(config, codec);
        Plan plan;
        const Status planned = make_plan(communicator, &of_codec, {}, nullptr, &plan);
        if (planned.code() == ONEBIT_ERROR_UNSUPPORTED) { // likewise
            none = planned;
            continue;
        }
        ONEBIT_RETURN_IF_ERROR(planned);
        ONEBIT_RETURN_IF_ERROR(know_costs(communicator, config.memory, codec));
        (*candidates)[i] = true;
    }
    return std::ranges::count(*candidates, true) == 0 ? none : Status();
}

/// The time of an average by the quickest compressed form, or by the form that the environment wants.
double compressed_us(Communicator& communicator, const onebit_allreduce_config_t& config, const Costs& costs) {
    const Costs of_elements = for_elements(costs, bytes_of(config.datatype), communicator.groups());
    const auto forms = forms_for(communicator.groups(), config.memory, communicator.transport());
    const onebit_algorithm_t wanted = communicator.environment().algorithm;
    const bool wants_one = wanted != ONEBIT_ALGORITHM_DENSE && std::ranges::count(forms, wanted) != 0;
    double least = Costs::kNever;
    for (const onebit_algorithm_t form : forms) {
        if (form == ONEBIT_ALGORITHM_DENSE || (wants_one && form != wanted)) continue;
        least = std::min(least, of_elements.microseconds(form, config.count));
    }
    return least;
}

/// The quickest candidate.
onebit_codec_t quickest(Communicator& communicator, const onebit_allreduce_config_t& config,
                        const Candidates& candidates) {
    bool all_measured = true; // else they can't be compared
    for (std::size_t i = 0; i < kCodecs; ++i) {
        if (candidates[i] && communicator.costs(config.memory, codec_of(i)).is_estimate()) all_measured = false;
    }
    const auto us_of = [&](onebit_codec_t codec) {
        return compressed_us(communicator, config,
                             all_measured ? communicator.costs(config.memory, codec).costs()
                                          : estimate_costs(communicator.groups(), config.memory, codec));
    };
    std::size_t best = kCodecs;
    double best_us = Costs::kNever;
    for (std::size_t i = 0; i < kCodecs; ++i) {
        if (!candidates[i]) continue;
        const double us = us_of(codec_of(i));
        const auto is_finer = [&] { return error_of_call(codec_of(i)) < error_of_call(codec_of(best)); };
        if (best != kCodecs && (us > best_us || (us == best_us && !is_finer()))) continue;
        best = i;
        best_us = us;
    }
    return codec_of(best);
}

} // namespace

Status choose_codec(Communicator& communicator, const onebit_allreduce_config_t* caller, double max_error,
                    const Status& own, onebit_codec_t* chosen) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(0);
    const Status read = own.ok() ? read_order(caller, max_error, &config) : own;
    const NamedValue values[] = {NamedValue::of_double("max_error", max_error)};
    ONEBIT_RETURN_IF_ERROR(compare_across_ranks(communicator, read, values));
    Candidates candidates;
    ONEBIT_RETURN_IF_ERROR(find_candidates(communicator, config, max_error, &candidates));
    onebit_codec_t best = ONEBIT_CODEC_SIGN;
    ONEBIT_RETURN_IF_ERROR(communicator.agree(catch_exceptions([&] {
        best = quickest(communicator, config, candidates);
        return Status();
    })));
    *chosen = best;
    return {};
}

} // namespace onebit
