/* SPDX-License-Identifier: MIT OR Apache-2.0
  * An MPI program for scripts/test-mpi.sh: rank 0 sends, and then makes no MPI calls until rank 1
  * has received everything, which rank 1 reports through a file. A completed send must not need
  * further calls to leave.
 *
 *   asleep FILE SECONDS LEN COUNT
 *
  * Both ranks must be able to access FILE. Fails if there is no report within SECONDS. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAG = 1, LAST = 2, TENTHS = 10, TENTH_US = 100000 };

static int is_there(const char *file, int seconds)
{
    int tenth;

    for (tenth = 0; tenth < seconds * TENTHS; tenth++) {
        if (access(file, F_OK) == 0)
            return 1;
        usleep(TENTH_US);
    }
    return 0;
}

static void send_all(const char *file, int seconds, char *bytes, int len, int count)
{
    int i;

    for (i = 0; i < count; i++) {
        memset(bytes, i, (size_t)len);
        MPI_Send(bytes, len, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    }
    if (!is_there(file, seconds)) {
        printf("rank 1 has not all of %d messages of %d bytes while rank 0 calls nothing\n", count, len);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Send(NULL, 0, MPI_BYTE, 1, LAST, MPI_COMM_WORLD);
}

static int receive_all(const char *file, char *bytes, int len, int count)
{
    int i, at, wrong = 0;

    for (i = 0; i < count; i++) {
        MPI_Recv(bytes, len, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (at = 0; at < len; at++)
            wrong += bytes[at] != (char)i;
    }
    if (fclose(fopen(file, "w")) != 0)
        abort();
    MPI_Recv(NULL, 0, MPI_BYTE, 0, LAST, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return wrong;
}

int main(int argc, char **argv)
{
    int rank, len, count, wrong = 0;
    char *bytes;

    MPI_Init(&argc, &argv);
    if (argc != 5 || (len = atoi(argv[3])) <= 0 || (count = atoi(argv[4])) <= 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    bytes = malloc((size_t)len);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    /* Open the session first, because its setup is not part of the test. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        send_all(argv[1], atoi(argv[2]), bytes, len, count);
    else
        wrong = receive_all(argv[1], bytes, len, count);
    printf("rank %d: %d wrong\n", rank, wrong);
    MPI_Finalize();
    free(bytes);
    return wrong != 0;
}
