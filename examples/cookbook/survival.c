/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Survivors of a death continue in a new group:
 * portolan run -n 4 --on-failure=continue -- survival VICTIM */
#include "../c/example.h"

#include <signal.h>

enum { RANKS_MAX = 64, MS = 1000000 };

static int never(void *user) {
    (void)user;
    return 0;
}

/* Waits for the event of a death. */
static uint32_t dead(portolan_node_t *node) {
    portolan_peer_event_t event = PORTOLAN_SIZED(portolan_peer_event_t);
    while (MUST(portolan_next_peer_event(node, &event)) == 0 || event.kind != PORTOLAN_PEER_LOST) {
        int result = portolan_wait_until_for(node, never, NULL, MS);
        if (result != PORTOLAN_ERR_TIMEOUT) MUST(result);
    }
    return event.rank;
}

int main(int argc, char **argv) {
    int victim = argc > 1 ? atoi(argv[1]) : -1;
    portolan_node_t *node;
    MUST(portolan_join(&node));
    int rank = MUST(portolan_rank(node)), size = MUST(portolan_size(node));
    if (size > RANKS_MAX) die("at most %d processes", RANKS_MAX);
    if (rank == victim) raise(SIGKILL);
    uint64_t sum = (uint64_t)rank;
    if (portolan_allreduce(node, NULL, PORTOLAN_SUM, PORTOLAN_UINT64, &sum, 1) < 0) {
        uint32_t lost = dead(node), survivors[RANKS_MAX];
        size_t count = 0;
        /* The survivors name the same members in the same order. */
        for (uint32_t i = 0; i < (uint32_t)size; i++)
            if (i != lost) survivors[count++] = i;
        portolan_group_t *group;
        MUST(portolan_group_new(node, 1, survivors, count, &group));
        sum = (uint64_t)rank;
        MUST(portolan_allreduce(node, group, PORTOLAN_SUM, PORTOLAN_UINT64, &sum, 1));
        portolan_group_free(group);
    }
    printf("rank %d: sum %llu\n", rank, (unsigned long long)sum);
    MUST(portolan_close(node));
    return 0;
}
