/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* With GM_PLUS_BEST_EFFORT, small messages may be lost and long ones are not. The argument is "lossy"
 * if the network loses messages. */

#include "check.h"

enum { PORT = 2, COUNT = 3000, SIZE = 6, LONG_SIZE = 12, LONG_LEN = 3000, AHEAD = 200 };

static struct gm_port *port;
static char buffers[AHEAD][64], long_buffer[1 << LONG_SIZE], bytes[LONG_LEN];

static void send_all(void) {
    for (unsigned number = 0; number < COUNT; number++) {
        int status = UNKNOWN;
        memcpy(bytes, &number, sizeof number);
        gm_send_to_peer_with_callback(port, bytes, SIZE, 4 + number % 50, GM_LOW_PRIORITY, other, on_sent, &status);
        CHECK(status_of(port, &status) == GM_SUCCESS);
        /* The receiver has buffers for so many. */
        if (number % (AHEAD / 2) == 0) barrier();
    }
    int status = UNKNOWN;
    gm_send_to_peer_with_callback(port, bytes, LONG_SIZE, LONG_LEN, GM_LOW_PRIORITY, other, on_sent, &status);
    CHECK(status_of(port, &status) == GM_SUCCESS);
}

/* Counts the messages. The long one may overtake the last of them, which are awaited if none can be
 * lost. */
static unsigned receive_all(int is_lossy) {
    unsigned count = 0, barriers = 0;
    for (int has_long = 0; !has_long || (!is_lossy && count < COUNT);) {
        gm_recv_event_t *event = gm_receive(port);
        if (!is_message(event)) {
            gm_unknown(port, event);
            /* The barrier's messages arrive at a port of their own. */
            if (barriers * (AHEAD / 2) < COUNT && gm_receive_pending(barrier_port)) {
                barrier();
                barriers++;
            }
            continue;
        }
        unsigned number, len = gm_ntoh_u32(event->recv.length);
        if (len == LONG_LEN) {
            has_long = 1;
            continue;
        }
        memcpy(&number, bytes_of(event), sizeof number);
        CHECK(number < COUNT && len == 4 + number % 50);
        gm_provide_receive_buffer_with_tag(port, gm_ntohp(event->recv.buffer), SIZE, GM_LOW_PRIORITY, 0);
        count++;
    }
    return count;
}

int main(int argc, char **argv) {
    int is_lossy = argc == 2 && strcmp(argv[1], "lossy") == 0;
    begin();
    OK(gm_open(&port, 0, PORT, "best-effort", GM_API_VERSION));
    OK(gm_set_port_options(port, GM_PLUS_INLINE | GM_PLUS_BEST_EFFORT));
    for (int i = 0; i < AHEAD; i++)
        gm_provide_receive_buffer_with_tag(port, buffers[i], SIZE, GM_LOW_PRIORITY, 0);
    gm_provide_receive_buffer_with_tag(port, long_buffer, LONG_SIZE, GM_LOW_PRIORITY, 0);
    barrier();
    if (me == 1) {
        send_all();
    } else {
        unsigned count = receive_all(is_lossy);
        CHECK(count > 0 && (is_lossy ? count < COUNT : count == COUNT));
    }
    barrier();
    gm_close(port);
    printf("node %u is done\n", me);
    end();
    return 0;
}
