// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace onebit {

/// What onebit asks of an MPI, without MPI's types, so that libonebit needs no MPI. A small library for each MPI fills
/// in this table (c_api/mpi/). Only these two libraries use the table, so it may change with every version. A handle is
/// MPI's own handle, in the bits of a number. Functions that return int return MPI's code; 0 is a success.
struct MpiCalls {
    using Handle = std::uintptr_t;
    enum ThreadLevel { kSingle, kFunneled, kSerialized, kMultiple };
    static constexpr std::size_t kLongestText = 2048;

    std::size_t size = sizeof(MpiCalls); ///< tells a library of another version

    Handle comm_world = 0;
    Handle comm_null = 0;
    Handle request_null = 0;
    int last_tag = 0; ///< the largest that this MPI has

    // ---- the process ----
    /// Has this called at the beginning of MPI_Finalize. Only the first time that it is asked to; from any thread.
    int (*at_finalize)(void (*call)()) = nullptr;
    ThreadLevel (*thread_level)() = nullptr;
    bool (*is_main_thread)() = nullptr;
    bool (*is_cuda_aware)() = nullptr;            ///< whether messages may lie in a GPU's memory
    void (*processor_name)(char* text) = nullptr; ///< of at most kLongestText, also in error_text
    void (*error_text)(int code, char* text) = nullptr;

    // ---- communicators ----
    int (*comm_rank)(Handle comm, int* rank) = nullptr;
    int (*comm_size)(Handle comm, int* size) = nullptr;
    int (*comm_is_inter)(Handle comm, int* is_inter) = nullptr;
    int (*comm_idup)(Handle comm, Handle* copy, Handle* request) = nullptr; ///< the request writes *copy
    int (*comm_free)(Handle comm) = nullptr;
    int (*errors_return)(Handle comm, Handle* before) = nullptr; ///< *before: its error handler until then
    void (*restore_errors)(Handle comm, Handle before) = nullptr;

    // ---- messages, in words of four bytes ----
    int (*isend)(const void* data, int words, int peer, int tag, Handle comm, Handle* request) = nullptr;
    int (*irecv)(void* data, int words, int peer, int tag, Handle comm, Handle* request) = nullptr;
    /// Starting a persistent request is quicker than making a new one by isend or irecv. All four are NULL for MPICH:
    /// it reports a failed MPI_Start to the program's own communicators, whose error handlers would end the program.
    int (*send_init)(const void* data, int words, int peer, int tag, Handle comm, Handle* request) = nullptr;
    int (*recv_init)(void* data, int words, int peer, int tag, Handle comm, Handle* request) = nullptr;
    int (*start)(Handle* request) = nullptr;
    int (*request_free)(Handle* request) = nullptr;
    int (*test)(Handle* request, int* done) = nullptr;
    int (*probe_any)(Handle comm) = nullptr;                                      ///< makes progress
    int (*probe)(int tag, Handle comm, int* there, int* peer) = nullptr;          ///< whether a peer's message is there
    int (*recv)(void* data, int words, int peer, int tag, Handle comm) = nullptr; ///< blocks
};

} // namespace onebit
