// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <new>
#include <stdexcept>

#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"

namespace onebit::cuda {
namespace {

void require(const Status& status) {
    if (!status.ok()) throw std::runtime_error(status.message());
}

} // namespace

// ------------------------------------------------------------------------------------------ devices and addresses ----

Status device_of(Stream stream, int* device) {
#if CUDART_VERSION >= 12080
    if (stream != nullptr) return check("stream", cudaStreamGetDevice(stream, device));
#endif
    // The call succeeds without a device; what comes after it would not.
    int devices = 0;
    ONEBIT_RETURN_IF_ERROR(check("device", cudaGetDeviceCount(&devices)));
    return check("device", cudaGetDevice(device));
}

int set_device(int device) {
    int before = 0;
    if (cudaGetDevice(&before) != cudaSuccess) before = device;
    if (before != device) (void)check("device", cudaSetDevice(device));
    return before;
}

Status place_of(const void* address, Place* place) {
    cudaPointerAttributes attributes{};
    ONEBIT_RETURN_IF_ERROR(check("pointer", cudaPointerGetAttributes(&attributes, address)));
    switch (attributes.type) {
        case cudaMemoryTypeDevice:
            *place = {Place::kDevice, attributes.device};
            break;
        case cudaMemoryTypeManaged:
            *place = {Place::kManaged, attributes.device};
            break;
        default:
            *place = {};
    }
    return {};
}

namespace {

/// The driver's own question, for which nothing links the driver: NULL as long as the program hasn't loaded it.
auto* pointer_question() {
    static std::atomic<decltype(&cuPointerGetAttribute)> known = nullptr;
    auto* question = known.load(std::memory_order_relaxed);
    if (question != nullptr) return question;
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); // kept open from then on
    if (driver == nullptr) return question;
    question = reinterpret_cast<decltype(&cuPointerGetAttribute)>(dlsym(driver, "cuPointerGetAttribute"));
    known = question;
    return question;
}

} // namespace

bool is_loaded() {
    return pointer_question() != nullptr;
}

std::uint64_t allocation_of(const void* address) {
    auto* const question = pointer_question();
    unsigned long long number = 0;
    if (question == nullptr ||
        question(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, reinterpret_cast<CUdeviceptr>(address)) != CUDA_SUCCESS) {
        return 0;
    }
    return number;
}

// ------------------------------------------------------------------------------------------------ device memory ----

void* DeviceMemory::allocate(std::size_t bytes) {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    const Status status = check("malloc", error);
    if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
    require(status);
    try {
        fill_zero(memory, bytes);
    } catch (...) {
        release(memory, bytes);
        throw;
    }
    return memory;
}

void DeviceMemory::release(void* memory, std::size_t /*bytes*/) {
    (void)check("free", cudaFree(memory)); // waits for what still uses it
}

void DeviceMemory::copy(void* to, const void* from, std::size_t bytes) {
    require(copy_later(to, from, bytes, stream_));
    require(wait_for(stream_));
}

void DeviceMemory::fill_zero(void* memory, std::size_t bytes) {
    require(check("memset", cudaMemsetAsync(memory, 0, bytes, stream_)));
}

Status copy_later(void* to, const void* from, std::size_t bytes, Stream stream) {
    return check("memcpy", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

Status wait_for(Stream stream) {
    return check("stream", cudaStreamSynchronize(stream));
}

// ------------------------------------------------------------------------------------------------ pinned memory ----

namespace {

class PinnedMemory final : public Memory {
  public:
    void* allocate(std::size_t bytes) override {
        void* memory = nullptr;
        if (!check("host memory", cudaHostAlloc(&memory, bytes, cudaHostAllocPortable)).ok()) throw std::bad_alloc();
        fill_zero(memory, bytes);
        return memory;
    }
    void release(void* memory, std::size_t /*bytes*/) override {
        (void)check("free of host memory", cudaFreeHost(memory));
    }
    void copy(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
    void fill_zero(void* memory, std::size_t bytes) override { std::memset(memory, 0, bytes); }
};

} // namespace

Memory& pinned_memory() {
    static PinnedMemory memory;
    return memory;
}

// -------------------------------------------------------------------------------------------------------- Event ----

Event::~Event() {
    if (event_ != nullptr) (void)check("event", cudaEventDestroy(event_));
}

Status Event::record(Stream stream) {
    if (event_ == nullptr) {
        ONEBIT_RETURN_IF_ERROR(check("event", cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)));
    }
    return check("event", cudaEventRecord(event_, stream));
}

Status Event::test(bool* reached) const {
    const cudaError_t error = cudaEventQuery(event_);
    *reached = error == cudaSuccess;
    if (error != cudaErrorNotReady) return check("stream", error);
    (void)cudaGetLastError(); // no error, but the program's own next check would find it
    return {};
}

} // namespace onebit::cuda
