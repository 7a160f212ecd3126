// onebit.hpp - a thin C++17 layer over onebit.h: handles that destroy themselves, errors as exceptions.
//
// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Each class owns one C handle; get() gives the handle for everything that has no method here. Each call has the
// meaning, the blocking behaviour and the errors of the C function with the same name (onebit.h). Over MPI, make the
// communicator with onebit_comm_create_mpi (onebit_mpi.h) and hand it to Communicator's constructor. Destructors ignore
// errors. A program that catches an Error on one rank alone should tell the others: Communicator::abort.
#ifndef ONEBIT_ONEBIT_HPP
#define ONEBIT_ONEBIT_HPP

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace onebit {

/// A call that failed: what() is the status' name, followed by the text of onebit_last_error.
class Error : public std::runtime_error {
  public:
    explicit Error(onebit_status_t status)
        : std::runtime_error(std::string(onebit_status_string(status)) + ": " + onebit_last_error()), status_(status) {}
    onebit_status_t status() const noexcept { return status_; }

  private:
    onebit_status_t status_;
};

/// Throws Error unless the status is a success.
inline void check(onebit_status_t status) {
    if (status != ONEBIT_SUCCESS) throw Error(status);
}

/// A C handle and the function that destroys it. Movable, not copyable.
template <typename Handle, onebit_status_t (*destroy)(Handle)>
class UniqueHandle {
  public:
    UniqueHandle() = default;
    explicit UniqueHandle(Handle handle) noexcept : handle_(handle) {}
    UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    UniqueHandle& operator=(UniqueHandle&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~UniqueHandle() { destroy(handle_); }

    Handle get() const noexcept { return handle_; }

  private:
    Handle handle_ = nullptr;
};

class Communicator {
  public:
    /// Takes over a handle, e.g. from onebit_comm_create_mpi.
    explicit Communicator(onebit_comm_t handle) noexcept : handle_(handle) {}

    /// Communicators whose ranks are threads of this process.
    static std::vector<Communicator> loopback(int ranks) {
        std::vector<onebit_comm_t> handles(ranks > 0 ? static_cast<std::size_t>(ranks) : 0);
        check(onebit_comm_create_loopback(ranks, handles.data()));
        return std::vector<Communicator>(std::make_move_iterator(handles.begin()),
                                         std::make_move_iterator(handles.end()));
    }

    /// The communicator of this rank's color. A negative color gives one without a handle (get() is NULL).
    Communicator split(int color, int key = 0) const {
        onebit_comm_t part = nullptr;
        check(onebit_comm_split(get(), color, key, &part));
        return Communicator(part);
    }

    int rank() const {
        int rank = 0;
        check(onebit_comm_rank(get(), &rank));
        return rank;
    }
    int size() const {
        int size = 0;
        check(onebit_comm_size(get(), &size));
        return size;
    }
    onebit_comm_info_t info() const {
        onebit_comm_info_t info = ONEBIT_COMM_INFO_INIT;
        check(onebit_comm_get_info(get(), &info));
        return info;
    }
    /// Sets an environment variable's value for handles and parts that are created from now on.
    void set(const char* name, const char* value) { check(onebit_comm_set(get(), name, value)); }
    void tune(std::uint64_t max_count, double seconds, const char* path = nullptr) {
        check(onebit_comm_tune(get(), max_count, seconds, path));
    }
    void tune(const std::vector<onebit_codec_t>& codecs, std::uint64_t max_count, double seconds,
              const char* path = nullptr) {
        check(onebit_comm_tune_codecs(get(), codecs.data(), codecs.size(), max_count, seconds, path));
    }
    /// Advances all operations that were started on its handles, and returns how many handles are not finished.
    int progress() {
        int active = 0;
        check(onebit_comm_progress(get(), &active));
        return active;
    }
    /// Ends every rank's calls on the communicator and its handles; from any thread.
    void abort(const char* reason = nullptr) { check(onebit_comm_abort(get(), reason)); }
    onebit_comm_t get() const noexcept { return handle_.get(); }

  private:
    UniqueHandle<onebit_comm_t, onebit_comm_destroy> handle_;
};

/// `size` elements of memory from onebit_mem_alloc, zero at first.
template <typename T>
class SharedArray {
    static_assert(std::is_trivial<T>::value, "other ranks see its bytes, and zero is all that they are at first");

  public:
    SharedArray(const Communicator& communicator, std::size_t size) : size_(size) {
        void* memory = nullptr;
        const bool fits = size <= SIZE_MAX / sizeof(T);
        check(onebit_mem_alloc(communicator.get(), fits ? size * sizeof(T) : SIZE_MAX, &memory));
        memory_ = UniqueHandle<void*, onebit_mem_free>(memory);
    }

    T* data() const noexcept { return static_cast<T*>(memory_.get()); }
    std::size_t size() const noexcept { return data() == nullptr ? 0 : size_; } // moved from: none
    T* begin() const noexcept { return data(); }
    T* end() const noexcept { return data() + size(); }
    T& operator[](std::size_t i) const noexcept { return data()[i]; }

  private:
    UniqueHandle<void*, onebit_mem_free> memory_;
    std::size_t size_;
};

/// Finishes a started operation, then destroys the handle. The operation still uses its buffers: declare them before
/// the handle.
inline onebit_status_t finish_and_destroy(onebit_allreduce_t handle) noexcept {
    if (handle != nullptr) onebit_allreduce_wait(handle);
    return onebit_allreduce_destroy(handle);
}

class Allreduce {
  public:
    Allreduce(const Communicator& communicator, const onebit_allreduce_config_t& config) {
        onebit_allreduce_t handle = nullptr;
        check(onebit_allreduce_create(communicator.get(), &config, &handle));
        handle_ = UniqueHandle<onebit_allreduce_t, finish_and_destroy>(handle);
    }

    /// The quickest codec of those with an error of at most `max_error` in a call.
    static onebit_codec_t choose_codec(const Communicator& communicator, const onebit_allreduce_config_t& config,
                                       double max_error) {
        onebit_codec_t codec = ONEBIT_CODEC_SIGN;
        check(onebit_allreduce_choose_codec(communicator.get(), &config, max_error, &codec));
        return codec;
    }
    void run(const void* sendbuf, void* recvbuf) { check(onebit_allreduce_run(get(), sendbuf, recvbuf)); }
    /// In place.
    void run(void* buffer) { run(buffer, buffer); }
    void start(const void* sendbuf, void* recvbuf) { check(onebit_allreduce_start(get(), sendbuf, recvbuf)); }
    bool test() {
        int done = 0;
        check(onebit_allreduce_test(get(), &done));
        return done != 0;
    }
    void wait() { check(onebit_allreduce_wait(get())); }
    /// The callback must not throw.
    void set_callback(onebit_callback_fn callback, void* context) {
        check(onebit_allreduce_set_callback(get(), callback, context));
    }
    void set_algorithm(onebit_algorithm_t algorithm) { check(onebit_allreduce_set_algorithm(get(), algorithm)); }
    void save(const std::string& prefix) { check(onebit_allreduce_save(get(), prefix.c_str())); }
    void load(const std::string& prefix) { check(onebit_allreduce_load(get(), prefix.c_str())); }
    onebit_allreduce_info_t info() const {
        onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
        check(onebit_allreduce_get_info(get(), &info));
        return info;
    }
    onebit_allreduce_t get() const noexcept { return handle_.get(); }

  private:
    UniqueHandle<onebit_allreduce_t, finish_and_destroy> handle_;
};

/// As for an allreduce.
inline onebit_status_t finish_and_destroy(onebit_reduce_scatter_t handle) noexcept {
    if (handle != nullptr) onebit_reduce_scatter_wait(handle);
    return onebit_reduce_scatter_destroy(handle);
}

class ReduceScatter {
  public:
    ReduceScatter(const Communicator& communicator, const onebit_shard_config_t& config) {
        onebit_reduce_scatter_t handle = nullptr;
        check(onebit_reduce_scatter_create(communicator.get(), &config, &handle));
        handle_ = UniqueHandle<onebit_reduce_scatter_t, finish_and_destroy>(handle);
    }

    /// sendbuf: the whole buffer. recvbuf: this rank's shard, which may lie in sendbuf (in place).
    void run(const void* sendbuf, void* recvbuf) { check(onebit_reduce_scatter_run(get(), sendbuf, recvbuf)); }
    void start(const void* sendbuf, void* recvbuf) { check(onebit_reduce_scatter_start(get(), sendbuf, recvbuf)); }
    bool test() {
        int done = 0;
        check(onebit_reduce_scatter_test(get(), &done));
        return done != 0;
    }
    void wait() { check(onebit_reduce_scatter_wait(get())); }
    /// The callback must not throw.
    void set_callback(onebit_callback_fn callback, void* context) {
        check(onebit_reduce_scatter_set_callback(get(), callback, context));
    }
    void set_algorithm(onebit_algorithm_t algorithm) { check(onebit_reduce_scatter_set_algorithm(get(), algorithm)); }
    void save(const std::string& prefix) { check(onebit_reduce_scatter_save(get(), prefix.c_str())); }
    void load(const std::string& prefix) { check(onebit_reduce_scatter_load(get(), prefix.c_str())); }
    onebit_shard_info_t info() const {
        onebit_shard_info_t info = ONEBIT_SHARD_INFO_INIT;
        check(onebit_reduce_scatter_get_info(get(), &info));
        return info;
    }
    onebit_reduce_scatter_t get() const noexcept { return handle_.get(); }

  private:
    UniqueHandle<onebit_reduce_scatter_t, finish_and_destroy> handle_;
};

/// As for an allreduce.
inline onebit_status_t finish_and_destroy(onebit_all_gather_t handle) noexcept {
    if (handle != nullptr) onebit_all_gather_wait(handle);
    return onebit_all_gather_destroy(handle);
}

class AllGather {
  public:
    AllGather(const Communicator& communicator, const onebit_shard_config_t& config) {
        onebit_all_gather_t handle = nullptr;
        check(onebit_all_gather_create(communicator.get(), &config, &handle));
        handle_ = UniqueHandle<onebit_all_gather_t, finish_and_destroy>(handle);
    }

    /// sendbuf: this rank's shard, which may lie in recvbuf (in place). recvbuf: the whole buffer.
    void run(const void* sendbuf, void* recvbuf) { check(onebit_all_gather_run(get(), sendbuf, recvbuf)); }
    void start(const void* sendbuf, void* recvbuf) { check(onebit_all_gather_start(get(), sendbuf, recvbuf)); }
    bool test() {
        int done = 0;
        check(onebit_all_gather_test(get(), &done));
        return done != 0;
    }
    void wait() { check(onebit_all_gather_wait(get())); }
    /// The callback must not throw.
    void set_callback(onebit_callback_fn callback, void* context) {
        check(onebit_all_gather_set_callback(get(), callback, context));
    }
    void set_algorithm(onebit_algorithm_t algorithm) { check(onebit_all_gather_set_algorithm(get(), algorithm)); }
    void save(const std::string& prefix) { check(onebit_all_gather_save(get(), prefix.c_str())); }
    void load(const std::string& prefix) { check(onebit_all_gather_load(get(), prefix.c_str())); }
    onebit_shard_info_t info() const {
        onebit_shard_info_t info = ONEBIT_SHARD_INFO_INIT;
        check(onebit_all_gather_get_info(get(), &info));
        return info;
    }
    onebit_all_gather_t get() const noexcept { return handle_.get(); }

  private:
    UniqueHandle<onebit_all_gather_t, finish_and_destroy> handle_;
};

/// Finishes a started step, then destroys the handle. A step that has only begun (onebit_optimizer_grad_ready) is
/// cancelled on all ranks instead. Tensors must outlive the handle: declare them before the handle.
inline onebit_status_t cancel_and_destroy(onebit_optimizer_t handle) noexcept {
    if (handle != nullptr) onebit_optimizer_step_wait(handle);
    const onebit_status_t destroyed = onebit_optimizer_destroy(handle);
    if (destroyed != ONEBIT_ERROR_BUSY) return destroyed;
    onebit_optimizer_cancel_step(handle, "its optimizer was destroyed");
    return onebit_optimizer_destroy(handle);
}

class Optimizer {
  public:
    Optimizer(const Communicator& communicator, const onebit_optimizer_config_t& config,
              const std::vector<onebit_tensor_t>& tensors) {
        onebit_optimizer_t handle = nullptr;
        check(onebit_optimizer_create(communicator.get(), &config, tensors.data(), tensors.size(), &handle));
        handle_ = UniqueHandle<onebit_optimizer_t, cancel_and_destroy>(handle);
    }

    void step() { check(onebit_optimizer_step(get())); }
    void step_start() { check(onebit_optimizer_step_start(get())); }
    bool step_test() {
        int done = 0;
        check(onebit_optimizer_step_test(get(), &done));
        return done != 0;
    }
    void step_wait() { check(onebit_optimizer_step_wait(get())); }
    /// The callback must not throw.
    void set_callback(onebit_callback_fn callback, void* context) {
        check(onebit_optimizer_set_callback(get(), callback, context));
    }
    /// Replaces step(). The calls of all ranks throw ONEBIT_ERROR_CANCELLED, this call too.
    void cancel_step(const std::string& reason) { check(onebit_optimizer_cancel_step(get(), reason.c_str())); }
    void grad_ready(std::size_t tensor) { check(onebit_optimizer_grad_ready(get(), tensor)); }
    void set_gradients(std::size_t tensor, const void* gradients) {
        check(onebit_optimizer_set_gradients(get(), tensor, gradients));
    }
    void set_all_gradients(const std::vector<const void*>& gradients) {
        check(onebit_optimizer_set_all_gradients(get(), gradients.data(), gradients.size()));
    }
    void set_parameters(std::size_t tensor, float* parameters) {
        check(onebit_optimizer_set_parameters(get(), tensor, parameters));
    }
    void set_group(std::size_t group, const onebit_param_group_t& settings) {
        check(onebit_optimizer_set_group(get(), group, &settings));
    }
    void set_max_grad_norm(double max_grad_norm) { check(onebit_optimizer_set_max_grad_norm(get(), max_grad_norm)); }
    void set_lr(double lr) { check(onebit_optimizer_set_lr(get(), lr)); }
    void set_group_lr(std::size_t group, double lr) { check(onebit_optimizer_set_group_lr(get(), group, lr)); }
    void set_gradient_scale(double scale) { check(onebit_optimizer_set_gradient_scale(get(), scale)); }
    void reset_error() { check(onebit_optimizer_reset_error(get())); }
    void save(const std::string& prefix) { check(onebit_optimizer_save(get(), prefix.c_str())); }
    void load(const std::string& prefix) { check(onebit_optimizer_load(get(), prefix.c_str())); }
    std::vector<unsigned char> pack_state() const {
        std::uint64_t bytes = 0;
        check(onebit_optimizer_state_size(get(), &bytes));
        std::vector<unsigned char> blob(bytes);
        check(onebit_optimizer_pack_state(get(), blob.data(), bytes));
        return blob;
    }
    void unpack_state(const std::vector<std::vector<unsigned char>>& blobs) {
        std::vector<const void*> pointers;
        std::vector<std::uint64_t> bytes;
        for (const std::vector<unsigned char>& blob : blobs) {
            pointers.push_back(blob.data());
            bytes.push_back(blob.size());
        }
        check(onebit_optimizer_unpack_state(get(), pointers.data(), bytes.data(), blobs.size()));
    }
    /// `values` gets as many floats as the tensor has elements.
    void get_state(std::size_t tensor, onebit_state_t which, float* values) const {
        check(onebit_optimizer_get_state(get(), tensor, which, values));
    }
    void set_state(std::size_t tensor, onebit_state_t which, const float* values) {
        check(onebit_optimizer_set_state(get(), tensor, which, values));
    }
    void set_steps(std::uint64_t steps) { check(onebit_optimizer_set_steps(get(), steps)); }
    void freeze() { check(onebit_optimizer_freeze(get())); }
    onebit_optimizer_info_t info() const {
        onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
        check(onebit_optimizer_get_info(get(), &info));
        return info;
    }
    onebit_optimizer_t get() const noexcept { return handle_.get(); }

  private:
    UniqueHandle<onebit_optimizer_t, cancel_and_destroy> handle_;
};

} // namespace onebit

#endif // ONEBIT_ONEBIT_HPP
