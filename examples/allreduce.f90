! Copyright 2026 The onebit authors
! SPDX-License-Identifier: Apache-2.0
!
! allreduce.c in Fortran: averages a gradient over the ranks, again and again, sending one bit for each element.
!
!     mpirun -n 4 example_allreduce_fortran
program example_allreduce
    use mpi_f08
    use onebit
    implicit none
    integer(c_int64_t), parameter :: elements = 2_c_int64_t**20
    integer, parameter :: steps = 10
    type(c_ptr) :: comm, allreduce
    type(onebit_allreduce_config_t) :: config
    type(onebit_allreduce_info_t) :: info
    real(c_float), allocatable, target :: gradient(:)
    integer :: rank, step

    call MPI_Init()
    call check(onebit_comm_create_mpi_fortran(MPI_COMM_WORLD%MPI_VAL, comm))
    call check(onebit_comm_rank(comm, rank))

    ! With auto, onebit compresses only where compression pays. This program always compresses, to show it.
    config = onebit_allreduce_config_init(elements)
    config%algorithm = onebit_algorithm_flat
    call check(onebit_allreduce_create(comm, config, allreduce))

    allocate (gradient(elements))
    call random_init(repeatable=.true., image_distinct=.false.)
    do step = 1, steps
        call random_number(gradient) ! stands for a backward pass
        gradient = 2 * gradient - 1 + real(rank, c_float) / 100
        call check(onebit_allreduce_run(allreduce, c_loc(gradient), c_loc(gradient))) ! in place: now the average
    end do

    info = onebit_allreduce_info_init()
    call check(onebit_allreduce_get_info(allreduce, info))
    if (rank == 0) then
        print '(i0, 3a, i0, a, i0, a)', elements, ' elements over ', onebit_text(info%transport), ': ', &
            info%last_bytes_sent, ' bytes sent per call by this rank; a float32 ring allreduce: ', info%dense_bytes, &
            ' bytes'
    end if

    call check(onebit_allreduce_destroy(allreduce))
    call check(onebit_comm_destroy(comm))
    call MPI_Finalize()

contains

    ! Handles every error: prints onebit's message, and ends all ranks.
    subroutine check(status)
        integer(c_int), intent(in) :: status
        if (status == onebit_success) return
        print '(3a)', onebit_status_name(status), ': ', onebit_message()
        call MPI_Abort(MPI_COMM_WORLD, 1)
    end subroutine
end program
