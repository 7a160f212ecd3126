// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Actions that only ranks in MPI processes do, with onebit's own memory running out at every place. MPI's own memory
// doesn't run out.
#include <mpi.h>
#include <onebit/onebit_mpi.h>

#include <deque>

#include "faults/allocation_sweep.hpp"
#include "support/handles.hpp"
#include "support/small_part.hpp"

namespace onebit_test {
namespace {

// A handle on a communicator that has so many handles already that ranks ask each other for tags.
class LateHandle final : public Subject {
  public:
    LateHandle(onebit_comm_t fresh, RankLog& log)
        : part_(fresh, log, 2), created_(log, create(), onebit_allreduce_destroy) {
        for (int handle = 0; handle < 6; ++handle) {
            before_.emplace_back(part_.get(), form_config(ONEBIT_ALGORITHM_DENSE, 100), log);
        }
    }

    onebit_status_t call() override { return created_.call(); }
    Bytes state() override { return created_.state(); }
    void succeeded() override { created_.succeeded(); }

  private:
    std::function<onebit_status_t(onebit_allreduce_t*)> create() const {
        return [this](onebit_allreduce_t* handle) {
            const onebit_allreduce_config_t config = form_config(ONEBIT_ALGORITHM_DENSE, 100);
            return onebit_allreduce_create(part_.get(), &config, handle);
        };
    }

    SmallPart part_;
    std::deque<Allreduce> before_;
    Creation<onebit_allreduce_t> created_;
};

} // namespace

TEST_CASE("communicators over MPI are made with memory, or on no rank", "[memory][mpi]") {
    run_sweep({.name = "create over MPI",
               .make =
                   [](onebit_comm_t, RankLog& log) {
                       return std::make_unique<Creation<onebit_comm_t>>(
                           log, [](onebit_comm_t* comm) { return onebit_comm_create_mpi(MPI_COMM_WORLD, comm); },
                           onebit_comm_destroy);
                   },
               .on_communicator = false});
}

TEST_CASE("tags are asked for with memory, or on no rank", "[memory][mpi]") {
    run_sweep(
        {"a late handle", [](onebit_comm_t comm, RankLog& log) { return std::make_unique<LateHandle>(comm, log); }});
}

} // namespace onebit_test
