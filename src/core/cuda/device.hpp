// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/memory.hpp"
#include "core/status.hpp"

// What CUDA's own cudaStream_t and cudaEvent_t point to: no user of this header needs CUDA's.
struct CUstream_st;
struct CUevent_st;

namespace onebit::cuda {

using Stream = CUstream_st*;

/// The GPU that a stream's work runs on; for the default stream (NULL), the current GPU. UNSUPPORTED where there is no
/// GPU, INVALID_ARGUMENT for an invalid stream.
Status device_of(Stream stream, int* device);

/// INVALID_ARGUMENT for a stream that differs in each thread (cudaStreamPerThread), because NCCL has threads of its
/// own.
Status check_same_in_all_threads(Stream stream);

/// UNSUPPORTED while the stream's work is captured into a graph (cudaStreamBeginCapture). Adds no work.
Status check_not_captured(Stream stream);

/// Which of its machine's GPUs it is, by its place on the PCI bus, lower case: "0000:12:00.0".
Status bus_id_of(int device, std::string* bus_id);

/// A GPU that threads may enter, whatever else they work with. Its context comes before theirs until they leave. The
/// runtime's current device of these threads stays as it is. Meanwhile a capture of another stream, theirs or, in the
/// global mode, another thread's, neither forbids what they do there nor is ended by it, except on the default stream.
class Device {
  public:
    explicit Device(int number) : number_(number) {}
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    /// To be called first.
    Status open();
    int number() const { return number_; }
    void enter() const;
    void leave() const;

  private:
    int number_;
    void* context_ = nullptr; ///< held
};

/// The GPU of device_of(), ready to be entered.
inline Status open_device(Stream stream, std::shared_ptr<const Device>* device) {
    int number = 0;
    ONEBIT_RETURN_IF_ERROR(device_of(stream, &number));
    auto opened = std::make_shared<Device>(number);
    ONEBIT_RETURN_IF_ERROR(opened->open());
    *device = std::move(opened);
    return {};
}

/// While one exists, this thread is on a GPU.
class OnDevice {
  public:
    explicit OnDevice(const Device& device) : device_(device) { device_.enter(); }
    ~OnDevice() { device_.leave(); }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;

  private:
    const Device& device_;
};

/// The memory in which an address lies.
struct Place {
    enum Kind {
        kHost,    ///< also where it is pinned, or no memory at all
        kDevice,  ///< of one GPU
        kManaged, ///< that moves between GPUs and the host
    };
    Kind kind = kHost;
    int device = -1; ///< kDevice: which
};
Status place_of(const void* address, Place* place);
/// Whether the processor can't reach the address. Makes no context on any GPU.
bool is_on_device(const void* address);

/// Whether this program has loaded a CUDA driver. Doesn't load it, nor start it.
bool is_loaded();

/// The number of the CUDA allocation that an address lies in: no two ever have the same. 0: in none, or CUDA isn't
/// used.
std::uint64_t allocation_of(const void* address);

/// The memory of the current device; copying and zeroing are in order with the stream's work.
class DeviceMemory final : public Memory { // NOLINT(cppcoreguidelines-virtual-class-destructor): it is final
  public:
    explicit DeviceMemory(Stream stream) : stream_(stream) {}

    void* allocate(std::size_t bytes) override;
    void release(void* memory, std::size_t bytes) override;
    void copy(void* to, const void* from, std::size_t bytes) override;
    void fill_zero(void* memory, std::size_t bytes) override;

  private:
    Stream stream_;
};

/// Copies in order with the stream's work and doesn't wait for it. Memory of the host that isn't pinned is read before
/// this returns.
Status copy_later(void* to, const void* from, std::size_t bytes, Stream stream);
/// The same for rows of `bytes` bytes. Each row begins a pitch, at most kMostPitch, behind the one before.
Status copy_rows_later(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t bytes,
                       std::size_t rows, Stream stream);
inline constexpr std::size_t kMostPitch = 0x7fffffff;

/// Waits for all work of the stream; tells what went wrong on the device.
Status wait_for(Stream stream);

/// The host's memory, pinned: copies between it and a device don't wait for the processor.
Memory& pinned_memory();

/// A place in a stream's work.
class Event {
  public:
    Event() = default;
    ~Event();
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    /// Marks the place behind all work that the stream has so far.
    Status record(Stream stream);
    /// Whether the stream has come to that place; doesn't wait. Tells what went wrong on the device.
    Status test(bool* reached) const;

  private:
    CUevent_st* event_ = nullptr; ///< made when first recorded
};

} // namespace onebit::cuda
