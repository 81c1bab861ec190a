/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
  * EP, embarrassingly parallel: pairs of random numbers are made Gaussian by acceptance and
  * rejection. They are counted by the square ring around the origin that contains them.
 *
 *   mpirun -n PROCESSES ./ep CLASS [--json] [--corrupt]
 *
  * Written from the statement of the NAS Parallel Benchmarks (RNR-94-007). The number of processes
  * must not exceed the number of blocks of 2^16 pairs: 256 in class S. */

#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SEED UINT64_C(271828183)
#define BLOCK_PAIRS (UINT64_C(1) << 16)
#define RING_COUNT 10

struct problem {
    int pairs_log2;
    /* The published sums. */
    double sum_x, sum_y;
    /* The published count of accepted pairs; 0 if unknown. */
    double accepted;
};

static const struct problem PROBLEMS[] = {
    { 24, -3.247834652034740e+3, -6.958407078382297e+3, 13176389 },
    { 25, -2.863319731645753e+3, -6.320053679109499e+3, 0 },
    { 28, -4.295875165629892e+3, -1.580732573678431e+4, 210832767 },
    { 30, 4.033815542441498e+4, -2.660669192809235e+4, 0 },
};

struct tally {
    double sum_x, sum_y;
    double rings[RING_COUNT];
};

/* Counts the pairs of one block. */
static void tally_block(struct tally *tally, uint64_t block) {
    uint64_t state = npb_jump(SEED, block * 2 * BLOCK_PAIRS);
    for (uint64_t i = 0; i < BLOCK_PAIRS; i++) {
        double x = 2 * npb_random(&state) - 1;
        double y = 2 * npb_random(&state) - 1;
        double square = x * x + y * y;
        if (square > 1)
            continue;
        double factor = sqrt(-2 * log(square) / square);
        x *= factor;
        y *= factor;
        /* No pair of these classes reaches 10. The smallest square is 2^-90; its factor gives 11.2, and
         * such a pair would be reported as missing. */
        int ring = (int)fmax(fabs(x), fabs(y));
        if (ring < RING_COUNT)
            tally->rings[ring] += 1;
        tally->sum_x += x;
        tally->sum_y += y;
    }
}

static void check(struct npb_run *run, const struct problem *problem, const struct tally *tally) {
    /* Effect of the order of additions that the benchmark allows. */
    const double tolerance = 1e-8;
    /* Standard deviations that random results do not exceed. */
    const double chance = 6;
    double pairs = ldexp(1, problem->pairs_log2), share = acos(-1) / 4, accepted = 0;
    for (int ring = 0; ring < RING_COUNT; ring++)
        accepted += tally->rings[ring];
    npb_check_relative(run, "sum of x", tally->sum_x, problem->sum_x, tolerance);
    npb_check_relative(run, "sum of y", tally->sum_y, problem->sum_y, tolerance);
    if (problem->accepted > 0)
        npb_check(run, "accepted pairs", accepted, problem->accepted, 0);
    npb_check(run, "accepted share, by the circle's area", accepted / pairs, share,
              chance * sqrt(share * (1 - share) / pairs));
    /* Probability that |x| and |y| of a Gaussian pair are both below 1. */
    double inner = pow(erf(sqrt(0.5)), 2);
    npb_check(run, "share of the innermost ring", tally->rings[0] / accepted, inner,
              chance * sqrt(inner * (1 - inner) / accepted));
}

int main(int argc, char **argv) {
    struct npb_run run;
    npb_begin(&run, "EP", argc, argv);
    const struct problem *problem = &PROBLEMS[npb_class_index(&run)];
    uint64_t pairs = UINT64_C(1) << problem->pairs_log2;
    uint64_t blocks = pairs / BLOCK_PAIRS, size = (uint64_t)run.size, rank = (uint64_t)run.rank;
    if (size > blocks) {
        char sentence[120];
        snprintf(sentence, sizeof sentence, "%d processes do not fit: class %c has work for %d at most",
                 run.size, run.class_name, (int)blocks);
        npb_refuse(&run, sentence);
    }
    struct tally own = { 0 }, all = { 0 };
    npb_start(&run);
    for (uint64_t block = blocks * rank / size; block < blocks * (rank + 1) / size; block++)
        tally_block(&own, block);
    if (run.corrupt && run.rank == run.size - 1)
        own.sum_x += 1;
    MPI_Allreduce(&own.sum_x, &all.sum_x, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&own.sum_y, &all.sum_y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(own.rings, all.rings, RING_COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    npb_stop(&run);
    /* The benchmark counts random numbers. */
    run.operations = 2 * (double)pairs;
    check(&run, problem, &all);
    return npb_end(&run);
}
