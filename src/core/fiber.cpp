// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Fibers by ucontext, which keeps the floating-point environment of both sides. A switch asks the kernel for the signal
// mask, some 200 ns: it happens once for a slice of work, and never in a call that waits.

#include "core/fiber.hpp"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ONEBIT_FIBERS_UNDER_ASAN
#endif
#if __has_feature(thread_sanitizer)
#define ONEBIT_FIBERS_UNDER_TSAN
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ONEBIT_FIBERS_UNDER_ASAN
#endif
#if defined(__SANITIZE_THREAD__)
#define ONEBIT_FIBERS_UNDER_TSAN
#endif
#ifdef ONEBIT_FIBERS_UNDER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef ONEBIT_FIBERS_UNDER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace onebit {
namespace {

constexpr std::size_t kFiberBytes = std::size_t{512} << 10; // the library needs 64 KiB, MPI and a GPU's runtime more

/// One side of a switch, the fiber or its resumer, as the sanitizers must know it.
struct Side {
    const void* stack = nullptr;
    std::size_t stack_bytes = 0;
    void* fake_stack = nullptr; ///< ASan's, while the other side runs
    void* thread = nullptr;     ///< TSan's
};

/// Called before `from` is left for `to`. `for_good`: `from` never runs again.
void leave([[maybe_unused]] Side& from, [[maybe_unused]] const Side& to, [[maybe_unused]] bool for_good) {
#ifdef ONEBIT_FIBERS_UNDER_ASAN
    __sanitizer_start_switch_fiber(for_good ? nullptr : &from.fake_stack, to.stack, to.stack_bytes);
#endif
#ifdef ONEBIT_FIBERS_UNDER_TSAN
    __tsan_switch_to_fiber(to.thread, 0);
#endif
}

/// Called when `to` runs, after `from` was left.
void arrive([[maybe_unused]] const Side& to, [[maybe_unused]] Side& from) {
#ifdef ONEBIT_FIBERS_UNDER_ASAN
    __sanitizer_finish_switch_fiber(to.fake_stack, &from.stack, &from.stack_bytes);
#endif
}

} // namespace

struct Fiber::Stack {
    Stack();
    ~Stack();
    Stack(const Stack&) = delete;
    Stack& operator=(const Stack&) = delete;

    void begin(Body what, void* with);
    void resume();
    void stop();
    static void run(unsigned high, unsigned low);

    std::size_t guard_bytes = 0; ///< at the low end, where a stack overflows
    void* memory = nullptr;
    ucontext_t inside{};  ///< the fiber's, while it doesn't run
    ucontext_t outside{}; ///< the resumer's, while the fiber runs
    Side fiber;
    Side caller;
    Body body = nullptr; ///< NULL: nothing has begun, or it has ended
    void* argument = nullptr;

    static Stack* pausable_now();

    static thread_local Stack* pausable;   ///< the fiber that this thread runs now, if it may pause
    static std::atomic<bool> ever_resumed; ///< whether any thread has ever resumed one
};

// Of the default model. The initial-exec model's one load would be quicker, but programs that open the library late,
// such as Python, could not open it: the loader then has too little room for the library's thread-local data.
constinit thread_local Fiber::Stack* Fiber::Stack::pausable = nullptr;
constinit std::atomic<bool> Fiber::Stack::ever_resumed = false;

/// Each wait asks, and reading a thread-local variable is a call. Programs that never resume a fiber avoid the call.
Fiber::Stack* Fiber::Stack::pausable_now() {
    return ever_resumed.load(std::memory_order_relaxed) ? pausable : nullptr;
}

Fiber::Stack::Stack() : guard_bytes(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE;
    memory = mmap(nullptr, guard_bytes + kFiberBytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    if (mprotect(memory, guard_bytes, PROT_NONE) != 0) { // splits the mapping in two, which may be one too many
        munmap(memory, guard_bytes + kFiberBytes);
        throw std::bad_alloc();
    }
    fiber.stack = static_cast<std::byte*>(memory) + guard_bytes;
    fiber.stack_bytes = kFiberBytes;
}

Fiber::Stack::~Stack() {
    munmap(memory, guard_bytes + kFiberBytes);
}

void Fiber::Stack::begin(Body what, void* with) {
    body = what;
    argument = with;
    (void)getcontext(&inside); // can't fail
    inside.uc_stack.ss_sp = static_cast<std::byte*>(memory) + guard_bytes;
    inside.uc_stack.ss_size = kFiberBytes;
    inside.uc_link = nullptr;                                 // run() leaves by itself
    const auto self = reinterpret_cast<std::uintptr_t>(this); // makecontext passes ints alone
    makecontext(&inside, reinterpret_cast<void (*)()>(&Stack::run), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
    fiber.fake_stack = nullptr;
#ifdef ONEBIT_FIBERS_UNDER_TSAN
    fiber.thread = __tsan_create_fiber(0);
#endif
}

void Fiber::Stack::run(unsigned high, unsigned low) {
    Stack& self = *reinterpret_cast<Stack*>(std::uintptr_t{high} << 32 | low);
    arrive(self.fiber, self.caller);
    self.body(self.argument);
    self.body = nullptr;
    leave(self.fiber, self.caller, true);
    (void)setcontext(&self.outside);
}

void Fiber::Stack::resume() {
#ifdef ONEBIT_FIBERS_UNDER_TSAN
    caller.thread = __tsan_get_current_fiber();
#endif
    Side left = fiber; // its stack is known
    leave(caller, fiber, false);
    (void)swapcontext(&outside, &inside);
    arrive(caller, left);
#ifdef ONEBIT_FIBERS_UNDER_TSAN
    if (body == nullptr) __tsan_destroy_fiber(fiber.thread);
#endif
}

void Fiber::Stack::stop() {
    leave(fiber, caller, false);
    (void)swapcontext(&inside, &outside);
    arrive(fiber, caller); // another caller, maybe, and another thread
}

Fiber::Fiber() : stack_(std::make_unique<Stack>()) {}

Fiber::~Fiber() = default;

void Fiber::begin(Body body, void* argument) {
    stack_->begin(body, argument);
}

bool Fiber::running() const {
    return stack_->body != nullptr;
}

void Fiber::resume() {
    Stack::ever_resumed.store(true, std::memory_order_relaxed);
    Stack* const before = std::exchange(Stack::pausable, stack_.get());
    stack_->resume();
    Stack::pausable = before;
}

void Fiber::finish() {
    Stack* const before = std::exchange(Stack::pausable, nullptr);
    while (running()) stack_->resume();
    Stack::pausable = before;
}

bool Fiber::may_pause() {
    return Stack::pausable_now() != nullptr;
}

bool Fiber::pause() {
    Stack* const self = Stack::pausable_now();
    if (self == nullptr) return false;
    self->stop(); // use nothing of the thread after it: it may be another one
    return true;
}

} // namespace onebit
