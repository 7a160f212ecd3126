// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Structs of programs that were compiled for another release than the library's: every struct, in every function that
// takes one. (Sizes in general: core/structs_test.cpp.)
#include <cstring>
#include <functional>

#include "support/handles.hpp"

using namespace onebit_test;

namespace {

// A struct of a program whose onebit.h has the size `size`, followed by guard bytes that must stay unchanged. The size
// is this release's or more.
template <typename Struct>
class Sized {
  public:
    Sized(const Struct& known, std::size_t size, unsigned char rest = 0)
        : bytes_(size + guard_, guard_value_), size_(size) {
        std::memset(bytes_.data(), rest, size);
        std::memcpy(bytes_.data(), &known, sizeof known);
        get()->size = size;
    }
    Struct* get() { return reinterpret_cast<Struct*>(bytes_.data()); }
    unsigned char& operator[](std::size_t i) { return bytes_[i]; }
    bool rest_is_zero() const {
        for (std::size_t i = sizeof(Struct); i < size_; ++i)
            if (bytes_[i] != 0) return false;
        return true;
    }
    bool guards_intact() const {
        for (std::size_t i = size_; i < bytes_.size(); ++i)
            if (bytes_[i] != guard_value_) return false;
        return true;
    }

  private:
    static constexpr std::size_t guard_ = 128;
    static constexpr unsigned char guard_value_ = 0xa5;
    std::vector<unsigned char> bytes_;
    std::size_t size_;
};

// The size of this release, and sizes of later ones.
template <typename Struct>
std::vector<std::size_t> sizes() {
    return {sizeof(Struct), sizeof(Struct) + 8, sizeof(Struct) + 200};
}

// The function writes the same bytes as the macro; the rest of a later release's struct is zero. A size that no release
// has given the struct is refused, and nothing is written.
template <typename Struct>
void expect_init(const char* name, const Struct& macro,
                 const std::function<onebit_status_t(Struct*, std::size_t)>& init) {
    CAPTURE(name);
    for (std::size_t size : sizes<Struct>()) {
        Sized<Struct> filled(macro, size, 0x33);
        std::memset(filled.get(), 0x33, sizeof(Struct));
        REQUIRE(init(filled.get(), size) == ONEBIT_SUCCESS);
        CHECK(filled.get()->size == size);
        filled.get()->size = sizeof(Struct);
        CHECK(std::memcmp(filled.get(), &macro, sizeof(Struct)) == 0);
        CHECK(filled.rest_is_zero());
        CHECK(filled.guards_intact());
    }
    for (std::size_t size : {std::size_t{0}, std::size_t{8}, sizeof(Struct) - 1, std::size_t{1} << 40}) {
        Struct filled = macro;
        std::memset(static_cast<void*>(&filled), 0x33, sizeof(Struct));
        const Struct before = filled;
        CHECK(init(&filled, size) == ONEBIT_ERROR_INVALID_ARGUMENT);
        CHECK(std::memcmp(&filled, &before, sizeof(Struct)) == 0);
    }
    CHECK(init(nullptr, sizeof(Struct)) == ONEBIT_ERROR_INVALID_ARGUMENT);
}

} // namespace

TEST_CASE("the functions that fill in defaults say what the macros say", "[structs]") {
    expect_init<onebit_comm_info_t>("comm info", ONEBIT_COMM_INFO_INIT, onebit_comm_info_init);
    expect_init<onebit_allreduce_info_t>("allreduce info", ONEBIT_ALLREDUCE_INFO_INIT, onebit_allreduce_info_init);
    expect_init<onebit_optimizer_info_t>("optimizer info", ONEBIT_OPTIMIZER_INFO_INIT, onebit_optimizer_info_init);
    expect_init<onebit_allreduce_config_t>("allreduce config", ONEBIT_ALLREDUCE_CONFIG_INIT(77),
                                           [](onebit_allreduce_config_t* config, std::size_t size) {
                                               return onebit_allreduce_config_init(config, size, 77);
                                           });
    expect_init<onebit_level_info_t>("level info", ONEBIT_LEVEL_INFO_INIT, onebit_level_info_init);
    expect_init<onebit_level_t>("level", ONEBIT_LEVEL_INIT(9), [](onebit_level_t* level, std::size_t size) {
        return onebit_level_init(level, size, 9);
    });
    expect_init<onebit_shard_info_t>("shard info", ONEBIT_SHARD_INFO_INIT, onebit_shard_info_init);
    expect_init<onebit_shard_config_t>(
        "shard config", ONEBIT_SHARD_CONFIG_INIT(77),
        [](onebit_shard_config_t* config, std::size_t size) { return onebit_shard_config_init(config, size, 77); });
    expect_init<onebit_param_group_t>(
        "group", ONEBIT_PARAM_GROUP_INIT(0.25),
        [](onebit_param_group_t* group, std::size_t size) { return onebit_param_group_init(group, size, 0.25); });
    expect_init<onebit_optimizer_config_t>(
        "optimizer config", ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ONEBIT_LAMB, 0.5),
        [](onebit_optimizer_config_t* config, std::size_t size) {
            return onebit_optimizer_config_init(config, size, ONEBIT_OPTIMIZER_ONEBIT_LAMB, 0.5);
        });
    float x[3], g[3];
    expect_init<onebit_tensor_t>("tensor", ONEBIT_TENSOR_INIT(x, g, 3), [&](onebit_tensor_t* tensor, std::size_t size) {
        return onebit_tensor_init(tensor, size, x, g, 3);
    });
}

TEST_CASE("info structs of later releases are filled, their rest with zeros", "[structs]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (std::size_t size : sizes<onebit_comm_info_t>()) {
            Sized<onebit_comm_info_t> info(ONEBIT_COMM_INFO_INIT, size, 0x33);
            ONEBIT_EXPECT_OK(log, onebit_comm_get_info(comm, info.get()));
            ONEBIT_EXPECT(log, std::string(info.get()->transport) == transport_name() && info.get()->size == size);
            ONEBIT_EXPECT(log, info.rest_is_zero() && info.guards_intact());
        }
        Allreduce reduce(comm, flat_config(1000), log);
        for (std::size_t size : sizes<onebit_allreduce_info_t>()) {
            Sized<onebit_allreduce_info_t> info(ONEBIT_ALLREDUCE_INFO_INIT, size, 0x33);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_get_info(reduce.get(), info.get()));
            ONEBIT_EXPECT(log, info.get()->algorithm == ONEBIT_ALGORITHM_FLAT && info.get()->size == size);
            ONEBIT_EXPECT(log, info.rest_is_zero() && info.guards_intact());
        }
        const onebit_shard_config_t shards = ONEBIT_SHARD_CONFIG_INIT(100 * log.size());
        onebit_reduce_scatter_t reduce_scatter = nullptr;
        onebit_all_gather_t all_gather = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_reduce_scatter_create(comm, &shards, &reduce_scatter));
        ONEBIT_EXPECT_OK(log, onebit_all_gather_create(comm, &shards, &all_gather));
        for (std::size_t size : sizes<onebit_shard_info_t>()) {
            for (const bool gathers : {false, true}) {
                Sized<onebit_shard_info_t> info(ONEBIT_SHARD_INFO_INIT, size, 0x33);
                ONEBIT_EXPECT_OK(log, gathers ? onebit_all_gather_get_info(all_gather, info.get())
                                              : onebit_reduce_scatter_get_info(reduce_scatter, info.get()));
                ONEBIT_EXPECT(log, info.get()->shard_count == 100 && info.get()->size == size);
                ONEBIT_EXPECT(log, info.rest_is_zero() && info.guards_intact());
            }
        }
        ONEBIT_EXPECT_OK(log, onebit_reduce_scatter_destroy(reduce_scatter));
        ONEBIT_EXPECT_OK(log, onebit_all_gather_destroy(all_gather));
        std::vector<float> x(500), g(500);
        const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(x.data(), g.data(), x.size());
        const onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 0.5);
        onebit_optimizer_t optimizer = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_optimizer_create(comm, &config, &tensor, 1, &optimizer));
        for (std::size_t size : sizes<onebit_optimizer_info_t>()) {
            Sized<onebit_optimizer_info_t> info(ONEBIT_OPTIMIZER_INFO_INIT, size, 0x33);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_get_info(optimizer, info.get()));
            ONEBIT_EXPECT(log, info.get()->count == 500 && info.get()->size == size);
            ONEBIT_EXPECT(log, info.rest_is_zero() && info.guards_intact());
        }
        ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(optimizer));
    });
}

TEST_CASE("allreduce configs of later releases, and what this one doesn't know of them", "[structs][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::vector<float> input = make_data(Kind::gaussian, 1000, 1, log.rank(), 0);
        const std::vector<float> expected = Allreduce(comm, flat_config(1000), log).run(input);
        const std::string who = ";rank " + std::to_string(log.size() - 1);
        for (std::size_t size : sizes<onebit_allreduce_config_t>()) {
            Sized<onebit_allreduce_config_t> config(flat_config(1000), size);
            {
                Allreduce reduce(comm, *config.get(), log);
                ONEBIT_EXPECT(log, same_bits(reduce.run(input), expected));
            }
            for (std::size_t at : {sizeof(onebit_allreduce_config_t), size - 1}) {
                if (at >= size || size == sizeof(onebit_allreduce_config_t)) continue;
                if (log.last_rank()) config[at] = 1;
                onebit_allreduce_t handle = nullptr;
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED,
                                      "config;byte " + std::to_string(at) + who + ";" + onebit_version(),
                                      onebit_allreduce_create(comm, config.get(), &handle));
                config[at] = 0;
            }
            ONEBIT_EXPECT(log, config.guards_intact());
        }
    });
}

TEST_CASE("configs of a reduce-scatter and of an all-gather of later releases", "[structs][shards][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::string who = ";rank " + std::to_string(log.size() - 1);
        for (std::size_t size : sizes<onebit_shard_config_t>()) {
            Sized<onebit_shard_config_t> config(ONEBIT_SHARD_CONFIG_INIT(100 * log.size()), size);
            onebit_reduce_scatter_t reduce_scatter = nullptr;
            onebit_all_gather_t all_gather = nullptr;
            ONEBIT_EXPECT_OK(log, onebit_reduce_scatter_create(comm, config.get(), &reduce_scatter));
            ONEBIT_EXPECT_OK(log, onebit_reduce_scatter_destroy(reduce_scatter));
            ONEBIT_EXPECT_OK(log, onebit_all_gather_create(comm, config.get(), &all_gather));
            ONEBIT_EXPECT_OK(log, onebit_all_gather_destroy(all_gather));
            if (size > sizeof(onebit_shard_config_t)) {
                if (log.last_rank()) config[size - 1] = 1;
                const std::string needles = "config;byte " + std::to_string(size - 1) + who + ";" + onebit_version();
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, needles,
                                      onebit_reduce_scatter_create(comm, config.get(), &reduce_scatter));
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, needles,
                                      onebit_all_gather_create(comm, config.get(), &all_gather));
                ONEBIT_EXPECT(log, reduce_scatter == nullptr && all_gather == nullptr);
            }
            ONEBIT_EXPECT(log, config.guards_intact());
        }
    });
}

namespace {

// An array of a later release, whose elements are `more` bytes longer.
template <typename Struct>
std::vector<unsigned char> lengthened(const std::vector<Struct>& known, std::size_t more) {
    std::vector<unsigned char> bytes;
    for (Struct element : known) {
        element.size += more;
        const auto* const begin = reinterpret_cast<const unsigned char*>(&element);
        bytes.insert(bytes.end(), begin, begin + sizeof element);
        bytes.resize(bytes.size() + more);
    }
    return bytes;
}

// An optimizer over three tensors in two groups, created by a program whose structs are longer.
class Longer {
  public:
    explicit Longer(std::size_t more)
        : x_(300, 1),
          g_(300, 0.5f),
          tensors(lengthened<onebit_tensor_t>(
              {ONEBIT_TENSOR_INIT(x_.data(), g_.data(), 100), ONEBIT_TENSOR_INIT(x_.data() + 100, g_.data() + 100, 100),
               ONEBIT_TENSOR_INIT(x_.data() + 200, g_.data() + 200, 100)},
              more)),
          groups(
              lengthened<onebit_param_group_t>({ONEBIT_PARAM_GROUP_INIT(0.25), ONEBIT_PARAM_GROUP_INIT(0.125)}, more)),
          config(ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 0.5), sizeof(onebit_optimizer_config_t) + more) {
        tensor(1)->group = 1;
        config.get()->groups = reinterpret_cast<const onebit_param_group_t*>(groups.data());
        config.get()->num_groups = 2;
    }
    onebit_tensor_t* tensor(std::size_t i) {
        return reinterpret_cast<onebit_tensor_t*>(tensors.data() + i * tensors.size() / 3);
    }
    onebit_status_t create(onebit_comm_t comm, onebit_optimizer_t* optimizer) {
        return onebit_optimizer_create(comm, config.get(), tensor(0), 3, optimizer);
    }
    // The parameters after a step.
    std::vector<float> step(onebit_comm_t comm, RankLog& log) {
        onebit_optimizer_t optimizer = nullptr;
        ONEBIT_EXPECT_OK(log, create(comm, &optimizer));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_step(optimizer));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(optimizer));
        return x_;
    }

  private:
    std::vector<float> x_, g_;

  public:
    std::vector<unsigned char> tensors, groups;
    Sized<onebit_optimizer_config_t> config;
};

} // namespace

TEST_CASE("optimizers from configs, groups and tensors of later releases", "[structs][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::vector<float> expected = Longer(0).step(comm, log);
        ONEBIT_EXPECT(log, expected[0] != expected[100] && expected[0] == expected[299]);
        const std::string who = ";rank " + std::to_string(log.size() - 1);
        for (std::size_t more : {8, 200}) {
            log.context("longer by " + std::to_string(more));
            ONEBIT_EXPECT(log, same_bits(Longer(more).step(comm, log), expected));

            const auto expect_fails = [&](onebit_status_t status, const std::string& needles,
                                          const std::function<void(Longer&)>& spoil) {
                Longer longer(more);
                if (log.last_rank()) spoil(longer);
                onebit_optimizer_t optimizer = nullptr;
                ONEBIT_EXPECT_FAILURE(log, status, needles + who, longer.create(comm, &optimizer));
            };
            const onebit_status_t unsupported = ONEBIT_ERROR_UNSUPPORTED;
            expect_fails(unsupported, "config;byte",
                         [](Longer& l) { l.config[sizeof(onebit_optimizer_config_t)] = 1; });
            expect_fails(unsupported, "groups[1];byte", [](Longer& l) { l.groups.back() = 1; });
            expect_fails(unsupported, "tensors[2];byte", [](Longer& l) { l.tensors.back() = 1; });
            expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "tensors[1];size",
                         [](Longer& l) { l.tensor(1)->size = sizeof(onebit_tensor_t); });
        }
    });
}
