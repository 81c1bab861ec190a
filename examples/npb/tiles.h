/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Code shared by BT and SP: the cube of fluid.h in tiles that are dealt to the processes, so
 * that all of them have work in every step of a sweep along any axis.
 *
 * With t q^2 processes, where q is as large as possible, there are t q tiles along x, as many
 * along y, and q along z. A process has t q of them, one at each place along x, and all tiles
 * after its own along an axis belong to one neighbour. With q^2 processes this is the multi-
 * partition of the statement; the general case follows Darte, Mellor-Crummey, Fowler and
 * Chavarria-Miranda, "Generalized multipartitioning of multi-dimensional arrays for
 * parallelizing line-sweep computations". */

#ifndef NPB_TILES_H
#define NPB_TILES_H

#include "fluid.h"

struct tile {
    int place[3]; /* among the tiles along each axis */
    struct fluid_box box;
    /* Rows of the matrix after elimination, `row_len` numbers for each point of the box: the
     * coefficients of the unknowns behind it, and the right-hand side. All 0 on the surface of
     * the cube. */
    double *rows;
};

/* Solves along `axis` in one tile: eliminates, from `change` to `rows`, or substitutes
 * backwards, from `rows` to `change`. What is before or behind the tile is in its copies. */
typedef void tiles_solve(const struct tile *tile, int axis, double time_step);

struct tiles {
    struct npb_run *run;
    int side;
    int counts[3]; /* tiles along each axis */
    int tile_count; /* of this process */
    struct tile *tile;
    int before[3], after[3]; /* neighbours along each axis */
    size_t row_len;
    size_t face_points; /* of the largest face of each tile */
    int planes; /* planes of points that a sweep carries to the next tile, at most HALO */
    double *faces[12]; /* room for outgoing and incoming faces at both ends of each axis */
    double *carried[2]; /* room for outgoing and incoming planes of a sweep */
};

/* Cuts the cube, and allocates the tiles with their initial values. */
struct tiles tiles_make(struct npb_run *run, int side, size_t row_len, int planes);
void tiles_release(struct tiles *tiles);

/* Sets u to the initial values. */
void tiles_start(struct tiles *tiles);

/* Updates the copies of the neighbours' u, and computes the residual times `scale`. */
void tiles_residual(struct tiles *tiles, double scale);

/* Solves along an axis through all tiles. */
void tiles_sweep(struct tiles *tiles, int axis, double time_step, tiles_solve *eliminate,
                 tiles_solve *substitute);

/* Adds the changes to u. */
void tiles_advance(struct tiles *tiles);

/* Changes a point's density, so that checks must fail. */
void tiles_spoil(struct tiles *tiles);

/* Records the norms. The residual must be in `change`. */
void tiles_check(const struct tiles *tiles, const struct fluid_norms *published);

#endif
