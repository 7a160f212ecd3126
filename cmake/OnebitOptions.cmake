# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
#
# onebit_options: how every target of this project is compiled.

add_library(onebit_options INTERFACE)
target_compile_features(onebit_options INTERFACE cxx_std_20)
target_compile_options(onebit_options INTERFACE
    -ffp-contract=off # the same bits on every ISA: no fused multiply-add, which rounds once instead of twice
    -fno-math-errno
    -Wall -Wextra -Wshadow -Wno-unknown-pragmas) # pragmas of GPU compilers, which unroll loops
if(ONEBIT_WERROR)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(ONEBIT_SANITIZE) # for every target, also targets that only link the library
    add_compile_options(-fsanitize=${ONEBIT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
    add_link_options(-fsanitize=${ONEBIT_SANITIZE})
    # These checks of each memory access double GCC's compile time. The address sanitizer finds most of the same errors,
    # and clang's build (the preset "fuzz") has these checks.
    if(ONEBIT_SANITIZE MATCHES undefined AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        add_compile_options(-fno-sanitize=null,alignment,object-size,pointer-overflow,vptr)
    endif()
endif()
if(ONEBIT_FUZZ) # coverage, by which the fuzzer chooses its inputs
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "onebit: ONEBIT_FUZZ=ON needs clang, whose libFuzzer the targets are linked with; the "
                            "compiler is ${CMAKE_CXX_COMPILER_ID}. Use the preset \"fuzz\".")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
# Only MPI's C interface: its C++ interface was removed from the standard and causes many warnings.
target_compile_definitions(onebit_options INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
