// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// For tests whose ranks are MPI processes. Every rank runs the same tests in the same order. Rank 0 prints; another
// rank's report is held back and shown only if that rank failed. All ranks leave with one exit code.
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "support/catch.hpp"

namespace {

// Sends this process's standard output to a temporary file until finish().
class HeldOutput {
  public:
    explicit HeldOutput(bool hold) {
        if (!hold) return;
        file_ = std::tmpfile();
        if (file_ == nullptr) return;
        saved_ = dup(STDOUT_FILENO);
        dup2(fileno(file_), STDOUT_FILENO);
    }
    ~HeldOutput() {
        if (file_ != nullptr) std::fclose(file_);
    }
    HeldOutput(const HeldOutput&) = delete;
    HeldOutput& operator=(const HeldOutput&) = delete;

    void finish(bool show, int rank) {
        if (file_ == nullptr) return;
        std::cout.flush();
        std::fflush(stdout);
        dup2(saved_, STDOUT_FILENO);
        close(saved_);
        if (!show) return;
        std::printf("---- rank %d ----\n", rank);
        std::rewind(file_);
        for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) std::putchar(c);
        std::fflush(stdout);
    }

  private:
    std::FILE* file_ = nullptr;
    int saved_ = -1;
};

} // namespace

int main(int argc, char** argv) {
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);

    HeldOutput output(rank != 0);
    const int failed = onebit::test::run_tests(argc, argv);
    output.finish(failed != 0, rank);

    int failed_anywhere = 0;
    const int mine = failed != 0 ? 1 : 0;
    MPI_Allreduce(&mine, &failed_anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return failed_anywhere;
}
