/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Code shared by BT, SP and LU: the compressible flow on a cube that they compute in different
 * ways, with its differences in space, its exact solution and its initial values.
 *
 * The names follow the statement of the NAS Parallel Benchmarks (RNR-94-007), section 3: five
 * unknowns at each point, which are density, momentum along x, y and z, and energy. */

#ifndef NPB_FLUID_H
#define NPB_FLUID_H

#include "common.h"

#include <stddef.h>

#define UNKNOWNS 5
/* Width of the copies of neighbours' points around a box. */
#define HALO 2

/* Constants of the statement: k1, k2, k3 k4 and k1 k5. */
#define K1 1.4
#define K2 0.4
#define K34 0.1
#define K15 1.96
/* Coefficient of the fourth differences. */
#define DISSIPATION 0.25

/* Coefficients of the second differences of the unknowns along x, y and z. */
static const double FLUID_DIFFUSION[3] = { 0.75, 0.75, 1.0 };

/* Values that follow from the unknowns at a point. */
struct fluid_point {
    double velocity[3];
    double kinetic;      /* energy per mass */
    double energy;       /* total energy per mass */
    double inverse;      /* of the density */
    double pressure;
    double sound;        /* speed of sound */
};

/* A box of points of the cube, with copies of its neighbours' points. Arrays of points are
 * [z][y][x], with HALO more points on each side. */
struct fluid_box {
    int side;     /* points along a side of the cube */
    int first[3]; /* this box's first point in the cube, along x, y and z */
    int len[3];   /* points without the copies */
    ptrdiff_t step[3]; /* distances of neighbours in the arrays */
    ptrdiff_t origin;  /* index of the first point without the copies */
    size_t point_count; /* with the copies */
    double (*u)[UNKNOWNS];
    double (*forcing)[UNKNOWNS];
    /* Right-hand side, then the change of u. It is 0 on the surface of the cube. */
    double (*change)[UNKNOWNS];
    struct fluid_point *point; /* for u, and the nearest copies */
    /* Coefficients of the fourth differences at each of the `side` places along an axis: for the
     * points two before to two after. Near the surface of the cube there are fewer points. */
    double (*fourth)[5];
};

/* A half-open range of points along each axis, counted from the box's first point. */
struct fluid_range {
    int from[3], until[3];
};

/* The outermost planes of a box at one end of an axis. */
struct fluid_planes {
    int axis;
    bool high; /* the end with the highest places */
    int count;
};

/* Published norms, in the order of the unknowns. */
struct fluid_norms {
    double residual[UNKNOWNS], error[UNKNOWNS];
};

/* Returns the index of a point, counted from the box's first point. */
static inline ptrdiff_t fluid_index(const struct fluid_box *box, int x, int y, int z) {
    return box->origin + z * box->step[2] + y * box->step[1] + x;
}

/* Returns a box with the initial values and the forcing terms. */
struct fluid_box fluid_make(int side, const int first[3], const int len[3]);
void fluid_release(struct fluid_box *box);

/* Returns the box's points inside the surface of the cube. */
struct fluid_range fluid_inside(const struct fluid_box *box);

/* Sets u to the initial values. */
void fluid_start(struct fluid_box *box);

/* Computes `point` from u and the copies, and then `change`, which is the residual times
 * `scale`. */
void fluid_residual(struct fluid_box *box, double scale);

/* Adds `change` times `scale` to u. */
void fluid_advance(struct fluid_box *box, double scale);

/* Returns the number of points of a face across an axis. */
size_t fluid_face_points(const struct fluid_box *box, int axis);

/* Copies planes of an array of the box's points to `packed`. The array has `width` numbers for each
 * point. Returns the count of numbers. */
size_t fluid_pack(const struct fluid_box *box, struct fluid_planes planes, const double *array,
                  size_t width, double *packed);

/* Copies a neighbour's planes from `packed` to the copies outside this end of the axis. */
size_t fluid_unpack(const struct fluid_box *box, struct fluid_planes planes, double *array,
                    size_t width, const double *packed);

/* Adds up the squares of the residual, which is in `change`, and of the difference between u and
 * the exact solution. */
void fluid_add_squares(const struct fluid_box *box, struct fluid_norms *sums);

/* Records the norms, from the sums of the squares in the boxes of this process. */
void fluid_check(struct npb_run *run, int side, struct fluid_norms sums,
                 const struct fluid_norms *published);

/* Adds the product of the matrix that couples a point's neighbour to it with changes of the
 * neighbour: the derivatives of the differences along `axis`. `central` is the factor of the
 * first difference, which is negative for a neighbour behind the point, and `second` that of the
 * second difference. There are `width` changes side by side, a constant, so that compilers use
 * vector instructions: number i of unknown m is change[m * width + i]. */
static inline void fluid_add_coupled(const struct fluid_point *neighbour, int axis, double central,
                                     double second, int width, const double *restrict change,
                                     double *restrict sum) {
    const double *velocity = neighbour->velocity, inverse = neighbour->inverse;
    const double own = velocity[axis], kinetic = neighbour->kinetic, energy = neighbour->energy;
    const double viscous = K34 * second, diffusion = second * FLUID_DIFFUSION[axis];
    for (int i = 0; i < width; i++) {
        double density = change[i], x = change[width + i], y = change[2 * width + i];
        double z = change[3 * width + i], total = change[4 * width + i];
        double mass = axis == 0 ? x : axis == 1 ? y : z;
        double along = velocity[0] * x + velocity[1] * y + velocity[2] * z;
        double pressure = K2 * (total - along + kinetic * density);
        /* Changes of the momentum's flow, and of the velocities. */
        double flow = mass - own * density;
        double x_moved = inverse * (x - velocity[0] * density);
        double y_moved = inverse * (y - velocity[1] * density);
        double z_moved = inverse * (z - velocity[2] * density);
        double moved = inverse * flow, push = central * pressure + viscous / 3 * moved;
        sum[i] += central * mass + diffusion * density;
        sum[width + i] += central * (x * own + velocity[0] * flow) + viscous * x_moved +
                          diffusion * x + (axis == 0 ? push : 0);
        sum[2 * width + i] += central * (y * own + velocity[1] * flow) + viscous * y_moved +
                              diffusion * y + (axis == 1 ? push : 0);
        sum[3 * width + i] += central * (z * own + velocity[2] * flow) + viscous * z_moved +
                              diffusion * z + (axis == 2 ? push : 0);
        sum[4 * width + i] +=
            central * ((total + pressure) * own + (K1 * energy - K2 * kinetic) * flow) +
            viscous * ((1 - K15) * inverse * (along - 2 * kinetic * density) + own * moved / 3 +
                       K15 * inverse * (total - energy * density)) +
            diffusion * total;
    }
}

#endif
