// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Persistent point-to-point messages on a duplicated communicator. Neither MPI makes progress by itself: test() must be
// called. A channel is a communicator of its own, so that operations in flight together can't take each other's
// messages, whatever order the ranks advance them in.

#include "transport/mpi.hpp"

#include <dlfcn.h>
#include <sched.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "transport/mapped_memory.hpp"
#include "transport/nodes.hpp"

namespace onebit {
namespace {

Status check(int code, const char* call) {
    if (code == MPI_SUCCESS) return {};
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    return Status::error(ONEBIT_ERROR_TRANSPORT, "%s: %s", call, text);
}

bool mpi_is_up() {
    int initialized = 0;
    int finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized != 0 && finalized == 0;
}

/// Whether this MPI sends from and receives into a GPU's memory. Not every MPI can be asked.
bool is_cuda_aware() {
    auto* const query = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
    return query != nullptr && query() == 1;
}

/// To be freed. Waits for the others first: in MPI_Comm_dup, MPICH's ranks would keep the core that another one needs
/// in order to come. (MPI_Comm_idup has no such wait, but what fails in it goes to MPI_COMM_WORLD's error handler.)
Status copy_comm(MPI_Comm comm, MPI_Comm* copy) {
    MPI_Request barrier = MPI_REQUEST_NULL;
    ONEBIT_RETURN_IF_ERROR(check(MPI_Ibarrier(comm, &barrier), "MPI_Ibarrier"));
    for (int all_here = 0; all_here == 0;) {
        sched_yield();
        ONEBIT_RETURN_IF_ERROR(check(MPI_Test(&barrier, &all_here, MPI_STATUS_IGNORE), "MPI_Test"));
    }
    return check(MPI_Comm_dup(comm, copy), "MPI_Comm_dup");
}

/// What MPI says of a communicator's nodes: the same on every rank.
struct Nodes {
    std::vector<int> of_rank; ///< ranks that share memory have the same number
    bool crowded = false;     ///< some node has more ranks than cores that they may run on
};

/// Splits once, which MPICH takes its time for where ranks share cores.
Status look_at_nodes(MPI_Comm comm, Nodes* nodes) {
    MPI_Comm node = MPI_COMM_NULL;
    ONEBIT_RETURN_IF_ERROR(
        check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type"));
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof(cores), &cores) != 0) CPU_SET(0, &cores);
    MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof(cores), MPI_BYTE, MPI_BOR, node); // of all its ranks
    struct {
        int first, crowded;
    } own{};
    MPI_Comm_rank(comm, &own.first); // the least rank of the node stands for it
    MPI_Bcast(&own.first, 1, MPI_INT, 0, node);
    int ranks_of_node = 0;
    MPI_Comm_size(node, &ranks_of_node);
    own.crowded = ranks_of_node > CPU_COUNT(&cores) ? 1 : 0;
    MPI_Comm_free(&node);
    int ranks = 0;
    MPI_Comm_size(comm, &ranks);
    std::vector<decltype(own)> all(static_cast<std::size_t>(ranks));
    ONEBIT_RETURN_IF_ERROR(check(MPI_Allgather(&own, 2, MPI_INT, all.data(), 2, MPI_INT, comm), "MPI_Allgather"));
    for (const auto& [first, crowded] : all) {
        nodes->of_rank.push_back(first);
        nodes->crowded |= crowded != 0;
    }
    return {};
}

class MpiExchange final : public Exchange {
  public:
    explicit MpiExchange(std::uint64_t& bytes_sent) : bytes_sent_(bytes_sent) {}

    ~MpiExchange() override {
        // A request that a dead peer left active can be neither freed nor waited for: it is abandoned.
        if (active_ || !mpi_is_up()) return;
        for (MPI_Request& request : requests_) MPI_Request_free(&request);
    }

    Status plan(MPI_Comm comm, const std::vector<Part>& sends, const std::vector<Part>& receives, int tag) {
        requests_.reserve(sends.size() + receives.size());
        for (const Part& part : receives) ONEBIT_RETURN_IF_ERROR(add(MPI_Recv_init, "MPI_Recv_init", comm, part, tag));
        for (const Part& part : sends) {
            ONEBIT_RETURN_IF_ERROR(add(MPI_Send_init, "MPI_Send_init", comm, part, tag));
            bytes_per_start_ += part.bytes;
        }
        return {};
    }

    Status start() override {
        if (requests_.empty()) return {};
        active_ = true;
        pending_ = 0;
        bytes_sent_ += bytes_per_start_;
        // One by one: MPI_Startall need not keep the order, which tells a peer's messages of one exchange apart.
        for (MPI_Request& request : requests_) ONEBIT_RETURN_IF_ERROR(check(MPI_Start(&request), "MPI_Start"));
        return {};
    }

    Status test(bool* done) override {
        // The first one that is missing will do: MPI_Testall looks at all of them each time, and there may be hundreds.
        for (; active_ && pending_ < requests_.size(); ++pending_) {
            int flag = 0;
            ONEBIT_RETURN_IF_ERROR(check(MPI_Test(&requests_[pending_], &flag, MPI_STATUS_IGNORE), "MPI_Test"));
            *done = flag != 0;
            if (!*done) return {};
        }
        active_ = false;
        *done = true;
        return {};
    }

  private:
    template <typename Init>
    Status add(Init init, const char* call, MPI_Comm comm, const Part& part, int tag) {
        // Words, so that a message may be four times as long as a count of bytes could say.
        const std::size_t words = part.bytes / sizeof(std::uint32_t);
        if (part.bytes % sizeof(std::uint32_t) != 0 || words > std::numeric_limits<int>::max()) {
            return Status::error(ONEBIT_ERROR_UNSUPPORTED, "mpi: a message of %zu bytes", part.bytes);
        }
        MPI_Request request = MPI_REQUEST_NULL;
        ONEBIT_RETURN_IF_ERROR(
            check(init(part.data, static_cast<int>(words), MPI_UINT32_T, part.peer, tag, comm, &request), call));
        requests_.push_back(request);
        return {};
    }

    std::vector<MPI_Request> requests_;
    std::size_t pending_ = 0; ///< those before it are done
    std::uint64_t bytes_per_start_ = 0;
    std::uint64_t& bytes_sent_;
    bool active_ = false;
};

class MpiSum final : public Sum {
  public:
    MpiSum(MPI_Comm comm, int ranks, bool crowded, std::size_t count, std::uint64_t& bytes_sent)
        : comm_(comm), ranks_(ranks), crowded_(crowded), count_(count), bytes_sent_(bytes_sent) {
        requests_.reserve(count / kPieceElements + 1);
    }

    Status start(const float* input, float* output, bool may_block) override {
        requests_.clear();
        bytes_sent_ += ring_bytes(count_, ranks_);
        for (std::size_t begin = 0; begin < count_; begin += kPieceElements) {
            const int elements = static_cast<int>(std::min(kPieceElements, count_ - begin));
            const void* from = input == output ? MPI_IN_PLACE : static_cast<const void*>(input + begin);
            // The blocking form is the better tuned one in both MPIs; but it spins, which on a crowded node keeps the
            // core from the very rank that is waited for: there it took six times as long.
            if (may_block && !crowded_) {
                ONEBIT_RETURN_IF_ERROR(
                    check(MPI_Allreduce(from, output + begin, elements, MPI_FLOAT, MPI_SUM, comm_), "MPI_Allreduce"));
                continue;
            }
            requests_.push_back(MPI_REQUEST_NULL);
            ONEBIT_RETURN_IF_ERROR(
                check(MPI_Iallreduce(from, output + begin, elements, MPI_FLOAT, MPI_SUM, comm_, &requests_.back()),
                      "MPI_Iallreduce"));
        }
        return {};
    }

    Status test(bool* done) override {
        int flag = 1;
        ONEBIT_RETURN_IF_ERROR(
            check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &flag, MPI_STATUSES_IGNORE),
                  "MPI_Testall"));
        *done = flag != 0;
        return {};
    }

  private:
    /// MPI counts are ints.
    static constexpr std::size_t kPieceElements = std::size_t{1} << 30;

    MPI_Comm comm_;
    int ranks_;
    bool crowded_;
    std::size_t count_;
    std::uint64_t& bytes_sent_;
    std::vector<MPI_Request> requests_;
};

/// An MPI-3 shared window. Its one epoch is as long as itself; in the unified memory model, the only one in which
/// shared windows are of use, ordinary loads, stores and atomics then do.
class MpiSharedMemory final : public SharedMemory {
  public:
    ~MpiSharedMemory() override {
        if (window_ == MPI_WIN_NULL || !mpi_is_up()) return;
        MPI_Win_unlock_all(window_);
        MPI_Win_free(&window_);
    }

    Status allocate(MPI_Comm comm, std::size_t bytes) {
        constexpr std::size_t kPage = 4096;
        const std::size_t rounded = (bytes + kAlignment + kPage - 1) / kPage * kPage;
        int ranks = 0;
        MPI_Comm_size(comm, &ranks);
        // Open MPI, which wants a twentieth more and some pages, doesn't survive its own attempt.
        const std::size_t total = (rounded + 4 * kPage) * static_cast<std::size_t>(ranks) + 16 * kPage;
        ONEBIT_RETURN_IF_ERROR(agree_on_memory(comm, bytes, total + total / 16 <= free_bytes()));
        void* mine = nullptr;
        ONEBIT_RETURN_IF_ERROR(
            check(MPI_Win_allocate_shared(static_cast<MPI_Aint>(rounded), 1, MPI_INFO_NULL, comm, &mine, &window_),
                  "MPI_Win_allocate_shared"));
        // Open MPI's begin 8 bytes past a cache line. How far past it, each says of its own.
        std::vector<std::uint64_t> skipped(static_cast<std::size_t>(ranks));
        const std::uint64_t own = (kAlignment - reinterpret_cast<std::uintptr_t>(mine) % kAlignment) % kAlignment;
        ONEBIT_RETURN_IF_ERROR(
            check(MPI_Allgather(&own, 1, MPI_UINT64_T, skipped.data(), 1, MPI_UINT64_T, comm), "MPI_Allgather"));
        segments_.resize(skipped.size());
        for (std::size_t r = 0; r < segments_.size(); ++r) {
            MPI_Aint size = 0;
            int unit = 0;
            void* begin = nullptr;
            ONEBIT_RETURN_IF_ERROR(check(MPI_Win_shared_query(window_, static_cast<int>(r), &size, &unit, &begin),
                                         "MPI_Win_shared_query"));
            segments_[r] = static_cast<std::byte*>(begin) + skipped[r];
        }
        ONEBIT_RETURN_IF_ERROR(check(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "MPI_Win_lock_all"));
        const int missing = populate(mine, rounded); // the file may be there without memory behind it
        const bool is_there = missing == 0 || missing == EINVAL;
        if (is_there) std::memset(mine, 0, rounded);
        return agree_on_memory(comm, bytes, is_there); // nor does anybody look before all is zero
    }

    std::byte* of(int rank) override { return segments_[static_cast<std::size_t>(rank)]; }
    bool freed_together() const override { return mpi_is_up(); } // MPI_Win_free, which comes too late else

  private:
    static constexpr std::size_t kAlignment = 64;

    /// Of the file system that both MPIs share memory through.
    static std::size_t free_bytes() {
        struct statvfs system {};
        if (statvfs("/dev/shm", &system) != 0) return SIZE_MAX;
        return static_cast<std::size_t>(system.f_bavail) * system.f_frsize;
    }

    static Status agree_on_memory(MPI_Comm comm, std::size_t bytes, bool is_there) {
        int missing = is_there ? 0 : 1;
        ONEBIT_RETURN_IF_ERROR(
            check(MPI_Allreduce(MPI_IN_PLACE, &missing, 1, MPI_INT, MPI_MAX, comm), "MPI_Allreduce"));
        if (missing == 0) return {};
        return Status::error(ONEBIT_ERROR_OUT_OF_MEMORY, "%zu bytes of each rank don't fit into /dev/shm", bytes);
    }

    MPI_Win window_ = MPI_WIN_NULL;
    std::vector<std::byte*> segments_;
};

class MpiTransport final : public Transport {
  public:
    /// Takes over the communicator.
    MpiTransport(MPI_Comm comm, Nodes nodes) : comm_(comm), nodes_(std::move(nodes)) {
        MPI_Comm_rank(comm, &rank_);
        MPI_Comm_size(comm, &size_);
    }

    ~MpiTransport() override {
        if (mpi_is_up()) MPI_Comm_free(&comm_);
    }

    const char* name() const override { return "mpi"; }
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    bool reaches_devices() const override { return cuda_aware_; }

    Status duplicate(std::unique_ptr<Transport>* channel) override {
        MPI_Comm copy = MPI_COMM_NULL;
        ONEBIT_RETURN_IF_ERROR(copy_comm(comm_, &copy));
        *channel = std::make_unique<MpiTransport>(copy, nodes_);
        return {};
    }

    Status find_nodes(std::vector<int>* node_of_rank) override {
        *node_of_rank = number_by_first_rank(nodes_.of_rank);
        return {};
    }

    Status split(const std::vector<int>& color_of_rank, std::unique_ptr<Transport>* channel) override {
        const int color = color_of_rank[static_cast<std::size_t>(rank_)];
        MPI_Comm part = MPI_COMM_NULL;
        ONEBIT_RETURN_IF_ERROR(check(MPI_Comm_split(comm_, color, rank_, &part), "MPI_Comm_split"));
        Nodes nodes = {.of_rank = {}, .crowded = nodes_.crowded}; // the cores are shared with those who aren't in it
        for (std::size_t r = 0; r < color_of_rank.size(); ++r) {
            if (color_of_rank[r] == color) nodes.of_rank.push_back(nodes_.of_rank[r]);
        }
        *channel = std::make_unique<MpiTransport>(part, std::move(nodes));
        return {};
    }

    Status share_memory(std::size_t bytes, std::unique_ptr<SharedMemory>* memory) override {
        auto made = std::make_unique<MpiSharedMemory>();
        ONEBIT_RETURN_IF_ERROR(made->allocate(comm_, bytes));
        *memory = std::move(made);
        return {};
    }

    Status plan_exchange(std::vector<Part> sends, std::vector<Part> receives, int tag,
                         std::unique_ptr<Exchange>* exchange) override {
        if (!cuda_aware_) {
            ONEBIT_RETURN_IF_ERROR(check_on_host(sends));
            ONEBIT_RETURN_IF_ERROR(check_on_host(receives));
        }
        drop_empty(sends);
        drop_empty(receives);
        auto planned = std::make_unique<MpiExchange>(bytes_sent_);
        ONEBIT_RETURN_IF_ERROR(planned->plan(comm_, sends, receives, tag));
        *exchange = std::move(planned);
        return {};
    }

    Status progress() override {
        int there = 0;
        return check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &there, MPI_STATUS_IGNORE), "MPI_Iprobe");
    }

    Status plan_sum(std::size_t count, std::unique_ptr<Sum>* sum) override {
        *sum = std::make_unique<MpiSum>(comm_, size_, nodes_.crowded, count, bytes_sent_);
        return {};
    }

  private:
    MPI_Comm comm_;
    Nodes nodes_;
    bool cuda_aware_ = is_cuda_aware();
    int rank_ = 0;
    int size_ = 0;
};

} // namespace

Status make_mpi_transport(MPI_Comm comm, std::unique_ptr<Transport>* transport) {
    if (!mpi_is_up()) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "mpi_comm: MPI is not initialised, or already finalised");
    }
    if (comm == MPI_COMM_NULL) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "mpi_comm is MPI_COMM_NULL");
    int is_inter = 0;
    ONEBIT_RETURN_IF_ERROR(check(MPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter"));
    if (is_inter != 0) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "mpi_comm is an intercommunicator");
    MPI_Comm duplicate = MPI_COMM_NULL;
    ONEBIT_RETURN_IF_ERROR(copy_comm(comm, &duplicate));
    ONEBIT_RETURN_IF_ERROR(check(MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
    Nodes nodes;
    ONEBIT_RETURN_IF_ERROR(look_at_nodes(duplicate, &nodes));
    *transport = std::make_unique<MpiTransport>(duplicate, std::move(nodes));
    return {};
}

} // namespace onebit
