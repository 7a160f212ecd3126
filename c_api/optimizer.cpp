// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include "c_api/guard.hpp"
#include "collectives/communicator/together.hpp"

using onebit::Optimizer;
using onebit::Status;

onebit_status_t onebit_optimizer_create(onebit_comm_t comm, const onebit_optimizer_config_t* config,
                                        const onebit_tensor_t* tensors, size_t num_tensors,
                                        onebit_optimizer_t* optimizer) noexcept {
    return onebit::guard([&] {
        onebit::Output<Optimizer, onebit_optimizer_t> output(optimizer, "optimizer", comm);
        return onebit::with_object<onebit::Communicator>(comm, [&](onebit::Communicator& communicator) {
            std::unique_ptr<Optimizer> made;
            ONEBIT_RETURN_IF_ERROR(onebit::together(communicator, [&] {
                return onebit::make_optimizer(communicator, config, tensors, num_tensors, output.status(), &made);
            }));
            output.put(std::move(made));
            return Status();
        });
    });
}

onebit_status_t onebit_optimizer_step(onebit_optimizer_t optimizer) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [](Optimizer& o) { return o.step(); });
}

onebit_status_t onebit_optimizer_step_start(onebit_optimizer_t optimizer) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [](Optimizer& o) { return o.start(); });
}

onebit_status_t onebit_optimizer_step_test(onebit_optimizer_t optimizer, int* done) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) {
        return onebit::tell_done(done, [&](bool* finished) { return o.test(finished); });
    });
}

onebit_status_t onebit_optimizer_step_wait(onebit_optimizer_t optimizer) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [](Optimizer& o) { return o.wait(); });
}

onebit_status_t onebit_optimizer_set_callback(onebit_optimizer_t optimizer, onebit_callback_fn callback,
                                              void* context) noexcept {
    return onebit::guard_callback<Optimizer>(optimizer, {callback, context});
}

onebit_status_t onebit_optimizer_cancel_step(onebit_optimizer_t optimizer, const char* reason) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.cancel_step(reason); });
}

onebit_status_t onebit_optimizer_grad_ready(onebit_optimizer_t optimizer, size_t tensor) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.grad_ready(tensor); });
}

onebit_status_t onebit_optimizer_set_gradients(onebit_optimizer_t optimizer, size_t tensor,
                                               const void* gradients) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.set_gradients(tensor, gradients); });
}

onebit_status_t onebit_optimizer_set_all_gradients(onebit_optimizer_t optimizer, const void* const* gradients,
                                                   size_t num_tensors) noexcept {
    return onebit::guard_object<Optimizer>(optimizer,
                                           [&](Optimizer& o) { return o.set_all_gradients(gradients, num_tensors); });
}

onebit_status_t onebit_optimizer_set_parameters(onebit_optimizer_t optimizer, size_t tensor,
                                                float* parameters) noexcept {
    return onebit::guard_object<Optimizer>(optimizer,
                                           [&](Optimizer& o) { return o.set_parameters(tensor, parameters); });
}

onebit_status_t onebit_optimizer_set_group(onebit_optimizer_t optimizer, size_t group,
                                           const onebit_param_group_t* settings) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.set_group(group, settings); });
}

onebit_status_t onebit_optimizer_set_max_grad_norm(onebit_optimizer_t optimizer, double max_grad_norm) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.set_max_grad_norm(max_grad_norm); });
}

onebit_status_t onebit_optimizer_set_lr(onebit_optimizer_t optimizer, double lr) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.set_lr(lr); });
}

onebit_status_t onebit_optimizer_set_group_lr(onebit_optimizer_t optimizer, size_t group, double lr) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.set_group_lr(group, lr); });
}

onebit_status_t onebit_optimizer_set_gradient_scale(onebit_optimizer_t optimizer, double scale) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.set_gradient_scale(scale); });
}

onebit_status_t onebit_optimizer_freeze(onebit_optimizer_t optimizer) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [](Optimizer& o) { return o.freeze(); });
}

onebit_status_t onebit_optimizer_reset_error(onebit_optimizer_t optimizer) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [](Optimizer& o) { return o.reset_error(); });
}

onebit_status_t onebit_optimizer_save(onebit_optimizer_t optimizer, const char* prefix) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.save(prefix); });
}

onebit_status_t onebit_optimizer_load(onebit_optimizer_t optimizer, const char* prefix) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.load(prefix); });
}

onebit_status_t onebit_optimizer_state_size(onebit_optimizer_t optimizer, uint64_t* bytes) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.state_size(bytes); });
}

onebit_status_t onebit_optimizer_pack_state(onebit_optimizer_t optimizer, void* buffer, uint64_t bytes) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.pack_state(buffer, bytes); });
}

onebit_status_t onebit_optimizer_unpack_state(onebit_optimizer_t optimizer, const void* const* blobs,
                                              const uint64_t* bytes, size_t num_blobs) noexcept {
    return onebit::guard_object<Optimizer>(optimizer,
                                           [&](Optimizer& o) { return o.unpack_state(blobs, bytes, num_blobs); });
}

onebit_status_t onebit_optimizer_get_state(onebit_optimizer_t optimizer, size_t tensor, onebit_state_t which,
                                           float* values) noexcept {
    return onebit::guard_object<Optimizer>(optimizer,
                                           [&](const Optimizer& o) { return o.get_state(tensor, which, values); });
}

onebit_status_t onebit_optimizer_set_state(onebit_optimizer_t optimizer, size_t tensor, onebit_state_t which,
                                           const float* values) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.set_state(tensor, which, values); });
}

onebit_status_t onebit_optimizer_set_steps(onebit_optimizer_t optimizer, uint64_t steps) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](Optimizer& o) { return o.set_steps(steps); });
}

onebit_status_t onebit_optimizer_get_error(onebit_optimizer_t optimizer, float* worker, float* server) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](const Optimizer& o) { return o.get_error(worker, server); });
}

onebit_status_t onebit_optimizer_get_info(onebit_optimizer_t optimizer, onebit_optimizer_info_t* info) noexcept {
    return onebit::guard_object<Optimizer>(optimizer, [&](const Optimizer& o) {
        return onebit::give_info(info, [&](onebit_optimizer_info_t* filled) { o.fill_info(filled); });
    });
}

onebit_status_t onebit_optimizer_destroy(onebit_optimizer_t optimizer) noexcept {
    return onebit::guard_destroy<Optimizer>(optimizer, [](Optimizer& o) { return o.prepare_to_be_destroyed(); });
}
