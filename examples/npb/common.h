/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What the programs of this directory share: the options, the published random numbers, the clock, and
 * how a result is checked and told. MPI is C's, of version 3 or later. */

#ifndef NPB_COMMON_H
#define NPB_COMMON_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The multiplier of the generator x' = a x mod 2^46: 5 to the 13th. */
#define NPB_MULTIPLIER UINT64_C(1220703125)

/* More checks than any program makes. */
#define NPB_CHECKS_MAX 16

/* One comparison of a result with what it has to be. */
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
    bool corrupt; /* whether the program is to spoil its result, so that its checks have to fail */
    double seconds; /* of the timed part: the longest of all processes */
    double operations; /* of the timed part, as the benchmarks count them */
    int check_count;
    struct npb_check checks[NPB_CHECKS_MAX];
};

/* Starts MPI and reads `CLASS [--json] [--corrupt]`. Ends all processes with status 2 if that is not
 * what was written. */
void npb_begin(struct npb_run *run, const char *name, int argc, char **argv);

/* Which of the classes S, W, A, B this is: 0 to 3. */
int npb_class_index(const struct npb_run *run);

/* Ends all processes with status 2 and a sentence; to be called by all of them. */
_Noreturn void npb_refuse(const struct npb_run *run, const char *sentence);

/* Refuses a number of processes that is no power of two. */
void npb_want_power_of_two(const struct npb_run *run);

/* `count` zeroed items of `len` bytes; ends the job if there is no memory for them. */
void *npb_alloc(size_t count, size_t len);

/* Where share `index` begins when `total` items are cut into `count` shares that differ by one at most. */
int64_t npb_share(int64_t total, int64_t index, int64_t count);

/* The next random number, above 0 and below 1. */
double npb_random(uint64_t *state);

/* `state` after `steps` more numbers. */
uint64_t npb_jump(uint64_t state, uint64_t steps);

/* The timed part begins, and ends, for all processes at once. */
void npb_start(struct npb_run *run);
void npb_stop(struct npb_run *run);

/* Notes whether `value` is at most `tolerance` from `expected`. Not a number is no result. What counts
 * is what process 0 notes. */
void npb_check(struct npb_run *run, const char *name, double value, double expected, double tolerance);

/* The same with a tolerance relative to `expected`. */
void npb_check_relative(struct npb_run *run, const char *name, double value, double expected,
                        double tolerance);

/* Process 0 prints the result; MPI ends. Returns the exit status of every process: 0, or 1 if a check
 * failed, or none was made. */
int npb_end(struct npb_run *run);

#endif
