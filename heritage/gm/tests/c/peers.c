/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One process and many others: it exchanges messages of both priorities with each, all in flight at
 * the same time. The memory per peer is measured and limited. */

#include <gm.h>

#define LAST_ERROR() gm_last_error()
#include "expect.h"

#include <malloc.h>

enum { PORT = 2, SIZE = 6, TURNS = 4, BUFFERS = 100 };

static struct gm_port *port;
static unsigned under_way;

static void on_sent(struct gm_port *at, void *context, gm_status_t status) {
    (void)at, (void)context;
    CHECK(status == GM_SUCCESS);
    under_way--;
}

static void send_word(unsigned node, unsigned *word, unsigned priority) {
    under_way++;
    gm_send_to_peer_with_callback(port, word, SIZE, sizeof *word, priority, node, on_sent, NULL);
}

/* Takes the next event. Returns whether it is a message, with its word and sender. */
static int take_word(unsigned *from, unsigned *word) {
    gm_recv_event_t *event = gm_blocking_receive(port);
    int type = GM_RECV_EVENT_TYPE(event);
    if (type < GM_RECV_EVENT || type > GM_FAST_HIGH_PEER_RECV_EVENT) {
        gm_unknown(port, event);
        return 0;
    }
    unsigned priority = gm_ntoh_u8(event->recv.tag);
    CHECK(gm_ntoh_u32(event->recv.length) == sizeof *word);
    memcpy(word, gm_ntohp(event->recv.message), sizeof *word);
    *from = gm_ntoh_u16(event->recv.sender_node_id);
    gm_provide_receive_buffer_with_tag(port, gm_ntohp(event->recv.buffer), SIZE, priority, priority);
    return 1;
}

/* Replies to messages of node 1 with the word and this node's number. */
static void follow(unsigned me) {
    unsigned words[TURNS];
    for (unsigned turn = 0; turn < TURNS; turn++) {
        unsigned from, word;
        while (!take_word(&from, &word)) {}
        CHECK(from == 1 && word == turn);
        words[turn] = word + me;
        send_word(1, &words[turn], turn % 2);
    }
    while (under_way) gm_unknown(port, gm_blocking_receive(port));
}

/* Sends a word to each other node in each round, and receives all replies before the next round. */
static void lead(unsigned nodes) {
    unsigned turn, *heard_in = calloc(nodes + 1, sizeof *heard_in);
    CHECK(heard_in);
    for (turn = 0; turn < TURNS; turn++) {
        unsigned count = 0, from, word;
        for (unsigned node = 2; count < nodes - 1 || under_way;) {
            /* Limits the replies in flight to the number of buffers. */
            if (node <= nodes && node - 2 - count < BUFFERS && under_way < gm_num_send_tokens(port)) {
                send_word(node++, &turn, turn % 2);
                continue;
            }
            if (!take_word(&from, &word)) continue;
            CHECK(word == turn + from && heard_in[from] == turn);
            heard_in[from]++;
            count++;
        }
    }
    free(heard_in);
}

int main(void) {
    static char buffers[2][BUFFERS][64];
    unsigned me, nodes;
    CHECK(gm_init() == GM_SUCCESS);
    CHECK(gm_open(&port, 0, PORT, "peers", GM_API_VERSION) == GM_SUCCESS);
    CHECK(gm_get_node_id(port, &me) == GM_SUCCESS && gm_max_node_id_in_use(port, &nodes) == GM_SUCCESS);
    for (unsigned i = 0; i < 2 * BUFFERS; i++)
        gm_provide_receive_buffer_with_tag(port, buffers[i % 2][i / 2], SIZE, i % 2, (unsigned char)(i % 2));
    size_t before = mallinfo2().uordblks;
    if (me == 1)
        lead(nodes);
    else
        follow(me);
    size_t after = mallinfo2().uordblks;
    if (me == 1) printf("%zu bytes a peer, %u peers\n", (after - before) / (nodes - 1), nodes - 1);
    gm_close(port);
    gm_finalize();
    return 0;
}
