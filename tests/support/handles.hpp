// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// What the collective tests share: handles that destroy themselves, buffers with guards around them, snapshots of the
// error state. Public C API only.
#pragma once

#include <onebit/onebit.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "oracle/oracle.hpp"
#include "support/data.hpp"
#include "support/half.hpp"
#include "support/ranks.hpp"

namespace onebit_test {

struct Mode {
    onebit_scale_t scale;
    onebit_group_t group;
    onebit_codec_t codec = ONEBIT_CODEC_SIGN;
    oracle::Scale oracle_scale() const { return scale == ONEBIT_SCALE_L2 ? oracle::Scale::l2 : oracle::Scale::l1; }
    oracle::Group oracle_group() const {
        return group == ONEBIT_GROUP_BLOCK ? oracle::Group::block : oracle::Group::tensor;
    }
    std::string name() const {
        if (codec != ONEBIT_CODEC_SIGN) return "codec " + std::to_string(codec);
        return std::string(scale == ONEBIT_SCALE_L2 ? "L2" : "L1") +
               (group == ONEBIT_GROUP_BLOCK ? " block" : " tensor");
    }
};

inline const std::vector<Mode>& all_modes() {
    static const std::vector<Mode> modes = {{ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK},
                                            {ONEBIT_SCALE_L2, ONEBIT_GROUP_BUFFER},
                                            {ONEBIT_SCALE_L1, ONEBIT_GROUP_BLOCK},
                                            {ONEBIT_SCALE_L1, ONEBIT_GROUP_BUFFER}};
    return modes;
}
inline Mode default_mode() {
    return {ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK};
}

// The modes of the sign code above, and one mode of each other codec in the library. Where calls are slow, only the
// last of the modes with the same group and equal memory: their messages are equally long, and only their computation
// differs.
inline const std::vector<Mode>& every_mode() {
    static const std::vector<Mode> modes = [] {
        std::vector<Mode> all;
        std::map<std::pair<onebit_group_t, std::uint64_t>, std::size_t> layouts; // where in `all` each is
        onebit_comm_t comm = nullptr;
        onebit_comm_create_loopback(1, &comm);
        onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(20000);
        config.algorithm = ONEBIT_ALGORITHM_FLAT;
        const auto add = [&](const Mode& mode) {
            std::tie(config.scale, config.group, config.codec) = std::tie(mode.scale, mode.group, mode.codec);
            onebit_allreduce_t reduce = nullptr;
            const onebit_status_t status = onebit_allreduce_create(comm, &config, &reduce);
            if (status == ONEBIT_ERROR_INVALID_ARGUMENT) return false; // no such codec
            if (status != ONEBIT_SUCCESS) throw std::runtime_error(onebit_last_error());
            onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
            onebit_allreduce_get_info(reduce, &info);
            onebit_allreduce_destroy(reduce);
            const auto [layout, is_new] = layouts.insert({{mode.group, info.workspace_bytes}, all.size()});
            if (is_new || calls_are_quick()) {
                all.push_back(mode);
            } else {
                all[layout->second] = mode;
            }
            return true;
        };
        for (const Mode& mode : all_modes()) add(mode);
        Mode coded = all_modes().front();
        do {
            coded.codec = static_cast<onebit_codec_t>(coded.codec + 1);
        } while (add(coded));
        onebit_comm_destroy(comm);
        return all;
    }();
    return modes;
}

// For the form LEVELS: one level of the nodes, with 8 bits inside.
inline onebit_allreduce_config_t form_config(onebit_algorithm_t form, std::uint64_t count, Mode mode = default_mode()) {
    static const onebit_level_t nodes = [] {
        onebit_level_t level = ONEBIT_LEVEL_INIT(ONEBIT_LEVEL_NODE);
        level.compressed = 1;
        level.codec = ONEBIT_CODEC_INT8;
        return level;
    }();
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
    if (form == ONEBIT_ALGORITHM_LEVELS) {
        config.levels = &nodes;
        config.num_levels = 1;
    }
    config.algorithm = form;
    config.scale = mode.scale;
    config.group = mode.group;
    config.codec = mode.codec;
    return config;
}
inline onebit_allreduce_config_t flat_config(std::uint64_t count, Mode mode = default_mode()) {
    return form_config(ONEBIT_ALGORITHM_FLAT, count, mode);
}

// Equal up to the rounding of a sum of a few numbers of about 1.
inline bool nearly_same(const std::vector<float>& a, const std::vector<float>& b) {
    bool near = a.size() == b.size();
    for (std::size_t i = 0; near && i < a.size(); ++i) near = std::fabs(a[i] - b[i]) <= 1e-6F;
    return near;
}

// Empty if the bits are the same.
inline std::string difference(const std::vector<float>& actual, const std::vector<float>& expected) {
    if (actual.size() != expected.size()) return std::to_string(actual.size()) + " elements";
    std::ostringstream text;
    text.precision(9);
    for (std::size_t i = 0; i < actual.size() && text.str().empty(); ++i) {
        if (bits_of(actual[i]) != bits_of(expected[i]))
            text << "element " << i << " is " << actual[i] << ", not " << expected[i];
    }
    return text.str();
}

// Input, less output and remaining error, over `steps` steps.
inline void expect_balanced(RankLog& log, const std::vector<double>& balance, int steps, double largest) {
    double lost = 0;
    for (const double b : balance) lost = std::max(lost, std::fabs(b));
    // About ten roundings of 2^-24 in a step, of values that can be a few times the largest one seen at the end.
    log.expect(lost <= steps * 3e-7 * largest, "lost " + std::to_string(lost) + " of " + std::to_string(largest),
               __FILE__, __LINE__);
}

inline void expect_bits(RankLog& log, const char* what, const std::vector<float>& actual,
                        const std::vector<float>& expected) {
    if (same_bits(actual, expected)) return;
    log.expect(false, std::string(what) + ": " + difference(actual, expected), __FILE__, __LINE__);
}

// `count` floats between guards that must stay unchanged; begins on 64 bytes, or 4 bytes past that.
class Buffer {
  public:
    explicit Buffer(std::size_t count, bool misaligned = false)
        : storage_(count + 2 * guard_ + 16, guard_value_), count_(count) {
        const std::size_t address = reinterpret_cast<std::uintptr_t>(storage_.data()) / sizeof(float);
        offset_ = guard_ + (16 - (address + guard_) % 16) % 16 + (misaligned ? 1 : 0);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    float* data() { return storage_.data() + offset_; }
    void set(const std::vector<float>& values) { std::copy_n(values.begin(), count_, data()); }
    std::vector<float> get() { return {data(), data() + count_}; }
    bool guards_intact() const {
        for (std::size_t i = 0; i < storage_.size(); ++i)
            if ((i < offset_ || i >= offset_ + count_) && storage_[i] != guard_value_) return false;
        return true;
    }

  private:
    static constexpr std::size_t guard_ = 32;
    static constexpr float guard_value_ = -12345.5f;
    std::vector<float> storage_;
    std::size_t count_, offset_ = 0;
};

struct Errors {
    std::vector<float> worker, server;
    std::uint64_t begin = 0;
    bool same_as(const Errors& other) const {
        return same_bits(worker, other.worker) && same_bits(server, other.server) && begin == other.begin;
    }
};

// An allreduce handle; creation and destruction are collective.
class Allreduce {
  public:
    Allreduce(onebit_comm_t comm, const onebit_allreduce_config_t& config, RankLog& log)
        : log_(log), count_(config.count) {
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_create(comm, &config, &handle_));
    }
    // A handle whose creation may fail: get() is NULL then.
    Allreduce(onebit_comm_t comm, const onebit_allreduce_config_t& config, RankLog& log, onebit_status_t* made)
        : log_(log), count_(config.count) {
        *made = onebit_allreduce_create(comm, &config, &handle_);
    }
    ~Allreduce() { ONEBIT_EXPECT_OK(log_, onebit_allreduce_destroy(handle_)); }
    Allreduce(const Allreduce&) = delete;
    Allreduce& operator=(const Allreduce&) = delete;

    onebit_allreduce_t get() const { return handle_; }

    std::vector<float> run(const std::vector<float>& input) {
        std::vector<float> output(input.size(), NAN);
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_run(handle_, input.data(), output.data()));
        return output;
    }
    // This rank's share of `steps` calls on Gaussian data, which give the error state substance.
    std::vector<float> run_steps(std::uint64_t seed, std::uint64_t first, std::uint64_t steps) {
        std::vector<float> output;
        for (std::uint64_t t = first; t < first + steps; ++t)
            output = run(make_data(Kind::gaussian, count_, seed, log_.rank(), t));
        return output;
    }
    Errors errors() {
        Errors errors;
        std::uint64_t server_count = 0;
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_get_error(handle_, nullptr, nullptr, &errors.begin, &server_count));
        errors.worker.assign(count_, NAN);
        errors.server.assign(server_count, NAN);
        ONEBIT_EXPECT_OK(
            log_, onebit_allreduce_get_error(handle_, errors.worker.data(), errors.server.data(), nullptr, nullptr));
        return errors;
    }
    onebit_allreduce_info_t info() {
        onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_get_info(handle_, &info));
        return info;
    }
    Bytes packed() {
        std::uint64_t bytes = 0;
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_state_size(handle_, &bytes));
        Bytes state(bytes);
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_pack_state(handle_, state.data(), bytes));
        return state;
    }

  private:
    RankLog& log_;
    std::uint64_t count_;
    onebit_allreduce_t handle_ = nullptr;
};

} // namespace onebit_test
