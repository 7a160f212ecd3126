// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include <vector>

#include "optim/adam.hpp"
#include "optim/lamb.hpp"
#include "optim/settings.hpp"
#include "optim/zero_one_adam.hpp"

namespace onebit {
namespace {

struct Row {
    onebit_optimizer_kind_t kind;
    Status (*make)(Communicator&, Settings, std::vector<Tensor>, std::unique_ptr<Optimizer>*);
};

constexpr Row kRegistry[] = {
    {ONEBIT_OPTIMIZER_ADAM, Adam::create},
    {ONEBIT_OPTIMIZER_ONEBIT_ADAM, Adam::create},
    {ONEBIT_OPTIMIZER_LAMB, Lamb::create},
    {ONEBIT_OPTIMIZER_ONEBIT_LAMB, Lamb::create},
    {ONEBIT_OPTIMIZER_ZERO_ONE_ADAM, ZeroOneAdam::create},
};

} // namespace

Status make_optimizer(Communicator& communicator, const onebit_optimizer_config_t* config,
                      const onebit_tensor_t* tensors, std::size_t num_tensors, const Status& own,
                      std::unique_ptr<Optimizer>* optimizer) {
    Settings settings;
    std::vector<Tensor> made;
    const Status checked = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(own);
        ONEBIT_RETURN_IF_ERROR(read_settings(config, communicator.transport(), &settings));
        const Entered entered(settings.backend); // or a look at an address makes a context on the current GPU
        ONEBIT_RETURN_IF_ERROR(make_tensors(tensors, num_tensors, settings.groups.size(), &made));
        for (const Tensor& tensor : made) ONEBIT_RETURN_IF_ERROR(check_place(tensor, *settings.backend));
        return Status();
    });
    ONEBIT_RETURN_IF_ERROR(agree_on_settings(communicator, checked, settings, made));
    const Entered entered(settings.backend);
    for (const Row& row : kRegistry) {
        if (row.kind == settings.config.kind)
            return row.make(communicator, std::move(settings), std::move(made), optimizer);
    }
    return Status::error(ONEBIT_ERROR_INTERNAL, "kind %d has no row", static_cast<int>(settings.config.kind));
}

} // namespace onebit
