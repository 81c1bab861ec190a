/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Measures the bandwidth from rank 0 to rank 1 with four messages in flight, like stream.py:
 * portolan run -n 2 -- stream [BYTES [COUNT]] */

#include "example.h"

#include <time.h>

enum { PORT = 7, IN_FLIGHT = 4 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static portolan_request_t begin(portolan_node_t *node, int rank, char *buffer, size_t len) {
    portolan_request_t request;
    if (rank == 0)
        MUST(portolan_isend(node, 1, PORT, buffer, len, 0, &request));
    else
        MUST(portolan_post_recv(node, PORT, 0, buffer, len, &request));
    return request;
}

/* Transfers `count` messages. */
static void play(portolan_node_t *node, int rank, char *buffers[], size_t len, long count) {
    portolan_request_t requests[IN_FLIGHT];
    for (int i = 0; i < IN_FLIGHT; i++) requests[i] = begin(node, rank, buffers[i], len);
    for (long i = IN_FLIGHT; i < count; i++) {
        int slot = (int)(i % IN_FLIGHT);
        MUST(portolan_wait(node, requests[slot], NULL));
        requests[slot] = begin(node, rank, buffers[slot], len);
    }
    MUST(portolan_wait_all(node, requests, IN_FLIGHT));
}

int main(int argc, char **argv) {
    size_t len = argc > 1 ? strtoul(argv[1], NULL, 10) : 1 << 20;
    long count = argc > 2 ? strtol(argv[2], NULL, 10) : 10000;
    portolan_node_t *node;
    char *buffers[IN_FLIGHT];
    double begin_at;
    int rank;

    MUST(portolan_join(&node));
    rank = (int)portolan_rank(node);
    MUST(portolan_open(node, PORT));
    for (int i = 0; i < IN_FLIGHT; i++) buffers[i] = allocate(len, 1);
    MUST(portolan_barrier(node, NULL));
    play(node, rank, buffers, len, 100);
    MUST(portolan_barrier(node, NULL));
    begin_at = now();
    play(node, rank, buffers, len, count);
    if (rank == 1) printf("%zu bytes: %.0f MB/s\n", len, 1e-6 * (double)len * (double)count / (now() - begin_at));
    MUST(portolan_barrier(node, NULL));
    return MUST(portolan_close(node));
}
