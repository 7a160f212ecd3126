// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "faults/allocation_sweep.hpp"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include "support/failing_allocations.hpp"
#include "support/fresh_communicator.hpp"

namespace onebit_test {
namespace {

// The fault of one pass through all allocations.
struct Fault {
    int rank;
    bool all_behind;
};

class Pass {
  public:
    Pass(const Sweep& sweep, const Fault& fault, onebit_comm_t comm, RankLog& log)
        : sweep_(sweep), fault_(fault), comm_(comm), log_(log) {}

    void run() {
        for (int round = 0; round < sweep_.rounds; ++round) {
            for (long n = 1; attempt(round, n); ++n) ONEBIT_EXPECT(log_, n < 20000);
        }
        tear_down();
    }

  private:
    // False once the call has been made without meeting the n-th allocation.
    bool attempt(int round, long n) {
        if (subject_ == nullptr) set_up(round);
        subject_->prepare();
        const Bytes before = subject_->state();
        log_.barrier();
        onebit_status_t status = ONEBIT_SUCCESS;
        bool happened = false;
        {
            std::optional<FailingAllocation> failing;
            if (log_.rank() == fault_.rank) failing.emplace(n, fault_.all_behind);
            status = subject_->call();
            happened = failing && FailingAllocation::happened();
        }
        const std::string message = status == ONEBIT_SUCCESS ? "" : onebit_last_error();
        const unsigned char flag = happened ? 1 : 0;
        happened = log_.gather_bytes(&flag, 1)[static_cast<std::size_t>(fault_.rank)][0] != 0;
        const bool refused = happened && status == ONEBIT_ERROR_OUT_OF_MEMORY;
        const bool good = refused || status == sweep_.expected;
        const bool same = log_.same_on_all(&status, sizeof status);
        const bool unchanged = !refused || subject_->state() == before;
        if (!good || !same || !unchanged) describe(round, n, status, message);
        ONEBIT_EXPECT(log_, unchanged);
        const unsigned char fine = good && same && unchanged ? 1 : 0;
        bool all_fine = true;
        for (const Bytes& other : log_.gather_bytes(&fine, 1)) all_fine = all_fine && other[0] != 0;
        if (!all_fine) {
            tear_down();
        } else if (!refused) {
            subject_->succeeded();
        }
        return happened;
    }

    void describe(int round, long n, onebit_status_t status, const std::string& message) {
        std::string text = "call " + std::to_string(round) + ", allocation " + std::to_string(n) +
                           (fault_.all_behind ? " and all behind it" : "") + " on rank " + std::to_string(fault_.rank) +
                           ": " + onebit_status_string(status) + " \"" + message + "\"";
        if (log_.rank() == fault_.rank) text += ", asked for at" + FailingAllocation::place();
        if (std::getenv("ONEBIT_TEST_PLACES") != nullptr) {
            std::fprintf(stderr, "%s: rank %d: %s\n", sweep_.name.c_str(), log_.rank(), text.c_str());
        }
        log_.expect(false, text, __FILE__, __LINE__);
    }

    // Sets up the state after `rounds` calls.
    void set_up(int rounds) {
        if (sweep_.on_communicator) communicator_.emplace(comm_, log_);
        subject_ = sweep_.make(communicator_ ? communicator_->get() : nullptr, log_);
        for (int round = 0; round < rounds; ++round) {
            subject_->prepare();
            ONEBIT_EXPECT_STATUS(log_, sweep_.expected, subject_->call());
            subject_->succeeded();
        }
    }
    void tear_down() {
        log_.barrier();
        subject_.reset();
        communicator_.reset();
    }

    const Sweep& sweep_;
    Fault fault_;
    onebit_comm_t comm_;
    RankLog& log_;
    std::optional<FreshCommunicator> communicator_;
    std::unique_ptr<Subject> subject_;
};

// An allocation fails alone on the last rank, and with all later ones on the first; if wanted, each way on both.
std::vector<Fault> faults_of(int ranks) {
    std::vector<Fault> faults = {{0, true}, {ranks - 1, false}};
    if (std::getenv("ONEBIT_TEST_EVERY_FAULT") != nullptr && ranks > 1) {
        faults.insert(faults.end(), {{0, false}, {ranks - 1, true}});
    }
    return faults;
}

} // namespace

void run_sweep(const Sweep& sweep) {
    setenv("ONEBIT_TIMEOUT", "3", 0); // of a rank that waits for a rank that has given up
    setenv("ONEBIT_MEASURE", "0", 0);
    for (const int ranks : sweep.ranks) {
        if (!can_have_ranks(ranks)) continue;
        run_ranks(ranks, [&](onebit_comm_t comm, RankLog& log) {
            for (const Fault& fault : faults_of(ranks)) {
                log.context(sweep.name);
                Pass(sweep, fault, comm, log).run();
            }
        });
    }
}

} // namespace onebit_test
