// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Nothing: a precompiled header needs a source that it is compiled with.
