// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "numeric/cuda/finding.hpp"

namespace onebit {

Status Finding::begin(cuda::Stream stream) {
    return cuda::copy_later(on_device_.data(), &on_host_[kNothing], on_device_.bytes(), stream);
}

Status Finding::ask(cuda::Stream stream) {
    asked_ = true;
    ONEBIT_RETURN_IF_ERROR(cuda::copy_later(&on_host_[kFound], on_device_.data(), on_device_.bytes(), stream));
    return there_.record(stream);
}

Status Finding::test(bool* known, unsigned long long* first) {
    const Status status = there_.test(known);
    asked_ = status.ok() && !*known;
    if (status.ok() && *known) *first = on_host_[kFound];
    return status;
}

} // namespace onebit
