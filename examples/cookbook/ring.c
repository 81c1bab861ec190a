/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Passes a token around, to which each process adds its rank: portolan run -n 4 -- ring [LAPS] */
#include "../c/example.h"

enum { PORT = 1 };

int main(int argc, char **argv) {
    long laps = argc > 1 ? strtol(argv[1], NULL, 10) : 3;
    portolan_node_t *node;
    MUST(portolan_join(&node));
    unsigned rank = (unsigned)MUST(portolan_rank(node));
    unsigned size = (unsigned)MUST(portolan_size(node));
    uint64_t token = 0;
    MUST(portolan_open(node, PORT));
    for (long lap = 0; lap < laps; lap++) {
        if (rank == 0) MUST(portolan_send(node, 1 % size, PORT, &token, sizeof token, 0));
        MUST(portolan_recv(node, PORT, PORTOLAN_ANY_SOURCE, &token, sizeof token, NULL));
        token += rank;
        if (rank != 0) MUST(portolan_send(node, (rank + 1) % size, PORT, &token, sizeof token, 0));
    }
    if (rank == 0)
        printf("%ld laps through %u processes: %llu\n", laps, size, (unsigned long long)token);
    MUST(portolan_close(node));
    return 0;
}
