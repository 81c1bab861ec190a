/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared by the C tests: a check that prints its condition when it fails, and ends the job. */
#ifndef CHECK_H
#define CHECK_H

#include <bip.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Word `i` of message `number` from `node`. */
static inline int word_of(int node, int number, int i) {
    return (int)((unsigned)node * 1000003u + (unsigned)number * 7919u + (unsigned)i);
}

static inline void fill(int *words, int len, int node, int number) {
    for (int i = 0; i < len; i++) words[i] = word_of(node, number, i);
}

static inline int is_filled(const int *words, int len, int node, int number) {
    for (int i = 0; i < len; i++)
        if (words[i] != word_of(node, number, i)) return 0;
    return 1;
}

#endif
