/*
 * onebit_nccl.h - communicators for values in GPUs' memory, over NCCL and whatever else suits the machines.
 *
 * Copyright 2026 The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Needs neither nccl.h nor cuda_runtime.h, and goes with both, in any order.
 */
#ifndef ONEBIT_ONEBIT_NCCL_H
#define ONEBIT_ONEBIT_NCCL_H

#include <onebit/onebit.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As NCCL and CUDA declare them; C11 and C++ allow to say it again. */
typedef struct ncclComm* ncclComm_t;
typedef struct CUstream_st* cudaStream_t;

/* Makes a communicator of the ranks of an NCCL communicator, one GPU each. A communicator of the same ranks is split
 * off it (ncclCommSplit), so that the caller's own is never talked on and may be destroyed; so does each handle made
 * from it. The device that is current doesn't matter, here and in later calls, unless stream is NULL; no NCCL group may
 * be open. NCCL errors come back as ONEBIT_ERROR_TRANSPORT, from the call that meets them or from a later one.
 * Values of its handles lie in a GPU's memory (config.memory: ONEBIT_MEMORY_CUDA; other memory, and onebit_comm_tune,
 * are UNSUPPORTED), and config.stream is this stream, or NULL, which stands for it. Exchanges are the stream's work:
 * onebit_allreduce_start puts all of it there, as run does, and test and wait only tell how that went. What waits for
 * the stream is the check of values (start and run), and the end of a compressed call (wait, and run; with
 * ONEBIT_CHECK_NONE the handle's next call). One thread at a time uses the communicator and all that is made from it,
 * and all ranks make their calls in the same order. Optimizers likewise; with bucket_size they are UNSUPPORTED over
 * NCCL.
 * Collective; blocks, and for no longer than ONEBIT_TIMEOUT if nccl_comm was made with config.blocking = 0: else a rank
 * that fails before it splits, or never comes, leaves the others waiting. A call with ONEBIT_CHECK_NONE waits,
 * within ONEBIT_TIMEOUT, until NCCL has taken it into the stream, and not for what it does there.
 * A rank that is waited for in vain, or whatever else breaks a handle, ends the work of all that is made from the
 * communicator (ncclCommAbort), so that the stream goes on.
 *   nccl_comm  with no operation outstanding on it, on any rank. It must have been made by the NCCL that this library
 *              finds at run time, libnccl.so.2, 2.19 or later: the one that the process has loaded, and not a copy that
 *              is part of a program; and not with config.splitShare = 1, or it would be aborted along with ours
 *   stream     of nccl_comm's device; NULL is the default stream of the current one. What the library does on the GPU
 *              is put there: it sees what the stream was given before, and what the stream is given afterwards sees the
 *              results. It must outlive the communicator and what is made from it, be no other such communicator's, and
 *              not cudaStreamPerThread
 *   comm       [out] the handle; set to NULL on failure
 *
 * INVALID_ARGUMENT (nccl_comm is NULL, still in progress or of another GPU than stream; stream is cudaStreamPerThread;
 * an environment variable with an impossible value, on every rank), MISMATCH (ranks whose libraries differ in more
 * than their patch level), UNSUPPORTED (a library built without CUDA; no NCCL, or one that is too old), TRANSPORT,
 * TIMEOUT, OUT_OF_MEMORY. */
ONEBIT_API onebit_status_t onebit_comm_create_nccl(ncclComm_t nccl_comm, cudaStream_t stream,
                                                   onebit_comm_t* comm) ONEBIT_NOEXCEPT;

/* The same for the ranks of another onebit communicator, over MPI say, which carries NCCL's opening word and isn't
 * needed afterwards: no NCCL communicator of the caller's is needed. The stream's device is this rank's GPU; NULL is
 * the default stream of the current one. Collective; blocks.
 *   base  of the same ranks; on one that breaks meanwhile nothing can be done any more
 * INVALID_ARGUMENT, INVALID_HANDLE, UNSUPPORTED (also where one rank's library was built without CUDA), TRANSPORT (also
 * two ranks on one GPU, which NCCL refuses), TIMEOUT, OUT_OF_MEMORY: on every rank. */
ONEBIT_API onebit_status_t onebit_comm_bootstrap_nccl(onebit_comm_t base, cudaStream_t stream,
                                                      onebit_comm_t* comm) ONEBIT_NOEXCEPT;

/* Makes a communicator for values in GPUs' memory, one GPU for each rank, of the ranks of another one, over MPI say.
 * Its transport is chosen from the topology of all their machines (hwloc), for each level apart:
 *   NCCL throughout           on one node, or where each GPU of a machine has an RDMA NIC that is up no further than a
 *                             host bridge away. All that is said above of communicators over NCCL holds then
 *   NCCL inside a node, base  on several nodes with as many ranks each, two at least, where what leaves the node passes
 *     between nodes           through the host's memory anyway. For ONEBIT_ALGORITHM_TWO_LEVEL; all else goes over base
 *   base alone                elsewhere: where hwloc is missing or sees no NVIDIA GPU; there is no NCCL; ranks share a
 *                             GPU; each node has one rank, or nodes have different numbers of them
 * Each rank looks at its own machine, and the least of all ranks' choices, the last in this list, is everybody's.
 * ONEBIT_GPU_TRANSPORT=nccl, nccl_in_node or base chooses in their place, if it can be had. onebit_comm_get_info says
 * what it is and why, and so does ONEBIT_LOG.
 * config.stream of handles and optimizers for GPUs' memory is this stream, or NULL, which stands for it. Values in the
 * host's memory go over base, but are UNSUPPORTED with NCCL throughout. With NCCL inside nodes one thread at a time
 * uses the communicator and all that is made from it, all ranks make their calls in the same order, and
 * onebit_allreduce_start does all of the work on two levels, as run does. Collective; blocks.
 *   base    isn't needed afterwards; on one that breaks meanwhile nothing can be done any more
 *   stream  as for onebit_comm_create_nccl; its device is this rank's GPU
 *   comm    [out] the handle; set to NULL on failure
 *
 * INVALID_ARGUMENT, INVALID_HANDLE, MISMATCH (ONEBIT_GPU_TRANSPORT differs between ranks), UNSUPPORTED (a rank
 * whose library was built without CUDA, or without a GPU; ONEBIT_GPU_TRANSPORT asks for what can't be had), TRANSPORT
 * (NCCL was chosen, and failed), TIMEOUT, OUT_OF_MEMORY: on every rank. */
ONEBIT_API onebit_status_t onebit_comm_create_gpu(onebit_comm_t base, cudaStream_t stream,
                                                  onebit_comm_t* comm) ONEBIT_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_ONEBIT_NCCL_H */
