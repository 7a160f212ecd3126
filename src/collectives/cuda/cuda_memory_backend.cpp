// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "collectives/operation/memory_backend.hpp"
#include "collectives/sums/dense.hpp"
#include "collectives/sums/halving_doubling.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/pointers.hpp"
#include "numeric/cuda/cuda_arithmetic.hpp"
#include "numeric/cuda/cuda_search.hpp"
#include "numeric/cuda/kernels.hpp"
#include "transport/staged.hpp"

namespace onebit {
namespace {

/// The memory of the stream's device.
class CudaBackend final : public MemoryBackend {
  public:
    CudaBackend(cuda::Stream stream, std::shared_ptr<const cuda::Device> device)
        : stream_(stream), device_(std::move(device)), memory_(stream) {}

    Memory& memory() const override { return memory_; }

    Status check_ready() const override { return cuda::check_not_captured(stream_); }
    Status check_buffer(const void* buffer, const char* name) const override {
        cuda::Place place;
        ONEBIT_RETURN_IF_ERROR(pointers_.find(buffer, &place));
        if (place.kind == cuda::Place::kHost) {
            return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                                 "%s = %p is not in a GPU's memory, as config.memory says it is", name, buffer);
        }
        if (place.kind == cuda::Place::kDevice && place.device != device_->number()) {
            return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s = %p lies on GPU %d, config.stream is of GPU %d",
                                 name, buffer, place.device, device_->number());
        }
        return {};
    }

    Status reach(const Environment& environment, std::unique_ptr<Transport>* channel) const override {
        if ((*channel)->is_stream_ordered()) return {}; // in this stream, as the plan has seen
        const bool can = (*channel)->reaches_devices();
        if (environment.gpu_path == GpuPath::kDirect && !can) {
            return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                                 "environment: ONEBIT_GPU_PATH=direct: %s can't reach a GPU's memory here",
                                 (*channel)->name());
        }
        const bool direct = can && environment.gpu_path != GpuPath::kStaged;
        *channel = make_staged_transport(std::move(*channel), stream_, direct);
        return {};
    }
    std::unique_ptr<Arithmetic> make_arithmetic(unsigned /*threads*/) const override {
        return std::make_unique<CudaArithmetic>(stream_);
    }
    std::unique_ptr<Search> make_search(const Elements& /*floats*/) const override {
        return std::make_unique<CudaSearch>(stream_);
    }
    Status make_dense(Transport& channel, const NodeGroups& /*nodes*/, const Elements& /*floats*/, std::size_t count,
                      unsigned threads, int tag, std::unique_ptr<Algorithm>* dense) const override {
        std::unique_ptr<Arithmetic> arithmetic = make_arithmetic(threads);
        if (channel.is_stream_ordered()) return DenseAllreduce::create(channel, std::move(arithmetic), count, dense);
        return HalvingDoubling::create(channel, std::move(arithmetic), count, HalvingDoubling::Way::kHalving, tag,
                                       dense);
    }
    Status settle() const override { return cuda::wait_for(stream_); }

    void enter() const override { device_->enter(); }
    void leave() const override { device_->leave(); }

  private:
    cuda::Stream stream_;
    std::shared_ptr<const cuda::Device> device_;
    mutable cuda::DeviceMemory memory_;
    mutable cuda::Pointers pointers_;
};

} // namespace

Status make_cuda_backend(void* stream, std::shared_ptr<const MemoryBackend>* backend) {
    auto* const work = static_cast<cuda::Stream>(stream);
    std::shared_ptr<const cuda::Device> device;
    const Status found = [&] {
        ONEBIT_RETURN_IF_ERROR(cuda::open_device(work, &device));
        const cuda::OnDevice entered(*device);
        return cuda::check_code();
    }();
    if (!found.ok()) {
        return Status::error(found.code(), "config.memory: ONEBIT_MEMORY_CUDA: %s", found.message().c_str());
    }
    auto made = std::make_shared<CudaBackend>(work, std::move(device));
    const Entered entered(made);
    ONEBIT_RETURN_IF_ERROR(made->check_ready());
    *backend = std::move(made);
    return {};
}

bool has_cuda_addresses() {
    return cuda::is_loaded();
}

bool is_on_device(const void* address) {
    return cuda::is_on_device(address);
}

} // namespace onebit
