// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// For tests whose ranks are MPI processes. Every rank runs the same tests in the same order. Rank 0 prints; another
// rank's report is held back and shown only if that rank failed. All ranks leave with one exit code.
#include <mpi.h>
#include <onebit/onebit_mpi.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "support/run_tests.hpp"

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

// A communicator and handles on it that outlive MPI: each call on them says why it fails. A single rank has no peer to
// ask, and its calls may succeed.
class Outliving {
  public:
    Outliving() : values_(4096, 1.0F), parameters_(values_) {
        MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
        onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(values_.size());
        bool made = onebit_comm_create_mpi(MPI_COMM_WORLD, &comm_) == ONEBIT_SUCCESS;
        for (const onebit_algorithm_t algorithm : {ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_FLAT}) {
            config.algorithm = algorithm;
            onebit_allreduce_t& handle = algorithm == ONEBIT_ALGORITHM_DENSE ? dense_ : flat_;
            made = made && onebit_allreduce_create(comm_, &config, &handle) == ONEBIT_SUCCESS &&
                   onebit_allreduce_run(handle, values_.data(), values_.data()) == ONEBIT_SUCCESS;
        }
        onebit_optimizer_config_t settings = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 1e-3);
        onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(parameters_.data(), values_.data(), values_.size());
        made = made && onebit_optimizer_create(comm_, &settings, &tensor, 1, &adam_) == ONEBIT_SUCCESS;
        if (!made) std::printf("before MPI_Finalize: %s\n", onebit_last_error());
    }

    // Whether all results are as expected. Prints those that are not.
    bool end() {
        float* const values = values_.data();
        bool right = refused("run, dense", onebit_allreduce_run(dense_, values, values));
        right = refused("run, flat", onebit_allreduce_run(flat_, values, values)) && right;
        onebit_comm_t part = nullptr;
        right = refused("split", onebit_comm_split(comm_, 0, 0, &part)) && right;
        const onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(values_.size());
        onebit_allreduce_t handle = nullptr;
        right = refused("create", onebit_allreduce_create(comm_, &config, &handle)) && right;
        onebit_status_t finished = onebit_allreduce_start(flat_, values, values);
        if (finished == ONEBIT_SUCCESS) finished = onebit_allreduce_wait(flat_);
        right = refused("start and wait", finished) && right;
        right = refused("step", onebit_optimizer_step(adam_)) && right;
        onebit_comm_abort(comm_, "MPI is gone"); // no other rank is told
        onebit_optimizer_destroy(adam_);
        for (onebit_allreduce_t each : {dense_, flat_, handle}) onebit_allreduce_destroy(each);
        for (onebit_comm_t each : {part, comm_}) onebit_comm_destroy(each);
        return right;
    }

  private:
    bool refused(const char* call, onebit_status_t status) const {
        const std::string said = onebit_last_error();
        if (status == ONEBIT_SUCCESS && ranks_ == 1) return true;
        if (status == ONEBIT_ERROR_TRANSPORT && said.find("MPI_Finalize has been called") != std::string::npos)
            return true;
        std::printf("%s after MPI_Finalize: status %d, %s\n", call, static_cast<int>(status), said.c_str());
        return false;
    }

    int ranks_ = 0;
    std::vector<float> values_, parameters_;
    onebit_comm_t comm_ = nullptr;
    onebit_allreduce_t dense_ = nullptr;
    onebit_allreduce_t flat_ = nullptr;
    onebit_optimizer_t adam_ = nullptr;
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
    Outliving outliving;
    MPI_Finalize();
    return outliving.end() ? failed_anywhere : 1;
}
