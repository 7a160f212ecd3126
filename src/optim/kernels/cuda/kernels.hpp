// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "compress/sign/cuda/kernels.hpp"
#include "core/status.hpp"
#include "optim/kernels/kernels.hpp"

/// The optimizers' passes on a GPU: the kernels of kernels.def, each for all segments of a layout at once, with the
/// same parameters, moments and sums to the bit. (Except for the payloads of NaNs, and for which of two zeros is less.)
///
/// All pointers are to device memory, also those to arrays of pieces, settings and factors: a captured graph then
/// follows a learning rate that changes. A fused array holds a layout's elements one after the other, in the order of
/// its tensors. Floats may have any alignment that a float may have. An output may be one of the inputs, else arrays
/// don't overlap.
///
/// The rules of compress/sign/cuda/kernels.hpp for streams and statuses hold for these functions, too.
namespace onebit::cuda {

/// A Segment on a GPU: at most kBlockElements elements of one tensor.
struct Piece {
    std::size_t offset;     ///< of its first element in fused arrays
    float* parameters;      ///< of the same element
    const void* gradients;  ///< likewise: this rank's own
    void* copy;             ///< likewise; NULL: there is none
    std::size_t first_sign; ///< which bit of a message is the first element's sign
    std::size_t scale_word; ///< which word of the message holds its scale
    std::uint64_t seed;     ///< for sketches
    onebit_datatype_t gradient_type;
    onebit_datatype_t copy_type;
    unsigned count;
    unsigned group;  ///< which settings are the tensor's
    unsigned tensor; ///< index into arrays by tensor
};

struct GroupSettings {
    AdamBetas betas;
    AdamUpdate update;

    bool operator==(const GroupSettings&) const = default;
};

/// The pieces of a pass: one thread block for each piece.
struct Pieces {
    const Piece* pieces;
    std::size_t count;
    const GroupSettings* settings; ///< by group
};

/// The messages that a layout's values came in, one for each chunk, as one array of words.
struct Messages {
    const std::uint32_t* words;
    const std::uint32_t* mask; ///< one bit per fused element, 1 where it takes part; NULL: all do
};

// ---- The pieces' own gradients, as they lie ----

/// Looks for the first that is a NaN, an infinity or too large, and gathers them as floats.
struct LookArguments {
    Pieces pieces;
    float* out;                ///< fused; NULL: they aren't gathered
    unsigned long long* first; ///< one: lowered to the least fused index that is found
    float limit = FLT_MAX;     ///< the largest magnitude that is accepted
};

/// Encodes slices: the gradients times their tensors' factors, or the momenta of these and the last message. Looks at
/// the gradients on the way.
struct GradientSlice {
    Encoding to;
    const std::uint32_t* last;      ///< may be the message that is written; NULL: no momenta
    const std::size_t* first_piece; ///< by block of the chunk, and one past its last
};
struct EncodeGradientsArguments { // not Rows of it: with common members in each row the compiler would need a stack
    Rows<GradientSlice> slices;
    Pieces pieces;
    const float* factors;                ///< by tensor
    unsigned long long* first;           ///< as above; NULL: they aren't looked at
    float limit = FLT_MAX;               ///< as above
    const float* precondition = nullptr; ///< fused: gradients are weighted; NULL: they aren't
};

// ---- Steps ----

/// Adam whole. Whatever changes parameters also writes the pieces' copies of them.
struct AdamArguments {
    Pieces pieces;
    const float* gradients; ///< fused
    const float* factor;    ///< one
    float* m;               ///< fused
    float* v;               ///< fused
};

/// frozen_update, or exchanged_update, by an m that is decoded on the way and never written.
struct CompressedUpdateArguments {
    Pieces pieces;
    Messages messages;
    const float* precondition; ///< fused; NULL: exchanged_update
    const float* factors;      ///< by tensor: m is multiplied by it first; NULL: it isn't
    const float* steps;        ///< by tensor: in place of lr; NULL: lr
};

/// momentum and direction by a message, and descend.
struct TakeAverageArguments {
    Pieces pieces;
    Messages messages;
    float* m;              ///< fused
    const float* v;        ///< fused
    bool weighted = false; ///< the message is in units of the update: unweigh comes first
};

/// momentum by the pieces' own gradients and frozen_update as if weight_decay were 0, or in units of the update
/// weighted_momentum and exchanged_update. Where there is an anchor, only the drift that these would cause is written.
struct StepAloneArguments {
    Pieces pieces;
    const float* factors;      ///< by tensor: of the gradients
    const float* precondition; ///< fused
    float* m;                  ///< fused
    const float* anchor;       ///< fused; NULL: no drift is wanted
    float* drift;              ///< fused
    bool of_momentum = true;   ///< m and the drift are in units of momentum; else of the update
};

struct DescendArguments {
    Pieces pieces;
    const float* u;     ///< fused
    const float* steps; ///< by tensor; NULL: lr
};

/// rejoin by a message; m is the message times a factor.
struct RejoinArguments {
    Pieces pieces;
    Messages messages;
    const float* precondition; ///< fused; NULL: 1
    const float* to_momentum;  ///< by tensor; 0: m stays as it is
    const float* decays;       ///< by tensor
    float* m;                  ///< fused
    float* anchor;             ///< fused
};

// ---- What steps are made of; all fused ----

struct MomentsArguments {
    Pieces pieces;
    const float* gradients;
    const float* factor; ///< one
    float* m;
    float* v;
};

struct MomentumArguments {
    Pieces pieces;
    const float* gradients; ///< NULL: the pieces' own
    const float* factors;   ///< by tensor
    float* m;
    const float* precondition = nullptr; ///< fused: weighted_momentum; NULL: momentum
};

/// weighted_momentum with all of m for the gradient, and none kept.
struct WeighArguments {
    Pieces pieces;
    const float* precondition;
    float* m;
};

/// gather_masked by the pieces' own gradients.
struct GatherMaskedArguments {
    Pieces pieces;
    const float* factors; ///< by tensor
    const float* precondition;
    float* sums;
};

struct ThawArguments {
    Pieces pieces;
    const float* ratios; ///< by tensor
    float* v;            ///< has the preconditioner
    float* m;
};

struct DirectionArguments {
    Pieces pieces;
    const float* m;
    const float* v;
    float* u;
};

struct InvertDenominatorArguments {
    Pieces pieces;
    const float* v;
    float* precondition;
};

/// `with_decay` false: as if weight_decay were 0.
struct FrozenDirectionArguments {
    Pieces pieces;
    const float* m;
    const float* precondition;
    float* u;
    bool with_decay;
};

struct RefreshArguments {
    Pieces pieces;
    const float* m;
    const float* m_before;
    const float* precondition;
    float* v_fresh;
    float* ratios;
};

struct MultiplyArguments {
    Pieces pieces;
    const float* values;
    const float* factors; ///< by tensor
    float* out;
};

/// The pieces' copies of their parameters.
struct NarrowArguments {
    Pieces pieces;
};

// ---- One number of a piece ----

struct SumSquaresArguments {
    Pieces pieces;
    const float* values; ///< fused; NULL: the parameters
    double* numbers;     ///< one per piece
};

struct LeastArguments {
    Pieces pieces;
    const float* values; ///< fused; no NaNs
    double* numbers;     ///< one per piece
};

// ---- Sketches ----

/// Pieces that share a sketch before all are added up, as on the CPU.
inline constexpr std::size_t kSketchPieces = 128;

/// Sketches of the pieces' own gradients.
struct SketchArguments {
    Pieces pieces;
    float* sketches; ///< kSketchBuckets for each kSketchPieces pieces or part of that
};

/// Sketches of these gradients, weighted, by runs of pieces of one tensor.
struct SketchWeightedArguments {
    Pieces pieces;
    const std::size_t* first_piece; ///< by run, and one past the last
    std::size_t runs;
    const float* factors; ///< by tensor
    const float* precondition;
    float* sketches; ///< kSketchBuckets for each run
};

struct AddSketchesArguments {
    const float* sketches;
    std::size_t count;
    float* total; ///< kSketchBuckets
};

#define ONEBIT_CUDA_PASS(name, arguments) Status name(const arguments&, Stream stream);
#include "optim/kernels/cuda/passes.def"
#undef ONEBIT_CUDA_PASS

} // namespace onebit::cuda
