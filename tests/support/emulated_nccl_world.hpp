// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/nccl_api.hpp"

// The parts of the emulated NCCL below its functions: communicators, and the calls in progress on them.

namespace onebit_test::nccl {

using namespace onebit::nccl;
using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

using Inputs = std::map<int, Bytes>; // by rank

/// A call that all ranks make.
struct Meeting {
    Inputs inputs;               // of the ranks that have come
    std::set<std::string> calls; // the functions that they called
    int taken = 0;
};

struct Team;
struct SplitState {
    std::map<int, std::vector<std::pair<int, int>>> members; // (key, old rank), by color
    std::map<int, std::shared_ptr<Team>> teams;
    int joined = 0;
};

/// What the ranks of a communicator share.
struct Team {
    explicit Team(int n) : ranks(n) {}

    int ranks;
    int joined = 0;                                        // ranks that joined with an id
    int left = 0;                                          // finalised or aborted
    std::map<std::pair<int, int>, std::deque<Bytes>> mail; // by sender and receiver
    std::map<std::size_t, Meeting> meetings;               // by number
    std::map<std::size_t, SplitState> splits;
    std::string flaw{}; // its ranks' calls don't match, permanently
};

/// A call in progress.
struct Task {
    ncclComm* comm;
    std::string call;
    bool in_stream;
    std::function<bool()> step; // makes progress; whether the call is done now
    Clock::time_point since = Clock::now();
    bool done = false;
};

} // namespace onebit_test::nccl

struct ncclComm {
    std::shared_ptr<onebit_test::nccl::Team> team;
    int rank;
    bool blocking;
    bool users;
    int gpu;
    onebit::nccl::Result error = onebit::nccl::kSuccess;
    std::string text{};
    std::shared_ptr<onebit_test::nccl::Task> task{}; // in progress
    int busy = 0;                                    // looks that find the call in progress in any case
    bool finalized = false;
    std::size_t meetings = 0;
    std::size_t splits = 0;
};

namespace onebit_test::nccl {

struct World {
    std::recursive_mutex mutex;
    int busy_looks = 0;
    int aborted = 0;
    int ids = 0;
    std::set<ncclComm*> living;
    std::map<std::string, std::shared_ptr<Team>> teams_by_id;
    std::vector<std::string> complaints;
    std::map<std::string, int> calls; // by name: how many were made, on all ranks
};

/// An ncclSend or ncclRecv within a group.
struct Call {
    bool sends;
    void* data;
    std::size_t bytes;
    int peer;
    ncclComm* comm;
    bool done = false;
};

extern World world;

using Lock = std::lock_guard<std::recursive_mutex>;

/// Whether this thread's stream has unfinished work.
bool stream_is_busy();

/// Keeps the complaint for the end of the test.
Result complain(const std::string& what);
void fail(ncclComm* comm, Result error, const std::string& text);
/// On the GPU of that number.
ncclComm* make_comm(std::shared_ptr<Team> team, int rank, bool blocking, bool users, int gpu);

/// The communicator's state, after all progress that is possible now.
Result look(ncclComm* comm);
/// Begins a call, which is done once `step` returns true; waits for its end where the communicator blocks.
Result begin(ncclComm* comm, const char* call, bool in_stream, std::function<bool()> step);
/// Whether a call may be made on the communicator.
Result enter(ncclComm* comm, const std::string& call);

// The effects of the calls, when their turn comes in the stream. Each returns whether it is done.

/// A group's messages. `sent`: whether its messages have already been sent.
bool exchange(ncclComm* comm, std::vector<Call>& calls, bool* sent);
/// Leaves this rank's input for a call that all ranks make, and does take(inputs) once all ranks have come.
bool meet(ncclComm* comm, std::size_t number, const std::string& call, const void* input, std::size_t bytes,
          const std::function<void(const Inputs&)>& take);
void add_up(const Inputs& inputs, float* output, std::size_t count);
/// From each rank's input, the row that begins at byte `begin`.
void put_rows(const Inputs& inputs, std::size_t begin, std::byte* output, std::size_t bytes);
bool split(ncclComm* comm, std::size_t number, int color, int key, bool blocking, ncclComm** child, bool* joined);

} // namespace onebit_test::nccl
