// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank's message is put into its team's mail when the send's turn comes in the stream. The receiver takes it when the
// turn of the receive comes. Everything happens under one lock, in calls of the rank concerned.

#include "support/emulated_nccl.hpp"

#include <cstring>

#include "support/catch2.hpp"
#include "support/emulated_device.hpp"
#include "support/emulated_nccl_world.hpp"

namespace onebit_test {
namespace nccl {
namespace {

thread_local int group_depth = 0;
thread_local std::vector<Call> group_calls;

/// It is the memory of the communicator's GPU.
void check_memory(const char* call, const ncclComm* comm, const void* memory, std::size_t bytes) {
    onebit::cuda::Place place;
    const bool found = onebit_test::is_on_device(memory, bytes) && onebit::cuda::place_of(memory, &place).ok();
    if (!found || place.device != comm->gpu) complain(std::string(call) + " of memory that isn't the GPU's");
}

void check_stream(const char* call, const ncclComm* comm, onebit::cuda::Stream stream) {
    int gpu = comm->gpu; // where the default stream is its own
    if (stream != nullptr) (void)onebit::cuda::device_of(stream, &gpu);
    if (gpu != comm->gpu) {
        complain(std::string(call) + " in a stream of another GPU");
    }
}

bool nonblocking(const Config* config) {
    if (config->size != sizeof(Config) || config->magic != 0xcafebeef || config->version < 21900) {
        complain("a config that was not initialised");
    }
    return config->blocking == 0;
}

// -------------------------------------------------------------------------------------------------- the functions ----

Result get_version(int* version) {
    *version = 22809;
    return kSuccess;
}

const char* get_error_string(Result result) {
    if (result == kRemoteError) return "remote error";
    return result == kInvalidUsage ? "invalid usage" : "internal error";
}

const char* get_last_error(ncclComm* comm) {
    const Lock lock(world.mutex);
    return world.living.contains(comm) ? comm->text.c_str() : "";
}

Result get_unique_id(UniqueId* id) {
    const Lock lock(world.mutex);
    std::memset(id, 0, sizeof(*id));
    std::snprintf(id->internal, sizeof(id->internal), "team %d", ++world.ids);
    return kSuccess;
}

Result comm_init_rank_config(ncclComm** comm, int ranks, UniqueId id, int rank, Config* config) {
    const Lock lock(world.mutex);
    std::shared_ptr<Team>& team = world.teams_by_id[id.internal];
    if (team == nullptr) team = std::make_shared<Team>(ranks);
    if (team->ranks != ranks || rank >= ranks) return complain("ncclCommInitRankConfig: another number of ranks");
    ncclComm* const made = make_comm(team, rank, !nonblocking(config), false, current_gpu());
    *comm = made;
    ++team->joined;
    return begin(made, "ncclCommInitRankConfig", false, [made] { return made->team->joined == made->team->ranks; });
}

Result comm_split(ncclComm* comm, int color, int key, ncclComm** child, Config* config) {
    bool child_blocks = true;
    std::size_t number = 0;
    {
        const Lock lock(world.mutex);
        if (const Result state = enter(comm, "ncclCommSplit"); state != kSuccess) return state;
        if (stream_is_busy()) complain("ncclCommSplit with an operation outstanding");
        child_blocks = !nonblocking(config);
        number = comm->splits++;
    }
    *child = nullptr;
    const Result state = begin(comm, "ncclCommSplit", false, [=, joined = false]() mutable {
        return split(comm, number, color, key, child_blocks, child, &joined);
    });
    return state == kInProgress ? kSuccess : state; // as some versions do
}

Result comm_get_async_error(ncclComm* comm, Result* error) {
    const Lock lock(world.mutex);
    if (!world.living.contains(comm)) return complain("ncclCommGetAsyncError on what is no communicator");
    *error = look(comm);
    return kSuccess;
}

Result comm_count(ncclComm* comm, int* ranks) {
    const Lock lock(world.mutex);
    if (const Result state = enter(comm, "ncclCommCount"); state != kSuccess) return state;
    *ranks = comm->team->ranks;
    return kSuccess;
}

Result comm_cu_device(ncclComm* comm, int* device) {
    const Lock lock(world.mutex);
    if (const Result state = enter(comm, "ncclCommCuDevice"); state != kSuccess) return state;
    *device = comm->gpu;
    return kSuccess;
}

Result comm_user_rank(ncclComm* comm, int* rank) {
    const Lock lock(world.mutex);
    if (const Result state = enter(comm, "ncclCommUserRank"); state != kSuccess) return state;
    *rank = comm->rank;
    return kSuccess;
}

void leave(ncclComm* comm) {
    if (comm->task != nullptr) comm->task->done = true;
    if (!comm->finalized) ++comm->team->left;
    world.living.erase(comm);
    delete comm;
}

Result comm_finalize(ncclComm* comm) {
    const Lock lock(world.mutex);
    if (const Result state = enter(comm, "ncclCommFinalize"); state != kSuccess) return state;
    ++comm->team->left;
    comm->finalized = true;
    return begin(comm, "ncclCommFinalize", false, [comm] { return comm->team->left == comm->team->ranks; });
}

Result comm_destroy(ncclComm* comm) {
    const Lock lock(world.mutex);
    if (!world.living.contains(comm)) return complain("ncclCommDestroy on what is no communicator");
    if (comm->task != nullptr || comm->busy > 0) complain("ncclCommDestroy while another call is in progress");
    if (comm->users) complain("ncclCommDestroy of the user's own");
    for (const auto& [way, mail] : comm->team->mail) {
        if (way.second == comm->rank && !mail.empty()) complain("messages that nobody has received");
    }
    leave(comm);
    return kSuccess;
}

Result comm_abort(ncclComm* comm) {
    const Lock lock(world.mutex);
    if (!world.living.contains(comm)) return complain("ncclCommAbort on what is no communicator");
    if (comm->users) complain("ncclCommAbort of the user's own");
    ++world.aborted;
    leave(comm);
    return kSuccess;
}

Result group_start() {
    ++group_depth;
    return kSuccess;
}

Result group_end() {
    const Lock lock(world.mutex);
    if (group_depth == 0) return complain("ncclGroupEnd without ncclGroupStart");
    if (--group_depth > 0 || group_calls.empty()) return kSuccess;
    std::vector<Call> calls;
    calls.swap(group_calls);
    ncclComm* const comm = calls.front().comm;
    for (const Call& call : calls) {
        if (call.comm != comm) return complain("a group of several communicators");
    }
    return begin(comm, "ncclGroupEnd", true, [=, sent = false]() mutable { return exchange(comm, calls, &sent); });
}

Result add_to_group(const char* name, const Call& call, onebit::cuda::Stream stream) {
    const Lock lock(world.mutex);
    if (const Result state = enter(call.comm, name); state != kSuccess) return state;
    if (group_depth == 0) return complain(std::string(name) + " outside a group");
    if (call.peer < 0 || call.peer >= call.comm->team->ranks) return complain(std::string(name) + ": no such rank");
    check_memory(name, call.comm, call.data, call.bytes);
    check_stream(name, call.comm, stream);
    group_calls.push_back(call);
    return kSuccess;
}

Result send(const void* data, std::size_t count, DataType type, int peer, ncclComm* comm, onebit::cuda::Stream stream) {
    if (type != kUint8) return complain("ncclSend of what is no bytes");
    return add_to_group("ncclSend", {true, const_cast<void*>(data), count, peer, comm}, stream);
}

Result recv(void* data, std::size_t count, DataType type, int peer, ncclComm* comm, onebit::cuda::Stream stream) {
    if (type != kUint8) return complain("ncclRecv of what is no bytes");
    return add_to_group("ncclRecv", {false, data, count, peer, comm}, stream);
}

/// The common part of all calls of all ranks.
Result enter_joint_call(const char* name, const void* input, std::size_t in_bytes, const void* output,
                        std::size_t out_bytes, ncclComm* comm, onebit::cuda::Stream stream) {
    if (const Result state = enter(comm, name); state != kSuccess) return state;
    if (group_depth > 0) return complain(std::string(name) + " inside a group");
    if (in_bytes == 0) return complain(std::string(name) + " of nothing");
    check_memory(name, comm, input, in_bytes);
    check_memory(name, comm, output, out_bytes);
    check_stream(name, comm, stream);
    return kSuccess;
}

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
    const auto* const first = static_cast<const std::byte*>(a);
    const auto* const second = static_cast<const std::byte*>(b);
    return first < second + b_bytes && second < first + a_bytes;
}

Result all_reduce(const void* input, void* output, std::size_t count, DataType type, RedOp, ncclComm* comm,
                  onebit::cuda::Stream stream) {
    constexpr const char* kName = "ncclAllReduce";
    const Lock lock(world.mutex);
    if (type != kFloat32) return complain("ncclAllReduce of what is no floats");
    const std::size_t bytes = count * sizeof(float);
    if (const Result state = enter_joint_call(kName, input, bytes, output, bytes, comm, stream); state != kSuccess)
        return state;
    return begin(comm, kName, true, [=, number = comm->meetings++] {
        return meet(comm, number, kName, input, bytes,
                    [&](const Inputs& inputs) { add_up(inputs, static_cast<float*>(output), count); });
    });
}

Result all_gather(const void* input, void* output, std::size_t count, DataType type, ncclComm* comm,
                  onebit::cuda::Stream stream) {
    constexpr const char* kName = "ncclAllGather";
    const Lock lock(world.mutex);
    if (type != kUint8) return complain("ncclAllGather of what is no bytes");
    const std::size_t all = count * static_cast<std::size_t>(comm->team->ranks);
    auto* const to = static_cast<std::byte*>(output);
    if (const Result state = enter_joint_call(kName, input, count, output, all, comm, stream); state != kSuccess)
        return state;
    if (input != to + static_cast<std::size_t>(comm->rank) * count && overlap(input, count, output, all)) {
        return complain("ncclAllGather neither in place nor out of it");
    }
    return begin(comm, kName, true, [=, number = comm->meetings++] {
        return meet(comm, number, kName, input, count, [&](const Inputs& inputs) { put_rows(inputs, 0, to, count); });
    });
}

Result all_to_all(const void* input, void* output, std::size_t count, DataType type, ncclComm* comm,
                  onebit::cuda::Stream stream) {
    constexpr const char* kName = "ncclAlltoAll";
    const Lock lock(world.mutex);
    if (type != kUint8) return complain("ncclAlltoAll of what is no bytes");
    const std::size_t all = count * static_cast<std::size_t>(comm->team->ranks);
    if (const Result state = enter_joint_call(kName, input, all, output, all, comm, stream); state != kSuccess)
        return state;
    if (overlap(input, all, output, all)) return complain("ncclAlltoAll in place");
    return begin(comm, kName, true, [=, number = comm->meetings++] {
        return meet(comm, number, kName, input, all, [&](const Inputs& inputs) {
            put_rows(inputs, static_cast<std::size_t>(comm->rank) * count, static_cast<std::byte*>(output), count);
        });
    });
}

} // namespace
} // namespace nccl

using nccl::Lock;
using nccl::world;

EmulatedNccl::EmulatedNccl(int busy_looks) {
    world.busy_looks = busy_looks;
    world.aborted = 0;
    world.calls.clear();
}

EmulatedNccl::~EmulatedNccl() {
    int leaked = 0;
    for (const ncclComm* comm : world.living) {
        if (!comm->users) ++leaked;
        delete comm;
    }
    world.living.clear();
    world.teams_by_id.clear();
    CHECK(leaked == 0);
    CHECK(take_complaints() == std::vector<std::string>());
}

const onebit::NcclApi& EmulatedNccl::api() {
    static const onebit::NcclApi table = [] {
        onebit::NcclApi api;
        api.get_version = nccl::get_version;
        api.get_error_string = nccl::get_error_string;
        api.get_last_error = nccl::get_last_error;
        api.get_unique_id = nccl::get_unique_id;
        api.comm_init_rank_config = nccl::comm_init_rank_config;
        api.comm_split = nccl::comm_split;
        api.comm_get_async_error = nccl::comm_get_async_error;
        api.comm_count = nccl::comm_count;
        api.comm_cu_device = nccl::comm_cu_device;
        api.comm_user_rank = nccl::comm_user_rank;
        api.comm_finalize = nccl::comm_finalize;
        api.comm_destroy = nccl::comm_destroy;
        api.comm_abort = nccl::comm_abort;
        api.group_start = nccl::group_start;
        api.group_end = nccl::group_end;
        api.send = nccl::send;
        api.recv = nccl::recv;
        api.all_reduce = nccl::all_reduce;
        api.all_gather = nccl::all_gather;
        api.all_to_all = nccl::all_to_all;
        return api;
    }();
    return table;
}

const onebit::NcclApi& EmulatedNccl::older_api() {
    static const onebit::NcclApi table = [] {
        onebit::NcclApi api = EmulatedNccl::api();
        api.all_to_all = nullptr;
        return api;
    }();
    return table;
}

int EmulatedNccl::calls(const std::string& name) {
    const Lock lock(world.mutex);
    const auto found = world.calls.find(name);
    return found == world.calls.end() ? 0 : found->second;
}

std::vector<ncclComm*> EmulatedNccl::make_comms(int ranks, bool blocking) {
    const Lock lock(world.mutex);
    const auto team = std::make_shared<nccl::Team>(ranks);
    std::vector<ncclComm*> comms;
    for (int rank = 0; rank < ranks; ++rank) comms.push_back(nccl::make_comm(team, rank, blocking, true, 0));
    return comms;
}

void EmulatedNccl::fail(int rank, onebit::nccl::Result error, const std::string& text) {
    const Lock lock(world.mutex);
    for (ncclComm* comm : world.living) {
        if (!comm->users && comm->rank == rank) nccl::fail(comm, error, text);
    }
}

int EmulatedNccl::aborted() {
    const Lock lock(world.mutex);
    return world.aborted;
}

std::vector<std::string> EmulatedNccl::take_complaints() {
    const Lock lock(world.mutex);
    std::vector<std::string> taken;
    taken.swap(world.complaints);
    return taken;
}

} // namespace onebit_test
