/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Messages of GM between two nodes: sizes, priorities, tags, tokens, order, waiting for buffers,
 * datagrams, remote memory, events. With "plus" both options of GM+ are set. */

#include "check.h"

enum { PORT = 2, SECOND = 4, ROUNDS = 400, BURST = 50 };
enum { LEN_MAX = 300000, SIZE_MAX_USED = 19 };

static struct gm_port *port, *second;
static char *out[2], *in[2];

static void provide(struct gm_port *at, void *buffer, unsigned size, unsigned priority, unsigned tag) {
    gm_provide_receive_buffer_with_tag(at, buffer, size, priority, tag);
}

/* Sends one message of each size in each direction, to the same port and to another one. */
static void sizes(void) {
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned size = 3 + round % (SIZE_MAX_USED - 2), priority = round / 3 % 2, tag = round % 256;
        size_t most = gm_max_length_for_size(size), len = most - (most ? round % (most > 9 ? 9 : most) : 0);
        if (len > LEN_MAX) len = LEN_MAX;
        int to_second = round % 5 == 0, status = UNKNOWN;
        struct gm_port *at = to_second ? second : port;
        fill(out[0], len, me, round);
        memset(in[0], 0x5a, len + 1);
        provide(at, in[0], size, priority, tag);
        if (to_second)
            gm_send_with_callback(port, out[0], size, len, priority, other, SECOND, on_sent, &status);
        else
            gm_send_to_peer_with_callback(port, out[0], size, len, priority, other, on_sent, &status);
        gm_recv_event_t *event = next_message(at);
        int base = len > 0 && len <= 128 ? GM_FAST_RECV_EVENT : GM_RECV_EVENT;
        CHECK(GM_RECV_EVENT_TYPE(event) == base + (int)priority + (to_second ? 0 : 2));
        CHECK(gm_ntohp(event->recv.buffer) == in[0] && gm_ntoh_u32(event->recv.length) == len);
        CHECK(gm_ntoh_u8(event->recv.tag) == tag && gm_ntoh_u8(event->recv.size) == size);
        CHECK(gm_ntoh_u16(event->recv.sender_node_id) == other);
        CHECK(gm_ntoh_u8(event->recv.sender_port_id) == PORT);
        CHECK(is_filled(bytes_of(event), len, other, round));
        if (is_fast(event)) {
            /* The buffer is returned unchanged, unless the message is memorized in it. */
            CHECK(in[0][0] == 0x5a);
            if (round % 2) {
                CHECK(gm_memorize_message(bytes_of(event), in[0], (unsigned)len) == in[0]);
            } else {
                gm_unknown(at, event);
                event = gm_receive(at);
                CHECK(is_message(event) && !is_fast(event) && bytes_of(event) == in[0] && gm_ntoh_u32(event->recv.length) == len);
            }
            CHECK(is_filled(in[0], len, other, round));
        }
        CHECK(in[0][len] == 0x5a);
        CHECK(status_of(port, &status) == GM_SUCCESS);
    }
}

/* Sends as many messages as there are tokens, repeatedly; all arrive in order. */
static void tokens_and_order(void) {
    enum { COUNT = 64, LAPS = 40 };
    static char words[2 * COUNT][64];
    static int statuses[COUNT];
    CHECK(gm_num_send_tokens(port) == COUNT && gm_num_receive_tokens(port) == 256);
    for (int i = 0; i < 2 * COUNT; i++) provide(port, words[i], 6, GM_LOW_PRIORITY, 0);
    barrier();
    unsigned expected = 0;
    for (unsigned lap = 0; lap < LAPS; lap++) {
        static unsigned numbers[COUNT][8];
        for (unsigned i = 0; i < COUNT; i++) {
            numbers[i][0] = lap * COUNT + i;
            statuses[i] = UNKNOWN;
            gm_send_to_peer_with_callback(port, numbers[i], 6, 4 + i % 29, GM_LOW_PRIORITY, other, on_sent,
                                          &statuses[i]);
        }
        for (unsigned i = 0; i < COUNT; i++) {
            gm_recv_event_t *event = next_message(port);
            unsigned number;
            memcpy(&number, bytes_of(event), sizeof number);
            CHECK(number == expected++);
            provide(port, gm_ntohp(event->recv.buffer), 6, GM_LOW_PRIORITY, 0);
        }
        for (int i = 0; i < COUNT; i++) CHECK(status_of(port, &statuses[i]) == GM_SUCCESS);
    }
    /* The bank has the tokens that the program has put in, and no more. */
    CHECK(gm_alloc_send_token(port, GM_HIGH_PRIORITY) == 0);
    CHECK(gm_send_token_available(port, GM_HIGH_PRIORITY) == 0);
    gm_free_send_token(port, GM_HIGH_PRIORITY);
    gm_free_send_tokens(port, GM_HIGH_PRIORITY, COUNT);
    CHECK(gm_send_token_available(port, GM_HIGH_PRIORITY) == 1);
    CHECK(gm_send_token_available(port, GM_LOW_PRIORITY) == 0);
    for (int i = 0; i < COUNT + 1; i++) CHECK(gm_alloc_send_token(port, GM_HIGH_PRIORITY) == 1);
    CHECK(gm_alloc_send_token(port, GM_HIGH_PRIORITY) == 0);
    barrier();
}

/* Many long messages at a time between short ones: each must have its own bytes. */
static void bursts(void) {
    enum { AHEAD = 6, LAPS = 15, LEN = 50000 };
    static char in_long[AHEAD][1 << 16], in_short[AHEAD][64], out_long[AHEAD][LEN], out_short[AHEAD][16];
    for (unsigned i = 0; i < AHEAD; i++) {
        provide(port, in_long[i], 16, GM_LOW_PRIORITY, i);
        provide(port, in_short[i], 6, GM_LOW_PRIORITY, i);
    }
    barrier();
    for (unsigned lap = 0; lap < LAPS; lap++) {
        int statuses[2 * AHEAD];
        for (unsigned i = 0; i < 2 * AHEAD; i++) {
            int is_long = i % 2;
            char *bytes = is_long ? out_long[i / 2] : out_short[i / 2];
            size_t len = is_long ? LEN : 16;
            fill(bytes, len, me, 100 * lap + i);
            statuses[i] = UNKNOWN;
            gm_send_to_peer_with_callback(port, bytes, is_long ? 16 : 6, len, GM_LOW_PRIORITY, other, on_sent,
                                          &statuses[i]);
        }
        for (unsigned i = 0; i < 2 * AHEAD; i++) {
            gm_recv_event_t *event = next_message(port);
            CHECK(gm_ntoh_u32(event->recv.length) == (i % 2 ? LEN : 16));
            CHECK(is_filled(bytes_of(event), gm_ntoh_u32(event->recv.length), other, 100 * lap + i));
            memset(gm_ntohp(event->recv.buffer), 0, i % 2 ? LEN : 16);
            provide(port, gm_ntohp(event->recv.buffer), gm_ntoh_u8(event->recv.size), GM_LOW_PRIORITY, 0);
        }
        for (unsigned i = 0; i < 2 * AHEAD; i++) CHECK(status_of(port, &statuses[i]) == GM_SUCCESS);
    }
    barrier();
}

/* A message waits for its buffer and delays those behind it, but not those of the other priority. */
static void what_waits(void) {
    static char low[2][5000], high[64];
    int first = UNKNOWN, after = UNKNOWN, urgent = UNKNOWN;
    fill(out[0], 5000, me, 1);
    fill(out[1], 5000, me, 2);
    provide(second, low[1], 14, GM_LOW_PRIORITY, 2);
    provide(second, high, 5, GM_HIGH_PRIORITY, 3);
    barrier();
    gm_send_to_peer_with_callback(second, out[0], 13, 5000, GM_LOW_PRIORITY, other, on_sent, &first);
    gm_send_to_peer_with_callback(second, out[1], 14, 5000, GM_LOW_PRIORITY, other, on_sent, &after);
    gm_send_to_peer_with_callback(second, out[1], 5, 24, GM_HIGH_PRIORITY, other, on_sent, &urgent);
    gm_recv_event_t *event = next_message(second);
    CHECK(gm_ntoh_u8(event->recv.tag) == 3 && is_filled(bytes_of(event), 24, other, 2));
    CHECK(status_of(second, &urgent) == GM_SUCCESS);
    barrier();
    CHECK(first == UNKNOWN && after == UNKNOWN && gm_receive_pending(second) == 0);
    barrier();
    provide(second, low[0], 13, GM_LOW_PRIORITY, 1);
    unsigned short from = 9;
    while (gm_next_event_peek(second, &from) != GM_PEER_RECV_EVENT)
        if (gm_next_event_peek(second, NULL)) gm_unknown(second, gm_receive(second));
    CHECK(from == other && gm_receive_pending(second) == 1);
    event = next_message(second);
    CHECK(gm_ntoh_u8(event->recv.tag) == 1 && is_filled(low[0], 5000, other, 1));
    event = next_message(second);
    CHECK(gm_ntoh_u8(event->recv.tag) == 2 && is_filled(low[1], 5000, other, 2));
    CHECK(status_of(second, &first) == GM_SUCCESS && status_of(second, &after) == GM_SUCCESS);
    barrier();
}

/* Datagrams may be lost, but must be intact. */
static void datagrams(void) {
    static char buffer[128];
    int status = UNKNOWN;
    provide(port, buffer, 7, GM_LOW_PRIORITY, 9);
    barrier();
    for (int i = 0; i < BURST; i++) {
        status = UNKNOWN;
        fill(out[0], 100, me, 5);
        gm_datagram_send(port, out[0], 7, 100, GM_LOW_PRIORITY, other, PORT, on_sent, &status);
        CHECK(status_of(port, &status) == GM_SUCCESS);
    }
    barrier();
    /* One datagram has taken the buffer, or all were lost, which a network may do. */
    for (int i = 0; i < 10; i++) put_aside(port, gm_receive(port));
    if (stashes[PORT].first != stashes[PORT].last) {
        gm_recv_event_t *event = next_message(port);
        CHECK(gm_ntoh_u8(event->recv.tag) == 9 && is_filled(bytes_of(event), 100, other, 5));
    }
    CHECK(stashes[PORT].first == stashes[PORT].last);
    status = UNKNOWN;
    gm_datagram_send(port, out[0], 13, gm_mtu(port) + 1, GM_LOW_PRIORITY, other, PORT, on_sent, &status);
    CHECK(status_of(port, &status) == GM_INVALID_PARAMETER);
}

/* Writes to and reads from the other process's memory, without an event there. */
static void memory_of_others(void) {
    static char theirs[8];
    char *shared = gm_dma_malloc(port, LEN_MAX), *got = malloc(LEN_MAX);
    CHECK(shared && got && ((size_t)shared & 4095) == 0);
    void *mine = shared;
    int status = UNKNOWN;
    OK(gm_allow_remote_memory_access(port));
    provide(port, theirs, 4, GM_HIGH_PRIORITY, 0);
    gm_send_to_peer_with_callback(port, &mine, 4, 8, GM_HIGH_PRIORITY, other, on_sent, NULL);
    gm_recv_event_t *event = next_message(port);
    void *there;
    memcpy(&there, bytes_of(event), sizeof there);
    gm_remote_ptr_t far = (gm_remote_ptr_t)(size_t)there;
    static const unsigned lens[] = {0, 1, 100, 4096, 4097, 60000, LEN_MAX};
    for (unsigned i = 0; i < 7; i++) {
        unsigned len = lens[i];
        fill(out[0], len, me, i);
        status = UNKNOWN;
        if (i % 2) gm_put(port, out[0], far, len, GM_LOW_PRIORITY, other, PORT, on_sent, &status);
        else gm_directed_send_with_callback(port, out[0], far, len, GM_LOW_PRIORITY, other, PORT, on_sent, &status);
        CHECK(status_of(port, &status) == GM_SUCCESS);
        barrier();
        CHECK(is_filled(shared, len, other, i));
        barrier();
        fill(shared, len, me, i + 50);
        barrier();
        memset(got, 0, LEN_MAX);
        status = UNKNOWN;
        gm_get(port, far, got, len, GM_HIGH_PRIORITY, other, PORT, on_sent, &status);
        CHECK(status_of(port, &status) == GM_SUCCESS && is_filled(got, len, other, i + 50));
        barrier();
    }
    gm_dma_free(port, shared);
    char *zeros = gm_dma_calloc(port, 10, 100);
    for (int i = 0; i < 1000; i++) CHECK(zeros[i] == 0);
    gm_dma_free(port, zeros);
    free(got);
}

int main(int argc, char **argv) {
    begin();
    OK(gm_open(&port, 0, PORT, "first", GM_API_VERSION_1_1));
    OK(gm_open(&second, 0, SECOND, "second", GM_API_VERSION_2_0));
    if (argc > 1 && strcmp(argv[1], "plus") == 0)
        for (int i = 0; i < 2; i++)
            OK(gm_set_port_options(i ? port : second, GM_PLUS_INLINE | GM_PLUS_UNACKNOWLEDGED));
    for (int i = 0; i < 2; i++) {
        out[i] = malloc(LEN_MAX + 1);
        in[i] = malloc((1 << SIZE_MAX_USED) + 1);
        CHECK(out[i] && in[i]);
    }
    sizes();
    barrier();
    if (argc == 1) {
        tokens_and_order();
        bursts();
        what_waits();
        datagrams();
        /* A reopened port has its tokens and no buffers. */
        barrier();
        gm_close(port);
        OK(gm_open(&port, 0, PORT, "again", GM_API_VERSION));
        barrier();
        memory_of_others();
    }
    barrier();
    gm_close(port);
    gm_close(second);
    end();
    for (int i = 0; i < 2; i++) free(out[i]), free(in[i]);
    printf("node %u is done\n", me);
    return 0;
}
