// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onebit::simulation {

/// Times of a rank's core in nanoseconds of simulated time, for one element unless something else is said. Given on the
/// command line.
struct Rates {
    double check = 0;
    double encode = 0;
    double node = 0;            ///< besides encode, on two levels: to average the ranks of a node
    double average = 0;         ///< and to encode the average, of an element of the own chunk,
    double average_message = 0; ///< and for each rank's message of it
    double decode = 0;
    double poll = 1000; ///< between two looks of a rank that waits
};

/// This rank's rates.
Rates& rates();

} // namespace onebit::simulation
