! onebit.f90 - the contract of onebit.h and onebit_mpi.h for Fortran 2008: the same names, the same order, the same
! meaning. The headers say what each function does, when it blocks and how it fails.
!
! Copyright 2026 The onebit authors
! SPDX-License-Identifier: Apache-2.0
!
! A module's compiled form fits only one compiler. So programs compile this file with their own compiler. They link
! libonebit and its library of the MPI, onebit_openmpi or onebit_mpich:
!
!     mpif90 -c $PREFIX/include/onebit/onebit.f90
!     mpif90 train.f90 onebit.o -lonebit_openmpi -lonebit
!
! Handles and buffers are c_ptr: c_loc(x) of a target x, on the host or on a GPU. Functions return a status,
! onebit_success or one of onebit_error_...; onebit_message() says what went wrong. onebit_..._init fills a struct with
! its defaults, and onebit_..._info_init an info struct, before the struct is passed on. Then members are changed by
! name. Numbers of tensors and groups begin with 0, as in C. Strings that go in end with c_null_char.
!
! A dummy argument is a target if C keeps what the argument points to, or changes it later. Without this attribute
! gfortran assumes that no later call reads or writes this memory, and drops a program's stores to its gradients.
!
! onebit_comm_create_mpi is not here: onebit_comm_create_mpi_fortran takes its place.
module onebit
    use, intrinsic :: iso_c_binding
    implicit none
    private :: to_string

    ! ---- Status ----
    enum, bind(c)
        enumerator :: onebit_success = 0, onebit_error_invalid_argument, onebit_error_invalid_handle, &
            onebit_error_mismatch, onebit_error_nonfinite, onebit_error_busy, onebit_error_bad_state, &
            onebit_error_io, onebit_error_unsupported, onebit_error_out_of_memory, onebit_error_transport, &
            onebit_error_timeout, onebit_error_internal, onebit_error_cancelled
    end enum

    enum, bind(c)
        enumerator :: onebit_log_info = 0, onebit_log_warning
    end enum

    ! ---- Allreduce ----
    enum, bind(c)
        enumerator :: onebit_float32 = 0, onebit_float16, onebit_bfloat16, onebit_int8
    end enum
    enum, bind(c)
        enumerator :: onebit_memory_host = 0, onebit_memory_cuda
    end enum
    enum, bind(c)
        enumerator :: onebit_algorithm_auto = 0, onebit_algorithm_dense, onebit_algorithm_flat, &
            onebit_algorithm_pipelined, onebit_algorithm_two_level, onebit_algorithm_bruck, onebit_algorithm_ring, &
            onebit_algorithm_levels
    end enum
    enum, bind(c)
        enumerator :: onebit_codec_sign = 0, onebit_codec_int8, onebit_codec_int4, onebit_codec_fp4, &
            onebit_codec_bfloat16, onebit_codec_ternary, onebit_codec_topk, onebit_codec_float16, onebit_codec_int2, &
            onebit_codec_means, onebit_codec_randomk, onebit_codec_powersgd
    end enum
    integer(c_int32_t), parameter :: onebit_level_node = -1
    enum, bind(c)
        enumerator :: onebit_scale_l2 = 0, onebit_scale_l1
    end enum
    enum, bind(c)
        enumerator :: onebit_rounding_nearest = 0, onebit_rounding_stochastic
    end enum
    enum, bind(c)
        enumerator :: onebit_group_block = 0, onebit_group_buffer, onebit_group_tensor
    end enum
    enum, bind(c)
        enumerator :: onebit_check_full = 0, onebit_check_none, onebit_check_full_low_memory
    end enum
    enum, bind(c)
        enumerator :: onebit_op_average = 0, onebit_op_sum
    end enum

    ! ---- Optimizer ----
    enum, bind(c)
        enumerator :: onebit_optimizer_adam = 0, onebit_optimizer_onebit_adam, onebit_optimizer_lamb, &
            onebit_optimizer_onebit_lamb, onebit_optimizer_zero_one_adam
    end enum
    integer(c_int64_t), parameter :: onebit_freeze_never = -1 ! UINT64_MAX
    integer(c_int64_t), parameter :: onebit_freeze_auto = 0
    enum, bind(c)
        enumerator :: onebit_compressed_updates = 0, onebit_compressed_momenta
    end enum
    integer(c_int64_t), parameter :: onebit_freeze_paper = -2 ! UINT64_MAX - 1
    integer(c_int32_t), parameter :: onebit_follow_never = -1 ! UINT32_MAX
    enum, bind(c)
        enumerator :: onebit_freeze_wait_none = 0, onebit_freeze_wait_steps, onebit_freeze_wait_lr, &
            onebit_freeze_wait_variance, onebit_freeze_wait_parameters
    end enum
    enum, bind(c)
        enumerator :: onebit_state_exp_avg = 0, onebit_state_exp_avg_sq, onebit_state_worker_error, &
            onebit_state_server_error
    end enum
    integer(c_int64_t), parameter :: onebit_bucket_size_suggested = 1048576

    ! The members have C's order and C's kinds; uint64_t is a signed integer of 64 bits. The library sets the defaults
    ! (below). size, version, reserved: not to be changed.

    ! allgather: c_funloc of a function
    !     integer(c_int) function gather(context, mine, all, bytes) bind(c)
    !         type(c_ptr), value :: context, mine, all
    !         integer(c_size_t), value :: bytes
    ! interface: c_null_ptr, or c_loc of a string that ends with c_null_char
    type, bind(c) :: onebit_bootstrap_t
        integer(c_size_t) :: size
        integer(c_int32_t) :: version
        integer(c_int) :: rank
        integer(c_int) :: ranks
        integer(c_int32_t) :: reserved
        type(c_funptr) :: allgather
        type(c_ptr) :: context
        type(c_ptr) :: interface
        real(c_double) :: timeout
    end type

    type, bind(c) :: onebit_comm_info_t
        integer(c_size_t) :: size
        integer(c_int32_t) :: version
        integer(c_int32_t) :: nodes
        character(kind=c_char) :: transport(32)
        character(kind=c_char) :: reason(288)
    end type

    type, bind(c) :: onebit_allreduce_config_t
        integer(c_size_t) :: size
        integer(c_int32_t) :: version
        integer(c_int32_t) :: threads
        integer(c_int64_t) :: count
        integer(c_int) :: datatype
        integer(c_int) :: memory
        integer(c_int) :: algorithm
        integer(c_int) :: codec
        integer(c_int) :: scale
        integer(c_int) :: group
        integer(c_int) :: check
        integer(c_int) :: op
        type(c_ptr) :: stream
        integer(c_int32_t) :: kept
        integer(c_int32_t) :: value_bits
        integer(c_int) :: error_type
        integer(c_int32_t) :: matrix_rank
        type(c_ptr) :: shapes
        integer(c_int64_t) :: num_shapes
        integer(c_int) :: rounding
        integer(c_int32_t) :: num_levels
        type(c_ptr) :: levels
    end type

    ! color: ONEBIT_LEVEL_NODE, or any number from 0 on
    type, bind(c) :: onebit_level_t
        integer(c_size_t) :: size
        integer(c_int32_t) :: version
        integer(c_int32_t) :: color
        integer(c_int32_t) :: compressed
        integer(c_int) :: codec
        integer(c_int) :: scale
        integer(c_int) :: group
        integer(c_int32_t) :: kept
        integer(c_int32_t) :: value_bits
        integer(c_int) :: error_type
        integer(c_int32_t) :: reserved
    end type

    type, bind(c) :: onebit_level_info_t
        integer(c_size_t) :: size
        integer(c_int32_t) :: version
        integer(c_int32_t) :: ranks
        integer(c_int64_t) :: begin
        integer(c_int64_t) :: count
        integer(c_int64_t) :: bytes
        integer(c_int32_t) :: compressed
        integer(c_int) :: codec
    end type

    type, bind(c) :: onebit_allreduce_info_t
        integer(c_size_t) :: size
        integer(c_int32_t) :: version
        integer(c_int32_t) :: threads
        integer(c_int64_t) :: calls
        integer(c_int64_t) :: bytes_sent
        integer(c_int64_t) :: last_bytes_sent
        integer(c_int64_t) :: dense_bytes
        integer(c_int64_t) :: state_bytes
        integer(c_int64_t) :: workspace_bytes
        integer(c_int) :: algorithm
        character(kind=c_char) :: transport(32)
        character(kind=c_char) :: kernels(16)
        character(kind=c_char) :: reason(260)
    end type

    ! counts: c_null_ptr, or c_loc of integers of 64 bits, one for each rank
    type, bind(c) :: onebit_shard_config_t
        integer(c_size_t) :: size
        integer(c_int32_t) :: version
        integer(c_int32_t) :: threads
        integer(c_int64_t) :: count
        type(c_ptr) :: counts
        integer(c_int) :: datatype
        integer(c_int) :: memory
        integer(c_int) :: algorithm
        integer(c_int) :: codec
        integer(c_int) :: scale
        integer(c_int) :: group
        integer(c_int) :: check
        integer(c_int) :: op
        type(c_ptr) :: stream
        integer(c_int32_t) :: kept
        integer(c_int32_t) :: value_bits
        integer(c_int) :: error_type
        integer(c_int) :: rounding
    end type

    ! shard_begin: 0 is the buffer's first element, as in C
    type, bind(c) :: onebit_shard_info_t
        integer(c_size_t) :: size
        integer(c_int32_t) :: version
        integer(c_int32_t) :: threads
        integer(c_int64_t) :: shard_begin
        integer(c_int64_t) :: shard_count
        integer(c_int64_t) :: calls
        integer(c_int64_t) :: bytes_sent
        integer(c_int64_t) :: last_bytes_sent
        integer(c_int64_t) :: dense_bytes
        integer(c_int64_t) :: state_bytes
        integer(c_int64_t) :: workspace_bytes
        integer(c_int) :: algorithm
        character(kind=c_char) :: transport(32)
        character(kind=c_char) :: kernels(16)
        character(kind=c_char) :: reason(260)
    end type

    type, bind(c) :: onebit_tensor_t
        integer(c_size_t) :: size
        integer(c_int32_t) :: version
        integer(c_int32_t) :: group
        integer(c_int64_t) :: count
        type(c_ptr) :: parameters
        type(c_ptr) :: gradients
        integer(c_int) :: gradient_type
        integer(c_int) :: copy_type
        type(c_ptr) :: copy
        type(c_ptr) :: name
    end type

    type, bind(c) :: onebit_param_group_t
        integer(c_size_t) :: size
        integer(c_int32_t) :: version
        integer(c_int) :: no_compress
        real(c_double) :: lr
        real(c_double) :: beta1
        real(c_double) :: beta2
        real(c_double) :: eps
        real(c_double) :: weight_decay
    end type

    type, bind(c) :: onebit_optimizer_config_t
        integer(c_size_t) :: size
        integer(c_int32_t) :: version
        integer(c_int) :: kind
        real(c_double) :: lr
        real(c_double) :: beta1
        real(c_double) :: beta2
        real(c_double) :: eps
        real(c_double) :: weight_decay
        type(c_ptr) :: groups
        integer(c_size_t) :: num_groups
        integer(c_int) :: bias_correction
        integer(c_int32_t) :: threads
        real(c_double) :: max_grad_norm
        integer(c_int64_t) :: freeze_step
        integer(c_int64_t) :: lr_warmup_steps
        integer(c_int) :: scale
        integer(c_int) :: group
        real(c_double) :: min_trust
        real(c_double) :: max_trust
        real(c_double) :: trust_beta
        integer(c_int) :: momentum_scaling
        integer(c_int) :: memory
        integer(c_int64_t) :: variance_updates
        integer(c_int64_t) :: local_step_scaler
        integer(c_int64_t) :: local_steps
        integer(c_int64_t) :: bucket_size
        type(c_ptr) :: stream
        integer(c_int64_t) :: freeze_window
        real(c_double) :: freeze_band
        integer(c_int) :: compressed
        integer(c_int32_t) :: follow_interval
        real(c_double) :: thaw_ratio
        integer(c_int) :: missing_gradients
        integer(c_int) :: algorithm
        integer(c_int) :: codec
        integer(c_int32_t) :: kept
        integer(c_int32_t) :: value_bits
        integer(c_int) :: error_type
        type(c_ptr) :: levels
        integer(c_size_t) :: num_levels
    end type

    type, bind(c) :: onebit_optimizer_info_t
        integer(c_size_t) :: size
        integer(c_int32_t) :: version
        integer(c_int) :: frozen
        integer(c_int64_t) :: steps
        integer(c_int64_t) :: skipped
        integer(c_int64_t) :: freeze_step
        integer(c_int64_t) :: count
        integer(c_int64_t) :: masked
        integer(c_int64_t) :: exact_rounds
        integer(c_int64_t) :: compressed_rounds
        integer(c_int64_t) :: warmup_bytes_sent
        integer(c_int64_t) :: compressed_bytes_sent
        integer(c_int64_t) :: state_bytes
        real(c_double) :: grad_norm
        integer(c_int64_t) :: cancelled
        integer(c_int) :: freeze_wait
        integer(c_int32_t) :: freeze_tensor
        real(c_double) :: freeze_ratio
        integer(c_int64_t) :: thaws
        real(c_double) :: variance_ratio
        integer(c_int64_t) :: variance_tensor
        real(c_double) :: step_ratio
        integer(c_int64_t) :: step_tensor
        integer(c_int) :: algorithm
        character(kind=c_char) :: reason(260)
    end type

    ! ---- Status ----
    interface
        function onebit_status_string(status) bind(c)
            import :: c_int, c_ptr
            integer(c_int), value :: status
            type(c_ptr) :: onebit_status_string
        end function
        function onebit_last_error() bind(c)
            import :: c_ptr
            type(c_ptr) :: onebit_last_error
        end function
        function onebit_version() bind(c)
            import :: c_ptr
            type(c_ptr) :: onebit_version
        end function
        integer(c_int) function onebit_version_number() bind(c)
            import :: c_int
        end function
        ! callback: c_null_funptr, or c_funloc of a subroutine
        !     subroutine log(context, level, text) bind(c)
        !         type(c_ptr), value :: context, text
        !         integer(c_int), value :: level
        integer(c_int) function onebit_set_log_callback(callback, context) bind(c)
            import :: c_int, c_funptr, c_ptr
            type(c_funptr), value :: callback
            type(c_ptr), value, target :: context
        end function
    end interface

    ! ---- Communicator ----
    interface
        ! mpi_comm: an integer; with mpi_f08 the member mpi_val of a type(MPI_Comm)
        integer(c_int) function onebit_comm_create_mpi_fortran(mpi_comm, comm) bind(c)
            import :: c_int, c_ptr
            integer(c_int), value :: mpi_comm
            type(c_ptr), intent(out) :: comm
        end function
        integer(c_int) function onebit_comm_create_bootstrap(bootstrap, comm) bind(c)
            import :: c_int, c_ptr, onebit_bootstrap_t
            type(onebit_bootstrap_t), intent(in) :: bootstrap
            type(c_ptr), intent(out) :: comm
        end function
        ! comms: one for each rank; the ranks are threads
        integer(c_int) function onebit_comm_create_loopback(ranks, comms) bind(c)
            import :: c_int, c_ptr
            integer(c_int), value :: ranks
            type(c_ptr), intent(out) :: comms(*)
        end function
        ! stream: a cudaStream_t, c_null_ptr for the default one. nccl_comm: an ncclComm_t
        integer(c_int) function onebit_comm_create_nccl(nccl_comm, stream, comm) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: nccl_comm
            type(c_ptr), value, target :: stream
            type(c_ptr), intent(out) :: comm
        end function
        integer(c_int) function onebit_comm_bootstrap_nccl(base, stream, comm) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: base
            type(c_ptr), value, target :: stream
            type(c_ptr), intent(out) :: comm
        end function
        integer(c_int) function onebit_comm_create_gpu(base, stream, comm) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: base
            type(c_ptr), value, target :: stream
            type(c_ptr), intent(out) :: comm
        end function
        integer(c_int) function onebit_comm_split(comm, color, key, part) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: comm
            integer(c_int), value :: color
            integer(c_int), value :: key
            type(c_ptr), intent(out) :: part
        end function
        ! name, text: c_loc of strings that end with c_null_char
        integer(c_int) function onebit_comm_set(comm, name, text) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: comm
            type(c_ptr), value, target :: name
            type(c_ptr), value, target :: text
        end function
        integer(c_int) function onebit_comm_rank(comm, rank) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: comm
            integer(c_int), intent(out) :: rank
        end function
        integer(c_int) function onebit_comm_size(comm, size) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: comm
            integer(c_int), intent(out) :: size
        end function
        integer(c_int) function onebit_comm_get_info(comm, info) bind(c)
            import :: c_int, c_ptr, onebit_comm_info_t
            type(c_ptr), value, target :: comm
            type(onebit_comm_info_t), intent(inout) :: info
        end function
        ! path: c_null_ptr, or c_loc of a string
        integer(c_int) function onebit_comm_tune(comm, max_count, seconds, path) bind(c)
            import :: c_int, c_int64_t, c_double, c_ptr
            type(c_ptr), value, target :: comm
            integer(c_int64_t), value :: max_count
            real(c_double), value :: seconds
            type(c_ptr), value, target :: path
        end function
        integer(c_int) function onebit_comm_tune_codecs(comm, codecs, num_codecs, max_count, seconds, path) bind(c)
            import :: c_int, c_int64_t, c_size_t, c_double, c_ptr
            type(c_ptr), value, target :: comm
            integer(c_int), intent(in) :: codecs(*)
            integer(c_size_t), value :: num_codecs
            integer(c_int64_t), value :: max_count
            real(c_double), value :: seconds
            type(c_ptr), value, target :: path
        end function
        integer(c_int) function onebit_comm_progress(comm, active) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: comm
            integer(c_int), intent(out) :: active
        end function
        ! reason: c_null_ptr, or c_loc of a string that ends with c_null_char
        integer(c_int) function onebit_comm_abort(comm, reason) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: comm
            type(c_ptr), value, target :: reason
        end function
        integer(c_int) function onebit_mem_alloc(comm, bytes, memory) bind(c)
            import :: c_int, c_size_t, c_ptr
            type(c_ptr), value, target :: comm
            integer(c_size_t), value :: bytes
            type(c_ptr), intent(out) :: memory
        end function
        integer(c_int) function onebit_mem_free(memory) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: memory
        end function
        integer(c_int) function onebit_comm_destroy(comm) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: comm
        end function
    end interface

    ! ---- Allreduce ----
    interface
        integer(c_int) function onebit_allreduce_create(comm, config, allreduce) bind(c)
            import :: c_int, c_ptr, onebit_allreduce_config_t
            type(c_ptr), value, target :: comm
            type(onebit_allreduce_config_t), intent(in), target :: config
            type(c_ptr), intent(out) :: allreduce
        end function
        integer(c_int) function onebit_allreduce_choose_codec(comm, config, max_error, codec) bind(c)
            import :: c_int, c_double, c_ptr, onebit_allreduce_config_t
            type(c_ptr), value, target :: comm
            type(onebit_allreduce_config_t), intent(in), target :: config
            real(c_double), value :: max_error
            integer(c_int), intent(out) :: codec
        end function
        integer(c_int) function onebit_allreduce_run(allreduce, sendbuf, recvbuf) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: allreduce, sendbuf, recvbuf
        end function
        integer(c_int) function onebit_allreduce_start(allreduce, sendbuf, recvbuf) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: allreduce, sendbuf, recvbuf
        end function
        integer(c_int) function onebit_allreduce_test(allreduce, done) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: allreduce
            integer(c_int), intent(out) :: done
        end function
        integer(c_int) function onebit_allreduce_wait(allreduce) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: allreduce
        end function
        ! callback: c_null_funptr, or c_funloc of a subroutine
        !     subroutine finished(context, status) bind(c)
        !         type(c_ptr), value :: context
        !         integer(c_int), value :: status
        integer(c_int) function onebit_allreduce_set_callback(allreduce, callback, context) bind(c)
            import :: c_int, c_ptr, c_funptr
            type(c_ptr), value, target :: allreduce
            type(c_funptr), value :: callback
            type(c_ptr), value, target :: context
        end function
        integer(c_int) function onebit_allreduce_set_algorithm(allreduce, algorithm) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: allreduce
            integer(c_int), value :: algorithm
        end function
        ! mask: c_null_ptr, or c_loc of ceil(count / 32) integers of 32 bits
        integer(c_int) function onebit_allreduce_set_mask(allreduce, mask) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: allreduce, mask
        end function
        integer(c_int) function onebit_allreduce_get_info(allreduce, info) bind(c)
            import :: c_int, c_ptr, onebit_allreduce_info_t
            type(c_ptr), value, target :: allreduce
            type(onebit_allreduce_info_t), intent(inout) :: info
        end function
        integer(c_int) function onebit_allreduce_destroy(allreduce) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: allreduce
        end function
    end interface

    ! ---- Error state ----
    interface
        integer(c_int) function onebit_allreduce_reset(allreduce) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: allreduce
        end function
        ! worker, server: c_null_ptr, or c_loc of reals
        integer(c_int) function onebit_allreduce_get_error(allreduce, worker, server, server_begin, server_count) &
            bind(c)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value, target :: allreduce, worker, server
            integer(c_int64_t), intent(out) :: server_begin, server_count
        end function
        ! error: c_null_ptr, or c_loc of info%count reals
        integer(c_int) function onebit_allreduce_get_level(allreduce, level, info, error) bind(c)
            import :: c_int, c_int32_t, c_ptr, onebit_level_info_t
            type(c_ptr), value, target :: allreduce, error
            integer(c_int32_t), value :: level
            type(onebit_level_info_t), intent(inout) :: info
        end function
        integer(c_int) function onebit_allreduce_state_size(allreduce, bytes) bind(c)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value, target :: allreduce
            integer(c_int64_t), intent(out) :: bytes
        end function
        integer(c_int) function onebit_allreduce_pack_state(allreduce, buffer, bytes) bind(c)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value, target :: allreduce, buffer
            integer(c_int64_t), value :: bytes
        end function
        integer(c_int) function onebit_allreduce_unpack_state(allreduce, buffer, bytes) bind(c)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value, target :: allreduce, buffer
            integer(c_int64_t), value :: bytes
        end function
        integer(c_int) function onebit_allreduce_save(allreduce, prefix) bind(c)
            import :: c_int, c_ptr, c_char
            type(c_ptr), value, target :: allreduce
            character(kind=c_char), intent(in) :: prefix(*)
        end function
        integer(c_int) function onebit_allreduce_load(allreduce, prefix) bind(c)
            import :: c_int, c_ptr, c_char
            type(c_ptr), value, target :: allreduce
            character(kind=c_char), intent(in) :: prefix(*)
        end function
    end interface

    ! ---- Reduce-scatter, all-gather ----
    interface
        integer(c_int) function onebit_reduce_scatter_create(comm, config, reduce_scatter) bind(c)
            import :: c_int, c_ptr, onebit_shard_config_t
            type(c_ptr), value, target :: comm
            type(onebit_shard_config_t), intent(in), target :: config
            type(c_ptr), intent(out) :: reduce_scatter
        end function
        integer(c_int) function onebit_all_gather_create(comm, config, all_gather) bind(c)
            import :: c_int, c_ptr, onebit_shard_config_t
            type(c_ptr), value, target :: comm
            type(onebit_shard_config_t), intent(in), target :: config
            type(c_ptr), intent(out) :: all_gather
        end function
        integer(c_int) function onebit_reduce_scatter_run(reduce_scatter, sendbuf, recvbuf) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: reduce_scatter, sendbuf, recvbuf
        end function
        integer(c_int) function onebit_all_gather_run(all_gather, sendbuf, recvbuf) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: all_gather, sendbuf, recvbuf
        end function
        integer(c_int) function onebit_reduce_scatter_start(reduce_scatter, sendbuf, recvbuf) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: reduce_scatter, sendbuf, recvbuf
        end function
        integer(c_int) function onebit_reduce_scatter_test(reduce_scatter, done) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: reduce_scatter
            integer(c_int), intent(out) :: done
        end function
        integer(c_int) function onebit_reduce_scatter_wait(reduce_scatter) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: reduce_scatter
        end function
        ! callback: as for onebit_allreduce_set_callback
        integer(c_int) function onebit_reduce_scatter_set_callback(reduce_scatter, callback, context) bind(c)
            import :: c_int, c_ptr, c_funptr
            type(c_ptr), value, target :: reduce_scatter
            type(c_funptr), value :: callback
            type(c_ptr), value, target :: context
        end function
        integer(c_int) function onebit_all_gather_start(all_gather, sendbuf, recvbuf) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: all_gather, sendbuf, recvbuf
        end function
        integer(c_int) function onebit_all_gather_test(all_gather, done) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: all_gather
            integer(c_int), intent(out) :: done
        end function
        integer(c_int) function onebit_all_gather_wait(all_gather) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: all_gather
        end function
        ! callback: as for onebit_allreduce_set_callback
        integer(c_int) function onebit_all_gather_set_callback(all_gather, callback, context) bind(c)
            import :: c_int, c_ptr, c_funptr
            type(c_ptr), value, target :: all_gather
            type(c_funptr), value :: callback
            type(c_ptr), value, target :: context
        end function
        integer(c_int) function onebit_reduce_scatter_set_algorithm(reduce_scatter, algorithm) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: reduce_scatter
            integer(c_int), value :: algorithm
        end function
        integer(c_int) function onebit_all_gather_set_algorithm(all_gather, algorithm) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: all_gather
            integer(c_int), value :: algorithm
        end function
        integer(c_int) function onebit_reduce_scatter_reset(reduce_scatter) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: reduce_scatter
        end function
        ! error: c_loc of reals
        integer(c_int) function onebit_reduce_scatter_get_error(reduce_scatter, error) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: reduce_scatter, error
        end function
        integer(c_int) function onebit_reduce_scatter_state_size(reduce_scatter, bytes) bind(c)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value, target :: reduce_scatter
            integer(c_int64_t), intent(out) :: bytes
        end function
        integer(c_int) function onebit_reduce_scatter_pack_state(reduce_scatter, buffer, bytes) bind(c)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value, target :: reduce_scatter, buffer
            integer(c_int64_t), value :: bytes
        end function
        integer(c_int) function onebit_reduce_scatter_unpack_state(reduce_scatter, buffer, bytes) bind(c)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value, target :: reduce_scatter, buffer
            integer(c_int64_t), value :: bytes
        end function
        integer(c_int) function onebit_reduce_scatter_save(reduce_scatter, prefix) bind(c)
            import :: c_int, c_ptr, c_char
            type(c_ptr), value, target :: reduce_scatter
            character(kind=c_char), intent(in) :: prefix(*)
        end function
        integer(c_int) function onebit_reduce_scatter_load(reduce_scatter, prefix) bind(c)
            import :: c_int, c_ptr, c_char
            type(c_ptr), value, target :: reduce_scatter
            character(kind=c_char), intent(in) :: prefix(*)
        end function
        integer(c_int) function onebit_all_gather_reset(all_gather) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: all_gather
        end function
        ! error: c_loc of reals
        integer(c_int) function onebit_all_gather_get_error(all_gather, error) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: all_gather, error
        end function
        integer(c_int) function onebit_all_gather_state_size(all_gather, bytes) bind(c)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value, target :: all_gather
            integer(c_int64_t), intent(out) :: bytes
        end function
        integer(c_int) function onebit_all_gather_pack_state(all_gather, buffer, bytes) bind(c)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value, target :: all_gather, buffer
            integer(c_int64_t), value :: bytes
        end function
        integer(c_int) function onebit_all_gather_unpack_state(all_gather, buffer, bytes) bind(c)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value, target :: all_gather, buffer
            integer(c_int64_t), value :: bytes
        end function
        integer(c_int) function onebit_all_gather_save(all_gather, prefix) bind(c)
            import :: c_int, c_ptr, c_char
            type(c_ptr), value, target :: all_gather
            character(kind=c_char), intent(in) :: prefix(*)
        end function
        integer(c_int) function onebit_all_gather_load(all_gather, prefix) bind(c)
            import :: c_int, c_ptr, c_char
            type(c_ptr), value, target :: all_gather
            character(kind=c_char), intent(in) :: prefix(*)
        end function
        integer(c_int) function onebit_reduce_scatter_get_info(reduce_scatter, info) bind(c)
            import :: c_int, c_ptr, onebit_shard_info_t
            type(c_ptr), value, target :: reduce_scatter
            type(onebit_shard_info_t), intent(inout) :: info
        end function
        integer(c_int) function onebit_all_gather_get_info(all_gather, info) bind(c)
            import :: c_int, c_ptr, onebit_shard_info_t
            type(c_ptr), value, target :: all_gather
            type(onebit_shard_info_t), intent(inout) :: info
        end function
        integer(c_int) function onebit_reduce_scatter_destroy(reduce_scatter) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: reduce_scatter
        end function
        integer(c_int) function onebit_all_gather_destroy(all_gather) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: all_gather
        end function
    end interface

    ! ---- Optimizer ----
    interface
        integer(c_int) function onebit_optimizer_create(comm, config, tensors, num_tensors, optimizer) bind(c)
            import :: c_int, c_size_t, c_ptr, onebit_optimizer_config_t, onebit_tensor_t
            type(c_ptr), value, target :: comm
            type(onebit_optimizer_config_t), intent(in), target :: config
            type(onebit_tensor_t), intent(in), target :: tensors(*)
            integer(c_size_t), value :: num_tensors
            type(c_ptr), intent(out) :: optimizer
        end function
        integer(c_int) function onebit_optimizer_step(optimizer) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: optimizer
        end function
        integer(c_int) function onebit_optimizer_step_start(optimizer) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: optimizer
        end function
        integer(c_int) function onebit_optimizer_step_test(optimizer, done) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: optimizer
            integer(c_int), intent(out) :: done
        end function
        integer(c_int) function onebit_optimizer_step_wait(optimizer) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: optimizer
        end function
        ! callback: as for onebit_allreduce_set_callback
        integer(c_int) function onebit_optimizer_set_callback(optimizer, callback, context) bind(c)
            import :: c_int, c_ptr, c_funptr
            type(c_ptr), value, target :: optimizer
            type(c_funptr), value :: callback
            type(c_ptr), value, target :: context
        end function
        integer(c_int) function onebit_optimizer_cancel_step(optimizer, reason) bind(c)
            import :: c_int, c_ptr, c_char
            type(c_ptr), value, target :: optimizer
            character(kind=c_char), intent(in) :: reason(*)
        end function
        integer(c_int) function onebit_optimizer_grad_ready(optimizer, tensor) bind(c)
            import :: c_int, c_size_t, c_ptr
            type(c_ptr), value, target :: optimizer
            integer(c_size_t), value :: tensor
        end function
        integer(c_int) function onebit_optimizer_set_gradients(optimizer, tensor, gradients) bind(c)
            import :: c_int, c_size_t, c_ptr
            type(c_ptr), value, target :: optimizer
            integer(c_size_t), value :: tensor
            type(c_ptr), value, target :: gradients
        end function
        ! gradients: c_loc or c_null_ptr, one for each tensor
        integer(c_int) function onebit_optimizer_set_all_gradients(optimizer, gradients, num_tensors) bind(c)
            import :: c_int, c_size_t, c_ptr
            type(c_ptr), value, target :: optimizer
            type(c_ptr), intent(in) :: gradients(*)
            integer(c_size_t), value :: num_tensors
        end function
        integer(c_int) function onebit_optimizer_set_parameters(optimizer, tensor, parameters) bind(c)
            import :: c_int, c_size_t, c_ptr
            type(c_ptr), value, target :: optimizer, parameters
            integer(c_size_t), value :: tensor
        end function
        integer(c_int) function onebit_optimizer_set_group(optimizer, group, settings) bind(c)
            import :: c_int, c_size_t, c_ptr, onebit_param_group_t
            type(c_ptr), value, target :: optimizer
            integer(c_size_t), value :: group
            type(onebit_param_group_t), intent(in) :: settings
        end function
        integer(c_int) function onebit_optimizer_set_max_grad_norm(optimizer, max_grad_norm) bind(c)
            import :: c_int, c_double, c_ptr
            type(c_ptr), value, target :: optimizer
            real(c_double), value :: max_grad_norm
        end function
        integer(c_int) function onebit_optimizer_set_lr(optimizer, lr) bind(c)
            import :: c_int, c_double, c_ptr
            type(c_ptr), value, target :: optimizer
            real(c_double), value :: lr
        end function
        integer(c_int) function onebit_optimizer_set_group_lr(optimizer, group, lr) bind(c)
            import :: c_int, c_size_t, c_double, c_ptr
            type(c_ptr), value, target :: optimizer
            integer(c_size_t), value :: group
            real(c_double), value :: lr
        end function
        integer(c_int) function onebit_optimizer_set_gradient_scale(optimizer, scale) bind(c)
            import :: c_int, c_double, c_ptr
            type(c_ptr), value, target :: optimizer
            real(c_double), value :: scale
        end function
        integer(c_int) function onebit_optimizer_freeze(optimizer) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: optimizer
        end function
        integer(c_int) function onebit_optimizer_reset_error(optimizer) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: optimizer
        end function
        integer(c_int) function onebit_optimizer_save(optimizer, prefix) bind(c)
            import :: c_int, c_ptr, c_char
            type(c_ptr), value, target :: optimizer
            character(kind=c_char), intent(in) :: prefix(*)
        end function
        integer(c_int) function onebit_optimizer_load(optimizer, prefix) bind(c)
            import :: c_int, c_ptr, c_char
            type(c_ptr), value, target :: optimizer
            character(kind=c_char), intent(in) :: prefix(*)
        end function
        integer(c_int) function onebit_optimizer_state_size(optimizer, bytes) bind(c)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value, target :: optimizer
            integer(c_int64_t), intent(out) :: bytes
        end function
        integer(c_int) function onebit_optimizer_pack_state(optimizer, buffer, bytes) bind(c)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value, target :: optimizer, buffer
            integer(c_int64_t), value :: bytes
        end function
        integer(c_int) function onebit_optimizer_unpack_state(optimizer, blobs, bytes, num_blobs) bind(c)
            import :: c_int, c_int64_t, c_size_t, c_ptr
            type(c_ptr), value, target :: optimizer
            type(c_ptr), intent(in) :: blobs(*)
            integer(c_int64_t), intent(in) :: bytes(*)
            integer(c_size_t), value :: num_blobs
        end function
        ! values: c_loc of reals
        integer(c_int) function onebit_optimizer_get_state(optimizer, tensor, which, values) bind(c)
            import :: c_int, c_size_t, c_ptr
            type(c_ptr), value, target :: optimizer, values
            integer(c_size_t), value :: tensor
            integer(c_int), value :: which
        end function
        integer(c_int) function onebit_optimizer_set_state(optimizer, tensor, which, values) bind(c)
            import :: c_int, c_size_t, c_ptr
            type(c_ptr), value, target :: optimizer, values
            integer(c_size_t), value :: tensor
            integer(c_int), value :: which
        end function
        integer(c_int) function onebit_optimizer_set_steps(optimizer, steps) bind(c)
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value, target :: optimizer
            integer(c_int64_t), value :: steps
        end function
        integer(c_int) function onebit_optimizer_get_error(optimizer, worker, server) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: optimizer, worker, server
        end function
        integer(c_int) function onebit_optimizer_get_info(optimizer, info) bind(c)
            import :: c_int, c_ptr, onebit_optimizer_info_t
            type(c_ptr), value, target :: optimizer
            type(onebit_optimizer_info_t), intent(inout) :: info
        end function
        integer(c_int) function onebit_optimizer_destroy(optimizer) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value, target :: optimizer
        end function
    end interface

contains

    ! ---- the structs with their defaults: a struct that the library doesn't know gets size 0, which calls refuse ----

    function onebit_bootstrap_init(rank, ranks, allgather, context) result(bootstrap)
        integer(c_int), intent(in) :: rank, ranks
        type(c_funptr), intent(in) :: allgather
        type(c_ptr), intent(in) :: context
        type(onebit_bootstrap_t) :: bootstrap
        interface
            integer(c_int) function c_init(bootstrap, size, rank, ranks, allgather, context) &
                bind(c, name="onebit_bootstrap_init")
                import :: c_int, c_size_t, c_ptr, c_funptr, onebit_bootstrap_t
                type(onebit_bootstrap_t), intent(out) :: bootstrap
                integer(c_size_t), value :: size
                integer(c_int), value :: rank, ranks
                type(c_funptr), value :: allgather
                type(c_ptr), value :: context
            end function
        end interface
        if (c_init(bootstrap, c_sizeof(bootstrap), rank, ranks, allgather, context) /= onebit_success) &
            bootstrap%size = 0
    end function

    function onebit_comm_info_init() result(info)
        type(onebit_comm_info_t) :: info
        interface
            integer(c_int) function c_init(info, size) bind(c, name="onebit_comm_info_init")
                import :: c_int, c_size_t, onebit_comm_info_t
                type(onebit_comm_info_t), intent(out) :: info
                integer(c_size_t), value :: size
            end function
        end interface
        if (c_init(info, c_sizeof(info)) /= onebit_success) info%size = 0
    end function

    function onebit_allreduce_config_init(count) result(config)
        integer(c_int64_t), intent(in) :: count
        type(onebit_allreduce_config_t) :: config
        interface
            integer(c_int) function c_init(config, size, count) bind(c, name="onebit_allreduce_config_init")
                import :: c_int, c_size_t, c_int64_t, onebit_allreduce_config_t
                type(onebit_allreduce_config_t), intent(out) :: config
                integer(c_size_t), value :: size
                integer(c_int64_t), value :: count
            end function
        end interface
        if (c_init(config, c_sizeof(config), count) /= onebit_success) config%size = 0
    end function

    function onebit_level_init(color) result(level)
        integer(c_int32_t), intent(in) :: color
        type(onebit_level_t) :: level
        interface
            integer(c_int) function c_init(level, size, color) bind(c, name="onebit_level_init")
                import :: c_int, c_int32_t, c_size_t, onebit_level_t
                type(onebit_level_t), intent(out) :: level
                integer(c_size_t), value :: size
                integer(c_int32_t), value :: color
            end function
        end interface
        if (c_init(level, c_sizeof(level), color) /= onebit_success) level%size = 0
    end function

    function onebit_level_info_init() result(info)
        type(onebit_level_info_t) :: info
        interface
            integer(c_int) function c_init(info, size) bind(c, name="onebit_level_info_init")
                import :: c_int, c_size_t, onebit_level_info_t
                type(onebit_level_info_t), intent(out) :: info
                integer(c_size_t), value :: size
            end function
        end interface
        if (c_init(info, c_sizeof(info)) /= onebit_success) info%size = 0
    end function

    function onebit_allreduce_info_init() result(info)
        type(onebit_allreduce_info_t) :: info
        interface
            integer(c_int) function c_init(info, size) bind(c, name="onebit_allreduce_info_init")
                import :: c_int, c_size_t, onebit_allreduce_info_t
                type(onebit_allreduce_info_t), intent(out) :: info
                integer(c_size_t), value :: size
            end function
        end interface
        if (c_init(info, c_sizeof(info)) /= onebit_success) info%size = 0
    end function

    function onebit_shard_config_init(count) result(config)
        integer(c_int64_t), intent(in) :: count
        type(onebit_shard_config_t) :: config
        interface
            integer(c_int) function c_init(config, size, count) bind(c, name="onebit_shard_config_init")
                import :: c_int, c_size_t, c_int64_t, onebit_shard_config_t
                type(onebit_shard_config_t), intent(out) :: config
                integer(c_size_t), value :: size
                integer(c_int64_t), value :: count
            end function
        end interface
        if (c_init(config, c_sizeof(config), count) /= onebit_success) config%size = 0
    end function

    function onebit_shard_info_init() result(info)
        type(onebit_shard_info_t) :: info
        interface
            integer(c_int) function c_init(info, size) bind(c, name="onebit_shard_info_init")
                import :: c_int, c_size_t, onebit_shard_info_t
                type(onebit_shard_info_t), intent(out) :: info
                integer(c_size_t), value :: size
            end function
        end interface
        if (c_init(info, c_sizeof(info)) /= onebit_success) info%size = 0
    end function

    function onebit_tensor_init(parameters, gradients, count) result(tensor)
        type(c_ptr), intent(in), target :: parameters, gradients
        integer(c_int64_t), intent(in) :: count
        type(onebit_tensor_t) :: tensor
        interface
            integer(c_int) function c_init(tensor, size, parameters, gradients, count) &
                bind(c, name="onebit_tensor_init")
                import :: c_int, c_size_t, c_int64_t, c_ptr, onebit_tensor_t
                type(onebit_tensor_t), intent(out) :: tensor
                integer(c_size_t), value :: size
                type(c_ptr), value, target :: parameters, gradients
                integer(c_int64_t), value :: count
            end function
        end interface
        if (c_init(tensor, c_sizeof(tensor), parameters, gradients, count) /= onebit_success) tensor%size = 0
    end function

    function onebit_param_group_init(lr) result(group)
        real(c_double), intent(in) :: lr
        type(onebit_param_group_t) :: group
        interface
            integer(c_int) function c_init(group, size, lr) bind(c, name="onebit_param_group_init")
                import :: c_int, c_size_t, c_double, onebit_param_group_t
                type(onebit_param_group_t), intent(out) :: group
                integer(c_size_t), value :: size
                real(c_double), value :: lr
            end function
        end interface
        if (c_init(group, c_sizeof(group), lr) /= onebit_success) group%size = 0
    end function

    function onebit_optimizer_config_init(kind, lr) result(config)
        integer(c_int), intent(in) :: kind
        real(c_double), intent(in) :: lr
        type(onebit_optimizer_config_t) :: config
        interface
            integer(c_int) function c_init(config, size, kind, lr) bind(c, name="onebit_optimizer_config_init")
                import :: c_int, c_size_t, c_double, onebit_optimizer_config_t
                type(onebit_optimizer_config_t), intent(out) :: config
                integer(c_size_t), value :: size
                integer(c_int), value :: kind
                real(c_double), value :: lr
            end function
        end interface
        if (c_init(config, c_sizeof(config), kind, lr) /= onebit_success) config%size = 0
    end function

    function onebit_optimizer_info_init() result(info)
        type(onebit_optimizer_info_t) :: info
        interface
            integer(c_int) function c_init(info, size) bind(c, name="onebit_optimizer_info_init")
                import :: c_int, c_size_t, onebit_optimizer_info_t
                type(onebit_optimizer_info_t), intent(out) :: info
                integer(c_size_t), value :: size
            end function
        end interface
        if (c_init(info, c_sizeof(info)) /= onebit_success) info%size = 0
    end function

    ! ---- strings ----

    ! The string that onebit_last_error() points to.
    function onebit_message() result(text)
        character(:), allocatable :: text
        text = to_string(onebit_last_error())
    end function

    ! A status as "ONEBIT_ERROR_BUSY".
    function onebit_status_name(status) result(text)
        integer(c_int), intent(in) :: status
        character(:), allocatable :: text
        text = to_string(onebit_status_string(status))
    end function

    ! A member of an info struct.
    function onebit_text(member) result(text)
        character(kind=c_char), intent(in) :: member(:)
        character(:), allocatable :: text
        integer :: i
        text = ''
        do i = 1, size(member)
            if (member(i) == c_null_char) return
            text = text // member(i)
        end do
    end function

    function to_string(address) result(text)
        type(c_ptr), intent(in) :: address
        character(:), allocatable :: text
        character(kind=c_char), pointer :: characters(:)
        integer :: length
        interface
            function strlen(string) bind(c)
                import :: c_ptr, c_size_t
                type(c_ptr), value, target :: string
                integer(c_size_t) :: strlen
            end function
        end interface
        length = int(strlen(address))
        call c_f_pointer(address, characters, [length])
        text = onebit_text(characters)
    end function
end module
