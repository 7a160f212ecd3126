// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Communicators over MPI: the MPI communicators that they accept and refuse.
#include <onebit/onebit_mpi.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "support/child.hpp"
#include "support/directory.hpp"
#include "support/environment.hpp"
#include "support/handles.hpp"

using namespace onebit_test;

namespace {

// The reason for the choice of the AUTO handle of `count` elements.
std::string reason_of_auto(onebit_comm_t comm, RankLog& log, std::uint64_t count) {
    const onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
    const onebit_allreduce_info_t info = Allreduce(comm, config, log).info();
    ONEBIT_EXPECT(log, log.same_on_all(&info.algorithm, sizeof info.algorithm));
    return info.reason;
}

bool contains(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("a communicator outlives the MPI communicator that it was made of", "[comm][mpi]") {
    run_ranks(rank_counts().front(), [](onebit_comm_t, RankLog& log) {
        MPI_Comm reversed = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, 0, -log.rank(), &reversed);
        onebit_comm_t comm = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_comm_create_mpi(reversed, &comm));
        MPI_Comm_free(&reversed);
        int rank = -1;
        ONEBIT_EXPECT_OK(log, onebit_comm_rank(comm, &rank));
        ONEBIT_EXPECT(log, rank == log.size() - 1 - log.rank());
        {
            Allreduce reduce(comm, flat_config(1000), log);
            const std::vector<float> average = reduce.run(std::vector<float>(1000, 1.0f));
            ONEBIT_EXPECT(log, average.front() == 1.0f && average.back() == 1.0f);
        }
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));
    });
}

TEST_CASE("handles take none of what an MPI has few of", "[comm][mpi][handles]") {
    run_ranks(rank_counts().front(), [](onebit_comm_t comm, RankLog& log) {
        constexpr std::size_t kHandles = 10000; // MPICH has contexts for some 2000 communicators
        std::vector<onebit_allreduce_t> handles(kHandles);
        const onebit_allreduce_config_t config = flat_config(static_cast<std::uint64_t>(log.size()));
        std::size_t created = 0;
        for (onebit_allreduce_t& handle : handles) {
            created += onebit_allreduce_create(comm, &config, &handle) == ONEBIT_SUCCESS ? 1 : 0;
        }
        ONEBIT_EXPECT(log, created == kHandles);
        const std::vector<float> values(static_cast<std::size_t>(log.size()), 2.0F);
        std::vector<float> average(values.size());
        for (const std::size_t which : {std::size_t{0}, kHandles / 2, kHandles - 1}) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(handles[which], values.data(), average.data()));
            ONEBIT_EXPECT(log, average == values);
        }
        for (onebit_allreduce_t handle : handles) (void)onebit_allreduce_destroy(handle);
    });
}

TEST_CASE("a forked child is told at once that MPI is its parent's, and computes in one process",
          "[comm][mpi][threads]") {
    run_ranks(rank_counts().front(), [](onebit_comm_t comm, RankLog& log) {
        const std::string wrong = in_child([&]() -> std::string {
            onebit_comm_t made = nullptr;
            int rank = 0;
            if (onebit_comm_create_mpi(MPI_COMM_WORLD, &made) != ONEBIT_ERROR_TRANSPORT) return "made one";
            if (!holds(onebit_last_error(), "MPI;fork;parent")) return onebit_last_error();
            if (onebit_comm_rank(comm, &rank) != ONEBIT_ERROR_INVALID_HANDLE) return "used the parent's";
            if (onebit_comm_destroy(comm) != ONEBIT_SUCCESS) return onebit_last_error();
            if (onebit_comm_create_loopback(1, &made) != ONEBIT_SUCCESS) return onebit_last_error();
            if (onebit_comm_destroy(made) != ONEBIT_SUCCESS) return onebit_last_error();
            return "";
        });
        log.expect(wrong.empty(), wrong, __FILE__, __LINE__);
        Allreduce reduce(comm, flat_config(1000), log); // the parent's own is as it was
        reduce.run(std::vector<float>(1000, 1.0f));
    });
}

TEST_CASE("communicators over MPI: bad arguments", "[comm][mpi][bad input]") {
    run_ranks(rank_counts().front(), [](onebit_comm_t, RankLog& log) {
        onebit_comm_t comm = nullptr;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "MPI_COMM_NULL",
                              onebit_comm_create_mpi(MPI_COMM_NULL, &comm));
        for (int faulty = 0; faulty < log.size(); ++faulty) {
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT,
                                  "rank " + std::to_string(faulty) + ";comm is NULL",
                                  onebit_comm_create_mpi(MPI_COMM_WORLD, log.rank() == faulty ? nullptr : &comm));
            ONEBIT_EXPECT(log, comm == nullptr);
        }
        if (log.size() < 2) return;
        MPI_Comm half = MPI_COMM_NULL;
        MPI_Comm inter = MPI_COMM_NULL;
        const int side = log.rank() == 0 ? 0 : 1;
        MPI_Comm_split(MPI_COMM_WORLD, side, log.rank(), &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, side == 0 ? 1 : 0, 7, &inter);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "intercommunicator",
                              onebit_comm_create_mpi(inter, &comm));
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    });
}

TEST_CASE("a bad environment variable on one rank is said on all", "[comm][mpi][bad input]") {
    run_ranks(rank_counts().front(), [](onebit_comm_t, RankLog& log) {
        if (log.last_rank()) setenv("ONEBIT_KERNELS", "mmx", 1);
        onebit_comm_t comm = nullptr;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT,
                              "rank " + std::to_string(log.size() - 1) + ";ONEBIT_KERNELS=mmx",
                              onebit_comm_create_mpi(MPI_COMM_WORLD, &comm));
        unsetenv("ONEBIT_KERNELS");
    });
}

TEST_CASE("a tuning table is read by rank 0 for all", "[comm][mpi][tuning]") {
    run_ranks(rank_counts().front(), [](onebit_comm_t measured, RankLog& log) {
        const SharedDirectory directory(log);
        const std::string path = directory.prefix("table.json");
        ONEBIT_EXPECT_OK(log, onebit_comm_tune(measured, 1000, 0.05, path.c_str()));
        setenv("ONEBIT_TUNING", log.rank() == 0 ? path.c_str() : "/no such file on this node.json", 1);
        onebit_comm_t comm = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_comm_create_mpi(MPI_COMM_WORLD, &comm));
        {
            const onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(700);
            const onebit_allreduce_info_t info = Allreduce(comm, config, log).info();
            const std::string reason = info.reason;
            ONEBIT_EXPECT(log, log.size() == 1 || reason.find("(tuned)") != std::string::npos);
            ONEBIT_EXPECT(log, log.same_on_all(&info.algorithm, sizeof info.algorithm));
        }
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));

        log.barrier();
        if (log.rank() == 0) std::ofstream(path) << "{\"format\": \"onebit tuning table\", \"vers";
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "rank 0;table.json;not JSON",
                              onebit_comm_create_mpi(MPI_COMM_WORLD, &comm));
        unsetenv("ONEBIT_TUNING");
    });
}

TEST_CASE("without a table the first AUTO handle that may gain from it measures", "[comm][mpi][tuning]") {
    run_ranks(rank_counts().front(), [](onebit_comm_t comm, RankLog& log) {
        if (log.size() == 1) {
            ONEBIT_EXPECT(log, contains(reason_of_auto(comm, log, 50000), "one rank"));
            return;
        }
        ONEBIT_EXPECT(log, contains(reason_of_auto(comm, log, 1000), "(estimated)")); // too few to bother
        const std::string first = reason_of_auto(comm, log, 50000);
        ONEBIT_EXPECT(log, contains(first, "(measured at the start"));
        ONEBIT_EXPECT(log, reason_of_auto(comm, log, 50000) == first); // the numbers of the one time
        ONEBIT_EXPECT(log, contains(reason_of_auto(comm, log, 1000), "(measured at the start"));
        // A larger handle measures further, unless 4 MiB exceeded the time limit; earlier measurements stay.
        const std::string of_last_row = reason_of_auto(comm, log, 1 << 20);
        double dense_us = 0;
        double pipelined_us = 0;
        const int read = std::sscanf(of_last_row.c_str(), "1048576 elements: dense %lf us, pipelined %lf us", &dense_us,
                                     &pipelined_us);
        ONEBIT_EXPECT(log, read == 2);
        const bool patient = contains(first, "to 1048576 elements") && dense_us + pipelined_us < 19.5e3;
        const bool impatient = !contains(first, "to 1048576 elements") || dense_us + pipelined_us > 20.5e3;
        const bool further = contains(reason_of_auto(comm, log, (1 << 20) + 1), "to 4194304 elements");
        ONEBIT_EXPECT(log, !patient || further);
        ONEBIT_EXPECT(log, !impatient || !further);
        const std::string again = reason_of_auto(comm, log, 50000);
        ONEBIT_EXPECT(log, again.substr(0, again.find("(measured")) == first.substr(0, first.find("(measured")));
        ONEBIT_EXPECT_OK(log, onebit_comm_tune(comm, 3000, 0.05, nullptr));
        ONEBIT_EXPECT(log, contains(reason_of_auto(comm, log, 50000), "(measured)"));
    });
}

TEST_CASE("ONEBIT_MEASURE=0 leaves AUTO to the estimate, on all ranks or on none", "[comm][mpi][tuning][bad input]") {
    run_ranks(rank_counts().front(), [](onebit_comm_t, RankLog& log) {
        onebit_comm_t comm = nullptr;
        {
            const Variable measure("ONEBIT_MEASURE", "0");
            ONEBIT_EXPECT_OK(log, onebit_comm_create_mpi(MPI_COMM_WORLD, &comm));
        }
        ONEBIT_EXPECT(log, log.size() == 1 || contains(reason_of_auto(comm, log, 50000), "(estimated)"));
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));
        if (log.size() == 1) return;
        {
            const Variable measure("ONEBIT_MEASURE", log.last_rank() ? "0" : "1");
            ONEBIT_EXPECT_OK(log, onebit_comm_create_mpi(MPI_COMM_WORLD, &comm));
        }
        const onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(50000);
        onebit_allreduce_t allreduce = nullptr;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "ONEBIT_MEASURE",
                              onebit_allreduce_create(comm, &config, &allreduce));
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));
    });
}
