// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "support/emulated_nccl_world.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "support/emulated_device.hpp"

namespace onebit_test::nccl {

World world;

namespace {

constexpr std::chrono::seconds kPatience(5); // after this time the ranks' calls are taken as mismatched

thread_local std::deque<std::shared_ptr<Task>> stream; // this thread's

/// Whether the task has ended, in success or failure.
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

/// Does the work of this thread's stream that is possible now, in order.
void run_stream() {
    while (!stream.empty() && run(*std::shared_ptr<Task>(stream.front()))) stream.pop_front();
}

/// Fails a call that waits for a rank whose call is another one.
bool is_flawed(ncclComm* comm) {
    const std::string& flaw = comm->team->flaw;
    if (!flaw.empty()) fail(comm, kInternalError, flaw);
    return !flaw.empty();
}

/// What is wrong about a call that all ranks must make, as one of them sees it; "" if nothing is.
std::string find_flaw(const ncclComm& comm, const Meeting& meeting, const std::string& call) {
    if (meeting.calls.size() > 1) return *meeting.calls.begin() + " where others call " + *meeting.calls.rbegin();
    for (const auto& [way, mail] : comm.team->mail) {
        // This rank has received all messages that the ranks in the meeting sent before it.
        if (way.second != comm.rank || mail.empty() || meeting.inputs.contains(way.first)) continue;
        return "rank " + std::to_string(way.first) + " sends messages where rank " + std::to_string(comm.rank) +
               " calls " + call;
    }
    return {};
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

ncclComm* make_comm(std::shared_ptr<Team> team, int rank, bool blocking, bool users, int gpu) {
    auto* const comm = new ncclComm{std::move(team), rank, blocking, users, gpu};
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
        ++world.calls[call];
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

// ------------------------------------------------------------------------------------------- what calls do ----

bool exchange(ncclComm* comm, std::vector<Call>& calls, bool* sent) {
    onebit_test::finish_copies(); // all that the stream was given before is done
    Team& team = *comm->team;
    for (const Call& call : calls) {
        if (*sent || !call.sends) continue;
        const std::byte* const data = onebit_test::on_device(static_cast<const std::byte*>(call.data));
        team.mail[{comm->rank, call.peer}].emplace_back(data, data + call.bytes);
    }
    *sent = true;
    if (is_flawed(comm)) return true;
    std::set<int> waited_for; // messages come in order
    for (Call& call : calls) {
        if (call.sends || call.done || waited_for.contains(call.peer)) continue;
        std::deque<Bytes>& mail = team.mail[{call.peer, comm->rank}];
        if (mail.empty()) {
            waited_for.insert(call.peer);
            continue;
        }
        if (mail.front().size() != call.bytes) {
            const std::string text = "rank " + std::to_string(call.peer) + " sent " +
                                     std::to_string(mail.front().size()) + " bytes where rank " +
                                     std::to_string(comm->rank) + " expected " + std::to_string(call.bytes);
            complain(text);
            fail(comm, kInternalError, text);
            return true;
        }
        std::memcpy(onebit_test::on_device(static_cast<std::byte*>(call.data)), mail.front().data(), call.bytes);
        mail.pop_front();
        call.done = true;
    }
    return waited_for.empty();
}

bool meet(ncclComm* comm, std::size_t number, const std::string& call, const void* input, std::size_t bytes,
          const std::function<void(const Inputs&)>& take) {
    onebit_test::finish_copies();
    Meeting& meeting = comm->team->meetings[number];
    if (!meeting.inputs.contains(comm->rank)) {
        const auto* const data = onebit_test::on_device(static_cast<const std::byte*>(input));
        meeting.inputs[comm->rank].assign(data, data + bytes);
        meeting.calls.insert(call + " of " + std::to_string(bytes) + " bytes");
    }
    if (const std::string flaw = find_flaw(*comm, meeting, call); !flaw.empty()) {
        complain(flaw);
        comm->team->flaw = flaw;
    }
    if (is_flawed(comm)) return true;
    const auto ranks = static_cast<std::size_t>(comm->team->ranks);
    if (meeting.inputs.size() < ranks) return false;
    take(std::as_const(meeting.inputs));
    if (++meeting.taken == comm->team->ranks) comm->team->meetings.erase(number);
    return true;
}

void add_up(const Inputs& inputs, float* output, std::size_t count) {
    output = onebit_test::on_device(output);
    for (std::size_t i = 0; i < count; ++i) {
        float total = 0;
        for (const auto& [rank, input] : inputs) {
            float value = 0;
            std::memcpy(&value, input.data() + i * sizeof(float), sizeof(float));
            total += value;
        }
        output[i] = total;
    }
}

void put_rows(const Inputs& inputs, std::size_t begin, std::byte* output, std::size_t bytes) {
    for (const auto& [rank, input] : inputs) {
        std::memcpy(onebit_test::on_device(output + static_cast<std::size_t>(rank) * bytes), input.data() + begin,
                    bytes);
    }
}

bool split(ncclComm* comm, std::size_t number, int color, int key, bool blocking, ncclComm** child, bool* joined) {
    SplitState& state = comm->team->splits[number];
    if (!*joined) {
        state.members[color].emplace_back(key, comm->rank);
        ++state.joined;
        *joined = true;
    }
    if (state.joined < comm->team->ranks) return false;
    std::vector<std::pair<int, int>>& members = state.members[color];
    std::sort(members.begin(), members.end());
    std::shared_ptr<Team>& team = state.teams[color];
    if (team == nullptr) team = std::make_shared<Team>(static_cast<int>(members.size()));
    const auto place = std::find(members.begin(), members.end(), std::pair(key, comm->rank)) - members.begin();
    *child = make_comm(team, static_cast<int>(place), blocking, false, comm->gpu);
    return true;
}

} // namespace onebit_test::nccl
