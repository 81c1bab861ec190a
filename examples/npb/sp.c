/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * SP, scalar pentadiagonal: the flow of fluid.h by alternating directions. In each direction the
 * equations are separated into waves, so that each row of points is a system of scalar
 * equations. The cube is cut into tiles, of which each process has one in every step of a sweep.
 *
 *   mpirun -n PROCESSES ./sp CLASS [--json] [--corrupt]
 *
 * Written from the statement of the NAS Parallel Benchmarks (RNR-94-007). Any number of
 * processes is accepted while tiles have 2 points along each axis; the benchmark itself takes
 * square numbers. */

#include "tiles.h"

#include <string.h>

/* The kinds of waves of a sweep, each with its own matrix: those that move with the flow, and
 * sound in and against the direction of the axis. */
enum { FLOW, FORWARD, BACKWARD, KINDS };

/* A row after elimination: the coefficients of the two unknowns behind, for each kind, and the
 * values. */
struct row {
    double behind[KINDS][2];
    double value[UNKNOWNS];
};

#define ROW_LEN (sizeof(struct row) / sizeof(double))

struct problem {
    int side, iterations;
    double time_step;
    struct fluid_norms norms;
};

static const struct problem PROBLEMS[] = {
    { 12, 100, 0.015,
      { { 2.7470315451339479e-2, 1.0360746705285417e-2, 1.6235745065095532e-2,
          1.5840557224455615e-2, 3.4849040609362460e-2 },
        { 2.7289258557377227e-5, 1.0364446640837285e-5, 1.6154798287166471e-5,
          1.5750704994480102e-5, 3.4177666183390531e-5 } } },
    { 36, 400, 0.0015,
      { { 0.1893253733584e-2, 0.1717075447775e-3, 0.2778153350936e-3, 0.2887475409984e-3,
          0.3143611161242e-2 },
        { 0.7542088599534e-4, 0.6512852253086e-5, 0.1049092285688e-4, 0.1128838671535e-4,
          0.1212845639773e-3 } } },
    { 64, 400, 0.0015,
      { { 2.4799822399300195, 1.1276337964368832, 1.5028977888770491, 1.4217816211695179,
          2.1292113035138280 },
        { 1.0900140297820550e-4, 3.7343951769282091e-5, 5.0092785406541633e-5,
          4.7671093939528255e-5, 1.3621613399213001e-4 } } },
    { 102, 400, 0.001,
      { { 0.6903293579998e2, 0.3095134488084e2, 0.4103336647017e2, 0.3864769009604e2,
          0.5643482272596e2 },
        { 0.9810006190188e-2, 0.1022827905670e-2, 0.1720597911692e-2, 0.1694479428231e-2,
          0.1847456263981e-1 } } },
};

/* Exchanges the changes of velocity along an axis and of pressure for those of the two sound
 * waves. */
static inline void part_sound(double *wave, int axis) {
    double velocity = wave[1 + axis], pressure = wave[4];
    wave[1 + axis] = pressure + velocity;
    wave[4] = pressure - velocity;
}

static inline void join_sound(double *wave, int axis) {
    double forward = wave[1 + axis], backward = wave[4];
    wave[1 + axis] = (forward - backward) / 2;
    wave[4] = (forward + backward) / 2;
}

/* Converts changes of the unknowns to those of entropy, velocity, and pressure divided by
 * density and sound speed. */
static inline void enter(const struct fluid_box *box, ptrdiff_t at) {
    const struct fluid_point *point = &box->point[at];
    double *wave = box->change[at], density = wave[0], along = 0;
    for (int i = 0; i < 3; i++)
        along += point->velocity[i] * wave[1 + i];
    double pressure = K2 * (wave[4] - along + point->kinetic * density);
    wave[0] = density - pressure / (point->sound * point->sound);
    for (int i = 0; i < 3; i++)
        wave[1 + i] = point->inverse * (wave[1 + i] - point->velocity[i] * density);
    wave[4] = pressure * point->inverse / point->sound;
}

/* Converts waves along z back to changes of the unknowns. */
static inline void leave(const struct fluid_box *box, ptrdiff_t at) {
    const struct fluid_point *point = &box->point[at];
    double *wave = box->change[at], density = box->u[at][0];
    join_sound(wave, 2);
    double pressure = wave[4] * density * point->sound;
    wave[0] += pressure / (point->sound * point->sound);
    wave[4] = point->kinetic * wave[0] + pressure / K2;
    for (int i = 0; i < 3; i++) {
        double moved = density * wave[1 + i];
        wave[4] += point->velocity[i] * moved;
        wave[1 + i] = point->velocity[i] * wave[0] + moved;
    }
}

typedef void change_point(const struct fluid_box *box, ptrdiff_t at);

/* Calls `change` for each point inside the surface of the cube. */
static inline void for_each(struct tiles *tiles, change_point *change) {
    for (int i = 0; i < tiles->tile_count; i++) {
        const struct fluid_box *box = &tiles->tile[i].box;
        struct fluid_range inside = fluid_inside(box);
        for (int z = inside.from[2]; z < inside.until[2]; z++)
            for (int y = inside.from[1]; y < inside.until[1]; y++)
                for (int x = inside.from[0]; x < inside.until[0]; x++)
                    change(box, fluid_index(box, x, y, z));
    }
}

/* Eliminates the two unknowns before a point from its row of the matrix of a kind, and
 * normalises it. On return c[0], c[1] and c[2] are the factors for the values. */
static inline void eliminate_kind(double c[5], struct row *row, ptrdiff_t step, int kind) {
    const double *near = row[-step].behind[kind], *far = row[-2 * step].behind[kind];
    double first = c[1] - c[0] * far[0];
    double scale = 1 / (c[2] - c[0] * far[1] - first * near[0]);
    row->behind[kind][0] = (c[3] - first * near[1]) * scale;
    row->behind[kind][1] = c[4] * scale;
    c[1] = first;
    c[2] = scale;
}

static inline void eliminate_value(const double c[5], struct row *row, ptrdiff_t step, int m,
                                   double value) {
    row->value[m] = (value - c[0] * row[-2 * step].value[m] - c[1] * row[-step].value[m]) * c[2];
}

static inline void eliminate_point(const struct tile *tile, int axis, double time_step,
                                   ptrdiff_t at, const double fourth[5]) {
    const struct fluid_box *box = &tile->box;
    const double h = 1.0 / (box->side - 1);
    const double central = time_step / (2 * h), second = time_step / (h * h);
    const double weight = time_step * DISSIPATION, diffusion = second * FLUID_DIFFUSION[axis];
    const double viscous = second * K15 * K34;
    const ptrdiff_t step = box->step[axis];
    const struct fluid_point *own = &box->point[at], *before = own - step, *after = own + step;
    struct row *row = (struct row *)tile->rows + at;
    double wave[UNKNOWNS], flow[5], sound[5];
    memcpy(wave, box->change[at], sizeof wave);
    if (axis > 0)
        join_sound(wave, axis - 1);
    part_sound(wave, axis);
    flow[0] = weight * fourth[0];
    flow[1] = weight * fourth[1] - central * before->velocity[axis] - diffusion -
              viscous * before->inverse;
    flow[2] = weight * fourth[2] + 1 + 2 * (diffusion + viscous * own->inverse);
    flow[3] = weight * fourth[3] + central * after->velocity[axis] - diffusion -
              viscous * after->inverse;
    flow[4] = weight * fourth[4];
    for (int kind = FORWARD; kind <= BACKWARD; kind++) {
        double speed = kind == FORWARD ? central : -central;
        int m = kind == FORWARD ? 1 + axis : 4;
        memcpy(sound, flow, sizeof sound);
        sound[1] -= speed * before->sound;
        sound[3] += speed * after->sound;
        eliminate_kind(sound, row, step, kind);
        eliminate_value(sound, row, step, m, wave[m]);
    }
    eliminate_kind(flow, row, step, FLOW);
    for (int m = 0; m < 4; m++)
        if (m != 1 + axis)
            eliminate_value(flow, row, step, m, wave[m]);
}

static inline void substitute_point(const struct tile *tile, int axis, ptrdiff_t at) {
    const ptrdiff_t step = tile->box.step[axis];
    double (*wave)[UNKNOWNS] = tile->box.change + at;
    const struct row *row = (const struct row *)tile->rows + at;
    for (int m = 0; m < UNKNOWNS; m++) {
        const double *c = row->behind[m == 1 + axis ? FORWARD : m == 4 ? BACKWARD : FLOW];
        (*wave)[m] = row->value[m] - c[0] * wave[step][m] - c[1] * wave[2 * step][m];
    }
}

/* The two axes across `axis`, of which the points are visited side by side along the second one. */
static inline void across(int axis, int *outer, int *inner) {
    *outer = axis == 2 ? 1 : 2;
    *inner = axis == 0 ? 1 : 0;
}

static inline void eliminate_along(const struct tile *tile, int axis, double time_step) {
    const struct fluid_box *box = &tile->box;
    struct fluid_range inside = fluid_inside(box);
    int outer, inner;
    across(axis, &outer, &inner);
    for (int i = inside.from[outer]; i < inside.until[outer]; i++)
        for (int place = inside.from[axis]; place < inside.until[axis]; place++) {
            const double *fourth = box->fourth[box->first[axis] + place];
            ptrdiff_t first = box->origin + i * box->step[outer] + place * box->step[axis];
            for (int k = inside.from[inner]; k < inside.until[inner]; k++)
                eliminate_point(tile, axis, time_step, first + k * box->step[inner], fourth);
        }
}

static inline void substitute_along(const struct tile *tile, int axis) {
    const struct fluid_box *box = &tile->box;
    struct fluid_range inside = fluid_inside(box);
    int outer, inner;
    across(axis, &outer, &inner);
    for (int i = inside.from[outer]; i < inside.until[outer]; i++)
        for (int place = inside.until[axis] - 1; place >= inside.from[axis]; place--) {
            ptrdiff_t first = box->origin + i * box->step[outer] + place * box->step[axis];
            for (int k = inside.from[inner]; k < inside.until[inner]; k++)
                substitute_point(tile, axis, first + k * box->step[inner]);
        }
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
        for_each(tiles, enter);
        for (int axis = 0; axis < 3; axis++)
            tiles_sweep(tiles, axis, time_step, eliminate, substitute);
        for_each(tiles, leave);
        tiles_advance(tiles);
    }
}

int main(int argc, char **argv) {
    struct npb_run run;
    npb_begin(&run, "SP", argc, argv);
    const struct problem *problem = &PROBLEMS[npb_class_index(&run)];
    struct tiles tiles = tiles_make(&run, problem->side, ROW_LEN, 2);
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
                     (881.174 * side * side * side - 4683.91 * side * side + 11484.5 * side -
                      19272.4);
    tiles_check(&tiles, &problem->norms);
    tiles_release(&tiles);
    return npb_end(&run);
}
