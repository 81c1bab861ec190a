/* SPDX-License-Identifier: MIT OR Apache-2.0 */

#include "common.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The generator's modulus is 2 to this power. */
#define NPB_STATE_BITS 46

static const char CLASSES[] = "SWAB";

/* Parses an option or the class; returns false for any other word. */
static bool take_word(struct npb_run *run, const char *word) {
    if (strcmp(word, "--json") == 0) {
        run->json = true;
    } else if (strcmp(word, "--corrupt") == 0) {
        run->corrupt = true;
    } else if (strlen(word) == 1 && strchr(CLASSES, word[0]) != NULL && run->class_name == '\0') {
        run->class_name = word[0];
    } else {
        return false;
    }
    return true;
}

void npb_begin(struct npb_run *run, const char *name, int argc, char **argv) {
    char sentence[200];
    *run = (struct npb_run){ .name = name };
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &run->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &run->size);
    for (int i = 1; i < argc; i++) {
        if (!take_word(run, argv[i])) {
            snprintf(sentence, sizeof sentence,
                     "'%.60s' is not understood: write a class, which is S, W, A or B, and then "
                     "--json or --corrupt if wanted", argv[i]);
            npb_refuse(run, sentence);
        }
    }
    if (run->class_name == '\0')
        npb_refuse(run, "the class is missing: write S, W, A or B");
}

int npb_class_index(const struct npb_run *run) {
    return (int)(strchr(CLASSES, run->class_name) - CLASSES);
}

void npb_refuse(const struct npb_run *run, const char *sentence) {
    if (run->rank == 0)
        fprintf(stderr, "%s: %s\n", run->name, sentence);
    MPI_Finalize();
    exit(2);
}

void npb_want_power_of_two(const struct npb_run *run) {
    char sentence[120];
    if ((run->size & (run->size - 1)) == 0)
        return;
    snprintf(sentence, sizeof sentence,
             "%d processes do not fit: their number has to be a power of two, such as 1, 2, 4 or 8",
             run->size);
    npb_refuse(run, sentence);
}

void *npb_alloc(size_t count, size_t len) {
    /* Allocate at least one item, because NULL for no items would count as a failure. */
    void *memory = calloc(count > 0 ? count : 1, len);
    if (memory == NULL) {
        fprintf(stderr, "there is no memory for %zu items of %zu bytes: take a smaller class, or more "
                "hosts\n", count, len);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return memory;
}

int64_t npb_share(int64_t total, int64_t index, int64_t count) {
    return total * index / count;
}

/* Returns a product. It is computed modulo 2^64, which the modulus divides. */
static uint64_t product(uint64_t a, uint64_t b) {
    return (a * b) & ((UINT64_C(1) << NPB_STATE_BITS) - 1);
}

double npb_random(uint64_t *state) {
    *state = product(*state, NPB_MULTIPLIER);
    return ldexp((double)*state, -NPB_STATE_BITS);
}

uint64_t npb_jump(uint64_t state, uint64_t steps) {
    uint64_t power = NPB_MULTIPLIER;
    for (; steps > 0; steps >>= 1) {
        if (steps & 1)
            state = product(state, power);
        power = product(power, power);
    }
    return state;
}

void npb_start(struct npb_run *run) {
    MPI_Barrier(MPI_COMM_WORLD);
    run->seconds = -MPI_Wtime();
}

void npb_stop(struct npb_run *run) {
    double own = run->seconds + MPI_Wtime();
    MPI_Allreduce(&own, &run->seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

void npb_check(struct npb_run *run, const char *name, double value, double expected, double tolerance) {
    if (run->check_count == NPB_CHECKS_MAX) {
        fprintf(stderr, "%s: more than %d checks: raise NPB_CHECKS_MAX\n", run->name, NPB_CHECKS_MAX);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    run->checks[run->check_count++] = (struct npb_check){
        .name = name,
        .value = value,
        .expected = expected,
        .passed = fabs(value - expected) <= tolerance, /* false for NaN */
    };
}

void npb_check_relative(struct npb_run *run, const char *name, double value, double expected,
                        double tolerance) {
    npb_check(run, name, value, expected, tolerance * fabs(expected));
}

/* Prints a number. A double has at most seventeen digits; JSON has no NaN or infinity. */
static void print_number(double value) {
    if (isfinite(value))
        printf("%.17g", value);
    else
        printf("null");
}

static double rate(const struct npb_run *run) {
    return run->seconds > 0 ? run->operations / run->seconds / 1e6 : 0;
}

static void print_json(const struct npb_run *run, bool passed) {
    printf("{\"name\":\"%s\",\"class\":\"%c\",\"processes\":%d,\"seconds\":%.6f,\"mops\":%.3f,"
           "\"verification\":\"%s\",\"checks\":[", run->name, run->class_name, run->size, run->seconds,
           rate(run), passed ? "passed" : "failed");
    for (int i = 0; i < run->check_count; i++) {
        const struct npb_check *check = &run->checks[i];
        printf("%s{\"name\":\"%s\",\"value\":", i > 0 ? "," : "", check->name);
        print_number(check->value);
        printf(",\"expected\":");
        print_number(check->expected);
        printf(",\"passed\":%s}", check->passed ? "true" : "false");
    }
    printf("]}\n");
}

static void print_line(const struct npb_run *run, bool passed) {
    for (int i = 0; i < run->check_count; i++) {
        const struct npb_check *check = &run->checks[i];
        printf("%s: %.14g, expected %.14g: %s\n", check->name, check->value, check->expected,
               check->passed ? "passed" : "FAILED");
    }
    printf("npb name=%s class=%c processes=%d seconds=%.6f mops=%.3f verification=%s\n", run->name,
           run->class_name, run->size, run->seconds, rate(run), passed ? "passed" : "failed");
}

int npb_end(struct npb_run *run) {
    int passed = run->check_count > 0;
    for (int i = 0; i < run->check_count; i++)
        passed = passed && run->checks[i].passed;
    MPI_Bcast(&passed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (run->rank == 0) {
        if (run->json)
            print_json(run, passed);
        else
            print_line(run, passed);
        fflush(stdout);
    }
    MPI_Finalize();
    return passed ? 0 : 1;
}
