// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

#include "topology/machine.hpp"

namespace onebit {
namespace {

constexpr int kLabelWidth = 8;
constexpr int kCellWidth = 10;

std::string count_of(std::size_t count, const char* what) {
    std::ostringstream text;
    text << count << ' ' << what << (count == 1 ? "" : "s");
    return text.str();
}

std::string gpu_label(std::size_t index) {
    std::ostringstream text;
    text << "GPU" << index;
    return text.str();
}

/// A line for each device of a socket.
std::vector<std::string> devices_of(const Machine& machine, int socket) {
    std::vector<std::string> lines;
    const auto add = [&](const std::string& label, const std::string& bus_id, const std::string& what) {
        std::ostringstream line;
        line << std::left << std::setw(kLabelWidth) << label << bus_id << "  " << what;
        lines.push_back(line.str());
    };
    for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
        const Machine::Gpu& gpu = machine.gpus[i];
        if (gpu.socket == socket) add(gpu_label(i), gpu.bus_id, gpu.name);
    }
    for (const Machine::Nic& nic : machine.nics) {
        if (nic.socket == socket) {
            add(nic.name, nic.bus_id, nic.rdma ? nic.up ? "RDMA" : "RDMA, all ports down" : "Ethernet");
        }
    }
    return lines;
}

void add_branch(std::ostream& text, const std::string& title, const std::vector<std::string>& lines, bool last) {
    text << (last ? "`-- " : "|-- ") << title << '\n';
    for (std::size_t i = 0; i < lines.size(); ++i) {
        text << (last ? "    " : "|   ") << (i + 1 == lines.size() ? "`-- " : "|-- ") << lines[i] << '\n';
    }
}

void add_row(std::ostream& text, const std::string& label, const std::vector<std::string>& cells) {
    text << std::left << std::setw(kCellWidth) << label;
    for (std::size_t i = 0; i + 1 < cells.size(); ++i) text << std::setw(kCellWidth) << cells[i];
    text << cells.back() << '\n';
}

/// As nvidia-smi topo -m shows it; NVLink by its bandwidth.
void add_matrix(std::ostream& text, const Machine& machine) {
    std::vector<std::string> cells;
    for (std::size_t i = 0; i < machine.gpus.size(); ++i) cells.push_back(gpu_label(i));
    for (const Machine::Nic& nic : machine.nics) cells.push_back(nic.name);
    add_row(text, "", cells);
    bool nvlink = false;
    for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
        cells.clear();
        for (std::size_t j = 0; j < machine.gpus.size(); ++j) {
            const std::uint64_t rate = machine.nvlink[i][j];
            nvlink = nvlink || rate > 0;
            std::ostringstream cell;
            rate > 0 ? cell << "NV " << rate / 1000 : cell << path_name(machine.gpu_to_gpu[i][j]);
            cells.push_back(cell.str());
        }
        for (const Path path : machine.gpu_to_nic[i]) cells.emplace_back(path_name(path));
        add_row(text, gpu_label(i), cells);
    }
    text << "PIX: one PCIe switch; PXB: several; PHB: a host bridge; NODE: one socket; SYS: between sockets"
         << (nvlink ? "; NV: NVLink, GB/s\n" : "\n");
}

} // namespace

const char* path_name(Path path) {
    switch (path) {
        case Path::kSelf:
            return "X";
        case Path::kPix:
            return "PIX";
        case Path::kPxb:
            return "PXB";
        case Path::kPhb:
            return "PHB";
        case Path::kNode:
            return "NODE";
        case Path::kSys:
            return "SYS";
    }
    return "?";
}

std::string describe(const Machine& machine) {
    std::ostringstream text;
    text << machine.host << ": " << count_of(machine.sockets.size(), "socket") << ", "
         << count_of(machine.gpus.size(), "GPU") << ", " << count_of(machine.nics.size(), "NIC") << '\n';
    const std::vector<std::string> elsewhere = devices_of(machine, Machine::kNoSocket);
    for (std::size_t s = 0; s < machine.sockets.size(); ++s) {
        std::ostringstream title;
        title << "socket " << s << ": " << count_of(machine.sockets[s].cores, "core");
        const bool last = s + 1 == machine.sockets.size() && elsewhere.empty();
        add_branch(text, title.str(), devices_of(machine, static_cast<int>(s)), last);
    }
    if (!elsewhere.empty()) add_branch(text, "near no socket", elsewhere, true);
    if (!machine.gpus.empty()) {
        text << '\n';
        add_matrix(text, machine);
    }
    return text.str();
}

} // namespace onebit
