/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sends that fail in each possible way. They stop only their own connection, and the sends waiting
 * behind them are resumed or dropped as the program requests. Node 1 sends, node 2 receives. */

#include "check.h"

enum { PORT = 2, SECOND = 4, NEVER = 5, CLOSED = 6, SIZE = 6 };

static struct gm_port *port, *second;
static char buffers[8][64];

static void send_to(unsigned to, unsigned size, unsigned priority, int *status) {
    static char word[64] = "ahoy";
    *status = UNKNOWN;
    gm_send_with_callback(port, word, size, 5, priority, other, to, on_sent, status);
}

/* Node 1 makes a send fail. The two sends behind it wait; those of other connections do not. */
static void fails_alone(unsigned to, unsigned size, gm_status_t why) {
    int failed, behind[2], high, elsewhere, resumed = UNKNOWN;
    /* Provided before anything is sent, because the time limit is only half a second. */
    if (me == 2 && to == PORT) {
        gm_provide_receive_buffer_with_tag(port, buffers[0], SIZE, GM_HIGH_PRIORITY, 1);
        gm_provide_receive_buffer_with_tag(port, buffers[1], SIZE, GM_LOW_PRIORITY, 2);
        gm_provide_receive_buffer_with_tag(port, buffers[2], SIZE, GM_LOW_PRIORITY, 3);
    }
    if (me == 2) gm_provide_receive_buffer_with_tag(second, buffers[3], SIZE, GM_LOW_PRIORITY, 4);
    barrier();
    if (me == 1) {
        send_to(to, size, GM_LOW_PRIORITY, &failed);
        send_to(to, SIZE, GM_LOW_PRIORITY, &behind[0]);
        send_to(to, SIZE, GM_LOW_PRIORITY, &behind[1]);
        CHECK(status_of(port, &failed) == why);
        if (to == PORT) {
            send_to(to, SIZE, GM_HIGH_PRIORITY, &high);
            CHECK(status_of(port, &high) == GM_SUCCESS);
        }
        send_to(SECOND, SIZE, GM_LOW_PRIORITY, &elsewhere);
        CHECK(status_of(port, &elsewhere) == GM_SUCCESS);
        CHECK(behind[0] == UNKNOWN && behind[1] == UNKNOWN);
        barrier();
        if (to == PORT) {
            gm_resume_sending(port, GM_LOW_PRIORITY, other, to, on_sent, &resumed);
            CHECK(status_of(port, &behind[0]) == GM_SUCCESS && status_of(port, &behind[1]) == GM_SUCCESS);
        } else {
            gm_drop_sends(port, GM_LOW_PRIORITY, other, to, on_sent, &resumed);
            CHECK(status_of(port, &behind[0]) == GM_SEND_DROPPED);
            CHECK(status_of(port, &behind[1]) == GM_SEND_DROPPED);
        }
        CHECK(status_of(port, &resumed) == GM_SUCCESS);
        barrier();
        return;
    }
    if (to == PORT) CHECK(gm_ntoh_u8(next_message(port)->recv.tag) == 1);
    CHECK(gm_ntoh_u8(next_message(second)->recv.tag) == 4);
    CHECK(gm_receive_pending(port) == 0);
    barrier();
    if (to == PORT)
        for (unsigned tag = 2; tag < 4; tag++) CHECK(gm_ntoh_u8(next_message(port)->recv.tag) == tag);
    barrier();
}

/* Sends with separately sent bytes are dropped like all others, and their memory is not used any
 * more. */
static void long_ones(void) {
    enum { LEN = 200000 };
    char *bytes = malloc(LEN);
    int failed = UNKNOWN, behind = UNKNOWN, dropped = UNKNOWN;
    CHECK(bytes);
    memset(bytes, 'x', LEN);
    if (me == 1) {
        gm_send_with_callback(port, bytes, 18, LEN, GM_HIGH_PRIORITY, other, CLOSED, on_sent, &failed);
        gm_send_with_callback(port, bytes, 18, LEN, GM_HIGH_PRIORITY, other, CLOSED, on_sent, &behind);
        CHECK(status_of(port, &failed) == GM_SEND_TARGET_PORT_CLOSED && behind == UNKNOWN);
        gm_drop_sends(port, GM_HIGH_PRIORITY, other, CLOSED, on_sent, &dropped);
        CHECK(status_of(port, &behind) == GM_SEND_DROPPED && status_of(port, &dropped) == GM_SUCCESS);
        memset(bytes, 'y', LEN);
    }
    barrier();
    free(bytes);
}

/* Memory is inaccessible to other processes unless its owner has registered it and allows access. */
static void memory(void) {
    static char word[64];
    int status = UNKNOWN;
    if (me == 2) OK(gm_register_memory(port, word, sizeof word));
    gm_remote_ptr_t at = (gm_remote_ptr_t)(size_t)word; /* not there: the other's own */
    barrier();
    if (me == 1) {
        gm_put(port, word, at, 4, GM_LOW_PRIORITY, other, SECOND, on_sent, &status);
        CHECK(status_of(port, &status) == GM_PERMISSION_DENIED);
        gm_resume_sending(port, GM_LOW_PRIORITY, other, SECOND, NULL, NULL);
    }
    barrier();
    if (me == 2) OK(gm_allow_remote_memory_access(second));
    barrier();
    if (me == 1) {
        status = UNKNOWN;
        gm_get(port, 64, word, 4, GM_LOW_PRIORITY, other, SECOND, on_sent, &status);
        CHECK(status_of(port, &status) == GM_MEMORY_FAULT);
        gm_resume_sending(port, GM_LOW_PRIORITY, other, SECOND, NULL, NULL);
    }
    barrier();
    if (me == 2) OK(gm_deregister_memory(port, word, sizeof word));
    FAILS(GM_INVALID_PARAMETER, "not registered", gm_deregister_memory(port, word, sizeof word));
}

/* Invalid calls fail at once and stop no connection. */
static void refused(void) {
    static char word[64];
    int status;
#define ENDS(expected, ...)                                                                        \
    do {                                                                                           \
        status = UNKNOWN;                                                                          \
        __VA_ARGS__;                                                                               \
        CHECK(status_of(port, &status) == (expected));                                             \
    } while (0)
    ENDS(GM_SEND_TARGET_NODE_UNREACHABLE, gm_send_with_callback(port, word, 6, 5, 0, 3, PORT, on_sent, &status));
    ENDS(GM_SEND_TARGET_NODE_UNREACHABLE, gm_send_with_callback(port, word, 6, 5, 0, 0, PORT, on_sent, &status));
    ENDS(GM_INVALID_PORT_NUMBER, gm_send_with_callback(port, word, 6, 5, 0, other, 8, on_sent, &status));
    ENDS(GM_INVALID_PARAMETER, gm_send_with_callback(port, word, 6, 57, 0, other, PORT, on_sent, &status));
    ENDS(GM_INVALID_PARAMETER, gm_send_with_callback(port, word, 32, 5, 0, other, PORT, on_sent, &status));
    ENDS(GM_INVALID_PARAMETER, gm_send_with_callback(port, word, 6, 5, 2, other, PORT, on_sent, &status));
    ENDS(GM_INVALID_PARAMETER, gm_send_with_callback(port, NULL, 6, 5, 0, other, PORT, on_sent, &status));
    ENDS(GM_INVALID_PARAMETER, gm_put(port, word, 0, 1UL << 31, 0, other, PORT, on_sent, &status));
#undef ENDS
}

int main(void) {
    begin();
    OK(gm_open(&port, 0, PORT, "first", GM_API_VERSION));
    OK(gm_open(&second, 0, SECOND, "second", GM_API_VERSION));
    if (me == 2) {
        struct gm_port *closed;
        OK(gm_open(&closed, 0, CLOSED, "closed", GM_API_VERSION));
        gm_close(closed);
        OK(gm_set_acceptable_sizes(port, GM_LOW_PRIORITY, 1UL << SIZE | 1UL << (SIZE + 1)));
    }
    refused();
    barrier();
    fails_alone(PORT, SIZE + 2, GM_SEND_REJECTED);
    fails_alone(CLOSED, SIZE, GM_SEND_TARGET_PORT_CLOSED);
    fails_alone(PORT, SIZE + 1, GM_SEND_TIMED_OUT);
    fails_alone(NEVER, SIZE, GM_SEND_TARGET_PORT_CLOSED);
    long_ones();
    memory();
    end();
    printf("node %u is done\n", me);
    return 0;
}
