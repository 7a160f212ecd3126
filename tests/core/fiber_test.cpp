// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Functions that pause before their end.
#include "core/fiber.hpp"

#include <cfenv>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/catch2.hpp"

using onebit::Fiber;

namespace {

// A fiber's actions, step by step.
struct Script {
    std::vector<int> done;
    int pauses = 3;
    bool paused = true;

    static void run(void* self) {
        auto& script = *static_cast<Script*>(self);
        for (int i = 0; i < script.pauses; ++i) {
            script.done.push_back(i);
            script.paused = Fiber::pause() && script.paused;
        }
        script.done.push_back(-1);
    }
};

// Uses `bytes` of stack, in a way that the compiler can't remove.
std::size_t use_stack(std::size_t bytes) {
    volatile unsigned char piece[4096] = {};
    piece[bytes % sizeof piece] = 1;
    return bytes < sizeof piece ? piece[bytes] : use_stack(bytes - sizeof piece) + piece[0];
}

} // namespace

TEST_CASE("a fiber stops at each pause and goes on where it was", "[fiber]") {
    Fiber fiber;
    for (int round = 0; round < 3; ++round) { // used again
        Script script;
        fiber.begin(&Script::run, &script);
        CHECK(script.done.empty());
        for (int i = 0; i < 3; ++i) {
            REQUIRE(fiber.running());
            fiber.resume();
            CHECK(script.done.size() == static_cast<std::size_t>(i) + 1);
        }
        fiber.resume();
        CHECK(!fiber.running());
        CHECK(script.done == std::vector<int>{0, 1, 2, -1});
        CHECK(script.paused);
    }
}

TEST_CASE("a fiber that is finished pauses no more", "[fiber]") {
    Fiber fiber;
    Script script;
    fiber.finish(); // nothing has begun
    fiber.begin(&Script::run, &script);
    fiber.resume();
    fiber.finish();
    CHECK(!fiber.running());
    CHECK(script.done == std::vector<int>{0, 1, 2, -1});
    CHECK(!script.paused);
    CHECK(!Fiber::pause()); // no fiber at all
}

TEST_CASE("a fiber goes on in any thread", "[fiber]") {
    Fiber fiber;
    Script script;
    script.pauses = 9;
    fiber.begin(&Script::run, &script);
    for (int i = 0; i < 5; ++i) {
        fiber.resume();
        std::thread([&] { fiber.resume(); }).join();
    }
    CHECK(!fiber.running());
    CHECK(script.done.size() == 10);
    CHECK(script.paused);
}

TEST_CASE("a fiber and its callers have floating-point environments of their own", "[fiber]") {
    struct Roundings {
        int before = -1, after = -1;
        static void run(void* self) {
            auto& roundings = *static_cast<Roundings*>(self);
            std::fesetround(FE_DOWNWARD);
            roundings.before = std::fegetround();
            (void)Fiber::pause();
            roundings.after = std::fegetround();
        }
    } roundings;
    Fiber fiber;
    fiber.begin(&Roundings::run, &roundings);
    fiber.resume();
    CHECK(std::fegetround() == FE_TONEAREST);
    std::fesetround(FE_UPWARD);
    fiber.resume();
    CHECK(std::fegetround() == FE_UPWARD);
    std::fesetround(FE_TONEAREST);
    CHECK(roundings.before == FE_DOWNWARD);
    CHECK(roundings.after == FE_DOWNWARD);
}

TEST_CASE("exceptions are thrown and caught on a fiber, and it has much stack", "[fiber]") {
    struct Throws {
        std::string caught;
        std::size_t used = 0;
        static void run(void* self) {
            auto& throws = *static_cast<Throws*>(self);
            for (int i = 0; i < 2; ++i) {
                try {
                    throw std::runtime_error("no. " + std::to_string(i));
                } catch (const std::exception& exception) {
                    throws.caught += exception.what();
                }
                throws.used += use_stack(std::size_t{300} << 10);
                (void)Fiber::pause();
            }
        }
    } throws;
    Fiber fiber;
    fiber.begin(&Throws::run, &throws);
    try {
        throw std::logic_error("the caller's");
    } catch (const std::logic_error& exception) { // handled while the fiber runs
        fiber.resume();
        CHECK(std::string(exception.what()) == "the caller's");
    }
    fiber.finish();
    CHECK(throws.caught == "no. 0no. 1");
    CHECK(throws.used < 1000);
}
