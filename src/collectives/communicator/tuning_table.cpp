// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/tuning_table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "compress/codec.hpp"
#include "core/config.hpp"
#include "core/file.hpp"

namespace onebit {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "onebit tuning table";
constexpr int kVersion = 1;

/// What is wrong with a table; parse_tuning_table puts the file's name before it.
struct Flaw {
    std::string text;
};

/// A value as a message shows it. Not what is in lists and objects: they may be deeper than any stack.
std::string brief(const Json& value) {
    return value.is_structured() ? std::string("a ") + value.type_name() : value.dump().substr(0, 40);
}

/// No table was ever measured beyond these limits, and sums of such numbers might overflow.
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
constexpr double kLongestTime = 1e15; // microseconds: 31 years

const Json& member(const Json& object, const char* name) {
    const auto found = object.is_object() ? object.find(name) : object.end();
    if (!object.is_object() || found == object.end()) throw Flaw{std::string("\"") + name + "\" is missing"};
    return *found;
}

/// Only JSON's own whole numbers that fit into 64 bits: 1.0, true and "1" are none.
std::int64_t whole(const Json& object, const char* name, std::int64_t most) {
    const Json& value = member(object, name);
    if (!value.is_number_integer()) throw Flaw{std::string("\"") + name + "\" is not a whole number: " + brief(value)};
    const bool too_large = value.is_number_unsigned() ? value.get<std::uint64_t>() > static_cast<std::uint64_t>(most)
                                                      : value.get<std::int64_t>() > most;
    if (too_large || value.get<std::int64_t>() < 1) throw Flaw{std::string("\"") + name + "\" is " + brief(value)};
    return value.get<std::int64_t>();
}

std::size_t positive(const Json& object, const char* name) {
    return static_cast<std::size_t>(whole(object, name, kMostElements));
}

Costs::Row parse_row(const Json& json, const std::vector<onebit_algorithm_t>& forms) {
    Costs::Row row;
    row.count = positive(json, "count");
    for (const onebit_algorithm_t form : forms) {
        const Json& value = member(json, algorithm_name(form));
        const double time = value.is_number() ? value.get<double>() : 0;
        if (!(time > 0) || time > kLongestTime) {
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

/// The costs in its list of this name.
Costs parse_costs(const Json& object, const char* name) {
    const Json& rows = member(object, name); // no copy: copying nested lists takes a stack as deep
    if (!rows.is_array() || rows.empty()) throw Flaw{std::string("\"") + name + "\" is empty or not a list"};
    std::vector<Costs::Row> parsed;
    for (const Json& row : rows) {
        parsed.push_back(parse_row(row, forms_of(rows)));
        if (parsed.size() > 1 && parsed.back().count <= parsed[parsed.size() - 2].count) {
            throw Flaw{"\"count\" does not grow from row to row: " + std::to_string(parsed.back().count)};
        }
    }
    return Costs(std::move(parsed));
}

/// All codecs except SIGN, whose rows have been separate since the first release.
void parse_codecs(const Json& codecs, TuningTable* table) {
    if (!codecs.is_object() || codecs.empty()) throw Flaw{"\"codecs\" is empty or not an object"};
    for (const auto& [name, rows] : codecs.items()) {
        std::size_t codec = ONEBIT_CODEC_SIGN + 1;
        while (codec < kCodecs && name != name_of(static_cast<onebit_codec_t>(codec))) ++codec;
        if (codec == kCodecs) throw Flaw{"\"codecs\" has " + brief(Json(name)) + ", which is none of them"};
        table->costs[codec] = parse_costs(codecs, name.c_str());
    }
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
    const Json& version = member(json, "version");
    if (!version.is_number_integer() || version != kVersion) { // 1.0 would be equal
        throw Flaw{"of version " + brief(version) + ", not " + std::to_string(kVersion) +
                   ": make it anew with onebit_tune"};
    }
    TuningTable table;
    table.ranks = positive(json, "ranks");
    table.nodes = positive(json, "nodes");
    const bool has_codecs = json.contains("codecs");
    if (json.contains("rows") || !has_codecs) table.costs[ONEBIT_CODEC_SIGN] = parse_costs(json, "rows");
    if (has_codecs) parse_codecs(json["codecs"], &table);
    return table;
}

/// A number as JSON has it, whatever the locale.
std::string printed(double number) {
    std::array<char, 32> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
    return {text.data(), end};
}

/// One row on each line: people look at it.
std::string printed(const Costs& costs) {
    std::string text = "[";
    const char* separator = "\n";
    for (const Costs::Row& row : costs.rows()) {
        text += separator + ("  {\"count\":" + std::to_string(row.count));
        for (const onebit_algorithm_t form : kChosenForms) {
            const double time = row.microseconds[form];
            if (time == Costs::kNever) continue;
            text += std::string(",\"") + algorithm_name(form) +
                    "\":" + printed(std::max(std::round(time * 100), 1.0) / 100);
        }
        text += "}";
        separator = ",\n";
    }
    return text + "\n ]";
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
        return Status::error(ONEBIT_ERROR_BAD_STATE, "tuning table %s: %s", shown(name).c_str(), flaw.text.c_str());
    }
    return {};
}

/// Printed by hand: a Json takes memory even to be destroyed, and there may be none.
std::string print_tuning_table(const TuningTable& table) {
    std::string text = std::string("{\"format\":\"") + kFormat + "\",\"version\":" + std::to_string(kVersion) +
                       ",\"ranks\":" + std::to_string(table.ranks) + ",\"nodes\":" + std::to_string(table.nodes);
    if (table.costs[ONEBIT_CODEC_SIGN]) text += ",\n \"rows\": " + printed(*table.costs[ONEBIT_CODEC_SIGN]);
    const char* separator = ",\n \"codecs\": {\n ";
    const char* end = "\n}\n";
    for (std::size_t codec = ONEBIT_CODEC_SIGN + 1; codec < kCodecs; ++codec) {
        if (!table.costs[codec]) continue;
        text += std::string(separator) + "\"" + name_of(static_cast<onebit_codec_t>(codec)) +
                "\": " + printed(*table.costs[codec]);
        separator = ",\n ";
        end = "}\n}\n";
    }
    return text + end;
}

} // namespace onebit
