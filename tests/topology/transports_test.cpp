// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Which transports are chosen on which machine, and the reasons given.
#include "topology/transports.hpp"

#include "support/catch2.hpp"
#include "topology/machines.hpp"

using namespace onebit;
using namespace onebit_test;

namespace {

// A rank for each GPU, their buffers in its memory, CUDA and NCCL as they should be.
Surroundings gpus(std::size_t nodes, std::size_t ranks_per_node) {
    Surroundings surroundings;
    surroundings.nodes = nodes;
    surroundings.ranks_per_node = ranks_per_node;
    surroundings.device_memory = true;
    surroundings.cuda = {true, 13000, ""};
    surroundings.nccl = {true, 22809, ""};
    return surroundings;
}

void check_choice(const char* machine, const Surroundings& surroundings, Transports transports, const char* reason) {
    const TransportChoice choice = choose_transports(machine_of(machine), surroundings);
    CHECK(choice.transports == transports);
    CHECK(choice.reason == reason);
}

} // namespace

TEST_CASE("GPUs with RDMA NICs nearby: NCCL throughout", "[topology]") {
    check_choice("four-gpus-nvlink", gpus(16, 4), Transports::kNccl,
                 "each GPU has an RDMA NIC at most PIX away, which sends from its memory");
    check_choice("eight-gpus-switches", gpus(2, 8), Transports::kNccl,
                 "each GPU has an RDMA NIC at most PIX away, which sends from its memory");
}

TEST_CASE("one node: NCCL", "[topology]") {
    check_choice("four-gpus-nvlink", gpus(1, 4), Transports::kNccl, "one node, NVLink between all GPUs");
    check_choice("four-gpus-nvswitch", gpus(1, 4), Transports::kNccl, "one node, NVLink between all GPUs");
    check_choice("two-gpus-pcie", gpus(1, 2), Transports::kNccl, "one node, at most PHB between GPUs, no NVLink known");
}

TEST_CASE("no RDMA NIC that is up nearby: bits between nodes go by MPI", "[topology]") {
    check_choice("two-gpus-pcie", gpus(2, 2), Transports::kNcclInsideMpiAcross,
                 "GPU0 has no RDMA NIC that is up under its own host bridge; inside a node: at most PHB between GPUs, "
                 "no NVLink known");
    check_choice("two-gpus-pcie", gpus(2, 1), Transports::kMpi,
                 "GPU0 has no RDMA NIC that is up under its own host bridge, and one rank per node leaves NCCL nothing "
                 "to do inside");
    Machine machine = machine_of("four-gpus-nvlink");
    machine.nics[2].up = false;
    const TransportChoice choice = choose_transports(machine, gpus(16, 4));
    CHECK(choice.transports == Transports::kNcclInsideMpiAcross);
    CHECK(choice.reason ==
          "GPU2 has no RDMA NIC that is up under its own host bridge; inside a node: NVLink between all GPUs");
}

TEST_CASE("what keeps NCCL out is named", "[topology]") {
    Surroundings host = gpus(2, 4);
    host.device_memory = false;
    check_choice("four-gpus-nvlink", host, Transports::kMpi, "the buffers lie in host memory");
    check_choice("no-gpu", gpus(2, 1), Transports::kMpi, "the machine has no NVIDIA GPU");
    check_choice("four-gpus-nvlink", gpus(2, 8), Transports::kMpi, "NCCL wants a GPU for each rank: 8 ranks share 4");
    Surroundings no_driver = gpus(2, 4);
    no_driver.cuda = {false, 0, "the driver has no device"};
    check_choice("four-gpus-nvlink", no_driver, Transports::kMpi, "CUDA: the driver has no device");
    Surroundings old_nccl = gpus(2, 4);
    old_nccl.nccl = {false, 21805, "version 2.18.5 is older than 2.19.0"};
    check_choice("four-gpus-nvlink", old_nccl, Transports::kMpi, "NCCL: version 2.18.5 is older than 2.19.0");
}

TEST_CASE("what is looked for at run time is there, or it is said why not", "[topology]") {
    int devices = -1;
    const Runtime cuda = find_cuda_driver(&devices);
    CHECK(cuda.usable == (devices > 0));
    CHECK(cuda.usable == cuda.why_not.empty());
    const Runtime nccl = find_nccl();
    CHECK(nccl.usable == (nccl.version >= kOldestNccl));
    CHECK(nccl.usable == nccl.why_not.empty());
    CHECK(nccl_version_text(22809) == "2.28.9");
    CHECK(cuda_version_text(13000) == "13.0");
}
