// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// onebit_comm_set: replaces an environment variable for objects created afterwards.
#include <cstdio>
#include <fstream>

#include "support/directory.hpp"
#include "support/environment.hpp"
#include "support/handles.hpp"

using namespace onebit_test;

namespace {

onebit_allreduce_info_t info_of_auto(onebit_comm_t comm, RankLog& log, std::uint64_t count = 5001) {
    return Allreduce(comm, ONEBIT_ALLREDUCE_CONFIG_INIT(count), log).info();
}

} // namespace

TEST_CASE("a communicator's algorithm is what handles made afterwards are, until it is taken back", "[comm][set]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        Allreduce before(comm, flat_config(5001), log);
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_ALGORITHM", "ring"));
        const onebit_allreduce_info_t forced = info_of_auto(comm, log);
        ONEBIT_EXPECT(log, forced.algorithm == ONEBIT_ALGORITHM_RING);
        ONEBIT_EXPECT(log, holds(forced.reason, "ONEBIT_ALGORITHM=ring"));
        ONEBIT_EXPECT(log, before.info().algorithm == ONEBIT_ALGORITHM_FLAT);
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_ALGORITHM", ""));
        ONEBIT_EXPECT(log, !holds(info_of_auto(comm, log).reason, "ONEBIT_ALGORITHM"));
    });
}

TEST_CASE("what is set stands in the place of the environment, and leaves the rest of it", "[comm][set]") {
    const Variable algorithm("ONEBIT_ALGORITHM", "bruck");
    const Variable threads("ONEBIT_THREADS", "2");
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_ALGORITHM", "flat"));
        const onebit_allreduce_info_t info = info_of_auto(comm, log);
        ONEBIT_EXPECT(log, info.algorithm == ONEBIT_ALGORITHM_FLAT && info.threads == 2);
        // A setting of each rank's own: different on each rank.
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_THREADS", log.rank() == 0 ? "3" : "1"));
        ONEBIT_EXPECT(log, info_of_auto(comm, log).threads == (log.rank() == 0 ? 3U : 1U));
    });
}

TEST_CASE("a part has what was set for the whole", "[comm][set][split]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_ALGORITHM", "flat"));
        onebit_comm_t part = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_comm_split(comm, 0, 0, &part));
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_ALGORITHM", "dense"));
        ONEBIT_EXPECT(log, info_of_auto(part, log).algorithm == ONEBIT_ALGORITHM_FLAT);
        ONEBIT_EXPECT(log, info_of_auto(comm, log).algorithm == ONEBIT_ALGORITHM_DENSE);
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(part));
    });
}

TEST_CASE("a tuning table is taken over, and given up again", "[comm][set][tuning]") {
    const Variable deterministic("ONEBIT_DETERMINISTIC", "1");
    for_each_size(2, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        const std::string table = directory.prefix("table.json");
        ONEBIT_EXPECT_OK(log, onebit_comm_tune(comm, 4096, 0.05, table.c_str()));
        ONEBIT_EXPECT(log, holds(info_of_auto(comm, log).reason, "estimated"));
        // Rank 0 reads it, whatever the others name.
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_TUNING", log.rank() == 0 ? table.c_str() : "/nowhere"));
        ONEBIT_EXPECT(log, holds(info_of_auto(comm, log).reason, "tuned"));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_IO, "rank 0;/nowhere",
                              onebit_comm_set(comm, "ONEBIT_TUNING", log.rank() == 0 ? "/nowhere" : table.c_str()));
        ONEBIT_EXPECT(log, holds(info_of_auto(comm, log).reason, "tuned"));
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_TUNING", ""));
        ONEBIT_EXPECT(log, holds(info_of_auto(comm, log).reason, "estimated"));
    });
}

TEST_CASE("calls wait as long as was set", "[comm][set][failure]") {
    for_each_size(2, [](onebit_comm_t comm, RankLog& log) {
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_TIMEOUT", "0.5"));
        Allreduce reduce(comm, flat_config(1000), log);
        std::vector<float> values(1000, 1.0F);
        log.barrier();
        if (!log.last_rank()) {
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TIMEOUT,
                                 onebit_allreduce_run(reduce.get(), values.data(), values.data()));
        }
        log.barrier();
    });
}

TEST_CASE("what can't be set is refused on every rank, and nothing changes", "[comm][set][bad input]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_ALGORITHM", "flat"));
        const std::string who = ";rank " + std::to_string(log.size() - 1);
        const auto refused = [&](onebit_status_t status, const std::string& needles, const char* name,
                                 const char* value) { // on the last rank alone
            log.context(needles);
            ONEBIT_EXPECT_FAILURE(
                log, status, needles + who,
                log.last_rank() ? onebit_comm_set(comm, name, value) : onebit_comm_set(comm, "ONEBIT_PIECE", "8192"));
            ONEBIT_EXPECT(log, info_of_auto(comm, log).algorithm == ONEBIT_ALGORITHM_FLAT);
        };
        refused(ONEBIT_ERROR_INVALID_ARGUMENT, "name is NULL", nullptr, "1");
        refused(ONEBIT_ERROR_INVALID_ARGUMENT, "value is NULL", "ONEBIT_PIECE", nullptr);
        refused(ONEBIT_ERROR_INVALID_ARGUMENT, "ONEBIT_PEACE", "ONEBIT_PEACE", "1");
        refused(ONEBIT_ERROR_INVALID_ARGUMENT, "ONEBIT_PIECE=0", "ONEBIT_PIECE", "0");
        refused(ONEBIT_ERROR_INVALID_ARGUMENT, "ONEBIT_ALGORITHM=magic", "ONEBIT_ALGORITHM", "magic");
        refused(ONEBIT_ERROR_INVALID_ARGUMENT, "ONEBIT_KERNELS=mmx", "ONEBIT_KERNELS", "mmx");
        refused(ONEBIT_ERROR_UNSUPPORTED, "ONEBIT_NODE_SIZE", "ONEBIT_NODE_SIZE", "1");
        refused(ONEBIT_ERROR_UNSUPPORTED, "ONEBIT_TCP_ONLY", "ONEBIT_TCP_ONLY", "1");
        refused(ONEBIT_ERROR_UNSUPPORTED, "NCCL_HOSTID", "NCCL_HOSTID", "a");
        if (log.size() > 1) refused(ONEBIT_ERROR_MISMATCH, "variable to be set", "ONEBIT_THREADS", "1");
    });
}

TEST_CASE("settings that must agree are compared when a handle is created", "[comm][set][bad input]") {
    for_each_size(2, [](onebit_comm_t comm, RankLog& log) {
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_PIECE", log.last_rank() ? "8192" : "4096"));
        const onebit_allreduce_config_t config = flat_config(1000);
        onebit_allreduce_t handle = nullptr;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "ONEBIT_PIECE",
                              onebit_allreduce_create(comm, &config, &handle));
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_PIECE", "4096"));
        const Allreduce reduce(comm, config, log);
        ONEBIT_EXPECT(log, reduce.get() != nullptr);
    });
}

TEST_CASE("what is no communicator can't be set", "[comm][set][bad input]") {
    CHECK(onebit_comm_set(nullptr, "ONEBIT_PIECE", "4096") == ONEBIT_ERROR_INVALID_HANDLE);
}
