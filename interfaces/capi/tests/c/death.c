/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Rank 2 of three is killed. Pending calls of the other ranks end soon with an error that names it,
 * and these ranks can still communicate. The argument selects the call in which they wait. */

#include "check.h"

#include <signal.h>
#include <time.h>

enum { PORT = 1, VICTIM = 2, LARGE = 3 << 20, TAG = 5, SECONDS_MAX = 10 };

static portolan_node_t *node;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int wait_for_victim(const char *how, uint64_t key) {
    static char bytes[LARGE];
    portolan_request_t request;
    portolan_remote_t place = PORTOLAN_SIZED(portolan_remote_t);
    place.rank = VICTIM;
    place.key = key;
    if (strcmp(how, "recv") == 0) return portolan_recv(node, PORT, VICTIM, bytes, 8, NULL);
    if (strcmp(how, "send") == 0) return portolan_send(node, VICTIM, PORT, bytes, LARGE, 0);
    if (strcmp(how, "tagged") == 0)
        return portolan_recv_tagged(node, TAG, 0, VICTIM, bytes, 8, NULL);
    if (strcmp(how, "get") == 0) {
        /* While it is alive, the victim may serve some requests although it makes no call. */
        int code = PORTOLAN_OK;
        while (code == PORTOLAN_OK) code = portolan_get(node, &place, bytes, LARGE);
        return code;
    }
    CHECK(strcmp(how, "wait") == 0);
    OK(portolan_post_recv(node, PORT, VICTIM, bytes, 8, &request));
    return portolan_wait(node, request, NULL);
}

int main(int argc, char **argv) {
    static char shared[LARGE];
    uint64_t key = 0;
    CHECK(argc == 2);
    OK(portolan_join(&node));
    uint32_t rank = (uint32_t)portolan_rank(node), other = 1 - rank;
    OK(portolan_open(node, PORT));
    if (rank == VICTIM) OK(portolan_register(node, shared, LARGE, PORTOLAN_READ_ACCESS, &key));
    OK(portolan_broadcast(node, NULL, VICTIM, &key, sizeof key));
    OK(portolan_barrier(node, NULL));
    if (rank == VICTIM) {
        /* The other ranks are waiting by then. */
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        raise(SIGKILL);
    }
    double begin = now();
    FAILS(PORTOLAN_ERR_PEER_GONE, "rank 2", wait_for_victim(argv[1], key));
    double took = now() - begin;
    printf("%s: after %.0f ms: %s\n", argv[1], took * 1e3, portolan_last_error());
    CHECK(took < SECONDS_MAX);
    FAILS(PORTOLAN_ERR_PEER_GONE, "rank 2", portolan_send(node, VICTIM, PORT, "late", 4, 0));
    OK(portolan_send(node, other, PORT, &rank, sizeof rank, 0));
    OK(portolan_recv(node, PORT, other, &rank, sizeof rank, NULL));
    CHECK(rank == other);
    OK(portolan_close(node));
    puts("rank continues");
    return 0;
}
