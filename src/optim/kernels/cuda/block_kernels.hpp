// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "compress/sign/cuda/block_kernels.hpp"
#include "core/host_device.hpp"
#include "core/rounded.hpp"
#include "optim/kernels/arithmetic.hpp"
#include "optim/kernels/cuda/kernels.hpp"
#include "optim/kernels/cuda/pieces.hpp"

/// What a thread does in each pass, except in those over the pieces' own gradients (gradient_kernels.hpp).
namespace onebit::cuda {

// ---- Steps ----

struct AdamElement {
    float g, m, v, parameter;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const AdamArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const GroupSettings settings = settings_of(piece, arguments.pieces);
    const float factor = *arguments.factor;
    const float* const gradients = arguments.gradients + piece.offset;
    float* const m = arguments.m + piece.offset;
    float* const v = arguments.v + piece.offset;
    const auto load = [&](std::size_t i) { return AdamElement{gradients[i], m[i], v[i], piece.parameters[i]}; };
    for_each_element(thread, piece, load, [&](std::size_t i, const AdamElement& old) {
        const float g = rounded::multiply(old.g, factor);
        const float new_m = first_moment(g, old.m, settings.betas);
        const float new_v = second_moment(g, old.v, settings.betas);
        const float u = adam_direction(new_m, new_v, old.parameter, settings.update);
        m[i] = new_m;
        v[i] = new_v;
        write_parameter(piece, i, stepped(old.parameter, settings.update.lr, u));
    });
}

template <typename Words>
struct CompressedElement {
    Words words;
    float precondition, parameter;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const CompressedUpdateArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const AdamUpdate update = settings_of(piece, arguments.pieces).update;
    const float step = given(arguments.steps, piece, update.lr);
    const Messages& messages = arguments.messages;
    const float magnitude = saturated_product(scale_of(messages, piece), given(arguments.factors, piece, 1.0F));
    const bool exchanged = arguments.precondition == nullptr;
    const float* const precondition = arguments.precondition; // plus an offset only where it is no NULL
    with_signs(messages, piece, [&](const auto& signs) {
        const auto load = [&](std::size_t i) {
            return CompressedElement{signs.load(i), exchanged ? 1.0F : precondition[piece.offset + i],
                                     piece.parameters[i]};
        };
        for_each_element(thread, piece, load, [&](std::size_t i, const auto& old) {
            const float m = signs.value(old.words, i, magnitude);
            const float u = preconditioned_direction(m, old.precondition, old.parameter, update); // times 1: as it is
            write_parameter(piece, i, stepped(old.parameter, step, u));
        });
    });
}

template <typename Words>
struct AverageElement {
    Words words;
    float m, v, parameter;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const TakeAverageArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const GroupSettings settings = settings_of(piece, arguments.pieces);
    const Messages& messages = arguments.messages;
    const float magnitude = scale_of(messages, piece);
    float* const m = arguments.m + piece.offset;
    const float* const v = arguments.v + piece.offset;
    with_signs(messages, piece, [&](const auto& signs) {
        const auto load = [&](std::size_t i) { return AverageElement{signs.load(i), m[i], v[i], piece.parameters[i]}; };
        for_each_element(thread, piece, load, [&](std::size_t i, const auto& old) {
            const float average = signs.value(old.words, i, magnitude);
            const float g = arguments.weighted ? unweighted_gradient(average, old.v, settings.update) : average;
            const float new_m = first_moment(g, old.m, settings.betas);
            const float u = adam_direction(new_m, old.v, old.parameter, settings.update);
            m[i] = new_m;
            write_parameter(piece, i, stepped(old.parameter, settings.update.lr, u));
        });
    });
}

struct AloneElement {
    std::uint32_t g; ///< as it lies in memory
    float m, precondition, parameter;
};
struct DriftElement {
    AloneElement alone;
    float anchor;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const StepAloneArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const AdamBetas betas = settings_of(piece, arguments.pieces).betas;
    AdamUpdate update = settings_of(piece, arguments.pieces).update;
    update.weight_decay = 0;
    const float factor = arguments.factors[piece.tensor];
    const float* const precondition = arguments.precondition + piece.offset;
    float* const m = arguments.m + piece.offset;
    const float* const anchor = arguments.anchor; // plus an offset only where they are no NULLs
    float* const drift = arguments.drift;
    const bool of_momentum = arguments.of_momentum;
    const auto store = [&](std::size_t i, const AloneElement& old) {
        const float g = rounded::multiply(gradient_of(piece, old.g), factor);
        const float new_m = first_moment(of_momentum ? g : weighted_gradient(g, old.precondition, betas), old.m, betas);
        const float u = of_momentum ? preconditioned_direction(new_m, old.precondition, old.parameter, update)
                                    : exchanged_direction(new_m, old.parameter, update);
        m[i] = new_m;
        write_parameter(piece, i, stepped(old.parameter, update.lr, u));
    };
    const auto store_drift = [&](std::size_t i, const DriftElement& from) {
        const AloneElement& old = from.alone;
        const float g = rounded::multiply(gradient_of(piece, old.g), factor);
        drift[piece.offset + i] =
            of_momentum ? drift_of_momentum(g, old.m, old.precondition, old.parameter, from.anchor, betas, update)
                        : drift_of_update(g, old.m, old.precondition, old.parameter, from.anchor, betas, update);
    };
    with_gradients(piece, [&](const auto* gradients) {
        const auto load = [&](std::size_t i) {
            return AloneElement{gradients[i], m[i], precondition[i], piece.parameters[i]};
        };
        if (anchor == nullptr) {
            for_each_element(thread, piece, load, store);
        } else {
            const auto load_all = [&](std::size_t i) { return DriftElement{load(i), anchor[piece.offset + i]}; };
            for_each_element(thread, piece, load_all, store_drift);
        }
    });
}

struct DescendElement {
    float u, parameter;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const DescendArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const float step = given(arguments.steps, piece, settings_of(piece, arguments.pieces).update.lr);
    const float* const u = arguments.u + piece.offset;
    const auto load = [&](std::size_t i) { return DescendElement{u[i], piece.parameters[i]}; };
    for_each_element(thread, piece, load, [&](std::size_t i, const DescendElement& old) {
        write_parameter(piece, i, stepped(old.parameter, step, old.u));
    });
}

template <typename Words>
struct RejoinElement {
    Words words;
    float anchor, precondition;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const RejoinArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const Messages& messages = arguments.messages;
    const float magnitude = scale_of(messages, piece);
    const float to_momentum = arguments.to_momentum[piece.tensor];
    const float decay = arguments.decays[piece.tensor];
    const bool exchanged = arguments.precondition == nullptr;
    const float* const precondition = arguments.precondition; // plus an offset only where it is no NULL
    float* const m = arguments.m + piece.offset;
    float* const anchor = arguments.anchor + piece.offset;
    with_signs(messages, piece, [&](const auto& signs) {
        const auto load = [&](std::size_t i) {
            return RejoinElement{signs.load(i), anchor[i], exchanged ? 1.0F : precondition[piece.offset + i]};
        };
        for_each_element(thread, piece, load, [&](std::size_t i, const auto& old) {
            const float average = signs.value(old.words, i, magnitude);
            const float met = rejoined(old.anchor, average, old.precondition, decay);
            if (to_momentum != 0) m[i] = saturated_product(to_momentum, average);
            anchor[i] = met;
            write_parameter(piece, i, met);
        });
    });
}

// ---- What steps are made of ----

struct MomentsElement {
    float g, m, v;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const MomentsArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const AdamBetas betas = settings_of(piece, arguments.pieces).betas;
    const float factor = *arguments.factor;
    const float* const gradients = arguments.gradients + piece.offset;
    float* const m = arguments.m + piece.offset;
    float* const v = arguments.v + piece.offset;
    const auto load = [&](std::size_t i) { return MomentsElement{gradients[i], m[i], v[i]}; };
    for_each_element(thread, piece, load, [&](std::size_t i, const MomentsElement& old) {
        const float g = rounded::multiply(old.g, factor);
        m[i] = first_moment(g, old.m, betas);
        v[i] = second_moment(g, old.v, betas);
    });
}

struct MomentumElement {
    std::uint32_t g; ///< as it lies in memory
    float m;
};
struct WeightedElement {
    MomentumElement unweighted;
    float precondition;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const MomentumArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const AdamBetas betas = settings_of(piece, arguments.pieces).betas;
    const float factor = arguments.factors[piece.tensor];
    const float* const precondition = arguments.precondition; // plus an offset only where it is no NULL
    float* const m = arguments.m + piece.offset;
    // `value` makes a float of a gradient as it lies.
    const auto step = [&](const auto* gradients, const auto& value) {
        const auto load = [&](std::size_t i) { return MomentumElement{gradients[i], m[i]}; };
        const auto store = [&](std::size_t i, const MomentumElement& old) {
            m[i] = first_moment(rounded::multiply(value(old.g), factor), old.m, betas);
        };
        const auto load_weighted = [&](std::size_t i) {
            return WeightedElement{load(i), precondition[piece.offset + i]};
        };
        const auto store_weighted = [&](std::size_t i, const WeightedElement& old) {
            const float g = rounded::multiply(value(old.unweighted.g), factor);
            m[i] = first_moment(weighted_gradient(g, old.precondition, betas), old.unweighted.m, betas);
        };
        if (precondition == nullptr) {
            for_each_element(thread, piece, load, store);
        } else {
            for_each_element(thread, piece, load_weighted, store_weighted);
        }
    };
    if (arguments.gradients != nullptr) {
        step(reinterpret_cast<const std::uint32_t*>(arguments.gradients + piece.offset),
             [](std::uint32_t word) { return std::bit_cast<float>(word); });
    } else {
        with_gradients(piece, [&](const auto* gradients) {
            step(gradients, [&](std::uint32_t word) { return gradient_of(piece, word); });
        });
    }
}

struct WeighElement {
    float m, precondition;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const WeighArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const AdamBetas betas = keeping_nothing(settings_of(piece, arguments.pieces).betas);
    const float* const precondition = arguments.precondition + piece.offset;
    float* const m = arguments.m + piece.offset;
    const auto load = [&](std::size_t i) { return WeighElement{m[i], precondition[i]}; };
    for_each_element(thread, piece, load, [&](std::size_t i, const WeighElement& old) {
        m[i] = first_moment(weighted_gradient(old.m, old.precondition, betas), old.m, betas);
    });
}

struct GatheredElement {
    std::uint32_t g; ///< as it lies in memory
    float precondition, sum;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const GatherMaskedArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const float factor = arguments.factors[piece.tensor];
    const float* const precondition = arguments.precondition + piece.offset;
    float* const sums = arguments.sums + piece.offset;
    with_gradients(piece, [&](const auto* gradients) {
        const auto load = [&](std::size_t i) { return GatheredElement{gradients[i], precondition[i], sums[i]}; };
        for_each_element(thread, piece, load, [&](std::size_t i, const GatheredElement& old) {
            const float g = rounded::multiply(gradient_of(piece, old.g), factor);
            sums[i] = gathered_if_masked(g, old.precondition, old.sum);
        });
    });
}

struct ThawElement {
    float v, m;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const ThawArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const AdamUpdate update = settings_of(piece, arguments.pieces).update;
    const float ratio = arguments.ratios[piece.tensor];
    float* const v = arguments.v + piece.offset;
    float* const m = arguments.m + piece.offset;
    const auto load = [&](std::size_t i) { return ThawElement{v[i], m[i]}; };
    for_each_element(thread, piece, load, [&](std::size_t i, const ThawElement& old) {
        v[i] = thawed_variance(old.v, ratio, update);
        m[i] = thawed_momentum(old.m, v[i], update);
    });
}

struct DirectionElement {
    float m, v, parameter;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const DirectionArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const AdamUpdate update = settings_of(piece, arguments.pieces).update;
    const float* const m = arguments.m + piece.offset;
    const float* const v = arguments.v + piece.offset;
    float* const u = arguments.u + piece.offset;
    const auto load = [&](std::size_t i) { return DirectionElement{m[i], v[i], piece.parameters[i]}; };
    for_each_element(thread, piece, load, [&](std::size_t i, const DirectionElement& old) {
        u[i] = adam_direction(old.m, old.v, old.parameter, update);
    });
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const InvertDenominatorArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const AdamUpdate update = settings_of(piece, arguments.pieces).update;
    const float* const v = arguments.v + piece.offset;
    float* const precondition = arguments.precondition + piece.offset;
    const auto load = [&](std::size_t i) { return v[i]; };
    for_each_element(thread, piece, load, [&](std::size_t i, float old) {
        precondition[i] = rounded::divide(1.0F, denominator(old, update));
    });
}

struct FrozenElement {
    float m, precondition, parameter;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const FrozenDirectionArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    AdamUpdate update = settings_of(piece, arguments.pieces).update;
    if (!arguments.with_decay) update.weight_decay = 0;
    const float* const m = arguments.m + piece.offset;
    const float* const precondition = arguments.precondition + piece.offset;
    float* const u = arguments.u + piece.offset;
    const auto load = [&](std::size_t i) { return FrozenElement{m[i], precondition[i], piece.parameters[i]}; };
    for_each_element(thread, piece, load, [&](std::size_t i, const FrozenElement& old) {
        u[i] = preconditioned_direction(old.m, old.precondition, old.parameter, update);
    });
}

struct RefreshElement {
    float m, m_before, precondition, v_fresh;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const RefreshArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const GroupSettings settings = settings_of(piece, arguments.pieces);
    const float* const m = arguments.m + piece.offset;
    const float* const m_before = arguments.m_before + piece.offset;
    const float* const precondition = arguments.precondition + piece.offset;
    float* const v_fresh = arguments.v_fresh + piece.offset;
    float* const ratios = arguments.ratios + piece.offset;
    const auto load = [&](std::size_t i) { return RefreshElement{m[i], m_before[i], precondition[i], v_fresh[i]}; };
    for_each_element(thread, piece, load, [&](std::size_t i, const RefreshElement& old) {
        const float fresh = fresh_moment(old.m_before, old.m, old.v_fresh, settings.betas);
        v_fresh[i] = fresh;
        ratios[i] = rounded::multiply(old.precondition, denominator(fresh, settings.update));
    });
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const MultiplyArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const float factor = arguments.factors[piece.tensor];
    const float* const values = arguments.values + piece.offset;
    float* const out = arguments.out + piece.offset;
    const auto load = [&](std::size_t i) { return values[i]; };
    for_each_element(thread, piece, load,
                     [&](std::size_t i, float value) { out[i] = saturated_product(factor, value); });
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const NarrowArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const auto load = [&](std::size_t i) { return piece.parameters[i]; };
    for_each_element(thread, piece, load, [&](std::size_t i, float parameter) { write_copy(piece, i, parameter); });
}

// ---- One number of a piece ----

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const SumSquaresArguments& arguments, Scratch& scratch) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const Share share = share_of(thread, piece);
    float values[kGroups];
    load(share, arguments.values != nullptr ? arguments.values + piece.offset : piece.parameters, values);
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) scratch.values[share.at(g)] = values[g];
    thread.sync();
    if (thread.warp() != 0) return;
    const float float_sum = thread.shuffle(total_of<float>(thread, scratch.values, ONEBIT_SCALE_L2), 0);
    const double sum = is_trusted(float_sum) ? float_sum : total_of<double>(thread, scratch.values, ONEBIT_SCALE_L2);
    if (thread.lane() == 0) arguments.numbers[thread.block()] = sum;
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const LeastArguments& arguments, Scratch& scratch) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const Share share = share_of(thread, piece);
    const float* const values = arguments.values + piece.offset;
    float least = HUGE_VALF;
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
        if (share.has(g)) least = std::fmin(least, values[share.at(g)]);
    }
    scratch.values[thread.warp() * kLanes + thread.lane()] = least;
    thread.sync();
    if (thread.warp() != 0) return;
#pragma unroll
    for (unsigned warp = 1; warp < kWarps; ++warp) {
        least = std::fmin(least, scratch.values[warp * kLanes + thread.lane()]);
    }
#pragma unroll
    for (unsigned half = kLanes / 2; half > 0; half /= 2) least = std::fmin(least, thread.shuffle_down(least, half));
    if (thread.lane() == 0) arguments.numbers[thread.block()] = least;
}

} // namespace onebit::cuda
