// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// onebit_comm_split: the ranks of each part, that parts don't disturb each other, and the ends of their calls.
#include "support/environment.hpp"
#include "support/handles.hpp"

using namespace onebit_test;

namespace {

constexpr std::uint64_t kCount = 4099;

/// A part that destroys itself.
class Part {
  public:
    Part(onebit_comm_t comm, int color, int key, RankLog& log) : log_(log) {
        ONEBIT_EXPECT_OK(log_, onebit_comm_split(comm, color, key, &handle_));
    }
    ~Part() { ONEBIT_EXPECT_OK(log_, onebit_comm_destroy(handle_)); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    onebit_comm_t get() const { return handle_; }
    int rank() const {
        int rank = -1;
        ONEBIT_EXPECT_OK(log_, onebit_comm_rank(handle_, &rank));
        return rank;
    }
    int size() const {
        int size = -1;
        ONEBIT_EXPECT_OK(log_, onebit_comm_size(handle_, &size));
        return size;
    }

  private:
    RankLog& log_;
    onebit_comm_t handle_ = nullptr;
};

std::vector<float> values_of(int rank, std::uint64_t call = 0) {
    return make_data(Kind::gaussian, kCount, 11, rank, call);
}

/// All ranks of a color have the same bits in `output`, which need not be those of another color.
void expect_same_in_color(RankLog& log, int color, const std::vector<float>& output) {
    std::vector<float> tagged = output;
    tagged.push_back(static_cast<float>(color));
    for (const std::vector<float>& other : log.gather_floats(tagged)) {
        if (other.back() == tagged.back()) ONEBIT_EXPECT(log, same_bits(other, tagged));
    }
}

} // namespace

TEST_CASE("ranks of one color get a communicator, in the order of their keys", "[comm][split]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        const int n = log.size();
        const int color = log.rank() % 2;
        const Part forwards(comm, color, 7, log);
        ONEBIT_EXPECT(log, forwards.size() == (n + 1 - color) / 2);
        ONEBIT_EXPECT(log, forwards.rank() == log.rank() / 2);
        const Part backwards(comm, color, -log.rank(), log);
        ONEBIT_EXPECT(log, backwards.size() == forwards.size());
        ONEBIT_EXPECT(log, backwards.rank() == forwards.size() - 1 - forwards.rank());
        const Part alone(comm, log.rank(), 0, log);
        ONEBIT_EXPECT(log, alone.size() == 1 && alone.rank() == 0);
    });
}

TEST_CASE("a rank of no color gets none, and success", "[comm][split]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        const int color = log.last_rank() ? -1 : 3;
        const Part part(comm, color, 0, log);
        ONEBIT_EXPECT(log, (part.get() == nullptr) == log.last_rank());
        if (!log.last_rank()) ONEBIT_EXPECT(log, part.size() == log.size() - 1);
        const Part nobodys(comm, INT32_MIN, 0, log);
        ONEBIT_EXPECT(log, nobodys.get() == nullptr);
    });
}

TEST_CASE("a part of all ranks computes what the whole does, to the bit", "[comm][split]") {
    const onebit_algorithm_t algorithm =
        GENERATE(ONEBIT_ALGORITHM_AUTO, ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED,
                 ONEBIT_ALGORITHM_BRUCK, ONEBIT_ALGORITHM_RING);
    const Variable deterministic("ONEBIT_DETERMINISTIC", "1");
    for_each_size(1, [&](onebit_comm_t comm, RankLog& log) {
        const Part part(comm, 0, 0, log);
        Allreduce of_whole(comm, form_config(algorithm, kCount), log);
        Allreduce of_part(part.get(), form_config(algorithm, kCount), log);
        for (std::uint64_t call = 0; call < 3; ++call) {
            ONEBIT_EXPECT(
                log, same_bits(of_whole.run(values_of(log.rank(), call)), of_part.run(values_of(log.rank(), call))));
        }
        ONEBIT_EXPECT(log, std::string(of_whole.info().transport) == of_part.info().transport);
    });
}

TEST_CASE("parts run side by side, and beside the whole", "[comm][split]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        const int color = log.rank() % 2;
        const Part part(comm, color, 0, log);
        Allreduce of_whole(comm, flat_config(kCount), log);
        Allreduce of_part(part.get(), flat_config(kCount), log);
        const std::vector<float> input = values_of(log.rank());
        std::vector<float> whole(kCount);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(of_whole.get(), input.data(), whole.data()));
        std::vector<float> output;
        for (int call = 0; call < 20 * (color + 1); ++call) output = of_part.run(input); // one part makes twice as many
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(of_whole.get()));
        expect_same_in_color(log, color, output);
        ONEBIT_EXPECT(log, log.same_on_all(whole.data(), kCount * sizeof(float)));
    });
}

TEST_CASE("parts can be split until each rank is alone", "[comm][split]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        onebit_comm_t part = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_comm_split(comm, 0, 0, &part));
        int size = log.size();
        int rank = log.rank();
        for (int level = 0; level < 3; ++level) {
            {
                Allreduce reduce(part, form_config(ONEBIT_ALGORITHM_DENSE, kCount), log);
                const std::vector<float> average = reduce.run(std::vector<float>(kCount, static_cast<float>(size)));
                ONEBIT_EXPECT(log, average == std::vector<float>(kCount, static_cast<float>(size)));
            }
            onebit_comm_t half = nullptr;
            ONEBIT_EXPECT_OK(log, onebit_comm_split(part, 2 * rank < size ? 0 : 1, rank, &half));
            ONEBIT_EXPECT_OK(log, onebit_comm_destroy(part)); // before the objects made from it
            part = half;
            ONEBIT_EXPECT_OK(log, onebit_comm_size(part, &size));
            ONEBIT_EXPECT_OK(log, onebit_comm_rank(part, &rank));
        }
        if (log.size() <= 8) ONEBIT_EXPECT(log, size == 1);
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(part));
    });
}

TEST_CASE("a communicator is split many times", "[comm][split]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        constexpr int kSplits = 100;
        std::vector<float> output;
        for (int split = 0; split < kSplits; ++split) {
            const Part part(comm, (log.rank() + split) % 2, 0, log);
            if (split % 10 != 0) continue;
            Allreduce reduce(part.get(), flat_config(kCount), log);
            output = reduce.run(values_of(log.rank()));
        }
        expect_same_in_color(log, (log.rank() + kSplits - 10) % 2, output);
    });
}

TEST_CASE("a part outlives the communicator that it was made of", "[comm][split]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        const int color = log.rank() % 2;
        const Part part(comm, color, 0, log);
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));
        log.comm_is_gone();
        Allreduce reduce(part.get(), flat_config(kCount), log);
        expect_same_in_color(log, color, reduce.run(values_of(log.rank())));
    });
}

TEST_CASE("a rank without a place for its part fails the split on all, and changes nothing",
          "[comm][split][bad input]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        onebit_comm_t made = nullptr;
        onebit_comm_t* const place = log.last_rank() ? nullptr : &made;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "part is NULL;rank " + std::to_string(log.size() - 1),
                              onebit_comm_split(comm, 0, 0, place));
        ONEBIT_EXPECT(log, made == nullptr);
        const Part part(comm, 0, 0, log);
        ONEBIT_EXPECT(log, part.size() == log.size());
    });
}

TEST_CASE("what is no communicator can't be split", "[comm][split][bad input]") {
    onebit_comm_t part = nullptr;
    CHECK(onebit_comm_split(nullptr, 0, 0, &part) == ONEBIT_ERROR_INVALID_HANDLE);
}

TEST_CASE("an abort of a part ends its calls, and no others", "[comm][split][abort]") {
    for_each_size(3, [](onebit_comm_t comm, RankLog& log) {
        const bool stays = log.rank() == 1; // alone in its part
        const Part part(comm, stays ? 1 : 0, 0, log);
        Allreduce of_whole(comm, flat_config(kCount), log);
        Allreduce of_part(part.get(), flat_config(kCount), log);
        std::vector<float> values = values_of(log.rank());
        log.barrier();
        if (log.rank() == 0) {
            ONEBIT_EXPECT_OK(log, onebit_comm_abort(part.get(), "enough"));
        } else {
            const onebit_status_t expected = stays ? ONEBIT_SUCCESS : ONEBIT_ERROR_TRANSPORT;
            ONEBIT_EXPECT_STATUS(log, expected, onebit_allreduce_run(of_part.get(), values.data(), values.data()));
            if (!stays) ONEBIT_EXPECT(log, holds(onebit_last_error(), "rank 0 called onebit_comm_abort;enough"));
        }
        log.barrier();
        std::vector<float> average = of_whole.run(values_of(log.rank()));
        ONEBIT_EXPECT(log, log.same_on_all(average.data(), kCount * sizeof(float)));
    });
}

TEST_CASE("an abort of the whole ends calls on its parts", "[comm][split][abort]") {
    for_each_size(2, [](onebit_comm_t comm, RankLog& log) {
        const Part half(comm, 0, 0, log);
        const Part part(half.get(), 0, 0, log);
        Allreduce reduce(part.get(), flat_config(kCount), log);
        std::vector<float> values = values_of(log.rank());
        log.barrier();
        if (log.last_rank()) {
            ONEBIT_EXPECT_OK(log, onebit_comm_abort(comm, "enough"));
        } else {
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TRANSPORT,
                                 onebit_allreduce_run(reduce.get(), values.data(), values.data()));
            ONEBIT_EXPECT(log, holds(onebit_last_error(), "called onebit_comm_abort;enough"));
        }
        log.barrier();
    });
}

TEST_CASE("a rank that doesn't come stops its own part alone", "[comm][split][failure]") {
    const Variable timeout("ONEBIT_TIMEOUT", "1");
    for_each_size(3, [](onebit_comm_t comm, RankLog& log) {
        const int color = log.rank() == 1 ? 1 : 0;
        const Part part(comm, color, 0, log);
        Allreduce reduce(part.get(), flat_config(kCount), log);
        std::vector<float> values = values_of(log.rank());
        log.barrier();
        if (color == 1) {
            for (int call = 0; call < 50; ++call) reduce.run(values);
        } else if (log.rank() > 0) { // rank 0 is what they wait for
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TIMEOUT,
                                 onebit_allreduce_run(reduce.get(), values.data(), values.data()));
            ONEBIT_EXPECT(log, holds(onebit_last_error(), "rank 0 has not answered"));
        }
        log.barrier();
        const Part again(comm, 0, 0, log);
        Allreduce later(again.get(), flat_config(kCount), log);
        const std::vector<float> average = later.run(values_of(log.rank()));
        ONEBIT_EXPECT(log, log.same_on_all(average.data(), kCount * sizeof(float)));
    });
}

TEST_CASE("a rank that leaves everything stops its own part alone", "[comm][split][failure]") {
    if (std::string(transport_name()) == "mpi") return; // no rank is told there: as with a missing rank
    const Variable timeout("ONEBIT_TIMEOUT", "2");
    for_each_size(3, [](onebit_comm_t comm, RankLog& log) {
        const int color = log.rank() == 0 || log.last_rank() ? 0 : 1;
        onebit_comm_t part = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_comm_split(comm, color, 0, &part));
        const onebit_allreduce_config_t config = flat_config(kCount);
        onebit_allreduce_t reduce = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_allreduce_create(part, &config, &reduce));
        std::vector<float> values = values_of(log.rank());
        log.barrier();
        if (log.rank() == 0) {
            const onebit_status_t status = onebit_allreduce_run(reduce, values.data(), values.data());
            ONEBIT_EXPECT(log, status == ONEBIT_ERROR_TRANSPORT || status == ONEBIT_ERROR_TIMEOUT);
        } else if (color == 1) {
            for (int call = 0; call < 50; ++call) {
                ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce, values.data(), values.data()));
            }
        }
        ONEBIT_EXPECT_OK(log, onebit_allreduce_destroy(reduce));
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(part));
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));
        log.comm_is_gone();
        log.barrier();
    });
}
