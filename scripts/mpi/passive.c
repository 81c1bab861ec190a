/* SPDX-License-Identifier: MIT OR Apache-2.0
  * An MPI program for scripts/test-mpi.sh: rank 0 opens a window, and then makes no MPI calls until
  * rank 1 has done COUNT puts and gets in it, which rank 1 reports through a file.
 *
 *   passive FILE SECONDS COUNT
 *
  * Both ranks must be able to access FILE. Fails if there is no report within SECONDS. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORDS = 8, HUNDREDTHS = 100, HUNDREDTH_US = 10000 };

/* Computes until the file exists. */
static int is_there(const char *file, int seconds)
{
    int i;

    for (i = 0; i < seconds * HUNDREDTHS; i++) {
        if (access(file, F_OK) == 0)
            return 1;
        usleep(HUNDREDTH_US);
    }
    return 0;
}

static int use(MPI_Win window, int count)
{
    long out[WORDS], back[WORDS];
    int i, word, wrong = 0;

    for (i = 0; i < count; i++) {
        for (word = 0; word < WORDS; word++)
            out[word] = 1000L * i + word;
        MPI_Put(out, WORDS, MPI_LONG, 0, 0, WORDS, MPI_LONG, window);
        MPI_Win_flush(0, window);
        MPI_Get(back, WORDS, MPI_LONG, 0, 0, WORDS, MPI_LONG, window);
        MPI_Win_flush(0, window);
        for (word = 0; word < WORDS; word++)
            wrong += back[word] != out[word];
    }
    return wrong;
}

int main(int argc, char **argv)
{
    int rank, count, wrong = 0;
    long *memory;
    double begin;
    MPI_Win window;

    MPI_Init(&argc, &argv);
    if (argc != 4 || (count = atoi(argv[3])) <= 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    /* Not MPI_Win_allocate, which Open MPI 4.1 refuses across hosts. */
    memory = calloc(WORDS, sizeof *memory);
    MPI_Win_create(memory, WORDS * sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    /* In some MPIs a lock needs an answer of the target, so lock before the target stops calling MPI. */
    MPI_Win_lock_all(0, window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        begin = MPI_Wtime();
        wrong = use(window, count);
        printf("%d rounds in %.3f s\n", count, MPI_Wtime() - begin);
        if (fclose(fopen(argv[1], "w")) != 0)
            abort();
    } else if (!is_there(argv[1], atoi(argv[2]))) {
        printf("rank 1 was not served while rank 0 calls nothing\n");
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(window);
    if (rank == 0)
        wrong = memory[1] != 1000L * (count - 1) + 1;
    MPI_Win_unlock_all(window);
    printf("rank %d: %d wrong\n", rank, wrong);
    fflush(stdout);
    MPI_Win_free(&window);
    MPI_Finalize();
    free(memory);
    return wrong != 0;
}
