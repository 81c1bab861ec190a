/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Node 1 sends requests, node 2 replies. "order": the callback of a send runs before its reply is
 * received. "free": memory is freed while its send is in flight, and arrives intact. */

#include "check.h"

enum { PORT = 2, SECOND = 4, LEN_MAX = 70000, SIZE_LARGE = 17 };

static struct gm_port *port, *second;

/* Sends one request of `len` bytes at `port`, and receives its reply at `at` with `priority`. */
static void request(struct gm_port *at, unsigned priority, size_t len, unsigned number) {
    static char sent[LEN_MAX], reply[1 << SIZE_LARGE];
    int status = UNKNOWN;
    fill(sent, len, me, number);
    gm_provide_receive_buffer_with_tag(at, reply, SIZE_LARGE, priority, 0);
    gm_send_to_peer_with_callback(port, sent, SIZE_LARGE, len, GM_LOW_PRIORITY, other, on_sent, &status);
    for (;;) {
        /* SENT is an event of the sending port. It must be queued before the reply. */
        gm_recv_event_t *event = gm_receive(at);
        if (!is_message(event)) {
            gm_unknown(at, event);
            continue;
        }
        CHECK(gm_ntoh_u32(event->recv.length) == len);
        CHECK(is_filled(bytes_of(event), len, other, number));
        if (at != port) gm_unknown(port, gm_receive(port));
        CHECK(status == GM_SUCCESS);
        return;
    }
}

static void reply(struct gm_port *at, unsigned priority, size_t len, unsigned number) {
    static char received[1 << SIZE_LARGE], out[LEN_MAX];
    int status = UNKNOWN;
    gm_provide_receive_buffer_with_tag(port, received, SIZE_LARGE, GM_LOW_PRIORITY, 0);
    gm_recv_event_t *event = next_message(port);
    CHECK(is_filled(bytes_of(event), len, other, number));
    fill(out, len, me, number);
    gm_send_to_peer_with_callback(at, out, SIZE_LARGE, len, priority, other, on_sent, &status);
    CHECK(status_of(at, &status) == GM_SUCCESS);
}

static void order(void) {
    enum { ROUNDS = 60 };
    static const size_t lens[] = {0, 64, 128, 4000, 5000, LEN_MAX};
    for (unsigned round = 0; round < ROUNDS * 6; round++) {
        size_t len = lens[round % 6];
        struct gm_port *at = round / 6 % 2 ? second : port;
        unsigned priority = round / 12 % 2;
        if (me == 1)
            request(at, priority, len, round);
        else
            reply(at, priority, len, round);
    }
}

/* Long enough that the C library maps the memory separately, so that it is unmapped when it is
 * freed. */
static void free_early(void) {
    enum { LEN = 300000, SIZE = 19, ROUNDS = 20 };
    static char in[1 << SIZE];
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (me == 1) {
            int status = UNKNOWN;
            char *out = gm_dma_malloc(port, LEN);
            fill(out, LEN, me, round);
            gm_send_to_peer_with_callback(port, out, SIZE, LEN, GM_LOW_PRIORITY, other, on_sent, &status);
            gm_dma_free(port, out);
            /* The allocation would get the same place if that were free. */
            char *next = gm_dma_malloc(port, LEN);
            memset(next, 0x5a, LEN);
            barrier();
            CHECK(status_of(port, &status) == GM_SUCCESS);
            gm_dma_free(port, next);
        } else {
            barrier();
            gm_provide_receive_buffer_with_tag(port, in, SIZE, GM_LOW_PRIORITY, 0);
            gm_recv_event_t *event = next_message(port);
            CHECK(gm_ntoh_u32(event->recv.length) == LEN && is_filled(in, LEN, other, round));
        }
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    begin();
    OK(gm_open(&port, 0, PORT, "replies", GM_API_VERSION));
    OK(gm_open(&second, 0, SECOND, "second", GM_API_VERSION));
    barrier();
    if (!strcmp(argv[1], "order"))
        order();
    else
        free_early();
    barrier();
    gm_close(second);
    gm_close(port);
    end();
    printf("node %u is done\n", me);
    return 0;
}
