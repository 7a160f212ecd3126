// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/mpi_link.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace onebit {
namespace {

constexpr int kNoticeTag = 0;
static_assert(kNoticeTag < Link::kFirstTag);

/// While it lives MPI's errors come back instead of ending the program, also those of calls on a communicator of the
/// user's. What fails in a request without a communicator goes to MPI_COMM_WORLD's handler.
class ErrorsReturn {
  public:
    explicit ErrorsReturn(MPI_Comm users) : comms_{MPI_COMM_WORLD, users} {
        for (std::size_t i = 0; i < comms_.size(); ++i) {
            if (MPI_Comm_get_errhandler(comms_[i], &before_[i]) != MPI_SUCCESS) before_[i] = MPI_ERRHANDLER_NULL;
            MPI_Comm_set_errhandler(comms_[i], MPI_ERRORS_RETURN);
        }
    }
    ~ErrorsReturn() {
        for (std::size_t i = comms_.size(); i-- > 0;) {
            if (before_[i] == MPI_ERRHANDLER_NULL) continue;
            MPI_Comm_set_errhandler(comms_[i], before_[i]);
            MPI_Errhandler_free(&before_[i]);
        }
    }
    ErrorsReturn(const ErrorsReturn&) = delete;
    ErrorsReturn& operator=(const ErrorsReturn&) = delete;

  private:
    std::array<MPI_Comm, 2> comms_;
    std::array<MPI_Errhandler, 2> before_{};
};

/// A duplication under way. MPI may write to it after this rank has given up waiting.
struct Duplication {
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
};

Status duplicate(MPI_Comm users, double timeout, MPI_Comm* copy) {
    auto duplication = std::make_unique<Duplication>();
    const Patience patience = {timeout, std::make_shared<AbortSwitch>()};
    ONEBIT_RETURN_IF_ERROR(check_mpi(MPI_Comm_idup(users, &duplication->copy, &duplication->request), "MPI_Comm_idup"));
    const Status made = wait_until_done("MPI_Comm_idup", patience, [&](bool* done, bool*) {
        int flag = 0;
        ONEBIT_RETURN_IF_ERROR(
            check_mpi(MPI_Test(&duplication->request, &flag, MPI_STATUS_IGNORE), "MPI_Comm_idup: MPI_Test"));
        *done = flag != 0;
        return Status();
    });
    if (!made.ok()) {
        (void)duplication.release();
        return made;
    }
    *copy = duplication->copy;
    return check_mpi(MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

/// Whether threads may call MPI while others do, or this one at least while no other does.
int thread_level() {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    return level;
}

} // namespace

Status check_mpi(int code, const char* call) {
    if (code == MPI_SUCCESS) return {};
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    std::replace(text.begin(), text.begin() + length, '\n', ' '); // MPICH writes a line for each of its functions
    return Status::error(ONEBIT_ERROR_TRANSPORT, "%s: %s", call, text.data());
}

bool mpi_is_up() {
    int initialized = 0;
    int finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized != 0 && finalized == 0;
}

struct MpiLink::Sent {
    Notice notice;
    std::vector<MPI_Request> requests;
};

MpiLink::MpiLink(int rank, int size) : Link(rank, size), sent_(std::make_unique<std::list<Sent>>()) {
    make_spare();
    int* most = nullptr;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &found);
    set_last_tag(found != 0 ? *most : 32767); // what every MPI has
    abort_switch()->set_messenger([this](const Status& why) { return tell_all(why); },
                                  thread_level() == MPI_THREAD_MULTIPLE);
}

Status MpiLink::create(MPI_Comm users, double timeout, std::shared_ptr<MpiLink>* link) {
    const ErrorsReturn errors(users);
    int is_inter = 0;
    ONEBIT_RETURN_IF_ERROR(check_mpi(MPI_Comm_test_inter(users, &is_inter), "MPI_Comm_test_inter"));
    if (is_inter != 0) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "mpi_comm is an intercommunicator");
    int rank = 0;
    int size = 0;
    ONEBIT_RETURN_IF_ERROR(check_mpi(MPI_Comm_rank(users, &rank), "MPI_Comm_rank"));
    ONEBIT_RETURN_IF_ERROR(check_mpi(MPI_Comm_size(users, &size), "MPI_Comm_size"));
    std::shared_ptr<MpiLink> made(new MpiLink(rank, size)); // first: a duplicate without an owner would stay for ever
    ONEBIT_RETURN_IF_ERROR(duplicate(users, timeout, &made->comm_));
    *link = std::move(made);
    return {};
}

MpiLink::~MpiLink() {
    abort_switch()->set_messenger(nullptr, false);
    if (!mpi_is_up() || comm_ == MPI_COMM_NULL) return;
    for (Sent& sent : *sent_) {
        int all = 0;
        MPI_Testall(static_cast<int>(sent.requests.size()), sent.requests.data(), &all, MPI_STATUSES_IGNORE);
        abandoned_ |= all == 0;
    }
    // What a peer may still send to stays: MPI would wait for it, or write to what is gone.
    if (abandoned_) {
        (void)sent_.release();
    } else {
        MPI_Comm_free(&comm_);
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
    if (!mpi_is_up()) return;
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
        MPI_Request request = MPI_REQUEST_NULL;
        if (MPI_Isend(&sent.notice, sizeof(Notice), MPI_BYTE, rank, kNoticeTag, comm_, &request) == MPI_SUCCESS) {
            sent.requests.push_back(request); // there is room for it
        }
    }
    (void)make_room(); // or the next one tries again
}

/// The messenger of the abort switch.
bool MpiLink::tell_all(const Status& why) noexcept {
    int is_main = 0;
    if (mpi_is_up()) MPI_Is_thread_main(&is_main);
    if (thread_level() < MPI_THREAD_SERIALIZED && is_main == 0) return false;
    tell(everyone(), kEverything, why);
    return true;
}

Status MpiLink::look_for_notices() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return {}; // another thread is at it
    for (;;) {
        int there = 0;
        MPI_Status status;
        ONEBIT_RETURN_IF_ERROR(check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kNoticeTag, comm_, &there, &status), "MPI_Iprobe"));
        if (there == 0) return {};
        Notice notice;
        ONEBIT_RETURN_IF_ERROR(check_mpi(
            MPI_Recv(&notice, sizeof(notice), MPI_BYTE, status.MPI_SOURCE, kNoticeTag, comm_, MPI_STATUS_IGNORE),
            "MPI_Recv"));
        keep(status.MPI_SOURCE, notice);
    }
}

} // namespace onebit
