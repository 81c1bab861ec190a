/* SPDX-License-Identifier: MIT OR Apache-2.0 */

#include "tiles.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_UP = 1, TAG_DOWN = 4, TAG_ELIMINATE = 7, TAG_SUBSTITUTE };

/* Returns a non-negative remainder. */
static int wrapped(int number, int count) {
    return (number % count + count) % count;
}

/* Returns the process with the tile at `place`. The processes are a grid of counts[0] by
 * counts[2]. */
static int owner(const struct tiles *tiles, const int place[3]) {
    int row = wrapped(place[0] + place[1], tiles->counts[0]);
    return row * tiles->counts[2] + wrapped(place[0] + place[2], tiles->counts[2]);
}

static void count_tiles(struct tiles *tiles) {
    int size = tiles->run->size, q = 1;
    for (int i = 2; i * i <= size; i++)
        if (size % (i * i) == 0)
            q = i;
    tiles->counts[0] = tiles->counts[1] = size / q;
    tiles->counts[2] = q;
    tiles->tile_count = size / q;
}

static struct tile make_tile(const struct tiles *tiles, int index) {
    int row = tiles->run->rank / tiles->counts[2], column = tiles->run->rank % tiles->counts[2];
    struct tile tile = { .place = { index, wrapped(row - index, tiles->counts[1]),
                                    wrapped(column - index, tiles->counts[2]) } };
    int first[3], len[3];
    for (int axis = 0; axis < 3; axis++) {
        first[axis] = (int)npb_share(tiles->side, tile.place[axis], tiles->counts[axis]);
        len[axis] = (int)npb_share(tiles->side, tile.place[axis] + 1, tiles->counts[axis]);
        len[axis] -= first[axis];
    }
    tile.box = fluid_make(tiles->side, first, len);
    tile.rows = npb_alloc(tile.box.point_count * tiles->row_len, sizeof(double));
    return tile;
}

/* Finds the processes with the tiles after and before this process's own. They are the same for all
 * tiles. */
static void find_neighbours(struct tiles *tiles) {
    for (int axis = 0; axis < 3; axis++) {
        int place[3];
        memcpy(place, tiles->tile[0].place, sizeof place);
        place[axis]++;
        tiles->after[axis] = owner(tiles, place);
        place[axis] -= 2;
        tiles->before[axis] = owner(tiles, place);
    }
}

/* Returns the points of the largest faces of this process's tiles together. */
static size_t sum_faces(const struct tiles *tiles) {
    size_t sum = 0;
    for (int i = 0; i < tiles->tile_count; i++) {
        size_t longest = 0;
        for (int axis = 0; axis < 3; axis++) {
            size_t len = fluid_face_points(&tiles->tile[i].box, axis);
            longest = len > longest ? len : longest;
        }
        sum += longest;
    }
    return sum;
}

struct tiles tiles_make(struct npb_run *run, int side, size_t row_len, int planes) {
    struct tiles tiles = { .run = run, .side = side, .row_len = row_len, .planes = planes };
    count_tiles(&tiles);
    if (HALO * tiles.counts[0] > side)
        npb_refuse(run, "there are more processes than this class has work for: take fewer");
    tiles.tile = npb_alloc((size_t)tiles.tile_count, sizeof *tiles.tile);
    for (int i = 0; i < tiles.tile_count; i++)
        tiles.tile[i] = make_tile(&tiles, i);
    find_neighbours(&tiles);
    size_t points = tiles.face_points = sum_faces(&tiles);
    for (int i = 0; i < 12; i++)
        tiles.faces[i] = npb_alloc(points, HALO * UNKNOWNS * sizeof(double));
    for (int i = 0; i < 2; i++)
        tiles.carried[i] = npb_alloc(points, (size_t)planes * row_len * sizeof(double));
    return tiles;
}

void tiles_release(struct tiles *tiles) {
    for (int i = 0; i < tiles->tile_count; i++) {
        fluid_release(&tiles->tile[i].box);
        free(tiles->tile[i].rows);
    }
    for (int i = 0; i < 12; i++)
        free(tiles->faces[i]);
    free(tiles->carried[0]);
    free(tiles->carried[1]);
    free(tiles->tile);
}

void tiles_start(struct tiles *tiles) {
    for (int i = 0; i < tiles->tile_count; i++)
        fluid_start(&tiles->tile[i].box);
}

/* The arrays of a tile. */
enum array { U, CHANGE, ROWS };

/* Packs or unpacks planes of the tiles at one place of an axis, one after another by their
 * places along x, which is the same order on both sides of an exchange. Returns the count of
 * numbers. */
static size_t copy_place(struct tiles *tiles, enum array array, int place,
                         struct fluid_planes planes, double *packed, bool back) {
    size_t count = 0;
    for (int i = 0; i < tiles->tile_count; i++) {
        struct tile *tile = &tiles->tile[i];
        struct fluid_box *box = &tile->box;
        double *from = array == U ? box->u[0] : array == CHANGE ? box->change[0] : tile->rows;
        size_t width = array == ROWS ? tiles->row_len : UNKNOWNS;
        if (tile->place[planes.axis] != place)
            continue;
        if (back)
            count += fluid_unpack(box, planes, from, width, packed + count);
        else
            count += fluid_pack(box, planes, from, width, packed + count);
    }
    return count;
}

/* Does that with u at all places but the one at the surface of the cube, where there is no
 * neighbour. */
static size_t copy_faces(struct tiles *tiles, int axis, bool high, double *packed, bool back) {
    struct fluid_planes planes = { axis, high, HALO };
    int surface = high ? tiles->counts[axis] - 1 : 0;
    size_t count = 0;
    for (int place = 0; place < tiles->counts[axis]; place++)
        if (place != surface)
            count += copy_place(tiles, U, place, planes, packed + count, back);
    return count;
}

/* Updates the copies of the neighbours' u, with one message to each neighbour. */
static void exchange(struct tiles *tiles) {
    MPI_Request all[12];
    MPI_Status statuses[12];
    int count = 0, room = (int)(tiles->face_points * HALO * UNKNOWNS);
    for (int axis = 0; axis < 3; axis++) {
        if (tiles->counts[axis] == 1)
            continue;
        double **faces = tiles->faces + 4 * axis;
        int up = (int)copy_faces(tiles, axis, true, faces[0], false);
        int down = (int)copy_faces(tiles, axis, false, faces[1], false);
        int before = tiles->before[axis], after = tiles->after[axis];
        int tag_up = TAG_UP + axis, tag_down = TAG_DOWN + axis;
        MPI_Irecv(faces[2], room, MPI_DOUBLE, before, tag_up, MPI_COMM_WORLD, &all[count++]);
        MPI_Irecv(faces[3], room, MPI_DOUBLE, after, tag_down, MPI_COMM_WORLD, &all[count++]);
        MPI_Isend(faces[0], up, MPI_DOUBLE, after, tag_up, MPI_COMM_WORLD, &all[count++]);
        MPI_Isend(faces[1], down, MPI_DOUBLE, before, tag_down, MPI_COMM_WORLD, &all[count++]);
    }
    MPI_Waitall(count, all, statuses);
    for (int axis = 0; axis < 3; axis++) {
        if (tiles->counts[axis] == 1)
            continue;
        copy_faces(tiles, axis, false, tiles->faces[4 * axis + 2], true);
        copy_faces(tiles, axis, true, tiles->faces[4 * axis + 3], true);
    }
}

void tiles_residual(struct tiles *tiles, double scale) {
    exchange(tiles);
    for (int i = 0; i < tiles->tile_count; i++)
        fluid_residual(&tiles->tile[i].box, scale);
}

/* Carries the last rows of the tiles at `place` to the next tiles, or their first changes to the
 * tiles before. All processes do so at once, so each also receives for its own next tiles. */
static void carry(struct tiles *tiles, int axis, int place, bool substitute) {
    enum array array = substitute ? CHANGE : ROWS;
    struct fluid_planes out = { axis, !substitute, tiles->planes };
    struct fluid_planes in = { axis, substitute, tiles->planes };
    int to = substitute ? tiles->before[axis] : tiles->after[axis];
    int from = substitute ? tiles->after[axis] : tiles->before[axis];
    int tag = substitute ? TAG_SUBSTITUTE : TAG_ELIMINATE;
    int room = (int)(tiles->face_points * (size_t)tiles->planes * tiles->row_len);
    int count = (int)copy_place(tiles, array, place, out, tiles->carried[0], false);
    MPI_Sendrecv(tiles->carried[0], count, MPI_DOUBLE, to, tag, tiles->carried[1], room, MPI_DOUBLE,
                 from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    copy_place(tiles, array, substitute ? place - 1 : place + 1, in, tiles->carried[1], true);
}

static void solve_at(struct tiles *tiles, int axis, int place, double time_step,
                     tiles_solve *solve) {
    for (int i = 0; i < tiles->tile_count; i++)
        if (tiles->tile[i].place[axis] == place)
            solve(&tiles->tile[i], axis, time_step);
}

void tiles_sweep(struct tiles *tiles, int axis, double time_step, tiles_solve *eliminate,
                 tiles_solve *substitute) {
    int last = tiles->counts[axis] - 1;
    for (int place = 0; place <= last; place++) {
        solve_at(tiles, axis, place, time_step, eliminate);
        if (place < last)
            carry(tiles, axis, place, false);
    }
    for (int place = last; place >= 0; place--) {
        solve_at(tiles, axis, place, time_step, substitute);
        if (place > 0)
            carry(tiles, axis, place, true);
    }
}

void tiles_advance(struct tiles *tiles) {
    for (int i = 0; i < tiles->tile_count; i++)
        fluid_advance(&tiles->tile[i].box, 1);
}

void tiles_spoil(struct tiles *tiles) {
    struct fluid_box *box = &tiles->tile[0].box;
    box->u[fluid_index(box, 1, 1, 1)][0] *= 1.001;
}

void tiles_check(const struct tiles *tiles, const struct fluid_norms *published) {
    struct fluid_norms sums = { 0 };
    for (int i = 0; i < tiles->tile_count; i++)
        fluid_add_squares(&tiles->tile[i].box, &sums);
    fluid_check(tiles->run, tiles->side, sums, published);
}
