// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Two levels: an exact average in each node, one bit per element between nodes. ONEBIT_NODE_SIZE makes nodes of the
// ranks of one machine.
#include <thread>

#include "support/environment.hpp"
#include "support/handles.hpp"

using namespace onebit_test;

namespace {

constexpr int nodes = 2, places = 2;

onebit_allreduce_config_t two_level_config(std::uint64_t count, Mode mode = default_mode()) {
    return form_config(ONEBIT_ALGORITHM_TWO_LEVEL, count, mode);
}

// Runs a body with four ranks as two nodes of two; does nothing without four ranks.
void run_two_nodes(int n, const std::function<void(onebit_comm_t, RankLog&)>& body) {
    if (n != nodes * places) return;
    const Variable node_size("ONEBIT_NODE_SIZE", "2");
    run_ranks(n, body);
}

// The shard of a place: words in consecutive parts that differ by one word at most.
struct Shard {
    std::uint64_t begin, end;
};
Shard shard_of(int place, std::uint64_t count) {
    const std::uint64_t words = (count + 31) / 32, longer = words % places;
    const auto first = [&](std::uint64_t l) { return 32 * (l * (words / places) + std::min(l, longer)); };
    const auto l = static_cast<std::uint64_t>(place);
    return {std::min(first(l), count), std::min(first(l + 1), count)};
}

// The expected result of two levels, by the plain form alone: for each shard the nodes' averages through a flat
// allreduce among as many ranks as there are nodes, all of them in this thread.
class Reference {
  public:
    Reference(std::uint64_t count, Mode mode, RankLog& log) : count_(count), log_(log) {
        for (int place = 0; place < places; ++place) {
            ONEBIT_EXPECT_OK(log_, onebit_comm_create_loopback(nodes, comms_[place]));
            const Shard shard = shard_of(place, count);
            const onebit_allreduce_config_t config = flat_config(shard.end - shard.begin, mode);
            std::vector<std::thread> creating; // collective
            for (int node = 0; node < nodes; ++node)
                creating.emplace_back(
                    [=, this] { onebit_allreduce_create(comms_[place][node], &config, &handles_[place][node]); });
            for (std::thread& thread : creating) thread.join();
        }
    }
    ~Reference() {
        for (int place = 0; place < places; ++place) {
            for (int node = 0; node < nodes; ++node) {
                onebit_allreduce_destroy(handles_[place][node]);
                onebit_comm_destroy(comms_[place][node]);
            }
        }
    }
    Reference(const Reference&) = delete;
    Reference& operator=(const Reference&) = delete;

    void set_mask(const std::vector<std::uint32_t>& mask) {
        for (int place = 0; place < places; ++place) {
            const std::uint32_t* const part = mask.data() + shard_of(place, count_).begin / 32;
            std::vector<std::thread> setting;
            for (int node = 0; node < nodes; ++node)
                setting.emplace_back([=, this] { onebit_allreduce_set_mask(handles_[place][node], part); });
            for (std::thread& thread : setting) thread.join();
        }
    }

    // `input(rank)`: the input of each of the four ranks.
    std::vector<float> step(const std::function<std::vector<float>(int)>& input) {
        std::vector<std::vector<float>> average(nodes);
        for (int node = 0; node < nodes; ++node) {
            const std::vector<float> first = input(node * places), second = input(node * places + 1);
            for (std::uint64_t i = 0; i < count_; ++i) average[node].push_back((first[i] + second[i]) * 0.5F);
        }
        std::vector<float> result(count_);
        for (int place = 0; place < places; ++place) {
            const Shard shard = shard_of(place, count_);
            std::vector<std::vector<float>> output(nodes, std::vector<float>(shard.end - shard.begin));
            for (int node = 0; node < nodes; ++node)
                ONEBIT_EXPECT_OK(log_, onebit_allreduce_start(handles_[place][node], average[node].data() + shard.begin,
                                                              output[node].data()));
            for (int done[nodes] = {0, 0}; done[0] == 0 || done[1] == 0;)
                for (int node = 0; node < nodes; ++node)
                    if (done[node] == 0)
                        ONEBIT_EXPECT_OK(log_, onebit_allreduce_test(handles_[place][node], &done[node]));
            std::copy(output[0].begin(), output[0].end(), result.begin() + static_cast<std::ptrdiff_t>(shard.begin));
        }
        return result;
    }

    // The expected errors of a rank of the two-level form.
    Errors errors_of(int rank) {
        const int place = rank % places, node = rank / places;
        const Shard shard = shard_of(place, count_);
        Errors errors;
        std::uint64_t begin = 0, count = 0;
        onebit_allreduce_t handle = handles_[place][node];
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_get_error(handle, nullptr, nullptr, &begin, &count));
        errors.worker.assign(count_, 0.0F);
        errors.server.assign(count, 0.0F);
        errors.begin = shard.begin + begin;
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_get_error(handle, errors.worker.data() + shard.begin,
                                                          errors.server.data(), nullptr, nullptr));
        return errors;
    }

  private:
    std::uint64_t count_;
    RankLog& log_;
    onebit_comm_t comms_[places][nodes] = {};
    onebit_allreduce_t handles_[places][nodes] = {};
};

void compare_with_reference(onebit_comm_t comm, RankLog& log, std::uint64_t count, Mode mode, bool masked) {
    log.context(std::to_string(count) + " " + mode.name() + (masked ? " masked" : ""));
    Allreduce reduce(comm, two_level_config(count, mode), log);
    ONEBIT_EXPECT(log, reduce.info().algorithm == ONEBIT_ALGORITHM_TWO_LEVEL);
    Reference reference(count, mode, log);
    if (masked) {
        Random random(5, 0, 0);
        std::vector<std::uint32_t> mask;
        for (std::uint64_t w = 0; w < (count + 31) / 32; ++w) mask.push_back(static_cast<std::uint32_t>(random.next()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(reduce.get(), mask.data()));
        reference.set_mask(mask);
    }
    for (std::uint64_t step = 0; step < 3; ++step) {
        const auto input = [&](int rank) { return make_data(Kind::heavy_tailed, count, 61, rank, step); };
        const std::vector<float> expected = reference.step(input);
        std::vector<float> data = input(log.rank());
        if (step % 2 == 0) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), data.data(), data.data()));
        } else {
            data = reduce.run(data);
        }
        ONEBIT_EXPECT(log, same_bits(data, expected));
        ONEBIT_EXPECT(log, reduce.errors().same_as(reference.errors_of(log.rank())));
    }
}

} // namespace

TEST_CASE("two levels: an exact average in each node, then a flat exchange between nodes", "[two_level]") {
    const int n = GENERATE(from_range(rank_counts()));
    const char* piece = GENERATE("4096", "12288", "262144");
    const Variable chosen("ONEBIT_PIECE", piece);
    run_two_nodes(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) {
            for (std::uint64_t count : {129U, 8193U, 40003U}) compare_with_reference(comm, log, count, mode, false);
            compare_with_reference(comm, log, 20001, mode, true);
        }
        // With pieces of a block: two in the first shard, one in the other.
        compare_with_reference(comm, log, 16385, default_mode(), false);
        compare_with_reference(comm, log, 16385, all_modes()[1], false);
        // With few blocks there are several pieces in the node, the last one short; and one rank's shard is a word
        // longer.
        compare_with_reference(comm, log, 300033, default_mode(), false);
    });
}

TEST_CASE("two levels with shards and chunks that are empty", "[two_level]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_two_nodes(n, [](onebit_comm_t comm, RankLog& log) {
        for (std::uint64_t count : {4U, 32U, 33U, 95U}) {
            for (const Mode& mode : every_mode()) {
                log.context(std::to_string(count) + " " + mode.name());
                Allreduce reduce(comm, two_level_config(count, mode), log);
                const std::vector<float> output = reduce.run_steps(62, 0, 3);
                ONEBIT_EXPECT(log, log.same_on_all(output.data(), output.size() * sizeof(float)));
                const bool all_differ_from_zero = mode.codec == ONEBIT_CODEC_SIGN; // other codes may have a zero
                ONEBIT_EXPECT(log, std::isfinite(output.front()) && std::isfinite(output.back()));
                ONEBIT_EXPECT(log, !all_differ_from_zero || (output.front() != 0 && output.back() != 0));
            }
        }
    });
}

TEST_CASE("two levels send half of the flat form's bytes or less", "[two_level]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_two_nodes(n, [](onebit_comm_t comm, RankLog& log) {
        onebit_allreduce_config_t config = two_level_config(100000), flat = flat_config(100000);
        config.check = flat.check = ONEBIT_CHECK_NONE;
        Allreduce reduce(comm, config, log), plain(comm, flat, log);
        reduce.run_steps(63, 0, 2);
        plain.run_steps(63, 0, 2);
        ONEBIT_EXPECT(log, 2 * reduce.info().last_bytes_sent <= plain.info().last_bytes_sent);
        ONEBIT_EXPECT(log, reduce.info().bytes_sent == 2 * reduce.info().last_bytes_sent);
    });
}

TEST_CASE("start with test gives the bits of run on two levels", "[two_level][async]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_two_nodes(n, [](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, two_level_config(200001), log), twin(comm, two_level_config(200001), log);
        for (std::uint64_t step = 0; step < 3; ++step) {
            const std::vector<float> input = make_data(Kind::gaussian, 200001, 64, log.rank(), step);
            std::vector<float> output(input.size(), NAN);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), input.data(), output.data()));
            for (int done = 0; done == 0; std::this_thread::yield())
                ONEBIT_EXPECT_OK(log, onebit_allreduce_test(reduce.get(), &done));
            ONEBIT_EXPECT(log, same_bits(output, twin.run(input)));
        }
    });
}

TEST_CASE("where there are no two levels, pipelined is taken and says why", "[two_level]") {
    const int n = GENERATE(from_range(rank_counts()));
    const std::pair<const char*, const char*> cases[] = {
        {"1", "each node has one rank"}, {"4", "all ranks are on one node"}, {"3", "different numbers of ranks"}};
    for (const auto& [size, objection] : cases) {
        if (n != 4) continue;
        const Variable node_size("ONEBIT_NODE_SIZE", size);
        run_ranks(n, [&, objection = objection](onebit_comm_t comm, RankLog& log) {
            Allreduce reduce(comm, two_level_config(30000), log), flat(comm, flat_config(30000), log);
            ONEBIT_EXPECT(log, reduce.info().algorithm == ONEBIT_ALGORITHM_PIPELINED);
            ONEBIT_EXPECT(log, std::string(reduce.info().reason).find(objection) != std::string::npos);
            ONEBIT_EXPECT(log, same_bits(reduce.run_steps(65, 0, 2), flat.run_steps(65, 0, 2)));
        });
    }
}

TEST_CASE("two levels have an error state of their own: dense is the only other form", "[two_level][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_two_nodes(n, [](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t count = 30001;
        Allreduce reduce(comm, two_level_config(count), log), twin(comm, two_level_config(count), log),
            flat(comm, flat_config(count), log);
        reduce.run_steps(66, 0, 2);
        twin.run_steps(66, 0, 2);
        const onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT;
        ONEBIT_EXPECT_FAILURE(log, bad, "two_level;flat",
                              onebit_allreduce_set_algorithm(reduce.get(), ONEBIT_ALGORITHM_FLAT));
        ONEBIT_EXPECT_FAILURE(log, bad, "flat;two_level",
                              onebit_allreduce_set_algorithm(flat.get(), ONEBIT_ALGORITHM_TWO_LEVEL));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(reduce.get(), ONEBIT_ALGORITHM_DENSE));
        reduce.run_steps(67, 0, 1);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(reduce.get(), ONEBIT_ALGORITHM_TWO_LEVEL));
        ONEBIT_EXPECT(log, same_bits(reduce.run_steps(66, 2, 2), twin.run_steps(66, 2, 2)));

        // Neither takes the other's state.
        const Bytes mine = reduce.packed(), other = flat.packed();
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "worker",
                              onebit_allreduce_unpack_state(flat.get(), mine.data(), mine.size()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "worker",
                              onebit_allreduce_unpack_state(reduce.get(), other.data(), other.size()));
        Allreduce restored(comm, two_level_config(count), log);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(restored.get(), mine.data(), mine.size()));
        ONEBIT_EXPECT(log, same_bits(restored.run_steps(66, 4, 2), reduce.run_steps(66, 4, 2)));
        ONEBIT_EXPECT(log, restored.errors().same_as(reduce.errors()));
    });
}

TEST_CASE("on two levels too a NaN changes nothing, and an overflow is said by all", "[two_level][failure]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_two_nodes(n, [](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t count = 40001;
        Allreduce reduce(comm, two_level_config(count), log), twin(comm, two_level_config(count), log);
        reduce.run_steps(68, 0, 2);
        twin.run_steps(68, 0, 2);
        std::vector<float> input = make_data(Kind::gaussian, count, 69, log.rank(), 0), output(count, 7.0F);
        if (log.last_rank()) input[count - 1] = NAN;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "rank 3;sendbuf[40000]",
                              onebit_allreduce_run(reduce.get(), input.data(), output.data()));
        ONEBIT_EXPECT(log, output == std::vector<float>(count, 7.0F));
        ONEBIT_EXPECT(log, same_bits(reduce.run_steps(68, 2, 1), twin.run_steps(68, 2, 1)));

        std::vector<float> huge(count, 0.0F);
        huge[5] = 3e38F; // in the first shard; twice this is more than a float holds, and most of it is left as error
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), huge.data(), output.data()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow;reset",
                              onebit_allreduce_run(reduce.get(), huge.data(), output.data()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(twin.get()));
        ONEBIT_EXPECT(log, same_bits(reduce.run_steps(68, 3, 2), twin.run_steps(68, 3, 2)));
    });
}

// Hidden: run by tests/transport/small_shared_memory_test.sh, with ONEBIT_NODE_SIZE=2.
TEST_CASE("two levels take no room of /dev/shm", "[.][small shared memory]") {
    const Variable node_size("ONEBIT_NODE_SIZE", "2");
    run_ranks(rank_counts().front(), [](onebit_comm_t comm, RankLog& log) {
        ONEBIT_EXPECT(log, log.size() == 4);
        const std::uint64_t count = std::uint64_t{1} << 24;
        Allreduce reduce(comm, two_level_config(count, Mode()), log);
        ONEBIT_EXPECT(log, reduce.info().algorithm == ONEBIT_ALGORITHM_TWO_LEVEL);
        const std::vector<float> average = reduce.run(std::vector<float>(count, 1.0f));
        ONEBIT_EXPECT(log, average.front() == 1.0f && average.back() == 1.0f);
    });
}
