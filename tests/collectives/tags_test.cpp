// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A communicator's tags come back when handles and parts are destroyed, and no earlier.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <memory>
#include <string>

#include "support/handles.hpp"
#include "support/small_part.hpp"

using namespace onebit_test;

namespace {

constexpr std::uint64_t kCount = 77;
constexpr int kMore = 60; // more handles than there are tags for

/// Threads have no tags.
bool has_tags() {
    return std::string(transport_name()) != "loopback";
}

std::vector<float> ones_times(int factor) {
    return std::vector<float>(kCount, static_cast<float>(factor));
}

/// A message of another handle would be another number.
void expect_average(RankLog& log, Allreduce& reduce, int factor) {
    const std::vector<float> average = reduce.run(ones_times(factor));
    const auto is_near = [&](float value) { return std::abs(value - static_cast<float>(factor)) < 1e-3F; };
    ONEBIT_EXPECT(log, std::ranges::all_of(average, is_near));
    ONEBIT_EXPECT(log, log.same_on_all(average.data(), average.size() * sizeof(float)));
}

/// Dense and compressed in turn, of one form and of several channels.
onebit_allreduce_config_t config_of(int handle) {
    constexpr std::array<onebit_algorithm_t, 4> kAlgorithms = {ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_FLAT,
                                                               ONEBIT_ALGORITHM_TWO_LEVEL, ONEBIT_ALGORITHM_BRUCK};
    return form_config(kAlgorithms[static_cast<std::size_t>(handle) % kAlgorithms.size()], kCount);
}

} // namespace

TEST_CASE("handles are made and destroyed without end, on each rank in its own time", "[comm][tags]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        const SmallPart part(comm, log);
        std::deque<std::unique_ptr<Allreduce>> alive;
        const auto kept = static_cast<std::size_t>(log.rank() % 3);
        for (int handle = 1; handle <= kMore; ++handle) {
            alive.push_back(std::make_unique<Allreduce>(part.get(), config_of(handle), log));
            expect_average(log, *alive.back(), handle);
            while (alive.size() > kept) alive.pop_front();
        }
    });
}

TEST_CASE("handles that exist keep their tags from new ones", "[comm][tags]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        const SmallPart part(comm, log);
        std::vector<onebit_allreduce_t> made;
        const onebit_allreduce_config_t config = form_config(ONEBIT_ALGORITHM_DENSE, kCount);
        onebit_status_t status = ONEBIT_SUCCESS;
        const auto make = [&] {
            onebit_allreduce_t handle = nullptr;
            status = onebit_allreduce_create(part.get(), &config, &handle);
            if (status == ONEBIT_SUCCESS) made.push_back(handle);
        };
        while (status == ONEBIT_SUCCESS && made.size() < kMore) make();
        ONEBIT_EXPECT(log, status == (has_tags() ? ONEBIT_ERROR_UNSUPPORTED : ONEBIT_SUCCESS));
        if (has_tags()) ONEBIT_EXPECT(log, holds(onebit_last_error(), "of the communicator's 4096 tags;destroy"));
        const std::size_t most = made.size();
        const auto run_all = [&] {
            std::vector<float> values = ones_times(1);
            for (const onebit_allreduce_t handle : made) {
                ONEBIT_EXPECT_OK(log, onebit_allreduce_run(handle, values.data(), values.data()));
            }
            ONEBIT_EXPECT(log, values == ones_times(1));
        };
        const auto destroy_some = [&](std::size_t which) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_destroy(made[which]));
            made.erase(made.begin() + static_cast<std::ptrdiff_t>(which));
        };
        run_all();
        destroy_some(log.last_rank() ? 2 : 1); // not the same one: neither is free
        make();
        ONEBIT_EXPECT(log, status == (has_tags() ? ONEBIT_ERROR_UNSUPPORTED : ONEBIT_SUCCESS) || log.size() == 1);
        if (has_tags() && log.size() > 1) {
            destroy_some(1); // now they have both
            for (int again = 0; again < 2; ++again) {
                make();
                ONEBIT_EXPECT(log, status == ONEBIT_SUCCESS);
            }
            ONEBIT_EXPECT(log, made.size() == most);
            run_all();
        }
        while (!made.empty()) destroy_some(made.size() - 1);
    });
}

TEST_CASE("parts are made and destroyed without end, beside others of which some ranks are none", "[comm][tags]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        const SmallPart whole(comm, log);
        for (int round = 1; round <= kMore; ++round) {
            onebit_comm_t part = nullptr;
            const int color = (log.rank() + round) % 3 - 1; // negative: none
            ONEBIT_EXPECT_OK(log, onebit_comm_split(whole.get(), color, 0, &part));
            if (part == nullptr) continue;
            ONEBIT_EXPECT_OK(log, onebit_comm_destroy(part));
        }
        Allreduce reduce(whole.get(), config_of(0), log);
        expect_average(log, reduce, 3);
    });
}

TEST_CASE("the tags of an aborted part are not given again", "[comm][tags][abort]") {
    for_each_size(2, [](onebit_comm_t comm, RankLog& log) {
        const SmallPart whole(comm, log);
        Allreduce before(whole.get(), config_of(0), log);
        const auto make_and_abort = [&] {
            onebit_comm_t part = nullptr;
            const onebit_status_t status = onebit_comm_split(whole.get(), 0, 0, &part);
            if (status != ONEBIT_SUCCESS) return status;
            log.barrier();
            if (log.last_rank()) ONEBIT_EXPECT_OK(log, onebit_comm_abort(part, "enough"));
            ONEBIT_EXPECT_OK(log, onebit_comm_destroy(part));
            return status;
        };
        onebit_status_t status = ONEBIT_SUCCESS;
        int parts = 0;
        for (; status == ONEBIT_SUCCESS && parts < kMore; ++parts) status = make_and_abort();
        ONEBIT_EXPECT(log, status == (has_tags() ? ONEBIT_ERROR_UNSUPPORTED : ONEBIT_SUCCESS));
        expect_average(log, before, 3);
    });
}
