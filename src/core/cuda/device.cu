// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cctype>
#include <cstring>
#include <new>
#include <stdexcept>

#include "core/copy_bytes.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"

namespace onebit::cuda {
namespace {

void require(const Status& status) {
    if (status.code() == ONEBIT_ERROR_OUT_OF_MEMORY) throw std::bad_alloc();
    if (!status.ok()) throw std::runtime_error(status.message());
}

} // namespace

// ------------------------------------------------------------------------------------------ devices and addresses ----

namespace {

/// Looks for a function of the driver, which nothing links: NULL as long as the program hasn't loaded it.
template <typename Function>
class DriverFunction {
  public:
    explicit constexpr DriverFunction(const char* name) : name_(name) {}

    Function* get() {
        Function* function = known_.load(std::memory_order_relaxed);
        if (function != nullptr) return function;
        void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); // kept open from then on
        if (driver == nullptr) return nullptr;
        function = reinterpret_cast<Function*>(dlsym(driver, name_));
        known_ = function;
        return function;
    }

  private:
    const char* name_;
    std::atomic<Function*> known_ = nullptr;
};

// Their names in the library, which the header's macros hide.
DriverFunction<decltype(cuPointerGetAttribute)> pointer_get_attribute("cuPointerGetAttribute");
DriverFunction<CUresult(CUstream, CUdevice*)> stream_get_device("cuStreamGetDevice"); // from 12.8 on
DriverFunction<CUresult(CUstream, CUcontext*)> stream_get_context("cuStreamGetCtx");
DriverFunction<decltype(cuCtxGetDevice)> context_get_device("cuCtxGetDevice");
DriverFunction<decltype(cuDeviceGet)> device_get("cuDeviceGet");
DriverFunction<decltype(cuDevicePrimaryCtxRetain)> primary_retain("cuDevicePrimaryCtxRetain");
DriverFunction<decltype(cuDevicePrimaryCtxRelease)> primary_release("cuDevicePrimaryCtxRelease_v2");
DriverFunction<decltype(cuCtxPushCurrent)> push_current("cuCtxPushCurrent_v2");
DriverFunction<decltype(cuCtxPopCurrent)> pop_current("cuCtxPopCurrent_v2");
DriverFunction<decltype(cuThreadExchangeStreamCaptureMode)> exchange_mode("cuThreadExchangeStreamCaptureMode");

} // namespace

namespace {

/// The GPU of the stream's context.
CUresult find_by_context(Stream stream, CUdevice* device) {
    CUcontext context = nullptr;
    const bool there = stream_get_context.get() != nullptr && push_current.get() != nullptr &&
                       context_get_device.get() != nullptr && pop_current.get() != nullptr;
    if (!there) return CUDA_ERROR_NOT_FOUND;
    if (const CUresult found = stream_get_context.get()(stream, &context); found != CUDA_SUCCESS) return found;
    if (const CUresult pushed = push_current.get()(context); pushed != CUDA_SUCCESS) return pushed;
    const CUresult told = context_get_device.get()(device);
    (void)pop_current.get()(&context);
    return told;
}

/// Asks the driver, because the runtime's own cudaStreamGetDevice needs a toolkit and a driver from 12.8 on.
Status device_of_own(Stream stream, int* device) {
    CUdevice found = 0; // a device's number
    auto* const question = stream_get_device.get();
    switch (const CUresult result = question != nullptr ? question(stream, &found) : find_by_context(stream, &found)) {
        case CUDA_SUCCESS:
            *device = found;
            return {};
        case CUDA_ERROR_INVALID_VALUE:
        case CUDA_ERROR_INVALID_HANDLE:
        case CUDA_ERROR_INVALID_CONTEXT:
        case CUDA_ERROR_CONTEXT_IS_DESTROYED:
            return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "CUDA stream: %s", kNoStream);
        default:
            return Status::error(ONEBIT_ERROR_INTERNAL, "CUDA stream: its GPU is not to be found: error %d",
                                 static_cast<int>(result));
    }
}

} // namespace

Status device_of(Stream stream, int* device) {
    // The calls below succeed without a device; later calls would fail.
    int devices = 0;
    ONEBIT_RETURN_IF_ERROR(check("device", cudaGetDeviceCount(&devices)));
    const bool is_default = stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
    return is_default ? check("device", cudaGetDevice(device)) : device_of_own(stream, device);
}

Status check_same_in_all_threads(Stream stream) {
    if (stream != cudaStreamPerThread) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                         "stream: cudaStreamPerThread is another stream in each of NCCL's threads");
}

Status check_not_captured(Stream stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(stream, &status);
    if (error != cudaSuccess) (void)cudaGetLastError(); // a failed device reports this again to its next user
    // The default stream is caught up in the capture of one that waits for it.
    if (error != cudaErrorStreamCaptureImplicit && (error != cudaSuccess || status == cudaStreamCaptureStatusNone)) {
        return {};
    }
    return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                         "config.stream is being captured into a graph, which no call can be");
}

Status bus_id_of(int device, std::string* bus_id) {
    char text[32] = "";
    ONEBIT_RETURN_IF_ERROR(check("device", cudaDeviceGetPCIBusId(text, sizeof(text), device)));
    *bus_id = text;
    for (char& letter : *bus_id) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    return {};
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

// Through the driver: the runtime knows only one current device for each thread. Setting it back to a device that a
// thread has never asked for would make a context there.

Status Device::open() {
    CUcontext context = nullptr;
    CUdevice device = 0;
    const bool there = device_get.get() != nullptr && primary_retain.get() != nullptr &&
                       primary_release.get() != nullptr && push_current.get() != nullptr &&
                       pop_current.get() != nullptr;
    if (!there || device_get.get()(&device, number_) != CUDA_SUCCESS ||
        primary_retain.get()(&context, device) != CUDA_SUCCESS) {
        return Status::error(ONEBIT_ERROR_INTERNAL, "CUDA: no context on GPU %d", number_);
    }
    context_ = context;
    return {};
}

Device::~Device() {
    CUdevice device = 0;
    if (context_ != nullptr && device_get.get()(&device, number_) == CUDA_SUCCESS) {
        (void)primary_release.get()(device);
    }
}

namespace {

// How often this thread has entered one, and what captures forbade it before the first time.
thread_local unsigned entered = 0;
thread_local CUstreamCaptureMode mode_outside = CU_STREAM_CAPTURE_MODE_GLOBAL;

/// Leaves in *mode the mode that it replaces.
void exchange_capture_mode(CUstreamCaptureMode* mode) {
    if (auto* const exchange = exchange_mode.get(); exchange != nullptr) (void)exchange(mode);
}

} // namespace

void Device::enter() const {
    (void)push_current.get()(static_cast<CUcontext>(context_));
    if (entered++ > 0) return;
    mode_outside = CU_STREAM_CAPTURE_MODE_RELAXED;
    exchange_capture_mode(&mode_outside);
}

void Device::leave() const {
    if (--entered == 0) exchange_capture_mode(&mode_outside);
    CUcontext left = nullptr;
    (void)pop_current.get()(&left);
}

bool is_loaded() {
    return pointer_get_attribute.get() != nullptr;
}

bool is_on_device(const void* address) {
    auto* const question = pointer_get_attribute.get();
    if (question == nullptr) return false;
    const auto place = reinterpret_cast<CUdeviceptr>(address);
    unsigned type = 0;
    unsigned managed = 0;
    return question(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, place) == CUDA_SUCCESS &&
           question(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, place) == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE &&
           managed == 0;
}

std::uint64_t allocation_of(const void* address) {
    auto* const question = pointer_get_attribute.get();
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
    require(check("malloc", cudaMalloc(&memory, bytes)));
    try {
        fill_zero(memory, bytes);
    } catch (...) {
        release(memory, bytes);
        throw;
    }
    return memory;
}

void DeviceMemory::release(void* memory, std::size_t /*bytes*/) {
    (void)check("free", cudaFree(memory)); // waits for work that still uses it
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

Status copy_rows_later(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t bytes,
                       std::size_t rows, Stream stream) {
    if (rows == 1) return copy_later(to, from, bytes, stream);
    return check("memcpy2D", cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, bytes, rows, cudaMemcpyDefault, stream));
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
        require(check("host memory", cudaHostAlloc(&memory, bytes, cudaHostAllocPortable)));
        fill_zero(memory, bytes);
        return memory;
    }
    void release(void* memory, std::size_t /*bytes*/) override {
        (void)check("free of host memory", cudaFreeHost(memory));
    }
    void copy(void* to, const void* from, std::size_t bytes) override { copy_bytes(to, from, bytes); }
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
