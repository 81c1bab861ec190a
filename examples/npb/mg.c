/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
  * MG, multigrid: a Poisson equation on a periodic cube by V-cycles. The cube is cut into boxes,
  * one per process. Neighbours exchange the faces of their boxes on each of a hierarchy of grids.
 *
 *   mpirun -n PROCESSES ./mg CLASS [--json] [--corrupt]
 *
  * Written from the statement of the NAS Parallel Benchmarks (RNR-94-007). The number of processes
  * must be a power of two. Every process solves the whole of grids that have fewer planes than
  * there are processes along a side. */

#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED UINT64_C(314159265)
/* Grid number k has 2^k points along each side; class B has grid number 8. */
#define GRIDS_MAX 8
/* Number of points of the right-hand side that are 1, and of points that are -1. */
#define CHARGES 10

enum { TAG_UP = 1, TAG_DOWN };

/* A stencil of 27 points: the weights of the point itself, of the 6 points that share a face with it,
 * of the 12 that share an edge, and of the 8 that share a corner. */
struct stencil {
    double itself, face, edge, corner;
};

static const struct stencil LAPLACE = { -8.0 / 3, 0, 1.0 / 6, 1.0 / 12 };
static const struct stencil RESTRICTION = { 0.5, 0.25, 0.125, 0.0625 };

struct problem {
    int grids; /* the number of the finest grid */
    int iterations;
    struct stencil smoother;
    double norm; /* published: of the last residual */
};

static const struct problem PROBLEMS[] = {
    { 5, 4, { -3.0 / 8, 1.0 / 32, -1.0 / 64, 0 }, 0.5307707005734e-4 },
    { 7, 4, { -3.0 / 8, 1.0 / 32, -1.0 / 64, 0 }, 0.6467329375339e-5 },
    { 8, 4, { -3.0 / 8, 1.0 / 32, -1.0 / 64, 0 }, 0.2433365309069e-5 },
    { 8, 20, { -3.0 / 17, 1.0 / 33, -1.0 / 61, 0 }, 0.1800564401355e-5 },
};

/* A box of points with one more point on each side, a copy of the neighbour's point. Arrays of a box
 * have [size 2][size 1][size 0] numbers. */
struct box {
    int len[3];   /* without the copies */
    bool divided; /* set if the box is a part of its grid */
};

struct grid {
    struct box box;
    double *solution, *residual;
};

struct solver {
    struct npb_run *run;
    const struct problem *problem;
    MPI_Comm comm; /* the processes as a periodic cuboid */
    int sides[3], place[3];
    int before[3], after[3]; /* the neighbours along each axis */
    /* Every process has the whole of grid number `whole` and of all coarser ones; `part` is this process's
     * part of grid `whole`. */
    int whole;
    struct grid part;
    struct grid grid[GRIDS_MAX + 1]; /* by number; there is no grid 0 */
    double *right; /* the right-hand side, on the finest grid */
    double *face[4]; /* room for two outgoing and two incoming faces */
    double *near, *far; /* a row each, for sums */
};

static size_t size(const struct box *box, int axis) {
    return (size_t)box->len[axis] + 2;
}

static size_t volume(const struct box *box) {
    return size(box, 0) * size(box, 1) * size(box, 2);
}

/* Returns the beginning of the row of points at this height and depth. */
static size_t row(const struct box *box, size_t y, size_t z) {
    return (z * size(box, 1) + y) * size(box, 0);
}

static struct grid make_grid(const struct solver *s, int number, bool divided) {
    struct grid grid = { .box = { .divided = divided } };
    for (int axis = 0; axis < 3; axis++)
        grid.box.len[axis] = (1 << number) / (divided ? s->sides[axis] : 1);
    grid.solution = npb_alloc(volume(&grid.box), sizeof(double));
    grid.residual = npb_alloc(volume(&grid.box), sizeof(double));
    return grid;
}

/* Copies plane `at` of an axis into `face`, or back; returns the count of numbers. Along earlier axes
 * the neighbours' copies are included, so edges and corners need no exchanges of their own. */
static size_t copy_face(const struct box *box, double *points, int axis, size_t at, double *face,
                        bool back) {
    size_t from[3], until[3], count = 0;
    for (int a = 0; a < 3; a++) {
        from[a] = a == axis ? at : a < axis ? 0 : 1;
        until[a] = a == axis ? at + 1 : a < axis ? size(box, a) : size(box, a) - 1;
    }
    for (size_t z = from[2]; z < until[2]; z++)
        for (size_t y = from[1]; y < until[1]; y++) {
            double *points_of_row = points + row(box, y, z);
            for (size_t x = from[0]; x < until[0]; x++, count++) {
                if (back)
                    points_of_row[x] = face[count];
                else
                    face[count] = points_of_row[x];
            }
        }
    return count;
}

/* Updates the copies of the neighbours' points on all sides. */
static void exchange(const struct solver *s, const struct box *box, double *points) {
    double *up = s->face[0], *down = s->face[1];
    for (int axis = 0; axis < 3; axis++) {
        size_t len = (size_t)box->len[axis];
        int count = (int)copy_face(box, points, axis, len, up, false);
        copy_face(box, points, axis, 1, down, false);
        if (!box->divided || s->sides[axis] == 1) {
            copy_face(box, points, axis, 0, up, true);
            copy_face(box, points, axis, len + 1, down, true);
            continue;
        }
        int before = s->before[axis], after = s->after[axis];
        MPI_Request all[4];
        /* Unused, but with MPICH's MPI_STATUSES_IGNORE gcc warns of an address without room. */
        MPI_Status statuses[4];
        MPI_Irecv(s->face[2], count, MPI_DOUBLE, before, TAG_UP, s->comm, &all[0]);
        MPI_Irecv(s->face[3], count, MPI_DOUBLE, after, TAG_DOWN, s->comm, &all[1]);
        MPI_Isend(up, count, MPI_DOUBLE, after, TAG_UP, s->comm, &all[2]);
        MPI_Isend(down, count, MPI_DOUBLE, before, TAG_DOWN, s->comm, &all[3]);
        MPI_Waitall(4, all, statuses);
        copy_face(box, points, axis, 0, s->face[2], true);
        copy_face(box, points, axis, len + 1, s->face[3], true);
    }
}

/* Sums across a row: of the 4 points next to each one, and of the 4 diagonally next to it. */
static void sum_across(const struct solver *s, const struct box *box, const double *points, size_t y,
                       size_t z) {
    const double *below = points + row(box, y - 1, z), *above = points + row(box, y + 1, z);
    const double *front = points + row(box, y, z - 1), *rear = points + row(box, y, z + 1);
    const double *corners[4] = { points + row(box, y - 1, z - 1), points + row(box, y + 1, z - 1),
                                 points + row(box, y - 1, z + 1), points + row(box, y + 1, z + 1) };
    for (size_t x = 0; x < size(box, 0); x++) {
        s->near[x] = below[x] + above[x] + front[x] + rear[x];
        s->far[x] = corners[0][x] + corners[1][x] + corners[2][x] + corners[3][x];
    }
}

/* Applies a stencil at point `x` of a row, after sum_across. */
static double weigh(const struct solver *s, const struct stencil *stencil, const double *points,
                    size_t x) {
    return stencil->itself * points[x] +
           stencil->face * (points[x - 1] + points[x + 1] + s->near[x]) +
           stencil->edge * (s->near[x - 1] + s->near[x + 1] + s->far[x]) +
           stencil->corner * (s->far[x - 1] + s->far[x + 1]);
}

/* Computes result = base + scale * (stencil applied to points), and updates the neighbours' copies.
 * `result` may be `base`. */
static void apply(const struct solver *s, const struct box *box, const struct stencil *stencil,
                  double scale, const double *points, const double *base, double *result) {
    for (size_t z = 1; z + 1 < size(box, 2); z++)
        for (size_t y = 1; y + 1 < size(box, 1); y++) {
            size_t first = row(box, y, z);
            sum_across(s, box, points, y, z);
            for (size_t x = 1; x + 1 < size(box, 0); x++)
                result[first + x] = base[first + x] + scale * weigh(s, stencil, points + first, x);
        }
    exchange(s, box, result);
}

/* Computes residual = right - A solution. */
static void take_residual(const struct solver *s, struct grid *grid, const double *right) {
    apply(s, &grid->box, &LAPLACE, -1, grid->solution, right, grid->residual);
}

/* Computes solution += S residual. */
static void smooth(const struct solver *s, struct grid *grid) {
    apply(s, &grid->box, &s->problem->smoother, 1, grid->residual, grid->solution, grid->solution);
}

/* Restricts the residual to a coarser grid: its point j lies on point 2j + 1 of the finer one. */
static void restrict_residual(const struct solver *s, const struct grid *fine, struct grid *coarse) {
    for (size_t z = 1; z + 1 < size(&coarse->box, 2); z++)
        for (size_t y = 1; y + 1 < size(&coarse->box, 1); y++) {
            double *result = coarse->residual + row(&coarse->box, y, z);
            const double *points = fine->residual + row(&fine->box, 2 * y, 2 * z);
            sum_across(s, &fine->box, fine->residual, 2 * y, 2 * z);
            for (size_t x = 1; x + 1 < size(&coarse->box, 0); x++)
                result[x] = weigh(s, &RESTRICTION, points, 2 * x);
        }
}

/* Adds the interpolated solution of a coarser grid, including the copies of neighbours' points. Index
 * 2i of the finer array lies on index i of the coarser one, and 2i + 1 between i and i + 1. */
static void interpolate(const struct solver *s, const struct grid *coarse, struct grid *fine) {
    const double *points = coarse->solution;
    for (size_t z = 0; z < size(&fine->box, 2); z++)
        for (size_t y = 0; y < size(&fine->box, 1); y++) {
            size_t y0 = y / 2, y1 = (y + 1) / 2, z0 = z / 2, z1 = (z + 1) / 2;
            const double *rows[4] = {
                points + row(&coarse->box, y0, z0), points + row(&coarse->box, y1, z0),
                points + row(&coarse->box, y0, z1), points + row(&coarse->box, y1, z1)
            };
            double *result = fine->solution + row(&fine->box, y, z);
            for (size_t x = 0; x < size(&coarse->box, 0); x++)
                s->near[x] = (rows[0][x] + rows[1][x] + rows[2][x] + rows[3][x]) / 4;
            for (size_t x = 0; x < size(&fine->box, 0); x++)
                result[x] += (s->near[x / 2] + s->near[(x + 1) / 2]) / 2;
        }
}

/* Copies the inside of a box to a packed array, or back. */
static void pack(const struct box *box, double *points, double *packed, bool back) {
    size_t len = (size_t)box->len[0];
    for (size_t z = 1; z + 1 < size(box, 2); z++)
        for (size_t y = 1; y + 1 < size(box, 1); y++, packed += len) {
            double *inside = points + row(box, y, z) + 1;
            memcpy(back ? inside : packed, back ? packed : inside, len * sizeof(double));
        }
}

/* Collects the residual of the whole grid on every process. */
static void gather(const struct solver *s) {
    const struct box *part = &s->part.box;
    const struct grid *whole = &s->grid[s->whole];
    int count = part->len[0] * part->len[1] * part->len[2];
    double *own = npb_alloc((size_t)count, sizeof(double));
    double *all = npb_alloc((size_t)count * (size_t)s->run->size, sizeof(double));
    pack(part, s->part.residual, own, false);
    MPI_Allgather(own, count, MPI_DOUBLE, all, count, MPI_DOUBLE, s->comm);
    for (int rank = 0; rank < s->run->size; rank++) {
        int place[3];
        const double *from = all + (size_t)rank * (size_t)count;
        MPI_Cart_coords(s->comm, rank, 3, place);
        for (int z = 0; z < part->len[2]; z++)
            for (int y = 0; y < part->len[1]; y++, from += part->len[0]) {
                size_t begin = row(&whole->box, (size_t)(place[1] * part->len[1] + y + 1),
                                   (size_t)(place[2] * part->len[2] + z + 1));
                memcpy(whole->residual + begin + place[0] * part->len[0] + 1, from,
                       (size_t)part->len[0] * sizeof(double));
            }
    }
    free(own);
    free(all);
    exchange(s, &whole->box, whole->residual);
}

/* Copies this process's part, and the points around it, from the whole grid's solution. */
static void cut_out(const struct solver *s) {
    const struct box *part = &s->part.box;
    const struct grid *whole = &s->grid[s->whole];
    for (size_t z = 0; z < size(part, 2); z++)
        for (size_t y = 0; y < size(part, 1); y++) {
            size_t begin = row(&whole->box, (size_t)(s->place[1] * part->len[1]) + y,
                               (size_t)(s->place[2] * part->len[2]) + z);
            memcpy(s->part.solution + row(part, y, z),
                   whole->solution + begin + s->place[0] * part->len[0],
                   size(part, 0) * sizeof(double));
        }
}

static void clear(const struct box *box, double *points) {
    memset(points, 0, volume(box) * sizeof(double));
}

/* Performs one V-cycle: improves the solution from the residual of the finest grid. */
static void cycle(struct solver *s) {
    int finest = s->problem->grids;
    for (int k = finest; k > 1; k--) {
        struct grid *coarse = &s->grid[k - 1];
        if (k - 1 == s->whole) {
            restrict_residual(s, &s->grid[k], &s->part);
            gather(s);
        } else {
            restrict_residual(s, &s->grid[k], coarse);
            exchange(s, &coarse->box, coarse->residual);
        }
    }
    clear(&s->grid[1].box, s->grid[1].solution);
    smooth(s, &s->grid[1]);
    for (int k = 2; k <= finest; k++) {
        struct grid *fine = &s->grid[k];
        if (k < finest)
            clear(&fine->box, fine->solution);
        if (k - 1 == s->whole)
            cut_out(s);
        interpolate(s, k - 1 == s->whole ? &s->part : &s->grid[k - 1], fine);
        take_residual(s, fine, k == finest ? s->right : fine->residual);
        smooth(s, fine);
    }
}

struct charge {
    double value;
    int64_t place; /* in the order in which numbers are drawn */
};

/* Compares in descending order. No two of so few numbers are equal: the generator's period is 2^44. */
static int compare(const void *a, const void *b) {
    double left = ((const struct charge *)a)->value, right = ((const struct charge *)b)->value;
    return (left < right) - (left > right);
}

/* Inserts a candidate into the sorted first CHARGES if it is greater than the least of them. */
static void keep_greater(struct charge *kept, struct charge candidate) {
    int at = CHARGES;
    for (; at > 0 && candidate.value > kept[at - 1].value; at--)
        if (at < CHARGES)
            kept[at] = kept[at - 1];
    if (at < CHARGES)
        kept[at] = candidate;
}

/* Finds the greatest values of all processes on every process. `kept` are those of this process. */
static void keep_greatest(const struct solver *s, struct charge *kept) {
    int size = CHARGES * (int)sizeof *kept;
    struct charge *all = npb_alloc((size_t)s->run->size, (size_t)size);
    MPI_Allgather(kept, size, MPI_BYTE, all, size, MPI_BYTE, s->comm);
    qsort(all, (size_t)s->run->size * CHARGES, sizeof *all, compare);
    memcpy(kept, all, (size_t)size);
    free(all);
}

static void put_charges(struct solver *s, const struct charge *charges, double value) {
    const struct box *box = &s->grid[s->problem->grids].box;
    int64_t side = INT64_C(1) << s->problem->grids;
    for (int i = 0; i < CHARGES; i++) {
        int64_t place[3] = { charges[i].place % side, charges[i].place / side % side,
                             charges[i].place / side / side };
        bool inside = true;
        for (int axis = 0; axis < 3; axis++) {
            place[axis] -= (int64_t)s->place[axis] * box->len[axis];
            inside = inside && place[axis] >= 0 && place[axis] < box->len[axis];
        }
        if (inside)
            s->right[row(box, (size_t)place[1] + 1, (size_t)place[2] + 1) + (size_t)place[0] + 1] = value;
    }
}

/* Draws a random number for each point, and sets the ten greatest to 1 and the ten least to -1. */
static void make_right_side(struct solver *s) {
    const struct box *box = &s->grid[s->problem->grids].box;
    int64_t side = INT64_C(1) << s->problem->grids;
    struct charge greatest[CHARGES], least[CHARGES];
    for (int i = 0; i < CHARGES; i++)
        greatest[i] = least[i] = (struct charge){ .value = -INFINITY };
    for (int z = 0; z < box->len[2]; z++)
        for (int y = 0; y < box->len[1]; y++) {
            int64_t line = ((int64_t)s->place[2] * box->len[2] + z) * side +
                           (int64_t)s->place[1] * box->len[1] + y;
            int64_t place = line * side + (int64_t)s->place[0] * box->len[0];
            uint64_t state = npb_jump(SEED, (uint64_t)place);
            for (int x = 0; x < box->len[0]; x++, place++) {
                double drawn = npb_random(&state);
                keep_greater(greatest, (struct charge){ drawn, place });
                keep_greater(least, (struct charge){ -drawn, place });
            }
        }
    keep_greatest(s, greatest);
    keep_greatest(s, least);
    put_charges(s, greatest, 1);
    put_charges(s, least, -1);
    exchange(s, box, s->right);
}

static void prepare(struct solver *s) {
    const int periodic[3] = { 1, 1, 1 };
    int finest = s->problem->grids, longest = 1;
    MPI_Dims_create(s->run->size, 3, s->sides);
    for (int axis = 0; axis < 3; axis++)
        longest = s->sides[axis] > longest ? s->sides[axis] : longest;
    for (s->whole = 1; 1 << s->whole < longest;) s->whole++;
    if (s->whole >= finest)
        npb_refuse(s->run, "there are more processes than this class has work for: take fewer");
    MPI_Cart_create(MPI_COMM_WORLD, 3, s->sides, periodic, 0, &s->comm);
    MPI_Cart_coords(s->comm, s->run->rank, 3, s->place);
    for (int axis = 0; axis < 3; axis++)
        MPI_Cart_shift(s->comm, axis, 1, &s->before[axis], &s->after[axis]);
    for (int k = 1; k <= finest; k++) s->grid[k] = make_grid(s, k, k > s->whole);
    s->part = make_grid(s, s->whole, true);
    const struct box *box = &s->grid[finest].box;
    size_t side = 0;
    for (int axis = 0; axis < 3; axis++)
        side = size(box, axis) > side ? size(box, axis) : side;
    /* A coarse grid that every process has as a whole may be wider than a part of the finest. */
    size_t whole_side = size(&s->grid[s->whole].box, 0);
    side = whole_side > side ? whole_side : side;
    s->right = npb_alloc(volume(box), sizeof(double));
    for (int i = 0; i < 4; i++) s->face[i] = npb_alloc(side * side, sizeof(double));
    s->near = npb_alloc(side, sizeof(double));
    s->far = npb_alloc(side, sizeof(double));
    make_right_side(s);
}

static void release_grid(struct grid *grid) {
    free(grid->solution);
    free(grid->residual);
}

static void release(struct solver *s) {
    for (int k = 1; k <= s->problem->grids; k++) release_grid(&s->grid[k]);
    release_grid(&s->part);
    free(s->right);
    for (int i = 0; i < 4; i++) free(s->face[i]);
    free(s->near);
    free(s->far);
    MPI_Comm_free(&s->comm);
}

/* Runs `cycles` V-cycles from a zero solution. */
static void solve(struct solver *s, int cycles) {
    struct grid *finest = &s->grid[s->problem->grids];
    clear(&finest->box, finest->solution);
    take_residual(s, finest, s->right);
    for (int i = 1; i <= cycles; i++) {
        cycle(s);
        if (i == cycles && s->run->corrupt && s->run->rank == s->run->size - 1)
            finest->solution[row(&finest->box, 1, 1) + 1] += 1e-3;
        take_residual(s, finest, s->right);
    }
}

/* Sums the values, their squares and their magnitudes in the box, over all processes. */
static void add_up(const struct solver *s, const double *points, double sums[3]) {
    const struct box *box = &s->grid[s->problem->grids].box;
    double own[3] = { 0 };
    for (size_t z = 1; z + 1 < size(box, 2); z++)
        for (size_t y = 1; y + 1 < size(box, 1); y++)
            for (size_t x = 1; x + 1 < size(box, 0); x++) {
                double value = points[row(box, y, z) + x];
                own[0] += value;
                own[1] += value * value;
                own[2] += fabs(value);
            }
    MPI_Allreduce(own, sums, 3, MPI_DOUBLE, MPI_SUM, s->comm);
}

static void check(const struct solver *s, const double residual[3]) {
    double points = pow(8, s->problem->grids), right[3];
    add_up(s, s->right, right);
    npb_check(s->run, "points of the right-hand side that are not 0", right[2], 2 * CHARGES, 0);
    /* The tolerance is the benchmark's own. */
    npb_check_relative(s->run, "norm of the residual", sqrt(residual[1] / points), s->problem->norm, 1e-8);
    /* The weights of A and the right-hand side both sum to 0: the rest of the sum is rounding. */
    npb_check(s->run, "sum of the residual, as a share of its magnitudes", residual[0] / residual[2], 0,
              1e-8);
}

int main(int argc, char **argv) {
    struct npb_run run;
    double residual[3];
    npb_begin(&run, "MG", argc, argv);
    npb_want_power_of_two(&run);
    struct solver solver = { .run = &run, .problem = &PROBLEMS[npb_class_index(&run)] };
    prepare(&solver);
    /* One untimed cycle, because connections are made in it. */
    solve(&solver, 1);
    npb_start(&run);
    solve(&solver, solver.problem->iterations);
    add_up(&solver, solver.grid[solver.problem->grids].residual, residual);
    npb_stop(&run);
    /* The benchmark's count. */
    run.operations = 58.0 * solver.problem->iterations * pow(8, solver.problem->grids);
    check(&solver, residual);
    release(&solver);
    return npb_end(&run);
}
