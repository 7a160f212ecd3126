// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Ranks that are MPI processes.
#include <mpi.h>
#include <onebit/onebit_mpi.h>

#include <thread>

#include "support/rank_runner.hpp"

namespace onebit_test {

namespace {

int world_size() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

// There are more ranks than cores: a rank that waits must let the others work. MPICH's own wait doesn't.
void wait_politely(MPI_Request* request) {
    for (int done = 0; done == 0;) {
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (done == 0) std::this_thread::yield();
    }
}

std::vector<Bytes> mpi_exchange(const Bytes& mine) {
    const int bytes = static_cast<int>(mine.size());
    std::vector<int> lengths(static_cast<std::size_t>(world_size())), offsets(lengths.size());
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallgather(&bytes, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD, &request);
    wait_politely(&request);
    int total = 0;
    for (std::size_t r = 0; r < lengths.size(); ++r) {
        offsets[r] = total;
        total += lengths[r];
    }
    Bytes flat(static_cast<std::size_t>(total));
    MPI_Iallgatherv(mine.data(), bytes, MPI_BYTE, flat.data(), lengths.data(), offsets.data(), MPI_BYTE, MPI_COMM_WORLD,
                    &request);
    wait_politely(&request);
    std::vector<Bytes> all;
    for (std::size_t r = 0; r < lengths.size(); ++r)
        all.emplace_back(flat.begin() + offsets[r], flat.begin() + offsets[r] + lengths[r]);
    return all;
}

} // namespace

std::vector<int> rank_counts() {
    return {world_size()};
}

bool calls_are_quick() {
    return false;
}

bool can_have_ranks(int n) {
    return n == world_size();
}

const char* transport_name() {
    return "mpi";
}

bool threads_allowed() {
    int provided = MPI_THREAD_SINGLE;
    MPI_Query_thread(&provided);
    return provided == MPI_THREAD_MULTIPLE;
}

void run_ranks(int n, const Body& body) {
    REQUIRE(can_have_ranks(n));
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    RankLog log(rank, n, mpi_exchange);
    run_watched({&log}, [&] {
        onebit_comm_t comm = nullptr;
        if (ONEBIT_EXPECT_OK(log, onebit_comm_create_mpi(MPI_COMM_WORLD, &comm))) run_body(body, comm, log);
        if (!log.comm_gone()) ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));
    });
    const bool good = log.failed() == 0;
    bool all_good = true;
    for (const Bytes& other : log.gather_bytes(&good, sizeof good)) all_good = all_good && other.front() != 0;
    report(log);
    if (good && !all_good) FAIL_CHECK("another rank failed");
}

} // namespace onebit_test
