// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/memory_backend.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "collectives/sums/halving_doubling.hpp"
#include "collectives/sums/pipelined_sum.hpp"

namespace onebit {
namespace {

/// Addresses known to be of the host's memory; CUDA needs half a microsecond to tell. Such an address stays the host's:
/// it could be a GPU's only after the program gave it back to the system and CUDA took it. One thread at a time.
class HostAddresses {
  public:
    bool has(const void* address) const { return known_[slot_of(address)] == address; }
    void add(const void* address) { known_[slot_of(address)] = address; }

  private:
    static constexpr std::size_t kSlots = 256;
    static std::size_t slot_of(const void* address) {
        const auto bits = reinterpret_cast<std::uintptr_t>(address);
        return (bits ^ bits >> 8 ^ bits >> 16) % kSlots; // neighbours' low bits differ, and pages' high ones
    }
    std::array<const void*, kSlots> known_{};
};

class HostBackend final : public MemoryBackend {
  public:
    Status check_buffer(const void* buffer, const char* name) const override {
        if (!watches_ || known_.has(buffer)) return {};
        if (!is_on_device(buffer)) {
            known_.add(buffer);
            return {};
        }
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "%s = %p is in a GPU's memory, where config.memory doesn't say that it is", name, buffer);
    }
    Status reach(const Environment&, std::unique_ptr<Transport>*) const override { return {}; }
    std::unique_ptr<Arithmetic> make_arithmetic(unsigned threads) const override {
        return std::make_unique<HostArithmetic>(threads);
    }
    std::unique_ptr<Search> make_search(const Elements& elements) const override {
        return std::make_unique<HostSearch>(elements);
    }
    Status make_dense(Transport& channel, const NodeGroups& nodes, const Elements& elements, std::size_t count,
                      unsigned threads, int tag, std::unique_ptr<Algorithm>* dense) const override {
        const auto ranks = static_cast<std::size_t>(channel.size());
        if (elements.type() != ONEBIT_FLOAT32 || !HalvingDoubling::suits(count, ranks)) {
            return PipelinedSum::create(channel, nodes, elements, count, threads, tag, dense);
        }
        return HalvingDoubling::create(channel, make_arithmetic(1), count, HalvingDoubling::quicker_way(count, ranks),
                                       tag, dense);
    }

  private:
    bool watches_ = has_cuda_addresses();
    mutable HostAddresses known_;
};

} // namespace

Status make_memory_backend(onebit_memory_t memory, void* stream, std::shared_ptr<const MemoryBackend>* backend) {
    if (memory == ONEBIT_MEMORY_CUDA) return make_cuda_backend(stream, backend);
    *backend = std::make_shared<HostBackend>();
    return {};
}

} // namespace onebit
