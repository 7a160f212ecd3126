// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks functions that a CUDA compiler must compile for GPUs as well, or for GPUs alone. For any other compiler they
/// are plain functions.
#ifdef __CUDACC__
#define ONEBIT_HOST_DEVICE __host__ __device__
#define ONEBIT_DEVICE __device__
#else
#define ONEBIT_HOST_DEVICE
#define ONEBIT_DEVICE
#endif
