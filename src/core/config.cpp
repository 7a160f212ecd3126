// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/config.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

namespace onebit {
namespace {

struct Variable {
    const char* name;
    bool of_creation; ///< done when a communicator is created, and not undone
};

constexpr Variable kVariables[] = {
    {"ONEBIT_ALGORITHM", false}, {"ONEBIT_PIECE", false},         {"ONEBIT_SECOND_ERROR", false},
    {"ONEBIT_NODE_SIZE", true},  {"ONEBIT_GPU_PATH", false},      {"ONEBIT_GPU_TRANSPORT", true},
    {"ONEBIT_RADIX", false},     {"ONEBIT_TUNING", false},        {"ONEBIT_MEASURE", false},
    {"ONEBIT_KERNELS", false},   {"ONEBIT_DETERMINISTIC", false}, {"ONEBIT_THREADS", false},
    {"ONEBIT_TIMEOUT", false},   {"ONEBIT_INTERFACE", true},      {"ONEBIT_TCP_ONLY", true},
    {"ONEBIT_LOG", false},       {"NCCL_HOSTID", true},
};

using Texts = Environment::Texts;

/// "" where the variable is not set.
std::string text_of(const Texts& texts, const char* name) {
    const auto found = texts.find(name);
    return found == texts.end() ? "" : found->second;
}

/// Parses a number in [least, most]; leaves *number alone where the text is empty. Needs no memory.
template <typename Number>
Status parse_number(const char* name, std::string_view text, Number least, Number most, Number* number) {
    if (text.empty()) return {};
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    // Written so that a NaN fails too.
    if (error != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most)) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "environment: %s=%.*s is not a number from %g to %g", name,
                             static_cast<int>(text.size()), text.data(), static_cast<double>(least),
                             static_cast<double>(most));
    }
    *number = value;
    return {};
}

/// The same of a variable.
template <typename Number>
Status read_number(const Texts& texts, const char* name, Number least, Number most, Number* number) {
    return parse_number(name, text_of(texts, name), least, most, number);
}

Status parse_timeout(std::string_view text, double* timeout) {
    return parse_number("ONEBIT_TIMEOUT", text, 0.0, 1e9, timeout);
}

/// Names by onebit_algorithm_t, GpuPath and GpuTransport.
constexpr std::array<const char*, kAlgorithms> kAlgorithmNames = {"auto",      "dense", "flat", "pipelined",
                                                                  "two_level", "bruck", "ring", "levels"};
/// The algorithms that the environment may ask for.
constexpr auto kForcedNames = [] {
    std::array<const char*, ONEBIT_ALGORITHM_LEVELS> names{};
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = kAlgorithmNames[i];
    return names;
}();
constexpr std::array kGpuPathNames = {"auto", "staged", "direct"};
constexpr std::array kGpuTransportNames = {"auto", "nccl", "nccl_in_node", "base"};

/// Reads a value by its name, from number `first` on; leaves *value alone where the variable is not set.
template <std::size_t kNames, typename Value>
Status read_name(const Texts& texts, const char* name, const std::array<const char*, kNames>& names, std::size_t first,
                 Value* value) {
    const std::string text = text_of(texts, name);
    if (text.empty()) return {};
    std::string known;
    for (std::size_t v = first; v < kNames; ++v) {
        if (text == names[v]) {
            *value = static_cast<Value>(v);
            return {};
        }
        known += v == first ? "" : v + 1 < kNames ? ", " : " or ";
        known += names[v];
    }
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "environment: %s=%s is not %s", name, text.c_str(),
                         known.c_str());
}

/// Sets it from its texts.
Status parse(Environment* environment) {
    const Texts& texts = environment->texts;
    environment->kernels = text_of(texts, "ONEBIT_KERNELS");
    environment->tuning = text_of(texts, "ONEBIT_TUNING");
    environment->interface = text_of(texts, "ONEBIT_INTERFACE");
    environment->nccl_host = text_of(texts, "NCCL_HOSTID");
    ONEBIT_RETURN_IF_ERROR(
        read_name(texts, "ONEBIT_ALGORITHM", kForcedNames, ONEBIT_ALGORITHM_DENSE, &environment->algorithm));
    ONEBIT_RETURN_IF_ERROR(read_name(texts, "ONEBIT_GPU_PATH", kGpuPathNames, 1, &environment->gpu_path));
    ONEBIT_RETURN_IF_ERROR(
        read_name(texts, "ONEBIT_GPU_TRANSPORT", kGpuTransportNames, 0, &environment->gpu_transport));
    unsigned log = 0;
    unsigned measure = 1;
    unsigned deterministic = 0;
    unsigned tcp_only = 0;
    ONEBIT_RETURN_IF_ERROR(
        read_number(texts, "ONEBIT_PIECE", std::uint64_t{1}, std::uint64_t{1} << 40, &environment->piece));
    ONEBIT_RETURN_IF_ERROR(
        read_number(texts, "ONEBIT_SECOND_ERROR", std::uint64_t{1}, UINT64_MAX, &environment->second_error));
    ONEBIT_RETURN_IF_ERROR(read_number(texts, "ONEBIT_NODE_SIZE", 1U, 1U << 20, &environment->node_size));
    ONEBIT_RETURN_IF_ERROR(read_number(texts, "ONEBIT_RADIX", 2U, 1U << 20, &environment->radix));
    ONEBIT_RETURN_IF_ERROR(read_number(texts, "ONEBIT_THREADS", 1U, 1024U, &environment->threads));
    ONEBIT_RETURN_IF_ERROR(parse_timeout(text_of(texts, "ONEBIT_TIMEOUT"), &environment->timeout));
    ONEBIT_RETURN_IF_ERROR(read_number(texts, "ONEBIT_LOG", 0U, 1U, &log));
    ONEBIT_RETURN_IF_ERROR(read_number(texts, "ONEBIT_MEASURE", 0U, 1U, &measure));
    ONEBIT_RETURN_IF_ERROR(read_number(texts, "ONEBIT_DETERMINISTIC", 0U, 1U, &deterministic));
    ONEBIT_RETURN_IF_ERROR(read_number(texts, "ONEBIT_TCP_ONLY", 0U, 1U, &tcp_only));
    environment->log = log > 0;
    environment->tcp_only = tcp_only > 0;
    environment->deterministic = deterministic > 0;
    environment->measure = measure > 0 && !environment->deterministic;
    return {};
}

} // namespace

const char* gpu_transport_name(GpuTransport transport) {
    return kGpuTransportNames[static_cast<std::size_t>(transport)];
}

const char* algorithm_name(onebit_algorithm_t algorithm) {
    const auto index = static_cast<std::size_t>(algorithm);
    return index < kAlgorithmNames.size() ? kAlgorithmNames[index] : "unknown";
}

Status read_environment(Environment* environment) {
    for (const Variable& variable : kVariables) {
        if (const char* const text = std::getenv(variable.name)) environment->texts[variable.name] = text;
    }
    return parse(environment);
}

Status change_environment(const char* name, const char* text, Environment* environment) {
    if (name == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "name is NULL");
    if (text == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "value is NULL");
    const auto found = std::find_if(std::begin(kVariables), std::end(kVariables),
                                    [&](const Variable& variable) { return std::strcmp(variable.name, name) == 0; });
    if (found == std::end(kVariables)) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "name: %.64s is no variable that onebit knows", name);
    }
    if (found->of_creation) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "name: %s counts when a communicator is created, and not later",
                             name);
    }
    Environment changed;
    changed.texts = environment->texts;
    changed.texts[name] = text;
    ONEBIT_RETURN_IF_ERROR(parse(&changed));
    // A value that a program gave at creation replaces the variable.
    if (std::strcmp(name, "ONEBIT_TIMEOUT") != 0) changed.timeout = environment->timeout;
    *environment = std::move(changed);
    return {};
}

double timeout_of_environment() {
    double timeout = Environment().timeout;
    const char* const text = std::getenv("ONEBIT_TIMEOUT");
    if (text != nullptr) (void)parse_timeout(text, &timeout);
    return timeout;
}

} // namespace onebit
