/* SPDX-License-Identifier: MIT OR Apache-2.0 */

#include "fluid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The exact solution is a polynomial: for each unknown the constant, then the coefficients of x,
 * y and z, of their squares, cubes, and fourth powers. */
static const double EXACT[UNKNOWNS][13] = {
    { 2, 0, 0, 4, 5, 3, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3 },
    { 1, 0, 0, 0, 1, 2, 3, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5 },
    { 2, 2, 0, 0, 0, 2, 3, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4 },
    { 2, 2, 0, 0, 0, 2, 3, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3 },
    { 5, 4, 3, 2, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2 },
};

static void exact(const double place[3], double value[UNKNOWNS]) {
    for (int m = 0; m < UNKNOWNS; m++) {
        value[m] = EXACT[m][0];
        for (int axis = 0; axis < 3; axis++) {
            const double *c = EXACT[m] + 1 + axis;
            double at = place[axis];
            value[m] += at * (c[0] + at * (c[3] + at * (c[6] + at * c[9])));
        }
    }
}

/* Returns the place in the unit cube of a point of the box. */
static void place_of(const struct fluid_box *box, int x, int y, int z, double place[3]) {
    const int at[3] = { x, y, z };
    for (int axis = 0; axis < 3; axis++)
        place[axis] = (double)(box->first[axis] + at[axis]) / (box->side - 1);
}

/* Interpolates from the faces of the cube, as the statement does: the sum of the interpolations
 * along each axis, less the products of pairs, plus the product of all. */
static void initial(const double place[3], double value[UNKNOWNS]) {
    double along[3][UNKNOWNS];
    for (int axis = 0; axis < 3; axis++) {
        double ends[2][UNKNOWNS], at[3] = { place[0], place[1], place[2] };
        for (int end = 0; end < 2; end++) {
            at[axis] = end;
            exact(at, ends[end]);
        }
        for (int m = 0; m < UNKNOWNS; m++)
            along[axis][m] = (1 - place[axis]) * ends[0][m] + place[axis] * ends[1][m];
    }
    for (int m = 0; m < UNKNOWNS; m++) {
        double a = along[0][m], b = along[1][m], c = along[2][m];
        value[m] = a + b + c - a * b - b * c - c * a + a * b * c;
    }
}

static bool is_on_surface(const struct fluid_box *box, int x, int y, int z) {
    const int at[3] = { x, y, z };
    for (int axis = 0; axis < 3; axis++) {
        int global = box->first[axis] + at[axis];
        if (global == 0 || global == box->side - 1)
            return true;
    }
    return false;
}

void fluid_start(struct fluid_box *box) {
    for (int z = 0; z < box->len[2]; z++)
        for (int y = 0; y < box->len[1]; y++)
            for (int x = 0; x < box->len[0]; x++) {
                double place[3];
                place_of(box, x, y, z, place);
                double *u = box->u[fluid_index(box, x, y, z)];
                if (is_on_surface(box, x, y, z))
                    exact(place, u);
                else
                    initial(place, u);
            }
}

/* Returns the box's points, with `width` copies on each side along an axis as far as they are in
 * the cube. */
static struct fluid_range with_copies(const struct fluid_box *box, int axis, int width) {
    struct fluid_range range = { .until = { box->len[0], box->len[1], box->len[2] } };
    int before = box->first[axis], after = box->side - box->first[axis] - box->len[axis];
    range.from[axis] -= before < width ? before : width;
    range.until[axis] += after < width ? after : width;
    return range;
}

struct fluid_range fluid_inside(const struct fluid_box *box) {
    struct fluid_range range;
    for (int axis = 0; axis < 3; axis++) {
        range.from[axis] = box->first[axis] == 0;
        range.until[axis] = box->len[axis] - (box->first[axis] + box->len[axis] == box->side);
    }
    return range;
}

/* Sets the forcing terms: the residual of the exact solution is 0 with them. */
static void make_forcing(struct fluid_box *box) {
    for (int axis = 0; axis < 3; axis++) {
        struct fluid_range range = with_copies(box, axis, HALO);
        for (int z = range.from[2]; z < range.until[2]; z++)
            for (int y = range.from[1]; y < range.until[1]; y++)
                for (int x = range.from[0]; x < range.until[0]; x++) {
                    double place[3];
                    place_of(box, x, y, z, place);
                    exact(place, box->u[fluid_index(box, x, y, z)]);
                }
    }
    fluid_residual(box, -1);
    memcpy(box->forcing, box->change, box->point_count * sizeof *box->forcing);
}

/* Leaves out the points outside the cube, and changes the weight next to its surface. */
static void fourth_difference(int side, int at, double weights[5]) {
    static const double FULL[5] = { 1, -4, 6, -4, 1 };
    memcpy(weights, FULL, sizeof FULL);
    if (at == 1 || at == side - 2)
        weights[2] = 5;
    if (at <= 2)
        weights[0] = 0;
    if (at == 1)
        weights[1] = 0;
    if (at >= side - 3)
        weights[4] = 0;
    if (at == side - 2)
        weights[3] = 0;
}

struct fluid_box fluid_make(int side, const int first[3], const int len[3]) {
    struct fluid_box box = { .side = side };
    ptrdiff_t step = 1;
    for (int axis = 0; axis < 3; axis++) {
        box.first[axis] = first[axis];
        box.len[axis] = len[axis];
        box.step[axis] = step;
        box.origin += HALO * step;
        step *= len[axis] + 2 * HALO;
    }
    box.point_count = (size_t)step;
    box.u = npb_alloc(box.point_count, sizeof *box.u);
    box.forcing = npb_alloc(box.point_count, sizeof *box.forcing);
    box.change = npb_alloc(box.point_count, sizeof *box.change);
    box.point = npb_alloc(box.point_count, sizeof *box.point);
    box.fourth = npb_alloc((size_t)side, sizeof *box.fourth);
    for (int at = 1; at < side - 1; at++)
        fourth_difference(side, at, box.fourth[at]);
    make_forcing(&box);
    fluid_start(&box);
    return box;
}

void fluid_release(struct fluid_box *box) {
    free(box->u);
    free(box->forcing);
    free(box->change);
    free(box->point);
    free(box->fourth);
}

static void derive_point(const double u[UNKNOWNS], struct fluid_point *point) {
    double inverse = 1 / u[0];
    double kinetic = 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) * inverse;
    for (int axis = 0; axis < 3; axis++)
        point->velocity[axis] = u[1 + axis] * inverse;
    point->kinetic = kinetic * inverse;
    point->energy = u[4] * inverse;
    point->inverse = inverse;
    point->pressure = K2 * (u[4] - kinetic);
    point->sound = sqrt(K1 * point->pressure * inverse);
}

static void derive_range(struct fluid_box *box, const struct fluid_range *range) {
    for (int z = range->from[2]; z < range->until[2]; z++)
        for (int y = range->from[1]; y < range->until[1]; y++)
            for (int x = range->from[0]; x < range->until[0]; x++) {
                ptrdiff_t at = fluid_index(box, x, y, z);
                derive_point(box->u[at], &box->point[at]);
            }
}

/* Computes `point` for the box and the nearest copies of each side. */
static void derive(struct fluid_box *box) {
    struct fluid_range own = { .until = { box->len[0], box->len[1], box->len[2] } };
    derive_range(box, &own);
    for (int axis = 0; axis < 3; axis++) {
        struct fluid_range all = with_copies(box, axis, 1), before = all, after = all;
        before.until[axis] = 0;
        after.from[axis] = box->len[axis];
        derive_range(box, &before);
        derive_range(box, &after);
    }
}

/* Adds the differences along one axis at a point. `step` is the distance of neighbours. */
static inline void add_axis(const double *u, const struct fluid_point *point, ptrdiff_t step,
                            int axis, int side, const double fourth[5], double sum[UNKNOWNS]) {
    const double h1 = 0.5 * (side - 1), h2 = (double)(side - 1) * (side - 1);
    const double viscous = K34 * h2, diffusion = FLUID_DIFFUSION[axis] * h2;
    const struct fluid_point *after = point + step, *before = point - step;
    const double *u_after = u + UNKNOWNS * step, *u_before = u - UNKNOWNS * step;
    const double *u_after2 = u_after + UNKNOWNS * step, *u_before2 = u_before - UNKNOWNS * step;
    double fast = after->velocity[axis], slow = before->velocity[axis], own = point->velocity[axis];
    double curve[3];
    for (int i = 0; i < 3; i++)
        curve[i] = after->velocity[i] - 2 * point->velocity[i] + before->velocity[i];
    for (int m = 0; m < UNKNOWNS; m++)
        sum[m] += diffusion * (u_after[m] - 2 * u[m] + u_before[m]) -
                  DISSIPATION * (fourth[0] * u_before2[m] + fourth[1] * u_before[m] +
                                 fourth[2] * u[m] + fourth[3] * u_after[m] +
                                 fourth[4] * u_after2[m]);
    sum[0] -= h1 * (u_after[1 + axis] - u_before[1 + axis]);
    for (int i = 0; i < 3; i++)
        sum[1 + i] += viscous * curve[i] - h1 * (u_after[1 + i] * fast - u_before[1 + i] * slow);
    sum[1 + axis] += viscous / 3 * curve[axis] - h1 * (after->pressure - before->pressure);
    sum[4] += viscous * ((1 - K15) * (after->kinetic - 2 * point->kinetic + before->kinetic) +
                         (fast * fast - 2 * own * own + slow * slow) / 6 +
                         K15 * (after->energy - 2 * point->energy + before->energy)) -
              h1 * ((u_after[4] + after->pressure) * fast -
                    (u_before[4] + before->pressure) * slow);
}

void fluid_residual(struct fluid_box *box, double scale) {
    struct fluid_range inside = fluid_inside(box);
    derive(box);
    for (int z = inside.from[2]; z < inside.until[2]; z++)
        for (int y = inside.from[1]; y < inside.until[1]; y++)
            for (int x = inside.from[0]; x < inside.until[0]; x++) {
                ptrdiff_t at = fluid_index(box, x, y, z);
                const double *u = box->u[at];
                const struct fluid_point *point = &box->point[at];
                double sum[UNKNOWNS];
                memcpy(sum, box->forcing[at], sizeof sum);
                add_axis(u, point, 1, 0, box->side, box->fourth[box->first[0] + x], sum);
                add_axis(u, point, box->step[1], 1, box->side, box->fourth[box->first[1] + y], sum);
                add_axis(u, point, box->step[2], 2, box->side, box->fourth[box->first[2] + z], sum);
                for (int m = 0; m < UNKNOWNS; m++)
                    box->change[at][m] = scale * sum[m];
            }
}

void fluid_advance(struct fluid_box *box, double scale) {
    struct fluid_range inside = fluid_inside(box);
    for (int z = inside.from[2]; z < inside.until[2]; z++)
        for (int y = inside.from[1]; y < inside.until[1]; y++)
            for (int x = inside.from[0]; x < inside.until[0]; x++) {
                ptrdiff_t at = fluid_index(box, x, y, z);
                for (int m = 0; m < UNKNOWNS; m++)
                    box->u[at][m] += scale * box->change[at][m];
            }
}

size_t fluid_face_points(const struct fluid_box *box, int axis) {
    size_t count = 1;
    for (int other = 0; other < 3; other++)
        count *= other == axis ? 1 : (size_t)box->len[other];
    return count;
}

/* Copies `planes.count` planes from place `first` on to `packed`, or back. */
static size_t copy(const struct fluid_box *box, struct fluid_planes planes, int first,
                   double *array, size_t width, double *packed, bool back) {
    struct fluid_range range = { .until = { box->len[0], box->len[1], box->len[2] } };
    range.from[planes.axis] = first;
    range.until[planes.axis] = first + planes.count;
    size_t len = (size_t)(range.until[0] - range.from[0]) * width, sum = 0;
    for (int z = range.from[2]; z < range.until[2]; z++)
        for (int y = range.from[1]; y < range.until[1]; y++, sum += len) {
            double *row = array + (size_t)fluid_index(box, range.from[0], y, z) * width;
            memcpy(back ? row : packed + sum, back ? packed + sum : row, len * sizeof *packed);
        }
    return sum;
}

size_t fluid_pack(const struct fluid_box *box, struct fluid_planes planes, const double *array,
                  size_t width, double *packed) {
    int first = planes.high ? box->len[planes.axis] - planes.count : 0;
    return copy(box, planes, first, (double *)array, width, packed, false);
}

size_t fluid_unpack(const struct fluid_box *box, struct fluid_planes planes, double *array,
                    size_t width, const double *packed) {
    int first = planes.high ? box->len[planes.axis] : -planes.count;
    return copy(box, planes, first, array, width, (double *)packed, true);
}

void fluid_add_squares(const struct fluid_box *box, struct fluid_norms *sums) {
    struct fluid_range inside = fluid_inside(box);
    for (int z = inside.from[2]; z < inside.until[2]; z++)
        for (int y = inside.from[1]; y < inside.until[1]; y++)
            for (int x = inside.from[0]; x < inside.until[0]; x++) {
                ptrdiff_t at = fluid_index(box, x, y, z);
                double place[3], expected[UNKNOWNS];
                place_of(box, x, y, z, place);
                exact(place, expected);
                for (int m = 0; m < UNKNOWNS; m++) {
                    double error = box->u[at][m] - expected[m], change = box->change[at][m];
                    sums->error[m] += error * error;
                    sums->residual[m] += change * change;
                }
            }
}

void fluid_check(struct npb_run *run, int side, struct fluid_norms sums,
                 const struct fluid_norms *published) {
    static const char *const NAMES[2][UNKNOWNS] = {
        { "residual of the density", "residual of the momentum along x", "the same along y",
          "the same along z", "residual of the energy" },
        { "error of the density", "error of the momentum along x", "the same along y",
          "the same along z", "error of the energy" },
    };
    double points = pow(side - 2, 3), own[2][UNKNOWNS], all[2][UNKNOWNS];
    memcpy(own[0], sums.residual, sizeof own[0]);
    memcpy(own[1], sums.error, sizeof own[1]);
    MPI_Allreduce(own, all, 2 * UNKNOWNS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    /* The tolerance is the benchmark's own. */
    for (int kind = 0; kind < 2; kind++)
        for (int m = 0; m < UNKNOWNS; m++)
            npb_check_relative(run, NAMES[kind][m], sqrt(all[kind][m] / points),
                               (kind == 0 ? published->residual : published->error)[m], 1e-8);
}
