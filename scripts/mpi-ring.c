/* SPDX-License-Identifier: MIT OR Apache-2.0
  * An MPI program for scripts/test-launch.sh: passes a number around all ranks, many times. */
#include <mpi.h>
#include <stdio.h>

enum { TURNS = 200 };

int main(int argc, char **argv)
{
    int rank, size, turn, sum = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (turn = 0; turn < TURNS; turn++) {
        int sent = turn * size + rank, got = -1;
        int before = (rank + size - 1) % size;
        MPI_Sendrecv(&sent, 1, MPI_INT, (rank + 1) % size, 7, &got, 1, MPI_INT, before, 7,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (got != turn * size + before)
            MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("mpi-ring: %d ranks, sum %d\n", size, sum);
    MPI_Finalize();
    return sum == size * (size - 1) / 2 ? 0 : 4;
}
