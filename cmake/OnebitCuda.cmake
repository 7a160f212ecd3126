# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
#
# Finds CUDA as ONEBIT_CUDA asks: AUTO (where it is found), ON (or fail) or OFF. Sets ONEBIT_HAS_CUDA. The CUDA runtime
# is linked statically, so that programs built here also start on machines without a GPU driver.

set(ONEBIT_HAS_CUDA OFF)

# Enables the language CUDA and sets `out` to an empty text; if CUDA can't be used, sets `out` to the reason.
macro(onebit_find_cuda out)
    set(${out} "")
    if(NOT CMAKE_CUDA_COMPILER)
        unset(CMAKE_CUDA_COMPILER CACHE) # nvcc may have been installed since the last run
    endif()
    if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
        find_program(ONEBIT_NVCC nvcc PATHS /usr/local/cuda/bin DOC "CUDA compiler")
        if(ONEBIT_NVCC)
            set(ENV{CUDACXX} ${ONEBIT_NVCC}) # check_language ignores CMAKE_CUDA_COMPILER
        endif()
    endif()
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
        set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "GPUs to compile for; 90: for Hopper, and PTX for later ones")
    endif()
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
        enable_language(CUDA)
        find_package(CUDAToolkit QUIET)
        if(NOT CMAKE_CUDA_COMPILER_ID STREQUAL NVIDIA)
            set(${out} "${CMAKE_CUDA_COMPILER} is not nvcc")
        elseif(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
            set(${out} "CUDA ${CMAKE_CUDA_COMPILER_VERSION} knows no C++20: it takes 12.0")
        elseif(NOT TARGET CUDA::cudart_static)
            set(${out} "the toolkit of ${CMAKE_CUDA_COMPILER} has no static runtime library")
        endif()
    else()
        set(${out} "no working nvcc, on PATH or in /usr/local/cuda/bin (CMAKE_CUDA_COMPILER names any other)")
    endif()
endmacro()

if(NOT ONEBIT_CUDA MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "ONEBIT_CUDA=${ONEBIT_CUDA}: is AUTO, ON or OFF")
elseif(ONEBIT_CUDA STREQUAL "OFF")
    message(STATUS "onebit: no CUDA: ONEBIT_CUDA=OFF")
elseif(ONEBIT_CUDA STREQUAL "AUTO" AND ONEBIT_SANITIZE)
    message(STATUS "onebit: no CUDA: its runtime is not made for sanitizers")
else()
    onebit_find_cuda(onebit_cuda_missing)
    if(NOT onebit_cuda_missing)
        set(ONEBIT_HAS_CUDA ON)
        message(STATUS "onebit: CUDA ${CMAKE_CUDA_COMPILER_VERSION}, for architectures ${CMAKE_CUDA_ARCHITECTURES}")
    elseif(ONEBIT_CUDA STREQUAL "AUTO")
        message(STATUS "onebit: no CUDA: ${onebit_cuda_missing}")
    else()
        message(FATAL_ERROR "ONEBIT_CUDA=ON: ${onebit_cuda_missing}")
    endif()
endif()

if(ONEBIT_HAS_CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake before 3.26 doesn't know that nvcc supports C++20
        set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    endif()
    # The kernels and the code that calls CUDA, for ONEBIT_GPU (CMakeLists.txt) and tests.
    add_library(onebit_cuda_kernels OBJECT EXCLUDE_FROM_ALL
        src/compress/grouped/cuda/kernels.cu
        src/compress/sign/cuda/kernels.cu
        src/core/cuda/device.cu
        src/numeric/cuda/kernels.cu
        src/optim/kernels/cuda/kernels.cu)
    target_compile_options(onebit_cuda_kernels PRIVATE
        --fmad=false             # the CPU's bits: no fused multiply-add, which rounds once instead of twice
        --ftz=true               # subnormal numbers are zero, as in core/float_environment.hpp; doubles are never any
        --expt-relaxed-constexpr # constexpr functions can be called on the GPU, too
        -Xcompiler=-Wall,-Wextra,-ffp-contract=off
        "$<$<BOOL:${ONEBIT_WERROR}>:SHELL:-Werror all-warnings>")
    target_include_directories(onebit_cuda_kernels PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(onebit_cuda_kernels PUBLIC CUDA::cudart_static)
    set_target_properties(onebit_cuda_kernels PROPERTIES
        CUDA_VISIBILITY_PRESET hidden CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF)
endif()
