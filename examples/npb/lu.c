/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * LU: the flow of fluid.h by symmetric successive over-relaxation (SSOR). The cube is cut into
 * columns along z, one per process. A sweep passes through the planes of all columns like a
 * wave, and sends an edge of each plane to two neighbours.
 *
 *   mpirun -n PROCESSES ./lu CLASS [--json] [--corrupt]
 *
 * Written from the statement of the NAS Parallel Benchmarks (RNR-94-007). Any number of
 * processes is accepted, up to columns of 2 by 2 points. */

#include "fluid.h"

#include <stdlib.h>
#include <string.h>

/* Relaxation factor. */
#define OMEGA 1.2

enum { TAG_FACE = 1, TAG_LOWER, TAG_UPPER };

struct problem {
    int side, iterations;
    double time_step;
    struct fluid_norms norms;
    double integral; /* published: of the pressure on a surface in the cube */
};

static const struct problem PROBLEMS[] = {
    { 12, 50, 0.5,
      { { 1.6196343210976702e-2, 2.1976745164821318e-3, 1.5179927653399185e-3,
          1.5029584435994323e-3, 3.4264073155896461e-2 },
        { 6.4223319957960924e-4, 8.4144342047347926e-5, 5.8588269616485186e-5,
          5.8474222595157350e-5, 1.3103347914111294e-3 } },
      7.8418928865937083 },
    { 33, 300, 1.5e-3,
      { { 0.1236511638192e2, 0.1317228477799e1, 0.2550120713095e1, 0.2326187750252e1,
          0.2826799444189e2 },
        { 0.4867877144216, 0.5064652880982e-1, 0.9281818101960e-1, 0.8570126542733e-1,
          0.1084277417792e1 } },
      0.1161399311023e2 },
    { 64, 250, 2,
      { { 7.7902107606689367e2, 6.3402765259692870e1, 1.9499249727292479e2, 1.7845301160418537e2,
          1.8384760349464247e3 },
        { 2.9964085685471943e1, 2.8194576365003349, 7.3473412698774742, 6.7139225687777051,
          7.0715315688392578e1 } },
      2.6030925604886277e1 },
    { 102, 250, 2,
      { { 3.5532672969982736e3, 2.6214750795310692e2, 8.8333721850952190e2, 7.7812774739425265e2,
          7.3087969592545314e3 },
        { 1.1401176380212709e2, 8.1098963655421574, 2.8480597317698308e1, 2.5905394567832939e1,
          2.6054907504857413e2 } },
      4.7887162703308227e1 },
};

struct solver {
    struct npb_run *run;
    const struct problem *problem;
    MPI_Comm comm; /* the processes as a rectangle */
    int before[2], after[2]; /* the neighbours along x and y, or MPI_PROC_NULL */
    struct fluid_box box;
    struct fluid_range inside;
    double *faces[4]; /* room for two outgoing and two incoming faces */
};

/* Updates the copies of the neighbours' u. */
static void exchange(struct solver *s) {
    for (int axis = 0; axis < 2; axis++) {
        struct fluid_planes low = { axis, false, HALO }, high = { axis, true, HALO };
        struct fluid_box *box = &s->box;
        int before = s->before[axis], after = s->after[axis];
        int count = (int)fluid_pack(box, low, box->u[0], UNKNOWNS, s->faces[0]);
        MPI_Request all[4];
        MPI_Status statuses[4];
        fluid_pack(box, high, box->u[0], UNKNOWNS, s->faces[1]);
        MPI_Irecv(s->faces[2], count, MPI_DOUBLE, before, TAG_FACE, s->comm, &all[0]);
        MPI_Irecv(s->faces[3], count, MPI_DOUBLE, after, TAG_FACE, s->comm, &all[1]);
        MPI_Isend(s->faces[0], count, MPI_DOUBLE, before, TAG_FACE, s->comm, &all[2]);
        MPI_Isend(s->faces[1], count, MPI_DOUBLE, after, TAG_FACE, s->comm, &all[3]);
        MPI_Waitall(4, all, statuses);
        if (before != MPI_PROC_NULL)
            fluid_unpack(box, low, box->u[0], UNKNOWNS, s->faces[2]);
        if (after != MPI_PROC_NULL)
            fluid_unpack(box, high, box->u[0], UNKNOWNS, s->faces[3]);
    }
}

/* Copies the changes on an edge of plane `z` to `edge`, or back; returns the count of numbers.
 * The edge is at `place` of an axis. */
static int copy_edge(struct solver *s, int axis, int place, int z, double *edge, bool back) {
    struct fluid_box *box = &s->box;
    int along = 1 - axis, count = 0;
    for (int i = s->inside.from[along]; i < s->inside.until[along]; i++, count += UNKNOWNS) {
        ptrdiff_t at = fluid_index(box, axis == 0 ? place : i, axis == 0 ? i : place, z);
        double *change = box->change[at];
        memcpy(back ? change : edge + count, back ? edge + count : change, sizeof *box->change);
    }
    return count;
}

/* Receives the edges of plane `z` from the neighbours that computed it first. */
static void receive_edges(struct solver *s, int z, bool upper) {
    const int *from = upper ? s->after : s->before;
    for (int axis = 0; axis < 2; axis++) {
        if (from[axis] == MPI_PROC_NULL)
            continue;
        int count = UNKNOWNS * (s->inside.until[1 - axis] - s->inside.from[1 - axis]);
        MPI_Recv(s->faces[0], count, MPI_DOUBLE, from[axis], upper ? TAG_UPPER : TAG_LOWER, s->comm,
                 MPI_STATUS_IGNORE);
        copy_edge(s, axis, upper ? s->box.len[axis] : -1, z, s->faces[0], true);
    }
}

/* Sends the edges of plane `z` to the neighbours that compute it next. */
static void send_edges(struct solver *s, int z, bool upper) {
    const int *to = upper ? s->before : s->after;
    for (int axis = 0; axis < 2; axis++) {
        if (to[axis] == MPI_PROC_NULL)
            continue;
        int count = copy_edge(s, axis, upper ? 0 : s->box.len[axis] - 1, z, s->faces[0], false);
        MPI_Send(s->faces[0], count, MPI_DOUBLE, to[axis], upper ? TAG_UPPER : TAG_LOWER, s->comm);
    }
}

/* Solves for the change at a point alone: the matrix is lower triangular. */
static inline void solve_point(const struct fluid_point *point, double second,
                               double value[UNKNOWNS]) {
    const double diffusion = FLUID_DIFFUSION[0] + FLUID_DIFFUSION[1] + FLUID_DIFFUSION[2];
    double viscous = 2 * second * K34 * point->inverse, own = 1 + 2 * second * diffusion;
    double momentum = 1 / (own + viscous * 10 / 3);
    value[0] /= own;
    value[4] += viscous * ((6 * (1 - K15) + 2.0 / 3) * point->kinetic + 3 * K15 * point->energy) *
                value[0];
    for (int i = 0; i < 3; i++) {
        value[1 + i] += viscous * 10 / 3 * point->velocity[i] * value[0];
        value[1 + i] *= momentum;
        value[4] -= viscous * (3 * (1 - K15) + 1.0 / 3) * point->velocity[i] * value[1 + i];
    }
    value[4] /= own + viscous * 3 * K15;
}

/* Computes the changes at a point from those of the neighbours in front of it. */
static inline void relax_lower(struct solver *s, ptrdiff_t at, double central, double second) {
    struct fluid_box *box = &s->box;
    double sum[UNKNOWNS] = { 0 };
    for (int axis = 0; axis < 3; axis++) {
        ptrdiff_t neighbour = at - box->step[axis];
        fluid_add_coupled(&box->point[neighbour], axis, central, second, 1, box->change[neighbour],
                          sum);
    }
    for (int m = 0; m < UNKNOWNS; m++)
        box->change[at][m] += OMEGA * sum[m];
    solve_point(&box->point[at], second, box->change[at]);
}

/* Corrects the changes at a point by those of the neighbours behind it. */
static inline void relax_upper(struct solver *s, ptrdiff_t at, double central, double second) {
    struct fluid_box *box = &s->box;
    double sum[UNKNOWNS] = { 0 };
    for (int axis = 0; axis < 3; axis++) {
        ptrdiff_t neighbour = at + box->step[axis];
        fluid_add_coupled(&box->point[neighbour], axis, -central, second, 1, box->change[neighbour],
                          sum);
    }
    solve_point(&box->point[at], second, sum);
    for (int m = 0; m < UNKNOWNS; m++)
        box->change[at][m] += OMEGA * sum[m];
}

/* Computes `change` for the next step from the residual in it. */
static void sweep(struct solver *s) {
    const double intervals = s->box.side - 1, step = s->problem->time_step;
    const double central = step * intervals / 2, second = step * intervals * intervals;
    const struct fluid_range *inside = &s->inside;
    for (int z = inside->from[2]; z < inside->until[2]; z++) {
        receive_edges(s, z, false);
        for (int y = inside->from[1]; y < inside->until[1]; y++)
            for (int x = inside->from[0]; x < inside->until[0]; x++)
                relax_lower(s, fluid_index(&s->box, x, y, z), central, second);
        send_edges(s, z, false);
    }
    for (int z = inside->until[2] - 1; z >= inside->from[2]; z--) {
        receive_edges(s, z, true);
        for (int y = inside->until[1] - 1; y >= inside->from[1]; y--)
            for (int x = inside->until[0] - 1; x >= inside->from[0]; x--)
                relax_upper(s, fluid_index(&s->box, x, y, z), central, second);
        send_edges(s, z, true);
    }
}

/* Runs iterations from the residual, times the time step, that is in `change`. Then that holds the
 * residual itself. */
static void iterate(struct solver *s, int count) {
    for (int i = 1; i <= count; i++) {
        sweep(s);
        fluid_advance(&s->box, 1 / (OMEGA * (2 - OMEGA)));
        if (i == count && s->run->corrupt && s->run->rank == s->run->size - 1)
            s->box.u[fluid_index(&s->box, 1, 1, s->box.side / 2)][0] *= 1.001;
        exchange(s);
        fluid_residual(&s->box, i == count ? 1 : s->problem->time_step);
    }
}

static void restart(struct solver *s) {
    fluid_start(&s->box);
    exchange(s);
    fluid_residual(&s->box, s->problem->time_step);
}

static void prepare(struct solver *s) {
    static const int periodic[2] = { 0, 0 };
    int sides[2] = { 0, 0 }, place[2], first[3] = { 0 }, len[3], side = s->problem->side;
    size_t longest = 0;
    MPI_Dims_create(s->run->size, 2, sides);
    if (HALO * sides[0] > side)
        npb_refuse(s->run, "there are more processes than this class has work for: take fewer");
    MPI_Cart_create(MPI_COMM_WORLD, 2, sides, periodic, 0, &s->comm);
    MPI_Cart_coords(s->comm, s->run->rank, 2, place);
    len[2] = side;
    for (int axis = 0; axis < 2; axis++) {
        first[axis] = (int)npb_share(side, place[axis], sides[axis]);
        len[axis] = (int)npb_share(side, place[axis] + 1, sides[axis]) - first[axis];
        MPI_Cart_shift(s->comm, axis, 1, &s->before[axis], &s->after[axis]);
    }
    s->box = fluid_make(side, first, len);
    s->inside = fluid_inside(&s->box);
    for (int axis = 0; axis < 2; axis++) {
        size_t face = fluid_face_points(&s->box, axis);
        longest = face > longest ? face : longest;
    }
    for (int i = 0; i < 4; i++)
        s->faces[i] = npb_alloc(longest, HALO * UNKNOWNS * sizeof(double));
}

static void release(struct solver *s) {
    fluid_release(&s->box);
    for (int i = 0; i < 4; i++)
        free(s->faces[i]);
    MPI_Comm_free(&s->comm);
}

/* Returns the integral of the pressure over the surface of a box in the cube, by the trapezoidal
 * rule. The statement gives these ends of the box. */
static double integrate(const struct solver *s) {
    const struct fluid_box *box = &s->box;
    const int from[3] = { 1, 1, 2 }, last[3] = { box->side - 2, box->side - 3, box->side - 2 };
    double own = 0, all;
    for (int z = 0; z < box->len[2]; z++)
        for (int y = 0; y < box->len[1]; y++)
            for (int x = 0; x < box->len[0]; x++) {
                const int at[3] = { box->first[0] + x, box->first[1] + y, box->first[2] + z };
                double weight = 1, ends = 0;
                for (int axis = 0; axis < 3; axis++) {
                    bool is_end = at[axis] == from[axis] || at[axis] == last[axis];
                    if (at[axis] < from[axis] || at[axis] > last[axis])
                        weight = 0;
                    weight *= is_end ? 1 : 2;
                    ends += is_end;
                }
                /* A point belongs to one face for each axis where it is at an end. The weight of
                 * an end is 1, so the product has only those of the axes along the face. */
                own += weight * ends * box->point[fluid_index(box, x, y, z)].pressure;
            }
    MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, s->comm);
    return all / 4 / (box->side - 1) / (box->side - 1);
}

static void check(const struct solver *s) {
    struct fluid_norms sums = { 0 };
    fluid_add_squares(&s->box, &sums);
    fluid_check(s->run, s->box.side, sums, &s->problem->norms);
    npb_check_relative(s->run, "surface integral", integrate(s), s->problem->integral, 1e-8);
}

int main(int argc, char **argv) {
    struct npb_run run;
    npb_begin(&run, "LU", argc, argv);
    struct solver solver = { .run = &run, .problem = &PROBLEMS[npb_class_index(&run)] };
    prepare(&solver);
    double side = solver.problem->side;
    /* One untimed iteration, because connections are made in it. */
    restart(&solver);
    iterate(&solver, 1);
    restart(&solver);
    npb_start(&run);
    iterate(&solver, solver.problem->iterations);
    npb_stop(&run);
    /* The benchmark's count. */
    run.operations = solver.problem->iterations *
                     (1984.77 * side * side * side - 10923.3 * side * side + 27770.9 * side -
                      144010.0);
    check(&solver);
    release(&solver);
    return npb_end(&run);
}
