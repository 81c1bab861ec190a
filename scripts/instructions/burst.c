/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sends bursts of 32 messages of 8 bytes from rank 0 to rank 1, which receives each burst after all of
 * it was sent. scripts/instructions.sh counts the instructions of send_burst() and take_burst().
 *
 * usage: burst FILE BURSTS held|ring|isend
  * Rank 0 publishes the number of sent bursts in FILE. It does not use the library for this,
  * because a library call would make turns whose number depends on the scheduler. "held": rank 1
  * first receives a message sent after each burst, so that the burst is in held memory. "ring": the
  * burst stays in the ring, or with the kernel, until it is received. "isend": as "ring", and the
  * messages are sent by portolan_isend_copy(). */
#include <fcntl.h>
#include <portolan.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BURST = 32, DATA = 7, BEHIND = 8 };

static void check(int code, const char *what) {
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", what, portolan_last_error());
        exit(1);
    }
}

static void take(struct portolan_node_t *node, unsigned port) {
    char bytes[8];
    struct portolan_received_t got = {.size = sizeof got};
    check(portolan_recv(node, port, 0, bytes, sizeof bytes, &got), "portolan_recv");
}

__attribute__((noinline)) static void take_burst(struct portolan_node_t *node) {
    for (int i = 0; i < BURST; i++)
        take(node, DATA);
}

static bool is_isend;

static void send(struct portolan_node_t *node, unsigned port) {
    char bytes[8] = "message";
    if (is_isend)
        check(portolan_isend_copy(node, 1, port, bytes, sizeof bytes, 0), "portolan_isend_copy");
    else
        check(portolan_send(node, 1, port, bytes, sizeof bytes, 0), "portolan_send");
}

__attribute__((noinline)) static void send_burst(struct portolan_node_t *node) {
    for (int i = 0; i < BURST; i++)
        send(node, DATA);
    if (is_isend)
        check(portolan_flush(node), "portolan_flush");
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    int bursts = atoi(argv[2]), is_held = strcmp(argv[3], "held") == 0;
    is_isend = strcmp(argv[3], "isend") == 0;
    int file = open(argv[1], O_RDWR);
    atomic_int *sent = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (sent == MAP_FAILED) {
        perror(argv[1]);
        return 1;
    }
    struct portolan_node_t *node;
    check(portolan_join(&node), "portolan_join");
    int rank = portolan_rank(node);
    check(portolan_open(node, DATA), "portolan_open");
    check(portolan_open(node, BEHIND), "portolan_open");
    check(portolan_barrier(node, 0), "portolan_barrier");
    for (int i = 0; i < bursts; i++) {
        if (rank == 0) {
            send_burst(node);
            if (is_held)
                send(node, BEHIND);
            atomic_store(sent, i + 1);
        } else {
            while (atomic_load(sent) <= i)
                usleep(200);
            if (is_held)
                take(node, BEHIND);
            take_burst(node);
        }
        check(portolan_barrier(node, 0), "portolan_barrier");
    }
    check(portolan_close(node), "portolan_close");
    return 0;
}
