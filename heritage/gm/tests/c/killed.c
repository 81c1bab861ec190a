/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Node 2 is killed: earlier and later sends to it fail, and node 1 continues. */

#include "check.h"

#include <signal.h>

enum { LEN = 100000 };

static void die(void *context) {
    (void)context;
    raise(SIGKILL);
}

int main(void) {
    static char bytes[LEN];
    struct gm_port *port;
    int waiting = UNKNOWN, longer = UNKNOWN, got = UNKNOWN, late = UNKNOWN, resumed = UNKNOWN;
    begin();
    OK(gm_open(&port, 0, 2, "port", GM_API_VERSION));
    barrier();
    if (me == 2) {
        gm_alarm_t alarm;
        gm_initialize_alarm(&alarm);
        gm_set_alarm(port, &alarm, 300000, die, NULL);
        for (;;) gm_unknown(port, gm_blocking_receive(port));
    }
    gm_send_to_peer_with_callback(port, bytes, 5, 10, GM_LOW_PRIORITY, other, on_sent, &waiting);
    gm_send_to_peer_with_callback(port, bytes, 17, LEN, GM_LOW_PRIORITY, other, on_sent, &longer);
    gm_get(port, 4096, bytes, LEN, GM_HIGH_PRIORITY, other, 5, on_sent, &got);
    CHECK(status_of(port, &waiting) == GM_SEND_TARGET_NODE_UNREACHABLE);
    CHECK(status_of(port, &longer) == GM_SEND_TARGET_NODE_UNREACHABLE);
    CHECK(status_of(port, &got) == GM_SEND_TARGET_NODE_UNREACHABLE);
    gm_resume_sending(port, GM_LOW_PRIORITY, other, 2, on_sent, &resumed);
    CHECK(status_of(port, &resumed) == GM_SEND_TARGET_NODE_UNREACHABLE);
    gm_send_to_peer_with_callback(port, bytes, 5, 10, GM_LOW_PRIORITY, other, on_sent, &late);
    CHECK(status_of(port, &late) == GM_SEND_TARGET_NODE_UNREACHABLE);
    gm_close(port);
    puts("node 1 was notified");
    return 0;
}
