// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Instruction sets compared with the kernel's list of the processor's features.

#include "core/instruction_sets.hpp"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch2.hpp"

namespace onebit {
namespace {

/// The words of the first line of /proc/cpuinfo that lists features.
std::set<std::string> features() {
    std::ifstream file("/proc/cpuinfo");
    std::set<std::string> words;
    for (std::string line; words.empty() && std::getline(file, line);) {
        if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
        std::istringstream text(line.substr(line.find(':') + 1));
        for (std::string word; text >> word;) words.insert(word);
    }
    return words;
}

TEST_CASE("an instruction set is there where the kernel lists all of its features", "[cpu]") {
    const std::set<std::string> has = features();
    REQUIRE_FALSE(has.empty());
    const auto all = [&](const std::vector<std::string>& needed) {
        return std::all_of(needed.begin(), needed.end(), [&](const std::string& name) { return has.count(name) > 0; });
    };
    const bool sse4 = all({"sse4_2", "aes", "pclmulqdq"});
    const bool avx2 = sse4 && all({"avx2", "fma", "f16c", "bmi1", "bmi2", "abm"});
    const bool avx512 = avx2 && all({"avx512f", "avx512vl", "avx512cd", "avx512dq", "avx512bw"});
    CHECK(machine_has(InstructionSet::kSse4) == sse4);
    CHECK(machine_has(InstructionSet::kAvx2) == avx2);
    CHECK(machine_has(InstructionSet::kAvx512) == avx512);
    CHECK(machine_has(InstructionSet::kNeon) == all({"asimd", "aes"}));
}

} // namespace
} // namespace onebit
