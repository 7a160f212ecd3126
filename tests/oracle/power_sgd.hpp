// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The reference for allreduces by low-rank approximations: one call of all ranks, in double precision, as in
// docs/WIRE_FORMAT.md, "Factors of matrices". It includes no code of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace oracle {

struct MatrixShape {
    std::size_t rows, columns;
};

class PowerSgd {
  public:
    PowerSgd(std::vector<MatrixShape> shapes, std::size_t rank, std::size_t ranks, bool sums);

    // One call with inputs[rank][element]. `number`: the call's number.
    void step(const std::vector<std::vector<double>>& inputs, std::uint64_t number);

    // How many numbers the averaged factors have.
    std::size_t left_count() const;
    std::size_t right_count() const;
    // Number i that is drawn for a matrix's factors in a call.
    static double drawn(std::uint64_t call, std::size_t matrix, std::size_t i);

    // Tests may overwrite these.
    std::vector<std::vector<double>> errors; // [rank][element]
    std::vector<double> right;               // factors: the last call's

    std::vector<double> result; // of the last step

  private:
    bool has_factors(const MatrixShape& shape) const {
        return rank_ * (shape.rows + shape.columns) < shape.rows * shape.columns;
    }

    std::vector<MatrixShape> shapes_;
    std::size_t rank_;
    double factor_;
};

} // namespace oracle
