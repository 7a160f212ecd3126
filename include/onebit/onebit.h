/*
 * onebit.h - compressed allreduce with error feedback, and the optimizers that need it.
 *
 * Copyright 2026 The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The whole C contract of libonebit but for the functions that name types of others: onebit_mpi.h and onebit_nccl.h
 * have those. Valid C11 and C++17.
 *
 * Read in this order: Status, Communicator, Allreduce (all that most programs need), then Error state, Optimizer.
 *
 * Words used throughout
 *   collective     every rank of the communicator calls it, in the same order. A collective call that fails on one rank
 *                  fails on every rank, with one status and a message that names the rank and what was wrong. (A rank
 *                  that can't even begin, INVALID_HANDLE or BUSY, leaves the others waiting: they get TIMEOUT.)
 *   local          concerns the calling rank alone.
 *   transactional  a call that fails leaves the handle's error state as it was.
 *   count          a number of elements, never of bytes.
 *
 * Thread safety: different handles may be used from different threads (over MPI only with MPI_THREAD_MULTIPLE). One
 * handle belongs to one thread at a time: a second thread gets ONEBIT_ERROR_BUSY at once and disturbs nothing.
 *
 * A rank's own threads (config.threads) belong to the thread that creates the handle, and to any other that uses it,
 * from its first call on; they end with it. Where the system gives no more threads, creation is OUT_OF_MEMORY on every
 * rank. They block all signals. A thread that calls onebit needs 64 KiB of stack, but what MPI, NCCL and CUDA need
 * besides.
 *
 * Floating point: the caller's rounding mode, traps and treatment of subnormal numbers have no say in any result, and
 * are as they were, exception flags included, after each call. Inside, results are rounded to nearest and subnormal
 * numbers are zero (docs/WIRE_FORMAT.md, "Arithmetic").
 *
 * fork: a child may make communicators and handles of its own, in one process; over MPI it gets TRANSPORT, for MPI is
 * its parent's. Handles made before the fork are the parent's alone: in the child each call on them is INVALID_HANDLE
 * at once, and to destroy or free them there is SUCCESS and touches nothing.
 *
 * Handles are numbers in disguise: they are never dereferenced and never reused, so that a destroyed one is always
 * recognised (ONEBIT_ERROR_INVALID_HANDLE).
 *
 * Structs begin with their size and version, which the _INIT macros and the _init functions set. A later release may
 * add members at a struct's end, and changes nothing else. So a program and a library of one SONAME fit together,
 * whichever is newer:
 *   - An older program's struct is shorter. The members that it lacks have their defaults, and nothing is written
 *     behind its end.
 *   - A newer program's struct is longer. The members that this library doesn't know must be zero (else UNSUPPORTED).
 *     Those of a struct that the library fills are set to zero.
 * All elements of an array of structs have the size that the first one gives.
 *
 * Every collective call ends when nothing has come from a peer for ONEBIT_TIMEOUT seconds, at most a second later,
 * with TIMEOUT on all ranks that are left; the message names the ranks that have not answered. onebit_comm_abort ends
 * calls earlier.
 *
 * TRANSPORT, TIMEOUT and INTERNAL break a handle: messages may still be under way. Each later call on it returns the
 * same status; all that is left to do is to destroy it. Any call that allocates may return OUT_OF_MEMORY, any call at
 * all INTERNAL.
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
/* Of the header; onebit_version_number() is the library's. */
#define ONEBIT_VERSION_NUMBER (10000 * ONEBIT_VERSION_MAJOR + 100 * ONEBIT_VERSION_MINOR + ONEBIT_VERSION_PATCH)

#if defined(__GNUC__)
#define ONEBIT_API __attribute__((visibility("default")))
#else
#define ONEBIT_API
#endif

#ifdef __cplusplus
extern "C" {
#define ONEBIT_NOEXCEPT noexcept
#define ONEBIT_ENUM_INT : int /* as in C: any int may come in, and is checked */
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
    ONEBIT_ERROR_INTERNAL = 12,  /* a GPU failed, as the message says; else a bug in onebit: please report it */
    ONEBIT_ERROR_CANCELLED = 13  /* a rank gave the step up (onebit_optimizer_cancel_step) */
} onebit_status_t;

/* The constant's name, e.g. "ONEBIT_ERROR_BUSY"; "unknown status" for any other value. Local; never NULL. */
ONEBIT_API const char* onebit_status_string(onebit_status_t status) ONEBIT_NOEXCEPT;

/* What went wrong in this thread's last onebit call that failed; "" if none did. A load that has found an interrupted
 * save says so here, too, and succeeds. The text belongs to the library and lasts until this thread's next call that
 * has something to say. Local; never NULL. */
ONEBIT_API const char* onebit_last_error(void) ONEBIT_NOEXCEPT;

/* The library's version, "MAJOR.MINOR.PATCH". Local; never NULL. */
ONEBIT_API const char* onebit_version(void) ONEBIT_NOEXCEPT;

/* The same as a number, 10000 MAJOR + 100 MINOR + PATCH. Local. */
ONEBIT_API int onebit_version_number(void) ONEBIT_NOEXCEPT;

/* How much a line of the log matters. */
typedef enum onebit_log_level ONEBIT_ENUM_INT {
    ONEBIT_LOG_INFO = 0,   /* what was chosen and why; where a training has come to */
    ONEBIT_LOG_WARNING = 1 /* results or speed are not what they could be */
} onebit_log_level_t;

/* Gets a line of the log: what ONEBIT_LOG=1 writes to stderr.
 *   context  of onebit_set_log_callback
 *   level    may be one of a later release
 *   text     one line without its end, less than 2048 bytes; valid during the call */
typedef void (*onebit_log_fn)(void* context, onebit_log_level_t level, const char* text);

/* Sets what gets the log's lines from now on, of all communicators and handles of this process, in the place of stderr
 * and whatever ONEBIT_LOG says. Lines are rank 0's.
 *   function  NULL: stderr again, where ONEBIT_LOG=1
 *   context   passed to it
 * The library calls it in the thread whose onebit call has something to say, so several threads may call it at once. It
 * holds no lock of its own meanwhile. The handle and the communicator of that call are BUSY for it. It must not throw.
 * Rounding mode and treatment of subnormal numbers are the library's meanwhile. When this returns, an earlier function
 * may still be running in another thread, or be about to: what it uses stays until calls that had begun have ended.
 * A forked child has its parent's. Local; never blocks; from any thread. OUT_OF_MEMORY. */
ONEBIT_API onebit_status_t onebit_set_log_callback(onebit_log_fn function, void* context) ONEBIT_NOEXCEPT;

/* ------------------------------------------------------------------------------------------- Communicator ---- */

/* A group of ranks and the way they talk. Made from an MPI communicator (onebit_mpi.h), over NCCL
 * (onebit_nccl.h), without either over TCP, or in one process (below). The environment is read when one is created
 * (README.md, "Environment"). */
typedef struct onebit_comm_opaque* onebit_comm_t;

/* Creates `ranks` communicators whose ranks are threads of this process: rank r is used from one thread, through
 * comms[r]. For tests and for programs that are parallel within one process. Local; does not block.
 *   ranks  at least 1
 *   comms  [out] array of `ranks` handles; the caller destroys each
 * INVALID_ARGUMENT, OUT_OF_MEMORY; also INVALID_ARGUMENT for an environment variable with an impossible value. */
ONEBIT_API onebit_status_t onebit_comm_create_loopback(int ranks, onebit_comm_t* comms) ONEBIT_NOEXCEPT;

/* Gathers bytes of all ranks, by whatever means the program's launcher has: torch.distributed's store, PMIx, a file
 * system. Called by onebit_comm_create_bootstrap in the thread that calls it, at most four times, as often on every
 * rank, and never later.
 *   context  of onebit_bootstrap_t
 *   mine     this rank's `bytes`
 *   all      [out] ranks * bytes: rank r's at all + r * bytes
 *   bytes    the same on every rank, less than 4096
 * Returns 0, or anything else where it was not possible. */
typedef int (*onebit_allgather_fn)(void* context, const void* mine, void* all, size_t bytes);

typedef struct onebit_bootstrap {
    size_t size;       /* sizeof(onebit_bootstrap_t) */
    uint32_t version;  /* ONEBIT_BOOTSTRAP_VERSION */
    int rank;          /* this process's, 0 to ranks - 1 */
    int ranks;         /* at least 1; the same on every rank */
    uint32_t reserved; /* 0 */
    onebit_allgather_fn allgather;
    void* context;         /* passed to allgather */
    const char* interface; /* the network interface to use, "eth0", or an address of this host's, "10.0.0.1"; NULL:
                              ONEBIT_INTERFACE, else one that is in a network with all other hosts; where all ranks are
                              on one host, its loopback */
    double timeout;        /* seconds that a call waits for peers that don't answer, this one included; 0:
                              ONEBIT_TIMEOUT */
} onebit_bootstrap_t;

#define ONEBIT_BOOTSTRAP_VERSION 1
#define ONEBIT_BOOTSTRAP_INIT(rank_, ranks_, allgather_, context_) \
    { sizeof(onebit_bootstrap_t), ONEBIT_BOOTSTRAP_VERSION, (rank_), (ranks_), 0, (allgather_), (context_), NULL, 0.0 }

/* The same as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_bootstrap_init(onebit_bootstrap_t* bootstrap, size_t size, int rank, int ranks,
                                                 onebit_allgather_fn allgather, void* context) ONEBIT_NOEXCEPT;

/* Creates a communicator of processes that have no MPI in common: they tell each other through `allgather` where they
 * are, and connect over TCP, each to each. Up to 32 ranks of one host send through memory that they share instead.
 * Ranks are on one host if they have one boot id and one host name. A rank listens on the one interface, at a port that
 * the system chooses, and only until this call returns. A process that connects and doesn't know a secret that has
 * travelled through `allgather` is turned away. Nothing is encrypted. Messages lie in the host's memory alone.
 *   bootstrap  read, not kept
 *   comm       [out] the handle; set to NULL on failure
 * Different handles may be used from different threads. Collective; blocks.
 * INVALID_ARGUMENT (among them: an interface that isn't there, ranks in the wrong order), MISMATCH, OUT_OF_MEMORY,
 * TRANSPORT (allgather has failed; a peer can't be reached, or has ended), TIMEOUT (a peer has not come). */
ONEBIT_API onebit_status_t onebit_comm_create_bootstrap(const onebit_bootstrap_t* bootstrap,
                                                        onebit_comm_t* comm) ONEBIT_NOEXCEPT;

/* Divides the ranks, as MPI_Comm_split does: those that pass the same color get a communicator of their own.
 *   color  at least 0: which part this rank is to be in. Less than 0: in none
 *   key    the ranks of a part are numbered in the order of their keys; where keys are equal, of their ranks in `comm`
 *   part   [out] the handle; set to NULL on failure, and for a rank that is in no part, with SUCCESS
 *
 * A part has the nodes, the settings (the environment's when `comm` was created, and its timeout) and the table of
 * ONEBIT_TUNING of `comm`, but not what onebit_comm_tune has measured. It uses the connections of `comm`: to make one
 * costs a few small messages. Parts run side by side: nothing in one waits for another. A part may be split again, and
 * may outlive `comm`. onebit_comm_abort of a part ends calls on it and on its own parts alone. That of `comm` ends
 * calls on all of its parts, too. What a message says of a connection to a peer, or that a peer gave up, may number the
 * peer as the communicator does that was split first.
 *
 * The parts of 255 splits can exist at once over MPICH, of 2000 over Open MPI and over TCP, of 15 where `comm` is a
 * part itself (then UNSUPPORTED). A part that all its ranks have destroyed counts no more, unless it was aborted. A
 * communicator over NCCL can't be split, nor one for GPUs (UNSUPPORTED): split the one that it was made of.
 * Collective over all ranks of `comm`, those in no part included; blocks. INVALID_ARGUMENT (`part` is NULL),
 * INVALID_HANDLE, BUSY, UNSUPPORTED, OUT_OF_MEMORY, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_comm_split(onebit_comm_t comm, int color, int key,
                                             onebit_comm_t* part) ONEBIT_NOEXCEPT;

/* This rank's number, 0 to size - 1, and the number of ranks. Local. INVALID_ARGUMENT, INVALID_HANDLE. */
ONEBIT_API onebit_status_t onebit_comm_rank(onebit_comm_t comm, int* rank) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_comm_size(onebit_comm_t comm, int* size) ONEBIT_NOEXCEPT;

typedef struct onebit_comm_info {
    size_t size;        /* [in] sizeof(onebit_comm_info_t) */
    uint32_t version;   /* [in] ONEBIT_COMM_INFO_VERSION */
    uint32_t nodes;     /* that the ranks are on: they share memory there, or are to count as one (ONEBIT_NODE_SIZE) */
    char transport[32]; /* "loopback", "mpi", "tcp", "nccl"; "nccl+mpi": NCCL inside a node and MPI between nodes */
    char reason[288];   /* why this one, where onebit_comm_create_gpu chose it; else "" */
} onebit_comm_info_t;

#define ONEBIT_COMM_INFO_VERSION 1
#define ONEBIT_COMM_INFO_INIT                                           \
    {                                                                   \
        sizeof(onebit_comm_info_t), ONEBIT_COMM_INFO_VERSION, 0, {0}, { \
            0                                                           \
        }                                                               \
    }

/* What ONEBIT_COMM_INFO_INIT says, for languages without macros. This and the other _init functions are local.
 *   size  sizeof *info: no more is written
 * INVALID_ARGUMENT (NULL, or a size that no release has given the struct; nothing is written). */
ONEBIT_API onebit_status_t onebit_comm_info_init(onebit_comm_info_t* info, size_t size) ONEBIT_NOEXCEPT;

/* Fills *info. Local; does not block. INVALID_ARGUMENT, INVALID_HANDLE, BUSY (another thread is in a call). */
ONEBIT_API onebit_status_t onebit_comm_get_info(onebit_comm_t comm, onebit_comm_info_t* info) ONEBIT_NOEXCEPT;

/* Sets what an environment variable would have set when the communicator was created (README.md, "Environment"), for
 * handles and parts that are created from it afterwards, and for how long its own calls wait. Handles that there are
 * keep what they were created with.
 *   name   "ONEBIT_ALGORITHM" say; the same on every rank. Those that count at creation alone are UNSUPPORTED:
 *          ONEBIT_NODE_SIZE, ONEBIT_GPU_TRANSPORT, ONEBIT_INTERFACE, ONEBIT_TCP_ONLY, NCCL_HOSTID
 *   value  as in the environment; "": the default. Ranks that must have the same (README.md) are compared when a handle
 *          is created. Of ONEBIT_TUNING that of rank 0 counts, which reads the file now
 * ONEBIT_TUNING, ONEBIT_MEASURE and ONEBIT_DETERMINISTIC forget what has been measured so far, by onebit_comm_tune too.
 * Collective; blocks; on failure nothing changes on any rank. INVALID_ARGUMENT (NULL, no such variable, an impossible
 * value), INVALID_HANDLE, BUSY, MISMATCH (names differ), UNSUPPORTED, OUT_OF_MEMORY, IO, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_comm_set(onebit_comm_t comm, const char* name, const char* value) ONEBIT_NOEXCEPT;

/* Measures how long an allreduce takes between these ranks: in each form, dense and compressed, from few elements to
 * many. A handle with ONEBIT_ALGORITHM_AUTO that is created from `comm` afterwards takes the form that was quickest at
 * its size. Without this call the first such handle measures by itself, for some tenths of a second
 * (docs/ARCHITECTURE.md, "Choosing"). It measures ONEBIT_CODEC_SIGN; onebit_comm_tune_codecs measures others, too.
 * Where compression barely pays, two runs may choose differently, and then their results differ in bits. With
 * ONEBIT_DETERMINISTIC=1 AUTO uses no measurement of this run, and so not this call's: it uses the table that
 * ONEBIT_TUNING names, or else an estimate for 10 Gbit/s between nodes.
 *   max_count  elements of the largest allreduce that is measured, at least the number of ranks; times of larger ones
 *              are extrapolated. Memory for about five times as many floats is used meanwhile. The same on every rank
 *   seconds    about how long it may take, more than 0; it takes longer where three calls of each form and size do. The
 *              same on every rank
 *   path       NULL, or the file that rank 0 writes the table to, for later runs (ONEBIT_TUNING; README.md, "Tuning").
 *              An earlier file is replaced. Ignored on other ranks
 * Collective; blocks. On failure nothing has changed, but with IO: the table is in use and not written.
 * INVALID_ARGUMENT, INVALID_HANDLE, MISMATCH, IO, OUT_OF_MEMORY, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_comm_tune(onebit_comm_t comm, uint64_t max_count, double seconds,
                                            const char* path) ONEBIT_NOEXCEPT;

/* Memory for sendbuf and recvbuf that all ranks of a node can read, so that a call need not copy what they exchange.
 * Two kinds of calls make use of it, where the buffers of all ranks of the node lie in such memory of its communicator:
 *   - exact averages inside one node, from 2048 elements on: sendbuf and recvbuf;
 *   - ONEBIT_ALGORITHM_TWO_LEVEL: sendbuf.
 * info.transport says whether the last call did. Where nothing can be shared it is ordinary memory: with one rank on
 * each node, with nodes of different sizes or of more than 1024 ranks, or where the system refuses (ONEBIT_LOG tells).
 * Each call makes a mapping for each rank of the node in every one of them: ask for a few large pieces. What a forked
 * child writes to it all ranks see.
 *   bytes   at least 1; may differ between ranks. It is not compared with a container's limit
 *   memory  [out] zeroed, aligned to 64 bytes, on the host; the caller's until onebit_mem_free, also after
 *           onebit_comm_destroy. NULL on failure
 * Collective; blocks. INVALID_ARGUMENT, INVALID_HANDLE, OUT_OF_MEMORY, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_mem_alloc(onebit_comm_t comm, size_t bytes, void** memory) ONEBIT_NOEXCEPT;

/* Frees what onebit_mem_alloc gave; NULL is accepted. Not during a call of this rank that has a buffer in it; calls of
 * other ranks are not disturbed. The system has the memory back once all ranks of the node have freed theirs. Local;
 * from any thread. INVALID_ARGUMENT (not from onebit_mem_alloc, or freed already). */
ONEBIT_API onebit_status_t onebit_mem_free(void* memory) ONEBIT_NOEXCEPT;

/* Moves on everything that was started on handles made from `comm` and is not finished: allreduces, reduce-scatters,
 * all-gathers, steps, and exchanges that onebit_optimizer_grad_ready has begun. One call takes the place of a test on
 * each handle. Each handle does a slice of its work, in the order in which the handles were created. Never waits for a
 * peer. It gives peers up as test does.
 *   active  [out] handles that have something left to do, after the callbacks of this call
 * Progress doesn't tell how an operation ended: where there is no callback, the handle's next test or wait does so, at
 * once. With a callback (onebit_allreduce_set_callback and its like) the operation is over with it.
 * The failure of an operation is not this call's: its status is the operation's alone. A handle that another thread
 * is using at that moment is skipped, and counts as active. A handle that is broken is not active.
 * Local; doesn't block. From any thread (over MPI only with MPI_THREAD_MULTIPLE), from several at a time, and in a
 * callback. INVALID_ARGUMENT (NULL), INVALID_HANDLE. */
ONEBIT_API onebit_status_t onebit_comm_progress(onebit_comm_t comm, int* active) ONEBIT_NOEXCEPT;

/* Called when a started operation is finished: onebit_allreduce_set_callback, and those of reduce-scatters, all-gathers
 * and optimizers. It must not throw.
 *   context  as it was set
 *   status   how the operation ended; onebit_last_error has the message */
typedef void (*onebit_callback_fn)(void* context, onebit_status_t status);

/* Ends every call that is in flight on the communicator or on a handle made from it, on all ranks: within a second each
 * returns TRANSPORT, and its message has `reason` and the rank that gave it. For a rank that knows that the others
 * would wait for it in vain, because it is out of memory say. The communicator and its handles are broken afterwards.
 *   reason  text for the other ranks, of which some 400 bytes are passed on; NULL: none
 * Peers that are in a call hear at once, if one of these holds: this rank is in a call; MPI was initialised with
 * MPI_THREAD_MULTIPLE; this thread may call MPI. Else they hear when this rank makes its next call. Peers that are in
 * no call hear in their next one. Over NCCL alone, or where a peer can't be reached, peers find out by NCCL's own means
 * or by ONEBIT_TIMEOUT.
 * Local; never waits; from any thread, also while other threads are in calls. INVALID_HANDLE. */
ONEBIT_API onebit_status_t onebit_comm_abort(onebit_comm_t comm, const char* reason) ONEBIT_NOEXCEPT;

/* Releases the handle; NULL is accepted. What was created from it stays usable until it is destroyed itself.
 * Collective over NCCL; else local, and waits for nobody. INVALID_HANDLE. */
ONEBIT_API onebit_status_t onebit_comm_destroy(onebit_comm_t comm) ONEBIT_NOEXCEPT;

/* ---------------------------------------------------------------------------------------------- Allreduce ---- */

/* A persistent allreduce: planned once, run many times, as MPI_Allreduce_init and FFTW plans are. It averages `count`
 * elements over the ranks, sending few bits for each instead of 16 or 32 (config.codec; by default one). What a message
 * could not express is carried into the next call (error feedback, at the worker and at the server) [1-bit Adam,
 * section 4; EF]. */
typedef struct onebit_allreduce_opaque* onebit_allreduce_t;

typedef enum onebit_datatype ONEBIT_ENUM_INT {
    ONEBIT_FLOAT32 = 0,
    ONEBIT_FLOAT16 = 1,  /* IEEE binary16 */
    ONEBIT_BFLOAT16 = 2, /* a float32's upper half */
    ONEBIT_INT8 = 3      /* of errors alone (config.error_type) */
} onebit_datatype_t;

typedef enum onebit_memory ONEBIT_ENUM_INT {
    ONEBIT_MEMORY_HOST = 0,
    ONEBIT_MEMORY_CUDA = 1 /* of a GPU, the one that config.stream is of; UNSUPPORTED in a build without CUDA, on a
                              machine without a GPU, on a GPU that the library has no code for, and with BRUCK and
                              RING; TWO_LEVEL becomes PIPELINED where there is no NCCL inside the nodes */
} onebit_memory_t;

typedef enum onebit_algorithm ONEBIT_ENUM_INT {
    ONEBIT_ALGORITHM_AUTO = 0,      /* the library chooses and says why (onebit_allreduce_get_info) */
    ONEBIT_ALGORITHM_DENSE = 1,     /* exact average, nothing compressed; the error state is neither used nor changed */
    ONEBIT_ALGORITHM_FLAT = 2,      /* compressed: every rank serves one chunk, two exchanges in all */
    ONEBIT_ALGORITHM_PIPELINED = 3, /* the same, with the same result to the bit, in pieces (ONEBIT_PIECE) some of which
                                       travel while others are computed: as quick or quicker */
    ONEBIT_ALGORITHM_TWO_LEVEL = 4, /* exact average inside each node, through shared memory or over NCCL, and
                                       compressed between nodes: fewer bytes there and a smaller error. Becomes
                                       PIPELINED where there is one node, or one rank on each, or nodes have different
                                       numbers of ranks. An error state of its own: a handle has either this form or
                                       the others */
    ONEBIT_ALGORITHM_BRUCK = 5,     /* FLAT, with the same result to the bit, whose messages travel through other ranks,
                                       many as one (ONEBIT_RADIX): for hundreds of ranks and few values. Only where the
                                       handle was created with it */
    ONEBIT_ALGORITHM_RING = 6,      /* PIPELINED, with the same result to the bit, whose averages travel from rank to
                                       rank instead of straight to each: for racks whose links to each other are slower
                                       than their hosts' together. Likewise */
    ONEBIT_ALGORITHM_LEVELS = 7     /* compressed between groups of ranks that the caller names (config.levels), and
                                       inside a group as it says. What AUTO is with config.levels; without them
                                       INVALID_ARGUMENT. An error state of its own: a handle has either this form or
                                       the others */
} onebit_algorithm_t;

/* What stands for an element in a compressed message (docs/WIRE_FORMAT.md; docs/CODECS.md says which is good for what).
 * What a code doesn't express is kept as error, and sent with the next call, whatever the codec. All are of the host's
 * memory, all but TOPK, RANDOMK and POWERSGD of a GPU's (else UNSUPPORTED). */
typedef enum onebit_codec ONEBIT_ENUM_INT {
    ONEBIT_CODEC_SIGN = 0, /* 1 bit for each element, its sign, and a scale for each config.group */
    ONEBIT_CODEC_INT8 = 1, /* 8 bits: whole numbers, and a scale for each 256 elements, the largest magnitude / 127 */
    ONEBIT_CODEC_INT4 = 2, /* 4 bits: likewise, the largest magnitude / 7 */
    ONEBIT_CODEC_FP4 = 3,  /* 4 bits: sign and exponent (E3M0): the largest magnitude of 256 elements times 2^0 to
                                 2^-6, and 0 */
    ONEBIT_CODEC_BFLOAT16 = 4, /* 16 bits: each element rounded to bfloat16 */
    ONEBIT_CODEC_TERNARY = 5,  /* 2 bits: -1, 0 or 1 times twice the root mean square of those of 256 elements that
                                     are not 0 */
    ONEBIT_CODEC_TOPK = 6,     /* 0.3 bits: position and 8 bits of the 64 largest of 4096 elements, or what config.kept
                                  and config.value_bits say. The others wait */
    ONEBIT_CODEC_FLOAT16 = 7,  /* 16 bits: each element over a power of two for each 256 elements, rounded to float16 */
    ONEBIT_CODEC_INT2 = 8,  /* 2 bits: -1.5, -0.5, 0.5 or 1.5 times the root mean square of those of 256 elements that
                                  are not 0 */
    ONEBIT_CODEC_MEANS = 9, /* 1 bit: the sign, and the mean of the positive ones of 256 elements and that of the
                                  negative ones, in bfloat16 [1-bit SGD] */
    ONEBIT_CODEC_RANDOMK = 10, /* 0.14 bits: 8 bits of 64 of 4096 elements that the ranks draw alike in a call, or what
                                  config.kept and config.value_bits say. The others wait */
    ONEBIT_CODEC_POWERSGD = 11 /* matrices (config.shapes) by approximations of a low rank, config.matrix_rank. What
                                  isn't approximated waits. Allreduces of the host's memory alone [PowerSGD] */
} onebit_codec_t;

/* What becomes of the ranks' values. */
typedef enum onebit_op ONEBIT_ENUM_INT {
    ONEBIT_OP_AVERAGE = 0, /* the default */
    ONEBIT_OP_SUM = 1      /* number of ranks times the average, for the same bytes. It may overflow where an average
                              can't: NONFINITE on every rank (onebit_allreduce_run). So exact sums are read once more */
} onebit_op_t;

/* The magnitude that stands for a group's elements. */
typedef enum onebit_scale ONEBIT_ENUM_INT {
    ONEBIT_SCALE_L2 = 0, /* root mean square, the default: the papers' choice, and the better one where it was measured
                            (docs/ARCHITECTURE.md, "Defaults") */
    ONEBIT_SCALE_L1 = 1  /* mean magnitude: the least-squares optimum for a sign code; leaves an error smaller than the
                            values whatever they are, where L2 may not if a few are far larger than the rest */
} onebit_scale_t;

/* How integers are rounded. */
typedef enum onebit_rounding ONEBIT_ENUM_INT {
    ONEBIT_ROUNDING_NEAREST = 0,   /* the default: the smallest error */
    ONEBIT_ROUNDING_STOCHASTIC = 1 /* up or down at random, so that the mean of many results is the value [QSGD]. The
                                      error of one call is 1.4 times as large */
} onebit_rounding_t;

/* The elements that share a scale. */
typedef enum onebit_group ONEBIT_ENUM_INT {
    ONEBIT_GROUP_BLOCK = 0,  /* 4096 elements, the default: 0.8 % more bytes, far less error where magnitudes differ */
    ONEBIT_GROUP_BUFFER = 1, /* the worker's whole buffer, and each server chunk: the papers' choice */
    ONEBIT_GROUP_TENSOR = 2  /* optimizers only: each tensor, DeepSpeed's choice. Tensors are exchanged one by one, but
                                those of fewer than 1024 elements together with others; bucket_size doesn't matter */
} onebit_group_t;

/* What each call looks at before it changes the error state or recvbuf (onebit_allreduce_run has the exceptions). */
typedef enum onebit_check ONEBIT_ENUM_INT {
    ONEBIT_CHECK_FULL = 0,           /* every argument and every value, with the same outcome on every rank: the call is
                                        transactional. Large handles, and compressed
                                        reduce-scatters, keep a second error state for it */
    ONEBIT_CHECK_NONE = 1,           /* nothing: the caller guarantees valid pointers and finite values on every rank */
    ONEBIT_CHECK_FULL_LOW_MEMORY = 2 /* as FULL, but with no second error state: values are read once more instead of
                                        that */
} onebit_check_t;

/* The ranks of one node (onebit_comm_get_info), as the color of a level. */
#define ONEBIT_LEVEL_NODE (-1)

/* A level of ONEBIT_ALGORITHM_LEVELS: groups of ranks near each other, as those of a node, a rack or a site. The ranks
 * of a group average a part of the buffer each; that part then goes on to the next level. */
typedef struct onebit_level {
    size_t size;          /* sizeof(onebit_level_t) */
    uint32_t version;     /* ONEBIT_LEVEL_VERSION */
    int32_t color;        /* this rank's own: ranks of one color are one group. ONEBIT_LEVEL_NODE, or any number from 0
                             on. All groups of a level have as many ranks. A group of one level is in one group of the
                             next */
    uint32_t compressed;  /* 0: values travel inside a group as they are, and are added up exactly in the order of the
                             ranks. 1: as `codec` says, with an error that the next call makes up for */
    onebit_codec_t codec; /* this and what follows where `compressed` is 1, as in onebit_allreduce_config_t; else 0. The
                             same on every rank. Not ONEBIT_CODEC_POWERSGD, UNSUPPORTED. Integers are rounded to the
                             nearest */
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

/* The same as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_level_init(onebit_level_t* level, size_t size, int32_t color) ONEBIT_NOEXCEPT;

typedef struct onebit_allreduce_config {
    size_t size;                /* sizeof(onebit_allreduce_config_t) */
    uint32_t version;           /* ONEBIT_ALLREDUCE_CONFIG_VERSION */
    uint32_t threads;           /* this rank's own; 0: ONEBIT_THREADS, else 1 */
    uint64_t count;             /* elements, at least the number of ranks; the same on every rank */
    onebit_datatype_t datatype; /* of sendbuf and recvbuf; the same on every rank, as is all that follows.
                                   ONEBIT_FLOAT16 and ONEBIT_BFLOAT16: in the host's memory, else UNSUPPORTED */
    onebit_memory_t memory;     /* where sendbuf and recvbuf lie */
    onebit_algorithm_t algorithm;
    onebit_codec_t codec;
    onebit_scale_t scale; /* of ONEBIT_CODEC_SIGN; 0 with any other codec, or INVALID_ARGUMENT */
    onebit_group_t group; /* likewise */
    onebit_check_t check;
    onebit_op_t op;
    void* stream;  /* ONEBIT_MEMORY_CUDA: the cudaStream_t, this rank's own, that the handle's work goes into, NULL:
                     the default stream of the device that is current when the handle is created. It outlives the
                     handle */
    uint32_t kept; /* of ONEBIT_CODEC_TOPK and ONEBIT_CODEC_RANDOMK: elements of 4096 that are sent, at most 128; 0: 64.
                      With any other codec 0, or INVALID_ARGUMENT */
    uint32_t value_bits;          /* likewise: 8 or 2 bits for each of them; 0: 8 */
    onebit_datatype_t error_type; /* of errors: ONEBIT_FLOAT32; or ONEBIT_BFLOAT16 for half the memory, or ONEBIT_INT8,
                                     with a power of two for each 256 elements, for a quarter: in the host's memory and
                                     not with ONEBIT_GROUP_BUFFER, else UNSUPPORTED. What rounding takes is lost
                                     (docs/CODECS.md, "Memory") */
    uint32_t matrix_rank;   /* of ONEBIT_CODEC_POWERSGD: directions of each matrix, at most 64; 0: 4. With any other
                               codec 0, or INVALID_ARGUMENT */
    const uint64_t* shapes; /* of ONEBIT_CODEC_POWERSGD: rows and columns of each matrix, 2 num_shapes numbers. The
                               matrices lie in the buffer one after the other, each row after row, and are all of it.
                               One whose factors would be no fewer numbers than its elements is averaged as it is. A
                               vector is a matrix of one row, and one of those. A Fortran array a(m, n) has n rows
                               of m columns. Read, not kept. With any other codec NULL, or INVALID_ARGUMENT */
    uint64_t num_shapes;
    onebit_rounding_t rounding;   /* of ONEBIT_CODEC_INT8 and ONEBIT_CODEC_INT4. With any other codec 0, or
                                     INVALID_ARGUMENT. STOCHASTIC: in the host's memory, else UNSUPPORTED */
    uint32_t num_levels;          /* 0, 1 or 2; between the groups of the last one `codec` is used. The same on every
                                     rank. In the host's memory, and not with ONEBIT_CODEC_POWERSGD, else UNSUPPORTED */
    const onebit_level_t* levels; /* the smallest groups first. Read, not kept. Left aside where ONEBIT_ALGORITHM makes
                                     another form of AUTO */
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

/* The same as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_allreduce_config_init(onebit_allreduce_config_t* config, size_t size,
                                                        uint64_t count) ONEBIT_NOEXCEPT;

/* Plans an allreduce, and allocates all memory that its operations will ever use. With the defaults, on two ranks or
 * more, that is at most 12.5 bytes for each element, and 1 MiB (docs/ARCHITECTURE.md, "Memory of an allreduce").
 * Collective; blocks.
 *   config     read, not kept
 *   allreduce  [out] the handle; set to NULL on failure
 * INVALID_ARGUMENT (among them count 0 and count < ranks), INVALID_HANDLE, MISMATCH, UNSUPPORTED, OUT_OF_MEMORY,
 * TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_allreduce_create(onebit_comm_t comm, const onebit_allreduce_config_t* config,
                                                   onebit_allreduce_t* allreduce) ONEBIT_NOEXCEPT;

/* What onebit_comm_tune does, for the codecs that the caller names, each with its default settings. Each codec's
 * handles go by its times. The other codecs' times stay what they were. One file holds the times of all named codecs,
 * by which onebit_allreduce_choose_codec compares them in later runs.
 *   codecs      ONEBIT_CODEC_INT8 and ONEBIT_CODEC_INT4, say; each once, the same ones on every rank; not POWERSGD
 *   num_codecs  at least 1
 *   seconds     for all codecs together
 * Else as onebit_comm_tune; and UNSUPPORTED (POWERSGD, whose AUTO goes by the times of SIGN). */
ONEBIT_API onebit_status_t onebit_comm_tune_codecs(onebit_comm_t comm, const onebit_codec_t* codecs, size_t num_codecs,
                                                   uint64_t max_count, double seconds,
                                                   const char* path) ONEBIT_NOEXCEPT;

/* Names the codec whose compressed allreduce is quickest between these ranks. Only codecs with an error of at most
 * max_error are considered. For each of them all that AUTO would measure is measured, some tenths of a second, and
 * known to handles that are created afterwards.
 *   config     what the handle is to be created with. Its algorithm, codec and levels, and what is of one codec alone,
 *              are not looked at: codecs are compared with their default settings, between all ranks. POWERSGD is not
 *              among them
 *   max_error  of one call, over the norm of the exact average, of Gaussian values between two ranks: docs/CODECS.md,
 *              "Speed and error", has those of all codecs. At least the smallest of them. The same on every rank
 *   codec      [out] for config.codec, the same on every rank; the finest one where several are equally quick. Written
 *              on success alone
 * Whether an exact average is quicker still ONEBIT_ALGORITHM_AUTO decides. Where not every codec's times were measured
 * (ONEBIT_DETERMINISTIC=1, ONEBIT_MEASURE=0, ONEBIT_ALGORITHM, fewer than 1024 elements), all go by an estimate.
 * Collective; blocks.
 * INVALID_ARGUMENT, INVALID_HANDLE, UNSUPPORTED, MISMATCH, OUT_OF_MEMORY, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_allreduce_choose_codec(onebit_comm_t comm, const onebit_allreduce_config_t* config,
                                                         double max_error, onebit_codec_t* codec) ONEBIT_NOEXCEPT;

/* recvbuf = average over the ranks of sendbuf, or their sum (config.op). Collective; blocks; transactional.
 *   sendbuf  [in] count elements, aligned to the element's size, in config.memory; the caller's
 *   recvbuf  [out] count elements, likewise; either == sendbuf (in place) or not overlapping it
 * All ranks get the same bits. A compressed result doesn't depend on the instruction set, the MPI or the number of
 * threads. An exact one is added up in the order of the ranks where info.transport says "shared ..."; elsewhere the
 * order may be MPI's, or pairs.
 *
 * An exact average of finite values is finite, also where their sum would overflow float32. Of n ranks' values those
 * below 2n 2^-126 may then count as zero, if they don't go through shared memory. An exact sum that overflows
 * config.datatype is NONFINITE on every rank. With ONEBIT_CHECK_NONE nobody looks: the caller guarantees that exact
 * sums are finite.
 *
 * Values of 16 bits are computed with in float32. A result is rounded once, to the nearest (even). Exact messages are
 * half as long. A compressed call does what it would do with the same values as float32, and rounds the result. What
 * the rounding takes away is not carried on.
 *
 * A call that fails leaves the error state and recvbuf as they were, with these exceptions:
 *   - Finite values and the error together overflow float32, or a compressed result is too large for config.datatype:
 *     NONFINITE on every rank, the error begins at zero again, and recvbuf is unspecified. With POWERSGD that holds for
 *     every result that is too large, a vector's as well, and for a value that is, with its error, larger than
 *     FLT_MAX / (4 sqrt(n)) (n: the matrix's rows or columns, the larger number). The right factors are then what they
 *     were at first.
 *   - An exact sum overflows: recvbuf is unspecified.
 *   - A value among 2^18 or more that go through shared memory isn't finite: recvbuf is unspecified, if no rank has its
 *     sendbuf in memory of onebit_mem_alloc.
 *   - TIMEOUT and TRANSPORT: MPI may still touch both buffers of an exact average. In memory of onebit_mem_alloc other
 *     ranks may still touch those of an exact average, and read the sendbuf of two levels. Keep both buffers until
 *     MPI_Finalize, and don't change sendbuf.
 * TIMEOUT can't interrupt an exact average inside MPI_Allreduce.
 *
 * In a GPU's memory (which may be managed):
 *   - sendbuf is read, and recvbuf written, in order with config.stream's work. recvbuf may still be written to when
 *     the call returns; work that is put into the stream afterwards sees the result.
 *   - The call waits for what the stream was given before it. ONEBIT_TIMEOUT counts that time.
 *   - With ONEBIT_CHECK_NONE the call returns when all its work is in the stream; over NCCL it waits for the handle's
 *     call before, and for nothing else. The handle's next run, start or wait then tells, on every rank, that an error
 *     has overflowed (NONFINITE). Run and start do nothing else in that case, and a wait for it is collective. A state
 *     that is loaded first makes it void.
 *   - The result has the host's bits, but for the order of an exact sum.
 *   - The current device doesn't matter, and stays. What fails on the device is INTERNAL.
 *   - No call on a handle can be captured into a graph. While config.stream is captured run is UNSUPPORTED, puts
 *     nothing into the stream and changes nothing; test and wait leave what was started for later. The other ranks hear
 *     that run was refused. Over NCCL, and with ONEBIT_CHECK_NONE, they don't: they wait for this rank's call.
 *
 * INVALID_ARGUMENT, INVALID_HANDLE, NONFINITE, MISMATCH, BUSY, UNSUPPORTED (a stream that is captured), TRANSPORT,
 * TIMEOUT. */
ONEBIT_API onebit_status_t onebit_allreduce_run(onebit_allreduce_t allreduce, const void* sendbuf,
                                                void* recvbuf) ONEBIT_NOEXCEPT;

/* The same in three parts, so that the caller can compute meanwhile. The buffers belong to the operation from start
 * until it is finished.
 *   start  begins, and returns at once. What is wrong with its arguments or values is told, on every rank, by the call
 *          that finishes the operation. start itself returns INVALID_HANDLE and BUSY alone; with ONEBIT_CHECK_NONE also
 *          INVALID_ARGUMENT, and how a call before it ended that had returned earlier; over NCCL also UNSUPPORTED
 *   test   does a slice of the work, and never waits. *done = 1: the operation is finished, and this is its status.
 *          *done = 0: it is not. TIMEOUT once tests have found nothing new from the peers for ONEBIT_TIMEOUT seconds.
 *          A pause of the program's between two tests counts as a second at most
 *   wait   finishes the operation, and returns its status
 * With nothing started test and wait return SUCCESS, test with *done = 1, as MPI's do. The operation's statuses are
 * run's. On hosts it moves on inside test, wait and onebit_comm_progress alone. Operations of several handles may be in
 * flight at a time. But a wait moves on its own handle alone: finish them in the same order on every rank, or poll all.
 * start and the call that finishes are collective; other ranks may call run instead. */
ONEBIT_API onebit_status_t onebit_allreduce_start(onebit_allreduce_t allreduce, const void* sendbuf,
                                                  void* recvbuf) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_allreduce_test(onebit_allreduce_t allreduce, int* done) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_allreduce_wait(onebit_allreduce_t allreduce) ONEBIT_NOEXCEPT;

/* `callback` is called once for each operation that onebit_allreduce_start begins from now on, as soon as it is
 * finished: by the thread, and at the end of the call, that finishes it (test, wait or onebit_comm_progress).
 * Nothing calls it between two calls of the program. A call of test or wait that finishes the operation returns its
 * status, too. In the callback the operation is over and the handle is free: any call may be made on it and on all
 * others, start and destroy among them. The buffers are the caller's again. run calls no callback; destroy of a broken
 * or aborted handle doesn't either. The callback runs in the caller's floating-point environment.
 *   callback  NULL: none any more
 *   context   passed to it; must stay as long as operations may end
 * Local. INVALID_HANDLE, BUSY (a started operation is not finished, or another thread is in a call). */
ONEBIT_API onebit_status_t onebit_allreduce_set_callback(onebit_allreduce_t allreduce, onebit_callback_fn callback,
                                                         void* context) ONEBIT_NOEXCEPT;

/* Takes effect with the next call: dense in the warm-up stage, compressed afterwards, through one handle, which must
 * have been created with a compressed one (or AUTO that chose it). Local, but to be called on every rank: ranks
 * that differ get MISMATCH from the next call (with ONEBIT_CHECK_FULL). AUTO is INVALID_ARGUMENT here.
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_allreduce_set_algorithm(onebit_allreduce_t allreduce,
                                                          onebit_algorithm_t algorithm) ONEBIT_NOEXCEPT;

/* Declares which elements are ever nonzero. SIGN, MEANS and INT2 cannot say zero. An element outside the mask has no
 * part in any scale, its error stays zero and its compressed result is exactly zero, whatever the input. Zeroes those
 * elements' errors. POWERSGD says zero as it says all else: with it there is no mask. Collective; blocks;
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
    uint32_t threads;             /* that compute */
    uint64_t calls;               /* finished with success, or in a GPU's stream without a failure yet */
    uint64_t bytes_sent;          /* by this rank to others, in all, whatever for: data, agreement, saving */
    uint64_t last_bytes_sent;     /* by the last call that finished with success */
    uint64_t dense_bytes;         /* what an exact ring allreduce would send per call: 2 (n-1)/n * count * the size of
                                     an element */
    uint64_t state_bytes;         /* allocated for the error state */
    uint64_t workspace_bytes;     /* allocated for all else */
    onebit_algorithm_t algorithm; /* what the next call will use; never AUTO */
    char transport[32]; /* "loopback", "mpi", "tcp", "nccl"; of a GPU's memory "mpi, staged", "mpi, direct", and with
                           NCCL inside the nodes "nccl+mpi, staged", "nccl+mpi, direct"; of exact averages
                           inside one node "mpi, shared memory"; of these and of two levels "mpi, shared
                           buffers" where in the last one this rank's node read its values where they lie */
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

/* The same as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_allreduce_info_init(onebit_allreduce_info_t* info, size_t size) ONEBIT_NOEXCEPT;

/* Fills *info. Local; does not block. INVALID_ARGUMENT, INVALID_HANDLE, BUSY (another thread is in a call). */
ONEBIT_API onebit_status_t onebit_allreduce_get_info(onebit_allreduce_t allreduce,
                                                     onebit_allreduce_info_t* info) ONEBIT_NOEXCEPT;

/* What a level of ONEBIT_ALGORITHM_LEVELS does. */
typedef struct onebit_level_info {
    size_t size;      /* [in] sizeof(onebit_level_info_t) */
    uint32_t version; /* [in] ONEBIT_LEVEL_INFO_VERSION */
    uint32_t ranks;   /* that exchange with each other: of a group, or one of each group of the level before */
    uint64_t begin;   /* the elements that this rank brings to them: [begin, begin + count) */
    uint64_t count;
    uint64_t bytes;      /* that this rank sends to them in a call, without what calls agree on */
    uint32_t compressed; /* as in onebit_level_t */
    onebit_codec_t codec;
} onebit_level_info_t;

#define ONEBIT_LEVEL_INFO_VERSION 1
#define ONEBIT_LEVEL_INFO_INIT \
    { sizeof(onebit_level_info_t), ONEBIT_LEVEL_INFO_VERSION, 0, 0, 0, 0, 0, ONEBIT_CODEC_SIGN }

/* The same as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_level_info_init(onebit_level_info_t* info, size_t size) ONEBIT_NOEXCEPT;

/* Fills *info, and copies the level's worker error out. Local; does not block.
 *   level  from 0 to config.num_levels: as in config.levels, and behind them the one between the last groups
 *   error  [out] info->count floats, zero where the level is exact; NULL: not asked for
 * What is left out of the average of a call is added up over all ranks' errors, those of level l each times the ranks
 * of a group of level l - 1, over all ranks; and the servers' errors (onebit_allreduce_get_error).
 * INVALID_ARGUMENT (a handle that was created without levels, a level that it lacks), INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_allreduce_get_level(onebit_allreduce_t allreduce, uint32_t level,
                                                      onebit_level_info_t* info, float* error) ONEBIT_NOEXCEPT;

/* Releases the handle and all it owns; NULL is accepted. Local, and waits for nobody; over NCCL it is collective and
 * waits for the others.
 * How a run ended that returned earlier (ONEBIT_CHECK_NONE, a GPU's memory) is waited for, but not told.
 * INVALID_HANDLE; BUSY while a started operation is not finished, UNSUPPORTED while the end of a run is in a stream
 * that is captured (nothing is released then). */
ONEBIT_API onebit_status_t onebit_allreduce_destroy(onebit_allreduce_t allreduce) ONEBIT_NOEXCEPT;

/* -------------------------------------------------------------------------------------------- Error state ---- */

/* The state is what has not been delivered yet: the worker error (count elements, on every rank) and the server error
 * (this rank's chunk). A training that goes on without it loses that much of its gradients. Of POWERSGD every rank has,
 * in the place of the server error, the right factors of the last call, in which the next one looks for what there is
 * to send: nothing is lost without them, but the first calls say less.
 *
 * In a GPU's memory these calls, and set_algorithm and set_mask, wait until the stream has finished the handle's last
 * call; so they can return TIMEOUT, TRANSPORT and INTERNAL. While the stream is captured they are UNSUPPORTED on this
 * rank alone; in collective ones the other ranks wait for it. */

/* Sets both errors to zero. POWERSGD's right factors become what they were at first. The number of calls, by which
 * RANDOMK draws, stays. Local, but to be called on every rank. INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_allreduce_reset(onebit_allreduce_t allreduce) ONEBIT_NOEXCEPT;

/* Copies the errors out; those of a handle that is dense for good are zero, its server chunk empty. Local. Where
 * `worker` is not NULL, count floats are written to it; where `server` is not NULL, as many as *server_count says.
 * server_begin, server_count (each may be NULL): this rank's chunk, in elements; of POWERSGD 0, and how many numbers
 * the right factors are. With levels `worker` has what this rank holds back between the last groups; what it holds back
 * inside of them onebit_allreduce_get_level says. INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_allreduce_get_error(onebit_allreduce_t allreduce, float* worker, float* server,
                                                      uint64_t* server_begin, uint64_t* server_count) ONEBIT_NOEXCEPT;

/* The saved state as bytes, for a checkpoint of the caller's own: self-describing, checked when it is loaded, of the
 * same meaning on every ISA (docs/WIRE_FORMAT.md, "Saved state"). state_size and pack are local; unpack is collective,
 * blocks and is transactional: if any rank's bytes don't fit, no rank's state changes. The mask is not in it: set the
 * same one first (another is BAD_STATE). So is what is not finite, whatever its checksum. States that were packed after
 * different numbers of calls are MISMATCH.
 *   buffer  host memory, any alignment; `bytes` of it, for pack at least what state_size said
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY, OUT_OF_MEMORY; unpack also BAD_STATE, MISMATCH, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_allreduce_state_size(onebit_allreduce_t allreduce, uint64_t* bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_allreduce_pack_state(onebit_allreduce_t allreduce, void* buffer,
                                                       uint64_t bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_allreduce_unpack_state(onebit_allreduce_t allreduce, const void* buffer,
                                                         uint64_t bytes) ONEBIT_NOEXCEPT;

/* The same to and from files, one per rank: PREFIX.RANK-of-SIZE.onebit. A save never harms an earlier one: all ranks
 * write new files (for the owner alone); once all are on disk each rank moves the earlier file to NAME.previous and the
 * new one to NAME; if that fails anywhere all move back; once all have done it NAME.previous is removed.
 * Whoever dies whenever, all ranks have the files of one whole save. Load takes the newest one that all ranks have, and
 * says so where some are in NAME.previous: onebit_last_error tells of it after SUCCESS, and ONEBIT_LOG=1 on stderr.
 * While a save is under way rank 0 has a lock on PREFIX.lock: another job's save or load is refused (IO) with who holds
 * it, host, process and since when. A job that dies leaves no lock.
 * Files of two saves are refused with the names of two (BAD_STATE). Nothing of a file's size is allocated before that
 * is what the handle needs; what is no regular file is refused at once (IO). The next call after a load continues
 * exactly, bit for bit. Collective; block; transactional. As for unpack, and IO. */
ONEBIT_API onebit_status_t onebit_allreduce_save(onebit_allreduce_t allreduce, const char* prefix) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_allreduce_load(onebit_allreduce_t allreduce, const char* prefix) ONEBIT_NOEXCEPT;

/* ------------------------------------------------------------------------------ Reduce-scatter, all-gather ---- */

/* The two halves of an allreduce, for training whose gradients, optimizer or parameters are sharded (ZeRO, FSDP). A
 * whole buffer of `count` elements is cut into one shard for each rank, in the order of the ranks.
 *   reduce-scatter  every rank has a whole buffer; rank r gets shard r of their average, or sum
 *   all-gather      rank r has shard r; every rank gets the whole buffer
 * Both send codes of few bits in the place of floats (config.codec), as an allreduce does, and have errors of their
 * own: what a message could not express is carried into the next call. A reduce-scatter has a worker error of `count`
 * elements. Its result is not encoded again: only the workers' rounding is in it. An all-gather has an error of this
 * rank's shard alone. It is for values that change from call to call, or that may arrive rounded. A reduce-scatter of
 * gradients and an all-gather of the averages, with the same codec, are together an allreduce to the bit, where the
 * shards are its chunks (docs/WIRE_FORMAT.md, "Chunks and blocks").
 *
 * Handles are persistent, and every call means what the allreduce's of the same name does: blocking, transactional,
 * thread safety, callbacks, statuses. What is said here is what differs. onebit_comm_progress moves them on, and
 * onebit_comm_abort ends them, as it does allreduces. */
typedef struct onebit_reduce_scatter_opaque* onebit_reduce_scatter_t;
typedef struct onebit_all_gather_opaque* onebit_all_gather_t;

/* Of either. */
typedef struct onebit_shard_config {
    size_t size;            /* sizeof(onebit_shard_config_t) */
    uint32_t version;       /* ONEBIT_SHARD_CONFIG_VERSION */
    uint32_t threads;       /* this rank's own; 0: ONEBIT_THREADS, else 1 */
    uint64_t count;         /* elements of the whole buffer, at least the number of ranks; the same on every rank, as
                                   is all that follows */
    const uint64_t* counts; /* elements of each rank's shard, one number for each rank, which add up to count; some
                                   may be 0. Read, not kept. NULL: shards are equal, and count is a multiple of the
                                   number of ranks */
    onebit_datatype_t datatype;   /* of sendbuf and recvbuf */
    onebit_memory_t memory;       /* ONEBIT_MEMORY_HOST; UNSUPPORTED else */
    onebit_algorithm_t algorithm; /* AUTO, DENSE (exact, nothing compressed) or PIPELINED (compressed); others are
                                     INVALID_ARGUMENT. AUTO is exact where an allreduce of as many elements would be */
    onebit_codec_t codec;
    onebit_scale_t scale; /* of ONEBIT_CODEC_SIGN; 0 with any other codec, or INVALID_ARGUMENT */
    onebit_group_t group; /* likewise. GROUP_BUFFER: the whole buffer of a reduce-scatter, the shard of an all-gather */
    onebit_check_t check;
    onebit_op_t op; /* of a reduce-scatter; of an all-gather 0, or INVALID_ARGUMENT */
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

/* The same as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_shard_config_init(onebit_shard_config_t* config, size_t size,
                                                    uint64_t count) ONEBIT_NOEXCEPT;

/* Plan one, and allocate all memory that its operations will ever use. Collective; block.
 *   config          read, not kept
 *   reduce_scatter, all_gather  [out] the handle; set to NULL on failure
 * INVALID_ARGUMENT (among them counts that don't add up, and a count that can't be cut into equal shards),
 * INVALID_HANDLE, MISMATCH, UNSUPPORTED, OUT_OF_MEMORY, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_reduce_scatter_create(onebit_comm_t comm, const onebit_shard_config_t* config,
                                                        onebit_reduce_scatter_t* reduce_scatter) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_create(onebit_comm_t comm, const onebit_shard_config_t* config,
                                                    onebit_all_gather_t* all_gather) ONEBIT_NOEXCEPT;

/* recvbuf = this rank's shard of the average over the ranks of sendbuf, or of their sum (config.op).
 *   sendbuf  [in] count elements, aligned to the element's size; the caller's
 *   recvbuf  [out] as many elements as this rank's shard has, likewise; the shard's place in sendbuf (in place), or not
 *            overlapping sendbuf. NULL is accepted where the shard has none
 * A compressed result doesn't depend on the instruction set, the transport or the number of threads. Values are added
 * up in the order of the ranks. An exact average of finite values is finite, also where their sum would overflow
 * float32.
 *
 * A call that fails leaves the error state and recvbuf as they were, with these exceptions:
 *   - Finite values and the error together overflow float32 on some rank: NONFINITE on every rank, and the error of
 *     that rank begins at zero again. With ONEBIT_CHECK_FULL_LOW_MEMORY every rank's does. With ONEBIT_CHECK_NONE that
 *     rank alone, and those that get something of it, are told, and their recvbuf is unspecified.
 *   - A sum overflows config.datatype, or a compressed average does: NONFINITE on every rank, and recvbuf is
 *     unspecified; with ONEBIT_CHECK_FULL_LOW_MEMORY every rank's error begins at zero again. With ONEBIT_CHECK_NONE
 *     nobody looks.
 *
 * Collective; blocks; transactional. As for onebit_allreduce_run. */
ONEBIT_API onebit_status_t onebit_reduce_scatter_run(onebit_reduce_scatter_t reduce_scatter, const void* sendbuf,
                                                     void* recvbuf) ONEBIT_NOEXCEPT;

/* recvbuf = all ranks' shards, one behind the other. All ranks get the same bits: a rank's own shard is what the others
 * see of it.
 *   sendbuf  [in] as many elements as this rank's shard has, aligned to the element's size; NULL is accepted where it
 *            has none
 *   recvbuf  [out] count elements, likewise; sendbuf may be the shard's place in it (in place), or not overlap it
 * An exact one copies finite values' bits. Failures as for onebit_allreduce_run. Collective; blocks; transactional. */
ONEBIT_API onebit_status_t onebit_all_gather_run(onebit_all_gather_t all_gather, const void* sendbuf,
                                                 void* recvbuf) ONEBIT_NOEXCEPT;

/* In three parts, as onebit_allreduce_start, _test and _wait; and what is called when one is finished. */
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

/* As onebit_allreduce_set_algorithm: DENSE or PIPELINED. A handle that was created compressed can be either. */
ONEBIT_API onebit_status_t onebit_reduce_scatter_set_algorithm(onebit_reduce_scatter_t reduce_scatter,
                                                               onebit_algorithm_t algorithm) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_set_algorithm(onebit_all_gather_t all_gather,
                                                           onebit_algorithm_t algorithm) ONEBIT_NOEXCEPT;

/* The error state, as the allreduce's. get_error copies out `count` floats of a reduce-scatter, of an all-gather as
 * many as this rank's shard has (NULL is accepted where it has none); zeros of a handle that is exact for good. A saved
 * state fits a handle of the same collective, shards, number of ranks, codec, scale, group and op (else BAD_STATE). */
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

/* Of either. */
typedef struct onebit_shard_info {
    size_t size;                  /* [in] sizeof(onebit_shard_info_t) */
    uint32_t version;             /* [in] ONEBIT_SHARD_INFO_VERSION */
    uint32_t threads;             /* that compute */
    uint64_t shard_begin;         /* the element of the whole buffer that this rank's shard begins with */
    uint64_t shard_count;         /* elements of this rank's shard */
    uint64_t calls;               /* finished with success */
    uint64_t bytes_sent;          /* by this rank to others, in all, whatever for: data, agreement, saving */
    uint64_t last_bytes_sent;     /* by the last call that finished with success */
    uint64_t dense_bytes;         /* what this rank would send per call exactly: of a reduce-scatter the others' shards,
                                     of an all-gather its own to each of them */
    uint64_t state_bytes;         /* allocated for the error state */
    uint64_t workspace_bytes;     /* allocated for all else */
    onebit_algorithm_t algorithm; /* what the next call will use: DENSE or PIPELINED */
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

/* The same as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_shard_info_init(onebit_shard_info_t* info, size_t size) ONEBIT_NOEXCEPT;

/* Fill *info. Local; don't block. INVALID_ARGUMENT, INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_reduce_scatter_get_info(onebit_reduce_scatter_t reduce_scatter,
                                                          onebit_shard_info_t* info) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_get_info(onebit_all_gather_t all_gather,
                                                      onebit_shard_info_t* info) ONEBIT_NOEXCEPT;

/* Release the handle and all it owns; NULL is accepted. Local, and wait for nobody. INVALID_HANDLE; BUSY while a
 * started operation is not finished. */
ONEBIT_API onebit_status_t onebit_reduce_scatter_destroy(onebit_reduce_scatter_t reduce_scatter) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_all_gather_destroy(onebit_all_gather_t all_gather) ONEBIT_NOEXCEPT;

/* ---------------------------------------------------------------------------------------------- Optimizer ---- */

/* Five optimizers over a list of tensors, which are registered once and exchanged as one buffer or a few. What each
 * computes, formula by formula, is in docs/OPTIMIZERS.md. Parameters must be equal on every rank at the start, and are
 * so again after every step that exchanges something (all steps but 0/1 Adam's local ones). */
typedef struct onebit_optimizer_opaque* onebit_optimizer_t;

typedef enum onebit_optimizer_kind ONEBIT_ENUM_INT {
    ONEBIT_OPTIMIZER_ADAM = 0,         /* AdamW: gradients averaged in every step, exactly or by config.codec */
    ONEBIT_OPTIMIZER_ONEBIT_ADAM = 1,  /* the same until the freeze, compressed then [1-bit Adam, alg. 1] */
    ONEBIT_OPTIMIZER_LAMB = 2,         /* gradients averaged likewise; one trust ratio per tensor [LAMB] */
    ONEBIT_OPTIMIZER_ONEBIT_LAMB = 3,  /* the same until the freeze, compressed then [1-bit LAMB, alg. 1] */
    ONEBIT_OPTIMIZER_ZERO_ONE_ADAM = 4 /* rarer and rarer exact rounds, compressed ones between them; after the freeze
                                          rarer and rarer rounds at all [0/1 Adam, alg. 1] */
} onebit_optimizer_kind_t;

/* One tensor: what LAMB calls a layer. In config.memory, aligned to the element's size, contiguous, the caller's; the
 * pointers must stay valid. Nothing of what the tensors name may overlap: INVALID_ARGUMENT. */
typedef struct onebit_tensor {
    size_t size;                     /* sizeof(onebit_tensor_t) */
    uint32_t version;                /* ONEBIT_TENSOR_VERSION */
    uint32_t group;                  /* index into config.groups; 0 where there are none */
    uint64_t count;                  /* elements, at least 1 */
    float* parameters;               /* the master copy; read and written by each step */
    const void* gradients;           /* read by each step; NULL: to be given by onebit_optimizer_set_gradients, or zeros
                                        (config.missing_gradients) */
    onebit_datatype_t gradient_type; /* of gradients */
    onebit_datatype_t copy_type;     /* of copy */
    void* copy;                      /* NULL, or where each step writes the parameters, rounded to copy_type; a finite
                                        parameter's copy is finite */
    const char* name;                /* for messages; may be NULL; copied */
} onebit_tensor_t;

#define ONEBIT_TENSOR_VERSION 1
#define ONEBIT_TENSOR_INIT(parameters_, gradients_, count_)                                                 \
    {                                                                                                       \
        sizeof(onebit_tensor_t), ONEBIT_TENSOR_VERSION, 0, (uint64_t)(count_), (parameters_), (gradients_), \
            ONEBIT_FLOAT32, ONEBIT_FLOAT32, NULL, NULL                                                      \
    }

/* The same as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_tensor_init(onebit_tensor_t* tensor, size_t size, float* parameters,
                                              const void* gradients, uint64_t count) ONEBIT_NOEXCEPT;

/* Settings that several tensors share. */
typedef struct onebit_param_group {
    size_t size;         /* sizeof(onebit_param_group_t) */
    uint32_t version;    /* ONEBIT_PARAM_GROUP_VERSION */
    int no_compress;     /* 1: its gradients are averaged exactly in every step, its tensors never freeze */
    double lr;           /* learning rate, >= 0 */
    double beta1, beta2; /* in [0, 1) */
    double eps;          /* > 0, as a float too */
    double weight_decay; /* decoupled: x -= lr * (m / (sqrt(v) + eps) + weight_decay * x); >= 0 */
} onebit_param_group_t;

#define ONEBIT_PARAM_GROUP_VERSION 1
#define ONEBIT_PARAM_GROUP_INIT(lr_) \
    { sizeof(onebit_param_group_t), ONEBIT_PARAM_GROUP_VERSION, 0, (lr_), 0.9, 0.999, 1e-8, 0.0 }

/* The same as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_param_group_init(onebit_param_group_t* group, size_t size, double lr) ONEBIT_NOEXCEPT;

/* Values of freeze_step that are no step:
 *   NEVER  not by itself; onebit_optimizer_freeze still works
 *   AUTO   once the variance of every compressed tensor has settled. All of these must hold:
 *          - lr_warmup_steps, two windows and 1/(1-beta2) steps have passed; 3/(1-beta2) where bias_correction is 0.
 *          - No learning rate has reached a new height for freeze_window steps.
 *          - Each tensor's |v|_1, corrected for its bias, has stayed within [freeze_band, 1/freeze_band] of what it was
 *            freeze_window steps before, for freeze_window steps. 1-bit LAMB asks the same of its squared norm.
 *          A training whose variance keeps changing stays exact. The info struct says what is waited for. So does a
 *          line on stderr with ONEBIT_LOG, 10, 20, 40, ... windows after lr_warmup_steps. 0/1 Adam's rounds are all
 *          exact until then.
 *   PAPER  by the rule of [1-bit Adam, section 7.1]: after lr_warmup_steps, when the sum over all compressed tensors
 *          |v_t|_1 / |v_(t - 1/(1-beta2))|_1 lies between 0.96 and 1/0.96, v not corrected. Often too early
 *          (docs/OPTIMIZERS.md, "Freeze")
 * A freeze may end (config.thaw_ratio). The next one comes 1/(1-beta2) steps later: with AUTO and PAPER at the
 * earliest, for the rule begins anew; otherwise by itself. */
#define ONEBIT_FREEZE_NEVER UINT64_MAX
#define ONEBIT_FREEZE_AUTO 0
#define ONEBIT_FREEZE_PAPER (UINT64_MAX - 1)
/* A value of follow_interval that is no interval. */
#define ONEBIT_FOLLOW_NEVER UINT32_MAX

/* What a warm-up that ends by itself waits for. */
typedef enum onebit_freeze_wait ONEBIT_ENUM_INT {
    ONEBIT_FREEZE_WAIT_NONE = 0,      /* nothing: frozen, or not to freeze by a rule */
    ONEBIT_FREEZE_WAIT_STEPS = 1,     /* the first step that may be the last one */
    ONEBIT_FREEZE_WAIT_LR = 2,        /* a window of steps without a new highest learning rate */
    ONEBIT_FREEZE_WAIT_VARIANCE = 3,  /* a tensor's variance to settle */
    ONEBIT_FREEZE_WAIT_PARAMETERS = 4 /* 1-bit LAMB: a tensor's norm to settle */
} onebit_freeze_wait_t;

/* What the kinds that freeze compress after the freeze, with D = sqrt(v) + eps as it is frozen. */
typedef enum onebit_compressed ONEBIT_ENUM_INT {
    ONEBIT_COMPRESSED_UPDATES = 0, /* what moves the parameters: a mean of g / D. Each g / D has a bound. An element
                                      whose variance is far below its neighbours' moves about as far as they do
                                      (docs/OPTIMIZERS.md, "Small variances") */
    ONEBIT_COMPRESSED_MOMENTA = 1  /* momenta, divided by D afterwards, as in the papers. ONEBIT_CODEC_SIGN sends all of
                                      a block's elements with one magnitude, so an element whose variance is far below
                                      its neighbours' runs away */
} onebit_compressed_t;

/* bucket_size: a good one on the networks that were tried (docs/ARCHITECTURE.md has the figures). */
#define ONEBIT_BUCKET_SIZE_SUGGESTED 1048576

typedef struct onebit_optimizer_config {
    size_t size;      /* sizeof(onebit_optimizer_config_t) */
    uint32_t version; /* ONEBIT_OPTIMIZER_CONFIG_VERSION */
    onebit_optimizer_kind_t kind;
    double lr, beta1, beta2, eps, weight_decay; /* of all tensors where there are no groups; see onebit_param_group_t */
    const onebit_param_group_t* groups;         /* NULL, or num_groups of them; read, not kept */
    size_t num_groups;
    int bias_correction;      /* 1: m and v as Adam corrects them, v after the freeze as at the freeze; 0: neither, as
                                 DeepSpeed's 1-bit optimizers */
    uint32_t threads;         /* this rank's own; 0: ONEBIT_THREADS, else 1 */
    double max_grad_norm;     /* the averaged gradient is scaled down to this L2 norm over all tensors; 0: it is not */
    uint64_t freeze_step;     /* last warm-up step T_w >= 1, or one of the three above. Adam and LAMB, which don't
                                 freeze: AUTO or NEVER */
    uint64_t lr_warmup_steps; /* no freeze by a rule before this step */
    onebit_scale_t scale;     /* of compressed exchanges by ONEBIT_CODEC_SIGN; 0 with any other codec */
    onebit_group_t group;     /* likewise */
    double min_trust, max_trust; /* LAMB: bounds of a tensor's trust ratio, 0 <= min <= max */
    double trust_beta;           /* 1-bit LAMB: of the trust ratio's running mean, in [0, 1) */
    int momentum_scaling; /* 1-bit LAMB that compresses momenta: 1: these are brought to one magnitude before they share
                             a message; 0: as they are (to see what it is good for) */
    onebit_memory_t memory;     /* where parameters, gradients and copies lie; the same on every rank. In a GPU's, over
                                   NCCL, not with bucket_size: UNSUPPORTED */
    uint64_t variance_updates;  /* 0/1 Adam: exact rounds before their interval doubles (kappa), >= 1; with
                                   ONEBIT_FREEZE_AUTO it doesn't double */
    uint64_t local_step_scaler; /* 0/1 Adam: steps after the freeze before the interval of rounds doubles, >= 1 */
    uint64_t local_steps;       /* 0/1 Adam: the longest interval of rounds, >= 1 */
    uint64_t bucket_size;       /* 0: all tensors are exchanged together, by step; else in buckets of about so many
                                   elements, whole tensors, which onebit_optimizer_grad_ready can begin with: where
                                   the network takes longer than the encoder, as a slow one does */
    void* stream;               /* ONEBIT_MEMORY_CUDA: the cudaStream_t, this rank's own, that the optimizer's work goes
                                   into, NULL: the default stream of the device that is current when the optimizer is
                                   created. It outlives the optimizer */
    uint64_t freeze_window;     /* ONEBIT_FREEZE_AUTO: steps, at most 1000000, rounded up to a multiple of
                                   floor(freeze_window / 16) where that is more than 1; 0: 256 */
    double freeze_band;         /* ONEBIT_FREEZE_AUTO: how much a norm may change in a window, in (0, 1); 0: 0.9 */
    onebit_compressed_t compressed; /* kinds that freeze: what they compress after the freeze */
    uint32_t follow_interval; /* kinds that freeze: steps from one measurement of each tensor's variance to the next,
                                 after the freeze; 0: 64. Once a variance has faded they come more often. Updates follow
                                 it (docs/OPTIMIZERS.md, "After the freeze"). Momenta don't, and 1-bit LAMB's aren't
                                 measured. ONEBIT_FOLLOW_NEVER: nothing is measured, and a freeze never ends. Adam and
                                 LAMB: 0 or NEVER */
    double thaw_ratio; /* > 1: how many times as large as at the freeze a tensor's D^2 may become; 0: 4. Beyond that a
                          freeze of updates ends. Momenta stay frozen, and the log tells of it */
    int missing_gradients; /* 1: gradients that are NULL count as zeros, to the bit, on the rank that has none: for
                              tensors that are not used in a step, there or anywhere. 0: a step without gradients of
                              some tensor fails */
    onebit_algorithm_t algorithm; /* of compressed exchanges (docs/OPTIMIZERS.md, "Two levels"). AUTO: what the
                                     environment's ONEBIT_ALGORITHM says, if that can be; else TWO_LEVEL where nodes
                                     have several ranks each and it is estimated to be quicker, or a tuning table says
                                     so; else PIPELINED. FLAT, BRUCK and RING give PIPELINED's bits. TWO_LEVEL gives
                                     bits of its own; where there are no two levels it becomes PIPELINED, and info says
                                     why. In a GPU's memory FLAT or PIPELINED, else UNSUPPORTED. DENSE:
                                     INVALID_ARGUMENT, but of Adam and LAMB that average exactly */
    onebit_codec_t codec; /* of compressed exchanges, the same on every rank (docs/OPTIMIZERS.md, "Codecs"). Kinds that
                             freeze encode the same values whatever the codec; one finer than SIGN, the default, leaves
                             less of them to error feedback. Adam and LAMB average exactly with SIGN; with another codec
                             their gradients are compressed, from the first step on. In a GPU's memory SIGN, else
                             UNSUPPORTED. All but SIGN want scale and group to be 0 (INVALID_ARGUMENT) */
    uint32_t kept;        /* of ONEBIT_CODEC_TOPK and ONEBIT_CODEC_RANDOMK, as in onebit_allreduce_config_t */
    uint32_t value_bits;
    onebit_datatype_t error_type; /* of errors, likewise; not with ONEBIT_GROUP_TENSOR either. What averages exactly has
                                     none */
    const onebit_level_t* levels; /* groups of ranks that average exactly; `codec` is used between them, on the way of
                                     ONEBIT_ALGORITHM_LEVELS (which AUTO becomes). Read, not kept. One level of several
                                     groups of several ranks, in the host's memory and exact, else UNSUPPORTED */
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

/* The same as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_optimizer_config_init(onebit_optimizer_config_t* config, size_t size,
                                                        onebit_optimizer_kind_t kind, double lr) ONEBIT_NOEXCEPT;

/* Registers the tensors and allocates the optimizer's state. Collective; blocks.
 *   tensors      [in] array of num_tensors; read, not kept; the same counts, groups and gradient types in the same
 *                order on every rank; in all at least as many elements as ranks (among those that are compressed, too)
 *   optimizer    [out] the handle; set to NULL on failure
 * With all ranks on one node, and no buckets, exact averages take besides at most 4 MiB of the memory that they share
 * (or 32 KiB for each of more than 128 ranks). In a GPU's memory, where gradients aren't clipped, a second error state
 * and a second set of messages are kept, as with buckets: gradients are looked at as they are encoded.
 * INVALID_ARGUMENT, INVALID_HANDLE, MISMATCH, UNSUPPORTED, OUT_OF_MEMORY, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_optimizer_create(onebit_comm_t comm, const onebit_optimizer_config_t* config,
                                                   const onebit_tensor_t* tensors, size_t num_tensors,
                                                   onebit_optimizer_t* optimizer) ONEBIT_NOEXCEPT;

/* One step with the gradients as they are now. Collective; blocks.
 *
 * A gradient that isn't finite on some rank is NONFINITE on every rank, and changes nothing but info.skipped, so that a
 * dynamic loss scale can go on from there. So is a gradient whose square overflows float32 once it is divided by the
 * gradient scale: from 1.8e19 on. Where parameters and gradients were finite, SUCCESS leaves finite parameters, copies
 * and state: a result that overflows becomes the largest finite number of its type (docs/OPTIMIZERS.md, "Overflow").
 *
 * A step counts on all tensors or on none, also where it exchanges them in buckets. One that fails has changed no
 * parameter, copy, moment, schedule or count (but info.skipped and info.cancelled), with three exceptions:
 *   - Finite values and the error together overflow float32, and bucket_size is 0: NONFINITE on every rank. The errors
 *     begin at zero again, and so do 1-bit Adam's and 1-bit LAMB's momenta.
 *   - The first step after the freeze changes over to the compression stage before it exchanges. It stays there.
 *   - TRANSPORT and TIMEOUT break the optimizer, and leave this rank's parameters and copies as they were. Other ranks
 *     may have finished the step. INTERNAL, and OUT_OF_MEMORY on one rank alone, break it too, and may leave parameters
 *     and copies half written.
 *
 * In a GPU's memory (which may be managed):
 *   - Gradients are read, and parameters and copies written, in order with config.stream's work. They may still be
 *     written to when the call returns; work that is put into the stream afterwards sees the result.
 *   - The call waits for what the stream was given before it. ONEBIT_TIMEOUT counts that time.
 *   - Results have the host's bits. One thing differs: where bucket_size is 0, the order in which exact rounds add up
 *     more than two ranks.
 *   - The current device doesn't matter, and stays. What fails on the device is INTERNAL.
 *   - A step can't be captured into a graph (UNSUPPORTED, as for onebit_allreduce_run). With buckets the other ranks
 *     wait for this rank's step.
 *
 * INVALID_ARGUMENT (a tensor has no gradients), INVALID_HANDLE, NONFINITE, MISMATCH (settings, stage or a state that
 * was set differ), CANCELLED (a rank has called onebit_optimizer_cancel_step), BUSY, UNSUPPORTED, TRANSPORT,
 * TIMEOUT. */
ONEBIT_API onebit_status_t onebit_optimizer_step(onebit_optimizer_t optimizer) ONEBIT_NOEXCEPT;

/* The same in three parts, so that the caller can compute meanwhile: the bits and the statuses are those of
 * onebit_optimizer_step. Gradients, parameters and copies belong to the step until it is finished.
 * start begins the step, does a first slice of it and doesn't wait. What is wrong with the step is told, on every rank,
 * by the test or wait that finishes it. start itself returns only INVALID_HANDLE, BUSY, UNSUPPORTED (config.stream is
 * captured) and what broke the handle; nothing has been started then, and other ranks wait for this rank's step.
 * test does a slice of the step, never waits for a peer, and sets *done to 1 when the step is finished (and then
 * returns its status), else to 0. A slice is some milliseconds of work, however large the tensors are. It gives peers
 * up as onebit_allreduce_test does. wait finishes the step; its timeout begins with it. With nothing started both
 * return SUCCESS, test with *done = 1. UNSUPPORTED (config.stream is captured) leaves the step for later.
 * Over NCCL start makes the whole step, and may block: operations must come to the stream in one order on all ranks.
 * A rank that has no memory for what start needs refuses the step, OUT_OF_MEMORY on every rank; its start blocks.
 * Until the step is finished the calls that grad_ready names are BUSY, and so are step, step_start, cancel_step,
 * grad_ready and every set_gradients. Settings that come meanwhile are the next step's. get_info tells of the step as
 * far as it has come. The step may be finished by another thread than the one that started it. destroy is BUSY; after
 * onebit_comm_abort, or once the handle is broken, it ends the step.
 * Steps of different handles don't disturb each other, but a wait advances its own handle alone: finish them in the
 * same order on every rank, or poll all with test or onebit_comm_progress. Collective; other ranks may call
 * onebit_optimizer_step instead.
 * Statuses otherwise as for onebit_optimizer_step. */
ONEBIT_API onebit_status_t onebit_optimizer_step_start(onebit_optimizer_t optimizer) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_optimizer_step_test(onebit_optimizer_t optimizer, int* done) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_optimizer_step_wait(onebit_optimizer_t optimizer) ONEBIT_NOEXCEPT;

/* As onebit_allreduce_set_callback, for steps that onebit_optimizer_step_start begins from now on. Tensors are the
 * caller's again in the callback. Local. INVALID_HANDLE, BUSY (a started step is not finished, or another thread is in
 * a call). */
ONEBIT_API onebit_status_t onebit_optimizer_set_callback(onebit_optimizer_t optimizer, onebit_callback_fn callback,
                                                         void* context) ONEBIT_NOEXCEPT;

/* In place of onebit_optimizer_step: gives the step up on all ranks, for example when this rank's backward pass ran out
 * of memory. Each other rank calls step, or this too, and all get the same status: CANCELLED, or what a rank of a lower
 * number has found wrong with the step. The message names the rank and its reason. Nothing has changed on any rank but
 * info.cancelled, and all may go on with the next step: grad_ready and what was BUSY may be called again. No gradients
 * are needed, and none read but those marked by grad_ready, which stay as they are until this call has returned.
 * Exchanges that have begun are finished and forgotten. Whatever has been marked on whichever rank, and in every stage.
 * Collective; blocks.
 *   reason  a text of which about 200 bytes are passed on; NULL: none
 * Never SUCCESS. CANCELLED, INVALID_HANDLE, INVALID_ARGUMENT, NONFINITE, MISMATCH, BUSY, UNSUPPORTED (config.stream is
 * captured), TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_optimizer_cancel_step(onebit_optimizer_t optimizer,
                                                        const char* reason) ONEBIT_NOEXCEPT;

/* Tells that the gradients of tensor number `tensor` are there, and stay as they are until the next step has returned.
 * Once all tensors of a bucket are ready its exchange begins, and overlaps with the rest of the backward pass. Buckets
 * begin in one order: that of the last tensors comes first. For optimizers with config.bucket_size > 0. It is optional,
 * and ranks may differ in it: step begins what no call has begun, and its result is the same to the bit.
 *
 * The call encodes, sends, and moves on all exchanges that have begun; it never waits for a peer. Between two calls
 * nothing moves. In a GPU's memory the gradients are there in order with config.stream's work, which the call doesn't
 * wait for.
 *
 * Some steps exchange nothing before onebit_optimizer_step: compressed ones with clipping (the norm of all gradients
 * comes first), those of 0/1 Adam after the freeze, and of any kind the first one after the freeze or, of 0/1 Adam,
 * after a load.
 *
 * From the first call to the end of the step these are BUSY: freeze, reset_error, get_error, save, load, all calls for
 * states (pack, unpack, get, set), set_parameters, set_all_gradients, destroy, and set_gradients of a tensor that is
 * ready. Settings that come meanwhile are the next step's. onebit_optimizer_cancel_step ends such a step early.
 * Where the ranks come to the step in different stages (one of them frozen by hand) it is MISMATCH on every rank, and
 * the optimizer is broken: some ranks may have begun exchanges that others never will.
 *
 * Buckets need a second error state and a second set of messages: 4 + 4/n bytes, and an eighth for each bit of the
 * codec, for each compressed element of n ranks; 4 (n-1)/n bytes for each element that is averaged exactly.
 * Local. INVALID_ARGUMENT (no such tensor, no gradients, ready already, bucket_size is 0), INVALID_HANDLE, BUSY,
 * UNSUPPORTED (config.stream is captured: nothing is marked), TRANSPORT. */
ONEBIT_API onebit_status_t onebit_optimizer_grad_ready(onebit_optimizer_t optimizer, size_t tensor) ONEBIT_NOEXCEPT;

/* Where the next steps read the gradients of tensor number `tensor`, of the type it was registered with; NULL: it has
 * none, and a step fails until it has, or with config.missing_gradients takes zeros. Local. INVALID_ARGUMENT,
 * INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_optimizer_set_gradients(onebit_optimizer_t optimizer, size_t tensor,
                                                          const void* gradients) ONEBIT_NOEXCEPT;

/* The same of all tensors in one call: all addresses change, or none.
 *   gradients    array of num_tensors addresses, by the number of the tensor; read, not kept. Each may be NULL
 *   num_tensors  as at creation
 * Local. INVALID_ARGUMENT, INVALID_HANDLE, BUSY (a tensor is ready). */
ONEBIT_API onebit_status_t onebit_optimizer_set_all_gradients(onebit_optimizer_t optimizer,
                                                              const void* const* gradients,
                                                              size_t num_tensors) ONEBIT_NOEXCEPT;

/* Where the master copy of tensor number `tensor` lies from now on. What lies there are its parameters: the program has
 * copied them, or has put others there, the same on every rank. The copy of lower precision stays where it is and is
 * written by the next step. Local.
 *   parameters  count floats in config.memory, not overlapping anything that the tensors name; the caller's; must stay
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY, OUT_OF_MEMORY. */
ONEBIT_API onebit_status_t onebit_optimizer_set_parameters(onebit_optimizer_t optimizer, size_t tensor,
                                                           float* parameters) ONEBIT_NOEXCEPT;

/* Settings of the next step that begins. A step has begun with its first onebit_optimizer_grad_ready: it keeps the
 * settings that it began with, and later ones are the step's after it. All are local, to be called on every rank: ranks
 * that differ get MISMATCH from the step. */

/* The learning rate of all groups or of one (0 where there are none). INVALID_ARGUMENT, INVALID_HANDLE, BUSY (another
 * thread is in a call). */
ONEBIT_API onebit_status_t onebit_optimizer_set_lr(onebit_optimizer_t optimizer, double lr) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_optimizer_set_group_lr(onebit_optimizer_t optimizer, size_t group,
                                                         double lr) ONEBIT_NOEXCEPT;

/* All settings of a group (0 where there are none): lr, beta1, beta2, eps, weight_decay. Two settings are fixed, and a
 * group that changes one is INVALID_ARGUMENT with the reason: no_compress always, eps and beta2 of a group that freezes
 * as long as it is frozen, for D was made with them. Another beta2 lets a rule of the freeze begin anew. Saved states
 * hold lr alone: a program that has changed the others sets them again after a load.
 *   settings  read, not kept
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY (another thread is in a call), UNSUPPORTED, OUT_OF_MEMORY. */
ONEBIT_API onebit_status_t onebit_optimizer_set_group(onebit_optimizer_t optimizer, size_t group,
                                                      const onebit_param_group_t* settings) ONEBIT_NOEXCEPT;

/* Gradients are divided by `scale`, a float > 0, as they are read: the loss was multiplied by it (1 at the start).
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY (another thread is in a call). */
ONEBIT_API onebit_status_t onebit_optimizer_set_gradient_scale(onebit_optimizer_t optimizer,
                                                               double scale) ONEBIT_NOEXCEPT;

/* config.max_grad_norm; 0: nothing is clipped, nor is the norm measured. What measures a norm is allocated at creation:
 * an optimizer whose config.max_grad_norm was 0 can't clip later (UNSUPPORTED). One that is to clip later, or only to
 * tell the norm (info.grad_norm), is created with a max_grad_norm that no gradient reaches, FLT_MAX say. Where it was
 * positive at creation, compressed steps don't begin before onebit_optimizer_step, with 0 either.
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY (another thread is in a call), UNSUPPORTED. */
ONEBIT_API onebit_status_t onebit_optimizer_set_max_grad_norm(onebit_optimizer_t optimizer,
                                                              double max_grad_norm) ONEBIT_NOEXCEPT;

/* Ends the warm-up by hand: the next step is the first compressed one. Local, to be called on every rank, after at
 * least one step. INVALID_ARGUMENT (no step yet, already frozen, or a kind that doesn't freeze), INVALID_HANDLE, BUSY.
 */
ONEBIT_API onebit_status_t onebit_optimizer_freeze(onebit_optimizer_t optimizer) ONEBIT_NOEXCEPT;

/* Sets the errors of the compressed exchange to zero; called before every step, it turns error feedback off. Local, to
 * be called on every rank. INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_optimizer_reset_error(onebit_optimizer_t optimizer) ONEBIT_NOEXCEPT;

/* Everything to and from files, one per rank: PREFIX.RANK-of-SIZE.onebit. Parameters, moments, errors, schedules and
 * settings that change (learning rates, gradient scale) are in them. A save never harms an earlier one, and load takes
 * the newest whole one, as for onebit_allreduce_save. A state that no training comes to is refused, whatever its
 * checksums (BAD_STATE). Training goes on after a load exactly as it would have, bit for bit, wherever it was.
 * What other ranks have saved can be loaded, too: another number of them, if there are no files of this number but of
 * one other; or ranks whose exchanges were flat where these go on two levels, or the other way round; or on two levels
 * ranks that shared nodes otherwise. What is the same on every rank is taken over. Errors are spread so that what is
 * still to be delivered, the mean of the worker errors (on two levels of each shard's, over the nodes) plus the server
 * errors, stays the same to rounding. Ranks of another number that 0/1 Adam had let drift apart meet at their mean.
 * The optimizer must be of the same kind, over tensors of the same counts in the same groups, with the same
 * config.compressed, once the saved one is frozen, and the same bucket_size (or one that cuts the same buckets; more
 * than 1024 ranks cut small ones otherwise). Collective; block; transactional. INVALID_ARGUMENT, INVALID_HANDLE, BUSY,
 * OUT_OF_MEMORY, IO, BAD_STATE, MISMATCH, TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_optimizer_save(onebit_optimizer_t optimizer, const char* prefix) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_optimizer_load(onebit_optimizer_t optimizer, const char* prefix) ONEBIT_NOEXCEPT;

/* The same as blobs of bytes, for a checkpoint of the program's own. state_size and pack_state are local. unpack_state
 * is collective, blocks and is transactional: where a rank's blobs don't fit, nothing changes on any rank.
 *   buffer     host memory, any alignment; `bytes` of it, at least what state_size has said since the last step
 *   blobs      num_blobs pointers to host memory, any alignment, in any order; read, not kept
 *   bytes      of unpack_state: the size of each blob
 * A blob says by itself which rank of how many has packed it, and of which state. The bytes of a saved file are a blob,
 * too. Blobs belong together if all that ranks have alike was the same when they were packed: the number of steps,
 * schedules, settings and parameters. (Ranks of 0/1 Adam drift apart after the freeze: the parameters of the last
 * round.)
 * Which blobs unpack_state needs:
 *   - of a state of as many ranks as there are, which exchanged alike and shared nodes alike: at least this rank's own.
 *     Ranks tell each other what else they need;
 *   - of any other state: all of its blobs, on every rank. Errors are spread, and drifted ranks meet, as in a load.
 * The optimizer must be as for onebit_optimizer_load. pack_state and unpack_state need about as much memory as a blob
 * has bytes, and a bucket's parameters, while they run.
 * INVALID_ARGUMENT (among them two blobs of one rank), INVALID_HANDLE, BUSY (also between onebit_optimizer_grad_ready
 * and the end of its step), OUT_OF_MEMORY; unpack_state also BAD_STATE (a blob is truncated, corrupt, missing or of
 * another optimizer), MISMATCH (blobs of different states, on one rank or on several), TRANSPORT, TIMEOUT. */
ONEBIT_API onebit_status_t onebit_optimizer_state_size(onebit_optimizer_t optimizer, uint64_t* bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_optimizer_pack_state(onebit_optimizer_t optimizer, void* buffer,
                                                       uint64_t bytes) ONEBIT_NOEXCEPT;
ONEBIT_API onebit_status_t onebit_optimizer_unpack_state(onebit_optimizer_t optimizer, const void* const* blobs,
                                                         const uint64_t* bytes, size_t num_blobs) ONEBIT_NOEXCEPT;

/* What the optimizer keeps for a tensor, named as PyTorch names it. */
typedef enum onebit_state ONEBIT_ENUM_INT {
    ONEBIT_STATE_EXP_AVG = 0,      /* m, the momentum */
    ONEBIT_STATE_EXP_AVG_SQ = 1,   /* v, the variance, not corrected for its bias */
    ONEBIT_STATE_WORKER_ERROR = 2, /* of the compressed exchange, this rank's: in units of what is compressed; zero on
                                      two levels outside its shard */
    ONEBIT_STATE_SERVER_ERROR = 3  /* likewise; zero for the elements that this rank doesn't serve */
} onebit_state_t;

/* Copies out one of these of tensor number `tensor`. Before the freeze, and of tensors that never freeze, m and v are
 * what Adam keeps, to the bit. After the freeze the optimizer keeps 1/D and a message in their place. m and v are then
 * worked out from those, to rounding: as a thaw would go on with them (docs/OPTIMIZERS.md, "After the freeze"), v
 * followed where variances are followed. v is 0 where eps was all of D. A masked element has m = v = 0. The m of 0/1
 * Adam after the freeze is this rank's own between two rounds. Errors that there are none of are zero. Local. With
 * tensors that share a bucket, one call for an error, and for an m that is a message, reads more than the tensor:
 * onebit_optimizer_get_error copies out all errors at once.
 *   values  [out] the tensor's count of floats, in the host's memory
 * INVALID_ARGUMENT (no such tensor, no such state, NULL), INVALID_HANDLE, BUSY, OUT_OF_MEMORY. */
ONEBIT_API onebit_status_t onebit_optimizer_get_state(onebit_optimizer_t optimizer, size_t tensor, onebit_state_t which,
                                                      float* values) ONEBIT_NOEXCEPT;

/* Sets m or v of tensor number `tensor`, for a training that another optimizer began, or that wants it otherwise.
 * Before the freeze, and of tensors that never freeze. The number of steps comes first (onebit_optimizer_set_steps).
 * Parameters are the program's own to set, at any time between two steps. Local, to be called on every rank with the
 * same values: ranks that differ get MISMATCH from the next step.
 *   values  [in] the tensor's count of floats, in the host's memory; copied. Finite, those of v >= 0
 * INVALID_ARGUMENT (also a value that no mean of gradients or of squares is after so many steps), INVALID_HANDLE, BUSY;
 * UNSUPPORTED for errors, and for a tensor that is frozen. */
ONEBIT_API onebit_status_t onebit_optimizer_set_state(onebit_optimizer_t optimizer, size_t tensor, onebit_state_t which,
                                                      const float* values) ONEBIT_NOEXCEPT;

/* Sets the number of steps that were made, which the bias corrections and the freeze go by. They count as exact ones,
 * in each of which v was updated. What a rule of the freeze has seen is forgotten; 0/1 Adam's intervals and the running
 * means of LAMB's trust ratios begin anew. A config.freeze_step that lies behind comes after the next step. Local, to
 * be called on every rank with the same number: ranks that differ get MISMATCH from the next step.
 *   steps  at least 1, less than 2^48
 * INVALID_ARGUMENT, INVALID_HANDLE, BUSY; UNSUPPORTED once the optimizer has frozen. */
ONEBIT_API onebit_status_t onebit_optimizer_set_steps(onebit_optimizer_t optimizer, uint64_t steps) ONEBIT_NOEXCEPT;

/* Copies out the error of the compressed exchange, tensor after tensor in the order of registration, count floats in
 * all: this rank's worker error, on two levels its shard's and zero elsewhere, and in `server` the server error of the
 * elements that this rank serves, zero elsewhere, so that the servers' sum over the ranks is the whole. Each may be
 * NULL. Local. INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_optimizer_get_error(onebit_optimizer_t optimizer, float* worker,
                                                      float* server) ONEBIT_NOEXCEPT;

typedef struct onebit_optimizer_info {
    size_t size;                    /* [in] sizeof(onebit_optimizer_info_t) */
    uint32_t version;               /* [in] ONEBIT_OPTIMIZER_INFO_VERSION */
    int frozen;                     /* 1 once the variance is frozen, or will be when the next step begins */
    uint64_t steps;                 /* finished with success */
    uint64_t skipped;               /* that ended with NONFINITE */
    uint64_t freeze_step;           /* the last warm-up step; 0 while warming up */
    uint64_t count;                 /* elements in all tensors */
    uint64_t masked;                /* elements that have had no gradient that counts: they take part in no exchange */
    uint64_t exact_rounds;          /* steps that averaged exactly (but for no_compress, which always does) */
    uint64_t compressed_rounds;     /* steps that exchanged codes; all others exchanged nothing */
    uint64_t warmup_bytes_sent;     /* by this rank in the warm-up stage */
    uint64_t compressed_bytes_sent; /* by this rank in the compression stage: all, of Adam and LAMB that compress */
    uint64_t state_bytes;           /* allocated in all: moments, error state, workspace */
    double grad_norm;               /* of the last step's averaged gradient; 0 where max_grad_norm is 0. Estimated in
                                       steps that don't average it exactly (docs/OPTIMIZERS.md) */
    uint64_t cancelled;             /* steps that ended with CANCELLED since this handle was created: not saved */
    onebit_freeze_wait_t freeze_wait; /* what a freeze by a rule waits for, as the rule last looked: AUTO 16 times in a
                                         window, PAPER after each step */
    uint32_t freeze_tensor;           /* WAIT_VARIANCE, _PARAMETERS: the number of the tensor that is furthest from
                                         having settled; with ONEBIT_FREEZE_PAPER, which looks at the sum, 0 */
    double freeze_ratio;   /* and that variance, or squared norm, over what it was a window ago; 0 where there
                              was none */
    uint64_t thaws;        /* freezes that have ended, for a variance had outgrown them; steps are exact from there
                              to the next freeze */
    double variance_ratio; /* what a tensor's variance, as last measured, makes of D^2, over D^2 as it was frozen: the
                              largest of any tensor; after a thaw, until a load, what ended the freeze; else 0 */
    uint64_t variance_tensor; /* and that tensor's number */
    double step_ratio;        /* after a freeze of momenta: how far a compressed step takes an element by the scale that
                                 it shares, over how far one of its own would take it; the largest of any element
                                 (docs/OPTIMIZERS.md, "Small variances"); else 0 */
    uint64_t step_tensor;     /* and the number of that element's tensor */
    onebit_algorithm_t algorithm; /* of compressed exchanges: never AUTO; DENSE: there are none (Adam and LAMB) */
    char reason[260];             /* why that one, in words; cut to fit */
} onebit_optimizer_info_t;

#define ONEBIT_OPTIMIZER_INFO_VERSION 1
#define ONEBIT_OPTIMIZER_INFO_INIT                                                                               \
    {                                                                                                            \
        sizeof(onebit_optimizer_info_t), ONEBIT_OPTIMIZER_INFO_VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0, \
            ONEBIT_FREEZE_WAIT_NONE, 0, 0.0, 0, 0.0, 0, 0.0, 0, ONEBIT_ALGORITHM_AUTO, {                         \
            0                                                                                                    \
        }                                                                                                        \
    }

/* The same as a function. INVALID_ARGUMENT, as for onebit_comm_info_init. */
ONEBIT_API onebit_status_t onebit_optimizer_info_init(onebit_optimizer_info_t* info, size_t size) ONEBIT_NOEXCEPT;

/* Fills *info. Local. INVALID_ARGUMENT, INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_optimizer_get_info(onebit_optimizer_t optimizer,
                                                     onebit_optimizer_info_t* info) ONEBIT_NOEXCEPT;

/* Releases the handle and its state, not the tensors; NULL is accepted. Collective as onebit_allreduce_destroy is.
 * INVALID_HANDLE, BUSY. */
ONEBIT_API onebit_status_t onebit_optimizer_destroy(onebit_optimizer_t optimizer) ONEBIT_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_ONEBIT_H */
