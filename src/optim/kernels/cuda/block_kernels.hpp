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

/// What a thread does in each pass.
namespace onebit::cuda {

// ---- The pieces' own gradients, as they lie ----

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const LookArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const Share share = share_of(thread, piece);
    std::uint32_t words[kGroups] = {};
    load_gradients(piece, share, 0, words);
    unsigned first = kBlockElements;
#pragma unroll
    for (unsigned g = kGroups; g-- > 0;) {
        if (!is_finite(words[g])) first = share.at(g);
    }
    if (arguments.out != nullptr) {
#pragma unroll
        for (unsigned g = 0; g < kGroups; ++g) {
            if (share.has(g)) arguments.out[piece.offset + share.at(g)] = std::bit_cast<float>(words[g]);
        }
    }
    if (first < kBlockElements) thread.lower(arguments.first, piece.offset + first);
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const EncodeGradientsArguments& arguments, Scratch& scratch) {
    const auto form = [&](const Block& block, const Share& share, float(&values)[kGroups]) {
        const onebit_group_t group = arguments.to.group;
        const bool blends = arguments.last != nullptr;
        std::uint32_t signs = 0;
        float last_scale = 0;
        if (blends) {
            signs = load_word(thread, share, arguments.last + sign_word(group, block.chunk, block.index));
            last_scale = std::bit_cast<float>(arguments.last[scale_word(group, block.chunk, block.index)]);
        }
        std::uint32_t words[kGroups] = {};
        unsigned first = kBlockElements;
        // Usually there is one piece; each has a part of the block's elements.
        const std::size_t end = arguments.first_piece[block.index + 1];
        for (std::size_t p = arguments.first_piece[block.index]; p < end; ++p) {
            const Piece piece = arguments.pieces.pieces[p];
            const auto begin = static_cast<unsigned>(piece.offset - block.begin());
            const AdamBetas betas = settings_of(piece, arguments.pieces).betas;
            const float factor = arguments.factors[piece.tensor];
            load_gradients(piece, share, begin, words);
#pragma unroll
            for (unsigned g = 0; g < kGroups; ++g) {
                const bool here = has(piece, share, begin, g);
                if (here && !is_finite(words[g])) first = std::min(first, share.at(g));
                const float scaled = rounded::multiply(std::bit_cast<float>(words[g]), factor);
                const float before = bit_at(thread, signs, g) ? last_scale : -last_scale;
                const float value = blends ? first_moment(scaled, before, betas) : scaled;
                words[g] = here ? std::bit_cast<std::uint32_t>(value) : words[g];
            }
        }
        if (arguments.first != nullptr && first < kBlockElements) thread.lower(arguments.first, block.begin() + first);
#pragma unroll
        for (unsigned g = 0; g < kGroups; ++g) values[g] = std::bit_cast<float>(words[g]);
    };
    encode_block(thread, arguments.to, form, scratch);
}

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
    const auto load = [&](unsigned i) { return AdamElement{gradients[i], m[i], v[i], piece.parameters[i]}; };
    for_each_element(thread, piece, load, [&](unsigned i, const AdamElement& old) {
        const float g = rounded::multiply(old.g, factor);
        const float new_m = first_moment(g, old.m, settings.betas);
        const float new_v = second_moment(g, old.v, settings.betas);
        const float u = adam_direction(new_m, new_v, old.parameter, settings.update);
        m[i] = new_m;
        v[i] = new_v;
        write_parameter(piece, i, stepped(old.parameter, settings.update.lr, u));
    });
}

struct CompressedElement {
    MessageWords words;
    float precondition, parameter;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const CompressedUpdateArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const AdamUpdate update = settings_of(piece, arguments.pieces).update;
    const float step = given(arguments.steps, piece, update.lr);
    const Messages& messages = arguments.messages;
    const float magnitude = rounded::multiply(scale_of(messages, piece), given(arguments.factors, piece, 1.0F));
    const float* const precondition = arguments.precondition + piece.offset;
    const auto load = [&](unsigned i) {
        return CompressedElement{load_message(messages, piece, i), precondition[i], piece.parameters[i]};
    };
    for_each_element(thread, piece, load, [&](unsigned i, const CompressedElement& old) {
        const float m = decoded(old.words, piece, i, magnitude);
        const float u = preconditioned_direction(m, old.precondition, old.parameter, update);
        write_parameter(piece, i, stepped(old.parameter, step, u));
    });
}

struct AverageElement {
    MessageWords words;
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
    const auto load = [&](unsigned i) {
        return AverageElement{load_message(messages, piece, i), m[i], v[i], piece.parameters[i]};
    };
    for_each_element(thread, piece, load, [&](unsigned i, const AverageElement& old) {
        const float new_m = first_moment(decoded(old.words, piece, i, magnitude), old.m, settings.betas);
        const float u = adam_direction(new_m, old.v, old.parameter, settings.update);
        m[i] = new_m;
        write_parameter(piece, i, stepped(old.parameter, settings.update.lr, u));
    });
}

struct AloneElement {
    std::uint32_t g; ///< as it lies in memory
    float m, precondition, parameter, anchor;
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
    const bool drifts = arguments.anchor != nullptr;
    const float* const anchor = arguments.anchor; // plus an offset only where they are no NULLs
    float* const drift = arguments.drift;
    const auto load = [&](unsigned i) {
        return AloneElement{load_gradient(piece, i), m[i], precondition[i], piece.parameters[i],
                            drifts ? anchor[piece.offset + i] : 0.0F};
    };
    for_each_element(thread, piece, load, [&](unsigned i, const AloneElement& old) {
        const float new_m = first_moment(rounded::multiply(gradient_of(piece, old.g), factor), old.m, betas);
        const float u = preconditioned_direction(new_m, old.precondition, old.parameter, update);
        const float parameter = stepped(old.parameter, update.lr, u);
        m[i] = new_m;
        if (drifts) {
            piece.parameters[i] = parameter;
            drift[piece.offset + i] = drift_of(parameter, old.anchor, old.precondition);
        } else {
            write_parameter(piece, i, parameter);
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
    const auto load = [&](unsigned i) { return DescendElement{u[i], piece.parameters[i]}; };
    for_each_element(thread, piece, load, [&](unsigned i, const DescendElement& old) {
        write_parameter(piece, i, stepped(old.parameter, step, old.u));
    });
}

struct RejoinElement {
    MessageWords words;
    float anchor, precondition;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const RejoinArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const Messages& messages = arguments.messages;
    const float magnitude = scale_of(messages, piece);
    const float to_momentum = arguments.to_momentum[piece.tensor];
    const float decay = arguments.decays[piece.tensor];
    const float* const precondition = arguments.precondition + piece.offset;
    float* const m = arguments.m + piece.offset;
    float* const anchor = arguments.anchor + piece.offset;
    const auto load = [&](unsigned i) {
        return RejoinElement{load_message(messages, piece, i), anchor[i], precondition[i]};
    };
    for_each_element(thread, piece, load, [&](unsigned i, const RejoinElement& old) {
        const float average = decoded(old.words, piece, i, magnitude);
        const float met = rejoined(old.anchor, average, old.precondition, decay);
        if (to_momentum != 0) m[i] = rounded::multiply(to_momentum, average);
        anchor[i] = met;
        write_parameter(piece, i, met);
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
    const auto load = [&](unsigned i) { return MomentsElement{gradients[i], m[i], v[i]}; };
    for_each_element(thread, piece, load, [&](unsigned i, const MomentsElement& old) {
        const float g = rounded::multiply(old.g, factor);
        m[i] = first_moment(g, old.m, betas);
        v[i] = second_moment(g, old.v, betas);
    });
}

struct MomentumElement {
    std::uint32_t g; ///< as it lies in memory
    float m;
};

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const MomentumArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const AdamBetas betas = settings_of(piece, arguments.pieces).betas;
    const float factor = arguments.factors[piece.tensor];
    const bool own = arguments.gradients == nullptr;
    const float* const gradients = arguments.gradients; // plus an offset only where it is no NULL
    float* const m = arguments.m + piece.offset;
    const auto load = [&](unsigned i) {
        return MomentumElement{
            own ? load_gradient(piece, i) : std::bit_cast<std::uint32_t>(gradients[piece.offset + i]), m[i]};
    };
    for_each_element(thread, piece, load, [&](unsigned i, const MomentumElement& old) {
        const float g = own ? gradient_of(piece, old.g) : std::bit_cast<float>(old.g);
        m[i] = first_moment(rounded::multiply(g, factor), old.m, betas);
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
    const auto load = [&](unsigned i) { return DirectionElement{m[i], v[i], piece.parameters[i]}; };
    for_each_element(thread, piece, load, [&](unsigned i, const DirectionElement& old) {
        u[i] = adam_direction(old.m, old.v, old.parameter, update);
    });
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const InvertDenominatorArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const AdamUpdate update = settings_of(piece, arguments.pieces).update;
    const float* const v = arguments.v + piece.offset;
    float* const precondition = arguments.precondition + piece.offset;
    const auto load = [&](unsigned i) { return v[i]; };
    for_each_element(thread, piece, load,
                     [&](unsigned i, float old) { precondition[i] = rounded::divide(1.0F, denominator(old, update)); });
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
    const auto load = [&](unsigned i) { return FrozenElement{m[i], precondition[i], piece.parameters[i]}; };
    for_each_element(thread, piece, load, [&](unsigned i, const FrozenElement& old) {
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
    const auto load = [&](unsigned i) { return RefreshElement{m[i], m_before[i], precondition[i], v_fresh[i]}; };
    for_each_element(thread, piece, load, [&](unsigned i, const RefreshElement& old) {
        const float g = gradient_between(old.m_before, old.m, settings.betas);
        const float fresh = second_moment(g, old.v_fresh, settings.betas);
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
    const auto load = [&](unsigned i) { return values[i]; };
    for_each_element(thread, piece, load, [&](unsigned i, float value) { out[i] = rounded::multiply(factor, value); });
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const NarrowArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const auto load = [&](unsigned i) { return piece.parameters[i]; };
    for_each_element(thread, piece, load, [&](unsigned i, float parameter) { write_copy(piece, i, parameter); });
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
    const float sum = total_of<float>(thread, scratch.values, ONEBIT_SCALE_L2);
    if (thread.lane() == 0) arguments.sums[thread.block()] = sum;
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
    if (thread.lane() == 0) arguments.least[thread.block()] = least;
}

// ---- Sketches ----

/// Elements that a piece has at most for a bucket, and a thread's buckets.
inline constexpr unsigned kSketchTurns = kBlockElements / kSketchBuckets;
inline constexpr unsigned kOwnBuckets = kSketchBuckets / kThreads;

/// Where a piece's first element for one of the thread's buckets is; others follow kSketchBuckets further on.
ONEBIT_DEVICE inline unsigned first_in_bucket(const Piece& piece, unsigned self, unsigned k) {
    const auto rotation = static_cast<unsigned>(sketch_bucket(piece.seed, 0));
    return (self + k * kThreads - rotation) % kSketchBuckets;
}

template <typename Word>
ONEBIT_DEVICE void load_for_buckets(const Piece& piece, unsigned self,
                                    std::uint32_t (&words)[kOwnBuckets][kSketchTurns]) {
    const auto* const gradients = static_cast<const Word*>(piece.gradients);
#pragma unroll
    for (unsigned k = 0; k < kOwnBuckets; ++k) {
        const unsigned first = first_in_bucket(piece, self, k);
#pragma unroll
        for (unsigned turn = 0; turn < kSketchTurns; ++turn) {
            const unsigned i = first + turn * static_cast<unsigned>(kSketchBuckets);
            words[k][turn] = i < piece.count ? gradients[i] : 0;
        }
    }
}

/// A thread has four buckets, to which it adds piece by piece; a warp's are side by side, as are their elements. All of
/// a piece are under way together, and the next one's description meanwhile.
template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const SketchArguments& arguments, Scratch& /*scratch*/) {
    const std::size_t first = thread.block() * kSketchPieces;
    const std::size_t left = arguments.pieces.count - first;
    const std::size_t end = first + (left < kSketchPieces ? left : kSketchPieces);
    const unsigned self = thread.warp() * static_cast<unsigned>(kLanes) + thread.lane();
    float buckets[kOwnBuckets] = {};
    Piece piece = arguments.pieces.pieces[first];
    for (std::size_t p = first; p < end; ++p) {
        const Piece next = arguments.pieces.pieces[p + 1 < end ? p + 1 : p];
        std::uint32_t words[kOwnBuckets][kSketchTurns];
        if (piece.gradient_type == ONEBIT_FLOAT32) {
            load_for_buckets<std::uint32_t>(piece, self, words);
        } else {
            load_for_buckets<std::uint16_t>(piece, self, words);
        }
#pragma unroll
        for (unsigned k = 0; k < kOwnBuckets; ++k) {
#pragma unroll
            for (unsigned turn = 0; turn < kSketchTurns; ++turn) {
                const std::size_t i = first_in_bucket(piece, self, k) + turn * kSketchBuckets;
                const float addend = sketch_addend(piece.seed, i, gradient_of(piece, words[k][turn]));
                if (i < piece.count) buckets[k] = rounded::add(buckets[k], addend);
            }
        }
        piece = next;
    }
#pragma unroll
    for (unsigned k = 0; k < kOwnBuckets; ++k) {
        arguments.sketches[thread.block() * kSketchBuckets + self + k * kThreads] = buckets[k];
    }
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const AddSketchesArguments& arguments, Scratch& /*scratch*/) {
    for (std::size_t b = thread.warp() * kLanes + thread.lane(); b < kSketchBuckets; b += kThreads) {
        float sum = 0;
        for (std::size_t p = 0; p < arguments.count; ++p) {
            sum = rounded::add(sum, arguments.sketches[p * kSketchBuckets + b]);
        }
        arguments.total[b] = sum;
    }
}

} // namespace onebit::cuda
