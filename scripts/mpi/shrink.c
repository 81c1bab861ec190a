/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A job that outlives a failed process: the last rank kills itself. The remaining ranks shrink the
 * communicator and continue. Each prints one line with the number of wrong results. For Open MPI 5
 * with `--with-ft ulfm`. */
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Messages of which several lengths are sent by different protocols. */
static const int lengths[] = {1, 1000, 100000, 1000000};

static int sum_in(MPI_Comm comm, int *sum)
{
    int one = 1;
    *sum = 0;
    return MPI_Allreduce(&one, sum, 1, MPI_INT, MPI_SUM, comm);
}

/* Sends messages around a ring, and returns the number of wrong elements. */
static long exchange(MPI_Comm comm)
{
    int rank, size;
    long wrong = 0;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int with = 0; with < 4; ++with) {
        int len = lengths[with], left = (rank + size - 1) % size;
        int *out = malloc(sizeof(int) * (size_t) len), *in = malloc(sizeof(int) * (size_t) len);
        for (int at = 0; at < len; ++at) {
            out[at] = rank * 1000003 + at;
            in[at] = -1;
        }
        MPI_Sendrecv(out, len, MPI_INT, (rank + 1) % size, 1, in, len, MPI_INT, left, 1, comm, MPI_STATUS_IGNORE);
        for (int at = 0; at < len; ++at) {
            wrong += in[at] != left * 1000003 + at;
        }
        free(out);
        free(in);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    int rank, size, sum, left, status;
    long wrong = 0;
    MPI_Comm rest;

    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    wrong += exchange(MPI_COMM_WORLD);
    wrong += MPI_SUCCESS != sum_in(MPI_COMM_WORLD, &sum) || size != sum;
    if (size - 1 == rank) {
        raise(SIGKILL);
    }
    do {
        status = sum_in(MPI_COMM_WORLD, &sum);
    } while (MPI_SUCCESS == status);
    MPIX_Comm_revoke(MPI_COMM_WORLD);
    wrong += MPI_SUCCESS != MPIX_Comm_shrink(MPI_COMM_WORLD, &rest);
    MPI_Comm_size(rest, &left);
    wrong += size - 1 != left;
    wrong += MPI_SUCCESS != sum_in(rest, &sum) || left != sum;
    wrong += exchange(rest);
    printf("rank %d: %ld wrong after the failure\n", rank, wrong);
    fflush(stdout);
    MPI_Comm_free(&rest);
    MPI_Finalize();
    return 0 != wrong;
}
