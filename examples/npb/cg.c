/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
  * CG, conjugate gradient: an eigenvalue of a sparse matrix of random pattern by inverse iteration.
  * The matrix is spread over a grid of processes. Sums are exchanged along grid rows, vectors with
  * the transposed process.
 *
 *   mpirun -n PROCESSES ./cg CLASS [--json] [--corrupt]
 *
 * Written from the statement of the NAS Parallel Benchmarks (RNR-94-007). The number of
 * processes has to be a power of two. */

#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SEED UINT64_C(314159265)
/* Steps of the conjugate gradient method in each iteration. */
#define STEPS 25
/* The condition number of the matrix is about the inverse of this. */
#define RCOND 0.1

enum { TAG_SUM = 1, TAG_DOT, TAG_TRANSPOSE };

struct problem {
    int order;
    int nonzeros; /* of each random vector that forms the matrix */
    int iterations;
    double shift;
    double zeta; /* published */
};

static const struct problem PROBLEMS[] = {
    { 1400, 7, 15, 10, 8.5971775078648 },
    { 7000, 8, 15, 12, 10.362595087124 },
    { 14000, 11, 15, 20, 17.130235054029 },
    { 75000, 13, 75, 60, 22.712745482631 },
};

/* The matrix is the sum over i of weight_i v_i v_i^T, plus (RCOND - shift) I. Each v_i has at most
 * `stride` elements, of which element i is one half. */
struct vectors {
    int stride;
    int *count; /* of elements, for each vector */
    int *place; /* [vector * stride + element] */
    double *value;
};

/* Part of the matrix and the vectors on one process. The order is cut into as many pieces as the
 * grid has columns; a grid row has one or two adjacent pieces. */
struct part {
    struct npb_run *run;
    const struct problem *problem;
    int grid_rows, grid_columns, grid_row, grid_column;
    int partner; /* the process at the transposed position */
    int row_first, row_end, column_first, column_end;
    int give_first; /* first row that the partner needs, counted from row_first */
    int *row_start; /* of each row: its first element; one more at the end */
    int *column;    /* from column_first */
    double *value;
    double *product, *incoming; /* of row_end - row_first items */
    double *x, *z, *r, *p, *q;  /* of column_end - column_first items */
};

static int columns(const struct part *part) {
    return part->column_end - part->column_first;
}

/* Returns the beginning of piece `index`. */
static int piece(const struct part *part, int index) {
    return (int)npb_share(part->problem->order, index, part->grid_columns);
}

static void place_on_grid(struct part *part) {
    int rank = part->run->rank, wide;
    part->grid_rows = 1;
    while (part->grid_rows * part->grid_rows * 4 <= part->run->size)
        part->grid_rows *= 2;
    part->grid_columns = part->run->size / part->grid_rows;
    wide = part->grid_columns / part->grid_rows; /* 1 or 2 */
    int row = part->grid_row = rank / part->grid_columns;
    int column = part->grid_column = rank % part->grid_columns;
    /* The mapping is its own inverse: the partner's partner is this process, and both need the same part
     * of a row. */
    part->partner = column / wide * part->grid_columns + row * wide + column % wide;
    part->row_first = piece(part, row * wide);
    part->row_end = piece(part, (row + 1) * wide);
    part->column_first = piece(part, column);
    part->column_end = piece(part, column + 1);
    part->give_first = piece(part, row * wide + column % wide) - part->row_first;
}

/* Returns the index of `place` in the first `count` of `places`; `count` if it is not there. */
static int find(const int *places, int count, int place) {
    int at = 0;
    while (at < count && places[at] != place) at++;
    return at;
}

/* Draws vector `index`: random elements at random places, and one half at its own place. */
static void draw(struct vectors *vectors, const struct problem *problem, int index, uint64_t *state) {
    int *place = vectors->place + (size_t)index * (size_t)vectors->stride;
    double *value = vectors->value + (size_t)index * (size_t)vectors->stride;
    int count = 0, power = 1;
    /* Places are drawn below a power of two, and too large ones are skipped. */
    while (power < problem->order) power *= 2;
    while (count < problem->nonzeros) {
        double drawn = npb_random(state);
        int at = (int)(npb_random(state) * power);
        if (at >= problem->order || find(place, count, at) < count) continue;
        place[count] = at;
        value[count++] = drawn;
    }
    int own = find(place, count, index);
    place[own] = index;
    value[own] = 0.5;
    vectors->count[index] = own == count ? count + 1 : count;
}

static void draw_vectors(struct vectors *vectors, const struct problem *problem) {
    uint64_t state = SEED;
    size_t order = (size_t)problem->order;
    vectors->stride = problem->nonzeros + 1;
    vectors->count = npb_alloc(order, sizeof(int));
    vectors->place = npb_alloc(order * (size_t)vectors->stride, sizeof(int));
    vectors->value = npb_alloc(order * (size_t)vectors->stride, sizeof(double));
    /* The statement draws one number before the matrix. */
    npb_random(&state);
    for (int i = 0; i < problem->order; i++) draw(vectors, problem, i, &state);
}

static void release_vectors(struct vectors *vectors) {
    free(vectors->count);
    free(vectors->place);
    free(vectors->value);
}

/* Returns the weight of a vector; weights fall from 1 to RCOND. */
static double weight(const struct problem *problem, int index) {
    return pow(RCOND, (double)index / problem->order);
}

/* Visits all elements of the products v v^T on this process. Without `next` it only counts them in
 * row_start, one row late. Otherwise `next` has the position of the next element of each row. */
static void spread(struct part *part, const struct vectors *vectors, int *next) {
    for (int i = 0; i < part->problem->order; i++) {
        const int *place = vectors->place + (size_t)i * (size_t)vectors->stride;
        const double *value = vectors->value + (size_t)i * (size_t)vectors->stride;
        double scale = weight(part->problem, i);
        for (int a = 0; a < vectors->count[i]; a++) {
            if (place[a] < part->row_first || place[a] >= part->row_end) continue;
            int row = place[a] - part->row_first;
            for (int b = 0; b < vectors->count[i]; b++) {
                if (place[b] < part->column_first || place[b] >= part->column_end) continue;
                if (next == NULL) {
                    part->row_start[row + 1]++;
                    continue;
                }
                double diagonal = place[a] == i && place[b] == i ? RCOND - part->problem->shift : 0;
                part->column[next[row]] = place[b] - part->column_first;
                part->value[next[row]++] = scale * value[a] * value[b] + diagonal;
            }
        }
    }
}

/* Adds up elements of the same place, and closes the gaps. */
static void add_up(struct part *part) {
    int rows = part->row_end - part->row_first, kept = 0;
    int *seen = npb_alloc((size_t)columns(part), sizeof(int)); /* one more than the position of a column */
    for (int row = 0, from = 0; row < rows; row++) {
        int until = part->row_start[row + 1], first = kept;
        for (; from < until; from++) {
            int column = part->column[from];
            if (seen[column] > first) {
                part->value[seen[column] - 1] += part->value[from];
                continue;
            }
            part->column[kept] = column;
            part->value[kept++] = part->value[from];
            seen[column] = kept;
        }
        part->row_start[row + 1] = kept;
    }
    free(seen);
}

static void prepare(struct part *part, const struct vectors *vectors) {
    place_on_grid(part);
    size_t rows = (size_t)(part->row_end - part->row_first), held = (size_t)columns(part);
    part->row_start = npb_alloc(rows + 1, sizeof(int));
    spread(part, vectors, NULL);
    for (size_t row = 0; row < rows; row++) part->row_start[row + 1] += part->row_start[row];
    part->column = npb_alloc((size_t)part->row_start[rows], sizeof(int));
    part->value = npb_alloc((size_t)part->row_start[rows], sizeof(double));
    int *next = npb_alloc(rows, sizeof(int));
    for (size_t row = 0; row < rows; row++) next[row] = part->row_start[row];
    spread(part, vectors, next);
    free(next);
    add_up(part);
    part->product = npb_alloc(rows, sizeof(double));
    part->incoming = npb_alloc(rows, sizeof(double));
    double **all[] = { &part->x, &part->z, &part->r, &part->p, &part->q };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) *all[i] = npb_alloc(held, sizeof(double));
}

static void release(struct part *part) {
    void *all[] = { part->row_start, part->column, part->value, part->product, part->incoming,
                    part->x, part->z, part->r, part->p, part->q };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
}

/* Sums `count` numbers over all processes of this grid row by pairwise exchanges: every process gets
 * the same sum, bit for bit. */
static void sum_along_row(const struct part *part, double *numbers, double *incoming, int count,
                          int tag) {
    int first = part->grid_row * part->grid_columns;
    for (int distance = 1; distance < part->grid_columns; distance *= 2) {
        int other = first + (part->grid_column ^ distance);
        MPI_Sendrecv(numbers, count, MPI_DOUBLE, other, tag, incoming, count, MPI_DOUBLE, other, tag,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++) numbers[i] += incoming[i];
    }
}

static double dot(const struct part *part, const double *a, const double *b) {
    double sum = 0, incoming;
    for (int i = 0; i < columns(part); i++) sum += a[i] * b[i];
    sum_along_row(part, &sum, &incoming, 1, TAG_DOT);
    return sum;
}

/* result = A vector. */
static void multiply(const struct part *part, const double *vector, double *result) {
    int rows = part->row_end - part->row_first;
    for (int row = 0; row < rows; row++) {
        double sum = 0;
        for (int at = part->row_start[row]; at < part->row_start[row + 1]; at++)
            sum += part->value[at] * vector[part->column[at]];
        part->product[row] = sum;
    }
    sum_along_row(part, part->product, part->incoming, rows, TAG_SUM);
    MPI_Sendrecv(part->product + part->give_first, columns(part), MPI_DOUBLE, part->partner,
                 TAG_TRANSPOSE, result, columns(part), MPI_DOUBLE, part->partner, TAG_TRANSPOSE,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Solves A z = x approximately, in STEPS steps. Returns |x - A z|. */
static double solve(struct part *part) {
    int held = columns(part);
    for (int i = 0; i < held; i++) {
        part->z[i] = 0;
        part->r[i] = part->p[i] = part->x[i];
    }
    double rho = dot(part, part->r, part->r);
    for (int step = 0; step < STEPS; step++) {
        multiply(part, part->p, part->q);
        double alpha = rho / dot(part, part->p, part->q), before = rho;
        for (int i = 0; i < held; i++) {
            part->z[i] += alpha * part->p[i];
            part->r[i] -= alpha * part->q[i];
        }
        rho = dot(part, part->r, part->r);
        double beta = rho / before;
        for (int i = 0; i < held; i++) part->p[i] = part->r[i] + beta * part->p[i];
    }
    multiply(part, part->z, part->q);
    for (int i = 0; i < held; i++) part->r[i] = part->x[i] - part->q[i];
    return sqrt(dot(part, part->r, part->r));
}

/* Performs one step of the inverse iteration; returns zeta. `x` becomes z / |z|, except if `last`. */
static double iterate(struct part *part, bool last, double *residual) {
    *residual = solve(part);
    if (last && part->run->corrupt && part->run->rank == part->run->size - 1) part->z[0] += 1e-3;
    double zeta = part->problem->shift + 1 / dot(part, part->x, part->z);
    double norm = 1 / sqrt(dot(part, part->z, part->z));
    for (int i = 0; !last && i < columns(part); i++) part->x[i] = norm * part->z[i];
    return zeta;
}

static void reset(struct part *part) {
    for (int i = 0; i < columns(part); i++) part->x[i] = 1;
}

/* Collects a whole vector on process 0 from its grid row. */
static double *whole(const struct part *part, MPI_Comm row, const double *vector) {
    double *all = npb_alloc((size_t)part->problem->order, sizeof(double));
    int *count = npb_alloc((size_t)part->grid_columns, sizeof(int));
    int *first = npb_alloc((size_t)part->grid_columns, sizeof(int));
    for (int i = 0; i < part->grid_columns; i++) {
        first[i] = piece(part, i);
        count[i] = piece(part, i + 1) - first[i];
    }
    MPI_Gatherv(vector, columns(part), MPI_DOUBLE, all, count, first, MPI_DOUBLE, 0, row);
    free(count);
    free(first);
    return all;
}

/* Returns |x - A z|, computed from the vectors of A instead of the distributed matrix. */
static double residual_by_vectors(const struct part *part, const struct vectors *vectors, double *x,
                                  const double *z) {
    double square = 0;
    for (int i = 0; i < part->problem->order; i++) {
        const int *place = vectors->place + (size_t)i * (size_t)vectors->stride;
        const double *value = vectors->value + (size_t)i * (size_t)vectors->stride;
        double along = 0;
        for (int a = 0; a < vectors->count[i]; a++) along += value[a] * z[place[a]];
        along *= weight(part->problem, i);
        for (int a = 0; a < vectors->count[i]; a++) x[place[a]] -= along * value[a];
        x[i] -= (RCOND - part->problem->shift) * z[i];
    }
    for (int i = 0; i < part->problem->order; i++) square += x[i] * x[i];
    return sqrt(square);
}

static void check(const struct part *part, const struct vectors *vectors, double zeta,
                  double residual) {
    /* The benchmark's own tolerance, which is far above the rounding error of a residual in all classes. */
    const double tolerance = 1e-10;
    MPI_Comm row;
    MPI_Comm_split(MPI_COMM_WORLD, part->grid_row, part->grid_column, &row);
    double *x = whole(part, row, part->x), *z = whole(part, row, part->z);
    MPI_Comm_free(&row);
    /* Each grid row has its own zeta and residual; process 0 itself has only those of the first row. */
    double least, most, worst;
    MPI_Allreduce(&zeta, &least, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&zeta, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&residual, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    npb_check(part->run, "zeta", zeta, part->problem->zeta, tolerance);
    npb_check(part->run, "difference of zeta between processes", most - least, 0, 0);
    npb_check(part->run, "residual |x - A z|", worst, 0, tolerance);
    npb_check(part->run, "the same by the vectors that A is made of",
              residual_by_vectors(part, vectors, x, z), 0, tolerance);
    free(x);
    free(z);
}

int main(int argc, char **argv) {
    struct npb_run run;
    struct vectors vectors;
    double zeta = 0, residual = 0;
    npb_begin(&run, "CG", argc, argv);
    npb_want_power_of_two(&run);
    struct part part = { .run = &run, .problem = &PROBLEMS[npb_class_index(&run)] };
    if (run.size > part.problem->order)
        npb_refuse(&run, "there are more processes than rows of the matrix: take fewer");
    draw_vectors(&vectors, part.problem);
    prepare(&part, &vectors);
    /* One untimed iteration, because connections are made in it. */
    reset(&part);
    iterate(&part, false, &residual);
    reset(&part);
    npb_start(&run);
    for (int i = 1; i <= part.problem->iterations; i++)
        zeta = iterate(&part, i == part.problem->iterations, &residual);
    npb_stop(&run);
    /* The benchmark counts products of the matrix, whose rows have nonzeros (nonzeros + 1) elements, dot
     * products and sums of vectors. */
    double elements = part.problem->nonzeros * (part.problem->nonzeros + 1.0);
    run.operations = 2.0 * part.problem->iterations * part.problem->order *
                     (3 + elements + STEPS * (5 + elements) + 3);
    check(&part, &vectors, zeta, residual);
    release(&part);
    release_vectors(&vectors);
    return npb_end(&run);
}
