/* SPDX-License-Identifier: MIT OR Apache-2.0
  * An MPI program for scripts/test-mpi.sh: rank 0 sends many messages of 8 bytes. Rank 1 receives
  * them only after another message that was sent last. Each rank prints its duration and its
  * processor time.
 *
 *   flood send|isend COUNT */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Open requests with `isend`: more than the provider accepts before one completes, and few enough for
 * the MPI's own memory. */
enum { TAG = 1, LAST = 2, OPEN_MAX = 40000 };

static double used(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void send_all(long count)
{
    long i;

    for (i = 0; i < count; i++)
        MPI_Send(&i, 1, MPI_LONG, 1, TAG, MPI_COMM_WORLD);
}

static void isend_all(long count)
{
    static MPI_Request requests[OPEN_MAX];
    static long values[OPEN_MAX];
    long i;
    int open = 0;

    for (i = 0; i < count; i++) {
        values[open] = i;
        MPI_Isend(&values[open], 1, MPI_LONG, 1, TAG, MPI_COMM_WORLD, &requests[open]);
        if (++open == OPEN_MAX || i + 1 == count) {
            MPI_Waitall(open, requests, MPI_STATUSES_IGNORE);
            open = 0;
        }
    }
}

static long receive_all(long count)
{
    long i, value, wrong = 0;

    MPI_Recv(&value, 1, MPI_LONG, 0, LAST, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    wrong += value != count;
    for (i = 0; i < count; i++) {
        MPI_Recv(&value, 1, MPI_LONG, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wrong += value != i;
    }
    return wrong;
}

int main(int argc, char **argv)
{
    int rank;
    long count, wrong = 0;
    double begin, used_before;

    MPI_Init(&argc, &argv);
    if (argc != 3 || (count = atol(argv[2])) <= 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    used_before = used();
    begin = MPI_Wtime();
    if (rank == 0) {
        if (strcmp(argv[1], "isend") == 0)
            isend_all(count);
        else
            send_all(count);
        MPI_Send(&count, 1, MPI_LONG, 1, LAST, MPI_COMM_WORLD);
    } else if (rank == 1) {
        wrong = receive_all(count);
    }
    printf("rank %d: %ld wrong, took %.3f s, used %.3f s\n", rank, wrong, MPI_Wtime() - begin,
           used() - used_before);
    MPI_Finalize();
    return wrong != 0;
}
