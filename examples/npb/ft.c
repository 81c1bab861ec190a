/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * FT, Fourier transforms: the heat equation on a periodic box by spectra. The box is cut into
 * slabs of planes, one per process. Each inverse transform exchanges all points between all
 * processes once.
 *
 *   mpirun -n PROCESSES ./ft CLASS [--json] [--corrupt]
 *
 * Written from the statement of the NAS Parallel Benchmarks (RNR-94-007). The number of
 * processes must be a power of two, and not above the number of planes. */

#include "common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED UINT64_C(314159265)
#define DIFFUSIVITY 1e-6
#define ITERATIONS_MAX 20
/* Number of points in a checksum. */
#define SAMPLES 1024
/* Number of transforms that run side by side: a constant, so that compilers use vector
 * instructions. */
#define WIDTH 8

struct number {
    double re, im;
};

struct problem {
    int len[3]; /* points along x, y and z: powers of two */
    int iterations;
    struct number sums[ITERATIONS_MAX]; /* published checksums */
};

static const struct problem PROBLEMS[] = {
    { { 64, 64, 64 }, 6,
      { { 5.546087004964e2, 4.845363331978e2 }, { 5.546385409189e2, 4.865304269511e2 },
        { 5.546148406171e2, 4.883910722336e2 }, { 5.545423607415e2, 4.901273169046e2 },
        { 5.544255039624e2, 4.917475857993e2 }, { 5.542683411902e2, 4.932597244941e2 } } },
    { { 128, 128, 32 }, 6,
      { { 5.673612178944e2, 5.293246849175e2 }, { 5.631436885271e2, 5.282149986629e2 },
        { 5.594024089970e2, 5.270996558037e2 }, { 5.560698047020e2, 5.260027904925e2 },
        { 5.530898991250e2, 5.249400845633e2 }, { 5.504159734538e2, 5.239212247086e2 } } },
    { { 256, 256, 128 }, 6,
      { { 5.046735008193e2, 5.114047905510e2 }, { 5.059412319734e2, 5.098809666433e2 },
        { 5.069376896287e2, 5.098144042213e2 }, { 5.077892868474e2, 5.101336130759e2 },
        { 5.085233095391e2, 5.104914655194e2 }, { 5.091487099959e2, 5.107917842803e2 } } },
    { { 512, 256, 256 }, 20,
      { { 5.177643571579e2, 5.077803458597e2 }, { 5.154521291263e2, 5.088249431599e2 },
        { 5.146409228649e2, 5.096208912659e2 }, { 5.142378756213e2, 5.101023387619e2 },
        { 5.139626667737e2, 5.103976610617e2 }, { 5.137423460082e2, 5.105948019802e2 },
        { 5.135547056878e2, 5.107404165783e2 }, { 5.133910925466e2, 5.108576573661e2 },
        { 5.132470705390e2, 5.109577278523e2 }, { 5.131197729984e2, 5.110460304483e2 },
        { 5.130070319283e2, 5.111252433800e2 }, { 5.129070537032e2, 5.111968077718e2 },
        { 5.128182883502e2, 5.112616233064e2 }, { 5.127393733383e2, 5.113203605551e2 },
        { 5.126691062020e2, 5.113735928093e2 }, { 5.126064276004e2, 5.114218460548e2 },
        { 5.125504076570e2, 5.114656139760e2 }, { 5.125002331720e2, 5.115053595966e2 },
        { 5.124551951846e2, 5.115415130407e2 }, { 5.124146770029e2, 5.115744692211e2 } } },
};

/* Real and imaginary parts of WIDTH numbers. */
struct lane {
    double re[WIDTH], im[WIDTH];
};

/* The box is stored in one of two ways. As planes [z][y][x], a process has some z. As columns,
 * it has some y: [y][z][x], or the same as planes if there is one process. */
struct solver {
    struct npb_run *run;
    const struct problem *problem;
    size_t len[3];
    size_t plane_count, column_count;      /* z and y of this process */
    size_t plane_first, column_first;      /* the first of them */
    size_t step_z, step_y;                 /* distances of numbers in columns */
    size_t point_count;                    /* of this process */
    struct number *spectrum;               /* columns */
    struct number *work;                   /* columns */
    struct number *other;                  /* planes; `work` itself if there is one process */
    struct number *roots[3];               /* exp(-2 pi i k / len), for each axis */
    double *decay[3];                      /* of wave numbers along each axis, in one iteration */
    struct lane *lanes[2];                 /* room for the longest transform */
    struct number sums[ITERATIONS_MAX];
};

/* Performs one pass of radix 4 over `length` numbers in each of `stride` interleaved sequences,
 * which are in natural order again after the last pass (Stockham). */
static void pass4(const struct lane *restrict from, struct lane *restrict to, size_t length,
                  size_t stride, const struct number *roots) {
    size_t quarter = length / 4;
    for (size_t p = 0; p < quarter; p++) {
        struct number w1 = roots[p * stride], w2 = roots[2 * p * stride];
        struct number w3 = roots[3 * p * stride];
        for (size_t q = 0; q < stride; q++) {
            const struct lane *a = from + q + stride * p, *b = a + stride * quarter;
            const struct lane *c = b + stride * quarter, *d = c + stride * quarter;
            struct lane *out = to + q + stride * 4 * p;
            for (int i = 0; i < WIDTH; i++) {
                double sum_re = a->re[i] + c->re[i], sum_im = a->im[i] + c->im[i];
                double gap_re = a->re[i] - c->re[i], gap_im = a->im[i] - c->im[i];
                double odd_re = b->re[i] + d->re[i], odd_im = b->im[i] + d->im[i];
                /* -i (b - d) */
                double turn_re = b->im[i] - d->im[i], turn_im = d->re[i] - b->re[i];
                double re1 = gap_re + turn_re, im1 = gap_im + turn_im;
                double re2 = sum_re - odd_re, im2 = sum_im - odd_im;
                double re3 = gap_re - turn_re, im3 = gap_im - turn_im;
                out[0].re[i] = sum_re + odd_re;
                out[0].im[i] = sum_im + odd_im;
                out[stride].re[i] = re1 * w1.re - im1 * w1.im;
                out[stride].im[i] = re1 * w1.im + im1 * w1.re;
                out[2 * stride].re[i] = re2 * w2.re - im2 * w2.im;
                out[2 * stride].im[i] = re2 * w2.im + im2 * w2.re;
                out[3 * stride].re[i] = re3 * w3.re - im3 * w3.im;
                out[3 * stride].im[i] = re3 * w3.im + im3 * w3.re;
            }
        }
    }
}

/* Performs the last pass, of radix 2, if the length is no power of four. */
static void pass2(const struct lane *restrict from, struct lane *restrict to, size_t stride) {
    for (size_t q = 0; q < stride; q++)
        for (int i = 0; i < WIDTH; i++) {
            const struct lane *a = from + q, *b = a + stride;
            to[q].re[i] = a->re[i] + b->re[i];
            to[q].im[i] = a->im[i] + b->im[i];
            to[q + stride].re[i] = a->re[i] - b->re[i];
            to[q + stride].im[i] = a->im[i] - b->im[i];
        }
}

/* Transforms the numbers in lanes[0]; returns the array with the result. */
static struct lane *transform_lanes(const struct solver *s, int axis) {
    struct lane *from = s->lanes[0], *to = s->lanes[1];
    size_t length = s->len[axis], stride = 1;
    for (; length > 2; length /= 4, stride *= 4) {
        pass4(from, to, length, stride, s->roots[axis]);
        struct lane *result = to;
        to = from;
        from = result;
    }
    if (length == 1)
        return from;
    pass2(from, to, stride);
    return to;
}

/* Transforms WIDTH sequences, in place: number k of sequence i is points[k * step + i * apart].
 * An inverse transform is the forward one with real and imaginary parts exchanged. */
static inline void transform(const struct solver *s, struct number *points, int axis, size_t step,
                             size_t apart, bool inverse) {
    struct lane *lanes = s->lanes[0];
    for (size_t k = 0; k < s->len[axis]; k++) {
        double *re = inverse ? lanes[k].im : lanes[k].re;
        double *im = inverse ? lanes[k].re : lanes[k].im;
        for (size_t i = 0; i < WIDTH; i++) {
            struct number point = points[k * step + i * apart];
            re[i] = point.re;
            im[i] = point.im;
        }
    }
    lanes = transform_lanes(s, axis);
    for (size_t k = 0; k < s->len[axis]; k++) {
        const double *re = inverse ? lanes[k].im : lanes[k].re;
        const double *im = inverse ? lanes[k].re : lanes[k].im;
        for (size_t i = 0; i < WIDTH; i++)
            points[k * step + i * apart] = (struct number){ re[i], im[i] };
    }
}

/* Transforms planes along x. */
static void transform_x(const struct solver *s, struct number *planes, bool inverse) {
    size_t row_count = s->len[1] * s->plane_count;
    for (size_t row = 0; row < row_count; row += WIDTH)
        transform(s, planes + row * s->len[0], 0, 1, s->len[0], inverse);
}

/* Transforms planes along y. */
static void transform_y(const struct solver *s, struct number *planes, bool inverse) {
    for (size_t z = 0; z < s->plane_count; z++)
        for (size_t x = 0; x < s->len[0]; x += WIDTH)
            transform(s, planes + z * s->len[1] * s->len[0] + x, 1, s->len[0], 1, inverse);
}

/* Transforms columns along z. */
static void transform_z(const struct solver *s, struct number *columns, bool inverse) {
    for (size_t y = 0; y < s->column_count; y++)
        for (size_t x = 0; x < s->len[0]; x += WIDTH)
            transform(s, columns + y * s->step_y + x, 2, s->step_z, 1, inverse);
}

/* Copies between planes and blocks of rows for each process: [process][y][z][x]. */
static void pack_planes(const struct solver *s, struct number *planes, struct number *blocks,
                        bool back) {
    size_t row = s->len[0];
    for (size_t y = 0; y < s->len[1]; y++)
        for (size_t z = 0; z < s->plane_count; z++) {
            struct number *block = blocks + (y * s->plane_count + z) * row;
            struct number *plane = planes + (z * s->len[1] + y) * row;
            memcpy(back ? plane : block, back ? block : plane, row * sizeof *block);
        }
}

/* Copies between columns and blocks of the same form. */
static void pack_columns(const struct solver *s, struct number *columns, struct number *blocks,
                         bool back) {
    size_t run = s->plane_count * s->len[0];
    for (size_t process = 0; process < (size_t)s->run->size; process++)
        for (size_t y = 0; y < s->column_count; y++) {
            struct number *block = blocks + (process * s->column_count + y) * run;
            struct number *column = columns + y * s->step_y + process * run;
            memcpy(back ? column : block, back ? block : column, run * sizeof *block);
        }
}

static void exchange(const struct solver *s, const struct number *from, struct number *to) {
    int count = (int)(2 * s->point_count / (size_t)s->run->size);
    MPI_Alltoall(from, count, MPI_DOUBLE, to, count, MPI_DOUBLE, MPI_COMM_WORLD);
}

/* Transforms the planes `other` into the columns `work`. */
static void transform_forward(const struct solver *s) {
    transform_x(s, s->other, false);
    transform_y(s, s->other, false);
    if (s->run->size > 1) {
        pack_planes(s, s->other, s->work, false);
        exchange(s, s->work, s->other);
        pack_columns(s, s->work, s->other, true);
    }
    transform_z(s, s->work, false);
}

/* Transforms the columns `work` back into the planes `other`, without the division by the number of
 * points. */
static void transform_back(const struct solver *s) {
    transform_z(s, s->work, true);
    if (s->run->size > 1) {
        pack_columns(s, s->work, s->other, false);
        exchange(s, s->other, s->work);
        pack_planes(s, s->other, s->work, true);
    }
    transform_y(s, s->other, true);
    transform_x(s, s->other, true);
}

/* Draws the initial values into the planes `other`. */
static void draw(const struct solver *s) {
    size_t plane = s->len[0] * s->len[1];
    uint64_t state = npb_jump(SEED, 2 * s->plane_first * plane);
    for (size_t i = 0; i < s->plane_count * plane; i++) {
        s->other[i].re = npb_random(&state);
        s->other[i].im = npb_random(&state);
    }
}

/* Advances the spectrum by one time step, and copies it to `work`. */
static void evolve(const struct solver *s) {
    const double *along_x = s->decay[0];
    for (size_t y = 0; y < s->column_count; y++)
        for (size_t z = 0; z < s->len[2]; z++) {
            size_t first = y * s->step_y + z * s->step_z;
            double decay = s->decay[1][s->column_first + y] * s->decay[2][z];
            struct number *spectrum = s->spectrum + first, *work = s->work + first;
            for (size_t x = 0; x < s->len[0]; x++) {
                double factor = decay * along_x[x];
                spectrum[x].re *= factor;
                spectrum[x].im *= factor;
                work[x] = spectrum[x];
            }
        }
}

/* Sums the sampled points of the planes `other` of all processes. */
static struct number checksum(const struct solver *s) {
    double own[2] = { 0 }, all[2], points = (double)(s->len[0] * s->len[1] * s->len[2]);
    for (size_t j = 1; j <= SAMPLES; j++) {
        size_t x = j % s->len[0], y = 3 * j % s->len[1], z = 5 * j % s->len[2];
        if (z < s->plane_first || z >= s->plane_first + s->plane_count)
            continue;
        struct number point = s->other[((z - s->plane_first) * s->len[1] + y) * s->len[0] + x];
        own[0] += point.re;
        own[1] += point.im;
    }
    MPI_Allreduce(own, all, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return (struct number){ all[0] / points, all[1] / points };
}

/* Returns the sum of the squared magnitudes of the numbers of all processes. */
static double energy(const struct solver *s, const struct number *points) {
    double own = 0, all;
    for (size_t i = 0; i < s->point_count; i++)
        own += points[i].re * points[i].re + points[i].im * points[i].im;
    MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* Draws the initial values, and keeps their spectrum. */
static void begin(struct solver *s) {
    draw(s);
    transform_forward(s);
    /* With one process both of the other names are of the same memory. */
    bool same = s->other == s->work;
    struct number *spectrum = s->work;
    s->work = s->spectrum;
    s->spectrum = spectrum;
    if (same)
        s->other = s->work;
}

static void solve(struct solver *s) {
    begin(s);
    for (int i = 0; i < s->problem->iterations; i++) {
        if (s->run->corrupt && i + 1 == s->problem->iterations && s->run->rank == s->run->size - 1)
            for (size_t at = 0; at < s->point_count; at++) s->spectrum[at].re *= 1.001;
        evolve(s);
        transform_back(s);
        s->sums[i] = checksum(s);
    }
}

static void make_tables(struct solver *s, int axis) {
    const double pi = acos(-1);
    size_t len = s->len[axis];
    s->roots[axis] = npb_alloc(len, sizeof *s->roots[axis]);
    s->decay[axis] = npb_alloc(len, sizeof *s->decay[axis]);
    for (size_t k = 0; k < len; k++) {
        double angle = 2 * pi * (double)k / (double)len;
        double wave = k < len / 2 ? (double)k : (double)k - (double)len;
        s->roots[axis][k] = (struct number){ cos(angle), -sin(angle) };
        s->decay[axis][k] = exp(-4 * DIFFUSIVITY * pi * pi * wave * wave);
    }
}

static void prepare(struct solver *s) {
    size_t longest = 0, size = (size_t)s->run->size, rank = (size_t)s->run->rank;
    for (int axis = 0; axis < 3; axis++) {
        s->len[axis] = (size_t)s->problem->len[axis];
        longest = s->len[axis] > longest ? s->len[axis] : longest;
    }
    if (size > s->len[1] || size > s->len[2])
        npb_refuse(s->run, "there are more processes than planes of this class: take fewer");
    for (int axis = 0; axis < 3; axis++)
        make_tables(s, axis);
    s->plane_count = s->len[2] / size;
    s->column_count = s->len[1] / size;
    s->plane_first = rank * s->plane_count;
    s->column_first = rank * s->column_count;
    s->step_y = size > 1 ? s->len[2] * s->len[0] : s->len[0];
    s->step_z = size > 1 ? s->len[0] : s->len[1] * s->len[0];
    s->point_count = s->plane_count * s->len[1] * s->len[0];
    s->spectrum = npb_alloc(s->point_count, sizeof *s->spectrum);
    s->work = npb_alloc(s->point_count, sizeof *s->work);
    s->other = size > 1 ? npb_alloc(s->point_count, sizeof *s->other) : s->work;
    for (int i = 0; i < 2; i++)
        s->lanes[i] = npb_alloc(longest, sizeof *s->lanes[i]);
}

static void release(struct solver *s) {
    for (int axis = 0; axis < 3; axis++) {
        free(s->roots[axis]);
        free(s->decay[axis]);
    }
    free(s->spectrum);
    free(s->work);
    if (s->run->size > 1)
        free(s->other);
    free(s->lanes[0]);
    free(s->lanes[1]);
}

/* The tolerance is the benchmark's own; the published sums have 13 digits. */
static void check(const struct solver *s, double energy_before, double energy_after) {
    const double tolerance = 1e-12;
    const struct problem *problem = s->problem;
    int right = 0, last = problem->iterations - 1;
    for (int i = 0; i <= last; i++) {
        struct number sum = s->sums[i], expected = problem->sums[i];
        right += fabs(sum.re - expected.re) <= tolerance * fabs(expected.re) &&
                 fabs(sum.im - expected.im) <= tolerance * fabs(expected.im);
    }
    npb_check(s->run, "published checksums found", right, problem->iterations, 0);
    npb_check_relative(s->run, "last checksum, real part", s->sums[last].re, problem->sums[last].re,
                       tolerance);
    npb_check_relative(s->run, "last checksum, imaginary part", s->sums[last].im,
                       problem->sums[last].im, tolerance);
    /* Parseval's theorem. */
    npb_check_relative(s->run, "energy of the spectrum", energy_after, energy_before, tolerance);
}

int main(int argc, char **argv) {
    struct npb_run run;
    npb_begin(&run, "FT", argc, argv);
    npb_want_power_of_two(&run);
    struct solver solver = { .run = &run, .problem = &PROBLEMS[npb_class_index(&run)] };
    prepare(&solver);
    double points = (double)solver.point_count * run.size;
    draw(&solver);
    double energy_before = energy(&solver, solver.other);
    /* Untimed transforms, because memory is touched and connections are made in them. */
    begin(&solver);
    double energy_after = energy(&solver, solver.spectrum) / points;
    evolve(&solver);
    transform_back(&solver);
    npb_start(&run);
    solve(&solver);
    npb_stop(&run);
    /* The benchmark's count. */
    run.operations = points * (14.8157 + 7.19641 * log(points) +
                               (5.23518 + 7.21113 * log(points)) * solver.problem->iterations);
    check(&solver, energy_before, energy_after);
    release(&solver);
    return npb_end(&run);
}
