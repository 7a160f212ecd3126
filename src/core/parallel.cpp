// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Helpers of a thread: threads that take parts of its work. They are made when a handle is created, where a missing one
// is an error that all ranks hear of. Nobody waits for a helper that has not woken up yet: others take its parts. Each
// calling thread has its own helpers, which end with it, so no two threads compete for one.

#include "core/parallel.hpp"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "core/float_environment.hpp"

namespace onebit {
namespace {

/// The number of forks between the process that loaded this library and this one. Helpers that were made before a fork
/// have no threads in the child.
std::atomic<unsigned> forks{0};
thread_local bool is_helper = false; ///< has no helpers itself

constexpr std::size_t kHelperStackBytes = std::size_t{256} << 10; // a part takes less than 64 KiB

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// Waits until the value is no longer `old`: first spinning, because the next part mostly comes soon; then asleep.
template <typename T>
T wait_for_change(const std::atomic<T>& value, T old) {
    constexpr int kSpins = 1000; // 20 to 50 microseconds, about what waking up takes
    for (int i = 0; i < kSpins; ++i) {
        if (const T now = value.load(std::memory_order_acquire); now != old) return now;
        relax();
    }
    value.wait(old, std::memory_order_acquire);
    return value.load(std::memory_order_acquire);
}

class Helpers {
  public:
    ~Helpers() {
        stop_ = true;
        open_round(0);
        for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
    }
    Helpers() = default;
    Helpers(const Helpers&) = delete;
    Helpers& operator=(const Helpers&) = delete;

    unsigned count() const { return static_cast<unsigned>(threads_.size()); }

    /// 0, or an errno; then there are as many as could be made.
    int grow(unsigned helpers) {
        threads_.reserve(helpers); // nothing else may throw
        pthread_attr_t small;
        if (const int error = pthread_attr_init(&small); error != 0) return error;
        pthread_attr_setstacksize(&small, kHelperStackBytes);
        sigset_t all;
        sigset_t own;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &own); // signals are for the program's own threads
        int error = 0;
        while (error == 0 && count() < helpers) {
            pthread_t thread;
            error = pthread_create(&thread, &small, &Helpers::live, this);
            // A program's thread-local variables take a part of the stack, and may not leave enough of a small one.
            if (error == EINVAL) error = pthread_create(&thread, nullptr, &Helpers::live, this);
            if (error == 0) threads_.push_back(thread);
        }
        pthread_sigmask(SIG_SETMASK, &own, nullptr);
        pthread_attr_destroy(&small);
        return error;
    }

    void run(unsigned parts, void (*part)(const void*, unsigned), const void* context) {
        part_ = part;
        context_ = context;
        finished_.store(0, std::memory_order_relaxed);
        const std::uint32_t own = take_parts(open_round(parts));
        for (std::uint32_t done = finished_.load(std::memory_order_acquire); done != parts - own;) {
            done = wait_for_change(finished_, done);
        }
    }

  private:
    /// A thread that takes a part sees all writes until now. Gives the round's number.
    std::uint32_t open_round(unsigned parts) {
        const std::uint32_t round = round_.load(std::memory_order_relaxed) + 1;
        left_.store(std::uint64_t{round} << 32 | parts, std::memory_order_release);
        round_.store(round); // in one order with the look for sleepers, or one that falls asleep now is never woken
        round_.notify_all();
        return round;
    }

    /// Does parts of a round while there are any; gives how many. A late helper finds none left, or another round's
    /// number, and touches nothing: the thread that opened the round may be gone.
    std::uint32_t take_parts(std::uint32_t round) {
        std::uint32_t taken = 0;
        std::uint64_t left = left_.load(std::memory_order_acquire);
        while (left >> 32 == round && static_cast<std::uint32_t>(left) > 0) {
            if (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel)) continue;
            part_(context_, static_cast<std::uint32_t>(left) - 1);
            ++taken;
            left = left_.load(std::memory_order_acquire);
        }
        return taken;
    }

    static void* live(void* self) {
        static_cast<Helpers*>(self)->live();
        return nullptr;
    }
    void live() {
        const FloatEnvironment environment;
        is_helper = true;
        for (std::uint32_t round = 0;;) {
            round = wait_for_change(round_, round);
            if (stop_) return;
            if (const std::uint32_t taken = take_parts(round); taken > 0) {
                finished_.fetch_add(taken); // likewise
                finished_.notify_one();
            }
        }
    }

    std::vector<pthread_t> threads_;
    std::atomic<bool> stop_{false};
    std::atomic<std::uint32_t> round_{0};
    std::atomic<std::uint64_t> left_{0};     ///< the round's number, and its parts that nobody has taken
    std::atomic<std::uint32_t> finished_{0}; ///< parts that helpers have done
    void (*part_)(const void*, unsigned) = nullptr;
    const void* context_ = nullptr;
};

/// The calling thread's helpers. In a forked child the parent's are left alone: they are no threads there.
class OwnHelpers {
  public:
    OwnHelpers() {
        static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
        (void)registered;
    }
    ~OwnHelpers() { leave_those_of_parent(); }
    OwnHelpers(const OwnHelpers&) = delete;
    OwnHelpers& operator=(const OwnHelpers&) = delete;

    /// 0, or an errno; then there are as many as could be made. After a refusal, a thread doesn't ask again in each
    /// call.
    int grow(unsigned helpers, bool again) {
        leave_those_of_parent();
        if (helpers <= count() || (helpers >= refused_ && !again)) return 0;
        try {
            if (helpers_ == nullptr) helpers_ = std::make_unique<Helpers>();
            const int error = helpers_->grow(helpers);
            refused_ = error == 0 ? kNone : helpers;
            return error;
        } catch (const std::bad_alloc&) {
            return ENOMEM;
        }
    }
    unsigned count() const { return helpers_ == nullptr ? 0 : helpers_->count(); }
    Helpers& helpers() { return *helpers_; }

  private:
    void leave_those_of_parent() noexcept {
        if (forks_ == forks.load()) return;
        forks_ = forks.load();
        refused_ = kNone;
        (void)helpers_.release();
    }

    static constexpr unsigned kNone = ~0U;
    unsigned forks_ = forks.load();
    unsigned refused_ = kNone;
    std::unique_ptr<Helpers> helpers_;
};

OwnHelpers& own_helpers() {
    static thread_local OwnHelpers helpers;
    return helpers;
}

} // namespace

Status reserve_threads(unsigned threads) {
    if (threads <= 1) return {};
    const int error = own_helpers().grow(threads - 1, true);
    if (error == 0) return {};
    return Status::error(ONEBIT_ERROR_OUT_OF_MEMORY,
                         "threads: %u are asked for, and the system gives this thread no more than %u (%s)", threads,
                         own_helpers().count() + 1, std::strerror(error));
}

void run_parts(unsigned parts, void (*part)(const void* context, unsigned k), const void* context) noexcept {
    const auto have_helpers = [&] {
        own_helpers().grow(parts - 1, false);
        return own_helpers().count() > 0;
    };
    if (is_helper || !have_helpers()) {
        for (unsigned k = 0; k < parts; ++k) part(context, k);
    } else {
        own_helpers().helpers().run(parts, part, context);
    }
}

} // namespace onebit
