// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Communicators for values in GPUs' memory: the transport chosen on each kind of machines, forced and refused
// transports, the operations over each, and failures on all ranks. On emulated GPUs and an emulated NCCL, over
// loopback.

#include "collectives/cuda/gpu_communicator.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/allreduce.hpp"
#include "collectives/cuda/bootstrap.hpp"
#include "compress/device_memory.hpp"
#include "optim/optimizer.hpp"
#include "support/catch2.hpp"
#include "support/data.hpp"
#include "support/device_aware.hpp"
#include "support/emulated_device.hpp"
#include "support/environment.hpp"
#include "support/gpu_ranks.hpp"
#include "support/handles.hpp"
#include "topology/machines.hpp"

namespace onebit {
namespace {

using onebit_test::EmulatedNccl;
using onebit_test::Variable;
using Values = std::vector<float>;

constexpr std::size_t kCount = 9001;

// ------------------------------------------------------------------------------------------------ the choice ----

struct Chosen {
    std::string transport;
    std::string reason;
    Status status;
};

/// `prepare(rank, &here)` changes a rank's resources.
std::vector<Chosen> choose(int ranks, const char* places, const Machine& machine,
                           const std::function<void(int rank, GpuRank* here)>& prepare = {}) {
    const Variable node_size("ONEBIT_NODE_SIZE", places);
    return onebit_test::run_loopback_ranks<Chosen>(
        static_cast<std::size_t>(ranks), [&](std::unique_ptr<Transport> transport, Chosen* chosen) {
            GpuRank here = onebit_test::gpu_rank(machine);
            if (prepare) prepare(transport->rank(), &here);
            std::unique_ptr<Communicator> communicator;
            ONEBIT_RETURN_IF_ERROR(onebit_test::make_gpu_rank(std::move(transport), here, &communicator));
            chosen->transport = communicator->transport().name();
            chosen->reason = communicator->reason();
            return Status();
        });
}

void check(const std::vector<Chosen>& chosen, const std::string& transport, const std::string& reason) {
    for (const Chosen& rank : chosen) {
        CHECK(rank.status.message().empty());
        CHECK(rank.transport == transport);
        CHECK(rank.reason == reason);
    }
}

void check_refused(const std::vector<Chosen>& chosen, onebit_status_t code, const std::string& message) {
    for (const Chosen& rank : chosen) {
        CHECK(rank.status.code() == code);
        CHECK(rank.status.message() == message);
    }
}

const char* const kNics = "each GPU has an RDMA NIC at most PIX away, which sends from its memory";
const char* const kNoNic =
    "GPU0 has no RDMA NIC that is up under its own host bridge; inside a node: at most PHB between GPUs, no NVLink "
    "known";

TEST_CASE("the transport of GPUs' values is what their machines suggest", "[nccl][topology]") {
    const EmulatedNccl nccl;
    const Machine with_nics = onebit_test::machine_of("four-gpus-nvlink");
    const Machine without = onebit_test::machine_of("two-gpus-pcie");
    check(choose(4, "2", with_nics), "nccl", kNics);
    check(choose(4, "2", without), "nccl+loopback", kNoNic);
    check(choose(4, "2", onebit_test::machine_of("no-gpu")), "loopback", "the machine has no NVIDIA GPU");
    check(choose(2, "2", without), "nccl", "one node, at most PHB between GPUs, no NVLink known");
    check(choose(1, "1", without), "nccl", "one node, at most PHB between GPUs, no NVLink known");
    check(choose(2, "1", without), "loopback",
          "GPU0 has no RDMA NIC that is up under its own host bridge, and one rank per node leaves NCCL nothing to do "
          "inside");
    check(choose(5, "2", without), "loopback",
          std::string(kNoNic) + "; no two levels, for the nodes have different numbers of ranks");
    check(choose(6, "3", without), "loopback", "NCCL wants a GPU for each rank: 3 ranks share 2");
}

TEST_CASE("the least of all ranks' choices is everybody's, with its reason", "[nccl][topology]") {
    const EmulatedNccl nccl;
    const Machine with_nics = onebit_test::machine_of("four-gpus-nvlink");
    const Machine without = onebit_test::machine_of("two-gpus-pcie");
    const auto poor = [&](int rank, GpuRank* here) {
        if (rank >= 2) here->machine = without;
    };
    check(choose(4, "2", with_nics, poor), "nccl+loopback", std::string("rank 2: ") + kNoNic);
    const auto lacking = [&](int rank, GpuRank* here) {
        poor(rank, here);
        if (rank != 3) return;
        here->nccl = nullptr;
        here->nccl_status = Status::error(ONEBIT_ERROR_UNSUPPORTED, "made up");
    };
    check(choose(4, "2", with_nics, lacking), "loopback", "rank 3: made up");
    const auto unread = [](int rank, GpuRank* here) {
        if (rank == 1) here->machine_status = Status::error(ONEBIT_ERROR_TRANSPORT, "hwloc is not well");
    };
    check(choose(4, "2", with_nics, unread), "loopback", "rank 1: hwloc is not well");
    const auto sharing = [](int rank, GpuRank*) { onebit_test::take_gpu(rank >= 2 ? 70U : 71U + unsigned(rank)); };
    check(choose(4, "2", with_nics, sharing), "loopback",
          "NCCL wants a GPU for each rank: ranks 2 and 3 share emulated:70");
}

TEST_CASE("ONEBIT_GPU_TRANSPORT forces the transport, or it is said why not", "[nccl][topology]") {
    const EmulatedNccl nccl;
    const Machine none; // whatever hwloc can't see
    const auto lacking = [](int rank, GpuRank* here) {
        if (rank == 1) here->nccl_status = Status::error(ONEBIT_ERROR_UNSUPPORTED, "made up");
    };
    const auto sharing = [](int, GpuRank*) { onebit_test::take_gpu(80); };
    {
        const Variable forced("ONEBIT_GPU_TRANSPORT", "nccl");
        check(choose(4, "2", none), "nccl", "forced by ONEBIT_GPU_TRANSPORT=nccl");
        check_refused(choose(3, "1", none, lacking), ONEBIT_ERROR_UNSUPPORTED,
                      "environment: ONEBIT_GPU_TRANSPORT=nccl: rank 1: made up");
        check_refused(
            choose(3, "1", none, sharing), ONEBIT_ERROR_UNSUPPORTED,
            "environment: ONEBIT_GPU_TRANSPORT=nccl: NCCL wants a GPU for each rank: ranks 0 and 1 share emulated:80");
    }
    {
        const Variable forced("ONEBIT_GPU_TRANSPORT", "nccl_in_node");
        check(choose(4, "2", none), "nccl+loopback", "forced by ONEBIT_GPU_TRANSPORT=nccl_in_node");
        const std::string refused = "environment: ONEBIT_GPU_TRANSPORT=nccl_in_node: ";
        check_refused(choose(2, "2", none), ONEBIT_ERROR_UNSUPPORTED, refused + "all ranks are on one node");
        check_refused(choose(2, "1", none), ONEBIT_ERROR_UNSUPPORTED, refused + "each node has one rank");
        check_refused(choose(3, "2", none), ONEBIT_ERROR_UNSUPPORTED,
                      refused + "the nodes have different numbers of ranks");
        check_refused(choose(4, "2", none, lacking), ONEBIT_ERROR_UNSUPPORTED, refused + "rank 1: made up");
    }
    {
        const Variable forced("ONEBIT_GPU_TRANSPORT", "base");
        check(choose(3, "1", none, lacking), "loopback", "forced by ONEBIT_GPU_TRANSPORT=base");
        check(choose(2, "2", onebit_test::machine_of("two-gpus-pcie"), sharing), "loopback",
              "forced by ONEBIT_GPU_TRANSPORT=base");
    }
    const auto differently = [](int rank, GpuRank* here) {
        here->forced = rank == 1 ? GpuTransport::kNccl : GpuTransport::kBase;
    };
    check_refused(choose(3, "1", none, differently), ONEBIT_ERROR_MISMATCH,
                  "ONEBIT_GPU_TRANSPORT differs: rank 0 has base, rank 1 has nccl");
    const Variable impossible("ONEBIT_GPU_TRANSPORT", "carrier pigeons");
    check_refused(choose(2, "1", none), ONEBIT_ERROR_INVALID_ARGUMENT,
                  "rank 0: environment: ONEBIT_GPU_TRANSPORT=carrier pigeons is not auto, nccl, nccl_in_node or base");
}

// ---------------------------------------------------------------------------------------- what goes over them ----

struct Told {
    std::vector<Values> averages;
    std::vector<std::string> said;
    onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
    Status status;
};

onebit_allreduce_config_t config_of(onebit_memory_t memory, onebit_algorithm_t form) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(kCount);
    config.algorithm = form;
    config.memory = memory;
    return config;
}

Values data_of(int rank, unsigned step) {
    return onebit_test::make_data(onebit_test::Kind::gaussian, kCount, 1, rank, step);
}

Status average(Communicator& communicator, onebit_memory_t memory, onebit_algorithm_t form, Told* told) {
    const onebit_allreduce_config_t config = config_of(memory, form);
    std::unique_ptr<Allreduce> handle;
    ONEBIT_RETURN_IF_ERROR(Allreduce::create(communicator, &config, {}, &handle));
    AlignedBuffer<float> buffer(kCount, handle->codec().memory());
    for (unsigned step = 0; step < 3; ++step) {
        buffer.copy_from(data_of(communicator.rank(), step).data());
        ONEBIT_RETURN_IF_ERROR(handle->run(buffer.data(), buffer.data()));
        buffer.copy_to(told->averages.emplace_back(kCount).data());
    }
    handle->fill_info(&told->info);
    return {};
}

std::vector<Told> average_on_host(int ranks, onebit_algorithm_t form) {
    return onebit_test::run_loopback_ranks<Told>(
        static_cast<std::size_t>(ranks), [&](std::unique_ptr<Transport> transport, Told* told) {
            std::unique_ptr<Communicator> communicator;
            ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &communicator));
            return average(*communicator, ONEBIT_MEMORY_HOST, form, told);
        });
}

bool nearly_same(const Values& a, const Values& b) {
    return std::ranges::equal(a, b, [](float x, float y) { return x == Approx(y).margin(1e-6); });
}

TEST_CASE("all forms give the host's averages whatever GPUs' values travel by", "[nccl]") {
    const Variable places("ONEBIT_NODE_SIZE", "2");
    const std::string way = GENERATE("nccl_in_node", "base");
    const onebit_memory_t memory = GENERATE(ONEBIT_MEMORY_CUDA, ONEBIT_MEMORY_HOST);
    const Variable forced("ONEBIT_GPU_TRANSPORT", way.c_str());
    const EmulatedNccl nccl;
    for (const onebit_algorithm_t form :
         {ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_TWO_LEVEL}) {
        CAPTURE(way, memory, form);
        const bool on_gpu = memory == ONEBIT_MEMORY_CUDA;
        const bool falls_back = on_gpu && form == ONEBIT_ALGORITHM_TWO_LEVEL && way == "base";
        const std::vector<Told> expected = average_on_host(4, falls_back ? ONEBIT_ALGORITHM_PIPELINED : form);
        const std::vector<Told> told = onebit_test::run_gpu_ranks<Told>(
            4, [&](Communicator& communicator, Told* rank) { return average(communicator, memory, form, rank); });
        const bool two_levels = on_gpu && form == ONEBIT_ALGORITHM_TWO_LEVEL && !falls_back;
        const std::string transport = std::string(two_levels ? "nccl+" : "") + "loopback" + (on_gpu ? ", staged" : "");
        for (const Told& rank : told) {
            CAPTURE(rank.status.message(), rank.info.reason);
            REQUIRE(rank.status.ok());
            CHECK(rank.info.transport == transport);
            CHECK(rank.info.algorithm == (falls_back ? ONEBIT_ALGORITHM_PIPELINED : form));
            if (falls_back) CHECK_THAT(rank.info.reason, ContainsSubstring("NCCL doesn't carry them inside a node"));
            for (std::size_t step = 0; step < 3; ++step) {
                CHECK(rank.averages[step] == told[0].averages[step]);
                CHECK((form == ONEBIT_ALGORITHM_DENSE ? nearly_same(rank.averages[step], expected[0].averages[step])
                                                      : rank.averages[step] == expected[0].averages[step]));
            }
        }
    }
}

TEST_CASE("a communicator works on its stream's GPU, whichever is current", "[nccl]") {
    static constexpr int kOther = 7;
    const Variable places("ONEBIT_NODE_SIZE", "2");
    const std::string way = GENERATE("nccl", "nccl_in_node", "base");
    const Variable forced("ONEBIT_GPU_TRANSPORT", way.c_str());
    const EmulatedNccl nccl;
    CAPTURE(way);
    const auto told = onebit_test::run_loopback_ranks<Told>(4, [](std::unique_ptr<Transport> transport, Told* rank) {
        const int gpu = transport->rank() % 2;
        onebit_test::set_current_gpu(kOther);
        std::unique_ptr<Communicator> base;
        ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &base));
        GpuRank here = onebit_test::gpu_rank();
        here.forced = base->environment().gpu_transport;
        std::unique_ptr<Communicator> communicator;
        ONEBIT_RETURN_IF_ERROR(make_gpu_communicator(*base, here, {}, onebit_test::stream_of_gpu(gpu), &communicator));
        onebit_allreduce_config_t config = config_of(ONEBIT_MEMORY_CUDA, ONEBIT_ALGORITHM_TWO_LEVEL);
        std::unique_ptr<Allreduce> handle;
        ONEBIT_RETURN_IF_ERROR(Allreduce::create(*communicator, &config, {}, &handle));
        {
            const Entered entered = handle->enter(); // as the C interface does
            AlignedBuffer<float> buffer(kCount, handle->codec().memory());
            buffer.copy_from(data_of(communicator->rank(), 0).data());
            ONEBIT_RETURN_IF_ERROR(handle->run(buffer.data(), buffer.data()));
            buffer.copy_to(rank->averages.emplace_back(kCount).data());
            buffer = {}; // its memory is the handle's
            handle.reset();
        }
        communicator.reset();
        rank->said.push_back(onebit_test::gpus_used().contains(kOther) ? "another GPU was used" : "");
        return Status();
    });
    const std::vector<Told> expected =
        average_on_host(4, way == "base" ? ONEBIT_ALGORITHM_PIPELINED : ONEBIT_ALGORITHM_TWO_LEVEL);
    for (const Told& rank : told) {
        CAPTURE(rank.status.message());
        REQUIRE(rank.status.ok());
        CHECK(rank.averages[0] == expected[0].averages[0]);
        CHECK(rank.said[0] == "");
    }
}

TEST_CASE("a stream that is another one in each thread is refused on all ranks, if one has it", "[nccl]") {
    const EmulatedNccl nccl;
    const bool chooses = GENERATE(false, true);
    const auto told = onebit_test::run_loopback_ranks<Told>(2, [&](std::unique_ptr<Transport> transport, Told*) {
        const auto stream = transport->rank() == 1 ? onebit_test::stream_per_thread() : onebit_test::stream_of_gpu(0);
        std::unique_ptr<Communicator> base;
        ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &base));
        std::unique_ptr<Communicator> communicator;
        std::unique_ptr<Transport> made;
        const NcclApi& api = EmulatedNccl::api();
        return chooses ? make_gpu_communicator(*base, onebit_test::gpu_rank(), {}, stream, &communicator)
                       : bootstrap_nccl(&api, *base, {}, stream, &made);
    });
    for (const Told& rank : told) {
        CHECK(rank.status.code() == ONEBIT_ERROR_INVALID_ARGUMENT);
        CHECK_THAT(rank.status.message(), ContainsSubstring("rank 1") && ContainsSubstring("in each thread"));
    }
}

TEST_CASE("between nodes messages go directly where the base transport reaches GPUs' memory", "[nccl][direct]") {
    const Variable places("ONEBIT_NODE_SIZE", "2");
    const Variable forced("ONEBIT_GPU_TRANSPORT", "nccl_in_node");
    const std::string path = GENERATE("", "staged");
    const Variable gpu_path("ONEBIT_GPU_PATH", path.c_str());
    const EmulatedNccl nccl;
    const auto told = onebit_test::run_loopback_ranks<Told>(4, [](std::unique_ptr<Transport> transport, Told* rank) {
        std::unique_ptr<Communicator> communicator;
        ONEBIT_RETURN_IF_ERROR(
            onebit_test::make_gpu_rank(std::make_unique<onebit_test::DeviceAwareTransport>(std::move(transport)),
                                       onebit_test::gpu_rank(), &communicator));
        return average(*communicator, ONEBIT_MEMORY_CUDA, ONEBIT_ALGORITHM_TWO_LEVEL, rank);
    });
    const std::vector<Told> expected = average_on_host(4, ONEBIT_ALGORITHM_TWO_LEVEL);
    for (const Told& rank : told) {
        CAPTURE(rank.status.message());
        REQUIRE(rank.status.ok());
        CHECK(rank.info.transport == std::string("nccl+loopback, ") + (path.empty() ? "direct" : path));
        CHECK(rank.averages == expected[0].averages);
    }
}

TEST_CASE("ONEBIT_GPU_PATH=direct over a base that can't is UNSUPPORTED on two levels too", "[nccl][direct]") {
    const Variable places("ONEBIT_NODE_SIZE", "2");
    const Variable forced("ONEBIT_GPU_TRANSPORT", "nccl_in_node");
    const Variable gpu_path("ONEBIT_GPU_PATH", "direct");
    const EmulatedNccl nccl;
    const auto told = onebit_test::run_gpu_ranks<Told>(4, [](Communicator& communicator, Told* rank) {
        return average(communicator, ONEBIT_MEMORY_CUDA, ONEBIT_ALGORITHM_TWO_LEVEL, rank);
    });
    for (const Told& rank : told) {
        CHECK(rank.status.code() == ONEBIT_ERROR_UNSUPPORTED);
        CHECK_THAT(rank.status.message(), ContainsSubstring("ONEBIT_GPU_PATH=direct"));
    }
}

TEST_CASE("nodes are the base's; where they are to be others now, two levels go over it", "[nccl]") {
    const std::string later = GENERATE("", "2");
    struct Made {
        std::unique_ptr<Communicator> base;
        Status status;
    };
    const EmulatedNccl nccl;
    std::vector<Made> bases = [] {
        const Variable places("ONEBIT_NODE_SIZE", "4");
        return onebit_test::run_loopback_ranks<Made>(8, [](std::unique_ptr<Transport> transport, Made* made) {
            return Communicator::create(std::move(transport), {}, &made->base);
        });
    }();
    const Variable places("ONEBIT_NODE_SIZE", later.c_str());
    std::vector<Told> told(bases.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < bases.size(); ++r) {
        threads.emplace_back([&, r] {
            told[r].status = [&]() -> Status {
                std::unique_ptr<Communicator> communicator;
                GpuRank here = onebit_test::gpu_rank();
                here.forced = GpuTransport::kNcclInNode;
                ONEBIT_RETURN_IF_ERROR(make_gpu_communicator(*bases[r].base, here, {}, nullptr, &communicator));
                return average(*communicator, ONEBIT_MEMORY_CUDA, ONEBIT_ALGORITHM_TWO_LEVEL, &told[r]);
            }();
        });
    }
    for (std::thread& thread : threads) thread.join();
    const Variable expected_places("ONEBIT_NODE_SIZE", later.empty() ? "4" : "2");
    const std::vector<Told> expected = average_on_host(8, ONEBIT_ALGORITHM_TWO_LEVEL);
    for (const Told& rank : told) {
        CAPTURE(rank.status.message());
        REQUIRE(rank.status.ok());
        CHECK(rank.info.algorithm == ONEBIT_ALGORITHM_TWO_LEVEL);
        CHECK(rank.info.transport == std::string(later.empty() ? "nccl+" : "") + "loopback, staged");
        CHECK(rank.averages == expected[0].averages);
    }
}

TEST_CASE("AUTO considers two levels where NCCL is inside the nodes", "[nccl]") {
    const Variable places("ONEBIT_NODE_SIZE", "2");
    const Variable measure("ONEBIT_MEASURE", "0");
    const EmulatedNccl nccl;
    for (const bool in_node : {true, false}) {
        const Variable forced("ONEBIT_GPU_TRANSPORT", in_node ? "nccl_in_node" : "base");
        const auto told = onebit_test::run_gpu_ranks<Told>(4, [](Communicator& communicator, Told* rank) {
            return average(communicator, ONEBIT_MEMORY_CUDA, ONEBIT_ALGORITHM_AUTO, rank);
        });
        for (const Told& rank : told) {
            CHECK(rank.status.message().empty());
            CHECK((std::string(rank.info.reason).find("two_level") != std::string::npos) == in_node);
        }
    }
}

TEST_CASE("values of a GPU communicator are worked on in its stream, whatever carries them", "[nccl]") {
    const Variable places("ONEBIT_NODE_SIZE", "2");
    const char* const way = GENERATE("nccl_in_node", "base");
    const Variable forced("ONEBIT_GPU_TRANSPORT", way);
    const EmulatedNccl nccl;
    const auto told = onebit_test::run_gpu_ranks<Told>(4, [](Communicator& communicator, Told* rank) {
        onebit_allreduce_config_t config = config_of(ONEBIT_MEMORY_CUDA, ONEBIT_ALGORITHM_FLAT);
        int elsewhere = 0;
        if (communicator.rank() == 1) config.stream = &elsewhere;
        std::unique_ptr<Allreduce> handle;
        rank->said.push_back(Allreduce::create(communicator, &config, {}, &handle).message());
        return Status();
    });
    for (const Told& rank : told) {
        CHECK(rank.said[0] == "rank 1: config.stream is not the stream that the communicator was made with, nor NULL");
    }
}

TEST_CASE("handles of both kinds may be started together, and asked in any order", "[nccl]") {
    const Variable places("ONEBIT_NODE_SIZE", "2");
    const Variable forced("ONEBIT_GPU_TRANSPORT", "nccl_in_node");
    const onebit_algorithm_t forms[] = {ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_TWO_LEVEL,
                                        ONEBIT_ALGORITHM_TWO_LEVEL};
    const EmulatedNccl nccl;
    const auto told = onebit_test::run_gpu_ranks<Told>(4, [&](Communicator& communicator, Told* rank) {
        std::unique_ptr<Allreduce> handles[3];
        AlignedBuffer<float> buffers[3];
        for (unsigned h = 0; h < 3; ++h) {
            const onebit_allreduce_config_t config = config_of(ONEBIT_MEMORY_CUDA, forms[h]);
            ONEBIT_RETURN_IF_ERROR(Allreduce::create(communicator, &config, {}, &handles[h]));
            buffers[h] = AlignedBuffer<float>(kCount, handles[h]->codec().memory());
            buffers[h].copy_from(data_of(communicator.rank(), 0).data());
        }
        for (unsigned h = 0; h < 3; ++h) {
            ONEBIT_RETURN_IF_ERROR(handles[h]->start(buffers[h].data(), buffers[h].data()));
        }
        for (bool all = false; !all;) {
            all = true;
            for (unsigned i = 0; i < 3; ++i) { // this way or the other
                bool done = false;
                ONEBIT_RETURN_IF_ERROR(handles[communicator.rank() % 2 == 0 ? i : 2 - i]->test(&done));
                all = all && done;
            }
        }
        for (AlignedBuffer<float>& buffer : buffers) buffer.copy_to(rank->averages.emplace_back(kCount).data());
        return Status();
    });
    const Values flat = average_on_host(4, ONEBIT_ALGORITHM_PIPELINED)[0].averages[0];
    const Values two_levels = average_on_host(4, ONEBIT_ALGORITHM_TWO_LEVEL)[0].averages[0];
    for (const Told& rank : told) {
        CAPTURE(rank.status.message());
        REQUIRE(rank.status.ok());
        CHECK(rank.averages == std::vector<Values>{flat, two_levels, two_levels});
    }
}

TEST_CASE("optimizers of GPUs' tensors go over the base, clipped and in buckets too", "[nccl][optimizers]") {
    const Variable places("ONEBIT_NODE_SIZE", "2");
    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ONEBIT_ADAM, 1e-2);
    config.freeze_step = 2;
    config.bucket_size = 2000;                     // sums are added up in rank order then
    config.algorithm = ONEBIT_ALGORITHM_PIPELINED; // on the host, too: AUTO would be on two levels there
    config.max_grad_norm = GENERATE(0.0, 1.0);
    const auto train = [&](Communicator& communicator, onebit_memory_t memory, Told* told) -> Status {
        onebit_optimizer_config_t own = config;
        own.memory = memory;
        Memory& place = memory == ONEBIT_MEMORY_CUDA ? device_memory() : host_memory();
        AlignedBuffer<float> parameters(kCount, place);
        AlignedBuffer<float> gradients(kCount, place);
        const onebit_tensor_t tensors[] = {ONEBIT_TENSOR_INIT(parameters.data(), gradients.data(), kCount)};
        std::unique_ptr<Optimizer> optimizer;
        ONEBIT_RETURN_IF_ERROR(make_optimizer(communicator, &own, tensors, 1, {}, &optimizer));
        for (unsigned step = 0; step < 4; ++step) {
            gradients.copy_from(data_of(communicator.rank(), step).data());
            ONEBIT_RETURN_IF_ERROR(optimizer->grad_ready(0));
            ONEBIT_RETURN_IF_ERROR(optimizer->step());
        }
        parameters.copy_to(told->averages.emplace_back(kCount).data());
        return {};
    };
    const EmulatedNccl nccl;
    const Variable forced("ONEBIT_GPU_TRANSPORT", "nccl_in_node");
    const auto on_gpu = onebit_test::run_gpu_ranks<Told>(
        4, [&](Communicator& communicator, Told* told) { return train(communicator, ONEBIT_MEMORY_CUDA, told); });
    const auto on_host = onebit_test::run_gpu_ranks<Told>(
        4, [&](Communicator& communicator, Told* told) { return train(communicator, ONEBIT_MEMORY_HOST, told); });
    for (std::size_t r = 0; r < on_gpu.size(); ++r) {
        CAPTURE(on_gpu[r].status.message(), on_host[r].status.message());
        REQUIRE(on_gpu[r].status.ok());
        REQUIRE(on_host[r].status.ok());
        CHECK(on_gpu[r].averages == on_host[r].averages);
    }
}

// --------------------------------------------------------------------------------------------------- failures ----

TEST_CASE("a rank that doesn't come to make a GPU communicator is a timeout", "[nccl]") {
    const Variable timeout("ONEBIT_TIMEOUT", "0.5");
    std::atomic<int> waiting = 2; // while they do, the third stays
    const auto told = onebit_test::run_loopback_ranks<Told>(3, [&](std::unique_ptr<Transport> transport, Told* rank) {
        std::unique_ptr<Communicator> base;
        ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &base));
        ONEBIT_RETURN_IF_ERROR(base->agree({}));
        if (base->rank() != 2) {
            std::unique_ptr<Communicator> communicator;
            const Status made = make_gpu_communicator(*base, onebit_test::gpu_rank(), {}, nullptr, &communicator);
            rank->said.emplace_back(onebit_status_string(made.code()));
            --waiting;
        }
        while (waiting > 0) std::this_thread::yield();
        return Status();
    });
    CHECK(told[0].said[0] == "ONEBIT_ERROR_TIMEOUT");
    CHECK(told[1].said[0] == "ONEBIT_ERROR_TIMEOUT");
}

/// The emulated NCCL where one call always fails.
NcclApi without_ids() {
    NcclApi api = EmulatedNccl::api();
    api.get_unique_id = [](nccl::UniqueId*) { return nccl::kRemoteError; };
    return api;
}
NcclApi without_joins() {
    NcclApi api = EmulatedNccl::api();
    api.comm_init_rank_config = [](nccl::Comm*, int, nccl::UniqueId, int, nccl::Config*) { return nccl::kRemoteError; };
    return api;
}
NcclApi without_splits() {
    NcclApi api = EmulatedNccl::api();
    api.comm_split = [](nccl::Comm, int, int, nccl::Comm*, nccl::Config*) { return nccl::kRemoteError; };
    return api;
}

TEST_CASE("NCCL that fails in one node fails on all ranks, and nobody waits for ever", "[nccl]") {
    const Variable places("ONEBIT_NODE_SIZE", "2");
    const Variable forced("ONEBIT_GPU_TRANSPORT", "nccl_in_node");
    const Variable timeout("ONEBIT_TIMEOUT", "1");
    const NcclApi ids = without_ids();
    const NcclApi joins = without_joins();
    const NcclApi splits = without_splits();
    const EmulatedNccl nccl;
    const auto run = [&](const NcclApi& broken, int first) {
        return onebit_test::run_loopback_ranks<Told>(4, [&](std::unique_ptr<Transport> transport, Told* rank) {
            GpuRank here = onebit_test::gpu_rank();
            if (transport->rank() >= first) here.nccl = &broken;
            std::unique_ptr<Communicator> communicator;
            ONEBIT_RETURN_IF_ERROR(onebit_test::make_gpu_rank(std::move(transport), here, &communicator));
            return average(*communicator, ONEBIT_MEMORY_CUDA, ONEBIT_ALGORITHM_TWO_LEVEL, rank);
        });
    };
    for (const Told& rank : run(ids, 2)) {
        CHECK(rank.status.code() == ONEBIT_ERROR_TRANSPORT);
        CHECK_THAT(rank.status.message(), StartsWith("rank 2: ncclGetUniqueId"));
    }
    for (const Told& rank : run(joins, 3)) { // its neighbour's time is up about when the other node's is
        CHECK((rank.status.code() == ONEBIT_ERROR_TRANSPORT || rank.status.code() == ONEBIT_ERROR_TIMEOUT));
    }
    for (const Told& rank : run(splits, 2)) {
        CHECK(rank.status.code() == ONEBIT_ERROR_TRANSPORT);
        CHECK_THAT(rank.status.message(), ContainsSubstring("ncclCommSplit"));
    }
}

} // namespace
} // namespace onebit
