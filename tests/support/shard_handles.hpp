// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// What the tests of the reduce-scatter and of the all-gather share: ways to cut a buffer, and handles that destroy
// themselves. A test that holds for both is written once, over their types:
//
//     TEMPLATE_TEST_CASE("...", "[shards]", ReduceScatter, AllGather) { Shards<TestType> shards(comm, config, log); }
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "oracle/shards.hpp"
#include "support/handles.hpp"

namespace onebit_test {

inline oracle::Coding coding_of(Mode mode) {
    return {static_cast<int>(mode.codec), mode.oracle_scale(), mode.oracle_group()};
}

// How many elements each rank's shard has.
struct Cut {
    std::string name;
    std::vector<std::uint64_t> counts;

    std::uint64_t total() const { return shards().back().end(); }
    std::vector<oracle::Range> shards() const { return oracle::shards_of(counts); }
    oracle::Range shard(int rank) const { return shards()[static_cast<std::size_t>(rank)]; }
};

inline std::vector<float> part_of(const std::vector<float>& whole, const oracle::Range& shard) {
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(shard.begin);
    return {begin, begin + static_cast<std::ptrdiff_t>(shard.count)};
}

inline Cut equal_cut(int ranks, std::uint64_t each) {
    return {"equal " + std::to_string(each), std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), each)};
}
// An allreduce's chunks.
inline Cut chunk_cut(int ranks, std::uint64_t count) {
    Cut cut{"chunks of " + std::to_string(count), {}};
    for (const oracle::Range& chunk : oracle::partition(count, ranks)) cut.counts.push_back(chunk.count);
    return cut;
}
// One rank has everything.
inline Cut single_cut(int ranks, std::uint64_t count, int owner) {
    Cut cut{"all of rank " + std::to_string(owner), std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), 0)};
    cut.counts[static_cast<std::size_t>(owner)] = count;
    return cut;
}
// Shards of several lengths, none of whole words.
inline Cut mixed_cut(int ranks) {
    constexpr std::uint64_t lengths[] = {4097, 33, 4095, 1, 31};
    Cut cut{"mixed", {}};
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) cut.counts.push_back(lengths[r % 5]);
    return cut;
}
// Every other shard is empty, the first among them.
inline Cut cut_with_zeros(int ranks) {
    Cut cut{"with zeros", {}};
    for (std::uint64_t r = 0; r < static_cast<std::uint64_t>(ranks); ++r) cut.counts.push_back(r % 2 * (776 + r));
    if (ranks == 1) cut.counts[0] = 777;
    return cut;
}

inline std::vector<Cut> odd_cuts(int ranks) {
    std::vector<Cut> cuts;
    for (const std::uint64_t each : {1U, 31U, 33U, 4095U, 4097U}) cuts.push_back(equal_cut(ranks, each));
    if (ranks == 1) return cuts;
    for (Cut cut : {mixed_cut(ranks), cut_with_zeros(ranks), single_cut(ranks, 4999, 0),
                    single_cut(ranks, 4999, ranks - 1), chunk_cut(ranks, 8229)})
        cuts.push_back(std::move(cut));
    return cuts;
}

// Compressed. The cut's numbers stay the caller's.
inline onebit_shard_config_t shard_config(const Cut& cut, Mode mode = default_mode(),
                                          onebit_algorithm_t algorithm = ONEBIT_ALGORITHM_PIPELINED) {
    onebit_shard_config_t config = ONEBIT_SHARD_CONFIG_INIT(cut.total());
    config.counts = cut.counts.data();
    config.algorithm = algorithm;
    config.scale = mode.scale;
    config.group = mode.group;
    config.codec = mode.codec;
    return config;
}
onebit_shard_config_t shard_config(const Cut&& cut, Mode mode = default_mode(),
                                   onebit_algorithm_t algorithm = ONEBIT_ALGORITHM_PIPELINED) = delete;

// The functions of either collective, by one name.
struct ReduceScatter {
    using Handle = onebit_reduce_scatter_t;
    using Reference = oracle::ReduceScatter;
    static constexpr bool gathers = false;
    static constexpr const char *name = "reduce-scatter", *argument = "reduce_scatter";
    static constexpr auto create = &onebit_reduce_scatter_create;
    static constexpr auto run = &onebit_reduce_scatter_run;
    static constexpr auto start = &onebit_reduce_scatter_start;
    static constexpr auto test = &onebit_reduce_scatter_test;
    static constexpr auto wait = &onebit_reduce_scatter_wait;
    static constexpr auto set_callback = &onebit_reduce_scatter_set_callback;
    static constexpr auto set_algorithm = &onebit_reduce_scatter_set_algorithm;
    static constexpr auto reset = &onebit_reduce_scatter_reset;
    static constexpr auto get_error = &onebit_reduce_scatter_get_error;
    static constexpr auto state_size = &onebit_reduce_scatter_state_size;
    static constexpr auto pack_state = &onebit_reduce_scatter_pack_state;
    static constexpr auto unpack_state = &onebit_reduce_scatter_unpack_state;
    static constexpr auto save = &onebit_reduce_scatter_save;
    static constexpr auto load = &onebit_reduce_scatter_load;
    static constexpr auto get_info = &onebit_reduce_scatter_get_info;
    static constexpr auto destroy = &onebit_reduce_scatter_destroy;
};

struct AllGather {
    using Handle = onebit_all_gather_t;
    using Reference = oracle::AllGather;
    static constexpr bool gathers = true;
    static constexpr const char *name = "all-gather", *argument = "all_gather";
    static constexpr auto create = &onebit_all_gather_create;
    static constexpr auto run = &onebit_all_gather_run;
    static constexpr auto start = &onebit_all_gather_start;
    static constexpr auto test = &onebit_all_gather_test;
    static constexpr auto wait = &onebit_all_gather_wait;
    static constexpr auto set_callback = &onebit_all_gather_set_callback;
    static constexpr auto set_algorithm = &onebit_all_gather_set_algorithm;
    static constexpr auto reset = &onebit_all_gather_reset;
    static constexpr auto get_error = &onebit_all_gather_get_error;
    static constexpr auto state_size = &onebit_all_gather_state_size;
    static constexpr auto pack_state = &onebit_all_gather_pack_state;
    static constexpr auto unpack_state = &onebit_all_gather_unpack_state;
    static constexpr auto save = &onebit_all_gather_save;
    static constexpr auto load = &onebit_all_gather_load;
    static constexpr auto get_info = &onebit_all_gather_get_info;
    static constexpr auto destroy = &onebit_all_gather_destroy;
};

template <class Collective>
using OtherHalf = std::conditional_t<Collective::gathers, ReduceScatter, AllGather>;

// How a call is made.
struct Way {
    bool in_place = false;
    bool misaligned = false; // the address, by four bytes
    bool started = false;    // start and wait, instead of run
};
inline std::vector<Way> all_ways() {
    std::vector<Way> ways;
    for (const bool started : {false, true})
        for (const bool misaligned : {false, true})
            for (const bool in_place : {false, true}) ways.push_back({in_place, misaligned, started});
    return ways;
}

// The result of a call. The message is onebit_last_error's.
struct Outcome {
    onebit_status_t status = ONEBIT_SUCCESS;
    std::vector<float> output;
    bool untouched = false; // the result's memory is unchanged
};

// A handle; creation and destruction are collective.
template <class Collective>
class Shards {
  public:
    Shards(onebit_comm_t comm, const onebit_shard_config_t& config, RankLog& log) : log_(log), count_(config.count) {
        const auto rank = static_cast<std::size_t>(log.rank());
        std::vector<std::uint64_t> counts(static_cast<std::size_t>(log.size()),
                                          count_ / static_cast<std::uint64_t>(log.size()));
        onebit_shard_config_t passed = config;
        if (config.counts != nullptr) {
            std::copy(config.counts, config.counts + log.size(), counts.begin());
            passed.counts = counts.data();
        }
        shard_ = oracle::shards_of(counts)[rank];
        ONEBIT_EXPECT_OK(log_, Collective::create(comm, &passed, &handle_));
        std::fill(counts.begin(), counts.end(), ~std::uint64_t{0}); // read, not kept
    }
    ~Shards() { ONEBIT_EXPECT_OK(log_, Collective::destroy(handle_)); }
    Shards(const Shards&) = delete;
    Shards& operator=(const Shards&) = delete;

    typename Collective::Handle get() const { return handle_; }
    oracle::Range shard() const { return shard_; }
    std::uint64_t input_count() const { return Collective::gathers ? shard_.count : count_; }
    std::uint64_t output_count() const { return Collective::gathers ? count_ : shard_.count; }

    std::vector<float> input(Kind kind, std::uint64_t seed, std::uint64_t step) const {
        return make_data(kind, input_count(), seed, log_.rank(), step);
    }

    // Checks that all memory but the result's is unchanged.
    Outcome call(const std::vector<float>& input, Way way = {}) {
        Buffer whole(count_, way.misaligned), part(shard_.count, way.misaligned);
        const std::vector<float> before(count_, 3.5F), part_before(shard_.count, 3.5F);
        whole.set(Collective::gathers ? before : input);
        part.set(Collective::gathers ? input : part_before);
        float* const place = whole.data() + shard_.begin;
        if (Collective::gathers && way.in_place) std::copy(input.begin(), input.end(), place);
        const std::vector<float> whole_before = whole.get(), kept_part = part.get();
        float* const shard = way.in_place ? place : part_pointer(part);
        const float* const send = Collective::gathers ? shard : whole.data();
        float* const receive = Collective::gathers ? whole.data() : shard;

        Outcome outcome;
        outcome.status = way.started ? finish(send, receive) : Collective::run(handle_, send, receive);

        const std::vector<float> whole_after = whole.get(), part_after = part.get();
        ONEBIT_EXPECT(log_, whole.guards_intact() && part.guards_intact());
        if (Collective::gathers) {
            ONEBIT_EXPECT(log_, same_bits(part_after, kept_part));
            outcome.output = whole_after;
            outcome.untouched = same_bits(whole_after, whole_before);
        } else {
            outcome.output = way.in_place ? part_of(whole_after, shard_) : part_after;
            ONEBIT_EXPECT(log_, !way.in_place || same_bits(part_after, kept_part));
            ONEBIT_EXPECT(log_, same_outside_shard(whole_after, whole_before));
            if (!way.in_place)
                ONEBIT_EXPECT(log_, same_bits(part_of(whole_after, shard_), part_of(whole_before, shard_)));
            outcome.untouched = same_bits(whole_after, whole_before) && same_bits(part_after, kept_part);
        }
        return outcome;
    }
    std::vector<float> run(const std::vector<float>& input, Way way = {}) {
        const Outcome outcome = call(input, way);
        ONEBIT_EXPECT_STATUS(log_, ONEBIT_SUCCESS, outcome.status);
        return outcome.output;
    }
    // This rank's part of `steps` calls on Gaussian data, which give the error state substance.
    std::vector<float> run_steps(std::uint64_t seed, std::uint64_t first, std::uint64_t steps) {
        std::vector<float> output;
        for (std::uint64_t t = first; t < first + steps; ++t) output = run(input(Kind::gaussian, seed, t));
        return output;
    }
    // Copied with bounds that a sanitizer sees.
    std::vector<float> error() {
        Buffer error(input_count());
        ONEBIT_EXPECT_OK(log_, Collective::get_error(handle_, error.data()));
        ONEBIT_EXPECT(log_, error.guards_intact());
        return error.get();
    }
    onebit_shard_info_t info() {
        onebit_shard_info_t info = ONEBIT_SHARD_INFO_INIT;
        ONEBIT_EXPECT_OK(log_, Collective::get_info(handle_, &info));
        return info;
    }
    Bytes packed() {
        std::uint64_t bytes = 0;
        ONEBIT_EXPECT_OK(log_, Collective::state_size(handle_, &bytes));
        Bytes state(bytes);
        ONEBIT_EXPECT_OK(log_, Collective::pack_state(handle_, state.data(), bytes));
        return state;
    }
    void set_algorithm(onebit_algorithm_t algorithm) {
        ONEBIT_EXPECT_OK(log_, Collective::set_algorithm(handle_, algorithm));
        ONEBIT_EXPECT(log_, info().algorithm == algorithm);
    }

  private:
    // A shard without elements is passed as NULL.
    float* part_pointer(Buffer& part) const { return shard_.count == 0 ? nullptr : part.data(); }
    bool same_outside_shard(const std::vector<float>& a, const std::vector<float>& b) const {
        for (std::uint64_t i = 0; i < count_; ++i)
            if ((i < shard_.begin || i >= shard_.end()) && bits_of(a[i]) != bits_of(b[i])) return false;
        return true;
    }
    onebit_status_t finish(const float* send, float* receive) {
        ONEBIT_EXPECT_OK(log_, Collective::start(handle_, send, receive));
        return Collective::wait(handle_);
    }

    RankLog& log_;
    std::uint64_t count_;
    oracle::Range shard_{};
    typename Collective::Handle handle_ = nullptr;
};

} // namespace onebit_test
