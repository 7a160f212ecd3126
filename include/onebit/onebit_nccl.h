/*
 * onebit_nccl.h - communicators for values in GPUs' memory, over NCCL and any other transport that suits the machines.
 *
 * Copyright 2026 The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * This header needs neither nccl.h nor cuda_runtime.h. It may be included with both, in any order.
 */
#ifndef ONEBIT_ONEBIT_NCCL_H
#define ONEBIT_ONEBIT_NCCL_H

#include <onebit/onebit.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The same declarations as NCCL's and CUDA's; C11 and C++ allow repeating them. */
typedef struct ncclComm* ncclComm_t;
typedef struct CUstream_st* cudaStream_t;

/* Makes a communicator of the ranks of an NCCL communicator, one GPU each. The call splits a communicator of the same
 * ranks off nccl_comm (ncclCommSplit): nothing is sent on the caller's own, which may be destroyed. Each handle made
 * from the new communicator splits one off, too. The current device doesn't matter, here and in later calls, unless
 * stream is NULL. No NCCL group may be open. NCCL errors come back as ONEBIT_ERROR_TRANSPORT, from the call that meets
 * them or from a later one.
 * Values of its handles lie in a GPU's memory (config.memory: ONEBIT_MEMORY_CUDA; other memory, and onebit_comm_tune,
 * are UNSUPPORTED). config.stream is `stream`, or NULL, which stands for `stream`. Exchanges are the stream's work:
 * onebit_allreduce_start puts all of the work into the stream, as run does, and test and wait only report its outcome.
 * Only two things wait for the stream: the check of values (start and run), and the end of a compressed call (wait, and
 * run; with ONEBIT_CHECK_NONE the handle's next call). One thread at a time uses the communicator and all that is made
 * from it, and all ranks make their calls in the same order. All this holds for optimizers, too; with bucket_size they
 * are UNSUPPORTED over NCCL.
 * Collective; blocks. The call blocks for no longer than ONEBIT_TIMEOUT if nccl_comm was made with config.blocking = 0.
 * Otherwise a rank that fails before it splits, or never comes, leaves the other ranks waiting. A call with
 * ONEBIT_CHECK_NONE waits, within ONEBIT_TIMEOUT, until NCCL has taken the call's work into the stream. It doesn't wait
 * for NCCL's work in the stream.
 * If a rank is waited for in vain, or anything else breaks a handle, the work of all that is made from the communicator
 * is ended (ncclCommAbort), so that the stream goes on.
 *   nccl_comm  has no outstanding operation, on any rank. It must have been made by the NCCL that this library finds at
 *              run time: libnccl.so.2, 2.19 or later, loaded by the process, not a copy that is part of a program. It
 *              must not have been made with config.splitShare = 1, or it would be aborted along with the library's own
 *   stream     of nccl_comm's device; NULL is the default stream of the current device. The library puts its GPU work
 *              into this stream: the work sees the results of earlier work in the stream, and later work in the stream
 *              sees its results. The stream must outlive the communicator and all that is made from it. It must not be
 *              used by another such communicator, and must not be cudaStreamPerThread
 *   comm       [out] the handle; set to NULL on failure
 *
 * INVALID_ARGUMENT (nccl_comm is NULL, still in progress or of another GPU than stream; stream is cudaStreamPerThread;
 * an environment variable with an impossible value, on every rank), MISMATCH (ranks whose libraries differ in more than
 * their patch level), UNSUPPORTED (a library built without CUDA; no NCCL, or one that is too old), TRANSPORT, TIMEOUT,
 * OUT_OF_MEMORY. */
ONEBIT_API onebit_status_t onebit_comm_create_nccl(ncclComm_t nccl_comm, cudaStream_t stream,
                                                   onebit_comm_t* comm) ONEBIT_NOEXCEPT;

/* onebit_comm_create_nccl without an NCCL communicator of the caller's: `base` is another onebit communicator of the
 * same ranks, for example over MPI. `base` carries the first message that NCCL needs, and isn't needed afterwards. The
 * stream's device is this rank's GPU; NULL is the default stream of the current device. Collective; blocks.
 *   base  of the same ranks; if it breaks during the call, it can't be used any more
 * INVALID_ARGUMENT, INVALID_HANDLE, UNSUPPORTED (also if one rank's library was built without CUDA), TRANSPORT (also
 * two ranks on one GPU, which NCCL refuses), TIMEOUT, OUT_OF_MEMORY: on every rank. */
ONEBIT_API onebit_status_t onebit_comm_bootstrap_nccl(onebit_comm_t base, cudaStream_t stream,
                                                      onebit_comm_t* comm) ONEBIT_NOEXCEPT;

/* Makes a communicator for values in GPUs' memory, one GPU for each rank, of the ranks of another one, for example over
 * MPI. The transport is chosen from the topology of all machines (hwloc), separately for each level:
 *   NCCL throughout           on one node, or if each GPU of a machine has an RDMA NIC that is up and no further than a
 *                             host bridge away. Then all that is said above of communicators over NCCL holds
 *   NCCL inside a node, base  on several nodes with the same number of ranks each, at least two, if data that
 *     between nodes           leaves the node passes through host memory anyway. For ONEBIT_ALGORITHM_TWO_LEVEL; all
 *                             else goes over base
 *   base alone                in all other cases: hwloc is missing or sees no NVIDIA GPU; there is no NCCL; ranks share
 *                             a GPU; each node has one rank, or nodes have different numbers of ranks
 * Each rank looks at its own machine, and makes a choice. All ranks then use the choice that comes last in this list.
 * ONEBIT_GPU_TRANSPORT=nccl, nccl_in_node or base replaces the choice, if that transport is possible.
 * onebit_comm_get_info and ONEBIT_LOG give the transport and the reason.
 * config.stream of handles and optimizers for GPUs' memory is `stream`, or NULL, which stands for `stream`. Values in
 * host memory go over base, but are UNSUPPORTED with NCCL throughout. With NCCL inside nodes one thread at a time uses
 * the communicator and all that is made from it, all ranks make their calls in the same order, and
 * onebit_allreduce_start does all of the work on two levels, as run does. Collective; blocks.
 *   base    isn't needed afterwards; if it breaks during the call, it can't be used any more
 *   stream  as for onebit_comm_create_nccl; its device is this rank's GPU
 *   comm    [out] the handle; set to NULL on failure
 *
 * INVALID_ARGUMENT, INVALID_HANDLE, MISMATCH (ONEBIT_GPU_TRANSPORT differs between ranks), UNSUPPORTED (a rank whose
 * library was built without CUDA, or without a GPU; ONEBIT_GPU_TRANSPORT asks for an impossible transport), TRANSPORT
 * (NCCL was chosen, and failed), TIMEOUT, OUT_OF_MEMORY: on every rank. */
ONEBIT_API onebit_status_t onebit_comm_create_gpu(onebit_comm_t base, cudaStream_t stream,
                                                  onebit_comm_t* comm) ONEBIT_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_ONEBIT_NCCL_H */
