/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
  * Code shared by the programs of this directory: options, the published random numbers, the clock,
  * and checks of the results. Uses the C interface of MPI, version 3 or later. */

#ifndef NPB_COMMON_H
#define NPB_COMMON_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The multiplier of the generator x' = a x mod 2^46: 5 to the 13th. */
#define NPB_MULTIPLIER UINT64_C(1220703125)

/* Upper bound of the checks of a program. */
#define NPB_CHECKS_MAX 16

/* One comparison of a result with its expected value. */
struct npb_check {
    const char *name;
    double value;
    double expected;
    bool passed;
};

/* One run of a program. */
struct npb_run {
    const char *name;
    char class_name; /* S, W, A or B */
    int rank;
    int size; /* processes */
    bool json;
    bool corrupt; /* spoil the result, so that its checks must fail */
    double seconds; /* of the timed part: the longest of all processes */
    double operations; /* of the timed part, as the benchmarks count them */
    int check_count;
    struct npb_check checks[NPB_CHECKS_MAX];
};

/* Starts MPI and parses `CLASS [--json] [--corrupt]`. Ends all processes with status 2 if the arguments
 * are invalid. */
void npb_begin(struct npb_run *run, const char *name, int argc, char **argv);

/* Returns the index of the class among S, W, A, B: 0 to 3. */
int npb_class_index(const struct npb_run *run);

/* Ends all processes with status 2 and a message; all of them must call it. */
_Noreturn void npb_refuse(const struct npb_run *run, const char *sentence);

/* Ends the job unless the number of processes is a power of two. */
void npb_want_power_of_two(const struct npb_run *run);

/* Returns `count` zeroed items of `len` bytes; ends the job if memory is insufficient. */
void *npb_alloc(size_t count, size_t len);

/* Returns the beginning of share `index`, if `total` items are cut into `count` nearly equal shares. */
int64_t npb_share(int64_t total, int64_t index, int64_t count);

/* Returns the next random number, above 0 and below 1. */
double npb_random(uint64_t *state);

/* Returns `state` after `steps` more numbers. */
uint64_t npb_jump(uint64_t state, uint64_t steps);

/* Start and stop the timed part, for all processes at once. */
void npb_start(struct npb_run *run);
void npb_stop(struct npb_run *run);

/* Records if `value` is at most `tolerance` from `expected`; NaN fails. Only the records of process 0
 * count. */
void npb_check(struct npb_run *run, const char *name, double value, double expected, double tolerance);

/* Does the same with a tolerance relative to `expected`. */
void npb_check_relative(struct npb_run *run, const char *name, double value, double expected,
                        double tolerance);

/* Prints the result on process 0, and ends MPI. Returns the exit status of every process: 0, or 1 if a
 * check failed or none was made. */
int npb_end(struct npb_run *run);

#endif
