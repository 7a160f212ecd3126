// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "c_api/mpi/calls.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <mutex>

namespace onebit {
namespace {

using Handle = MpiCalls::Handle;

static_assert(MPI_SUCCESS == 0, "as every standard has it");
static_assert(MPI_MAX_ERROR_STRING <= MpiCalls::kLongestText && MPI_MAX_PROCESSOR_NAME <= MpiCalls::kLongestText);

MPI_Comm comm_of(Handle handle) {
    return from_handle<MPI_Comm>(handle);
}

/// A request lies in the first bytes of its handle, where MPI itself reads and writes it.
MPI_Request* request_in(Handle* handle) {
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ || sizeof(MPI_Request) == sizeof(Handle));
    return reinterpret_cast<MPI_Request*>(handle);
}

void (*finalize_hook)() = nullptr;

int call_finalize_hook(MPI_Comm /*self*/, int /*key*/, void* /*value*/, void* /*state*/) {
    finalize_hook();
    return MPI_SUCCESS;
}

/// MPI_Finalize begins by deleting the attributes of MPI_COMM_SELF.
int at_finalize(void (*call)()) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (finalize_hook != nullptr) return MPI_SUCCESS;
    int key = MPI_KEYVAL_INVALID;
    int code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call_finalize_hook, &key, nullptr);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
    if (code == MPI_SUCCESS) finalize_hook = call;
    MPI_Comm_free_keyval(&key); // the key lives as long as it is attached
    return code;
}

MpiCalls::ThreadLevel thread_level() {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (level >= MPI_THREAD_MULTIPLE) return MpiCalls::kMultiple;
    if (level >= MPI_THREAD_SERIALIZED) return MpiCalls::kSerialized;
    return level >= MPI_THREAD_FUNNELED ? MpiCalls::kFunneled : MpiCalls::kSingle;
}

bool is_main_thread() {
    int is_main = 0;
    MPI_Is_thread_main(&is_main);
    return is_main != 0;
}

/// Not every MPI can be asked.
bool is_cuda_aware() {
    auto* const query = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
    return query != nullptr && query() == 1;
}

void processor_name(char* text) {
    int length = 0;
    MPI_Get_processor_name(text, &length);
}

void error_text(int code, char* text) {
    int length = 0;
    MPI_Error_string(code, text, &length);
    std::replace(text, text + length, '\n', ' '); // MPICH writes a line for each of its functions
}

int comm_rank(Handle comm, int* rank) {
    return MPI_Comm_rank(comm_of(comm), rank);
}

int comm_size(Handle comm, int* size) {
    return MPI_Comm_size(comm_of(comm), size);
}

int comm_is_inter(Handle comm, int* is_inter) {
    return MPI_Comm_test_inter(comm_of(comm), is_inter);
}

int comm_idup(Handle comm, Handle* copy, Handle* request) {
    return MPI_Comm_idup(comm_of(comm), reinterpret_cast<MPI_Comm*>(copy), request_in(request));
}

int comm_free(Handle comm) {
    MPI_Comm freed = comm_of(comm);
    return MPI_Comm_free(&freed);
}

int errors_return(Handle comm, Handle* before) {
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    if (before != nullptr) {
        if (MPI_Comm_get_errhandler(comm_of(comm), &handler) != MPI_SUCCESS) handler = MPI_ERRHANDLER_NULL;
        *before = to_handle(handler);
    }
    return MPI_Comm_set_errhandler(comm_of(comm), MPI_ERRORS_RETURN);
}

void restore_errors(Handle comm, Handle before) {
    auto handler = from_handle<MPI_Errhandler>(before);
    if (handler == MPI_ERRHANDLER_NULL) return;
    MPI_Comm_set_errhandler(comm_of(comm), handler);
    MPI_Errhandler_free(&handler);
}

int isend(const void* data, int words, int peer, int tag, Handle comm, Handle* request) {
    return MPI_Isend(data, words, MPI_UINT32_T, peer, tag, comm_of(comm), request_in(request));
}

int irecv(void* data, int words, int peer, int tag, Handle comm, Handle* request) {
    return MPI_Irecv(data, words, MPI_UINT32_T, peer, tag, comm_of(comm), request_in(request));
}

#if defined(OPEN_MPI) // as below
int send_init(const void* data, int words, int peer, int tag, Handle comm, Handle* request) {
    return MPI_Send_init(data, words, MPI_UINT32_T, peer, tag, comm_of(comm), request_in(request));
}

int recv_init(void* data, int words, int peer, int tag, Handle comm, Handle* request) {
    return MPI_Recv_init(data, words, MPI_UINT32_T, peer, tag, comm_of(comm), request_in(request));
}

int start(Handle* request) {
    return MPI_Start(request_in(request));
}

int request_free(Handle* request) {
    return MPI_Request_free(request_in(request));
}
#endif

int test(Handle* request, int* done) {
    return MPI_Test(request_in(request), done, MPI_STATUS_IGNORE);
}

int probe_any(Handle comm) {
    int there = 0;
    return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_of(comm), &there, MPI_STATUS_IGNORE);
}

int probe(int tag, Handle comm, int* there, int* peer) {
    MPI_Status status;
    const int code = MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_of(comm), there, &status);
    if (code == MPI_SUCCESS && *there != 0) *peer = status.MPI_SOURCE;
    return code;
}

int recv(void* data, int words, int peer, int tag, Handle comm) {
    return MPI_Recv(data, words, MPI_UINT32_T, peer, tag, comm_of(comm), MPI_STATUS_IGNORE);
}

int last_tag() {
    int* most = nullptr;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &found);
    return found != 0 ? *most : 32767; // every MPI has at least this
}

} // namespace

bool mpi_is_up() {
    int initialized = 0;
    int finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized != 0 && finalized == 0;
}

MpiCalls mpi_calls() {
    MpiCalls calls;
    calls.comm_world = to_handle(MPI_COMM_WORLD);
    calls.comm_null = to_handle(MPI_COMM_NULL);
    calls.request_null = to_handle(MPI_REQUEST_NULL);
    calls.last_tag = last_tag();
    calls.at_finalize = at_finalize;
    calls.thread_level = thread_level;
    calls.is_main_thread = is_main_thread;
    calls.is_cuda_aware = is_cuda_aware;
    calls.processor_name = processor_name;
    calls.error_text = error_text;
    calls.comm_rank = comm_rank;
    calls.comm_size = comm_size;
    calls.comm_is_inter = comm_is_inter;
    calls.comm_idup = comm_idup;
    calls.comm_free = comm_free;
    calls.errors_return = errors_return;
    calls.restore_errors = restore_errors;
    calls.isend = isend;
    calls.irecv = irecv;
#if defined(OPEN_MPI)
    calls.send_init = send_init;
    calls.recv_init = recv_init;
    calls.start = start;
    calls.request_free = request_free;
#endif
    calls.test = test;
    calls.probe_any = probe_any;
    calls.probe = probe;
    calls.recv = recv;
    return calls;
}

} // namespace onebit
