// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/costs.hpp"

#include <algorithm>

namespace onebit {

double Costs::microseconds(onebit_algorithm_t form, std::uint64_t count) const {
    const auto of = [form](const Row& row) { return row.microseconds[form]; };
    if (rows_.size() == 1 || count <= rows_.front().count) return of(rows_.front());
    // The row after, or the last row, whose line goes on from there.
    auto after =
        std::find_if(rows_.begin() + 1, rows_.end() - 1, [count](const Row& row) { return row.count >= count; });
    const Row& before = *(after - 1);
    if (of(before) == kNever) return kNever;
    const double way = static_cast<double>(count - before.count) / static_cast<double>(after->count - before.count);
    const double rise = of(*after) - of(before);
    return of(before) + way * (way > 1 ? std::max(rise, 0.0) : rise); // noise must not lead below zero
}

onebit_algorithm_t Costs::quickest(std::uint64_t count, std::span<const onebit_algorithm_t> forms) const {
    return *std::ranges::min_element(forms, {}, [&](onebit_algorithm_t form) { return microseconds(form, count); });
}

void KnownCosts::tune(Costs costs) {
    lasting_ = costs;
    tuned_ = true;
    set(std::move(costs), "tuned", UINT64_MAX);
}

void KnownCosts::set(Costs costs, std::string source, std::uint64_t known_to) {
    costs_ = std::move(costs);
    source_ = std::move(source);
    known_to_ = known_to;
}

void KnownCosts::keep_estimate(const std::string& why) {
    object(why);
    known_to_ = UINT64_MAX;
}

} // namespace onebit
