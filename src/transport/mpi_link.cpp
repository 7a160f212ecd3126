// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/mpi_link.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

namespace onebit {
namespace {

constexpr int kNoticeTag = 0;
static_assert(kNoticeTag < MpiLink::kFirstTag);

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

/// As it travels.
struct MpiLink::Notice {
    int channel = 0;
    int status = 0;
    std::array<char, 504> reason{};
};

struct MpiLink::Sent {
    Notice notice;
    std::vector<MPI_Request> requests;
};

MpiLink::MpiLink(MPI_Comm users) : next_tag_(kFirstTag), sent_(std::make_unique<std::list<Sent>>()) {
    MPI_Comm_rank(users, &rank_);
    MPI_Comm_size(users, &size_);
    everyone_.resize(static_cast<std::size_t>(size_));
    std::iota(everyone_.begin(), everyone_.end(), 0);
    make_spare();
    int* most = nullptr;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &found);
    last_tag_ = found != 0 ? *most : 32767; // what every MPI has
    abort_switch_->set_messenger([this](const Status& why) { return tell_all(why); },
                                 thread_level() == MPI_THREAD_MULTIPLE);
}

Status MpiLink::create(MPI_Comm users, double timeout, std::shared_ptr<MpiLink>* link) {
    const ErrorsReturn errors(users);
    int is_inter = 0;
    ONEBIT_RETURN_IF_ERROR(check_mpi(MPI_Comm_test_inter(users, &is_inter), "MPI_Comm_test_inter"));
    if (is_inter != 0) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "mpi_comm is an intercommunicator");
    std::shared_ptr<MpiLink> made(new MpiLink(users)); // first: a duplicate without an owner would stay for ever
    ONEBIT_RETURN_IF_ERROR(duplicate(users, timeout, &made->comm_));
    *link = std::move(made);
    return {};
}

MpiLink::~MpiLink() {
    abort_switch_->set_messenger(nullptr, false);
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

Status MpiLink::take_tags(int tags, int* first) {
    *first = next_tag_.fetch_add(tags);
    if (*first > 0 && *first <= last_tag_ - tags) return {};
    next_tag_ = last_tag_; // and so for good
    return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                         "the communicator has used up MPI's %d tags: make a new communicator for further handles",
                         last_tag_);
}

// ------------------------------------------------------------------------------------------------- notices ----

void MpiLink::make_spare() {
    if (!spare_.empty()) return;
    std::list<Sent> made(1);
    made.front().requests.reserve(static_cast<std::size_t>(size_));
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
    sent.notice.channel = channel;
    sent.notice.status = why.code();
    std::snprintf(sent.notice.reason.data(), sent.notice.reason.size(), "%s", why.message().c_str());
    for (const int rank : ranks) {
        if (rank == rank_) continue;
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
    tell(everyone_, kEverything, why);
    return true;
}

Status MpiLink::listen() {
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

/// A reason that is itself a peer's names that peer already.
void MpiLink::keep(int from, const Notice& notice) {
    const std::string reason(notice.reason.data(), strnlen(notice.reason.data(), notice.reason.size()));
    const char* const what = notice.channel == kEverything ? "aborted" : "gave up";
    const std::string by = reason.starts_with("rank ") ? "" : "rank " + std::to_string(from) + " " + what + ": ";
    const Status why = Status::error(static_cast<onebit_status_t>(notice.status), "%s%s", by.c_str(), reason.c_str());
    if (notice.channel == kEverything) abort_switch_->hear(why);
    Heard& heard = heard_[notice.channel];
    if (heard.ranks.empty()) heard.first = why;
    heard.ranks.push_back(from);
    has_heard_.store(true, std::memory_order_release);
}

Status MpiLink::heard(int channel) const {
    if (!has_heard_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(mutex_);
    const auto found = heard_.find(channel);
    return found == heard_.end() ? Status() : found->second.first;
}

bool MpiLink::has_told(int rank, int channel) const {
    const std::lock_guard lock(mutex_);
    for (const int about : {channel, kEverything}) {
        const auto found = heard_.find(about);
        if (found == heard_.end()) continue;
        const std::vector<int>& ranks = found->second.ranks;
        if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return true;
    }
    return false;
}

} // namespace onebit
