// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// States of GPUs and streams in which a program may call: another GPU is current than the stream's, the stream is being
// captured, the kernels aren't compiled for the GPU. Also the work that is still in the stream when a call without
// checks returns, and the amount of work that the stream gets. On emulated GPUs.

#include <string>
#include <vector>

#include "collectives/allreduce.hpp"
#include "compress/device_memory.hpp"
#include "optim/training_on.hpp"
#include "support/catch2.hpp"
#include "support/emulated_device.hpp"
#include "support/handles.hpp"
#include "support/nccl_ranks.hpp"

namespace {

using namespace onebit_test;
using onebit::DeviceArray;
using Values = std::vector<float>;

constexpr std::size_t kCount = 9001;

onebit_allreduce_config_t gpu_config(onebit_algorithm_t form, onebit_check_t check = ONEBIT_CHECK_FULL) {
    onebit_allreduce_config_t config = form_config(form, kCount);
    config.memory = ONEBIT_MEMORY_CUDA;
    config.check = check;
    return config;
}

Values data_of(int rank, unsigned step) {
    return make_data(Kind::gaussian, kCount, 1, rank, step);
}

/// Makes the call, while this rank's stream is captured if `captured`; the stream must get no work.
template <typename Call>
onebit_status_t call_captured(RankLog& log, bool captured, const Call& call) {
    if (captured) begin_capture();
    const onebit_status_t status = call();
    if (captured) ONEBIT_EXPECT(log, end_capture() == 0);
    return status;
}

// --------------------------------------------------------------------------------------------------- capture ----

TEST_CASE("an allreduce whose stream is captured on a rank is refused on all, and nothing is lost", "[cuda][capture]") {
    const int n = GENERATE(1, 2, 3);
    const onebit_algorithm_t form = GENERATE(ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_PIPELINED);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Allreduce gpu(comm, gpu_config(form), log);
        Allreduce undisturbed(comm, gpu_config(form), log);
        const auto run = [&](Allreduce& handle, unsigned step) {
            DeviceArray<float> buffer(data_of(log.rank(), step));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(handle.get(), buffer.data(), buffer.data()));
            return buffer.get();
        };
        run(gpu, 0);
        run(undisturbed, 0);
        const Values values = data_of(log.rank(), 1);
        DeviceArray<float> buffer(values);
        const std::string message = "rank " + std::to_string(n - 1) + ";config.stream;captured";
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, message, call_captured(log, log.last_rank(), [&] {
                                  return onebit_allreduce_run(gpu.get(), buffer.data(), buffer.data());
                              }));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, message, call_captured(log, log.last_rank(), [&] {
                                  onebit_allreduce_start(gpu.get(), buffer.data(), buffer.data());
                                  return onebit_allreduce_wait(gpu.get());
                              }));
        ONEBIT_EXPECT(log, same_bits(buffer.get(), values));
        ONEBIT_EXPECT(log, same_bits(run(gpu, 1), run(undisturbed, 1)));
        ONEBIT_EXPECT(log, gpu.errors().same_as(undisturbed.errors()));
    });
}

TEST_CASE("without checks, and when it is created, a captured stream is refused as well", "[cuda][capture]") {
    run_ranks(2, [&](onebit_comm_t comm, RankLog& log) {
        {
            Allreduce gpu(comm, gpu_config(ONEBIT_ALGORITHM_FLAT, ONEBIT_CHECK_NONE), log);
            DeviceArray<float> buffer(data_of(log.rank(), 0));
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "config.stream;captured",
                                  call_captured(log, true, [&] {
                                      return onebit_allreduce_run(gpu.get(), buffer.data(), buffer.data());
                                  }));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(gpu.get(), buffer.data(), buffer.data()));
        }
        const onebit_allreduce_config_t config = gpu_config(ONEBIT_ALGORITHM_FLAT);
        onebit_allreduce_t handle = nullptr;
        ONEBIT_EXPECT_FAILURE(
            log, ONEBIT_ERROR_UNSUPPORTED, "rank 1;config.stream;captured",
            call_captured(log, log.last_rank(), [&] { return onebit_allreduce_create(comm, &config, &handle); }));
    });
}

TEST_CASE("over NCCL a captured stream is refused without a word to the others", "[nccl][capture]") {
    struct Outcome {
        onebit::Status status;
        onebit::Status captured;
        std::size_t touched = 0;
        Values average;
    };
    EmulatedNccl nccl;
    const auto outcomes = run_nccl_ranks<Outcome>(
        nccl, 2, [&](std::unique_ptr<onebit::Transport> transport, Outcome* outcome) -> onebit::Status {
            std::unique_ptr<onebit::Communicator> communicator;
            ONEBIT_RETURN_IF_ERROR(onebit::Communicator::create(std::move(transport), {}, &communicator));
            const onebit_allreduce_config_t config = gpu_config(ONEBIT_ALGORITHM_FLAT);
            std::unique_ptr<onebit::Allreduce> handle;
            ONEBIT_RETURN_IF_ERROR(onebit::Allreduce::create(*communicator, &config, {}, &handle));
            DeviceArray<float> buffer(data_of(communicator->rank(), 0));
            begin_capture();
            outcome->captured = handle->run(buffer.data(), buffer.data());
            outcome->touched = end_capture();
            ONEBIT_RETURN_IF_ERROR(handle->run(buffer.data(), buffer.data()));
            outcome->average = buffer.get();
            return {};
        });
    for (const Outcome& rank : outcomes) {
        CHECK(rank.captured.code() == ONEBIT_ERROR_UNSUPPORTED);
        CHECK(rank.touched == 0);
        CHECK(rank.status.message().empty());
        CHECK(rank.average == outcomes[0].average);
    }
}

/// Steps of 1-bit Adam, before and after the freeze. One of them fails because the streams of `captured(rank)` ranks
/// are captured.
template <typename Captured, typename Try>
void train_with_capture(std::uint64_t bucket_size, const Captured& captured, const Try& try_step) {
    run_ranks(2, [&](onebit_comm_t comm, RankLog& log) {
        Model model{optimizer_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM), {{300}, {5000}}};
        model.config.freeze_step = 2;
        model.config.bucket_size = bucket_size;
        TrainingOn gpu(kGpu, comm, model, log);
        TrainingOn undisturbed(kGpu, comm, model, log);
        const Gradient gradient = gaussian_gradient(model.count(), 3);
        for (std::uint64_t t = 1; t <= 5; ++t) {
            const Values values = gradient(log.rank(), t);
            gpu.set_gradients(values);
            call_captured(log, captured(log.rank()), [&] { return try_step(gpu.get(), log); });
            ONEBIT_EXPECT_OK(log, onebit_optimizer_step(gpu.get()));
            undisturbed.step(values);
            ONEBIT_EXPECT(log, same_bits(gpu.parameter_values(), undisturbed.parameter_values()));
        }
        ONEBIT_EXPECT(log, gpu.info().steps == 5 && gpu.info().frozen == 1);
    });
}

TEST_CASE("an optimizer's step whose stream is captured on a rank is refused on all", "[cuda][capture]") {
    train_with_capture(
        0, [](int rank) { return rank == 1; },
        [](onebit_optimizer_t optimizer, RankLog& log) {
            const onebit_status_t status = onebit_optimizer_step(optimizer);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "rank 1;config.stream;captured", status);
            return status;
        });
}

TEST_CASE("with buckets a rank whose stream is captured is refused alone, and the others wait for it",
          "[cuda][capture]") {
    train_with_capture(
        1000, [](int rank) { return rank == 1; },
        [](onebit_optimizer_t optimizer, RankLog& log) {
            const onebit_status_t ready = onebit_optimizer_grad_ready(optimizer, 1);
            if (!log.last_rank()) {
                ONEBIT_EXPECT_OK(log, ready);
                return ready;
            }
            ONEBIT_EXPECT(log, ready == ONEBIT_ERROR_UNSUPPORTED);
            const onebit_status_t status = onebit_optimizer_step(optimizer);
            ONEBIT_EXPECT(log, status == ONEBIT_ERROR_UNSUPPORTED);
            return status;
        });
}

TEST_CASE("a wait while the stream is captured is refused, and can be made up for", "[cuda][capture]") {
    const bool checked = GENERATE(true, false);
    run_ranks(2, [&](onebit_comm_t comm, RankLog& log) {
        Allreduce gpu(comm, gpu_config(ONEBIT_ALGORITHM_PIPELINED, checked ? ONEBIT_CHECK_FULL : ONEBIT_CHECK_NONE),
                      log);
        Allreduce undisturbed(comm, gpu_config(ONEBIT_ALGORITHM_PIPELINED), log);
        DeviceArray<float> buffer(data_of(log.rank(), 0));
        DeviceArray<float> twin(data_of(log.rank(), 0));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(gpu.get(), buffer.data(), buffer.data()));
        if (log.last_rank()) {
            const auto wait = [&] { return onebit_allreduce_wait(gpu.get()); };
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_UNSUPPORTED, call_captured(log, true, wait));
            int done = 1;
            const auto test = [&] { return onebit_allreduce_test(gpu.get(), &done); };
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_UNSUPPORTED, call_captured(log, true, test));
            ONEBIT_EXPECT(log, done == 0);
        }
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(gpu.get()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(undisturbed.get(), twin.data(), twin.data()));
        ONEBIT_EXPECT(log, same_bits(buffer.get(), twin.get()));
    });
}

// -------------------------------------------------------------------------------------------- without checks ----

/// A handle without checks on a GPU, and one on the host that makes the same calls.
struct Unchecked {
    Unchecked(onebit_comm_t comm, onebit_algorithm_t form, RankLog& rank_log)
        : log(rank_log),
          gpu(comm, gpu_config(form, ONEBIT_CHECK_NONE), log),
          host(comm, form_config(form, kCount), log) {}

    void call(unsigned step) { call(data_of(log.rank(), step)); }
    void call(const Values& values) {
        DeviceArray<float> buffer(values);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(gpu.get(), buffer.data(), buffer.data()));
        ONEBIT_EXPECT(log, quick || copies_to_come() > 0); // whether an error has overflowed isn't known yet
        ONEBIT_EXPECT(log, same_bits(buffer.get(), host.run(values)));
        ONEBIT_EXPECT(log, gpu.info().calls == host.info().calls);
    }

    RankLog& log;
    Allreduce gpu;
    Allreduce host;
    bool quick = false; ///< this rank's stream
};

TEST_CASE("without checks a call on a GPU returns when all of it is in the stream", "[cuda]") {
    const int n = GENERATE(1, 2, 3);
    const onebit_algorithm_t form = GENERATE(ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Unchecked both(comm, form, log);
        for (unsigned step = 0; step < 3; ++step) both.call(step);
        ONEBIT_EXPECT(log, both.gpu.errors().same_as(both.host.errors()));
        both.call(3);
        ONEBIT_EXPECT(log, both.gpu.packed() == both.host.packed());
        both.call(4);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(both.gpu.get()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(both.host.get()));
        both.call(5); // the handles are destroyed before the call ends
    });
}

/// Makes the handles' errors overflow; the call on the GPU returns as if nothing had happened.
void overflow(Unchecked& both) {
    Values huge(kCount, 0.0F);
    huge[5] = 3e38F;
    both.call(huge); // nearly all of it remains as error
    DeviceArray<float> buffer(huge);
    ONEBIT_EXPECT_OK(both.log, onebit_allreduce_run(both.gpu.get(), buffer.data(), buffer.data()));
    ONEBIT_EXPECT_FAILURE(both.log, ONEBIT_ERROR_NONFINITE, "overflowed",
                          onebit_allreduce_run(both.host.get(), huge.data(), huge.data()));
}

TEST_CASE("an overflow that shows after the call has returned is told by the next one, on every rank", "[cuda]") {
    enum Next { kRun, kStart, kWait };
    const Next next = GENERATE(kRun, kStart, kWait);
    const bool quick = GENERATE(false, true); // on one rank the overflow is known before its call returns
    run_ranks(2, [&](onebit_comm_t comm, RankLog& log) {
        Unchecked both(comm, ONEBIT_ALGORITHM_PIPELINED, log);
        both.quick = quick && !log.last_rank();
        make_stream_quick(both.quick);
        both.call(0);
        overflow(both);
        // A local call doesn't report the overflow.
        int done = 0;
        if (log.last_rank()) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_test(both.gpu.get(), &done));
            ONEBIT_EXPECT(log, done == 1);
            ONEBIT_EXPECT(log, both.gpu.errors().worker == Values(kCount, 0.0F));
        }
        const Values values = data_of(log.rank(), 1);
        DeviceArray<float> untouched(values);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflowed;has been reset", [&] {
            switch (next) {
                case kRun:
                    return onebit_allreduce_run(both.gpu.get(), untouched.data(), untouched.data());
                case kStart:
                    return onebit_allreduce_start(both.gpu.get(), untouched.data(), untouched.data());
                default:
                    return onebit_allreduce_wait(both.gpu.get());
            }
        }());
        ONEBIT_EXPECT(log, same_bits(untouched.get(), values));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(both.gpu.get())); // told once
        for (unsigned step = 1; step < 3; ++step) both.call(step);
        ONEBIT_EXPECT(log, both.gpu.errors().same_as(both.host.errors()));
        make_stream_quick(false);
    });
}

TEST_CASE("a state that is loaded after an overflow is what the next call goes by", "[cuda]") {
    run_ranks(2, [&](onebit_comm_t comm, RankLog& log) {
        Unchecked both(comm, ONEBIT_ALGORITHM_PIPELINED, log);
        both.call(0);
        const Bytes saved = both.gpu.packed();
        overflow(both);
        for (Allreduce* handle : {&both.gpu, &both.host}) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(handle->get(), saved.data(), saved.size()));
        }
        both.call(1);
        ONEBIT_EXPECT(log, both.gpu.errors().same_as(both.host.errors()));
    });
}

TEST_CASE("while the stream is captured the error state is out of reach, and so is the end of a call",
          "[cuda][capture]") {
    const bool to_be_finished = GENERATE(true, false);
    run_ranks(1, [&](onebit_comm_t comm, RankLog& log) {
        Unchecked both(comm, ONEBIT_ALGORITHM_PIPELINED, log);
        both.call(0);
        if (!to_be_finished) ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(both.gpu.get()));
        const auto expect_refused = [&](const auto& call) {
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_UNSUPPORTED, call_captured(log, true, call));
        };
        const onebit_allreduce_t handle = both.gpu.get();
        expect_refused([&] { return onebit_allreduce_reset(handle); });
        expect_refused([&] { return onebit_allreduce_get_error(handle, nullptr, nullptr, nullptr, nullptr); });
        expect_refused([&] { return onebit_allreduce_set_mask(handle, nullptr); });
        if (to_be_finished) expect_refused([&] { return onebit_allreduce_destroy(handle); });
        both.call(1);
        ONEBIT_EXPECT(log, both.gpu.errors().same_as(both.host.errors()));
    });
}

TEST_CASE("over NCCL a started call leaves its end to wait, and one without checks to the next call", "[nccl]") {
    struct Outcome {
        onebit::Status status;
        bool started_goes_on = false, returned_goes_on = false, finished = false;
        Values averages[2];
    };
    EmulatedNccl nccl;
    const auto outcomes = run_nccl_ranks<Outcome>(
        nccl, 2, [&](std::unique_ptr<onebit::Transport> transport, Outcome* outcome) -> onebit::Status {
            std::unique_ptr<onebit::Communicator> communicator;
            ONEBIT_RETURN_IF_ERROR(onebit::Communicator::create(std::move(transport), {}, &communicator));
            const auto create = [&](onebit_check_t check, std::unique_ptr<onebit::Allreduce>* handle) {
                const onebit_allreduce_config_t config = gpu_config(ONEBIT_ALGORITHM_FLAT, check);
                return onebit::Allreduce::create(*communicator, &config, {}, handle);
            };
            std::unique_ptr<onebit::Allreduce> checked, unchecked;
            ONEBIT_RETURN_IF_ERROR(create(ONEBIT_CHECK_FULL, &checked));
            ONEBIT_RETURN_IF_ERROR(create(ONEBIT_CHECK_NONE, &unchecked));
            for (unsigned step = 0; step < 3; ++step) {
                DeviceArray<float> buffer(data_of(communicator->rank(), step));
                DeviceArray<float> twin(data_of(communicator->rank(), step));
                ONEBIT_RETURN_IF_ERROR(checked->start(buffer.data(), buffer.data()));
                outcome->started_goes_on = checked->in_flight();
                ONEBIT_RETURN_IF_ERROR(unchecked->run(twin.data(), twin.data()));
                outcome->returned_goes_on = unchecked->in_flight();
                ONEBIT_RETURN_IF_ERROR(checked->wait());
                outcome->finished = !checked->in_flight();
                outcome->averages[0] = buffer.get();
                outcome->averages[1] = twin.get();
            }
            return {};
        });
    for (const Outcome& rank : outcomes) {
        CHECK(rank.status.message().empty());
        CHECK((rank.started_goes_on && rank.returned_goes_on && rank.finished));
        CHECK(same_bits(rank.averages[0], rank.averages[1]));
        CHECK(same_bits(rank.averages[0], outcomes[0].averages[0]));
    }
}

TEST_CASE("over NCCL a peer that is lost after the call has returned is told of, and not waited for", "[nccl]") {
    struct Outcome {
        onebit::Status status;
        onebit::Status lost;
    };
    EmulatedNccl nccl;
    const auto outcomes = run_nccl_ranks<Outcome>(
        nccl, 2, [&](std::unique_ptr<onebit::Transport> transport, Outcome* outcome) -> onebit::Status {
            std::unique_ptr<onebit::Communicator> communicator;
            ONEBIT_RETURN_IF_ERROR(onebit::Communicator::create(std::move(transport), {}, &communicator));
            const onebit_allreduce_config_t config = gpu_config(ONEBIT_ALGORITHM_FLAT, ONEBIT_CHECK_NONE);
            std::unique_ptr<onebit::Allreduce> handle;
            ONEBIT_RETURN_IF_ERROR(onebit::Allreduce::create(*communicator, &config, {}, &handle));
            DeviceArray<float> buffer(data_of(communicator->rank(), 0));
            ONEBIT_RETURN_IF_ERROR(handle->run(buffer.data(), buffer.data()));
            EmulatedNccl::fail(communicator->rank(), onebit::nccl::kRemoteError, "the peer is gone");
            outcome->lost = handle->wait();
            return {};
        });
    for (const Outcome& rank : outcomes) {
        CHECK(rank.status.message().empty());
        CHECK(rank.lost.code() == ONEBIT_ERROR_TRANSPORT);
        CHECK_THAT(rank.lost.message(), ContainsSubstring("the peer is gone"));
    }
}

// ---------------------------------------------------------------------------------------------- several GPUs ----

TEST_CASE("a GPU that the kernels aren't compiled for is refused on every rank, when a handle is created", "[cuda]") {
    run_ranks(2, [&](onebit_comm_t comm, RankLog& log) {
        onebit_allreduce_config_t config = gpu_config(ONEBIT_ALGORITHM_FLAT);
        if (log.last_rank()) config.stream = stream_of_gpu(kGpuWithoutCode);
        onebit_allreduce_t handle = nullptr;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "rank 1;config.memory;compute capability",
                              onebit_allreduce_create(comm, &config, &handle));
    });
}

TEST_CASE("an optimizer makes no context but on its stream's GPU", "[cuda]") {
    run_ranks(2, [&](onebit_comm_t comm, RankLog& log) {
        DeviceArray<float> parameters(Values(kCount, 1.0F));
        DeviceArray<float> gradients(data_of(log.rank(), 0));
        const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(parameters.data(), gradients.data(), kCount);
        onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 1e-2);
        config.memory = ONEBIT_MEMORY_CUDA;
        config.stream = stream_of_gpu(0);
        onebit_optimizer_t optimizer = nullptr;
        set_current_gpu(5);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_create(comm, &config, &tensor, 1, &optimizer));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(optimizer, 0, gradients.data()));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_step(optimizer));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(optimizer));
        ONEBIT_EXPECT(log, !gpus_used().contains(5) && current_gpu() == 5);
        set_current_gpu(0);
    });
}

TEST_CASE("gradients that are elsewhere in each step don't make it wait for the stream", "[cuda]") {
    run_ranks(2, [&](onebit_comm_t comm, RankLog& log) {
        const Model model{optimizer_config(ONEBIT_OPTIMIZER_ADAM), {{5000}, {33}, {4096}}};
        TrainingOn gpu(kGpu, comm, model, log);
        TrainingOn host(kHost, comm, model, log);
        const Gradient gradient = gaussian_gradient(model.count(), 3);
        for (std::uint64_t t = 1; t <= 4; ++t) {
            for (const std::size_t tensor : {0, 2}) gpu.move_gradients(tensor);
            const Values values = gradient(log.rank(), t);
            gpu.set_gradients(values);
            const std::size_t before = pageable_copies();
            ONEBIT_EXPECT_OK(log, onebit_optimizer_step(gpu.get()));
            ONEBIT_EXPECT(log, pageable_copies() == before);
            host.step(values);
            ONEBIT_EXPECT(log, same_bits(gpu.parameter_values(), host.parameter_values()));
        }
    });
}

TEST_CASE("what a call gives a GPU's stream to do doesn't grow with the number of ranks", "[cuda]") {
    const int n = GENERATE(2, 5, 17);
    const onebit_algorithm_t form = GENERATE(ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED);
    const onebit_group_t group = GENERATE(ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        onebit_allreduce_config_t config = gpu_config(form, ONEBIT_CHECK_NONE);
        config.group = group;
        Allreduce gpu(comm, config, log);
        DeviceArray<float> buffer(data_of(log.rank(), 0));
        StreamWork before;
        for (int call = 0; call < 2; ++call) { // tables of pointers are copied once
            before = work_given();
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(gpu.get(), buffer.data(), buffer.data()));
        }
        // Encode, check the scales and decode, for sixteen chunks at a time; average; seal twice.
        const std::size_t batches = n > 16 ? 2 : 1;
        const bool seals = group == ONEBIT_GROUP_BUFFER;
        ONEBIT_EXPECT(log, work_given().launches - before.launches == 3 * batches + 1 + (seals ? 2 : 0));
        // Copies of rows of one length. The others' chunks are at most three such groups: they differ by a word and the
        // own chunk lies between. The own chunk has rows before and after this rank's. The result is copied down once.
        const std::size_t exchange = 3 + 2 + 1 + 3;
        const bool trails = seals && form == ONEBIT_ALGORITHM_PIPELINED;
        const std::size_t most = exchange + (trails ? exchange : 0) + 1; // and the results of the checks
        ONEBIT_EXPECT(log, work_given().copies - before.copies <= most);
    });
}

TEST_CASE("a step looks at the gradients in the chunks of more ranks than a launch takes", "[cuda][optimizers]") {
    run_ranks(17, [&](onebit_comm_t comm, RankLog& log) {
        Model model{optimizer_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM), {{2000}, {33}, {1000}}};
        model.config.freeze_step = 2;
        const Gradient gradient = in_eighths(gaussian_gradient(model.count(), 3));
        TrainingOn host(kHost, comm, model, log);
        TrainingOn gpu(kGpu, comm, model, log);
        for (std::uint64_t t = 1; t <= 4; ++t) {
            host.step(gradient(log.rank(), t));
            gpu.step(gradient(log.rank(), t));
            ONEBIT_EXPECT(log, same_training(host, gpu));
        }
        Values spoiled = gradient(log.rank(), 5);
        if (log.last_rank()) spoiled.back() = NAN; // in the second launch
        gpu.set_gradients(spoiled);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "rank 16;999", onebit_optimizer_step(gpu.get()));
        gpu.step(gradient(log.rank(), 5));
        host.step(gradient(log.rank(), 5));
        ONEBIT_EXPECT(log, gpu.parameters() == host.parameters() && gpu.errors().same_as(host.errors()));
    });
}

} // namespace
