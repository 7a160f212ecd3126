// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Tuning tables: a table is accepted, and can be chosen by and written again, or it is BAD_STATE.
#include "collectives/communicator/tuning_table.hpp"

#include <optional>
#include <string>

#include "fuzz/fuzzing.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    onebit::TuningTable table;
    const onebit::Status status = onebit::parse_tuning_table(text, "table", &table);
    FUZZ_REQUIRE(status.ok() || status.code() == ONEBIT_ERROR_BAD_STATE);
    if (!status.ok()) return 0;
    for (const std::optional<onebit::Costs>& costs : table.costs) {
        for (std::uint64_t count = 1; costs && count != 0; count *= 16) {
            const onebit_algorithm_t form = costs->quickest(count, onebit::kChosenForms);
            FUZZ_REQUIRE(form > ONEBIT_ALGORITHM_AUTO && form <= ONEBIT_ALGORITHM_RING);
        }
    }
    onebit::TuningTable again;
    FUZZ_REQUIRE(onebit::parse_tuning_table(onebit::print_tuning_table(table), "table", &again).ok());
    FUZZ_REQUIRE(again.ranks == table.ranks && again.nodes == table.nodes);
    return 0;
}
