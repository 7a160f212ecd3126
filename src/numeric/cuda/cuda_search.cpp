// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "numeric/cuda/cuda_search.hpp"

#include <cfloat>

#include "numeric/cuda/kernels.hpp"

namespace onebit {

bool CudaSearch::find_nonfinite(const void* values, std::size_t count, std::size_t* first) {
    if (!finding_.asked()) {
        note(cuda::first_nonfinite({static_cast<const float*>(values), count, finding_.place(), FLT_MAX}, stream_));
        note(finding_.ask(stream_));
    }
    bool known = false;
    unsigned long long found = cuda::kAllFinite;
    note(finding_.test(&known, &found));
    *first = found == cuda::kAllFinite ? count : static_cast<std::size_t>(found);
    return known || !failure_.ok();
}

std::size_t CudaSearch::first_nonfinite(const void* values, std::size_t count) {
    std::size_t first = count;
    while (!find_nonfinite(values, count, &first)) note(cuda::wait_for(stream_));
    return first;
}

void CudaSearch::note(const Status& status) {
    if (failure_.ok()) failure_ = status;
}

} // namespace onebit
