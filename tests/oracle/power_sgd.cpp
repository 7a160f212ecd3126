// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "oracle/power_sgd.hpp"

#include <cmath>

namespace oracle {
namespace {

using Column = std::vector<double>;
using Columns = std::vector<Column>; // of a matrix, each contiguous

std::uint32_t mix(std::uint32_t x) {
    x = (x ^ x >> 16) * 2246822507u;
    x = (x ^ x >> 13) * 3266489909u;
    return x ^ x >> 16;
}

double product(const Column& a, const Column& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// Makes column `k` orthogonal to the columns before it. Returns whether more than rounding is left of column `k`. If
// so, its length is 1, otherwise it is zero.
bool straighten(Columns& columns, std::size_t k) {
    Column& column = columns[k];
    const double before = std::sqrt(product(column, column));
    for (int turn = 0; turn < 2; ++turn) {
        for (std::size_t j = 0; j < k; ++j) {
            const double share = product(columns[j], column);
            for (std::size_t i = 0; i < column.size(); ++i) column[i] -= share * columns[j][i];
        }
    }
    const double after = std::sqrt(product(column, column));
    const bool is_left = after > before * 0x1p-18;
    for (double& x : column) x = is_left ? x / after : 0;
    return is_left;
}

} // namespace

PowerSgd::PowerSgd(std::vector<MatrixShape> shapes, std::size_t rank, std::size_t ranks, bool sums)
    : shapes_(std::move(shapes)), rank_(rank), factor_(sums ? static_cast<double>(ranks) : 1) {
    std::size_t elements = 0;
    for (std::size_t m = 0; m < shapes_.size(); ++m) {
        elements += shapes_[m].rows * shapes_[m].columns;
        if (!has_factors(shapes_[m])) continue;
        for (std::size_t i = 0; i < rank_ * shapes_[m].columns; ++i) right.push_back(drawn(0, m, i));
    }
    errors.assign(ranks, std::vector<double>(elements, 0.0));
}

double PowerSgd::drawn(std::uint64_t call, std::size_t matrix, std::size_t i) {
    const std::uint32_t golden = 2654435769u;
    const std::uint32_t seed = mix(mix(static_cast<std::uint32_t>(call) + golden) + static_cast<std::uint32_t>(matrix));
    const std::uint32_t bits = mix(seed + (static_cast<std::uint32_t>(i) + 1) * golden);
    const double whole = bits < 2147483648u ? bits : bits - 4294967296.0;
    return static_cast<double>(static_cast<float>(whole)) / 2147483648.0;
}

std::size_t PowerSgd::left_count() const {
    std::size_t count = 1; // whether anything is too large
    for (const MatrixShape& shape : shapes_) {
        count += has_factors(shape) ? rank_ * shape.rows : shape.rows * shape.columns;
    }
    return count;
}

std::size_t PowerSgd::right_count() const {
    return right.size();
}

void PowerSgd::step(const std::vector<std::vector<double>>& inputs, std::uint64_t number) {
    const std::size_t ranks = inputs.size();
    const double share = 1.0 / static_cast<double>(ranks);
    result.assign(inputs[0].size(), 0.0);
    std::size_t begin = 0, at = 0;
    for (std::size_t m = 0; m < shapes_.size(); ++m) {
        const auto [rows, columns] = shapes_[m];
        if (!has_factors(shapes_[m])) {
            for (std::size_t i = begin; i < begin + rows * columns; ++i) {
                for (const auto& input : inputs) result[i] += factor_ * share * input[i];
            }
            begin += rows * columns;
            continue;
        }
        const auto value = [&](std::size_t r, std::size_t i, std::size_t j) {
            const std::size_t place = begin + i * columns + j;
            return inputs[r][place] + errors[r][place];
        };
        // Right factors lie in tiles of 16 columns, the last one of what is left: in each those of direction 0 first.
        const std::size_t wide = columns;
        const auto place_of = [&](std::size_t k, std::size_t column) {
            const std::size_t tile = column / 16 * 16;
            return at + tile * rank_ + k * (wide - tile < 16 ? wide - tile : 16) + column - tile;
        };
        Columns directions;
        for (std::size_t k = 0; k < rank_; ++k) {
            directions.emplace_back(columns);
            for (std::size_t j = 0; j < columns; ++j) directions[k][j] = right[place_of(k, j)];
            if (straighten(directions, k)) continue;
            for (std::size_t j = 0; j < columns; ++j) directions[k][j] = drawn(number, m, place_of(k, j) - at);
            straighten(directions, k);
        }
        Columns left(rank_, Column(rows, 0.0));
        for (std::size_t k = 0; k < rank_; ++k) {
            for (std::size_t i = 0; i < rows; ++i) {
                for (std::size_t r = 0; r < ranks; ++r) {
                    for (std::size_t j = 0; j < columns; ++j) left[k][i] += share * value(r, i, j) * directions[k][j];
                }
            }
            straighten(left, k);
        }
        std::vector<Columns> own(ranks, Columns(rank_, Column(columns, 0.0))); // by rank
        for (std::size_t k = 0; k < rank_; ++k) {
            for (std::size_t j = 0; j < columns; ++j) {
                double mean = 0;
                for (std::size_t r = 0; r < ranks; ++r) {
                    for (std::size_t i = 0; i < rows; ++i) own[r][k][j] += value(r, i, j) * left[k][i];
                    mean += share * own[r][k][j];
                }
                right[place_of(k, j)] = mean;
            }
        }
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t j = 0; j < columns; ++j) {
                const std::size_t place = begin + i * columns + j;
                for (std::size_t k = 0; k < rank_; ++k) result[place] += factor_ * left[k][i] * right[place_of(k, j)];
                for (std::size_t r = 0; r < ranks; ++r) {
                    double error = value(r, i, j);
                    for (std::size_t k = 0; k < rank_; ++k) error -= left[k][i] * own[r][k][j];
                    errors[r][place] = error;
                }
            }
        }
        begin += rows * columns;
        at += rank_ * columns;
    }
}

} // namespace oracle
