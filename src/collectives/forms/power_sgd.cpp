// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/forms/power_sgd.hpp"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <utility>

#include "collectives/forms/orthonormalise.hpp"
#include "core/parallel.hpp"
#include "core/random_bits.hpp"
#include "numeric/search.hpp"

namespace onebit {
namespace {

/// What a thread works on before it looks for the next part: 1 MiB of values.
constexpr std::size_t kPartElements = std::size_t{1} << 18;
/// A part has at least so many rows for each direction, so that its sums are few beside its values.
constexpr std::size_t kRowsPerDirection = 64;

/// The largest magnitude with which no number computed from a matrix overflows: the matrix's products with vectors of
/// norm 1 are at most the root of the number of rows, or columns, times as large.
float limit_of(const Matrix& matrix) {
    return FLT_MAX / (4 * std::sqrt(static_cast<float>(std::max(matrix.rows, matrix.columns))));
}

} // namespace

// ------------------------------------------------------------------------------------------------- directions ----

float Directions::draw(std::uint64_t call, std::size_t matrix, std::size_t i) {
    const std::uint32_t seed = seed_of(static_cast<std::uint32_t>(call), static_cast<std::uint32_t>(matrix));
    const auto bits = static_cast<std::int32_t>(drawn(seed, static_cast<std::uint32_t>(i)));
    return static_cast<float>(bits) * 0x1p-31F;
}

void Directions::reset() {
    for (std::size_t m = 0; m < layout_.matrices().size(); ++m) {
        const Matrix& matrix = layout_.matrices()[m];
        for (std::size_t i = 0; i < matrix.right_count(); ++i) values_[matrix.right + i] = draw(0, m, i);
    }
}

void Directions::get_error(float* values) const {
    std::copy_n(values_.data(), values_.size(), values);
}

void Directions::set_error(const float* values) {
    std::copy_n(values, values_.size(), values_.data());
}

// --------------------------------------------------------------------------------------------------- creation ----

PowerSgd::PowerSgd(const Elements& elements, const MatrixLayout& layout, const Settings& settings, int ranks)
    : elements_(elements),
      layout_(layout),
      settings_(settings),
      kernels_(low_rank_kernels(settings.numeric->name)),
      times_(settings.op == ONEBIT_OP_SUM ? static_cast<float>(ranks) : 1.0F),
      error_(only(Chunk{0, 0, layout.elements()}), ONEBIT_FLOAT32, *settings.numeric),
      directions_(layout),
      left_(layout.left_count() + 1),
      right_(layout.right_count()),
      mean_(layout.right_count()) {
    cut_into_parts();
    fits_.resize(parts_.size());
    nonfinite_.resize(parts_.size());
}

void PowerSgd::cut_into_parts() {
    std::size_t sums = 0;
    std::size_t vectors = 0;
    for (std::size_t m = 0; m < layout_.matrices().size(); ++m) {
        const Matrix& matrix = layout_.matrices()[m];
        first_part_.push_back(parts_.size());
        first_vector_.push_back(vectors);
        vectors += matrix.rank * std::max(matrix.rows, matrix.columns);
        const std::size_t length = matrix.is_exact() ? matrix.elements() : matrix.rows;
        const std::size_t at_once = matrix.is_exact()
                                        ? kPartElements
                                        : std::max(kPartElements / matrix.columns, kRowsPerDirection * matrix.rank);
        for (std::size_t first = 0; first < length; first += at_once) {
            parts_.push_back({m, first, std::min(first + at_once, length), sums});
            if (first > 0) sums += matrix.right_count();
        }
    }
    first_part_.push_back(parts_.size());
    partial_ = AlignedBuffer<float>(sums);
    vectors_ = AlignedBuffer<double>(vectors);
}

Status PowerSgd::create(Transport& transport, const NodeGroups& nodes, const MemoryBackend& backend,
                        const Elements& elements, const MatrixLayout& layout, const Settings& settings, int tag,
                        std::unique_ptr<PowerSgd>* algorithm) {
    std::unique_ptr<PowerSgd> made(new PowerSgd(elements, layout, settings, transport.size()));
    const Elements floats(ONEBIT_FLOAT32, *settings.numeric);
    ONEBIT_RETURN_IF_ERROR(
        backend.make_dense(transport, nodes, floats, made->left_.size(), settings.threads, tag, &made->left_average_));
    ONEBIT_RETURN_IF_ERROR(backend.make_dense(transport, nodes, floats, layout.right_count(), settings.threads,
                                              tag + kTags / 2, &made->right_average_));
    PowerSgd* const self = made.get();
    std::vector<Stage>& stages = self->stages_;
    const auto add_average = [&stages](const Algorithm& average) {
        stages.insert(stages.end(), average.stages().begin(), average.stages().end());
    };
    stages.push_back({"turn directions", [self](Step* step) { return self->turn_directions(step); }});
    stages.push_back({"project", [self](Step* step) { return self->project(step); }});
    add_average(*self->left_average_);
    stages.push_back({"orthonormalise", [self](Step* step) { return self->make_left_orthonormal(step); }});
    stages.push_back({"project back", [self](Step* step) { return self->project_back(step); }});
    stages.push_back({"add up parts", [self](Step* step) { return self->add_up_parts(step); }});
    add_average(*self->right_average_);
    stages.push_back({"expand", [self](Step* step) { return self->expand(step); }});
    *algorithm = std::move(made);
    return {};
}

std::size_t PowerSgd::workspace_bytes() const {
    return left_.bytes() + right_.bytes() + mean_.bytes() + partial_.bytes() + vectors_.bytes() +
           left_average_->workspace_bytes() + right_average_->workspace_bytes();
}

// --------------------------------------------------------------------------------------------------- one call ----

void PowerSgd::set_operands(const Operands& operands) {
    operands_ = operands;
    next_ = 0;
    left_average_->set_operands({.input = left_.data(), .output = left_.data()});
    right_average_->set_operands({.input = right_.data(), .output = mean_.data()});
}

/// Any basis of the space that the directions span is as good.
Status PowerSgd::turn_directions(Step* step) {
    *step = for_next_matrices([&](std::size_t m, const Matrix& matrix) {
        const auto place = [&](std::size_t k, std::size_t column) {
            return right_index(matrix.columns, matrix.rank, k, column);
        };
        orthonormalise_factors(
            m, matrix.columns, directions_.values() + matrix.right, right_.data() + matrix.right, place,
            [&](std::size_t k, std::size_t c) { return Directions::draw(operands_.number, m, place(k, c)); });
    });
    return {};
}

Status PowerSgd::project(Step* step) {
    *step = for_next_parts([&](std::size_t p) { fits_[p] = project(parts_[p]) ? 1 : 0; });
    if (*step == Step::kDone) left_[layout_.left_count()] = std::ranges::count(fits_, 0) == 0 ? 0.0F : 1.0F;
    return {};
}

Status PowerSgd::make_left_orthonormal(Step* step) {
    if (left_[layout_.left_count()] != 0) {
        forget();
        return Status::error(ONEBIT_ERROR_NONFINITE,
                             "a value and its error are too large together to be approximated in float32");
    }
    *step = for_next_matrices([&](std::size_t m, const Matrix& matrix) {
        float* const factors = left_of(matrix, 0);
        const auto place = [&](std::size_t k, std::size_t row) { return row * matrix.rank + k; };
        orthonormalise_factors(m, matrix.rows, factors, factors, place, [](std::size_t, std::size_t) { return 0.0F; });
    });
    return {};
}

Status PowerSgd::project_back(Step* step) {
    *step = for_next_parts([&](std::size_t p) { project_back(parts_[p]); });
    return {};
}

Status PowerSgd::add_up_parts(Step* step) {
    *step = for_next_matrices([&](std::size_t m, const Matrix& matrix) { add_up_parts(m, matrix); });
    return {};
}

/// If no value was too large, nothing of the handle's state has changed until here.
Status PowerSgd::expand(Step* step) {
    *step = for_next_parts([&](std::size_t p) {
        const Part& part = parts_[p];
        nonfinite_[p] = layout_.matrices()[part.matrix].is_exact() ? expand_exact(part) : expand(part);
    });
    if (*step != Step::kDone) return {};
    directions_.set_error(mean_.data());
    const auto first = std::ranges::find_if(nonfinite_, [](std::size_t element) { return element != kNone; });
    if (first == nonfinite_.end()) return {};
    forget();
    return Status::error(ONEBIT_ERROR_NONFINITE, "element %zu of the result overflows %s", *first,
                         name_of(elements_.type()));
}

void PowerSgd::forget() {
    error_.reset();
    directions_.reset();
}

// ----------------------------------------------------------------------------------------------- part by part ----

/// kDone after the last of `count`.
template <typename Body>
Step PowerSgd::for_next(std::size_t count, const Body& body) {
    const std::size_t end = std::min(next_ + 2 * settings_.threads, count);
    parallel_for(next_, end, settings_.threads, body);
    next_ = end == count ? 0 : end;
    return next_ == 0 ? Step::kDone : Step::kAgain;
}

template <typename Body>
Step PowerSgd::for_next_parts(const Body& body) {
    return for_next(parts_.size(), body);
}

template <typename Body>
Step PowerSgd::for_next_matrices(const Body& body) {
    return for_next(layout_.matrices().size(), [&](std::size_t m) {
        if (!layout_.matrices()[m].is_exact()) body(m, layout_.matrices()[m]);
    });
}

/// Of matrix m: the `length` factors of direction k lie at place(k, i) of `from`, and then of `to`.
template <typename Place, typename Replacement>
void PowerSgd::orthonormalise_factors(std::size_t m, std::size_t length, const float* from, float* to,
                                      const Place& place, const Replacement& replacement) {
    const std::size_t rank = layout_.matrices()[m].rank;
    double* const vectors = vectors_.data() + first_vector_[m];
    for (std::size_t k = 0; k < rank; ++k) {
        for (std::size_t i = 0; i < length; ++i) vectors[k * length + i] = from[place(k, i)];
    }
    orthonormalise(vectors, rank, length, replacement);
    for (std::size_t k = 0; k < rank; ++k) {
        for (std::size_t i = 0; i < length; ++i) to[place(k, i)] = static_cast<float>(vectors[k * length + i]);
    }
}

/// Some columns of some rows, of the matrix that they are part of.
struct PowerSgd::Window {
    std::size_t row;
    std::size_t row_count;
    std::size_t column;
    std::size_t columns;
    std::array<RowPart, kRowsAtOnce> rows;
    float (*widened)[kStripColumns]; ///< the rows' values, where the buffer's are of 16 bits
};

/// Calls body(window) for all of a part.
template <typename Body>
void PowerSgd::for_each_window(const Part& part, const Body& body) const {
    const Matrix& matrix = layout_.matrices()[part.matrix];
    alignas(64) float widened[kRowsAtOnce][kStripColumns];
    for (std::size_t row = part.first; row < part.end; row += kRowsAtOnce) {
        for (std::size_t column = 0; column < matrix.columns; column += kStripColumns) {
            Window window = {.row = row,
                             .row_count = std::min(kRowsAtOnce, part.end - row),
                             .column = column,
                             .columns = std::min(kStripColumns, matrix.columns - column),
                             .rows = {},
                             .widened = widened};
            for (std::size_t r = 0; r < window.row_count; ++r) {
                const std::size_t first = element_of(matrix, row + r, column);
                const void* const values = elements_.at(operands_.input, first);
                if (is_narrow()) elements_.widen(values, window.columns, Stores::kCached, widened[r]);
                window.rows[r] = {is_narrow() ? widened[r] : static_cast<const float*>(values), error_.floats(first)};
            }
            body(window);
        }
    }
}

bool PowerSgd::project(const Part& part) {
    const Matrix& matrix = layout_.matrices()[part.matrix];
    if (matrix.is_exact()) {
        elements_.widen(elements_.at(operands_.input, matrix.begin + part.first), part.end - part.first,
                        Stores::kCached, left_.data() + matrix.left + part.first);
        return true;
    }
    std::fill_n(left_of(matrix, part.first), (part.end - part.first) * matrix.rank, 0.0F);
    const float limit = limit_of(matrix);
    bool fits = true;
    for_each_window(part, [&](const Window& window) {
        const float largest = kernels_.project(window.rows.data(), window.row_count, window.columns,
                                               right_.data() + matrix.right + window.column * matrix.rank, matrix.rank,
                                               left_of(matrix, window.row));
        fits = fits && largest <= limit; // false for a NaN
    });
    return fits;
}

void PowerSgd::project_back(const Part& part) {
    const Matrix& matrix = layout_.matrices()[part.matrix];
    if (matrix.is_exact()) return;
    float* const sums = part.first == 0 ? right_.data() + matrix.right : partial_.data() + part.sums;
    std::fill_n(sums, matrix.right_count(), 0.0F);
    for_each_window(part, [&](const Window& window) {
        kernels_.add_rows(window.rows.data(), window.row_count, window.columns, left_of(matrix, window.row),
                          matrix.rank, sums + window.column * matrix.rank);
    });
}

/// In the order of the parts.
void PowerSgd::add_up_parts(std::size_t m, const Matrix& matrix) {
    float* const to = right_.data() + matrix.right;
    for (std::size_t p = first_part_[m] + 1; p < first_part_[m + 1]; ++p) {
        const float* const from = partial_.data() + parts_[p].sums;
        for (std::size_t i = 0; i < matrix.right_count(); ++i) to[i] += from[i];
    }
}

std::size_t PowerSgd::expand(const Part& part) {
    const Matrix& matrix = layout_.matrices()[part.matrix];
    std::size_t nonfinite = kNone;
    for_each_window(part, [&](const Window& window) {
        std::array<ExpandedRow, kRowsAtOnce> to;
        for (std::size_t r = 0; r < window.row_count; ++r) {
            const std::size_t first = element_of(matrix, window.row + r, window.column);
            void* const output = elements_.at(operands_.output, first);
            to[r] = {is_narrow() ? window.widened[r] : static_cast<float*>(output), error_.floats(first)};
        }
        const std::size_t right = matrix.right + window.column * matrix.rank;
        kernels_.expand(window.rows.data(), window.row_count, window.columns, left_of(matrix, window.row), matrix.rank,
                        right_.data() + right, mean_.data() + right, times_, to.data());
        for (std::size_t r = 0; r < window.row_count; ++r) {
            const std::size_t first = element_of(matrix, window.row + r, window.column);
            void* const output = elements_.at(operands_.output, first);
            const bool finite = is_narrow() ? elements_.narrow(to[r].results, window.columns, output)
                                            : elements_.all_finite(output, window.columns);
            if (!finite && nonfinite == kNone)
                nonfinite = first + HostSearch(elements_).first_nonfinite(output, window.columns);
        }
    });
    return nonfinite;
}

std::size_t PowerSgd::expand_exact(const Part& part) {
    const Matrix& matrix = layout_.matrices()[part.matrix];
    std::size_t nonfinite = kNone;
    alignas(64) float scaled[kStripColumns];
    for (std::size_t i = part.first; i < part.end; i += kStripColumns) {
        const std::size_t count = std::min(kStripColumns, part.end - i);
        const float* const mean = left_.data() + matrix.left + i;
        void* const output = elements_.at(operands_.output, matrix.begin + i);
        std::transform(mean, mean + count, scaled, [&](float value) { return value * times_; });
        const bool finite = elements_.narrow(scaled, count, output);
        if (!finite && nonfinite == kNone)
            nonfinite = matrix.begin + i + HostSearch(elements_).first_nonfinite(output, count);
    }
    return nonfinite;
}

} // namespace onebit
