/*
 * onebit.h - compressed allreduce with error feedback, and the optimizers that need it.
 *
 * Copyright 2026 The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The C contract of libonebit. Functions that name types of MPI or NCCL are in onebit_mpi.h and onebit_nccl.h instead.
 * Valid C11 and C++17.
 *
 * Read in this order: Status, Communicator, Allreduce (all that most programs need), then Error state, Optimizer.
 *
 * Words used throughout
 *   collective     every rank of the communicator calls the function, in the same order. A collective call that fails
 *                  on one rank fails on every rank, with one status and a message that names the rank and its problem.
 *                  (A rank that can't even begin, INVALID_HANDLE or BUSY, leaves the other ranks waiting: they get
 *                  TIMEOUT.)
 *   local          concerns the calling rank alone.
 *   transactional  a call that fails leaves the handle's error state as it was.
 *   count          a number of elements, never of bytes.
 *
 * Thread safety: different handles may be used from different threads (over MPI only with MPI_THREAD_MULTIPLE). One
 * handle belongs to one thread at a time: a second thread gets ONEBIT_ERROR_BUSY at once and disturbs nothing.
 *
 * A rank's helper threads (config.threads) belong to a thread of the program: to the thread that creates the handle,
 * and to each other thread that uses the handle, from that thread's first call on. They end with that thread. If the
 * system gives no more threads, creation of the handle is OUT_OF_MEMORY on every rank. Helper threads block all
 * signals. A thread that calls onebit needs 64 KiB of stack, plus what MPI, NCCL and CUDA need.
 *
 * Floating point: results don't depend on the caller's rounding mode, traps or treatment of subnormal numbers. All
 * three, and the exception flags, are the same after each call as before. Inside the library, results are rounded to
 * nearest and subnormal numbers are zero (docs/WIRE_FORMAT.md, "Arithmetic").
 *
 * fork: a child may make communicators and handles of its own, in one process. Over MPI the child gets TRANSPORT,
 * because MPI belongs to the parent. Handles made before the fork belong to the parent alone. In the child each call on
 * such a handle is INVALID_HANDLE at once, except that destroy and free are SUCCESS and touch nothing.
 *
 * A handle is a number, not a pointer that is dereferenced. Numbers are never reused. So a destroyed handle is always
 * recognised (ONEBIT_ERROR_INVALID_HANDLE).
 *
 * Structs begin with their size and version, which the _INIT macros and the _init functions set. A later release may
 * add members at a struct's end, and changes nothing else. So a program and a library of one SONAME fit together,
 * whichever is newer:
 *   - An older program's struct is shorter. The members that it lacks have their defaults, and nothing is written
 *     behind its end.
 *   - A newer program's struct is longer. The members that this library doesn't know must be zero (else UNSUPPORTED).
 *     In a struct that the library fills, these members are set to zero.
 * All elements of an array of structs have the size that the first element gives.
 *
 * Timeout: a collective call ends when nothing has come from a peer for ONEBIT_TIMEOUT seconds, at most one second
 * later. The status is TIMEOUT on all ranks that are left. The message names the ranks that have not answered.
 * onebit_comm_abort ends calls earlier.
 *
 * TRANSPORT, TIMEOUT and INTERNAL break a handle, because messages may still be under way. Each later call on a broken
 * handle returns the same status; the program can only destroy the handle. Any call that allocates may return
 * OUT_OF_MEMORY. Any call may return INTERNAL.
 *
 * Papers: [1-bit Adam] arXiv 2102.02888; [LAMB] arXiv 1904.00962; [1-bit LAMB] arXiv 2104.06069; [0/1 Adam] arXiv
 * 2202.06009; [EF] Zheng et al., NeurIPS 2019; [PowerSGD] arXiv 1905.13727; [QSGD] arXiv 1610.02132.
 */
#ifndef ONEBIT_ONEBIT_H
#define ONEBIT_ONEBIT_H

#include <stddef.h>
#include <stdint.h>

#define ONEBIT_VERSION_MAJOR 0
#define ONEBIT_VERSION_MINOR 1
#define ONEBIT_VERSION_PATCH 0
/* The header's version; onebit_version_number() returns the library's. */
#define ONEBIT_VERSION_NUMBER (10000 * ONEBIT_VERSION_MAJOR + 100 * ONEBIT_VERSION_MINOR + ONEBIT_VERSION_PATCH)

#if defined(__GNUC__)
#define ONEBIT_API __attribute__((visibility("default")))
#else
#define ONEBIT_API
#endif

#ifdef __cplusplus
extern "C" {
#define ONEBIT_NOEXCEPT noexcept
#define ONEBIT_ENUM_INT : int /* as in C: any int may be passed, and is checked */
#else
#define ONEBIT_NOEXCEPT
#define ONEBIT_ENUM_INT
#endif

/* ------------------------------------------------------------------------------------------------- Status ---- */

typedef enum onebit_status ONEBIT_ENUM_INT {
    ONEBIT_SUCCESS = 0,
    ONEBIT_ERROR_INVALID_ARGUMENT = 1, /* NULL, misaligned, out of range, or not as documented */
    ONEBIT_ERROR_INVALID_HANDLE = 2,   /* NULL, destroyed, or never a handle of this type */
    ONEBIT_ERROR_MISMATCH = 3,         /* the ranks passed different counts, types or settings */
    ONEBIT_ERROR_NONFINITE = 4,        /* a NaN or an infinity in some rank's values */
    ONEBIT_ERROR_BUSY = 5,             /* in use by another thread, or a started operation is not finished */
    ONEBIT_ERROR_BAD_STATE = 6,        /* a saved state is truncated, corrupt, impossible or of another shape */
    ONEBIT_ERROR_IO = 7,               /* a file could not be read or written */
    ONEBIT_ERROR_UNSUPPORTED = 8,      /* valid, but not in this build or this version */
    ONEBIT_ERROR_OUT_OF_MEMORY = 9,
    ONEBIT_ERROR_TRANSPORT = 10, /* MPI or NCCL reported an error, or a peer is gone; the handle is broken */
    ONEBIT_ERROR_TIMEOUT = 11,   /* a peer did not answer in time; the handle is broken */
    ONEBIT_ERROR_INTERNAL = 12,  /* a GPU failed, if the message says so; else a bug in onebit: please report it */
    ONEBIT_ERROR_CANCELLED = 13  /* a rank gave the step up (onebit_optimizer_cancel_step) */
} onebit_status_t;

/* The constant's name, e.g. "ONEBIT_ERROR_BUSY"; "unknown status" for any other value. Local; never NULL. */
ONEBIT_API const char* onebit_status_string(onebit_status_t status) ONEBIT_NOEXCEPT;

/* The message of this thread's last onebit call that failed; "" if none failed. A load that finds an interrupted save
 * succeeds, and sets a message, too. The text belongs to the library. It is valid until this thread's next onebit call
 * that sets a message. Local; never NULL. */
ONEBIT_API const char* onebit_last_error(void) ONEBIT_NOEXCEPT;

/* The library's version, "MAJOR.MINOR.PATCH". Local; never NULL. */
ONEBIT_API const char* onebit_version(void) ONEBIT_NOEXCEPT;

/* The library's version as a number, 10000 MAJOR + 100 MINOR + PATCH. Local. */
ONEBIT_API int onebit_version_number(void) ONEBIT_NOEXCEPT;

/* The importance of a log line. */
typedef enum onebit_log_level ONEBIT_ENUM_INT {
    ONEBIT_LOG_INFO = 0,   /* what was chosen and why; the progress of a training */
    ONEBIT_LOG_WARNING = 1 /* results or speed are not as good as they could be */
} onebit_log_level_t;

/* Receives a line of the log. ONEBIT_LOG=1 writes the same lines to stderr.
 *   context  as passed to onebit_set_log_callback
 *   level    may be a level of a later release
 *   text     one line without its end, less than 2048 bytes; valid during the call */
typedef void (*onebit_log_fn)(void* context, onebit_log_level_t level, const char* text);

/* Sets the function that receives log lines from now on, of all communicators and handles of this process. The function
 * replaces stderr, and receives lines whatever ONEBIT_LOG says. Only rank 0 writes lines.
 *   function  NULL: lines go to stderr again, if ONEBIT_LOG=1
 *   context   passed to the function
 * The library calls the function in the thread whose onebit call writes the line, so several threads may call it at
 * once. The library holds no lock of its own during the call. Calls that the function makes on the handle or the
 * communicator of that onebit call are BUSY. The function must not throw. It runs with the library's rounding mode and
 * treatment of subnormal numbers. When onebit_set_log_callback returns, an earlier function may still be running in
 * another thread, or be about to run. Keep what the earlier function uses until all onebit calls that had begun by then
 * have ended.
 * A forked child has its parent's function. Local; never blocks; from any thread. OUT_OF_MEMORY. */
ONEBIT_API onebit_status_t onebit_set_log_callback(onebit_log_fn function, void* context) ONEBIT_NOEXCEPT;

/* ------------------------------------------------------------------------------------------- Communicator ---- */

/* A group of ranks and their means of communication. A communicator is made from an MPI communicator (onebit_mpi.h),
 * over NCCL (onebit_nccl.h), over TCP without MPI or NCCL, or in one process (both below). The environment is read when
 * a communicator is created (README.md, "Environment"). */
typedef struct onebit_comm_opaque* onebit_comm_t;

/* Creates `ranks` communicators whose ranks are threads of this process. One thread uses rank r, through comms[r]. For
 * tests and for programs that are parallel within one process. Local; does not block.
 *   ranks  at least 1
 *   comms  [out] array of `ranks` handles; the caller destroys each
 * INVALID_ARGUMENT (also for an environment variable with an impossible value), OUT_OF_MEMORY. */
ONEBIT_API onebit_status_t onebit_comm_create_loopback(int ranks, onebit_comm_t* comms) ONEBIT_NOEXCEPT;

/* Gathers bytes of all ranks, by any means that the program's launcher has: torch.distributed's store, PMIx, a file
 * system. onebit_comm_create_bootstrap calls it, in the thread that calls onebit_comm_create_bootstrap. It is called at
 * most four times, equally often on every rank, and never after onebit_comm_create_bootstrap has returned.
 *   context  onebit_bootstrap_t's
 *   mine     this rank's `bytes` bytes
 *   all      [out] ranks * bytes: rank r's bytes at all + r * bytes
 *   bytes    the same on every rank, less than 4096
 * Returns 0 on success, any other value on failure. */
typedef int (*onebit_allgather_fn)(void* context, const void* mine, void* all, size_t bytes);

typedef struct onebit_bootstrap {
    size_t size;       /* sizeof(onebit_bootstrap_t) */
    uint32_t version;  /* ONEBIT_BOOTSTRAP_VERSION */
    int rank;          /* this process's, 0 to ranks - 1 */
    int ranks;         /* at least 1; the same on every rank */
    uint32_t reserved; /* 0 */
    onebit_allgather_fn allgather;
    void* context;         /* passed to allgather */
    const char* interface; /* the network interface to use, "eth0", or an address of this host, "10.0.0.1". NULL:
                              ONEBIT_INTERFACE, else an interface in a network with all other hosts; if all ranks are on
                              one host, its loopback */
    double timeout;        /* seconds that a call, onebit_comm_create_bootstrap included, waits for peers that don't
                              answer; 0: ONEBIT_TIMEOUT */
} onebit_bootstrap_t;

#define ONEBIT_BOOTSTRAP_VERSION 1
#define ONEBIT_BOOTSTRAP_INIT(rank_, ranks_, allgather_, context_) \
    { sizeof(onebit_bootstrap_t), ONEBIT_BOOTSTRAP_VERSION, (rank_), (ranks_), 0, (allgather_), (context_), NULL, 0.0 }

/* ONEBIT_BOOTSTRAP_INIT as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_bootstrap_init(onebit_bootstrap_t* bootstrap, size_t size, int rank, int ranks,
                                                 onebit_allgather_fn allgather, void* context) ONEBIT_NOEXCEPT;

/* Creates a communicator of processes that have no MPI in common. The processes tell each other their addresses through
 * `allgather`, and connect over TCP, each to each. Up to 32 ranks of one host send through shared memory instead. Ranks
 * are on one host if they have the same boot id and the same host name. A rank listens on one interface only, at a port
 * that the system chooses, and only until this call returns. All ranks learn a secret through `allgather`; a process
 * that connects without knowing the secret is turned away. Nothing is encrypted. Messages lie in host memory only.
 *   bootstrap  read, not kept
 *   comm       [out] the handle; set to NULL on failure
 * Different handles may be used from different threads. Collective; blocks.
 * INVALID_ARGUMENT (among others: an interface that doesn't exist, ranks in the wrong order), MISMATCH, OUT_OF_MEMORY,
 * TRANSPORT (allgather has failed; a peer can't be reached, or has ended), TIMEOUT (a peer has not come). */
ONEBIT_API onebit_status_t onebit_comm_create_bootstrap(const onebit_bootstrap_t* bootstrap,
                                                        onebit_comm_t* comm) ONEBIT_NOEXCEPT;

/* Divides the ranks, as MPI_Comm_split does. Ranks that pass the same color get a communicator of their own, a part.
 *   color  at least 0: the part that this rank is to be in. Less than 0: this rank is in no part
 *   key    the ranks of a part are numbered in the order of their keys; ranks with equal keys in the order of their
 *          ranks in `comm`
 *   part   [out] the handle; set to NULL on failure, and with SUCCESS for a rank that is in no part
 *
 * A part inherits from `comm` the nodes, the settings (the environment when `comm` was created, and its timeout) and
 * the table of ONEBIT_TUNING. It doesn't inherit the measurements of onebit_comm_tune. A part uses the connections of
 * `comm`, so that making it costs only a few small messages. Parts run side by side: nothing in one part waits for
 * another part. A part may be split again, and may outlive `comm`. onebit_comm_abort of a part ends calls only on that
 * part and on parts made from it. onebit_comm_abort of `comm` ends calls on all of its parts, too. A message about a
 * connection to a peer, or about a peer that gave up, may name the peer by its rank in the communicator that was split
 * first.
 *
 * The parts of 255 splits can exist at once over MPICH, of 2000 splits over Open MPI and over TCP, and of 15 splits if
 * `comm` is a part itself (beyond that UNSUPPORTED). A part that all its ranks have destroyed doesn't count, unless it
 * was aborted. A communicator over NCCL or for GPUs can't be split (UNSUPPORTED): split the communicator that it was
 * made from. Collective over all ranks of `comm`, also those in no part; blocks.
 * INVALID_ARGUMENT (`part` is NULL), INVALID_HANDLE, BUSY, UNSUPPORTED, OUT_OF_MEMORY, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_comm_split(onebit_comm_t comm, int color, int key,
                                             onebit_comm_t* part) ONEBIT_NOEXCEPT;

/* This rank's number, 0 to size - 1, and the number of ranks. Local. INVALID_ARGUMENT, INVALID_HANDLE. */
ONEBIT_API onebit_status_t onebit_comm_rank(onebit_comm_t comm, int* rank) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_comm_size(onebit_comm_t comm, int* size) ONEBIT_NOEXCEPT;

typedef struct onebit_comm_info {
    size_t size;        /* [in] sizeof(onebit_comm_info_t) */
    uint32_t version;   /* [in] ONEBIT_COMM_INFO_VERSION */
    uint32_t nodes;     /* number of nodes of the ranks. Ranks of a node share memory, or count as one node by
                           ONEBIT_NODE_SIZE */
    char transport[32]; /* "loopback", "mpi", "tcp", "nccl"; "nccl+mpi": NCCL inside a node and MPI between nodes */
    char reason[288];   /* why this transport, if onebit_comm_create_gpu chose it; else "" */
} onebit_comm_info_t;

#define ONEBIT_COMM_INFO_VERSION 1
#define ONEBIT_COMM_INFO_INIT                                           \
    {                                                                   \
        sizeof(onebit_comm_info_t), ONEBIT_COMM_INFO_VERSION, 0, {0}, { \
            0                                                           \
        }                                                               \
    }

/* ONEBIT_COMM_INFO_INIT as a function, for languages without macros. This and the other _init functions are local.
 *   size  sizeof *info: no more is written
 * INVALID_ARGUMENT (NULL, or a size that the struct has in no release; nothing is written). */
ONEBIT_API onebit_status_t onebit_comm_info_init(onebit_comm_info_t* info, size_t size) ONEBIT_NOEXCEPT;

/* Fills *info. Local; does not block. INVALID_ARGUMENT, INVALID_HANDLE, BUSY (another thread is in a call). */
ONEBIT_API onebit_status_t onebit_comm_get_info(onebit_comm_t comm, onebit_comm_info_t* info) ONEBIT_NOEXCEPT;

/* Sets a value that an environment variable (README.md, "Environment") would have set when the communicator was
 * created. The value applies to handles and parts that are created from the communicator afterwards, and to how long
 * the communicator's own calls wait. Existing handles keep the values that they were created with.
 *   name   for example "ONEBIT_ALGORITHM"; the same on every rank. Variables that only count at creation are
 *          UNSUPPORTED: ONEBIT_NODE_SIZE, ONEBIT_GPU_TRANSPORT, ONEBIT_INTERFACE, ONEBIT_TCP_ONLY, NCCL_HOSTID
 *   value  as in the environment; "": the default. Values that must be the same on every rank (README.md) are compared
 *          when a handle is created. Of ONEBIT_TUNING the value of rank 0 counts; rank 0 reads the file during this
 *          call
 * ONEBIT_TUNING, ONEBIT_MEASURE and ONEBIT_DETERMINISTIC discard all measurements so far, also those of
 * onebit_comm_tune. Collective; blocks; on failure nothing changes on any rank.
 * INVALID_ARGUMENT (NULL, no such variable, an impossible value), INVALID_HANDLE, BUSY, MISMATCH (names differ),
 * UNSUPPORTED, OUT_OF_MEMORY, IO, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_comm_set(onebit_comm_t comm, const char* name, const char* value) ONEBIT_NOEXCEPT;

/* Measures how long an allreduce takes between these ranks: in each form, dense and compressed, from few elements to
 * many. A handle with ONEBIT_ALGORITHM_AUTO that is created from `comm` afterwards takes the form that was quickest at
 * its size. Without this call the first such handle measures by itself, for some tenths of a second
 * (docs/ARCHITECTURE.md, "Choosing"). This call measures ONEBIT_CODEC_SIGN; onebit_comm_tune_codecs measures other
 * codecs, too. If compression barely pays, two runs may choose differently, and then their results differ in bits. With
 * ONEBIT_DETERMINISTIC=1 AUTO uses no measurement of this run, this call's included. It uses the table that
 * ONEBIT_TUNING names, or else an estimate for 10 Gbit/s between nodes.
 *   max_count  elements of the largest allreduce that is measured, at least the number of ranks; times of larger ones
 *              are extrapolated. The call uses memory for about five times as many floats while it runs. The same on
 *              every rank
 *   seconds    about how long the call may take, more than 0. The call takes longer if three calls of each form and
 *              size take longer. The same on every rank
 *   path       NULL, or the file that rank 0 writes the table to, for later runs (ONEBIT_TUNING; README.md, "Tuning").
 *              An earlier file is replaced. Ignored on other ranks
 * Collective; blocks. On failure nothing has changed, except with IO: then the table is in use, but not written.
 * INVALID_ARGUMENT, INVALID_HANDLE, MISMATCH, IO, OUT_OF_MEMORY, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_comm_tune(onebit_comm_t comm, uint64_t max_count, double seconds,
                                            const char* path) ONEBIT_NOEXCEPT;

/* Allocates memory for sendbuf and recvbuf that all ranks of a node can read. A call then need not copy the values that
 * these ranks exchange. Two kinds of calls use this, if the buffers of all ranks of the node lie in such memory of the
 * call's communicator:
 *   - exact averages inside one node, from 2048 elements on: sendbuf and recvbuf;
 *   - ONEBIT_ALGORITHM_TWO_LEVEL: sendbuf.
 * info.transport says whether the last call used this. If nothing can be shared, the call gives ordinary memory: with
 * one rank on each node, with nodes of different sizes or of more than 1024 ranks, or if the system refuses (ONEBIT_LOG
 * tells). Each call makes, in every rank of the node, one mapping for each rank of the node: allocate a few large
 * pieces. All ranks see what a forked child writes to the memory.
 *   bytes   at least 1; may differ between ranks. The size is not compared with a container's limit
 *   memory  [out] zeroed, aligned to 64 bytes, on the host; the caller's until onebit_mem_free, also after
 *           onebit_comm_destroy. NULL on failure
 * Collective; blocks. INVALID_ARGUMENT, INVALID_HANDLE, OUT_OF_MEMORY, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_mem_alloc(onebit_comm_t comm, size_t bytes, void** memory) ONEBIT_NOEXCEPT;

/* Frees memory of onebit_mem_alloc; NULL is accepted. Don't free memory during a call of this rank that has a buffer in
 * it. Calls of other ranks are not disturbed. The system has the memory back once all ranks of the node have freed
 * theirs. Local; from any thread.
 * INVALID_ARGUMENT (not from onebit_mem_alloc, or freed already). */
ONEBIT_API onebit_status_t onebit_mem_free(void* memory) ONEBIT_NOEXCEPT;

/* Advances all operations that were started on handles made from `comm` and are not finished: allreduces,
 * reduce-scatters, all-gathers, steps, and exchanges that onebit_optimizer_grad_ready has begun. One call replaces a
 * test on each handle. Each handle does a slice of its work, in the order in which the handles were created. The call
 * never waits for a peer. It gives up silent peers as test does (TIMEOUT).
 *   active  [out] number of handles that have work left, after the callbacks of this call
 * This call doesn't tell how an operation ended: without a callback, the handle's next test or wait tells so, at once.
 * With a callback (onebit_allreduce_set_callback and its like), the operation is over with the callback. The status of
 * a failed operation is not this call's status: only the operation has it. A handle that another thread is using at
 * that moment is skipped, and counts as active. A broken handle is not active.
 * Local; doesn't block. From any thread (over MPI only with MPI_THREAD_MULTIPLE), from several at a time, and in a
 * callback. INVALID_ARGUMENT (NULL), INVALID_HANDLE. */
ONEBIT_API onebit_status_t onebit_comm_progress(onebit_comm_t comm, int* active) ONEBIT_NOEXCEPT;

/* Called when a started operation is finished: see onebit_allreduce_set_callback, and the set_callback functions of
 * reduce-scatters, all-gathers and optimizers. It must not throw.
 *   context  as passed to the set_callback function
 *   status   how the operation ended; onebit_last_error has the message */
typedef void (*onebit_callback_fn)(void* context, onebit_status_t status);

/* Ends every call that is in flight on the communicator or on a handle made from it, on all ranks. Each such call
 * returns TRANSPORT within a second; its message has `reason` and the rank that gave it. Call it on a rank that knows
 * that the other ranks would wait for it in vain, for example because it is out of memory. The communicator and its
 * handles are broken afterwards.
 *   reason  text for the other ranks, of which some 400 bytes are passed on; NULL: none
 * Peers that are in a call are told at once, if one of these holds: this rank is in a call; MPI was initialised with
 * MPI_THREAD_MULTIPLE; this thread may call MPI. Otherwise they are told when this rank makes its next call. Peers that
 * are in no call are told in their next call. Over NCCL alone, or if a peer can't be reached, peers find out by NCCL's
 * own means or by ONEBIT_TIMEOUT.
 * Local; never waits; from any thread, also while other threads are in calls. INVALID_HANDLE. */
ONEBIT_API onebit_status_t onebit_comm_abort(onebit_comm_t comm, const char* reason) ONEBIT_NOEXCEPT;

/* Releases the handle; NULL is accepted. Handles and parts created from it stay usable until they are destroyed
 * themselves. Over NCCL collective; otherwise local, and waits for no other rank. INVALID_HANDLE. */
ONEBIT_API onebit_status_t onebit_comm_destroy(onebit_comm_t comm) ONEBIT_NOEXCEPT;

/* ---------------------------------------------------------------------------------------------- Allreduce ---- */

/* A persistent allreduce: planned once, run many times, as MPI_Allreduce_init and FFTW plans are. It averages `count`
 * elements over the ranks. It sends few bits for each element (config.codec; by default one) instead of 16 or 32. The
 * part of the values that a message could not express is carried into the next call (error feedback, at the worker and
 * at the server) [1-bit Adam, section 4; EF]. */
typedef struct onebit_allreduce_opaque* onebit_allreduce_t;

typedef enum onebit_datatype ONEBIT_ENUM_INT {
    ONEBIT_FLOAT32 = 0,
    ONEBIT_FLOAT16 = 1,  /* IEEE binary16 */
    ONEBIT_BFLOAT16 = 2, /* the upper half of a float32 */
    ONEBIT_INT8 = 3      /* for errors alone (config.error_type) */
} onebit_datatype_t;

typedef enum onebit_memory ONEBIT_ENUM_INT {
    ONEBIT_MEMORY_HOST = 0,
    ONEBIT_MEMORY_CUDA = 1 /* memory of a GPU, the GPU of config.stream. UNSUPPORTED in a build without CUDA, on a
                              machine without a GPU, on a GPU that the library has no code for, and with BRUCK and RING.
                              TWO_LEVEL becomes PIPELINED if there is no NCCL inside the nodes */
} onebit_memory_t;

typedef enum onebit_algorithm ONEBIT_ENUM_INT {
    ONEBIT_ALGORITHM_AUTO = 0,      /* the library chooses and says why (onebit_allreduce_get_info) */
    ONEBIT_ALGORITHM_DENSE = 1,     /* exact average, nothing compressed; the error state is neither used nor changed */
    ONEBIT_ALGORITHM_FLAT = 2,      /* compressed: every rank serves one chunk, two exchanges in all */
    ONEBIT_ALGORITHM_PIPELINED = 3, /* FLAT, with the same result to the bit, in pieces (ONEBIT_PIECE). Some pieces
                                       travel while others are computed: as quick as FLAT or quicker */
    ONEBIT_ALGORITHM_TWO_LEVEL = 4, /* exact average inside each node, through shared memory or over NCCL, and
                                       compressed between nodes: fewer bytes between nodes and a smaller error. Becomes
                                       PIPELINED if there is one node, or one rank on each node, or if nodes have
                                       different numbers of ranks. It has an error state of its own: a handle has either
                                       this form or the others */
    ONEBIT_ALGORITHM_BRUCK = 5,     /* FLAT, with the same result to the bit. Messages travel through other ranks, many
                                       as one (ONEBIT_RADIX): for hundreds of ranks and few values. Only if the handle
                                       was created with it */
    ONEBIT_ALGORITHM_RING = 6,      /* PIPELINED, with the same result to the bit. Averages travel from rank to rank
                                       instead of straight to each: for racks whose links to each other are slower than
                                       their hosts' links together. Only if the handle was created with it */
    ONEBIT_ALGORITHM_LEVELS = 7     /* compressed between groups of ranks that the caller names (config.levels), and
                                       inside a group as its level says. AUTO becomes this with config.levels.
                                       INVALID_ARGUMENT without config.levels. It has an error state of its own: a
                                       handle has either this form or the others */
} onebit_algorithm_t;

/* The code of an element in a compressed message (docs/WIRE_FORMAT.md; docs/CODECS.md says which codec is good for
 * what). With every codec, the part of a value that its code doesn't express is kept as error, and sent with the next
 * call. In host memory all codecs work. In a GPU's memory all but TOPK, RANDOMK and POWERSGD work (else UNSUPPORTED).
 */
typedef enum onebit_codec ONEBIT_ENUM_INT {
    ONEBIT_CODEC_SIGN = 0, /* 1 bit for each element, its sign, and a scale for each config.group */
    ONEBIT_CODEC_INT8 = 1, /* 8 bits: whole numbers, and a scale for each 256 elements, the largest magnitude / 127 */
    ONEBIT_CODEC_INT4 = 2, /* 4 bits: whole numbers, and a scale for each 256 elements, the largest magnitude / 7 */
    ONEBIT_CODEC_FP4 = 3,  /* 4 bits: sign and exponent (E3M0): the largest magnitude of 256 elements times 2^0 to
                                 2^-6, and 0 */
    ONEBIT_CODEC_BFLOAT16 = 4, /* 16 bits: each element rounded to bfloat16 */
    ONEBIT_CODEC_TERNARY = 5,  /* 2 bits: -1, 0 or 1 times twice the root mean square of the nonzero ones of 256
                                  elements */
    ONEBIT_CODEC_TOPK = 6,     /* 0.3 bits: position and 8 bits of the 64 largest of 4096 elements, or as config.kept
                                  and config.value_bits say. The other elements wait */
    ONEBIT_CODEC_FLOAT16 = 7,  /* 16 bits: each element divided by a power of two for each 256 elements, rounded to
                                  float16 */
    ONEBIT_CODEC_INT2 = 8,  /* 2 bits: -1.5, -0.5, 0.5 or 1.5 times the root mean square of those of 256 elements that
                               are not 0 */
    ONEBIT_CODEC_MEANS = 9, /* 1 bit: the sign; and for each 256 elements the mean of the positive ones and the mean of
                               the negative ones, in bfloat16 [1-bit SGD] */
    ONEBIT_CODEC_RANDOMK = 10, /* 0.14 bits: 8 bits of 64 of 4096 elements, or as config.kept and config.value_bits say.
                                  In each call all ranks draw the same elements. The other elements wait */
    ONEBIT_CODEC_POWERSGD = 11 /* matrices (config.shapes) by approximations of a low rank, config.matrix_rank. The part
                                  that isn't approximated waits. Only for allreduces in host memory [PowerSGD] */
} onebit_codec_t;

/* The operation on the ranks' values. */
typedef enum onebit_op ONEBIT_ENUM_INT {
    ONEBIT_OP_AVERAGE = 0, /* the default */
    ONEBIT_OP_SUM = 1      /* number of ranks times the average, for the same bytes. A sum may overflow where an average
                              can't: NONFINITE on every rank (onebit_allreduce_run). So exact sums are read once more */
} onebit_op_t;

/* The magnitude that stands for a group's elements. */
typedef enum onebit_scale ONEBIT_ENUM_INT {
    ONEBIT_SCALE_L2 = 0, /* root mean square, the default: the papers' choice, and the better one where both were
                            measured (docs/ARCHITECTURE.md, "Defaults") */
    ONEBIT_SCALE_L1 = 1  /* mean magnitude: the least-squares optimum for a sign code. It leaves an error smaller than
                            the values, whatever they are; L2 may not, if a few values are far larger than the rest */
} onebit_scale_t;

/* How integers are rounded. */
typedef enum onebit_rounding ONEBIT_ENUM_INT {
    ONEBIT_ROUNDING_NEAREST = 0,   /* the default: the smallest error */
    ONEBIT_ROUNDING_STOCHASTIC = 1 /* up or down at random, so that the mean of many results is the value [QSGD]. The
                                      error of one call is 1.4 times as large */
} onebit_rounding_t;

/* The elements that share a scale. */
typedef enum onebit_group ONEBIT_ENUM_INT {
    ONEBIT_GROUP_BLOCK = 0,  /* 4096 elements, the default: 0.8 % more bytes, far less error if magnitudes differ */
    ONEBIT_GROUP_BUFFER = 1, /* the worker's whole buffer, and each server chunk: the papers' choice */
    ONEBIT_GROUP_TENSOR = 2  /* optimizers only: each tensor, DeepSpeed's choice. Each tensor is exchanged by itself,
                                but tensors of fewer than 1024 elements together with others; bucket_size doesn't
                                matter */
} onebit_group_t;

/* The checks of each call before it changes the error state or recvbuf (onebit_allreduce_run has the exceptions). */
typedef enum onebit_check ONEBIT_ENUM_INT {
    ONEBIT_CHECK_FULL = 0,           /* every argument and every value, with the same outcome on every rank: the call is
                                        transactional. Large handles and compressed reduce-scatters keep a second error
                                        state for this */
    ONEBIT_CHECK_NONE = 1,           /* nothing: the caller guarantees valid pointers and finite values on every rank */
    ONEBIT_CHECK_FULL_LOW_MEMORY = 2 /* as FULL, but with no second error state: values are read once more instead */
} onebit_check_t;

/* The ranks of one node (onebit_comm_get_info), as the color of a level. */
#define ONEBIT_LEVEL_NODE (-1)

/* A level of ONEBIT_ALGORITHM_LEVELS: groups of ranks near each other, for example of a node, a rack or a site. Each
 * rank of a group averages a part of the buffer; that part then goes on to the next level. */
typedef struct onebit_level {
    size_t size;          /* sizeof(onebit_level_t) */
    uint32_t version;     /* ONEBIT_LEVEL_VERSION */
    int32_t color;        /* this rank's own: ranks of one color are one group. ONEBIT_LEVEL_NODE, or any number from 0
                             on. All groups of a level have the same number of ranks. A group of one level lies within
                             one group of the next */
    uint32_t compressed;  /* 0: values travel inside a group as they are, and are added up exactly in the order of the
                             ranks. 1: values are compressed as `codec` says; the next call makes up for the error */
    onebit_codec_t codec; /* if `compressed` is 1, this member and those that follow are as in
                             onebit_allreduce_config_t; else 0. The same on every rank. Not ONEBIT_CODEC_POWERSGD
                             (UNSUPPORTED). Integers are rounded to the nearest */
    onebit_scale_t scale;
    onebit_group_t group;
    uint32_t kept;
    uint32_t value_bits;
    onebit_datatype_t error_type;
    uint32_t reserved; /* 0 */
} onebit_level_t;

#define ONEBIT_LEVEL_VERSION 1
/* Groups by color, exact. */
#define ONEBIT_LEVEL_INIT(color_)                                                                      \
    {                                                                                                  \
        sizeof(onebit_level_t), ONEBIT_LEVEL_VERSION, (color_), 0, ONEBIT_CODEC_SIGN, ONEBIT_SCALE_L2, \
            ONEBIT_GROUP_BLOCK, 0, 0, ONEBIT_FLOAT32, 0                                                \
    }

/* ONEBIT_LEVEL_INIT as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_level_init(onebit_level_t* level, size_t size, int32_t color) ONEBIT_NOEXCEPT;

typedef struct onebit_allreduce_config {
    size_t size;                /* sizeof(onebit_allreduce_config_t) */
    uint32_t version;           /* ONEBIT_ALLREDUCE_CONFIG_VERSION */
    uint32_t threads;           /* this rank's own; 0: ONEBIT_THREADS, else 1 */
    uint64_t count;             /* elements, at least the number of ranks; the same on every rank */
    onebit_datatype_t datatype; /* of sendbuf and recvbuf. The same on every rank, as are all members that follow.
                                   ONEBIT_FLOAT16 and ONEBIT_BFLOAT16: in host memory, else UNSUPPORTED */
    onebit_memory_t memory;     /* where sendbuf and recvbuf lie */
    onebit_algorithm_t algorithm;
    onebit_codec_t codec;
    onebit_scale_t scale; /* of ONEBIT_CODEC_SIGN; 0 with any other codec, or INVALID_ARGUMENT */
    onebit_group_t group; /* of ONEBIT_CODEC_SIGN; 0 with any other codec, or INVALID_ARGUMENT */
    onebit_check_t check;
    onebit_op_t op;
    void* stream;  /* with ONEBIT_MEMORY_CUDA: the cudaStream_t that the handle's work goes into, this rank's own. NULL:
                      the default stream of the device that is current when the handle is created. The stream must
                      outlive the handle */
    uint32_t kept; /* of ONEBIT_CODEC_TOPK and ONEBIT_CODEC_RANDOMK: how many of 4096 elements are sent, at most 128; 0:
                      64. With any other codec 0, or INVALID_ARGUMENT */
    uint32_t value_bits;          /* of the same codecs: 8 or 2 bits for each sent element; 0: 8 */
    onebit_datatype_t error_type; /* of errors. ONEBIT_FLOAT32; ONEBIT_BFLOAT16 for half the memory; or ONEBIT_INT8,
                                     with a power of two for each 256 elements, for a quarter. The last two: in host
                                     memory and not with ONEBIT_GROUP_BUFFER, else UNSUPPORTED. What rounding takes is
                                     lost (docs/CODECS.md, "Memory") */
    uint32_t matrix_rank;   /* of ONEBIT_CODEC_POWERSGD: directions of each matrix, at most 64; 0: 4. With any other
                               codec 0, or INVALID_ARGUMENT */
    const uint64_t* shapes; /* of ONEBIT_CODEC_POWERSGD: rows and columns of each matrix, 2 num_shapes numbers. The
                               matrices lie in the buffer one after the other, each row after row, and fill it. A matrix
                               whose factors together would have at least as many numbers as the matrix is averaged as
                               it is. A vector is a matrix of one row, and is averaged so. A Fortran array a(m, n) has n
                               rows of m columns. Read, not kept. With any other codec NULL, or INVALID_ARGUMENT */
    uint64_t num_shapes;
    onebit_rounding_t rounding;   /* of ONEBIT_CODEC_INT8 and ONEBIT_CODEC_INT4. With any other codec 0, or
                                     INVALID_ARGUMENT. STOCHASTIC: in host memory, else UNSUPPORTED */
    uint32_t num_levels;          /* 0, 1 or 2; `codec` is used between the groups of the last level. The same on every
                                     rank. In host memory, and not with ONEBIT_CODEC_POWERSGD, else UNSUPPORTED */
    const onebit_level_t* levels; /* the smallest groups first. Read, not kept. Ignored if ONEBIT_ALGORITHM makes AUTO
                                     another form */
} onebit_allreduce_config_t;

#define ONEBIT_ALLREDUCE_CONFIG_VERSION 1
/* The defaults for `count_` elements; change members by name afterwards. */
#define ONEBIT_ALLREDUCE_CONFIG_INIT(count_)                                                                          \
    {                                                                                                                 \
        sizeof(onebit_allreduce_config_t), ONEBIT_ALLREDUCE_CONFIG_VERSION, 0, (uint64_t)(count_), ONEBIT_FLOAT32,    \
            ONEBIT_MEMORY_HOST, ONEBIT_ALGORITHM_AUTO, ONEBIT_CODEC_SIGN, ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK,        \
            ONEBIT_CHECK_FULL, ONEBIT_OP_AVERAGE, NULL, 0, 0, ONEBIT_FLOAT32, 0, NULL, 0, ONEBIT_ROUNDING_NEAREST, 0, \
            NULL                                                                                                      \
    }

/* ONEBIT_ALLREDUCE_CONFIG_INIT as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_allreduce_config_init(onebit_allreduce_config_t* config, size_t size,
                                                        uint64_t count) ONEBIT_NOEXCEPT;

/* Plans an allreduce, and allocates all memory that its operations will ever use. With the defaults, on two ranks or
 * more, this is at most 12.5 bytes for each element, and 1 MiB (docs/ARCHITECTURE.md, "Memory of an allreduce").
 * Collective; blocks.
 *   config     read, not kept
 *   allreduce  [out] the handle; set to NULL on failure
 * INVALID_ARGUMENT (among others: count 0 and count < ranks), INVALID_HANDLE, MISMATCH, UNSUPPORTED, OUT_OF_MEMORY,
 * TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_allreduce_create(onebit_comm_t comm, const onebit_allreduce_config_t* config,
                                                   onebit_allreduce_t* allreduce) ONEBIT_NOEXCEPT;

/* Measures as onebit_comm_tune does, for the codecs that the caller names, each with its default settings. Handles of
 * each codec use that codec's times. The times of codecs that are not named don't change. One file holds the times of
 * all named codecs; onebit_allreduce_choose_codec compares the codecs by them in later runs.
 *   codecs      for example ONEBIT_CODEC_INT8 and ONEBIT_CODEC_INT4; each once, the same ones on every rank; not
 *               POWERSGD
 *   num_codecs  at least 1
 *   seconds     for all codecs together
 * All else as for onebit_comm_tune; and UNSUPPORTED (POWERSGD, for which AUTO uses the times of SIGN). */
ONEBIT_API onebit_status_t onebit_comm_tune_codecs(onebit_comm_t comm, const onebit_codec_t* codecs, size_t num_codecs,
                                                   uint64_t max_count, double seconds,
                                                   const char* path) ONEBIT_NOEXCEPT;

/* Names the codec whose compressed allreduce is quickest between these ranks. Only codecs with an error of at most
 * max_error are considered. For each of them the call measures all that AUTO would measure, for some tenths of a
 * second. Handles that are created afterwards know these measurements.
 *   config     what the handle is to be created with. Its algorithm, codec and levels, and members of one codec alone,
 *              are ignored: codecs are compared with their default settings, between all ranks. POWERSGD is not among
 *              them
 *   max_error  error of one call, divided by the norm of the exact average, for Gaussian values between two ranks:
 *              docs/CODECS.md, "Speed and error", has the errors of all codecs. At least the smallest of them. The same
 *              on every rank
 *   codec      [out] for config.codec, the same on every rank; the finest one if several are equally quick. Written
 *              only on success
 * ONEBIT_ALGORITHM_AUTO decides later whether an exact average is quicker still. If the times of some codec were not
 * measured (ONEBIT_DETERMINISTIC=1, ONEBIT_MEASURE=0, ONEBIT_ALGORITHM, fewer than 1024 elements), all codecs are
 * compared by an estimate. Collective; blocks.
 * INVALID_ARGUMENT, INVALID_HANDLE, UNSUPPORTED, MISMATCH, OUT_OF_MEMORY, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_allreduce_choose_codec(onebit_comm_t comm, const onebit_allreduce_config_t* config,
                                                         double max_error, onebit_codec_t* codec) ONEBIT_NOEXCEPT;

/* recvbuf = average over the ranks of sendbuf, or their sum (config.op). Collective; blocks; transactional.
 *   sendbuf  [in] count elements, aligned to the element's size, in config.memory; the caller's
 *   recvbuf  [out] count elements, likewise; either == sendbuf (in place) or not overlapping it
 * All ranks get the same bits. A compressed result doesn't depend on the instruction set, the MPI or the number of
 * threads. An exact result is added up in the order of the ranks if info.transport says "shared ..."; otherwise the
 * order may be MPI's, or pairs.
 *
 * An exact average of finite values is finite, also if their sum would overflow float32. Values of n ranks that are
 * below 2n 2^-126 may then count as zero, if they don't go through shared memory. An exact sum that overflows
 * config.datatype is NONFINITE on every rank. With ONEBIT_CHECK_NONE nothing checks this: the caller guarantees that
 * exact sums are finite.
 *
 * Values of 16 bits are computed with in float32. A result is rounded once, to the nearest (even). Exact messages are
 * half as long. A compressed call does what it would do with the same values as float32, and rounds the result. The
 * rounding error of the result is not carried into the next call.
 *
 * A call that fails leaves the error state and recvbuf as they were, with these exceptions:
 *   - Finite values and the error together overflow float32, or a compressed result is too large for config.datatype:
 *     NONFINITE on every rank, the error begins at zero again, and recvbuf is unspecified. With POWERSGD this holds for
 *     every result that is too large, also of a vector. It holds too for a value that, with its error, is larger than
 *     FLT_MAX / (4 sqrt(n)) (n: the matrix's rows or columns, the larger number). The right factors then return to
 *     their initial values.
 *   - An exact sum overflows: recvbuf is unspecified.
 *   - A value among 2^18 or more that go through shared memory isn't finite: recvbuf is unspecified, if no rank has its
 *     sendbuf in memory of onebit_mem_alloc.
 *   - TIMEOUT and TRANSPORT: MPI may still access both buffers of an exact average. In memory of onebit_mem_alloc other
 *     ranks may still access both buffers of an exact average, and read the sendbuf of two levels. Keep both buffers
 *     until MPI_Finalize, and don't change sendbuf.
 * TIMEOUT can't interrupt an exact average inside MPI_Allreduce.
 *
 * In a GPU's memory (which may be managed):
 *   - sendbuf is read, and recvbuf written, in order with config.stream's work. recvbuf may still be written to when
 *     the call returns; work that is put into the stream afterwards sees the result.
 *   - The call waits for work that was put into the stream before it. ONEBIT_TIMEOUT counts that time.
 *   - With ONEBIT_CHECK_NONE the call returns when all its work is in the stream. Over NCCL it waits for the handle's
 *     previous call, and for nothing else. If an error has overflowed, the handle's next run, start or wait returns
 *     NONFINITE, on every rank. Run and start do nothing else in that case, and a wait for it is collective. Loading a
 *     state before that discards the NONFINITE.
 *   - The result has the host's bits, except for the order of an exact sum.
 *   - The current device doesn't matter, and stays the same. A failure on the device is INTERNAL.
 *   - No call on a handle can be captured into a graph. While config.stream is captured, run is UNSUPPORTED, puts
 *     nothing into the stream and changes nothing; test and wait leave a started operation for later. The other ranks
 *     are told that run was refused. Over NCCL, and with ONEBIT_CHECK_NONE, they aren't: they wait for this rank's
 *     call.
 *
 * INVALID_ARGUMENT, INVALID_HANDLE, NONFINITE, MISMATCH, BUSY, UNSUPPORTED (a stream that is captured), TRANSPORT,
 * TIMEOUT. */
ONEBIT_API onebit_status_t onebit_allreduce_run(onebit_allreduce_t allreduce, const void* sendbuf,
                                                void* recvbuf) ONEBIT_NOEXCEPT;

/* onebit_allreduce_run in three parts, so that the caller can compute meanwhile. The buffers belong to the operation
 * from start until it is finished.
 *   start  begins the operation, and returns at once. The call that finishes the operation reports wrong arguments or
 *          values, on every rank. start itself returns only INVALID_HANDLE and BUSY; with ONEBIT_CHECK_NONE also
 *          INVALID_ARGUMENT, and the status of an earlier call that had returned before its end; over NCCL also
 *          UNSUPPORTED
 *   test   does a slice of the work, and never waits. *done = 1: the operation is finished, and test returns its
 *          status. *done = 0: the operation is not finished. TIMEOUT once tests have found nothing new from the peers
 *          for ONEBIT_TIMEOUT seconds. A pause of the program between two tests counts as one second at most
 *   wait   finishes the operation, and returns its status
 * If nothing was started, test and wait return SUCCESS, test with *done = 1, as MPI's do. The operation's statuses are
 * those of run. On hosts the operation advances only inside test, wait and onebit_comm_progress. Operations of several
 * handles may be in flight at a time. But a wait advances only its own handle: finish operations in the same order on
 * every rank, or poll all of them. start and the call that finishes are collective; other ranks may call run instead.
 */
ONEBIT_API onebit_status_t onebit_allreduce_start(onebit_allreduce_t allreduce, const void* sendbuf,
                                                  void* recvbuf) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_allreduce_test(onebit_allreduce_t allreduce, int* done) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_allreduce_wait(onebit_allreduce_t allreduce) ONEBIT_NOEXCEPT;

/* Sets a callback. `callback` is called once for each operation that onebit_allreduce_start begins from now on, as soon
 * as the operation is finished. The thread whose call finishes the operation (test, wait or onebit_comm_progress) calls
 * it, at the end of that call. The callback is never called between two calls of the program. A test or wait that
 * finishes the operation also returns its status. In the callback the operation is over and the handle is free: any
 * call may be made on it and on all other handles, start and destroy among them. The buffers are the caller's again.
 * run calls no callback; destroy of a broken or aborted handle doesn't either. The callback runs in the caller's
 * floating-point environment.
 *   callback  NULL: no callback any more
 *   context   passed to it; must stay valid as long as operations may end
 * Local. INVALID_HANDLE, BUSY (a started operation is not finished, or another thread is in a call). */
ONEBIT_API onebit_status_t onebit_allreduce_set_callback(onebit_allreduce_t allreduce, onebit_callback_fn callback,
                                                         void* context) ONEBIT_NOEXCEPT;

/* Sets the algorithm from the next call on. One handle can thus be dense in the warm-up stage and compressed
 * afterwards. The handle must have been created with a compressed algorithm (or AUTO that chose one). Local, but to be
 * called on every rank: if ranks differ, the next call is MISMATCH (with ONEBIT_CHECK_FULL). AUTO is INVALID_ARGUMENT
 * here.
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_allreduce_set_algorithm(onebit_allreduce_t allreduce,
                                                          onebit_algorithm_t algorithm) ONEBIT_NOEXCEPT;

/* Declares which elements can be nonzero. The codecs SIGN, MEANS and INT2 cannot express zero. An element outside the
 * mask has no part in any scale, its error stays zero and its compressed result is exactly zero, whatever the input.
 * The call sets the errors of these elements to zero. POWERSGD can express zero, and has no mask. Collective; blocks;
 * transactional.
 *   mask  [in] ceil(count / 32) words, element 32 w + i in bit i of word w, 1: takes part; NULL: all take part. The
 *         same on every rank. Copied.
 * INVALID_ARGUMENT (a handle that is dense for good), INVALID_HANDLE, MISMATCH, BUSY, UNSUPPORTED (POWERSGD),
 * OUT_OF_MEMORY, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_allreduce_set_mask(onebit_allreduce_t allreduce,
                                                     const uint32_t* mask) ONEBIT_NOEXCEPT;

typedef struct onebit_allreduce_info {
    size_t size;                  /* [in] sizeof(onebit_allreduce_info_t) */
    uint32_t version;             /* [in] ONEBIT_ALLREDUCE_INFO_VERSION */
    uint32_t threads;             /* number of threads that compute */
    uint64_t calls;               /* calls that finished with success, or are in a GPU's stream without a failure so
                                     far */
    uint64_t bytes_sent;          /* by this rank to other ranks, in total, for any purpose: data, agreement, saving */
    uint64_t last_bytes_sent;     /* by the last call that finished with success */
    uint64_t dense_bytes;         /* bytes that an exact ring allreduce would send per call: 2 (n-1)/n * count * the
                                     size of an element */
    uint64_t state_bytes;         /* allocated for the error state */
    uint64_t workspace_bytes;     /* allocated for all else */
    onebit_algorithm_t algorithm; /* the next call's; never AUTO */
    char transport[32]; /* "loopback", "mpi", "tcp", "nccl". With a GPU's memory "mpi, staged", "mpi, direct"; with NCCL
                           inside the nodes "nccl+mpi, staged", "nccl+mpi, direct". For exact averages inside one node
                           "mpi, shared memory". For these and for two levels "mpi, shared buffers", if in the last call
                           this rank's node read its values where they lie */
    char kernels[16];   /* "reference", "sse4", "avx2", "avx512", ... */
    char reason[260];   /* why this algorithm */
} onebit_allreduce_info_t;

#define ONEBIT_ALLREDUCE_INFO_VERSION 1
#define ONEBIT_ALLREDUCE_INFO_INIT                                                                                  \
    {                                                                                                               \
        sizeof(onebit_allreduce_info_t), ONEBIT_ALLREDUCE_INFO_VERSION, 0, 0, 0, 0, 0, 0, 0, ONEBIT_ALGORITHM_AUTO, \
            {0}, {0}, {                                                                                             \
            0                                                                                                       \
        }                                                                                                           \
    }

/* ONEBIT_ALLREDUCE_INFO_INIT as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_allreduce_info_init(onebit_allreduce_info_t* info, size_t size) ONEBIT_NOEXCEPT;

/* Fills *info. Local; does not block. INVALID_ARGUMENT, INVALID_HANDLE, BUSY (another thread is in a call). */
ONEBIT_API onebit_status_t onebit_allreduce_get_info(onebit_allreduce_t allreduce,
                                                     onebit_allreduce_info_t* info) ONEBIT_NOEXCEPT;

/* Describes a level of ONEBIT_ALGORITHM_LEVELS. */
typedef struct onebit_level_info {
    size_t size;      /* [in] sizeof(onebit_level_info_t) */
    uint32_t version; /* [in] ONEBIT_LEVEL_INFO_VERSION */
    uint32_t ranks;   /* number of ranks that exchange with each other: those of a group, or one of each group of the
                         level before */
    uint64_t begin;   /* the elements that this rank contributes to this exchange: [begin, begin + count) */
    uint64_t count;
    uint64_t bytes;      /* bytes that this rank sends to these ranks in a call, not counting the ranks' agreement */
    uint32_t compressed; /* as in onebit_level_t */
    onebit_codec_t codec;
} onebit_level_info_t;

#define ONEBIT_LEVEL_INFO_VERSION 1
#define ONEBIT_LEVEL_INFO_INIT \
    { sizeof(onebit_level_info_t), ONEBIT_LEVEL_INFO_VERSION, 0, 0, 0, 0, 0, ONEBIT_CODEC_SIGN }

/* ONEBIT_LEVEL_INFO_INIT as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_level_info_init(onebit_level_info_t* info, size_t size) ONEBIT_NOEXCEPT;

/* Fills *info, and copies the level's worker error out. Local; does not block.
 *   level  from 0 to config.num_levels: as in config.levels; config.num_levels is the level between the last groups
 *   error  [out] info->count floats, zero if the level is exact; NULL: not wanted
 * The part that is left out of the average of a call is a weighted sum of these errors over all ranks and levels, plus
 * the sum of the servers' errors (onebit_allreduce_get_error). An error of level l has the weight m / n: m is the
 * number of ranks in a group of level l - 1 (1 for level 0), n the number of all ranks.
 * INVALID_ARGUMENT (a handle that was created without levels, a level that it lacks), INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_allreduce_get_level(onebit_allreduce_t allreduce, uint32_t level,
                                                      onebit_level_info_t* info, float* error) ONEBIT_NOEXCEPT;

/* Releases the handle and all it owns; NULL is accepted. Local, and waits for no other rank; over NCCL collective, and
 * waits for the others. If a run returned before it had ended (ONEBIT_CHECK_NONE, a GPU's memory), destroy waits for
 * its end, but doesn't report its status. INVALID_HANDLE; BUSY while a started operation is not finished; UNSUPPORTED
 * while the end of a run is in a stream that is captured (nothing is released then). */
ONEBIT_API onebit_status_t onebit_allreduce_destroy(onebit_allreduce_t allreduce) ONEBIT_NOEXCEPT;

/* -------------------------------------------------------------------------------------------- Error state ---- */

/* The error state is the part of the values that has not been delivered yet: the worker error (count elements, on every
 * rank) and the server error (this rank's chunk). A training that goes on without the state loses that part of its
 * gradients. With POWERSGD every rank has, instead of the server error, the right factors of the last call. The next
 * call starts its search from them. Without them nothing is lost, but the first calls deliver less.
 *
 * In a GPU's memory these calls, and set_algorithm and set_mask, wait until the stream has finished the handle's last
 * call; so they can return TIMEOUT, TRANSPORT and INTERNAL. While the stream is captured they are UNSUPPORTED on this
 * rank alone; in collective ones the other ranks wait for this rank. */

/* Sets both errors to zero. POWERSGD's right factors return to their initial values. The number of calls, which
 * determines RANDOMK's draws, doesn't change. Local, but to be called on every rank. INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_allreduce_reset(onebit_allreduce_t allreduce) ONEBIT_NOEXCEPT;

/* Copies the errors out. The errors of a handle that is dense for good are zero, and its server chunk is empty. Local.
 * If `worker` is not NULL, count floats are written to it. If `server` is not NULL, *server_count floats are written to
 * it. server_begin, server_count (each may be NULL): this rank's chunk, in elements; with POWERSGD 0, and the number of
 * floats in the right factors. With levels `worker` gets the errors of this rank between the last groups;
 * onebit_allreduce_get_level gives the errors inside the groups.
 * INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_allreduce_get_error(onebit_allreduce_t allreduce, float* worker, float* server,
                                                      uint64_t* server_begin, uint64_t* server_count) ONEBIT_NOEXCEPT;

/* The saved state as bytes, for a checkpoint of the caller's own. The bytes describe themselves, are checked when they
 * are loaded, and mean the same on every ISA (docs/WIRE_FORMAT.md, "Saved state"). state_size and pack are local.
 * unpack is collective, blocks and is transactional: if any rank's bytes don't fit, no rank's state changes. The mask
 * is not part of the state: set the same mask first (another mask is BAD_STATE). A state with values that aren't finite
 * is BAD_STATE, too, whatever its checksum. States that were packed after different numbers of calls are MISMATCH.
 *   buffer  host memory, any alignment; `bytes` of it, for pack at least what state_size said
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY, OUT_OF_MEMORY; unpack also BAD_STATE, MISMATCH, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_allreduce_state_size(onebit_allreduce_t allreduce, uint64_t* bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_allreduce_pack_state(onebit_allreduce_t allreduce, void* buffer,
                                                       uint64_t bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_allreduce_unpack_state(onebit_allreduce_t allreduce, const void* buffer,
                                                         uint64_t bytes) ONEBIT_NOEXCEPT;

/* Save the state to files and load it, one file per rank: PREFIX.RANK-of-SIZE.onebit. A save never harms an earlier
 * one. All ranks write new files (accessible to the owner alone). Once all are on disk, each rank moves the earlier
 * file to NAME.previous and the new one to NAME. If this fails anywhere, all ranks move their files back. Once all have
 * done it, NAME.previous is removed. Whichever rank dies, at any moment, all ranks have the files of one whole save.
 * Load takes the newest save that all ranks have. If some of its files are in NAME.previous, load says so:
 * onebit_last_error has a message after SUCCESS, and ONEBIT_LOG=1 writes it to stderr. While a save is under way rank 0
 * holds a lock on PREFIX.lock. Another job's save or load is refused (IO); the message names the holder: host, process
 * and since when. A job that dies leaves no lock.
 * Files of two saves are refused (BAD_STATE); the message names two of them. Load allocates memory of a file's size
 * only if the file has the size that the handle needs. A path that is no regular file is refused at once (IO). The next
 * call after a load continues exactly, bit for bit. Collective; block; transactional. As for unpack, and IO. */
ONEBIT_API onebit_status_t onebit_allreduce_save(onebit_allreduce_t allreduce, const char* prefix) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_allreduce_load(onebit_allreduce_t allreduce, const char* prefix) ONEBIT_NOEXCEPT;

/* ------------------------------------------------------------------------------ Reduce-scatter, all-gather ---- */

/* The two halves of an allreduce, for training whose gradients, optimizer or parameters are sharded (ZeRO, FSDP). A
 * whole buffer of `count` elements is cut into one shard for each rank, in the order of the ranks.
 *   reduce-scatter  every rank has a whole buffer; rank r gets shard r of their average, or sum
 *   all-gather      rank r has shard r; every rank gets the whole buffer
 * Both send codes of few bits instead of floats (config.codec), as an allreduce does. Each has an error of its own: the
 * part of the values that a message could not express is carried into the next call. A reduce-scatter has a worker
 * error of `count` elements. Its result is not encoded again: it contains only the workers' rounding. An all-gather has
 * an error of this rank's shard alone. Use it for values that change from call to call, or that may arrive rounded. A
 * reduce-scatter of gradients and an all-gather of the averages, with the same codec, are together an allreduce to the
 * bit, if the shards are its chunks (docs/WIRE_FORMAT.md, "Chunks and blocks").
 *
 * Handles are persistent. Every call means the same as the allreduce's call of the same name: blocking, transactional,
 * thread safety, callbacks, statuses. Only the differences are described here. onebit_comm_progress advances these
 * operations, and onebit_comm_abort ends them, as it does allreduces. */
typedef struct onebit_reduce_scatter_opaque* onebit_reduce_scatter_t;
typedef struct onebit_all_gather_opaque* onebit_all_gather_t;

/* The config of a reduce-scatter or an all-gather. */
typedef struct onebit_shard_config {
    size_t size;            /* sizeof(onebit_shard_config_t) */
    uint32_t version;       /* ONEBIT_SHARD_CONFIG_VERSION */
    uint32_t threads;       /* this rank's own; 0: ONEBIT_THREADS, else 1 */
    uint64_t count;         /* elements of the whole buffer, at least the number of ranks. The same on every rank, as
                               are all members that follow */
    const uint64_t* counts; /* elements of each rank's shard, one number for each rank. They add up to count; some may
                               be 0. Read, not kept. NULL: shards are equal, and count is a multiple of the number of
                               ranks */
    onebit_datatype_t datatype;   /* of sendbuf and recvbuf */
    onebit_memory_t memory;       /* ONEBIT_MEMORY_HOST; else UNSUPPORTED */
    onebit_algorithm_t algorithm; /* AUTO, DENSE (exact, nothing compressed) or PIPELINED (compressed); others are
                                     INVALID_ARGUMENT. AUTO is exact if an allreduce of as many elements would be
                                     exact */
    onebit_codec_t codec;
    onebit_scale_t scale; /* of ONEBIT_CODEC_SIGN; 0 with any other codec, or INVALID_ARGUMENT */
    onebit_group_t group; /* likewise. GROUP_BUFFER: the whole buffer of a reduce-scatter, the shard of an all-gather */
    onebit_check_t check;
    onebit_op_t op; /* for a reduce-scatter; for an all-gather 0, or INVALID_ARGUMENT */
    void* stream;   /* NULL */
    uint32_t kept;  /* of ONEBIT_CODEC_TOPK and ONEBIT_CODEC_RANDOMK, as in onebit_allreduce_config_t */
    uint32_t value_bits;
    onebit_datatype_t error_type; /* of the error state, likewise */
    onebit_rounding_t rounding;   /* of ONEBIT_CODEC_INT8 and ONEBIT_CODEC_INT4, likewise */
} onebit_shard_config_t;

#define ONEBIT_SHARD_CONFIG_VERSION 1
/* The defaults for a whole buffer of `count_` elements; change members by name afterwards. */
#define ONEBIT_SHARD_CONFIG_INIT(count_)                                                                         \
    {                                                                                                            \
        sizeof(onebit_shard_config_t), ONEBIT_SHARD_CONFIG_VERSION, 0, (uint64_t)(count_), NULL, ONEBIT_FLOAT32, \
            ONEBIT_MEMORY_HOST, ONEBIT_ALGORITHM_AUTO, ONEBIT_CODEC_SIGN, ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK,   \
            ONEBIT_CHECK_FULL, ONEBIT_OP_AVERAGE, NULL, 0, 0, ONEBIT_FLOAT32, ONEBIT_ROUNDING_NEAREST            \
    }

/* ONEBIT_SHARD_CONFIG_INIT as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_shard_config_init(onebit_shard_config_t* config, size_t size,
                                                    uint64_t count) ONEBIT_NOEXCEPT;

/* Plan a reduce-scatter or an all-gather, and allocate all memory that its operations will ever use. Collective; block.
 *   config          read, not kept
 *   reduce_scatter, all_gather  [out] the handle; set to NULL on failure
 * INVALID_ARGUMENT (among others: counts that don't add up, and a count that can't be cut into equal shards),
 * INVALID_HANDLE, MISMATCH, UNSUPPORTED, OUT_OF_MEMORY, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_reduce_scatter_create(onebit_comm_t comm, const onebit_shard_config_t* config,
                                                        onebit_reduce_scatter_t* reduce_scatter) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_create(onebit_comm_t comm, const onebit_shard_config_t* config,
                                                    onebit_all_gather_t* all_gather) ONEBIT_NOEXCEPT;

/* recvbuf = this rank's shard of the average over the ranks of sendbuf, or of their sum (config.op).
 *   sendbuf  [in] count elements, aligned to the element's size; the caller's
 *   recvbuf  [out] as many elements as this rank's shard has, likewise; the shard's place in sendbuf (in place), or not
 *            overlapping sendbuf. NULL is accepted if the shard is empty
 * A compressed result doesn't depend on the instruction set, the transport or the number of threads. Values are added
 * up in the order of the ranks. An exact average of finite values is finite, also if their sum would overflow float32.
 *
 * A call that fails leaves the error state and recvbuf as they were, with these exceptions:
 *   - Finite values and the error together overflow float32 on some rank: NONFINITE on every rank, and the error of
 *     that rank begins at zero again. With ONEBIT_CHECK_FULL_LOW_MEMORY the error of every rank begins at zero again.
 *     With ONEBIT_CHECK_NONE only that rank, and the ranks that get values from it, get NONFINITE, and their recvbuf is
 *     unspecified.
 *   - A sum overflows config.datatype, or a compressed average does: NONFINITE on every rank, and recvbuf is
 *     unspecified; with ONEBIT_CHECK_FULL_LOW_MEMORY every rank's error begins at zero again. With ONEBIT_CHECK_NONE
 *     nothing checks this.
 *
 * Collective; blocks; transactional. As for onebit_allreduce_run. */
ONEBIT_API onebit_status_t onebit_reduce_scatter_run(onebit_reduce_scatter_t reduce_scatter, const void* sendbuf,
                                                     void* recvbuf) ONEBIT_NOEXCEPT;

/* recvbuf = all ranks' shards, one behind the other. All ranks get the same bits: a rank gets its own shard as the
 * other ranks see it.
 *   sendbuf  [in] as many elements as this rank's shard has, aligned to the element's size; NULL is accepted if the
 *            shard is empty
 *   recvbuf  [out] count elements, likewise; sendbuf may be the shard's place in it (in place), or not overlap it
 * An exact all-gather copies finite values' bits. Failures as for onebit_allreduce_run. Collective; blocks;
 * transactional. */
ONEBIT_API onebit_status_t onebit_all_gather_run(onebit_all_gather_t all_gather, const void* sendbuf,
                                                 void* recvbuf) ONEBIT_NOEXCEPT;

/* The calls in three parts, as onebit_allreduce_start, _test and _wait; and their callbacks, as
 * onebit_allreduce_set_callback. */
ONEBIT_API onebit_status_t onebit_reduce_scatter_start(onebit_reduce_scatter_t reduce_scatter, const void* sendbuf,
                                                       void* recvbuf) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_reduce_scatter_test(onebit_reduce_scatter_t reduce_scatter,
                                                      int* done) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_reduce_scatter_wait(onebit_reduce_scatter_t reduce_scatter) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_reduce_scatter_set_callback(onebit_reduce_scatter_t reduce_scatter,
                                                              onebit_callback_fn callback,
                                                              void* context) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_start(onebit_all_gather_t all_gather, const void* sendbuf,
                                                   void* recvbuf) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_test(onebit_all_gather_t all_gather, int* done) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_wait(onebit_all_gather_t all_gather) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_set_callback(onebit_all_gather_t all_gather, onebit_callback_fn callback,
                                                          void* context) ONEBIT_NOEXCEPT;

/* As onebit_allreduce_set_algorithm: DENSE or PIPELINED. A handle that was created compressed can use either. */
ONEBIT_API onebit_status_t onebit_reduce_scatter_set_algorithm(onebit_reduce_scatter_t reduce_scatter,
                                                               onebit_algorithm_t algorithm) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_set_algorithm(onebit_all_gather_t all_gather,
                                                           onebit_algorithm_t algorithm) ONEBIT_NOEXCEPT;

/* The error state, as the allreduce's. get_error copies out `count` floats of a reduce-scatter. Of an all-gather it
 * copies out as many floats as this rank's shard has (NULL is accepted if the shard is empty). The floats of a handle
 * that is exact for good are zero. A saved state fits a handle of the same collective, shards, number of ranks, codec,
 * scale, group and op (else BAD_STATE). */
ONEBIT_API onebit_status_t onebit_reduce_scatter_reset(onebit_reduce_scatter_t reduce_scatter) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_reduce_scatter_get_error(onebit_reduce_scatter_t reduce_scatter,
                                                           float* error) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_reduce_scatter_state_size(onebit_reduce_scatter_t reduce_scatter,
                                                            uint64_t* bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_reduce_scatter_pack_state(onebit_reduce_scatter_t reduce_scatter, void* buffer,
                                                            uint64_t bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_reduce_scatter_unpack_state(onebit_reduce_scatter_t reduce_scatter,
                                                              const void* buffer, uint64_t bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_reduce_scatter_save(onebit_reduce_scatter_t reduce_scatter,
                                                      const char* prefix) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_reduce_scatter_load(onebit_reduce_scatter_t reduce_scatter,
                                                      const char* prefix) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_reset(onebit_all_gather_t all_gather) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_get_error(onebit_all_gather_t all_gather, float* error) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_state_size(onebit_all_gather_t all_gather,
                                                        uint64_t* bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_pack_state(onebit_all_gather_t all_gather, void* buffer,
                                                        uint64_t bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_unpack_state(onebit_all_gather_t all_gather, const void* buffer,
                                                          uint64_t bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_save(onebit_all_gather_t all_gather, const char* prefix) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_load(onebit_all_gather_t all_gather, const char* prefix) ONEBIT_NOEXCEPT;

/* Information on a reduce-scatter or an all-gather. */
typedef struct onebit_shard_info {
    size_t size;                  /* [in] sizeof(onebit_shard_info_t) */
    uint32_t version;             /* [in] ONEBIT_SHARD_INFO_VERSION */
    uint32_t threads;             /* number of threads that compute */
    uint64_t shard_begin;         /* the first element of this rank's shard in the whole buffer */
    uint64_t shard_count;         /* elements of this rank's shard */
    uint64_t calls;               /* calls that finished with success */
    uint64_t bytes_sent;          /* by this rank to other ranks, in total, for any purpose: data, agreement, saving */
    uint64_t last_bytes_sent;     /* by the last call that finished with success */
    uint64_t dense_bytes;         /* bytes that this rank would send per exact call: with a reduce-scatter the other
                                     ranks' shards, with an all-gather its own shard to each of them */
    uint64_t state_bytes;         /* allocated for the error state */
    uint64_t workspace_bytes;     /* allocated for all else */
    onebit_algorithm_t algorithm; /* the next call's: DENSE or PIPELINED */
    char transport[32];           /* "loopback", "mpi" or "tcp" */
    char kernels[16];             /* "reference", "sse4", "avx2", "avx512", ... */
    char reason[260];             /* why this algorithm */
} onebit_shard_info_t;

#define ONEBIT_SHARD_INFO_VERSION 1
#define ONEBIT_SHARD_INFO_INIT                                                                                         \
    {                                                                                                                  \
        sizeof(onebit_shard_info_t), ONEBIT_SHARD_INFO_VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 0, ONEBIT_ALGORITHM_AUTO, {0}, \
            {0}, {                                                                                                     \
            0                                                                                                          \
        }                                                                                                              \
    }

/* ONEBIT_SHARD_INFO_INIT as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_shard_info_init(onebit_shard_info_t* info, size_t size) ONEBIT_NOEXCEPT;

/* Fill *info. Local; don't block. INVALID_ARGUMENT, INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_reduce_scatter_get_info(onebit_reduce_scatter_t reduce_scatter,
                                                          onebit_shard_info_t* info) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_get_info(onebit_all_gather_t all_gather,
                                                      onebit_shard_info_t* info) ONEBIT_NOEXCEPT;

/* Release the handle and all it owns; NULL is accepted. Local, and wait for no other rank. INVALID_HANDLE; BUSY while a
 * started operation is not finished. */
ONEBIT_API onebit_status_t onebit_reduce_scatter_destroy(onebit_reduce_scatter_t reduce_scatter) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_destroy(onebit_all_gather_t all_gather) ONEBIT_NOEXCEPT;

/* ---------------------------------------------------------------------------------------------- Optimizer ---- */

/* Five optimizers over a list of tensors. The tensors are registered once and exchanged as one buffer or a few.
 * docs/OPTIMIZERS.md has the formulas of each optimizer. Parameters must be equal on every rank at the start. They are
 * equal again after every step that exchanges something (all steps except 0/1 Adam's local ones). */
typedef struct onebit_optimizer_opaque* onebit_optimizer_t;

typedef enum onebit_optimizer_kind ONEBIT_ENUM_INT {
    ONEBIT_OPTIMIZER_ADAM = 0,         /* AdamW: gradients averaged in every step, exactly or by config.codec */
    ONEBIT_OPTIMIZER_ONEBIT_ADAM = 1,  /* as ADAM until the freeze, compressed afterwards [1-bit Adam, alg. 1] */
    ONEBIT_OPTIMIZER_LAMB = 2,         /* gradients averaged as with ADAM; one trust ratio per tensor [LAMB] */
    ONEBIT_OPTIMIZER_ONEBIT_LAMB = 3,  /* as LAMB until the freeze, compressed afterwards [1-bit LAMB, alg. 1] */
    ONEBIT_OPTIMIZER_ZERO_ONE_ADAM = 4 /* exact rounds, rarer and rarer, with compressed rounds between them; after the
                                          freeze all rounds become rarer and rarer [0/1 Adam, alg. 1] */
} onebit_optimizer_kind_t;

/* One tensor: LAMB calls it a layer. Its arrays lie in config.memory, aligned to the element's size, contiguous, and
 * belong to the caller; the pointers must stay valid. Arrays of the tensors must not overlap (else INVALID_ARGUMENT).
 */
typedef struct onebit_tensor {
    size_t size;                     /* sizeof(onebit_tensor_t) */
    uint32_t version;                /* ONEBIT_TENSOR_VERSION */
    uint32_t group;                  /* index into config.groups; 0 if there are no groups */
    uint64_t count;                  /* elements, at least 1 */
    float* parameters;               /* the master copy; read and written by each step */
    const void* gradients;           /* read by each step. NULL: onebit_optimizer_set_gradients will set them, or they
                                        are zeros (config.missing_gradients) */
    onebit_datatype_t gradient_type; /* of gradients */
    onebit_datatype_t copy_type;     /* of copy */
    void* copy;                      /* NULL, or the array to which each step writes the parameters, rounded to
                                        copy_type; the copy of a finite parameter is finite */
    const char* name;                /* for messages; may be NULL; copied */
} onebit_tensor_t;

#define ONEBIT_TENSOR_VERSION 1
#define ONEBIT_TENSOR_INIT(parameters_, gradients_, count_)                                                 \
    {                                                                                                       \
        sizeof(onebit_tensor_t), ONEBIT_TENSOR_VERSION, 0, (uint64_t)(count_), (parameters_), (gradients_), \
            ONEBIT_FLOAT32, ONEBIT_FLOAT32, NULL, NULL                                                      \
    }

/* ONEBIT_TENSOR_INIT as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_tensor_init(onebit_tensor_t* tensor, size_t size, float* parameters,
                                              const void* gradients, uint64_t count) ONEBIT_NOEXCEPT;

/* Settings that several tensors share. */
typedef struct onebit_param_group {
    size_t size;         /* sizeof(onebit_param_group_t) */
    uint32_t version;    /* ONEBIT_PARAM_GROUP_VERSION */
    int no_compress;     /* 1: the group's gradients are averaged exactly in every step, its tensors never freeze */
    double lr;           /* learning rate, >= 0 */
    double beta1, beta2; /* in [0, 1) */
    double eps;          /* > 0, also when rounded to a float */
    double weight_decay; /* decoupled: x -= lr * (m / (sqrt(v) + eps) + weight_decay * x); >= 0 */
} onebit_param_group_t;

#define ONEBIT_PARAM_GROUP_VERSION 1
#define ONEBIT_PARAM_GROUP_INIT(lr_) \
    { sizeof(onebit_param_group_t), ONEBIT_PARAM_GROUP_VERSION, 0, (lr_), 0.9, 0.999, 1e-8, 0.0 }

/* ONEBIT_PARAM_GROUP_INIT as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_param_group_init(onebit_param_group_t* group, size_t size, double lr) ONEBIT_NOEXCEPT;

/* Special values of freeze_step, which are not steps:
 *   NEVER  no freeze by itself; onebit_optimizer_freeze still works
 *   AUTO   freeze once the variance of every compressed tensor has settled. All of these must hold:
 *          - lr_warmup_steps, two windows and 1/(1-beta2) steps (3/(1-beta2) if bias_correction is 0) have passed.
 *          - No learning rate has reached a new height for freeze_window steps.
 *          - Each tensor's |v|_1, corrected for its bias, has stayed within [freeze_band, 1/freeze_band] of its value
 *            freeze_window steps before, for freeze_window steps. 1-bit LAMB requires the same of the squared norm of
 *            the tensor's parameters.
 *          A training whose variance keeps changing stays exact. The info struct says what the freeze waits for. With
 *          ONEBIT_LOG a line on stderr says the same, 10, 20, 40, ... windows after lr_warmup_steps. Until the freeze
 *          0/1 Adam's rounds are all exact.
 *   PAPER  freeze by the rule of [1-bit Adam, section 7.1]: after lr_warmup_steps, when the sum over all compressed
 *          tensors |v_t|_1 / |v_(t - 1/(1-beta2))|_1 lies between 0.96 and 1/0.96, v not corrected. Often too early
 *          (docs/OPTIMIZERS.md, "Freeze")
 * A freeze may end (config.thaw_ratio). The next freeze comes 1/(1-beta2) steps later. With AUTO and PAPER that is the
 * earliest step, because the rule begins anew. Otherwise the freeze comes by itself. */
#define ONEBIT_FREEZE_NEVER UINT64_MAX
#define ONEBIT_FREEZE_AUTO 0
#define ONEBIT_FREEZE_PAPER (UINT64_MAX - 1)
/* A special value of follow_interval, which is not an interval. */
#define ONEBIT_FOLLOW_NEVER UINT32_MAX

/* The condition that a warm-up with a freeze rule waits for. */
typedef enum onebit_freeze_wait ONEBIT_ENUM_INT {
    ONEBIT_FREEZE_WAIT_NONE = 0,      /* nothing: frozen, or no freeze by a rule */
    ONEBIT_FREEZE_WAIT_STEPS = 1,     /* the first step that may be the last one */
    ONEBIT_FREEZE_WAIT_LR = 2,        /* a window of steps without a new highest learning rate */
    ONEBIT_FREEZE_WAIT_VARIANCE = 3,  /* a tensor's variance to settle */
    ONEBIT_FREEZE_WAIT_PARAMETERS = 4 /* 1-bit LAMB: a tensor's norm to settle */
} onebit_freeze_wait_t;

/* What the kinds that freeze compress after the freeze. D = sqrt(v) + eps, as frozen. */
typedef enum onebit_compressed ONEBIT_ENUM_INT {
    ONEBIT_COMPRESSED_UPDATES = 0, /* the updates of the parameters: a mean of g / D. Each g / D has a bound. An element
                                      whose variance is far below its neighbours' moves about as far as they do
                                      (docs/OPTIMIZERS.md, "Small variances") */
    ONEBIT_COMPRESSED_MOMENTA = 1  /* momenta, divided by D afterwards, as in the papers. ONEBIT_CODEC_SIGN sends all
                                      elements of a block with one magnitude, so an element whose variance is far below
                                      its neighbours' runs away */
} onebit_compressed_t;

/* A value for bucket_size that was good on the networks that were tried (docs/ARCHITECTURE.md has the figures). */
#define ONEBIT_BUCKET_SIZE_SUGGESTED 1048576

typedef struct onebit_optimizer_config {
    size_t size;      /* sizeof(onebit_optimizer_config_t) */
    uint32_t version; /* ONEBIT_OPTIMIZER_CONFIG_VERSION */
    onebit_optimizer_kind_t kind;
    double lr, beta1, beta2, eps, weight_decay; /* of all tensors if there are no groups; see onebit_param_group_t */
    const onebit_param_group_t* groups;         /* NULL, or num_groups of them; read, not kept */
    size_t num_groups;
    int bias_correction;      /* 1: m and v are corrected as in Adam; after the freeze v keeps the correction of the
                                 freeze. 0: neither is corrected, as in DeepSpeed's 1-bit optimizers */
    uint32_t threads;         /* this rank's own; 0: ONEBIT_THREADS, else 1 */
    double max_grad_norm;     /* the averaged gradient is scaled down to this L2 norm over all tensors; 0: no scaling */
    uint64_t freeze_step;     /* last warm-up step T_w >= 1, or one of the three special values above. Adam and LAMB
                                 don't freeze: AUTO or NEVER */
    uint64_t lr_warmup_steps; /* no freeze by a rule before this step */
    onebit_scale_t scale;     /* of compressed exchanges by ONEBIT_CODEC_SIGN; 0 with any other codec */
    onebit_group_t group;     /* of the same exchanges; 0 with any other codec */
    double min_trust, max_trust; /* LAMB: bounds of a tensor's trust ratio, 0 <= min <= max */
    double trust_beta;           /* 1-bit LAMB: of the trust ratio's running mean, in [0, 1) */
    int momentum_scaling; /* 1-bit LAMB that compresses momenta. 1: these are brought to one magnitude before they share
                             a message. 0: momenta stay as they are (for comparison) */
    onebit_memory_t memory;     /* where parameters, gradients and copies lie; the same on every rank. A GPU's memory
                                   over NCCL, with bucket_size: UNSUPPORTED */
    uint64_t variance_updates;  /* 0/1 Adam: exact rounds before their interval doubles (kappa), >= 1; with
                                   ONEBIT_FREEZE_AUTO the interval doesn't double */
    uint64_t local_step_scaler; /* 0/1 Adam: steps after the freeze before the interval of rounds doubles, >= 1 */
    uint64_t local_steps;       /* 0/1 Adam: the longest interval of rounds, >= 1 */
    uint64_t bucket_size;       /* 0: step exchanges all tensors together. Else tensors are exchanged in buckets of
                                   about this many elements, whole tensors; onebit_optimizer_grad_ready can begin them.
                                   For networks that take longer than the encoder, as slow networks do */
    void* stream;               /* with ONEBIT_MEMORY_CUDA: the cudaStream_t that the optimizer's work goes into, this
                                   rank's own. NULL: the default stream of the device that is current when the optimizer
                                   is created. The stream must outlive the optimizer */
    uint64_t freeze_window;     /* ONEBIT_FREEZE_AUTO: steps, at most 1000000; 0: 256. Rounded up to a multiple of
                                   floor(freeze_window / 16), if this is more than 1 */
    double freeze_band;         /* ONEBIT_FREEZE_AUTO: how much a norm may change in a window, in (0, 1); 0: 0.9 */
    onebit_compressed_t compressed; /* kinds that freeze: what they compress after the freeze */
    uint32_t follow_interval; /* kinds that freeze: steps from one measurement of each tensor's variance to the next,
                                 after the freeze; 0: 64. Once a variance has faded, measurements come more often.
                                 Updates follow the variance (docs/OPTIMIZERS.md, "After the freeze"). Momenta don't
                                 follow it, and 1-bit LAMB with momenta doesn't measure it. ONEBIT_FOLLOW_NEVER: nothing
                                 is measured, and a freeze never ends. Adam and LAMB: 0 or NEVER */
    double thaw_ratio; /* > 1: how many times as large as at the freeze a tensor's D^2 may become; 0: 4. Beyond this a
                          freeze of updates ends. Momenta stay frozen, and the log says so */
    int missing_gradients; /* 1: gradients that are NULL count as zeros, to the bit, on the rank that has none. For
                              tensors that are not used in a step, on that rank or on all ranks. 0: a step without
                              gradients of some tensor fails */
    onebit_algorithm_t algorithm; /* of compressed exchanges (docs/OPTIMIZERS.md, "Two levels"). AUTO: the algorithm of
                                     the environment's ONEBIT_ALGORITHM, if it is possible. Else TWO_LEVEL if nodes have
                                     several ranks each, and an estimate or a tuning table says that it is quicker. Else
                                     PIPELINED. FLAT, BRUCK and RING give PIPELINED's bits. TWO_LEVEL gives bits of its
                                     own; if there are no two levels it becomes PIPELINED, and info says why. In a GPU's
                                     memory FLAT or PIPELINED, else UNSUPPORTED. DENSE: INVALID_ARGUMENT, except with
                                     Adam and LAMB that average exactly */
    onebit_codec_t codec; /* of compressed exchanges, the same on every rank (docs/OPTIMIZERS.md, "Codecs"). Kinds that
                             freeze encode the same values with every codec. A codec finer than SIGN, the default,
                             leaves less of them to error feedback. Adam and LAMB average exactly with SIGN; with
                             another codec their gradients are compressed, from the first step on. In a GPU's memory
                             SIGN, else UNSUPPORTED. With all codecs except SIGN, scale and group must be 0
                             (INVALID_ARGUMENT) */
    uint32_t kept;        /* of ONEBIT_CODEC_TOPK and ONEBIT_CODEC_RANDOMK, as in onebit_allreduce_config_t */
    uint32_t value_bits;
    onebit_datatype_t error_type; /* of errors, as in onebit_allreduce_config_t; also not with ONEBIT_GROUP_TENSOR.
                                     Exact averages have no errors */
    const onebit_level_t* levels; /* groups of ranks that average exactly; `codec` is used between the groups, by
                                     ONEBIT_ALGORITHM_LEVELS (which AUTO becomes). Read, not kept. One level of several
                                     groups of several ranks, in host memory and exact, else UNSUPPORTED */
    size_t num_levels;            /* 0 or 1; the same on every rank */
} onebit_optimizer_config_t;

#define ONEBIT_OPTIMIZER_CONFIG_VERSION 1
#define ONEBIT_OPTIMIZER_CONFIG_INIT(kind_, lr_)                                                                   \
    {                                                                                                              \
        sizeof(onebit_optimizer_config_t), ONEBIT_OPTIMIZER_CONFIG_VERSION, (kind_), (lr_), 0.9, 0.999, 1e-8, 0.0, \
            NULL, 0, 1, 0, 0.0, ONEBIT_FREEZE_AUTO, 0, ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, 0.01, 10.0, 0.9, 1,    \
            ONEBIT_MEMORY_HOST, 16, 32768, 16, 0, NULL, 0, 0.0, ONEBIT_COMPRESSED_UPDATES, 0, 0.0, 0,              \
            ONEBIT_ALGORITHM_AUTO, ONEBIT_CODEC_SIGN, 0, 0, ONEBIT_FLOAT32, NULL, 0                                \
    }

/* ONEBIT_OPTIMIZER_CONFIG_INIT as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_optimizer_config_init(onebit_optimizer_config_t* config, size_t size,
                                                        onebit_optimizer_kind_t kind, double lr) ONEBIT_NOEXCEPT;

/* Registers the tensors and allocates the optimizer's state. Collective; blocks.
 *   tensors      [in] array of num_tensors; read, not kept. The same counts, groups and gradient types in the same
 *                order on every rank. The tensors together have at least as many elements as there are ranks; so do the
 *                compressed tensors together
 *   optimizer    [out] the handle; set to NULL on failure
 * With all ranks on one node, and no buckets, exact averages also take at most 4 MiB of memory that the ranks share (or
 * 32 KiB for each rank if there are more than 128). In a GPU's memory, if gradients aren't clipped, a second error
 * state and a second set of messages are kept, as with buckets: gradients are checked as they are encoded.
 * INVALID_ARGUMENT, INVALID_HANDLE, MISMATCH, UNSUPPORTED, OUT_OF_MEMORY, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_optimizer_create(onebit_comm_t comm, const onebit_optimizer_config_t* config,
                                                   const onebit_tensor_t* tensors, size_t num_tensors,
                                                   onebit_optimizer_t* optimizer) ONEBIT_NOEXCEPT;

/* One step with the gradients as they are now. Collective; blocks.
 *
 * A gradient that isn't finite on some rank is NONFINITE on every rank, and changes only info.skipped, so that a
 * dynamic loss scale can go on from there. The same holds for a gradient whose square overflows float32 after division
 * by the gradient scale: from 1.8e19 on. If parameters and gradients were finite, SUCCESS leaves finite parameters,
 * copies and state: a result that overflows becomes the largest finite number of its type (docs/OPTIMIZERS.md,
 * "Overflow").
 *
 * A step counts on all tensors or on none, also if it exchanges them in buckets. A step that fails has changed no
 * parameter, copy, moment, schedule or count (except info.skipped and info.cancelled), with three exceptions:
 *   - Finite values and the error together overflow float32, and bucket_size is 0: NONFINITE on every rank. The errors
 *     begin at zero again, and so do 1-bit Adam's and 1-bit LAMB's momenta.
 *   - The first step after the freeze changes over to the compression stage before it exchanges. The optimizer stays in
 *     the compression stage.
 *   - TRANSPORT and TIMEOUT break the optimizer, and leave this rank's parameters and copies as they were. Other ranks
 *     may have finished the step. INTERNAL, and OUT_OF_MEMORY on one rank alone, break the optimizer, too, and may
 *     leave parameters and copies half written.
 *
 * In a GPU's memory (which may be managed):
 *   - Gradients are read, and parameters and copies written, in order with config.stream's work. They may still be
 *     written to when the call returns; work that is put into the stream afterwards sees the result.
 *   - The call waits for work that was put into the stream before it. ONEBIT_TIMEOUT counts that time.
 *   - Results have the host's bits. One thing differs: if bucket_size is 0, the order in which exact rounds add up more
 *     than two ranks.
 *   - The current device doesn't matter, and stays the same. A failure on the device is INTERNAL.
 *   - A step can't be captured into a graph (UNSUPPORTED, as for onebit_allreduce_run). With buckets the other ranks
 *     wait for this rank's step.
 *
 * INVALID_ARGUMENT (a tensor has no gradients), INVALID_HANDLE, NONFINITE, MISMATCH (settings, stage or a state that
 * was set differ), CANCELLED (a rank has called onebit_optimizer_cancel_step), BUSY, UNSUPPORTED, TRANSPORT, TIMEOUT.
 */
ONEBIT_API onebit_status_t onebit_optimizer_step(onebit_optimizer_t optimizer) ONEBIT_NOEXCEPT;

/* onebit_optimizer_step in three parts, so that the caller can compute meanwhile: the bits and the statuses are those
 * of onebit_optimizer_step. Gradients, parameters and copies belong to the step until it is finished.
 * start begins the step, does a first slice of it and doesn't wait. The test or wait that finishes the step reports
 * what is wrong with it, on every rank. start itself returns only INVALID_HANDLE, BUSY, UNSUPPORTED (config.stream is
 * captured) and the status that broke the handle. In these cases nothing has been started, and other ranks wait for
 * this rank's step.
 * test does a slice of the step, and never waits for a peer. It sets *done to 1 when the step is finished (and then
 * returns its status), else to 0. A slice is some milliseconds of work, however large the tensors are. It gives up
 * silent peers as onebit_allreduce_test does (TIMEOUT). wait finishes the step; its timeout counts from the call of
 * wait. If nothing was started both return SUCCESS, test with *done = 1. UNSUPPORTED (config.stream is captured) leaves
 * the step for later.
 * Over NCCL start makes the whole step, and may block: operations must come to the stream in one order on all ranks. A
 * rank that has no memory for what start needs refuses the step, OUT_OF_MEMORY on every rank; its start blocks.
 * Until the step is finished the calls that grad_ready names are BUSY, and so are step, step_start, cancel_step,
 * grad_ready and every set_gradients. Settings made in that time apply to the next step. get_info describes the step as
 * far as it has come. Another thread than the one that started the step may finish it. destroy is BUSY; after
 * onebit_comm_abort, or once the handle is broken, destroy ends the step.
 * Steps of different handles don't disturb each other, but a wait advances only its own handle: finish steps in the
 * same order on every rank, or poll all with test or onebit_comm_progress. Collective; other ranks may call
 * onebit_optimizer_step instead.
 * Statuses otherwise as for onebit_optimizer_step. */
ONEBIT_API onebit_status_t onebit_optimizer_step_start(onebit_optimizer_t optimizer) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_optimizer_step_test(onebit_optimizer_t optimizer, int* done) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_optimizer_step_wait(onebit_optimizer_t optimizer) ONEBIT_NOEXCEPT;

/* As onebit_allreduce_set_callback, for steps that onebit_optimizer_step_start begins from now on. In the callback the
 * tensors are the caller's again. Local. INVALID_HANDLE, BUSY (a started step is not finished, or another thread is in
 * a call). */
ONEBIT_API onebit_status_t onebit_optimizer_set_callback(onebit_optimizer_t optimizer, onebit_callback_fn callback,
                                                         void* context) ONEBIT_NOEXCEPT;

/* In place of onebit_optimizer_step: cancels the step on all ranks, for example when this rank's backward pass ran out
 * of memory. Each other rank calls step or cancel_step. All get the same status: CANCELLED, or an error that a rank of
 * a lower number has found in the step. The message names the rank and its reason. Nothing has changed on any rank
 * except info.cancelled. All ranks may go on with the next step: grad_ready, and the calls that were BUSY, may be
 * called again. No gradients are needed. Only gradients marked by grad_ready are read; they must stay as they are until
 * this call has returned. Exchanges that have begun are finished and discarded. The call works in every stage,
 * whichever tensors each rank has marked. Collective; blocks.
 *   reason  a text of which about 200 bytes are passed on; NULL: none
 * Never SUCCESS. CANCELLED, INVALID_HANDLE, INVALID_ARGUMENT, NONFINITE, MISMATCH, BUSY, UNSUPPORTED (config.stream is
 * captured), TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_optimizer_cancel_step(onebit_optimizer_t optimizer,
                                                        const char* reason) ONEBIT_NOEXCEPT;

/* Marks the gradients of tensor number `tensor` as ready. They must stay as they are until the next step has returned.
 * Once all tensors of a bucket are ready, the bucket's exchange begins, and overlaps with the rest of the backward
 * pass. Buckets begin in one order: the bucket of the last tensors comes first. Only for optimizers with a positive
 * config.bucket_size. The call is optional, and ranks may differ in it: step begins the exchanges that no call has
 * begun, and its result is the same to the bit.
 *
 * The call encodes, sends, and advances all exchanges that have begun; it never waits for a peer. Between two calls
 * nothing advances. In a GPU's memory the gradients are ready in order with config.stream's work; the call doesn't wait
 * for this work.
 *
 * Some steps exchange nothing before onebit_optimizer_step: compressed steps with clipping (the norm of all gradients
 * comes first); steps of 0/1 Adam after the freeze; of any kind the first step after the freeze; and of 0/1 Adam the
 * first step after a load.
 *
 * From the first call to the end of the step these are BUSY: freeze, reset_error, get_error, save, load, all calls for
 * states (pack, unpack, get, set), set_parameters, set_all_gradients, destroy, and set_gradients of a tensor that is
 * ready. Settings made in that time apply to the next step. onebit_optimizer_cancel_step ends such a step early. If the
 * ranks come to the step in different stages (one of them frozen by hand), the step is MISMATCH on every rank. The
 * optimizer is then broken: some ranks may have begun exchanges that other ranks never begin.
 *
 * Buckets need a second error state and a second set of messages. For n ranks these take 4 + 4/n bytes, and an eighth
 * of a byte for each bit of the codec, for each compressed element; and 4 (n-1)/n bytes for each element that is
 * averaged exactly. Local.
 * INVALID_ARGUMENT (no such tensor, no gradients, ready already, bucket_size is 0), INVALID_HANDLE, BUSY, UNSUPPORTED
 * (config.stream is captured: nothing is marked), TRANSPORT. */
ONEBIT_API onebit_status_t onebit_optimizer_grad_ready(onebit_optimizer_t optimizer, size_t tensor) ONEBIT_NOEXCEPT;

/* Sets the address from which the next steps read the gradients of tensor number `tensor`, of the type that the tensor
 * was registered with. NULL: the tensor has no gradients. A step then fails until gradients are set; with
 * config.missing_gradients it takes zeros. Local.
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_optimizer_set_gradients(onebit_optimizer_t optimizer, size_t tensor,
                                                          const void* gradients) ONEBIT_NOEXCEPT;

/* onebit_optimizer_set_gradients for all tensors in one call: all addresses change, or none.
 *   gradients    array of num_tensors addresses, by the number of the tensor; read, not kept. Each may be NULL
 *   num_tensors  as at creation
 * Local. INVALID_ARGUMENT, INVALID_HANDLE, BUSY (a tensor is ready). */
ONEBIT_API onebit_status_t onebit_optimizer_set_all_gradients(onebit_optimizer_t optimizer,
                                                              const void* const* gradients,
                                                              size_t num_tensors) ONEBIT_NOEXCEPT;

/* Sets the address of the master copy of tensor number `tensor` from now on. The values at that address are the
 * tensor's parameters: the program has copied them there, or has put other values there, the same on every rank. The
 * copy of lower precision stays where it is; the next step writes it. Local.
 *   parameters  count floats in config.memory, not overlapping any array of the tensors; the caller's; must stay valid
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY, OUT_OF_MEMORY. */
ONEBIT_API onebit_status_t onebit_optimizer_set_parameters(onebit_optimizer_t optimizer, size_t tensor,
                                                           float* parameters) ONEBIT_NOEXCEPT;

/* Settings of the next step that begins. A step begins with its first onebit_optimizer_grad_ready, if there is one, and
 * keeps the settings that it began with. Later settings apply to the step after it. All these calls are local, to be
 * called on every rank: if ranks differ, the step is MISMATCH. */

/* The learning rate of all groups or of one (0 if there are no groups). INVALID_ARGUMENT, INVALID_HANDLE, BUSY (another
 * thread is in a call). */
ONEBIT_API onebit_status_t onebit_optimizer_set_lr(onebit_optimizer_t optimizer, double lr) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_optimizer_set_group_lr(onebit_optimizer_t optimizer, size_t group,
                                                         double lr) ONEBIT_NOEXCEPT;

/* All settings of a group (0 if there are no groups): lr, beta1, beta2, eps, weight_decay. A change of a fixed setting
 * is INVALID_ARGUMENT with the reason. no_compress is always fixed. eps and beta2 of a group that freezes are fixed as
 * long as the group is frozen, because D was made with them. Another beta2 lets a rule of the freeze begin anew. Saved
 * states hold only lr: a program that has changed other settings sets them again after a load.
 *   settings  read, not kept
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY (another thread is in a call), UNSUPPORTED, OUT_OF_MEMORY. */
ONEBIT_API onebit_status_t onebit_optimizer_set_group(onebit_optimizer_t optimizer, size_t group,
                                                      const onebit_param_group_t* settings) ONEBIT_NOEXCEPT;

/* Sets the scale by which the loss was multiplied (1 at the start), a float > 0. Gradients are divided by `scale` as
 * they are read. INVALID_ARGUMENT, INVALID_HANDLE, BUSY (another thread is in a call). */
ONEBIT_API onebit_status_t onebit_optimizer_set_gradient_scale(onebit_optimizer_t optimizer,
                                                               double scale) ONEBIT_NOEXCEPT;

/* Sets config.max_grad_norm. 0: nothing is clipped, and the norm isn't measured. The memory for measuring a norm is
 * allocated at creation: an optimizer whose config.max_grad_norm was 0 can't clip later (UNSUPPORTED). To clip later,
 * or only to get the norm (info.grad_norm), create the optimizer with a max_grad_norm that no gradient reaches, for
 * example FLT_MAX. If max_grad_norm was positive at creation, compressed steps don't begin before
 * onebit_optimizer_step, also while it is 0.
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY (another thread is in a call), UNSUPPORTED. */
ONEBIT_API onebit_status_t onebit_optimizer_set_max_grad_norm(onebit_optimizer_t optimizer,
                                                              double max_grad_norm) ONEBIT_NOEXCEPT;

/* Ends the warm-up by hand: the next step is the first compressed one. Local, to be called on every rank, after at
 * least one step. INVALID_ARGUMENT (no step yet, already frozen, or a kind that doesn't freeze), INVALID_HANDLE, BUSY.
 */
ONEBIT_API onebit_status_t onebit_optimizer_freeze(onebit_optimizer_t optimizer) ONEBIT_NOEXCEPT;

/* Sets the errors of the compressed exchange to zero. Called before every step, it turns error feedback off. Local, to
 * be called on every rank. INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_optimizer_reset_error(onebit_optimizer_t optimizer) ONEBIT_NOEXCEPT;

/* Save the optimizer to files and load it, one file per rank: PREFIX.RANK-of-SIZE.onebit. The files contain parameters,
 * moments, errors, schedules and settings that change (learning rates, gradient scale). A save never harms an earlier
 * one, and load takes the newest whole one, as for onebit_allreduce_save. A state that no training can reach is
 * refused, whatever its checksums (BAD_STATE). After a load, at any point of a training, the training goes on exactly
 * as it would have, bit for bit.
 * A load also accepts states that differ in these ways:
 *   - another number of ranks saved the state: there are no files of this number of ranks, and files of one other
 *     number;
 *   - the exchanges were flat and are now on two levels, or the other way round;
 *   - on two levels, the ranks shared nodes in another way.
 * Values that are the same on every rank are taken over. Errors are redistributed. The part that is still to be
 * delivered, the mean of the worker errors (on two levels the mean of each shard's, over the nodes) plus the server
 * errors, stays the same to rounding. If another number of ranks saved the state, and 0/1 Adam had let them drift
 * apart, all ranks go on from their mean.
 * The optimizer must be of the same kind, over tensors of the same counts in the same groups. Once the saved one is
 * frozen, config.compressed must be the same. bucket_size must be the same, or cut the same buckets (more than 1024
 * ranks cut small buckets differently). Collective; block; transactional.
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY, OUT_OF_MEMORY, IO, BAD_STATE, MISMATCH, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_optimizer_save(onebit_optimizer_t optimizer, const char* prefix) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_optimizer_load(onebit_optimizer_t optimizer, const char* prefix) ONEBIT_NOEXCEPT;

/* The saved state as blobs of bytes, for a checkpoint of the program's own. state_size and pack_state are local.
 * unpack_state is collective, blocks and is transactional: if a rank's blobs don't fit, nothing changes on any rank.
 *   buffer     host memory, any alignment; `bytes` of it, at least what state_size has said since the last step
 *   blobs      num_blobs pointers to host memory, any alignment, in any order; read, not kept
 *   bytes      of unpack_state: the size of each blob
 * A blob itself contains the rank that packed it, the number of ranks, and the state that it belongs to. The bytes of a
 * saved file are a blob, too. Blobs belong together if all that is the same on every rank was equal when they were
 * packed: the number of steps, schedules, settings and parameters. (Ranks of 0/1 Adam drift apart after the freeze: for
 * them the parameters of the last round count.)
 * Blobs that unpack_state needs:
 *   - of a state of the same number of ranks, with the same way of exchange and the same sharing of nodes: at least
 *     this rank's own blob. Ranks send each other what else they need;
 *   - of any other state: all of its blobs, on every rank. Errors are redistributed, and drifted ranks are averaged, as
 *     in a load.
 * The optimizer must be as for onebit_optimizer_load. pack_state and unpack_state need, while they run, memory for
 * about the bytes of a blob and for a bucket's parameters.
 * INVALID_ARGUMENT (among others: two blobs of one rank), INVALID_HANDLE, BUSY (also between
 * onebit_optimizer_grad_ready and the end of its step), OUT_OF_MEMORY; unpack_state also BAD_STATE (a blob is
 * truncated, corrupt, missing or of another optimizer), MISMATCH (blobs of different states, on one rank or on
 * several), TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_optimizer_state_size(onebit_optimizer_t optimizer, uint64_t* bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_optimizer_pack_state(onebit_optimizer_t optimizer, void* buffer,
                                                       uint64_t bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_optimizer_unpack_state(onebit_optimizer_t optimizer, const void* const* blobs,
                                                         const uint64_t* bytes, size_t num_blobs) ONEBIT_NOEXCEPT;

/* The state that the optimizer keeps for a tensor, named as PyTorch names it. */
typedef enum onebit_state ONEBIT_ENUM_INT {
    ONEBIT_STATE_EXP_AVG = 0,      /* m, the momentum */
    ONEBIT_STATE_EXP_AVG_SQ = 1,   /* v, the variance, not corrected for its bias */
    ONEBIT_STATE_WORKER_ERROR = 2, /* this rank's error of the compressed exchange, in units of the compressed values;
                                      on two levels zero outside this rank's shard */
    ONEBIT_STATE_SERVER_ERROR = 3  /* likewise; zero for the elements that this rank doesn't serve */
} onebit_state_t;

/* Copies out a state of tensor number `tensor`. Before the freeze, and of tensors that never freeze, m and v are those
 * of Adam, to the bit. After the freeze the optimizer keeps 1/D and a message instead. m and v are then computed from
 * these two, to rounding: they are the values that a thaw would go on with (docs/OPTIMIZERS.md, "After the freeze"),
 * with v followed if variances are followed. v is 0 where eps was all of D. A masked element has m = v = 0. Between two
 * rounds, the m of 0/1 Adam after the freeze is this rank's own. Errors that don't exist are zero. Local. If tensors
 * share a bucket, one call for an error, or for an m that is a message, reads more than the tensor:
 * onebit_optimizer_get_error copies out all errors at once.
 *   values  [out] the tensor's count of floats, in host memory
 * INVALID_ARGUMENT (no such tensor, no such state, NULL), INVALID_HANDLE, BUSY, OUT_OF_MEMORY. */
ONEBIT_API onebit_status_t onebit_optimizer_get_state(onebit_optimizer_t optimizer, size_t tensor, onebit_state_t which,
                                                      float* values) ONEBIT_NOEXCEPT;

/* Sets m or v of tensor number `tensor`, for a training that another optimizer began, or that needs other values.
 * Allowed before the freeze, and for tensors that never freeze. Set the number of steps first
 * (onebit_optimizer_set_steps). Parameters can be set by the program itself, at any time between two steps. Local, to
 * be called on every rank with the same values: if ranks differ, the next step is MISMATCH.
 *   values  [in] the tensor's count of floats, in host memory; copied. All finite; those of v >= 0
 * INVALID_ARGUMENT (also a value that no mean of gradients or of squares can have after so many steps), INVALID_HANDLE,
 * BUSY; UNSUPPORTED for errors, and for a tensor that is frozen. */
ONEBIT_API onebit_status_t onebit_optimizer_set_state(onebit_optimizer_t optimizer, size_t tensor, onebit_state_t which,
                                                      const float* values) ONEBIT_NOEXCEPT;

/* Sets the number of steps that were made. The bias corrections and the freeze use this number. The steps count as
 * exact ones, in each of which v was updated. A freeze rule forgets its earlier measurements. 0/1 Adam's intervals and
 * the running means of LAMB's trust ratios begin anew. If config.freeze_step is already past, the freeze comes after
 * the next step. Local, to be called on every rank with the same number: if ranks differ, the next step is MISMATCH.
 *   steps  at least 1, less than 2^48
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY; UNSUPPORTED once the optimizer has frozen. */
ONEBIT_API onebit_status_t onebit_optimizer_set_steps(onebit_optimizer_t optimizer, uint64_t steps) ONEBIT_NOEXCEPT;

/* Copies out the errors of the compressed exchange, tensor after tensor in the order of registration, count floats in
 * all. `worker` gets this rank's worker error; on two levels that of this rank's shard, and zero elsewhere. `server`
 * gets the server error of the elements that this rank serves, and zero elsewhere, so that the sum of `server` over the
 * ranks is the whole server error. Each may be NULL. Local.
 * INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_optimizer_get_error(onebit_optimizer_t optimizer, float* worker,
                                                      float* server) ONEBIT_NOEXCEPT;

typedef struct onebit_optimizer_info {
    size_t size;                    /* [in] sizeof(onebit_optimizer_info_t) */
    uint32_t version;               /* [in] ONEBIT_OPTIMIZER_INFO_VERSION */
    int frozen;                     /* 1 once the variance is frozen, or will be when the next step begins */
    uint64_t steps;                 /* steps that finished with success */
    uint64_t skipped;               /* steps that ended with NONFINITE */
    uint64_t freeze_step;           /* the last warm-up step; 0 during the warm-up */
    uint64_t count;                 /* elements in all tensors */
    uint64_t masked;                /* elements that have had no gradient that counts: they take part in no exchange */
    uint64_t exact_rounds;          /* steps that averaged exactly (not counting no_compress, which always does) */
    uint64_t compressed_rounds;     /* steps that exchanged codes; all others exchanged nothing */
    uint64_t warmup_bytes_sent;     /* by this rank in the warm-up stage */
    uint64_t compressed_bytes_sent; /* by this rank in the compression stage: all bytes, with Adam and LAMB that
                                       compress */
    uint64_t state_bytes;           /* allocated in all: moments, error state, workspace */
    double grad_norm;               /* norm of the last step's averaged gradient; 0 if max_grad_norm is 0. Estimated in
                                       steps that don't average it exactly (docs/OPTIMIZERS.md) */
    uint64_t cancelled;             /* steps that ended with CANCELLED since this handle was created: not saved */
    onebit_freeze_wait_t freeze_wait; /* what a freeze by a rule waits for, at the last check of the rule: AUTO checks
                                         16 times in a window, PAPER after each step */
    uint32_t freeze_tensor;           /* WAIT_VARIANCE, _PARAMETERS: the number of the tensor that is furthest from
                                         having settled; 0 with ONEBIT_FREEZE_PAPER, which looks at the sum */
    double freeze_ratio;   /* that tensor's variance, or squared norm, divided by its value a window ago; 0 if there was
                              none */
    uint64_t thaws;        /* freezes that have ended because a variance had outgrown them; from there to the next
                              freeze steps are exact */
    double variance_ratio; /* D^2 by a tensor's variance, as last measured, divided by D^2 as it was frozen: the largest
                              of any tensor. After a thaw, until a load: the ratio that ended the freeze. Else 0 */
    uint64_t variance_tensor; /* the number of that tensor */
    double step_ratio;        /* after a freeze of momenta: how far a compressed step moves an element by the scale that
                                 it shares, divided by how far a scale of its own would move it; the largest of any
                                 element (docs/OPTIMIZERS.md, "Small variances"); else 0 */
    uint64_t step_tensor;     /* the number of that element's tensor */
    onebit_algorithm_t algorithm; /* of compressed exchanges: never AUTO; DENSE: no compressed exchanges (Adam and
                                     LAMB) */
    char reason[260];             /* why this algorithm, in words; cut to fit */
} onebit_optimizer_info_t;

#define ONEBIT_OPTIMIZER_INFO_VERSION 1
#define ONEBIT_OPTIMIZER_INFO_INIT                                                                               \
    {                                                                                                            \
        sizeof(onebit_optimizer_info_t), ONEBIT_OPTIMIZER_INFO_VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0, \
            ONEBIT_FREEZE_WAIT_NONE, 0, 0.0, 0, 0.0, 0, 0.0, 0, ONEBIT_ALGORITHM_AUTO, {                         \
            0                                                                                                    \
        }                                                                                                        \
    }

/* ONEBIT_OPTIMIZER_INFO_INIT as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_optimizer_info_init(onebit_optimizer_info_t* info, size_t size) ONEBIT_NOEXCEPT;

/* Fills *info. Local. INVALID_ARGUMENT, INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_optimizer_get_info(onebit_optimizer_t optimizer,
                                                     onebit_optimizer_info_t* info) ONEBIT_NOEXCEPT;

/* Releases the handle and its state, not the tensors; NULL is accepted. Collective in the same cases as
 * onebit_allreduce_destroy. INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_optimizer_destroy(onebit_optimizer_t optimizer) ONEBIT_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_ONEBIT_H */
