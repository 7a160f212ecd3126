// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "support/emulated_nccl_world.hpp"

#include <sched.h>

namespace onebit_test::nccl {

World world;

namespace {

constexpr std::chrono::seconds kPatience(5); // then the ranks' calls don't match, and nobody will come any more

thread_local std::deque<std::shared_ptr<Task>> stream; // this thread's

/// Whether it is over, one way or the other.
bool run(Task& task) {
    if (task.done) return true;
    if (task.comm->busy > 0) return false;
    if (!task.step()) {
        if (Clock::now() - task.since < kPatience) return false;
        const std::string text = "rank " + std::to_string(task.comm->rank) + ": " + task.call + ": nobody answers";
        fail(task.comm, kInternalError, text);
        complain(text);
    }
    task.done = true;
    task.comm->task.reset();
    return true;
}

/// What this thread's stream can do now. Nobody overtakes.
void run_stream() {
    while (!stream.empty() && run(*std::shared_ptr<Task>(stream.front()))) stream.pop_front();
}

} // namespace

bool stream_is_busy() {
    return !stream.empty();
}

Result complain(const std::string& what) {
    world.complaints.push_back(what);
    return kInvalidUsage;
}

void fail(ncclComm* comm, Result error, const std::string& text) {
    comm->error = error;
    comm->text = text;
}

ncclComm* make_comm(std::shared_ptr<Team> team, int rank, bool blocking, bool users) {
    auto* const comm = new ncclComm{std::move(team), rank, blocking, users};
    world.living.insert(comm);
    return comm;
}

Result look(ncclComm* comm) {
    if (comm->busy > 0) {
        --comm->busy;
        return kInProgress;
    }
    run_stream();
    if (const std::shared_ptr<Task> task = comm->task; task != nullptr && !task->in_stream) run(*task);
    if (comm->error != kSuccess) return comm->error;
    return comm->task != nullptr ? kInProgress : kSuccess;
}

Result begin(ncclComm* comm, const char* call, bool in_stream, std::function<bool()> step) {
    {
        const Lock lock(world.mutex);
        if (in_stream && !stream.empty() && !stream.back()->done && stream.back()->comm->busy > 0) {
            complain(std::string(call) + " while another communicator has yet to put something into this stream");
        }
        comm->task = std::make_shared<Task>(Task{comm, call, in_stream, std::move(step)});
        if (in_stream) stream.push_back(comm->task);
        if (!comm->blocking) {
            comm->busy = world.busy_looks;
            return comm->busy > 0 ? kInProgress : look(comm);
        }
    }
    for (;;) {
        {
            const Lock lock(world.mutex);
            if (const Result state = look(comm); state != kInProgress) return state;
        }
        sched_yield();
    }
}

Result enter(ncclComm* comm, const std::string& call) {
    if (!world.living.contains(comm)) return complain(call + " on what is no communicator");
    if (comm->error != kSuccess) return comm->error;
    if (comm->task != nullptr || comm->busy > 0) return complain(call + " while another call is in progress");
    if (comm->finalized) return complain(call + " after ncclCommFinalize");
    return kSuccess;
}

} // namespace onebit_test::nccl
