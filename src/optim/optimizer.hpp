// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <memory>

#include "collectives/call/stages.hpp"
#include "collectives/communicator/communicator.hpp"
#include "collectives/operation/memory_backend.hpp"
#include "core/status.hpp"

namespace onebit {

/// An optimizer over a caller's tensors; onebit.h says what each call means. Used by one thread at a time.
class Optimizer {
  public:
    virtual ~Optimizer() = default;

    /// A thread holds one of these during every other call here.
    virtual Entered enter() const = 0;
    /// The switch that ends its calls, and all else that its communicator has in flight.
    virtual const std::shared_ptr<AbortSwitch>& abort_switch() const = 0;

    virtual Status step() = 0;
    virtual Status start() = 0; // these three: of a step
    virtual Status test(bool* done) = 0;
    virtual Status wait() = 0;
    /// As test, but a later test or wait still tells how the step ended. Without a started step, moves on exchanges
    /// that began before a step. Always a success.
    virtual Status move_on(bool* done) = 0;
    virtual UnderWay under_way() const = 0;
    virtual Status cancel_step(const char* reason) = 0;
    virtual Status grad_ready(std::size_t tensor) = 0;
    virtual Status set_gradients(std::size_t tensor, const void* gradients) = 0;
    virtual Status set_all_gradients(const void* const* gradients, std::size_t num_tensors) = 0;
    virtual Status set_parameters(std::size_t tensor, float* parameters) = 0;
    virtual Status set_lr(double lr) = 0;
    virtual Status set_group_lr(std::size_t group, double lr) = 0;
    virtual Status set_group(std::size_t group, const onebit_param_group_t* settings) = 0;
    virtual Status set_gradient_scale(double scale) = 0;
    virtual Status set_max_grad_norm(double max_grad_norm) = 0;
    virtual Status freeze() = 0;
    virtual Status reset_error() = 0;
    virtual Status get_error(float* worker, float* server) const = 0;
    virtual Status save(const char* prefix) = 0;
    virtual Status load(const char* prefix) = 0;
    virtual Status state_size(std::uint64_t* bytes) = 0;
    virtual Status pack_state(void* buffer, std::uint64_t bytes) = 0;
    virtual Status unpack_state(const void* const* blobs, const std::uint64_t* bytes, std::size_t num_blobs) = 0;
    virtual Status get_state(std::size_t tensor, onebit_state_t which, float* values) const = 0;
    virtual Status set_state(std::size_t tensor, onebit_state_t which, const float* values) = 0;
    virtual Status set_steps(std::uint64_t steps) = 0;
    /// BUSY while a step has begun and is not finished. A step that can never finish ends here.
    virtual Status prepare_to_be_destroyed() = 0;
    virtual void fill_info(onebit_optimizer_info_t* info) const = 0;
};

/// Makes the optimizer of the config's kind. `own`: what is already wrong on this rank, if anything. Collective;
/// blocks.
Status make_optimizer(Communicator& communicator, const onebit_optimizer_config_t* config,
                      const onebit_tensor_t* tensors, std::size_t num_tensors, const Status& own,
                      std::unique_ptr<Optimizer>* optimizer);

} // namespace onebit
