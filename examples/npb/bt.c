/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * BT, block tridiagonal: the flow of fluid.h by alternating directions. In each direction a row
 * of points is a system of equations with blocks of five unknowns. The cube is cut into tiles,
 * of which each process has one in every step of a sweep.
 *
 *   mpirun -n PROCESSES ./bt CLASS [--json] [--corrupt]
 *
 * Written from the statement of the NAS Parallel Benchmarks (RNR-94-007). Any number of
 * processes is accepted while tiles have 2 points along each axis; the benchmark itself takes
 * square numbers. */

#include "tiles.h"

#include <string.h>

/* Right-hand sides of a block: a matrix and a vector. */
#define SIDES (UNKNOWNS + 1)

struct problem {
    int side, iterations;
    double time_step;
    struct fluid_norms norms;
};

static const struct problem PROBLEMS[] = {
    { 12, 60, 0.01,
      { { 1.7034283709541311e-1, 1.2975252070034097e-2, 3.2527926989486055e-2,
          2.6436421275166801e-2, 1.9211784131744430e-1 },
        { 4.9976913345811579e-4, 4.5195666782961927e-5, 7.3973765172921357e-5,
          7.3821238632439731e-5, 8.9269630987491446e-4 } } },
    { 24, 200, 0.0008,
      { { 0.1125590409344e3, 0.1180007595731e2, 0.2710329767846e2, 0.2469174937669e2,
          0.2638427874317e3 },
        { 0.4419655736008e1, 0.4638531260002, 0.1011551749967e1, 0.9235878729944,
          0.1018045837718e2 } } },
    { 64, 200, 0.0008,
      { { 1.0806346714637264e2, 1.1319730901220813e1, 2.5974354511582465e1, 2.3665622544678910e1,
          2.5278963211748344e2 },
        { 4.2348416040525025, 4.4390282496995698e-1, 9.6692480136345650e-1, 8.8302063039765474e-1,
          9.7379901770829278 } } },
    { 102, 200, 0.0003,
      { { 1.4233597229287254e3, 9.9330522590150238e1, 3.5646025644535285e2, 3.2485447959084092e2,
          3.2707541254659363e3 },
        { 5.2969847140936856e1, 4.4632896115670668, 1.3122573342210174e1, 1.2006925323559144e1,
          1.2459576151035986e2 } } },
};

/* A row after elimination: the block of the point behind, and in the last column the values. */
struct row {
    double side[UNKNOWNS][SIDES];
};

#define ROW_LEN (sizeof(struct row) / sizeof(double))

/* Sets the block that couples the point behind, `after`, to a point. `central` and `second` are
 * as for fluid_add_coupled. */
static inline void fill_after(const struct fluid_point *after, int axis, double central,
                              double second, struct row *row) {
    const double *velocity = after->velocity;
    double own = velocity[axis], moved = K34 * second * after->inverse;
    double kinetic = after->kinetic, energy = after->energy;
    memset(row, 0, sizeof *row);
    row->side[0][1 + axis] = central;
    for (int i = 0; i < 3; i++) {
        double *momentum = row->side[1 + i];
        momentum[0] = velocity[i] * (moved - central * own);
        momentum[1 + axis] += central * velocity[i];
        momentum[1 + i] += central * own - moved;
        row->side[4][1 + i] = velocity[i] * (-central * K2 * own - moved * (1 - K15));
    }
    double *push = row->side[1 + axis], *total = row->side[4];
    push[0] += central * K2 * kinetic + moved / 3 * own;
    for (int i = 0; i < 3; i++)
        push[1 + i] -= central * K2 * velocity[i];
    push[1 + axis] -= moved / 3;
    push[4] = central * K2;
    total[0] = central * own * (2 * K2 * kinetic - K1 * energy) +
               moved * ((1 - K15) * 2 * kinetic + own * own / 3 + K15 * energy);
    total[1 + axis] += central * (K1 * energy - K2 * kinetic) - moved / 3 * own;
    total[4] = central * K1 * own - moved * K15;
    for (int m = 0; m < UNKNOWNS; m++)
        row->side[m][m] -= second * FLUID_DIFFUSION[axis];
}

/* Adds a point's own block. */
static inline void add_own(const struct fluid_point *point, int axis, double second,
                           double block[UNKNOWNS][UNKNOWNS]) {
    const double *velocity = point->velocity;
    double own = velocity[axis], moved = 2 * K34 * second * point->inverse;
    for (int m = 0; m < UNKNOWNS; m++)
        block[m][m] += 1 + 2 * second * FLUID_DIFFUSION[axis];
    for (int i = 0; i < 3; i++) {
        double viscous = i == axis ? moved * 4 / 3 : moved;
        block[1 + i][0] -= viscous * velocity[i];
        block[1 + i][1 + i] += viscous;
        block[4][1 + i] += velocity[i] * (viscous - moved * K15);
    }
    block[4][0] -= moved * ((1 - K15) * 2 * point->kinetic + own * own / 3 + K15 * point->energy);
    block[4][4] += moved * K15;
}

/* Divides all sides by a block, by elimination without exchange of rows. */
static inline void divide(double block[UNKNOWNS][UNKNOWNS], struct row *row) {
    for (int k = 0; k < UNKNOWNS; k++) {
        double scale = 1 / block[k][k];
        for (int j = k + 1; j < UNKNOWNS; j++)
            block[k][j] *= scale;
        for (int j = 0; j < SIDES; j++)
            row->side[k][j] *= scale;
        for (int i = k + 1; i < UNKNOWNS; i++) {
            double factor = block[i][k];
            for (int j = k + 1; j < UNKNOWNS; j++)
                block[i][j] -= factor * block[k][j];
            for (int j = 0; j < SIDES; j++)
                row->side[i][j] -= factor * row->side[k][j];
        }
    }
    for (int k = UNKNOWNS - 1; k > 0; k--)
        for (int i = 0; i < k; i++)
            for (int j = 0; j < SIDES; j++)
                row->side[i][j] -= block[i][k] * row->side[k][j];
}

static inline void eliminate_point(const struct tile *tile, int axis, double time_step,
                                   ptrdiff_t at) {
    const struct fluid_box *box = &tile->box;
    const double h = 1.0 / (box->side - 1);
    const double central = time_step / (2 * h), second = time_step / (h * h);
    const ptrdiff_t step = box->step[axis];
    const struct fluid_point *point = &box->point[at];
    struct row *row = (struct row *)tile->rows + at, work;
    double block[UNKNOWNS][UNKNOWNS], before[UNKNOWNS][SIDES] = { 0 };
    fluid_add_coupled(point - step, axis, central, second, SIDES, row[-step].side[0], before[0]);
    fill_after(point + step, axis, central, second, &work);
    for (int m = 0; m < UNKNOWNS; m++) {
        memcpy(block[m], before[m], sizeof block[m]);
        work.side[m][UNKNOWNS] = box->change[at][m] + before[m][UNKNOWNS];
    }
    add_own(point, axis, second, block);
    divide(block, &work);
    *row = work;
}

static inline void substitute_point(const struct tile *tile, int axis, ptrdiff_t at) {
    const struct row *row = (const struct row *)tile->rows + at;
    double *change = tile->box.change[at];
    const double *after = tile->box.change[at + tile->box.step[axis]];
    for (int m = 0; m < UNKNOWNS; m++) {
        const double *side = row->side[m];
        change[m] = side[UNKNOWNS] - side[0] * after[0] - side[1] * after[1] - side[2] * after[2] -
                    side[3] * after[3] - side[4] * after[4];
    }
}

static inline void eliminate_along(const struct tile *tile, int axis, double time_step) {
    const struct fluid_box *box = &tile->box;
    struct fluid_range inside = fluid_inside(box);
    for (int z = inside.from[2]; z < inside.until[2]; z++)
        for (int y = inside.from[1]; y < inside.until[1]; y++)
            for (int x = inside.from[0]; x < inside.until[0]; x++)
                eliminate_point(tile, axis, time_step, fluid_index(box, x, y, z));
}

static inline void substitute_along(const struct tile *tile, int axis) {
    const struct fluid_box *box = &tile->box;
    struct fluid_range inside = fluid_inside(box);
    for (int z = inside.until[2] - 1; z >= inside.from[2]; z--)
        for (int y = inside.until[1] - 1; y >= inside.from[1]; y--)
            for (int x = inside.until[0] - 1; x >= inside.from[0]; x--)
                substitute_point(tile, axis, fluid_index(box, x, y, z));
}

/* The calls have constant axes, for which compilers make separate code. */
static void eliminate(const struct tile *tile, int axis, double time_step) {
    if (axis == 0)
        eliminate_along(tile, 0, time_step);
    else if (axis == 1)
        eliminate_along(tile, 1, time_step);
    else
        eliminate_along(tile, 2, time_step);
}

static void substitute(const struct tile *tile, int axis, double time_step) {
    (void)time_step;
    if (axis == 0)
        substitute_along(tile, 0);
    else if (axis == 1)
        substitute_along(tile, 1);
    else
        substitute_along(tile, 2);
}

static void iterate(struct tiles *tiles, double time_step, int count) {
    for (int i = 0; i < count; i++) {
        tiles_residual(tiles, time_step);
        for (int axis = 0; axis < 3; axis++)
            tiles_sweep(tiles, axis, time_step, eliminate, substitute);
        tiles_advance(tiles);
    }
}

int main(int argc, char **argv) {
    struct npb_run run;
    npb_begin(&run, "BT", argc, argv);
    const struct problem *problem = &PROBLEMS[npb_class_index(&run)];
    struct tiles tiles = tiles_make(&run, problem->side, ROW_LEN, 1);
    double side = problem->side;
    /* One untimed iteration, because connections are made in it. */
    iterate(&tiles, problem->time_step, 1);
    tiles_start(&tiles);
    npb_start(&run);
    iterate(&tiles, problem->time_step, problem->iterations);
    npb_stop(&run);
    if (run.corrupt && run.rank == run.size - 1)
        tiles_spoil(&tiles);
    tiles_residual(&tiles, 1);
    /* The benchmark's count. */
    run.operations = problem->iterations *
                     (3478.8 * side * side * side - 17655.7 * side * side + 28023.7 * side);
    tiles_check(&tiles, &problem->norms);
    tiles_release(&tiles);
    return npb_end(&run);
}
