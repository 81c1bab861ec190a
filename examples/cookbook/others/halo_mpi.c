/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The form of ../halo.c in MPI, for comparison. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { DOWN = 1, UP = 2, WIDTH = 64, ROWS = 96 };

static void step(const double *now, double *next, size_t rows) {
    for (size_t at = WIDTH; at < (rows + 1) * WIDTH; at++) {
        size_t row = at / WIDTH * WIDTH, column = at % WIDTH;
        double left = now[row + (column + WIDTH - 1) % WIDTH], right = now[row + (column + 1) % WIDTH];
        double around = left + right + now[at - WIDTH] + now[at + WIDTH];
        next[at] = now[at] + 0.2 * (around - 4.0 * now[at]);
    }
}

int main(int argc, char **argv) {
    int rank, size, steps = argc > 1 ? atoi(argv[1]) : 50;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int above = (rank + size - 1) % size, below = (rank + 1) % size;
    size_t first = (size_t)(ROWS * rank / size), rows = (size_t)(ROWS * (rank + 1) / size) - first;
    /* The first row and the last one are halos. */
    double *now = calloc((rows + 2) * WIDTH, sizeof *now), *next = calloc((rows + 2) * WIDTH, sizeof *now);
    if (!now || !next) MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t at = 0; at < rows * WIDTH; at++) {
        size_t cell = first * WIDTH + at;
        now[WIDTH + at] = (double)(cell * cell % 1000);
    }
    for (int i = 0; i < steps; i++) {
        MPI_Request requests[4];
        MPI_Irecv(now, WIDTH, MPI_DOUBLE, above, DOWN, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(now + (rows + 1) * WIDTH, WIDTH, MPI_DOUBLE, below, UP, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(now + WIDTH, WIDTH, MPI_DOUBLE, above, UP, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(now + rows * WIDTH, WIDTH, MPI_DOUBLE, below, DOWN, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        step(now, next, rows);
        double *last = now;
        now = next;
        next = last;
    }
    double own[2] = {0, 0}, sums[2];
    for (size_t at = WIDTH; at < (rows + 1) * WIDTH; at++) {
        own[0] += now[at];
        own[1] += now[at] * now[at];
    }
    MPI_Allreduce(own, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d steps: heat %.3f, squares %.3f\n", steps, sums[0], sums[1]);
    MPI_Finalize();
    free(now);
    free(next);
    return 0;
}
