/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Red-black successive over-relaxation in shared memory.
 *
 *     sor [ROWS] [COLUMNS] [ITERATIONS]
 *
 * Each process owns a band of rows, and reads the rows next to it, which its neighbours own. Points
 * of one colour depend only on points of the other. Process 0 compares the result with that of a
 * sequential computation. */

#include "dsm.h"

static size_t rows, columns;
static double *grid;

static const double OMEGA = 1.25;

/* Initial values: a hot edge, and a pattern inside. */
static double initial(size_t row, size_t column) {
    if (row == 0) return 100.0;
    return (double)((row * 31 + column * 17) % 23) / 23.0;
}

static void fill(double *points, size_t from, size_t to) {
    for (size_t row = from; row < to; row++)
        for (size_t column = 0; column < columns; column++)
            points[row * columns + column] = initial(row, column);
}

/* Updates the inner points of one colour in the rows from `from` to `to`. */
static void relax(double *points, size_t from, size_t to, size_t colour) {
    for (size_t row = from > 1 ? from : 1; row < to && row + 1 < rows; row++) {
        double *at = points + row * columns;
        for (size_t column = 1 + (row + colour) % 2; column + 1 < columns; column += 2) {
            double mean = 0.25 * (at[column - columns] + at[column + columns] + at[column - 1] +
                                  at[column + 1]);
            at[column] += OMEGA * (mean - at[column]);
        }
    }
}

static int is_right(size_t iterations) {
    double *expected = private_memory(rows * columns, sizeof(double));
    fill(expected, 0, rows);
    for (size_t i = 0; i < iterations; i++) {
        relax(expected, 0, rows, 0);
        relax(expected, 0, rows, 1);
    }
    int same = memcmp(expected, grid, rows * columns * sizeof(double)) == 0;
    free(expected);
    return same;
}

int main(int argc, char **argv) {
    rows = argument(argc, argv, 1, 512, 3, 1 << 15);
    columns = argument(argc, argv, 2, 512, 3, 1 << 15);
    size_t iterations = argument(argc, argv, 3, 20, 1, 1000000);
    Tmk_startup(argc, argv);
    if (Tmk_proc_id == 0) {
        grid = shared_memory(rows * columns, sizeof(double));
        Tmk_distribute(&grid, sizeof(grid));
    }
    Tmk_barrier(0);
    size_t from = share(rows, Tmk_proc_id), to = share(rows, Tmk_proc_id + 1);
    fill(grid, from, to);
    Tmk_barrier(0);
    double start = seconds();
    for (size_t i = 0; i < iterations; i++) {
        relax(grid, from, to, 0);
        Tmk_barrier(1);
        relax(grid, from, to, 1);
        Tmk_barrier(2);
    }
    double elapsed = seconds() - start;
    finish("sor", Tmk_proc_id != 0 || is_right(iterations), elapsed);
}
