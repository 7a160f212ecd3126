// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The scalar arithmetic of all codes in codes.def.
#include "compress/grouped/bfloat16.hpp"
#include "compress/grouped/float16.hpp"
#include "compress/grouped/fp4.hpp"
#include "compress/grouped/int2.hpp"
#include "compress/grouped/integer.hpp"
#include "compress/grouped/means.hpp"
#include "compress/grouped/ternary.hpp"
