// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/call/algorithm.hpp"
#include "collectives/operation/memory_backend.hpp"
#include "collectives/selection/matrix_layout.hpp"
#include "compress/lowrank/kernels.hpp"
#include "compress/stored_error.hpp"
#include "core/aligned_buffer.hpp"
#include "numeric/elements.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The right factors of the last call, which the next call uses as its directions: each call is one step of a power
/// iteration.
class Directions final : public Feedback {
  public:
    explicit Directions(const MatrixLayout& layout) : layout_(layout), values_(layout.right_count()) { reset(); }

    /// Sets drawn directions: the same on every rank, and in every run.
    void reset() override;
    void get_error(float* values) const override;
    void set_error(const float* values) override;
    void set_mask(std::span<const std::uint32_t>) override {}
    std::size_t state_bytes() const override { return values_.bytes(); }
    std::size_t workspace_bytes() const override { return 0; }

    const float* values() const { return values_.data(); }
    /// Number `i` of a matrix's directions, as drawn in a call.
    static float draw(std::uint64_t call, std::size_t matrix, std::size_t i);

  private:
    const MatrixLayout& layout_;
    AlignedBuffer<float> values_;
};

/// Allreduces of matrices by approximations of a low rank, with error feedback [PowerSGD: Vogels et al., NeurIPS 2019,
/// algorithm 1]. What is approximated is a rank's values plus its error, M. With Q the directions, orthonormal:
///
///     left factors    P = the ranks' average of M Q, made orthonormal
///     right factors   R = the ranks' average of M^T P, the directions of the next call
///     result          P R^T
///     error           M - P (M^T P)^T
///
/// Both averages are exact and of few numbers. Matrices whose factors would have no fewer numbers travel with the first
/// average. The ranks' errors and results add up to all that was to be delivered.
class PowerSgd final : public Algorithm {
  public:
    struct Settings {
        onebit_op_t op = ONEBIT_OP_AVERAGE;
        unsigned threads = 1;
        const NumericKernels* numeric = nullptr; ///< and the kernels of the same instruction set
    };

    /// How many tags it has on its channel.
    static constexpr int kTags = 76;

    /// Local; `layout` outlives it, and compresses. Its tags are those from `tag` on.
    static Status create(Transport& transport, const NodeGroups& nodes, const MemoryBackend& backend,
                         const Elements& elements, const MatrixLayout& layout, const Settings& settings, int tag,
                         std::unique_ptr<PowerSgd>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override;
    std::size_t workspace_bytes() const override;

    Feedback& error() { return error_; }
    Feedback& directions() { return directions_; }

  private:
    /// Some rows of a matrix, or elements of one that is exact.
    struct Part {
        std::size_t matrix;
        std::size_t first;
        std::size_t end;
        std::size_t sums; ///< where its sums of right factors are, among partial_; the first part's: in right_
    };
    static constexpr std::size_t kNone = SIZE_MAX;

    PowerSgd(const Elements& elements, const MatrixLayout& layout, const Settings& settings, int ranks);
    void cut_into_parts();

    // ---- stages ----

    Status turn_directions(Step* step);
    Status project(Step* step);
    Status make_left_orthonormal(Step* step);
    Status project_back(Step* step);
    Status add_up_parts(Step* step);
    Status expand(Step* step);

    // ---- what they do to a part, or to a matrix ----

    /// Whether nothing is too large.
    bool project(const Part& part);
    void project_back(const Part& part);
    void add_up_parts(std::size_t m, const Matrix& matrix);
    /// The first element of the result that isn't finite, or kNone.
    std::size_t expand(const Part& part);
    std::size_t expand_exact(const Part& part);

    template <typename Body>
    Step for_next(std::size_t count, const Body& body);
    /// Calls body(number of a part) for some more parts; kDone after the last one.
    template <typename Body>
    Step for_next_parts(const Body& body);
    /// The same with body(m, matrix) for matrices that have factors.
    template <typename Body>
    Step for_next_matrices(const Body& body);
    template <typename Place, typename Replacement>
    void orthonormalise_factors(std::size_t m, std::size_t length, const float* from, float* to, const Place& place,
                                const Replacement& replacement);
    struct Window;
    template <typename Body>
    void for_each_window(const Part& part, const Body& body) const;
    bool is_narrow() const { return elements_.type() != ONEBIT_FLOAT32; }
    static std::size_t element_of(const Matrix& matrix, std::size_t row, std::size_t column) {
        return matrix.begin + row * matrix.columns + column;
    }
    float* left_of(const Matrix& matrix, std::size_t row) { return left_.data() + matrix.left + row * matrix.rank; }
    /// Discards all that earlier calls have left.
    void forget();

    Elements elements_;
    const MatrixLayout& layout_;
    Settings settings_;
    const LowRankKernels& kernels_;
    float times_; ///< the result is this times the average
    std::vector<Part> parts_;
    std::vector<std::size_t> first_part_;   ///< by matrix; and one past the last part
    std::vector<std::size_t> first_vector_; ///< by matrix, in vectors_

    StoredError error_;
    Directions directions_;
    AlignedBuffer<float> left_;     ///< left factors: this rank's, the average, and that made orthonormal; behind
                                    ///< them, whether a value is too large
    AlignedBuffer<float> right_;    ///< the directions, orthonormal; then this rank's right factors
    AlignedBuffer<float> mean_;     ///< the average of the right factors
    AlignedBuffer<float> partial_;  ///< sums of all parts of a matrix but the first
    AlignedBuffer<double> vectors_; ///< that are made orthogonal
    std::unique_ptr<Algorithm> left_average_;
    std::unique_ptr<Algorithm> right_average_;

    // Of the call in flight.
    Operands operands_;
    std::size_t next_ = 0;               ///< part, or matrix, of the stage
    std::vector<char> fits_;             ///< by part: whether nothing is too large
    std::vector<std::size_t> nonfinite_; ///< by part: an element of the result, or kNone
    std::vector<Stage> stages_;
};

} // namespace onebit
