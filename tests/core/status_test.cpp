// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/status.hpp"

#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch2.hpp"

namespace onebit {
namespace {

TEST_CASE("a success is one word, and says nothing", "[status]") {
    STATIC_REQUIRE(sizeof(Status) == sizeof(void*));
    const Status success;
    CHECK(success.ok());
    CHECK(success.code() == ONEBIT_SUCCESS);
    CHECK_FALSE(success.has_message());
    CHECK(success.message().empty());
}

TEST_CASE("an error has its code and message, as do its copies once it is gone", "[status]") {
    auto error = Status::error(ONEBIT_ERROR_IO, "%s: %d", "a name too long to lie within a string", 7);
    const Status copy = error;
    Status assigned;
    assigned = copy;
    const Status moved = std::move(error);
    error = Status(); // NOLINT(bugprone-use-after-move): it is a success by then
    CHECK(error.ok());
    for (const Status* const status : {&copy, &moved, &std::as_const(assigned)}) {
        CHECK_FALSE(status->ok());
        CHECK(status->code() == ONEBIT_ERROR_IO);
        CHECK(status->has_message());
        CHECK(status->message() == "a name too long to lie within a string: 7");
    }
    assigned = std::as_const(assigned);
    CHECK(assigned.message() == copy.message());
}

TEST_CASE("a note is a success with a message", "[status]") {
    const auto note = Status::note("the newest save is of step %d", 3);
    CHECK(note.ok());
    CHECK(note.code() == ONEBIT_SUCCESS);
    CHECK(note.message() == "the newest save is of step 3");
}

TEST_CASE("threads may copy one status and drop their copies at once", "[status]") {
    const auto shared = Status::error(ONEBIT_ERROR_BUSY, "shared");
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([copy = shared] {
            for (int i = 0; i < 10000; ++i) {
                const Status again = copy; // NOLINT(performance-unnecessary-copy-initialization): that is the test
                if (again.code() != ONEBIT_ERROR_BUSY) std::abort();
            }
        });
    }
    threads.clear();
    CHECK(shared.message() == "shared");
}

} // namespace
} // namespace onebit
