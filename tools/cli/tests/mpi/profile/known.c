/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
  * A program of three processes whose messages are all known: profile.rs has the counts. With the
  * word "die", rank 1 kills itself while the other ranks wait for it; with "stay", all ranks wait
  * forever.
 */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 100000 };

static char out[LONG], in[LONG];
static int rank, next, before;

/* Sends 5 messages of 40 bytes from rank 0 to rank 1, and one of 10 bytes, which rank 1 probes first. */
static void blocking(void)
{
    for (int i = 0; i < 5; i++) {
        if (rank == 0)
            MPI_Send(out, 10, MPI_INT, 1, 7, MPI_COMM_WORLD);
        if (rank == 1)
            MPI_Recv(in, 10, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 0)
        MPI_Ssend(out, 10, MPI_BYTE, 1, 8, MPI_COMM_WORLD);
    if (rank == 1) {
        MPI_Message found;
        MPI_Mprobe(0, 8, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        MPI_Mrecv(in, LONG, MPI_BYTE, &found, MPI_STATUS_IGNORE);
    }
    /* A call with MPI_PROC_NULL, which sends no message. */
    MPI_Send(out, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
}

/* Sends 100,000 bytes from each rank to the next; the receives are longer than the messages. */
static void not_blocking(void)
{
    MPI_Request requests[2];
    MPI_Irecv(in, LONG, MPI_BYTE, before, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, LONG, MPI_BYTE, next, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Irecv(in, LONG, MPI_BYTE, before, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Sendrecv(out, 50, MPI_BYTE, next, 3, in, LONG, MPI_BYTE, before, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(out, 125, MPI_DOUBLE, next, 2, MPI_COMM_WORLD);
    int done = 0;
    while (!done)
        MPI_Test(&requests[0], &done, MPI_STATUS_IGNORE);
}

/* Sends 12,000 bytes twice from rank 2 to rank 0, by persistent requests. */
static void persistent(void)
{
    MPI_Request request;
    if (rank == 2)
        MPI_Send_init(out, 12000, MPI_BYTE, 0, 4, MPI_COMM_WORLD, &request);
    if (rank == 0)
        MPI_Recv_init(in, 12000, MPI_BYTE, 2, 4, MPI_COMM_WORLD, &request);
    for (int i = 0; i < 2 && rank != 1; i++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (rank != 1)
        MPI_Request_free(&request);
}

/* Sends 7 bytes from world rank 2 to world rank 0; another communicator exchanges their ranks. */
static void reversed(void)
{
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
    if (rank == 2)
        MPI_Send(out, 7, MPI_BYTE, 2, 5, comm);
    if (rank == 0)
        MPI_Recv(in, 7, MPI_BYTE, 0, 5, comm, MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm);
}

/* Puts 200 bytes twice from rank 1 into rank 0's memory. */
static void one_sided(void)
{
    MPI_Win win;
    MPI_Win_create(in, LONG, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    if (rank == 1) {
        MPI_Put(out, 200, MPI_BYTE, 0, 0, 200, MPI_BYTE, win);
        MPI_Put(out, 50, MPI_INT, 0, 200, 50, MPI_INT, win);
    }
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
}

static void collective(void)
{
    double sum = rank, all = 0;
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(out, 400, MPI_BYTE, 1, MPI_COMM_WORLD);
    MPI_Alltoall(out, 3, MPI_INT, in, 3, MPI_INT, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int count;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    if (count != 3)
        MPI_Abort(MPI_COMM_WORLD, 3);
    next = (rank + 1) % count;
    before = (rank + 2) % count;
    blocking();
    if (argc > 1) {
        if (rank == 1 && strcmp(argv[1], "die") == 0)
            raise(SIGKILL);
        MPI_Recv(in, 1, MPI_BYTE, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    not_blocking();
    persistent();
    reversed();
    one_sided();
    collective();
    MPI_Finalize();
    return 0;
}
