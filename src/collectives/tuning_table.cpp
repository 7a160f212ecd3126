// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/tuning_table.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/config.hpp"

namespace onebit {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "onebit tuning table";
constexpr int kVersion = 1;

/// What is wrong with a table, for parse_tuning_table to put the file's name before.
struct Flaw {
    std::string text;
};

template <typename Value>
Value member(const Json& object, const char* name) {
    try {
        return object.at(name).get<Value>();
    } catch (const Json::exception&) {
        throw Flaw{std::string("\"") + name + "\" is missing or of another type"};
    }
}

std::size_t positive(const Json& object, const char* name) {
    const auto value = member<std::int64_t>(object, name);
    if (!object[name].is_number_integer()) throw Flaw{std::string("\"") + name + "\" is not a whole number"};
    if (value < 1) throw Flaw{std::string("\"") + name + "\" is " + std::to_string(value)};
    return static_cast<std::size_t>(value);
}

Costs::Row parse_row(const Json& json, const std::vector<onebit_algorithm_t>& forms) {
    Costs::Row row;
    row.count = positive(json, "count");
    for (const onebit_algorithm_t form : forms) {
        const auto time = member<double>(json, algorithm_name(form));
        if (!(time > 0) || !std::isfinite(time)) {
            throw Flaw{std::string("\"") + algorithm_name(form) + "\" of " + std::to_string(row.count) +
                       " elements is not a time"};
        }
        row.microseconds[form] = time;
    }
    return row;
}

/// The forms of the first row are those of the table.
std::vector<onebit_algorithm_t> forms_of(const Json& rows) {
    std::vector<onebit_algorithm_t> forms;
    for (const onebit_algorithm_t form : kChosenForms) {
        if (form == ONEBIT_ALGORITHM_DENSE || rows.front().contains(algorithm_name(form))) forms.push_back(form);
    }
    return forms;
}

TuningTable parse(const std::string& text) {
    Json json;
    try {
        json = Json::parse(text);
    } catch (const Json::exception& error) {
        throw Flaw{std::string("not JSON: ") + error.what()};
    }
    if (!json.is_object() || !json.contains("format") || json["format"] != kFormat) {
        throw Flaw{std::string("not a table: \"format\" is not \"") + kFormat + "\""};
    }
    if (const int version = member<int>(json, "version"); version != kVersion) {
        throw Flaw{"of version " + std::to_string(version) + ", not " + std::to_string(kVersion) +
                   ": make it anew with onebit_tune"};
    }
    TuningTable table;
    table.ranks = positive(json, "ranks");
    table.nodes = positive(json, "nodes");
    const Json& rows = json["rows"]; // no copy: that of a list in a list in a list takes a stack as deep
    if (!rows.is_array() || rows.empty()) throw Flaw{"\"rows\" is empty or not a list"};
    std::vector<Costs::Row> parsed;
    for (const Json& row : rows) {
        parsed.push_back(parse_row(row, forms_of(rows)));
        if (parsed.size() > 1 && parsed.back().count <= parsed[parsed.size() - 2].count) {
            throw Flaw{"\"count\" does not grow from row to row: " + std::to_string(parsed.back().count)};
        }
    }
    table.costs = Costs(std::move(parsed));
    return table;
}

} // namespace

std::string TuningTable::objection(const NodeGroups& groups) const {
    if (ranks == groups.node_of_rank.size() && nodes == groups.nodes) return "";
    return "the tuning table is for " + std::to_string(ranks) + " ranks on " + std::to_string(nodes) +
           (nodes == 1 ? " node" : " nodes");
}

Status parse_tuning_table(const std::string& text, const std::string& name, TuningTable* table) {
    try {
        *table = parse(text);
    } catch (const Flaw& flaw) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "tuning table %s: %s", name.c_str(), flaw.text.c_str());
    }
    return {};
}

/// A row a line, for people look at it.
std::string print_tuning_table(const TuningTable& table) {
    const Json head = {{"format", kFormat}, {"version", kVersion}, {"ranks", table.ranks}, {"nodes", table.nodes}};
    std::string text = head.dump();
    text.back() = ',';
    text += "\n \"rows\": [";
    const char* separator = "\n";
    for (const Costs::Row& row : table.costs.rows()) {
        Json json = {{"count", row.count}};
        for (const onebit_algorithm_t form : kChosenForms) {
            const double time = row.microseconds[form];
            if (time != Costs::kNever) json[algorithm_name(form)] = std::max(std::round(time * 100), 1.0) / 100;
        }
        text += separator + ("  " + json.dump());
        separator = ",\n";
    }
    return text + "\n]}\n";
}

} // namespace onebit
