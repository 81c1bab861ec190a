/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Measures half round trips and bandwidth of all sizes, like GM's own test of that name:
 *
 *   portolan run -n 2 -- gm_allsize [TRIALS [BYTES]]
 *
 * With BYTES, measures only half a round trip of that length, like examples/c/pingpong.c. Set
 * GM_PLUS=inline,unacknowledged in the environment to measure GM+. */

#include <gm.h>

#include <stdlib.h>
#include <time.h>

enum { PORT = 2, TRIALS = 1000, WARM_UP = 20, LEN_LAST = 1 << 16, LEN_MAX = 1 << 22, AHEAD = 8 };

static struct gm_port *port;
static unsigned me, other;
static int under_way, arrived;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void must(gm_status_t status, const char *what) {
    if (status == GM_SUCCESS) return;
    gm_eprintf("gm_allsize: %s: %s: %s\n", what, gm_strerror(status), gm_last_error());
    gm_abort();
}

static void on_sent(struct gm_port *p, void *context, gm_status_t status) {
    (void)p, (void)context;
    must(status, "a send");
    under_way--;
}

static void send_one(void *bytes, unsigned long len) {
    under_way++;
    gm_send_to_peer_with_callback(port, bytes, gm_min_size_for_length(len), len, GM_LOW_PRIORITY, other, on_sent, NULL);
}

/* Handles one event; the buffer of a received message is provided again. */
static void take_one(void) {
    gm_recv_event_t *event = gm_receive(port);
    switch (GM_RECV_EVENT_TYPE(event)) {
    case GM_PEER_RECV_EVENT:
    case GM_FAST_PEER_RECV_EVENT:
        gm_provide_receive_buffer_with_tag(port, gm_ntohp(event->recv.buffer), gm_ntoh_u8(event->recv.size),
                                           GM_LOW_PRIORITY, 0);
        arrived++;
        break;
    default: gm_unknown(port, event);
    }
}

static void receive_one(void) {
    while (!arrived) take_one();
    arrived--;
}

/* Handles events until at most `left` sends are in flight. */
static void complete(int left) {
    while (under_way > left) take_one();
}

/* Returns half a round trip in microseconds. */
static double latency(void *bytes, unsigned long len, long trials) {
    double begin = 0;
    for (long i = -WARM_UP; i < trials; i++) {
        if (i == 0) begin = now();
        if (me == 1) send_one(bytes, len);
        receive_one();
        if (me != 1) send_one(bytes, len);
        complete(1);
    }
    double end = now();
    complete(0);
    return (end - begin) / 2 / (double)trials;
}

/* Returns one-way megabytes per second, with as many sends in flight as the receiver has buffers. */
static double bandwidth(void *bytes, unsigned long len, long trials) {
    double begin = now();
    for (long i = 0; i < trials; i++) {
        if (me != 1) {
            receive_one();
            continue;
        }
        send_one(bytes, len);
        complete(AHEAD - 1);
    }
    /* The receiver answers the last message. */
    if (me == 1) receive_one();
    else send_one(bytes, len);
    complete(0);
    return (double)len * (double)trials / (now() - begin);
}

int main(int argc, char **argv) {
    long trials = argc > 1 ? strtol(argv[1], NULL, 10) : TRIALS;
    unsigned long only = argc > 2 ? strtoul(argv[2], NULL, 10) : LEN_MAX;
    unsigned nodes = 0;
    must(gm_init(), "gm_init");
    must(gm_open(&port, 0, PORT, "gm_allsize", GM_API_VERSION), "gm_open");
    must(gm_get_node_id(port, &me), "gm_get_node_id");
    must(gm_max_node_id_in_use(port, &nodes), "gm_max_node_id_in_use");
    if (nodes != 2 || trials < 1 || only > LEN_MAX) {
        gm_eprintf("gm_allsize: two nodes, TRIALS from 1 on, BYTES up to 4 MiB\n");
        return 2;
    }
    other = 3 - me;
    unsigned last = gm_min_size_for_length(argc > 2 ? only : LEN_LAST);
    void *buffers[32][AHEAD];
    for (unsigned size = gm_min_message_size(port); size <= last; size++)
        for (int i = 0; i < AHEAD; i++) {
            buffers[size][i] = gm_dma_malloc(port, gm_max_length_for_size(size));
            gm_provide_receive_buffer_with_tag(port, buffers[size][i], size, GM_LOW_PRIORITY, 0);
        }
    char *bytes = gm_dma_calloc(port, 1, LEN_MAX);
    if (argc > 2) {
        double us = latency(bytes, only, trials);
        if (me == 1) gm_printf("%lu bytes: %.3f µs\n", only, us);
    }
    for (unsigned long len = 0; argc <= 2 && len <= LEN_LAST; len = len ? 2 * len : 1) {
        double us = latency(bytes, len, trials), mb = bandwidth(bytes, len, trials);
        if (me == 1) gm_printf("%8lu bytes: %10.3f µs %10.1f MB/s\n", len, us, mb);
    }
    gm_dma_free(port, bytes);
    gm_close(port);
    /* A closed port no longer uses its buffers; open another port to free them. */
    must(gm_open(&port, 0, PORT, "gm_allsize", GM_API_VERSION), "gm_open");
    for (unsigned size = gm_min_message_size(port); size <= last; size++)
        for (int i = 0; i < AHEAD; i++) gm_dma_free(port, buffers[size][i]);
    gm_close(port);
    gm_finalize();
    return 0;
}
