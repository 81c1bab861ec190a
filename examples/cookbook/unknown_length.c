/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Receives messages of unknown length: portolan run -n 2 -- unknown_length */
#include "../c/example.h"

enum { PORT = 1 };

int main(void) {
    portolan_node_t *node;
    portolan_received_t got = PORTOLAN_SIZED(portolan_received_t);
    MUST(portolan_join(&node));
    MUST(portolan_open(node, PORT));
    unsigned rank = (unsigned)MUST(portolan_rank(node)), size = (unsigned)MUST(portolan_size(node));
    if (rank != 0) {
        void *bytes = allocate(rank, 100000);
        MUST(portolan_send(node, 0, PORT, bytes, 100000 * (size_t)rank, 0));
        free(bytes);
    }
    for (unsigned from = 1; rank == 0 && from < size; from++) {
        void *bytes;
        if (from % 2 == 1) { /* new memory, as long as the message */
            MUST(portolan_recv_alloc(node, PORT, from, &bytes, &got));
        } else { /* memory of one's own, after a look at the length */
            MUST(portolan_probe(node, PORT, from, &got));
            bytes = allocate(got.len, 1);
            MUST(portolan_recv(node, PORT, from, bytes, got.len, &got));
        }
        printf("%llu bytes from rank %u\n", (unsigned long long)got.len, from);
        free(bytes);
    }
    MUST(portolan_close(node));
    return 0;
}
