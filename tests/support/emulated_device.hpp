// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onebit_test {

/// While one exists, this thread is on the emulated device: its memory can be touched. Else who touches it ends as on a
/// machine with a GPU: by a segmentation fault.
class OnDevice {
  public:
    OnDevice();
    ~OnDevice();
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;
};

} // namespace onebit_test
