/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared by the examples of distributed shared memory: arguments, shares of the work, allocation. */
#ifndef DSM_H
#define DSM_H

#include <tmk.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Returns argument `index`, or a default, as a number between `low` and `high`. */
static inline size_t argument(int argc, char **argv, int index, size_t otherwise, size_t low,
                              size_t high) {
    if (index >= argc) return otherwise;
    char *end;
    unsigned long long number = strtoull(argv[index], &end, 10);
    if (*argv[index] == '\0' || *end != '\0' || number < low || number > high) {
        fprintf(stderr, "%s: argument %d is \"%s\"; pass a number from %zu to %zu\n", argv[0], index,
                argv[index], low, high);
        exit(2);
    }
    return (size_t)number;
}

/* Returns the first of `count` elements that belong to `process`, or to a later one. */
static inline size_t share(size_t count, unsigned process) {
    return count * process / Tmk_nprocs;
}

static inline double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Allocates private memory of zeros. */
static inline void *private_memory(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) {
        fprintf(stderr, "there is no memory for %zu elements of %zu bytes\n", count, size);
        Tmk_exit(1);
    }
    return memory;
}

/* Allocates shared memory, which is zero before the first use. */
static inline void *shared_memory(size_t count, size_t size) {
    void *memory = Tmk_malloc(count * size);
    if (!memory) {
        fprintf(stderr, "there is no shared memory for %zu elements of %zu bytes; raise TMK_HEAP\n",
                count, size);
        Tmk_exit(1);
    }
    return memory;
}

/* Prints the result of process 0, and ends the program. */
static inline void finish(const char *name, int is_right, double elapsed) {
    if (Tmk_proc_id == 0) {
        printf("%s on %u processes: %s, %.3f s\n", name, Tmk_nprocs, is_right ? "right" : "WRONG",
               elapsed);
        fflush(stdout);
    }
    Tmk_exit(is_right ? 0 : 1);
}

#endif
