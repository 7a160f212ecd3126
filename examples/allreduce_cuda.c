// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// allreduce.c on a GPU's memory: the average runs in a stream, after the work that makes a gradient and before the work
// that uses the average.
//
//     mpirun -n 4 example_allreduce_cuda

#include <cuda_runtime.h>
#include <onebit/onebit_mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 20, STEPS = 10, NO_GPU = 77 };

static void check(onebit_status_t status) {
    if (status == ONEBIT_SUCCESS) return;
    fprintf(stderr, "%s: %s\n", onebit_status_string(status), onebit_last_error());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

static void check_cuda(cudaError_t error) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: no CUDA device\n");
        return NO_GPU;
    }
    MPI_Init(&argc, &argv);

    onebit_comm_t comm;
    int rank;
    check(onebit_comm_create_mpi(MPI_COMM_WORLD, &comm));
    check(onebit_comm_rank(comm, &rank));

    cudaStream_t stream;
    check_cuda(cudaSetDevice(rank % devices)); // ranks of one node in a row, as mpirun places them
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(COUNT);
    config.algorithm = ONEBIT_ALGORITHM_PIPELINED;
    config.memory = ONEBIT_MEMORY_CUDA;
    config.stream = stream;
    onebit_allreduce_t allreduce;
    check(onebit_allreduce_create(comm, &config, &allreduce));

    float* values; // stands for what a backward pass computes on the GPU; pinned, so that copies are asynchronous
    float* gradient;
    check_cuda(cudaMallocHost((void**)&values, COUNT * sizeof *values));
    check_cuda(cudaMalloc((void**)&gradient, COUNT * sizeof *gradient));
    for (int i = 0; i < COUNT; i++) values[i] = (float)((i + rank) % 7 - 3);
    for (int step = 0; step < STEPS; step++) {
        check_cuda(cudaMemcpyAsync(gradient, values, COUNT * sizeof *values, cudaMemcpyHostToDevice, stream));
        check(onebit_allreduce_run(allreduce, gradient, gradient)); // after the copy, without a cudaStreamSynchronize
        // Work that is put into the stream from here on uses the average.
    }
    float first;
    check_cuda(cudaMemcpyAsync(&first, gradient, sizeof first, cudaMemcpyDeviceToHost, stream));
    check_cuda(cudaStreamSynchronize(stream));

    onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
    check(onebit_allreduce_get_info(allreduce, &info));
    if (rank == 0) {
        printf("%d elements over %s: %llu bytes sent per call by this rank; the first average is %g\n", COUNT,
               info.transport, (unsigned long long)info.last_bytes_sent, first);
    }

    check(onebit_allreduce_destroy(allreduce));
    check(onebit_comm_destroy(comm));
    check_cuda(cudaFree(gradient));
    check_cuda(cudaFreeHost(values));
    check_cuda(cudaStreamDestroy(stream));
    MPI_Finalize();
    return 0;
}
