/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Passes a token around, to which each node adds its number.
 * Usage: portolan run -n 4 -- bip_ring [LAPS [BYTES]]
 * The BIP version of examples/cookbook/ring.c.
 *
 * With BYTES, messages of that length, rounded up to words, are passed between two nodes, and half
 * the time of a lap is printed, as by examples/c/pingpong.c. */

#include <bip.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TAG = 1, LAPS = 3, WARM_UP = 20 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* Runs one lap of `len` words; node 0 begins and ends it. */
static void lap(int *words, int len, int begins) {
    int next = (bip_mynode + 1) % bip_numnodes;
    if (begins) bip_tsend(next, TAG, words, len);
    bip_trecv(TAG, words, len);
    if (begins) return;
    if (len) words[0] += bip_mynode;
    bip_tsend(next, TAG, words, len);
}

int main(int argc, char **argv) {
    long laps = argc > 1 ? strtol(argv[1], NULL, 10) : LAPS;
    long bytes = argc > 2 ? strtol(argv[2], NULL, 10) : -1;
    bip_init();
    if (bip_numnodes < 2 || bytes > 1 << 28) {
        fputs("bip_ring: at least two nodes, and BYTES up to 256 MiB\n", stderr);
        return 2;
    }
    int len = bytes < 0 ? 1 : (int)((bytes + 3) / 4), begins = bip_mynode == 0;
    int *words = calloc((size_t)len + 1, sizeof *words);
    if (!words) return fputs("bip_ring: no memory\n", stderr), 2;
    double begin = 0;
    for (long i = bytes < 0 ? 0 : -WARM_UP; i < laps; i++) {
        if (i == 0) begin = now();
        lap(words, len, begins);
    }
    if (begins && bytes >= 0)
        printf("%ld bytes: %.3f µs\n", bytes, (now() - begin) / (double)laps / 2);
    else if (begins)
        printf("%ld laps through %d nodes: %d\n", laps, bip_numnodes, words[0]);
    free(words);
    return 0;
}
