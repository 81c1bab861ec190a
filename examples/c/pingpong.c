/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Measures half a round trip between ranks 0 and 1: portolan run -n 2 -- pingpong [BYTES [ROUNDS]]
 * The same loop as core/portolan/examples/pingpong.rs. */

#include "example.h"

#include <time.h>

enum { PORT = 7, WARM_UP = 10000, ROUNDS = 200000 };

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void play(portolan_node_t *node, int rank, size_t len, long rounds) {
    unsigned other = rank == 0 ? 1 : 0;
    char *buffer = allocate(len, 1);
    double begin = 0;
    for (long round = 0; round < WARM_UP + rounds; round++) {
        if (round == WARM_UP) begin = now_us();
        if (rank == 0) MUST(portolan_send(node, other, PORT, buffer, len, 0));
        MUST(portolan_recv(node, PORT, other, buffer, len, NULL));
        if (rank == 1) MUST(portolan_send(node, other, PORT, buffer, len, 0));
    }
    if (rank == 0)
        printf("%zu bytes: %.3f µs\n", len, (now_us() - begin) / (double)(2 * rounds));
    free(buffer);
}

int main(int argc, char **argv) {
    size_t len = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
    long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : ROUNDS;
    if (rounds < 1) die("pingpong: ROUNDS is a number from 1 on");
    portolan_node_t *node;
    MUST(portolan_join(&node));
    int rank = MUST(portolan_rank(node));
    if (portolan_size(node) < 2) die("pingpong needs two processes: portolan run -n 2 -- pingpong");
    MUST(portolan_open(node, PORT));
    MUST(portolan_barrier(node, NULL));
    if (rank < 2) play(node, rank, len, rounds);
    MUST(portolan_barrier(node, NULL));
    MUST(portolan_close(node));
    return 0;
}
