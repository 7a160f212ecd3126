// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/choose_codec.hpp"

#include <algorithm>
#include <bit>

#include "collectives/fingerprint.hpp"
#include "collectives/plan.hpp"
#include "compress/codec.hpp"
#include "core/structs.hpp"
#include "numeric/elements.hpp"

namespace onebit {
namespace {

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
    return config;
}

bool can_be(const onebit_allreduce_config_t& config, onebit_codec_t codec, double max_error) {
    return error_of_call(codec) <= max_error && check_codec(codec_config_of(with_codec(config, codec))).ok();
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

/// In the quickest form.
double compressed_us(Communicator& communicator, const onebit_allreduce_config_t& config, onebit_codec_t codec) {
    const Costs costs =
        communicator.costs(config.memory, codec).costs().for_elements(bytes_of(config.datatype), communicator.groups());
    double least = Costs::kNever;
    for (const onebit_algorithm_t form : forms_for(communicator.groups(), config.memory, communicator.transport())) {
        if (form != ONEBIT_ALGORITHM_DENSE) least = std::min(least, costs.microseconds(form, config.count));
    }
    return least;
}

} // namespace

Status choose_codec(Communicator& communicator, const onebit_allreduce_config_t* caller, double max_error,
                    const Status& own, onebit_codec_t* chosen) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(0);
    const Status read = own.ok() ? read_order(caller, max_error, &config) : own;
    const NamedValue values[] = {{"max_error (its bits)", std::bit_cast<std::uint64_t>(max_error)}};
    ONEBIT_RETURN_IF_ERROR(compare_across_ranks(communicator, read, values));
    for (std::size_t i = 0; i < kCodecs; ++i) {
        if (!can_be(config, codec_of(i), max_error)) continue;
        const onebit_allreduce_config_t of_codec = with_codec(config, codec_of(i));
        Plan plan;
        ONEBIT_RETURN_IF_ERROR(make_plan(communicator, &of_codec, {}, nullptr, &plan)); // measures, where AUTO would
        ONEBIT_RETURN_IF_ERROR(communicator.know_costs(config.memory, codec_of(i)));
    }
    return communicator.agree(catch_exceptions([&] {
        const auto is_better = [&](onebit_codec_t a, onebit_codec_t b) {
            const double a_us = compressed_us(communicator, config, a);
            const double b_us = compressed_us(communicator, config, b);
            return a_us != b_us ? a_us < b_us : error_of_call(a) < error_of_call(b);
        };
        bool found = false;
        for (std::size_t i = 0; i < kCodecs; ++i) {
            const onebit_codec_t codec = codec_of(i);
            if (!can_be(config, codec, max_error) || (found && !is_better(codec, *chosen))) continue;
            *chosen = codec;
            found = true;
        }
        return Status();
    }));
}

} // namespace onebit
