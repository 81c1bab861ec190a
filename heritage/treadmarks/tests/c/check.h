/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared by the C tests: a check that prints its condition when it fails, and ends the job. */
#ifndef CHECK_H
#define CHECK_H

#include <tmk.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "process %u: %s:%d: %s\n", Tmk_proc_id, __FILE__, __LINE__, #condition); \
            Tmk_exit(1);                                                                            \
        }                                                                                          \
    } while (0)

static inline unsigned random_below(uint64_t *state, unsigned end) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % end;
}

#endif
