// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/mpi_link.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/wait.hpp"
#include "transport/nodes.hpp"

namespace onebit {
namespace {

constexpr int kNoticeTag = 0;
static_assert(kNoticeTag < Link::kFirstTag);
constexpr int kNoticeWords = sizeof(Notice) / sizeof(std::uint32_t);

/// While it lives, MPI calls return their errors instead of ending the program, also calls on the user's communicator.
/// A failure in a request without a communicator goes to MPI_COMM_WORLD's handler.
class ErrorsReturn {
  public:
    ErrorsReturn(const MpiCalls& calls, MpiCalls::Handle users) : calls_(calls), comms_{calls.comm_world, users} {
        for (std::size_t i = 0; i < comms_.size(); ++i) calls_.errors_return(comms_[i], &before_[i]);
    }
    ~ErrorsReturn() {
        for (std::size_t i = comms_.size(); i-- > 0;) calls_.restore_errors(comms_[i], before_[i]);
    }
    ErrorsReturn(const ErrorsReturn&) = delete;
    ErrorsReturn& operator=(const ErrorsReturn&) = delete;

  private:
    const MpiCalls& calls_;
    std::array<MpiCalls::Handle, 2> comms_;
    std::array<MpiCalls::Handle, 2> before_{};
};

std::uint64_t identity_of_node(const MpiCalls& calls) {
    std::array<char, MpiCalls::kLongestText + 1> name{};
    calls.processor_name(name.data());
    return host_identity(name.data());
}

/// A duplication under way. MPI may write to it after this rank has given up waiting.
struct Duplication {
    MpiCalls::Handle copy = 0;
    MpiCalls::Handle request = 0;
};

/// Waits for a request of a rank without a communicator of onebit's, so nobody can abort the wait. Needs no memory.
Status await(const MpiCalls& calls, MpiCalls::Handle* request, const char* what, double timeout) {
    AbortSwitch never;
    const Patience patience = {timeout, std::shared_ptr<AbortSwitch>(std::shared_ptr<void>(), &never)};
    return wait_until_done(what, patience, [&](bool* done, bool*) {
        int flag = 0;
        ONEBIT_RETURN_IF_ERROR(check_mpi(calls, calls.test(request, &flag), what));
        *done = flag != 0;
        return Status();
    });
}

/// Needs no memory. If it fails, `*duplication` must stay alive.
Status duplicate(const MpiCalls& calls, MpiCalls::Handle users, double timeout, Duplication* duplication) {
    ONEBIT_RETURN_IF_ERROR(
        check_mpi(calls, calls.comm_idup(users, &duplication->copy, &duplication->request), "MPI_Comm_idup"));
    ONEBIT_RETURN_IF_ERROR(await(calls, &duplication->request, "MPI_Comm_idup", timeout));
    return check_mpi(calls, calls.errors_return(duplication->copy, nullptr), "MPI_Comm_set_errhandler");
}

} // namespace

Status check_mpi(const MpiCalls& calls, int code, const char* call) {
    if (code == 0) return {};
    std::array<char, MpiCalls::kLongestText + 1> text{};
    calls.error_text(code, text.data());
    return Status::error(ONEBIT_ERROR_TRANSPORT, "%s: %s", call, text.data());
}

Status MpiLink::finalised() {
    return Status::error(ONEBIT_ERROR_TRANSPORT, "MPI_Finalize has been called");
}

struct MpiLink::Sent {
    Notice notice;
    std::vector<MpiCalls::Handle> requests;
};

MpiLink::MpiLink(const MpiCalls& calls, int rank, int size)
    : Link(rank, size),
      calls_(calls),
      comm_(calls.comm_null),
      thread_level_(calls.thread_level()),
      cuda_aware_(calls.is_cuda_aware()),
      node_identity_(identity_of_node(calls)),
      sent_(std::make_unique<std::list<Sent>>()) {
    make_spare();
    set_last_tag(calls_.last_tag);
    tell_by(*abort_switch(), everyone(), kFirstTag);
}

Status MpiLink::create(const MpiCalls& calls, MpiCalls::Handle users, double timeout, std::shared_ptr<MpiLink>* link) {
    const ErrorsReturn errors(calls, users);
    int is_inter = 0;
    ONEBIT_RETURN_IF_ERROR(check_mpi(calls, calls.comm_is_inter(users, &is_inter), "MPI_Comm_test_inter"));
    if (is_inter != 0) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "mpi_comm is an intercommunicator");
    int rank = 0;
    int size = 0;
    ONEBIT_RETURN_IF_ERROR(check_mpi(calls, calls.comm_rank(users, &rank), "MPI_Comm_rank"));
    ONEBIT_RETURN_IF_ERROR(check_mpi(calls, calls.comm_size(users, &size), "MPI_Comm_size"));
    ONEBIT_RETURN_IF_ERROR(check_mpi(calls, calls.at_finalize([] { mpi_ended = true; }), "MPI_Comm_set_attr"));
    // The owner comes first: a duplicate without an owner would stay for ever.
    std::shared_ptr<MpiLink> made;
    std::unique_ptr<Duplication> duplication;
    const Status prepared = catch_exceptions([&] {
        duplication = std::make_unique<Duplication>();
        made.reset(new MpiLink(calls, rank, size));
        return Status();
    });
    if (!prepared.ok()) {
        take_part_without_memory(calls, users, timeout, rank, size);
        return prepared;
    }
    const Status duplicated = duplicate(calls, users, timeout, duplication.get());
    if (!duplicated.ok()) {
        (void)duplication.release();
        return duplicated;
    }
    made->comm_ = duplication->copy;
    *link = std::move(made);
    return {};
}

/// The other ranks wait in the duplication, and then for this rank's first message. Here that message is a notice. The
/// duplicate stays for ever, because the other ranks may send to it.
void MpiLink::take_part_without_memory(const MpiCalls& calls, MpiCalls::Handle users, double timeout, int rank,
                                       int size) {
    constexpr double kSecondsToSend = 1;
    // Static, because MPI may still use them when this rank has given up waiting.
    static Duplication duplication;
    static const Notice kNotice = make_notice(kFirstTag, Status::error(ONEBIT_ERROR_OUT_OF_MEMORY, "out of memory"));
    // The duplication is in use: by another thread, or by MPI for good. Then the others wait until their time is up.
    static std::atomic_flag in_use;
    if (in_use.test_and_set()) return;
    if (!duplicate(calls, users, timeout, &duplication).ok()) return;
    const MpiCalls::Handle copy = duplication.copy;
    in_use.clear();
    bool waits = true; // until a send fails: there may be hundreds of peers
    for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        MpiCalls::Handle request = calls.request_null;
        if (calls.isend(&kNotice, kNoticeWords, peer, kNoticeTag, copy, &request) != 0) continue;
        waits = waits && await(calls, &request, "MPI_Isend", kSecondsToSend).ok();
    }
}

MpiLink::~MpiLink() {
    abort_switch()->set_messenger(nullptr, false);
    if (mpi_ended || comm_ == calls_.comm_null) return;
    for (Sent& sent : *sent_) {
        for (MpiCalls::Handle& request : sent.requests) {
            int done = 0;
            (void)calls_.test(&request, &done);
            abandoned_ |= done == 0;
        }
    }
    // What a peer may still send to stays: MPI would wait for the peer, or write to what is gone.
    if (abandoned_) {
        (void)sent_.release();
    } else {
        (void)calls_.comm_free(comm_);
    }
}

// ------------------------------------------------------------------------------------------------- notices ----

void MpiLink::make_spare() {
    if (!spare_.empty()) return;
    std::list<Sent> made(1);
    made.front().requests.reserve(static_cast<std::size_t>(size()));
    spare_ = std::move(made);
}

void MpiLink::tell(std::span<const int> ranks, int channel, const Status& why) noexcept {
    if (mpi_ended) return;
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    const auto make_room = [&] {
        return catch_exceptions([&] {
            make_spare();
            return Status();
        });
    };
    if (!make_room().ok()) return;
    sent_->splice(sent_->end(), spare_);
    Sent& sent = sent_->back();
    sent.notice = make_notice(channel, why);
    for (const int rank : ranks) {
        if (rank == this->rank()) continue;
        MpiCalls::Handle request = calls_.request_null;
        if (calls_.isend(&sent.notice, kNoticeWords, rank, kNoticeTag, comm_, &request) == 0) {
            sent.requests.push_back(request); // there is room for it
        }
    }
    (void)make_room(); // or the next one tries again
}

bool MpiLink::try_tell(std::span<const int> ranks, int channel, const Status& why) noexcept {
    if (!mpi_ended && thread_level_ < MpiCalls::kSerialized && !calls_.is_main_thread()) return false;
    tell(ranks, channel, why);
    return true;
}

Status MpiLink::look_for_notices() {
    ONEBIT_RETURN_IF_ERROR(check_up());
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return {}; // another thread looks for notices
    for (;;) {
        int there = 0;
        int peer = 0;
        ONEBIT_RETURN_IF_ERROR(check(calls_.probe(kNoticeTag, comm_, &there, &peer), "MPI_Iprobe"));
        if (there == 0) return {};
        Notice notice;
        ONEBIT_RETURN_IF_ERROR(check(calls_.recv(&notice, kNoticeWords, peer, kNoticeTag, comm_), "MPI_Recv"));
        keep(peer, notice);
    }
}

} // namespace onebit
