/* SPDX-License-Identifier: MIT OR Apache-2.0
  * An MPI program for scripts/test-mpi.sh: rank 1 is stopped in the middle of its exchanges for the
  * given seconds, and then continues. The sums show if any data was lost. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 100, STOPPED_AT = 50, SHORT = 4, LONG = 100000 };

/* Starts another process that wakes this one again, because a stopped process cannot. */
static void stop_for(const char *seconds)
{
    char command[80];

    snprintf(command, sizeof command, "(sleep %d; kill -CONT %d) >/dev/null 2>&1 </dev/null &",
             atoi(seconds), (int)getpid());
    if (system(command) != 0)
        abort();
    raise(SIGSTOP);
}

/* Sums over all ranks; returns the number of wrong values. */
static int exchange(long *all, int len, int rank, int size, int round)
{
    int i, wrong = 0;

    for (i = 0; i < len; i++)
        all[i] = (long)round * i + rank;
    MPI_Allreduce(MPI_IN_PLACE, all, len, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (i = 0; i < len; i++)
        wrong += all[i] != (long)size * round * i + (long)size * (size - 1) / 2;
    return wrong;
}

int main(int argc, char **argv)
{
    static long all[LONG];
    int rank, size, round, wrong = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (round = 0; round < ROUNDS; round++) {
        if (rank == 1 && round == STOPPED_AT)
            stop_for(argc > 1 ? argv[1] : "3");
        wrong += exchange(all, round % 2 ? LONG : SHORT, rank, size, round);
    }
    printf("rank %d: %d wrong\n", rank, wrong);
    MPI_Finalize();
    return wrong != 0;
}
