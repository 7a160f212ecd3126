! Copyright 2026 The onebit authors
! SPDX-License-Identifier: Apache-2.0
!
! The Fortran module: every struct reaches the library as C's does, results are right, and failures are reported. On any
! number of ranks.
module launcher
    use, intrinsic :: iso_c_binding
    use mpi_f08
    implicit none
    integer :: lines = 0, last_level = -1

contains

    ! Replaces stderr.
    subroutine count_lines(context, level, text) bind(c)
        type(c_ptr), value :: context, text
        integer(c_int), value :: level
        if (c_associated(text) .and. .not. c_associated(context)) lines = lines + 1
        last_level = level
    end subroutine

    ! Replaces a launcher's store.
    integer(c_int) function gather(context, mine, all, bytes) bind(c)
        type(c_ptr), value :: context, mine, all
        integer(c_size_t), value :: bytes
        character(kind=c_char), pointer :: own(:), everyones(:)
        integer :: length, ranks
        length = int(bytes)
        call MPI_Comm_size(MPI_COMM_WORLD, ranks)
        call c_f_pointer(mine, own, [length])
        call c_f_pointer(all, everyones, [length * ranks])
        call MPI_Allgather(own, length, MPI_CHARACTER, everyones, length, MPI_CHARACTER, MPI_COMM_WORLD)
        gather = merge(1_c_int, 0_c_int, c_associated(context))
    end function

    ! Counts, in the variable that its context points to, the operations that ended well.
    subroutine count_success(context, status) bind(c)
        type(c_ptr), value :: context
        integer(c_int), value :: status
        integer(c_int), pointer :: successes
        call c_f_pointer(context, successes)
        if (status == 0) successes = successes + 1
    end subroutine
end module

program fortran_test
    use mpi_f08
    use launcher
    use onebit
    implicit none
    integer :: failures = 0, all_failures, rank, ranks
    type(c_ptr) :: comm

    call MPI_Init()
    call expect_status(onebit_comm_create_mpi_fortran(MPI_COMM_NULL%MPI_VAL, comm), onebit_error_invalid_argument, &
                       'MPI_COMM_NULL')
    call expect_ok(onebit_comm_create_mpi_fortran(MPI_COMM_WORLD%MPI_VAL, comm), 'create a communicator')
    call expect_ok(onebit_comm_rank(comm, rank), 'rank')
    call expect_ok(onebit_comm_size(comm, ranks), 'size')
    call test_communicator()
    call test_bootstrap()
    call test_split()
    call test_log_and_settings()
    call test_loopback()
    call test_average()
    call test_sum()
    call test_compressed()
    call test_matrices()
    call test_levels()
    call test_state()
    call test_shards()
    call test_shards_state()
    call test_optimizer()
    call test_shared_memory()
    call expect_ok(onebit_comm_destroy(comm), 'destroy the communicator')
    call expect_status(onebit_comm_destroy(comm), onebit_error_invalid_handle, 'destroyed twice')

    call MPI_Allreduce(failures, all_failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    call MPI_Finalize()
    if (all_failures > 0) stop 1

contains

    subroutine expect(holds, what)
        logical, intent(in) :: holds
        character(*), intent(in) :: what
        if (holds) return
        failures = failures + 1
        print '(a, i0, 2a)', 'FAILED on rank ', rank, ': ', what
    end subroutine

    subroutine expect_ok(status, what)
        integer(c_int), intent(in) :: status
        character(*), intent(in) :: what
        if (status /= onebit_success) call expect(.false., what // ': ' // onebit_message())
    end subroutine

    ! Expects this status, and `part` in the message.
    subroutine expect_status(status, wanted, part)
        integer(c_int), intent(in) :: status, wanted
        character(*), intent(in) :: part
        call expect(status == wanted, part // ': ' // onebit_status_name(status) // ' instead of ' // &
                    onebit_status_name(wanted))
        if (wanted /= onebit_error_invalid_handle) then
            call expect(index(onebit_message(), part) > 0, part // ' is not in "' // onebit_message() // '"')
        end if
    end subroutine

    subroutine test_communicator()
        type(onebit_comm_info_t) :: info
        type(onebit_allreduce_config_t) :: config
        integer(c_int) :: codec
        info = onebit_comm_info_init()
        call expect_ok(onebit_comm_get_info(comm, info), 'info of a communicator')
        call expect(info%nodes == 1 .and. onebit_text(info%transport) == 'mpi', 'a node, and the transport''s name')
        call expect(onebit_version_number() >= 100, 'the version')
        call expect_ok(onebit_comm_tune(comm, 1000_c_int64_t, 0.05d0, c_null_ptr), 'tune')
        call expect_ok(onebit_comm_tune_codecs(comm, [onebit_codec_int8, onebit_codec_sign], 2_c_size_t, 1000_c_int64_t, &
            0.05d0, c_null_ptr), 'tune two codecs')
        config = onebit_allreduce_config_init(1000_c_int64_t)
        call expect_ok(onebit_allreduce_choose_codec(comm, config, 0.02d0, codec), 'choose a codec')
        call expect(codec == onebit_codec_int8 .or. codec == onebit_codec_bfloat16 .or. codec == onebit_codec_float16, &
            'a codec that is fine enough')
    end subroutine

    subroutine test_bootstrap()
        type(onebit_bootstrap_t) :: bootstrap
        type(onebit_comm_info_t) :: info
        type(c_ptr) :: without_mpi
        character(kind=c_char), target :: loopback(10) = ['1', '2', '7', '.', '0', '.', '0', '.', '1', c_null_char]
        bootstrap = onebit_bootstrap_init(rank, ranks, c_funloc(gather), c_null_ptr)
        bootstrap%interface = c_loc(loopback)
        call expect_ok(onebit_comm_create_bootstrap(bootstrap, without_mpi), 'create a communicator without MPI')
        info = onebit_comm_info_init()
        call expect_ok(onebit_comm_get_info(without_mpi, info), 'its info')
        call expect(onebit_text(info%transport) == 'tcp', 'its transport')
        call expect_ok(onebit_comm_destroy(without_mpi), 'destroy it')
        bootstrap%rank = ranks
        call expect_status(onebit_comm_create_bootstrap(bootstrap, without_mpi), onebit_error_invalid_argument, 'rank')
    end subroutine

    subroutine test_split()
        type(c_ptr) :: part
        integer :: part_rank, part_ranks
        call expect_ok(onebit_comm_split(comm, mod(rank, 2), -rank, part), 'split')
        call expect_ok(onebit_comm_rank(part, part_rank), 'rank in a part')
        call expect_ok(onebit_comm_size(part, part_ranks), 'size of a part')
        call expect(part_ranks == (ranks + 1 - mod(rank, 2)) / 2, 'the ranks of a part')
        call expect(part_rank == part_ranks - 1 - rank / 2, 'their order')
        call expect_ok(onebit_comm_destroy(part), 'destroy a part')
        call expect_ok(onebit_comm_split(comm, -1, 0, part), 'split off')
        call expect(.not. c_associated(part), 'a rank of no part')
    end subroutine

    subroutine test_log_and_settings()
        type(onebit_allreduce_config_t) :: config
        type(onebit_allreduce_info_t) :: info
        type(c_ptr) :: handle
        character(kind=c_char), target :: name(17) = ['O', 'N', 'E', 'B', 'I', 'T', '_', 'A', 'L', 'G', 'O', 'R', &
                                                      'I', 'T', 'H', 'M', c_null_char]
        character(kind=c_char), target :: text(5) = ['f', 'l', 'a', 't', c_null_char]
        call expect_ok(onebit_comm_set(comm, c_loc(name), c_loc(text)), 'set')
        call expect_ok(onebit_set_log_callback(c_funloc(count_lines), c_null_ptr), 'listen')
        config = onebit_allreduce_config_init(1000_c_int64_t)
        call expect_ok(onebit_allreduce_create(comm, config, handle), 'create what was set')
        call expect_ok(onebit_set_log_callback(c_null_funptr, c_null_ptr), 'listen no more')
        call expect(lines == merge(1, 0, rank == 0), 'a line on rank 0')
        call expect(last_level == merge(onebit_log_info, -1, rank == 0), 'its level')
        info = onebit_allreduce_info_init()
        call expect_ok(onebit_allreduce_get_info(handle, info), 'info of what was set')
        call expect(info%algorithm == onebit_algorithm_flat, 'the algorithm that was set')
        call expect_ok(onebit_allreduce_destroy(handle), 'destroy what was set')
        text(1) = c_null_char
        call expect_ok(onebit_comm_set(comm, c_loc(name), c_loc(text)), 'set back')
        call expect_status(onebit_comm_set(comm, c_null_ptr, c_loc(text)), onebit_error_invalid_argument, 'name')
    end subroutine

    subroutine test_loopback()
        type(c_ptr) :: comms(2)
        integer :: number, i
        call expect_ok(onebit_comm_create_loopback(2, comms), 'create communicators of threads')
        do i = 1, 2
            call expect_ok(onebit_comm_rank(comms(i), number), 'rank of a thread')
            call expect(number == i - 1, 'ranks in order')
            call expect_ok(onebit_comm_destroy(comms(i)), 'destroy it')
        end do
    end subroutine

    subroutine test_sum()
        type(onebit_allreduce_config_t) :: config
        type(c_ptr) :: handle
        real(c_float), target :: values(1000)
        config = onebit_allreduce_config_init(1000_c_int64_t)
        config%algorithm = onebit_algorithm_dense
        config%op = onebit_op_sum
        call expect_ok(onebit_allreduce_create(comm, config, handle), 'create a sum')
        values = real(rank + 1, c_float)
        call expect_ok(onebit_allreduce_run(handle, c_loc(values), c_loc(values)), 'add up')
        call expect(all(abs(values - ranks * (ranks + 1) / 2) < 1e-6), 'the sum')
        call expect_ok(onebit_allreduce_destroy(handle), 'destroy a sum')
    end subroutine

    subroutine test_average()
        integer(c_int64_t), parameter :: elements = 1000
        type(onebit_allreduce_config_t) :: config
        type(onebit_allreduce_info_t) :: info
        type(c_ptr) :: handle
        real(c_float), target :: values(elements), average(elements)
        integer(c_int) :: done
        config = onebit_allreduce_config_init(elements)
        config%algorithm = onebit_algorithm_dense
        config%threads = 1
        call expect_ok(onebit_allreduce_create(comm, config, handle), 'create')
        values = real(rank, c_float)
        call expect_ok(onebit_allreduce_run(handle, c_loc(values), c_loc(average)), 'run')
        call expect(all(abs(average - (ranks - 1) / 2.0) < 1e-6), 'the average')
        call expect_ok(onebit_allreduce_set_callback(handle, c_null_funptr, c_null_ptr), 'no callback')
        call expect_ok(onebit_allreduce_start(handle, c_loc(average), c_loc(average)), 'start')
        done = 0
        do while (done == 0)
            call expect_ok(onebit_allreduce_test(handle, done), 'test')
        end do
        call expect_ok(onebit_allreduce_wait(handle), 'wait for nothing')
        call expect(all(abs(average - (ranks - 1) / 2.0) < 1e-6), 'the average of what is the same')

        values(7) = transfer(int(z'7fc00000', c_int32_t), 1.0)
        call expect_status(onebit_allreduce_run(handle, c_loc(values), c_loc(average)), onebit_error_nonfinite, &
                           'sendbuf[6]')
        info = onebit_allreduce_info_init()
        call expect_ok(onebit_allreduce_get_info(handle, info), 'info')
        call expect(info%calls == 2 .and. info%threads == 1 .and. info%algorithm == onebit_algorithm_dense, &
                    'what the info says')
        call expect(index(onebit_text(info%reason), 'config.algorithm') > 0, 'the reason')
        call expect_ok(onebit_allreduce_destroy(handle), 'destroy')

        config%check = 77
        call expect_status(onebit_allreduce_create(comm, config, handle), onebit_error_invalid_argument, &
                           'config.check')
        call expect(.not. c_associated(handle), 'no handle')
        config = onebit_allreduce_config_init(elements + rank)
        if (ranks > 1) call expect_status(onebit_allreduce_create(comm, config, handle), onebit_error_mismatch, &
                                          'config.count')
    end subroutine

    ! Error feedback: the results of several calls add up to the inputs, except for one call's error.
    subroutine test_compressed()
        integer(c_int64_t), parameter :: elements = 40003
        integer, parameter :: calls = 40
        type(onebit_allreduce_config_t) :: config
        type(onebit_allreduce_info_t) :: info
        type(c_ptr) :: handle
        real(c_float), allocatable, target :: values(:), average(:), worker(:)
        real(c_double), allocatable :: delivered(:)
        integer(c_int64_t) :: first, number
        integer :: i, call_number
        config = onebit_allreduce_config_init(elements)
        config%algorithm = onebit_algorithm_pipelined
        config%scale = onebit_scale_l1
        call expect_ok(onebit_allreduce_create(comm, config, handle), 'create compressed')
        allocate (values(elements), average(elements), worker(elements), delivered(elements))
        values = [(sin(real(i, c_float)) + rank, i = 1, int(elements))]
        delivered = 0
        do call_number = 1, calls
            call expect_ok(onebit_allreduce_run(handle, c_loc(values), c_loc(average)), 'run compressed')
            delivered = delivered + average
        end do
        delivered = delivered / calls - (values - rank + (ranks - 1) / 2.0)
        call expect(sqrt(sum(delivered**2) / elements) < 0.2, 'error feedback delivers the average')
        call expect_ok(onebit_allreduce_get_error(handle, c_loc(worker), c_null_ptr, first, number), 'errors')
        call expect(any(worker /= 0) .and. first >= 0 .and. number <= elements, 'a worker error')
        info = onebit_allreduce_info_init()
        call expect_ok(onebit_allreduce_get_info(handle, info), 'info')
        if (ranks > 1) call expect(info%dense_bytes > 20 * info%last_bytes_sent, 'far fewer bytes')
        call expect_ok(onebit_allreduce_set_algorithm(handle, onebit_algorithm_flat), 'another form')
        call expect_ok(onebit_allreduce_set_mask(handle, c_null_ptr), 'no mask')
        call expect_ok(onebit_allreduce_reset(handle), 'reset')
        call expect_ok(onebit_allreduce_destroy(handle), 'destroy compressed')
    end subroutine

    ! An array whose columns are equal up to a factor is a matrix of rank 1: its rows are the array's columns.
    subroutine test_matrices()
        integer, parameter :: rows = 30, columns = 50
        integer(c_int64_t), target :: shapes(2, 2)
        type(onebit_allreduce_config_t) :: config
        type(c_ptr) :: handle
        real(c_float), allocatable, target :: values(:, :), average(:, :)
        integer :: i, j
        config = onebit_allreduce_config_init(int(rows * columns + rows, c_int64_t))
        config%codec = onebit_codec_powersgd
        config%algorithm = onebit_algorithm_flat
        config%matrix_rank = 1
        shapes = reshape([columns, rows, 1, rows], [2, 2])
        config%shapes = c_loc(shapes)
        config%num_shapes = 2
        call expect_ok(onebit_allreduce_create(comm, config, handle), 'create of matrices')
        allocate (values(rows, columns + 1), average(rows, columns + 1)) ! a vector is the last column
        values = reshape([((sin(real(i)) * cos(real(j)) * (rank + 1), i = 1, rows), j = 1, columns + 1)], &
                         [rows, columns + 1])
        do i = 1, 2
            call expect_ok(onebit_allreduce_run(handle, c_loc(values), c_loc(average)), 'run of matrices')
        end do
        call expect(all(abs(average - values / (rank + 1) * (ranks + 1) / 2) < 1e-4), 'the average of matrices')
        call expect_ok(onebit_allreduce_destroy(handle), 'destroy of matrices')
    end subroutine

    ! One group of all ranks, averaged by 8 bits, and nothing left to do between groups.
    subroutine test_levels()
        integer(c_int64_t), parameter :: elements = 3000
        type(onebit_allreduce_config_t) :: config
        type(onebit_level_t), target :: levels(1)
        type(onebit_level_info_t) :: info
        type(c_ptr) :: handle
        real(c_float), target :: values(elements), average(elements), error(elements)
        integer :: i
        config = onebit_allreduce_config_init(elements)
        levels(1) = onebit_level_init(3)
        levels(1)%compressed = 1
        levels(1)%codec = onebit_codec_int8
        config%codec = onebit_codec_int8
        config%algorithm = onebit_algorithm_levels
        config%levels = c_loc(levels)
        config%num_levels = 1
        call expect_ok(onebit_allreduce_create(comm, config, handle), 'create on levels')
        values = [(sin(real(i, c_float)) * (rank + 1), i = 1, int(elements))]
        call expect_ok(onebit_allreduce_run(handle, c_loc(values), c_loc(average)), 'run on levels')
        call expect(all(abs(average - values / (rank + 1) * (ranks + 1) / 2.0) < 0.02 * ranks), 'the average on levels')
        info = onebit_level_info_init()
        call expect_ok(onebit_allreduce_get_level(handle, 0, info, c_loc(error)), 'what a level does')
        call expect(info%ranks == ranks .and. info%count == elements .and. info%compressed == 1, 'one group of all')
        call expect(any(error /= 0), 'the error of a level')
        call expect_ok(onebit_allreduce_destroy(handle), 'destroy on levels')
        levels(1) = onebit_level_init(onebit_level_node - 1)
        call expect_status(onebit_allreduce_create(comm, config, handle), onebit_error_invalid_argument, 'color')
    end subroutine

    subroutine test_state()
        integer(c_int64_t), parameter :: elements = 5000
        type(onebit_allreduce_config_t) :: config
        type(c_ptr) :: handle, other
        real(c_float), target :: values(elements), one(elements), two(elements)
        integer(c_int8_t), allocatable, target :: state(:)
        integer(c_int64_t) :: bytes
        integer :: i
        config = onebit_allreduce_config_init(elements)
        config%algorithm = onebit_algorithm_flat
        call expect_ok(onebit_allreduce_create(comm, config, handle), 'create one')
        call expect_ok(onebit_allreduce_create(comm, config, other), 'create another')
        values = [(cos(real(i + rank, c_float)), i = 1, int(elements))]
        call expect_ok(onebit_allreduce_run(handle, c_loc(values), c_loc(one)), 'run')
        call expect_ok(onebit_allreduce_state_size(handle, bytes), 'size of the state')
        allocate (state(bytes))
        call expect_ok(onebit_allreduce_pack_state(handle, c_loc(state), bytes), 'pack')
        call expect_ok(onebit_allreduce_unpack_state(other, c_loc(state), bytes), 'unpack')
        call expect_ok(onebit_allreduce_run(handle, c_loc(values), c_loc(one)), 'run one')
        call expect_ok(onebit_allreduce_run(other, c_loc(values), c_loc(two)), 'run the other')
        call expect(all(one == two), 'the other goes on where the one was')
        call expect_status(onebit_allreduce_load(handle, '/no such place' // c_null_char), onebit_error_io, &
                           '/no such place')
        call expect_ok(onebit_allreduce_destroy(handle), 'destroy one')
        call expect_ok(onebit_allreduce_destroy(other), 'destroy the other')
    end subroutine

    ! The two halves of an exact sum, in place, a rank's shard larger than the one before it.
    subroutine test_shards()
        type(onebit_shard_config_t) :: config
        type(onebit_shard_info_t) :: info
        type(c_ptr) :: reduce_scatter, all_gather, mine
        integer(c_int64_t), target :: counts(ranks)
        integer(c_int64_t) :: elements
        integer(c_int), target :: successes
        integer(c_int) :: done
        real(c_float), allocatable, target :: values(:)
        real(c_float), allocatable :: ramp(:)
        integer :: i
        counts = [(100_c_int64_t * i, i = 1, ranks)]
        elements = sum(counts)
        config = onebit_shard_config_init(elements)
        config%counts = c_loc(counts)
        config%algorithm = onebit_algorithm_dense
        config%op = onebit_op_sum
        config%threads = 1
        call expect_ok(onebit_reduce_scatter_create(comm, config, reduce_scatter), 'create a reduce-scatter')
        config%op = onebit_op_average
        call expect_ok(onebit_all_gather_create(comm, config, all_gather), 'create an all-gather')
        info = onebit_shard_info_init()
        call expect_ok(onebit_reduce_scatter_get_info(reduce_scatter, info), 'info of a reduce-scatter')
        call expect(info%shard_begin == sum(counts(:rank)) .and. info%shard_count == counts(rank + 1) .and. &
                    info%threads == 1 .and. info%algorithm == onebit_algorithm_dense, 'this rank''s shard')
        call expect(onebit_text(info%transport) == 'mpi' .and. len(onebit_text(info%reason)) > 0, 'what it says')
        ramp = [(real(i, c_float), i = 1, int(elements))]
        values = (rank + 1) * ramp
        successes = 0
        mine = c_loc(values(info%shard_begin + 1))
        call expect_ok(onebit_all_gather_set_callback(all_gather, c_funloc(count_success), c_loc(successes)), &
                       'callback')
        call expect_ok(onebit_reduce_scatter_start(reduce_scatter, c_loc(values), mine), 'start a reduce-scatter')
        call expect_ok(onebit_reduce_scatter_wait(reduce_scatter), 'wait for a reduce-scatter')
        call expect_ok(onebit_all_gather_start(all_gather, mine, c_loc(values)), 'start an all-gather')
        done = 0
        do while (done == 0)
            call expect_ok(onebit_all_gather_test(all_gather, done), 'test an all-gather')
        end do
        call expect_ok(onebit_all_gather_wait(all_gather), 'wait for nothing')
        call expect(successes == 1, 'the callback hears of it')
        call expect(all(values == ranks * (ranks + 1) / 2 * ramp), 'the sum on all ranks')
        call expect_ok(onebit_all_gather_get_info(all_gather, info), 'info of an all-gather')
        call expect(info%calls == 1, 'a call')
        values(7) = transfer(int(z'7fc00000', c_int32_t), 1.0)
        call expect_status(onebit_reduce_scatter_run(reduce_scatter, c_loc(values), mine), onebit_error_nonfinite, &
                           'sendbuf[6]')
        call expect_ok(onebit_reduce_scatter_destroy(reduce_scatter), 'destroy a reduce-scatter')
        call expect_ok(onebit_all_gather_destroy(all_gather), 'destroy an all-gather')
        counts(1) = counts(1) + 1
        call expect_status(onebit_all_gather_create(comm, config, all_gather), onebit_error_invalid_argument, 'counts')
        call expect(.not. c_associated(all_gather), 'no handle')
    end subroutine

    ! Compressed halves with one codec are an allreduce; both go on from a saved state.
    subroutine test_shards_state()
        type(onebit_shard_config_t) :: config
        type(c_ptr) :: reduce_scatter, all_gather
        integer(c_int64_t) :: elements, shard, bytes
        real(c_float), allocatable, target :: values(:), whole(:), again(:), part(:), error(:)
        integer(c_int8_t), allocatable, target :: state(:)
        integer :: i
        shard = 4096
        elements = shard * ranks
        config = onebit_shard_config_init(elements)
        config%algorithm = onebit_algorithm_pipelined
        config%codec = onebit_codec_int8
        call expect_ok(onebit_reduce_scatter_create(comm, config, reduce_scatter), 'create a reduce-scatter')
        call expect_ok(onebit_all_gather_create(comm, config, all_gather), 'create an all-gather')
        allocate (whole(elements), again(elements), part(shard), error(elements))
        values = [(sin(real(i, c_float)) + rank, i = 1, int(elements))]
        call expect_ok(onebit_reduce_scatter_run(reduce_scatter, c_loc(values), c_loc(part)), 'reduce')
        call expect_ok(onebit_all_gather_run(all_gather, c_loc(part), c_loc(whole)), 'gather')
        call expect(all(abs(whole - (values - rank + (ranks - 1) / 2.0)) < 0.1), 'nearly the average')

        call expect_ok(onebit_reduce_scatter_get_error(reduce_scatter, c_loc(error)), 'the error of a reduce-scatter')
        if (ranks > 1) call expect(any(error /= 0), 'there is one')
        call expect_ok(onebit_all_gather_get_error(all_gather, c_loc(error)), 'the error of an all-gather')
        call expect_ok(onebit_reduce_scatter_state_size(reduce_scatter, bytes), 'size of the state')
        allocate (state(bytes))
        call expect_ok(onebit_reduce_scatter_pack_state(reduce_scatter, c_loc(state), bytes), 'pack')
        call expect_ok(onebit_reduce_scatter_run(reduce_scatter, c_loc(values), c_loc(whole)), 'reduce')
        call expect_ok(onebit_reduce_scatter_unpack_state(reduce_scatter, c_loc(state), bytes), 'unpack')
        call expect_ok(onebit_reduce_scatter_run(reduce_scatter, c_loc(values), c_loc(again)), 'reduce again')
        call expect(all(whole(:shard) == again(:shard)), 'it goes on where it was')
        deallocate (state)
        call expect_ok(onebit_all_gather_state_size(all_gather, bytes), 'size of the state')
        allocate (state(bytes))
        call expect_ok(onebit_all_gather_pack_state(all_gather, c_loc(state), bytes), 'pack')
        call expect_ok(onebit_all_gather_run(all_gather, c_loc(part), c_loc(whole)), 'gather')
        call expect_ok(onebit_all_gather_unpack_state(all_gather, c_loc(state), bytes), 'unpack')
        call expect_ok(onebit_all_gather_run(all_gather, c_loc(part), c_loc(again)), 'gather again')
        call expect(all(whole == again), 'it goes on where it was')
        call expect_status(onebit_reduce_scatter_load(reduce_scatter, '/no such place' // c_null_char), &
                           onebit_error_io, '/no such place')
        call expect_status(onebit_all_gather_save(all_gather, '/no such place/file' // c_null_char), onebit_error_io, &
                           '/no such place')

        call expect_ok(onebit_reduce_scatter_set_algorithm(reduce_scatter, onebit_algorithm_dense), 'exact')
        call expect_ok(onebit_all_gather_set_algorithm(all_gather, onebit_algorithm_dense), 'exact')
        call expect_ok(onebit_reduce_scatter_reset(reduce_scatter), 'reset')
        call expect_ok(onebit_all_gather_reset(all_gather), 'reset')
        call expect_ok(onebit_reduce_scatter_destroy(reduce_scatter), 'destroy a reduce-scatter')
        call expect_ok(onebit_all_gather_destroy(all_gather), 'destroy an all-gather')
    end subroutine

    ! Finds the minimum of a parabola. The minimum is at the mean of the ranks' values.
    subroutine test_optimizer()
        integer(c_int64_t), parameter :: elements = 4100
        type(onebit_param_group_t), target :: groups(1)
        type(onebit_optimizer_config_t) :: config
        type(onebit_optimizer_info_t) :: info
        type(onebit_tensor_t) :: tensors(2)
        type(c_ptr) :: handle
        real(c_float), target :: x(elements), y(10), x_gradient(elements), y_gradient(10)
        character(kind=c_char), target :: name(2) = ['y', c_null_char]
        integer :: step
        integer(c_int) :: done, active
        integer(c_int), target :: successes
        x = 1
        y = -1
        tensors(1) = onebit_tensor_init(c_loc(x), c_loc(x_gradient), elements)
        tensors(2) = onebit_tensor_init(c_loc(y), c_null_ptr, 10_c_int64_t)
        tensors(2)%name = c_loc(name)
        groups(1) = onebit_param_group_init(0.05d0)
        config = onebit_optimizer_config_init(onebit_optimizer_onebit_adam, 1d0)
        config%groups = c_loc(groups)
        config%num_groups = 1
        config%freeze_step = 20
        call expect_ok(onebit_optimizer_create(comm, config, tensors, 2_c_size_t, handle), 'create an optimizer')
        call expect_status(onebit_optimizer_step(handle), onebit_error_invalid_argument, 'y')
        call expect_ok(onebit_optimizer_set_gradients(handle, 1_c_size_t, c_loc(y_gradient)), 'gradients')
        if (rank == 0) then
            call expect_status(onebit_optimizer_cancel_step(handle, 'no memory'//c_null_char), &
                               onebit_error_cancelled, 'no memory')
        else
            call expect_status(onebit_optimizer_step(handle), onebit_error_cancelled, 'no memory')
        end if
        successes = 0
        call expect_ok(onebit_optimizer_set_callback(handle, c_funloc(count_success), c_loc(successes)), 'callback')
        do step = 1, 200
            x_gradient = x - 0.5 + 0.1 * (rank - (ranks - 1) / 2.0)
            y_gradient = y
            if (step == 100) call expect_ok(onebit_optimizer_set_lr(handle, 0.005d0), 'a smaller learning rate')
            if (mod(step, 2) == 0) then
                call expect_ok(onebit_optimizer_step(handle), 'step')
                cycle
            end if
            call expect_ok(onebit_optimizer_step_start(handle), 'start a step')
            done = 0
            active = 1
            if (mod(step, 3) == 0) then
                do while (done == 0)
                    call expect_ok(onebit_optimizer_step_test(handle, done), 'test a step')
                end do
            else
                do while (active > 0)
                    call expect_ok(onebit_comm_progress(comm, active), 'progress')
                end do
            end if
            call expect_ok(onebit_optimizer_step_wait(handle), 'wait for a step that has ended')
        end do
        call expect(successes == 100, 'the callback hears of each started step')
        call expect(maxval(abs(x - 0.5)) < 0.1 .and. maxval(abs(y)) < 0.1, 'the least is found')
        info = onebit_optimizer_info_init()
        call expect_ok(onebit_optimizer_get_info(handle, info), 'info of the optimizer')
        call expect(info%frozen == 1 .and. info%steps == 200 .and. info%freeze_step == 20 .and. &
                    info%count == elements + 10 .and. info%compressed_rounds == 180 .and. info%cancelled == 1, 'what it says')
        call expect_ok(onebit_optimizer_destroy(handle), 'destroy the optimizer')
    end subroutine

    subroutine test_shared_memory()
        type(c_ptr) :: memory
        real(c_float), pointer :: values(:)
        call expect_ok(onebit_mem_alloc(comm, 4000_c_size_t, memory), 'allocate')
        call c_f_pointer(memory, values, [1000])
        call expect(all(values == 0), 'zeroes')
        call expect_ok(onebit_mem_free(memory), 'free')
    end subroutine
end program
