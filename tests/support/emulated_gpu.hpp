// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Runs code for a GPU's threads on a CPU, strictly by CUDA's rules: each thread is a fiber that runs until it must wait
// for the threads beside it. Finds errors that a GPU may show only sometimes: warps whose threads don't vote together,
// thread blocks that wait for a missing thread, results that depend on the order of threads.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace onebit_test {

constexpr unsigned kEmulatedWarpSize = 32;

/// Threads that wait for each other repeatedly.
struct Rendezvous {
    unsigned members = 0; ///< how many
    unsigned arrived = 0;
    unsigned generation = 0;
    const char* purpose = nullptr;
};

struct EmulatedWarp {
    Rendezvous rendezvous;
    // Two rows: quick threads may write the next values while slow ones read the last.
    std::uint64_t slots[2][kEmulatedWarpSize] = {};
};

/// The place at which a fiber, or the scheduler, continues.
struct Place {
    void* words[5]; // as __builtin_setjmp wants it
};

struct Fiber {
    Place place = {};
    bool is_there = false;
    Rendezvous* waits_for = nullptr;
    unsigned generation = 0; // of the rendezvous, when the wait began
    unsigned exchanges = 0;
    bool done = false;
};

/// The threads of a block, one block after the other.
class EmulatedBlock {
  public:
    explicit EmulatedBlock(unsigned warps)
        : warps_(warps),
          fibers_(std::size_t{warps} * kEmulatedWarpSize),
          stacks_(new char[fibers_.size() * kStackBytes]) {}

    /// Runs body(thread) for all threads to their end, the first or the last warp first.
    void run(bool last_first, const std::function<void(unsigned thread)>& body) {
        body_ = &body;
        error_.clear();
        all_ = {static_cast<unsigned>(fibers_.size())};
        for (EmulatedWarp& warp : warps_) warp.rendezvous = {kEmulatedWarpSize};
        for (Fiber& fiber : fibers_) {
            fiber.is_there = fiber.is_there && fiber.done; // a fiber that an error interrupted starts again
            fiber.waits_for = nullptr;
            fiber.exchanges = 0;
            fiber.done = false;
        }
        // Each warp runs as far as it can alone: a warp that forgets to wait for another is ahead of it or behind.
        for (std::size_t done = 0; done < fibers_.size();) {
            bool progress = false;
            for (std::size_t w = 0; w < warps_.size(); ++w) {
                const std::size_t warp = last_first ? warps_.size() - 1 - w : w;
                for (bool going = true; going; progress |= going) going = advance(warp * kEmulatedWarpSize, &done);
            }
            if (!progress) throw std::logic_error("threads wait for each other for ever");
        }
    }

    void wait(Rendezvous& rendezvous, const char* purpose) {
        if (rendezvous.arrived == 0) rendezvous.purpose = purpose;
        if (std::strcmp(rendezvous.purpose, purpose) != 0) {
            error_ = std::string(purpose) + " meets " + rendezvous.purpose;
        }
        Fiber& fiber = fibers_[current_];
        fiber.waits_for = &rendezvous;
        fiber.generation = rendezvous.generation;
        if (++rendezvous.arrived == rendezvous.members) {
            rendezvous.arrived = 0;
            ++rendezvous.generation;
        }
        pause(fiber);
    }

    void wait_for_all() { wait(all_, "sync"); }

    /// Gives a value to the other threads of the warp; returns the values of all threads, once all are there.
    const std::uint64_t* exchange(unsigned thread, const char* purpose, std::uint64_t value) {
        EmulatedWarp& warp = warps_[thread / kEmulatedWarpSize];
        std::uint64_t* const slots = warp.slots[fibers_[thread].exchanges++ % 2];
        slots[thread % kEmulatedWarpSize] = value;
        wait(warp.rendezvous, purpose);
        return slots;
    }

  private:
    static constexpr std::size_t kStackBytes = std::size_t{128} << 10;

    // Switches between fibers use the compiler's jumps: swapcontext would call the kernel, because of signals,
    // thousands of times a block. The address sanitizer must not see them: it takes a jump for the end of a stack's
    // frames.

    /// From the scheduler to a fiber, until the fiber pauses.
    [[gnu::noinline, gnu::no_sanitize_address]] void resume(Fiber& fiber, char* stack) {
        if (__builtin_setjmp(scheduler_.words) != 0) return;
        if (fiber.is_there) __builtin_longjmp(fiber.place.words, 1);
        fiber.is_there = true;
        begin(stack);
    }
    [[gnu::noinline, gnu::no_sanitize_address]] void pause(Fiber& fiber) {
        if (__builtin_setjmp(fiber.place.words) == 0) return_to_scheduler();
    }
    [[gnu::noinline, gnu::no_sanitize_address]] void return_to_scheduler() { __builtin_longjmp(scheduler_.words, 1); }
    /// Starts a fiber on its own stack.
    [[gnu::noinline, gnu::no_sanitize_address]] void begin(char* stack) {
        ucontext_t context;
        getcontext(&context);
        context.uc_stack.ss_sp = stack;
        context.uc_stack.ss_size = kStackBytes;
        const auto self = reinterpret_cast<std::uintptr_t>(this); // makecontext passes ints alone
        makecontext(&context, reinterpret_cast<void (*)()>(&EmulatedBlock::enter), 2, static_cast<unsigned>(self >> 32),
                    static_cast<unsigned>(self));
        setcontext(&context);
    }

    /// Lets each thread of a warp run until it waits; false if all were waiting. Counts the threads that finish.
    bool advance(std::size_t first, std::size_t* done) {
        bool progress = false;
        for (current_ = first; current_ < first + kEmulatedWarpSize; ++current_) {
            Fiber& fiber = fibers_[current_];
            if (fiber.done || (fiber.waits_for != nullptr && fiber.waits_for->generation == fiber.generation)) continue;
            progress = true;
            resume(fiber, stacks_.get() + current_ * kStackBytes);
            if (!error_.empty()) throw std::logic_error(error_);
            if (fiber.done) ++*done;
        }
        return progress;
    }

    /// A fiber's loop: a thread of one block after another.
    static void enter(unsigned high, unsigned low) {
        auto* const self = reinterpret_cast<EmulatedBlock*>(std::uintptr_t{high} << 32 | low);
        const std::size_t thread = self->current_;
        for (;;) {
            (*self->body_)(static_cast<unsigned>(thread));
            self->fibers_[thread].done = true;
            self->pause(self->fibers_[thread]);
        }
    }

    const std::function<void(unsigned)>* body_ = nullptr;
    std::vector<EmulatedWarp> warps_;
    std::vector<Fiber> fibers_;
    std::unique_ptr<char[]> stacks_;
    Rendezvous all_;
    Place scheduler_ = {};
    std::size_t current_ = 0;
    std::string error_;
};

/// The kernels' interface to a thread.
class EmulatedThread {
  public:
    EmulatedThread(EmulatedBlock& owner, unsigned row, unsigned block, unsigned thread)
        : owner_(owner), row_(row), block_(block), thread_(thread) {}

    unsigned row() const { return row_; }
    unsigned block() const { return block_; }
    unsigned warp() const { return thread_ / kEmulatedWarpSize; }
    unsigned lane() const { return thread_ % kEmulatedWarpSize; }

    std::uint32_t ballot(bool vote) const {
        const std::uint64_t* const votes = owner_.exchange(thread_, "ballot", vote ? 1 : 0);
        std::uint32_t word = 0;
        for (unsigned i = 0; i < kEmulatedWarpSize; ++i) word |= static_cast<std::uint32_t>(votes[i]) << i;
        return word;
    }

    template <typename T>
    T shuffle(T value, unsigned from) const {
        static_assert(sizeof(T) <= sizeof(std::uint64_t));
        std::uint64_t slot = 0;
        std::memcpy(&slot, &value, sizeof(T));
        const std::uint64_t* const slots = owner_.exchange(thread_, "shuffle", slot);
        std::memcpy(&value, &slots[from], sizeof(T));
        return value;
    }

    /// Past the last lane: the lane's own value, as on a GPU.
    template <typename T>
    T shuffle_down(T value, unsigned distance) const {
        return shuffle(value, lane() + distance < kEmulatedWarpSize ? lane() + distance : lane());
    }

    void sync() const { owner_.wait_for_all(); }
    void lower(unsigned long long* place, unsigned long long value) const {
        if (value < *place) *place = value;
    }

  private:
    EmulatedBlock& owner_;
    unsigned row_;
    unsigned block_;
    unsigned thread_;
};

/// Runs body(thread, shared) for each thread of `rows` rows of `blocks` thread blocks, one block after another. Every
/// second call begins with the last block.
template <unsigned kWarps, typename Shared, typename Body>
void run_on_emulated_gpu(std::size_t rows, std::size_t blocks, const Body& body) {
    static thread_local EmulatedBlock block(kWarps); // kept: its stacks take longer to make than to use
    static thread_local bool last_first = false;
    last_first = !last_first;
    alignas(Shared) unsigned char shared[sizeof(Shared)];
    for (std::size_t turn = 0; turn < rows * blocks; ++turn) {
        const std::size_t i = last_first ? rows * blocks - 1 - turn : turn;
        const auto in_row = static_cast<unsigned>(i % blocks);
        std::memset(shared, 0xff, sizeof(shared)); // NaNs: values that nobody wrote must not be used
        block.run(i % 2 == 1, [&](unsigned thread) {
            const EmulatedThread self(block, static_cast<unsigned>(i / blocks), in_row, thread);
            body(self, *reinterpret_cast<Shared*>(shared));
        });
    }
}

} // namespace onebit_test
