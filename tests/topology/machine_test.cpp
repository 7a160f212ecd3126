// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The data read from machines of several shapes: hwloc's dumps in machines/, and the machine of the test.
#include "topology/machine.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "support/catch2.hpp"
#include "topology/machines.hpp"

using namespace onebit;
using namespace onebit_test;

namespace {

using Paths = std::vector<std::vector<Path>>;
constexpr Path self = Path::kSelf, pix = Path::kPix, pxb = Path::kPxb, phb = Path::kPhb, node = Path::kNode,
               sys = Path::kSys;

// A file for one test alone.
class File {
  public:
    explicit File(const std::string& text) {
        std::snprintf(name_, sizeof(name_), "/tmp/onebit-machine-XXXXXX");
        const int descriptor = mkstemp(name_);
        REQUIRE(descriptor >= 0);
        close(descriptor);
        std::ofstream(name_) << text;
    }
    ~File() { std::remove(name_); }
    const char* name() const { return name_; }

  private:
    char name_[32];
};

std::string read_file(const std::string& name) {
    std::ifstream file(name);
    return {std::istreambuf_iterator<char>(file), {}};
}

void check_refused(const char* xml) {
    Machine machine;
    machine.host = "as it was";
    const Status status = read_machine(xml, &machine);
    CHECK(status.code() == ONEBIT_ERROR_INVALID_ARGUMENT);
    CHECK_THAT(status.message(), ContainsSubstring(xml));
    CHECK(machine.host == "as it was");
}

} // namespace

TEST_CASE("four GPUs with NVLink, a NIC beside each", "[topology]") {
    const Machine machine = machine_of("four-gpus-nvlink");
    CHECK(machine.host == "node17");
    REQUIRE(machine.sockets.size() == 2);
    CHECK(machine.sockets[1].cores == 4);
    REQUIRE(machine.gpus.size() == 4);
    CHECK(machine.gpus[0].bus_id == "0000:12:00.0");
    CHECK(machine.gpus[0].name == "GH100 [H100 SXM5 80GB]");
    CHECK(machine.gpus[1].socket == 0);
    CHECK(machine.gpus[2].socket == 1);
    REQUIRE(machine.nics.size() == 4);
    CHECK(machine.nics[3].name == "mlx5_3");
    CHECK(machine.nics[3].rdma);
    CHECK(machine.nics[3].up);
    CHECK(machine.gpu_to_gpu ==
          Paths{{self, node, sys, sys}, {node, self, sys, sys}, {sys, sys, self, node}, {sys, sys, node, self}});
    CHECK(machine.gpu_to_nic ==
          Paths{{pix, node, sys, sys}, {node, pix, sys, sys}, {sys, sys, pix, node}, {sys, sys, node, pix}});
    for (std::size_t a = 0; a < 4; ++a) {
        for (std::size_t b = 0; b < 4; ++b) CHECK(machine.nvlink[a][b] == (a == b ? 0 : 150000));
    }
}

TEST_CASE("four GPUs whose NVLinks all lead to switches", "[topology]") {
    const Machine machine = machine_of("four-gpus-nvswitch");
    REQUIRE(machine.gpus.size() == 4);
    for (std::size_t a = 0; a < 4; ++a) {
        for (std::size_t b = 0; b < 4; ++b) CHECK(machine.nvlink[a][b] == (a == b ? 0 : 300000));
    }
}

TEST_CASE("eight GPUs behind switches, a NIC on each switch", "[topology]") {
    const Machine machine = machine_of("eight-gpus-switches");
    REQUIRE(machine.gpus.size() == 8);
    REQUIRE(machine.nics.size() == 4);
    CHECK(machine.nics[2].name == "mlx5_2"); // and ib2, of the same device
    CHECK(machine.gpu_to_gpu[4] == std::vector<Path>{sys, sys, sys, sys, self, pix, node, node});
    CHECK(machine.gpu_to_nic[5] == std::vector<Path>{sys, sys, pix, node});
    CHECK(machine.nvlink[0][1] == 0);
}

TEST_CASE("two switches, one behind the other", "[topology]") {
    // A GPU under one port of the upper switch, its neighbour under a switch at another port.
    std::string text = read_file(dump_of("eight-gpus-switches"));
    const std::string gpu = R"(pci_busid="0000:13:00.0")";
    std::size_t begin = text.rfind("<object", text.find(gpu));
    const std::string lower = R"(<object type="Bridge" gp_index="9001" bridge_type="1-1" depth="3" )"
                              R"(bridge_pci="0000:[13-13]" pci_busid="0000:13:01.0" )"
                              R"(pci_type="0604 [1000:c030] [0000:0000] b0" pci_link_speed="31.5">)";
    text.insert(begin, lower);
    std::size_t end = begin + lower.size();
    for (int objects = 1; objects > 0;) { // to the end of the GPU, past the devices that it holds
        end = std::min(text.find("<object", end + 1), text.find("</object>", end + 1));
        const bool closes = text[end + 1] == '/';
        const bool empty = !closes && text[text.find('>', end) - 1] == '/';
        objects += closes ? -1 : empty ? 0 : 1;
    }
    text.insert(end, "</object>");
    Machine machine;
    REQUIRE(read_machine(File(text).name(), &machine).message() == "");
    CHECK(machine.gpu_to_gpu[0][1] == pxb);
    CHECK(machine.gpu_to_nic[0][0] == pix);
    CHECK(machine.gpu_to_nic[1][0] == pxb);
}

TEST_CASE("GPUs on PCIe alone, as seen without the driver's libraries", "[topology]") {
    const Machine machine = machine_of("two-gpus-pcie");
    REQUIRE(machine.gpus.size() == 2);
    CHECK(machine.gpu_to_gpu == Paths{{self, phb}, {phb, self}});
    REQUIRE(machine.nics.size() == 2);
    CHECK(machine.nics[0].name == "eth0");
    CHECK_FALSE(machine.nics[0].rdma);
    CHECK(machine.nics[1].rdma);
    CHECK_FALSE(machine.nics[1].up);
    CHECK(machine.gpu_to_nic == Paths{{phb, sys}, {phb, sys}});
}

TEST_CASE("no GPU", "[topology]") {
    const Machine machine = machine_of("no-gpu");
    CHECK(machine.gpus.empty());
    CHECK(machine.gpu_to_nic.empty());
    CHECK(machine.nics.size() == 1);
    CHECK(describe(machine) ==
          "cpu42: 2 sockets, 0 GPUs, 1 NIC\n"
          "|-- socket 0: 4 cores\n"
          "|   `-- eth0    0000:05:00.0  Ethernet\n"
          "`-- socket 1: 4 cores\n");
}

TEST_CASE("a machine in words", "[topology]") {
    CHECK(describe(machine_of("two-gpus-pcie")) ==
          "workstation: 2 sockets, 2 GPUs, 2 NICs\n"
          "|-- socket 0: 4 cores\n"
          "|   |-- GPU0    0000:01:00.0  TU104GL [Tesla T4]\n"
          "|   |-- GPU1    0000:02:00.0  TU104GL [Tesla T4]\n"
          "|   `-- eth0    0000:05:00.0  Ethernet\n"
          "`-- socket 1: 4 cores\n"
          "    `-- mlx5_0  0000:81:00.0  RDMA, all ports down\n"
          "\n"
          "          GPU0      GPU1      eth0      mlx5_0\n"
          "GPU0      X         PHB       PHB       SYS\n"
          "GPU1      PHB       X         PHB       SYS\n"
          "PIX: one PCIe switch; PXB: several; PHB: a host bridge; NODE: one socket; SYS: between sockets\n");
    const std::string nvlink = describe(machine_of("four-gpus-nvlink"));
    CHECK_THAT(nvlink, ContainsSubstring("GPU1      NV 150    X         NV 150    NV 150    NODE      PIX"));
    CHECK_THAT(nvlink, ContainsSubstring("NV: NVLink, GB/s"));
}

TEST_CASE("this machine, whatever it is", "[topology]") {
    Machine machine;
    REQUIRE(read_machine(nullptr, &machine).message() == "");
    CHECK(machine.sockets.size() >= 1);
    CHECK(machine.gpu_to_gpu.size() == machine.gpus.size());
    CHECK_FALSE(describe(machine).empty());
}

TEST_CASE("a device of the operating system without a name", "[topology][bad]") {
    const Machine machine = machine_of("osdev-without-name");
    REQUIRE(machine.nics.size() == 1);
    CHECK(machine.nics[0].name == "NIC");
    CHECK_FALSE(describe(machine).empty());
}

TEST_CASE("names of a dump don't steer a terminal", "[topology][bad]") {
    std::string text = read_file(dump_of("no-gpu"));
    const std::string host = R"(value="cpu42")";
    text.replace(text.find(host), host.size(),
                 "value=\"cpu\x7f"
                 "42&#9;\"");
    Machine machine;
    REQUIRE(read_machine(File(text).name(), &machine).message() == "");
    CHECK(machine.host == "cpu?42?");
}

TEST_CASE("a dump of a newer hwloc is called that, an older one is read", "[topology][bad]") {
    const std::string text = read_file(dump_of("no-gpu"));
    const std::string version = R"(<topology version="2.0">)";
    REQUIRE(text.find(version) != std::string::npos);
    const auto with = [&](const std::string& other) {
        std::string changed = text;
        return changed.replace(text.find(version), version.size(), other);
    };
    Machine machine;
    for (const char* newer : {"3.0", "3.1", "10.0"}) {
        const File file(with(std::string("<topology version=\"") + newer + "\">"));
        const Status status = read_machine(file.name(), &machine);
        CHECK(status.code() == ONEBIT_ERROR_INVALID_ARGUMENT);
        CHECK_THAT(status.message(), ContainsSubstring(file.name()) &&
                                         ContainsSubstring("this file is of hwloc " + std::to_string(std::atoi(newer)) +
                                                           ", this onebit_info reads hwloc 2"));
    }
    CHECK(read_machine(File(with(R"(<topology version="2.9">)")).name(), &machine).message() == "");
}

TEST_CASE("what is no regular file is no dump, and blocks nobody", "[topology][bad]") {
    File file("");
    std::remove(file.name());
    REQUIRE(mkfifo(file.name(), 0600) == 0);
    check_refused(file.name());
    check_refused("/tmp");
}

TEST_CASE("no dump, a damaged one, one of something else", "[topology][bad]") {
    check_refused("/nowhere/machine.xml");
    check_refused(File("").name());
    check_refused(File("not XML at all\n").name());
    check_refused(File("<?xml version=\"1.0\"?>\n<html><body/></html>\n").name());
    const std::string text = read_file(dump_of("four-gpus-nvlink"));
    for (const std::size_t part : {1, 2, 3}) check_refused(File(text.substr(0, text.size() * part / 4)).name());
}
