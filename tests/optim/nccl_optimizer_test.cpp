// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Optimizers on a GPU over an emulated NCCL, and over a transport that reaches the GPU's memory, compared with
// optimizers on the host.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "compress/device_memory.hpp"
#include "optim/gradient_norm.hpp"
#include "optim/optimizer.hpp"
#include "support/catch2.hpp"
#include "support/data.hpp"
#include "support/device_aware.hpp"
#include "support/environment.hpp"
#include "support/handles.hpp"
#include "support/loopback_ranks.hpp"
#include "support/nccl_ranks.hpp"

namespace onebit {
namespace {

constexpr std::size_t kCount = 5003; ///< in chunks of 79 and 78 words
constexpr std::size_t kFirst = 3000; ///< of the elements: in one tensor, all others in another

struct Trained {
    std::vector<float> parameters;
    std::vector<double> norms;     ///< by step, of the gradients, where they are clipped
    std::vector<std::string> said; ///< by step
    std::uint64_t bytes_sent = 0;
    Status status;
};

/// Frozen after step 3. 0/1 Adam averages exactly in steps 1 and 2, and then has rounds in 4, 5, 6 and 8.
onebit_optimizer_config_t make_config(onebit_optimizer_kind_t kind) {
    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(kind, 1e-2);
    if (kind != ONEBIT_OPTIMIZER_ADAM && kind != ONEBIT_OPTIMIZER_LAMB) config.freeze_step = 3;
    config.variance_updates = 1;
    config.local_step_scaler = 2;
    config.local_steps = 2;
    return config;
}

Status train(std::unique_ptr<Transport> transport, onebit_memory_t memory, onebit_optimizer_config_t config,
             std::size_t count, Trained* outcome) {
    const int rank = transport->rank();
    std::unique_ptr<Communicator> communicator;
    ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &communicator));
    config.memory = memory;
    Memory& place = memory == ONEBIT_MEMORY_CUDA ? device_memory() : host_memory();
    AlignedBuffer<float> parameters(count, place);
    AlignedBuffer<float> gradients(count, place);
    onebit_tensor_t tensors[] = {
        ONEBIT_TENSOR_INIT(parameters.data(), gradients.data(), kFirst),
        ONEBIT_TENSOR_INIT(parameters.data() + kFirst, gradients.data() + kFirst, count - kFirst)};
    tensors[1].group = config.num_groups > 1 ? 1 : 0;
    std::unique_ptr<Optimizer> optimizer;
    ONEBIT_RETURN_IF_ERROR(make_optimizer(*communicator, &config, tensors, 2, {}, &optimizer));
    for (unsigned step = 0; step < 9; ++step) {
        if (step % 5 == 3) { // the last rank gives this step up
            const bool gives_up = rank == communicator->size() - 1;
            const Status given_up = gives_up ? optimizer->cancel_step("no memory") : optimizer->step();
            outcome->said.push_back(given_up.message());
            if (given_up.code() != ONEBIT_ERROR_CANCELLED) return given_up;
        }
        std::vector<float> values = onebit_test::make_data(onebit_test::Kind::gaussian, count, 1, rank, step);
        // Once in an exact step, once later: values whose squares are float32s, and their sum is not, which is clipped
        // to all the same; or that one rank has none of, and that overflow on their way into a message.
        const bool clips = config.max_grad_norm > 0;
        if (clips && step % 4 == 1) values[count - 2] = values[count - 1] = 1.5e19F;
        if (!clips && step % 4 == 1 && rank == 1) values[7] = std::nanf("");
        if (!clips && step == 6) values[3] = 3e38F;
        ONEBIT_RETURN_IF_ERROR(optimizer->set_gradient_scale(!clips && step == 6 ? 0.01 : 1));
        gradients.copy_from(values.data());
        if (config.bucket_size > 0) ONEBIT_RETURN_IF_ERROR(optimizer->grad_ready(1));
        const Status stepped = optimizer->step();
        if (stepped.code() != ONEBIT_ERROR_NONFINITE) ONEBIT_RETURN_IF_ERROR(stepped);
        onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
        optimizer->fill_info(&info);
        outcome->norms.push_back(info.grad_norm);
        outcome->said.push_back(stepped.message());
        outcome->bytes_sent = info.warmup_bytes_sent + info.compressed_bytes_sent;
    }
    outcome->parameters.resize(count);
    parameters.copy_to(outcome->parameters.data());
    return {};
}

std::vector<Trained> train_on_host(int ranks, const onebit_optimizer_config_t& config, std::size_t count = kCount) {
    return onebit_test::run_loopback_ranks<Trained>(ranks, [&](std::unique_ptr<Transport> transport, Trained* outcome) {
        return train(std::move(transport), ONEBIT_MEMORY_HOST, config, count, outcome);
    });
}

void compare(const std::vector<Trained>& on_gpu, const std::vector<Trained>& on_host) {
    for (std::size_t r = 0; r < on_host.size(); ++r) {
        CAPTURE(r, on_gpu[r].status.message(), on_host[r].status.message());
        REQUIRE(on_gpu[r].status.ok());
        REQUIRE(on_host[r].status.ok());
        CHECK(onebit_test::same_bits(on_gpu[r].parameters, on_host[r].parameters));
        CHECK(on_gpu[r].norms == on_host[0].norms);
        CHECK(on_gpu[r].said == on_host[0].said);
    }
}

TEST_CASE("optimizers that compress train over NCCL as on the host, to the bit", "[nccl][optimizers]") {
    onebit_optimizer_config_t config = make_config(
        GENERATE(ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_OPTIMIZER_ONEBIT_LAMB, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM));
    const std::size_t count = GENERATE(as<std::size_t>{}, kCount, kCount + 32);
    const bool compresses_all = GENERATE(true, false);
    std::vector<onebit_param_group_t> groups(2, ONEBIT_PARAM_GROUP_INIT(1e-2));
    groups[1].no_compress = 1;
    if (!compresses_all) {
        config.groups = groups.data();
        config.num_groups = groups.size();
    }
    CAPTURE(config.kind, count, compresses_all);
    onebit_test::EmulatedNccl nccl; // two ranks: their exact sums have only one order
    const auto train_on_gpu = [&](std::unique_ptr<Transport> transport, Trained* outcome) {
        return train(std::move(transport), ONEBIT_MEMORY_CUDA, config, count, outcome);
    };
    compare(onebit_test::run_nccl_ranks<Trained>(nccl, 2, train_on_gpu), train_on_host(2, config, count));
    if (!compresses_all) return;
    CHECK((onebit_test::EmulatedNccl::calls("ncclAlltoAll") > 0) == (count != kCount)); // whose chunks are equally long
}

TEST_CASE("gradients are clipped over NCCL as on the host, to the bit", "[nccl][optimizers]") {
    onebit_optimizer_config_t config =
        make_config(GENERATE(ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_OPTIMIZER_LAMB,
                             ONEBIT_OPTIMIZER_ONEBIT_LAMB, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM));
    const int ranks = GENERATE(1, 2, 3); // the emulated NCCL adds exact sums up in the order of ranks, as loopback does
    CAPTURE(config.kind, ranks);
    config.max_grad_norm = std::sqrt(static_cast<double>(kCount) / ranks); // about what the average has
    onebit_test::EmulatedNccl nccl;
    const auto on_gpu =
        onebit_test::run_nccl_ranks<Trained>(nccl, ranks, [&](std::unique_ptr<Transport> transport, Trained* outcome) {
            return train(std::move(transport), ONEBIT_MEMORY_CUDA, config, kCount, outcome);
        });
    const auto on_host = train_on_host(ranks, config);
    compare(on_gpu, on_host);
    for (const Trained& outcome : on_gpu) { // except for chunks of different lengths
        CHECK(static_cast<double>(outcome.bytes_sent) ==
              Approx(static_cast<double>(on_host[0].bytes_sent)).epsilon(0.01));
    }
    const auto is_clipped = [&](double norm) { return norm > config.max_grad_norm; };
    CHECK(std::ranges::count_if(on_gpu[0].norms, is_clipped) > 0);
    CHECK(std::ranges::count_if(on_gpu[0].norms, [](double norm) { return norm > 1e18 && std::isfinite(norm); }) > 0);
    onebit_optimizer_config_t unclipped = config;
    unclipped.max_grad_norm = 1e6;
    CHECK_FALSE(onebit_test::same_bits(train_on_host(ranks, unclipped)[0].parameters, on_gpu[0].parameters));
}

TEST_CASE("a rank that doesn't come for the gradients' norm is a timeout, which lets go of the stream",
          "[nccl][optimizers]") {
    struct Waited {
        Status said;
        Status later;
        int aborted = 0;
        Status status;
    };
    const onebit_test::Variable timeout("ONEBIT_TIMEOUT", "0.3");
    onebit_test::EmulatedNccl nccl;
    std::atomic<bool> over = false;
    const auto outcomes =
        onebit_test::run_nccl_ranks<Waited>(nccl, 2, [&](std::unique_ptr<Transport> transport, Waited* outcome) {
            std::unique_ptr<Communicator> communicator;
            ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &communicator));
            std::unique_ptr<GradientNorm> norm;
            ONEBIT_RETURN_IF_ERROR(GradientNorm::create(*communicator, 1, &norm));
            if (communicator->rank() == 1) {
                while (!over) std::this_thread::yield();
                return Status();
            }
            double squares = 0;
            outcome->said = norm->sum_squares_over_ranks(&squares);
            outcome->aborted = onebit_test::EmulatedNccl::aborted();
            outcome->later = norm->broken();
            over = true;
            return Status();
        });
    CHECK(outcomes[0].said.code() == ONEBIT_ERROR_TIMEOUT);
    CHECK_THAT(outcomes[0].said.message(), ContainsSubstring("the gradient norm"));
    CHECK(outcomes[0].later.message() == outcomes[0].said.message());
    CHECK(outcomes[0].aborted == 2); // and its parent communicator, in whose stream it was stuck
    for (const Waited& outcome : outcomes) CHECK(outcome.status.message().empty());
    CHECK(nccl.take_complaints() == std::vector<std::string>{"messages that nobody has received"});
}

TEST_CASE("optimizers whose messages go directly train as on the host, in buckets too", "[cuda][direct][optimizers]") {
    onebit_optimizer_config_t config =
        make_config(GENERATE(ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM));
    config.bucket_size = GENERATE(0, 2000);
    const int ranks = config.bucket_size > 0 ? 3 : 2; // sums are in rank order with 3, have only one order with 2
    const auto train_on_gpu = [&](std::unique_ptr<Transport> transport, Trained* outcome) {
        auto direct = std::make_unique<onebit_test::DeviceAwareTransport>(std::move(transport));
        return train(std::move(direct), ONEBIT_MEMORY_CUDA, config, kCount, outcome);
    };
    compare(onebit_test::run_loopback_ranks<Trained>(ranks, train_on_gpu), train_on_host(ranks, config));
}

TEST_CASE("what can't be had over NCCL is said on every rank", "[nccl][optimizers]") {
    onebit_optimizer_config_t config = make_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
    config.bucket_size = 1000;
    onebit_test::EmulatedNccl nccl;
    const auto outcomes =
        onebit_test::run_nccl_ranks<Trained>(nccl, 2, [&](std::unique_ptr<Transport> transport, Trained* outcome) {
            return train(std::move(transport), ONEBIT_MEMORY_CUDA, config, kCount, outcome);
        });
    for (const Trained& outcome : outcomes) {
        CHECK(outcome.status.code() == ONEBIT_ERROR_UNSUPPORTED);
        CHECK_THAT(outcome.status.message(), ContainsSubstring("bucket_size") && ContainsSubstring("nccl"));
    }
}

} // namespace
} // namespace onebit
