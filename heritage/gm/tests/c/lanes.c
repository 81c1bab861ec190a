/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Many connections between two nodes. High messages pass while the low lane is full. Failed sends
 * stop only their own connections, while all others continue. */

#include "check.h"

enum { PORTS = 4, CONNS = 2 * PORTS * PORTS, SIZE = 6, REFUSED = 7, EACH = 60, ROUNDS = 25, HIGHS = 200 };

static const unsigned numbers[PORTS] = {2, 4, 5, 6};
static struct gm_port *ports[PORTS];
static unsigned last_drawn = 1;

static unsigned draw(unsigned below) {
    last_drawn = last_drawn * 1103515245 + 12345;
    return (last_drawn >> 16) % below;
}

static void provide(unsigned port, void *buffer, unsigned priority) {
    gm_provide_receive_buffer_with_tag(ports[port], buffer, SIZE, priority, 0);
}

static void send_word(unsigned from, unsigned to, unsigned priority, unsigned *word, int *status) {
    *status = UNKNOWN;
    gm_send_with_callback(ports[from], word, SIZE, sizeof *word, priority, other, numbers[to], on_sent, status);
}

static unsigned word_of(const gm_recv_event_t *event) {
    unsigned word;
    memcpy(&word, bytes_of(event), sizeof word);
    return word;
}

/* Every port has sent the maximum number of low messages, for which there are no buffers. High
 * messages pass, and callbacks of high sends run before those of the low ones. */
static void high_ones_pass(void) {
    static unsigned lows[PORTS][EACH], high;
    static int low_statuses[PORTS][EACH];
    static char buffers[PORTS][EACH + 1][64];
    if (me == 1) {
        for (unsigned i = 0; i < PORTS; i++)
            for (unsigned k = 0; k < EACH; k++) {
                lows[i][k] = k;
                send_word(i, i, GM_LOW_PRIORITY, &lows[i][k], &low_statuses[i][k]);
            }
        for (high = 0; high < HIGHS; high++) {
            int status;
            unsigned i = high % PORTS;
            send_word(i, i, GM_HIGH_PRIORITY, &high, &status);
            CHECK(status_of(ports[i], &status) == GM_SUCCESS);
        }
        for (unsigned i = 0; i < PORTS; i++)
            for (unsigned k = 0; k < EACH; k++) CHECK(low_statuses[i][k] == UNKNOWN);
        barrier();
        for (unsigned i = 0; i < PORTS; i++)
            for (unsigned k = 0; k < EACH; k++) CHECK(status_of(ports[i], &low_statuses[i][k]) == GM_SUCCESS);
        return;
    }
    for (unsigned i = 0; i < PORTS; i++) provide(i, buffers[i][EACH], GM_HIGH_PRIORITY);
    for (unsigned k = 0; k < HIGHS; k++) {
        gm_recv_event_t *event = next_message(ports[k % PORTS]);
        CHECK(word_of(event) == k && GM_RECV_EVENT_TYPE(event) == GM_FAST_HIGH_PEER_RECV_EVENT);
        provide(k % PORTS, gm_ntohp(event->recv.buffer), GM_HIGH_PRIORITY);
    }
    barrier();
    for (unsigned i = 0; i < PORTS; i++)
        for (unsigned k = 0; k < EACH; k++) provide(i, buffers[i][k], GM_LOW_PRIORITY);
    for (unsigned i = 0; i < PORTS; i++)
        for (unsigned k = 0; k < EACH; k++) CHECK(word_of(next_message(ports[i])) == k);
}

/* A connection, in the numbering of both nodes. */
struct conn {
    unsigned from, to, priority, next; /* next: the number that the receiver expects */
};

static struct conn conns[CONNS];

/* Action of a connection in a round. Both nodes draw the same. */
enum { GOOD, RESUMED, DROPPED };

/* Sends in order: first a refused send on some connections, then two accepted ones on all. */
static void send_round(const unsigned *plan) {
    static unsigned words[CONNS][2];
    static int refused[CONNS], statuses[CONNS][2], recovered[CONNS];
    for (unsigned c = 0; c < CONNS; c++) {
        struct conn *conn = &conns[c];
        refused[c] = UNKNOWN;
        if (plan[c] != GOOD)
            gm_send_with_callback(ports[conn->from], words[c], REFUSED, 4, conn->priority, other, numbers[conn->to], on_sent,
                                  &refused[c]);
        for (unsigned k = 0; k < 2; k++) {
            words[c][k] = c << 16 | (conn->next + k);
            send_word(conn->from, conn->to, conn->priority, &words[c][k], &statuses[c][k]);
        }
    }
    for (unsigned c = 0; c < CONNS; c++) {
        if (plan[c] != GOOD) CHECK(status_of(ports[conns[c].from], &refused[c]) == GM_SEND_REJECTED);
        for (unsigned k = 0; k < 2 && plan[c] == GOOD; k++)
            CHECK(status_of(ports[conns[c].from], &statuses[c][k]) == GM_SUCCESS);
    }
    /* The other connections have continued; these have not. */
    for (unsigned c = 0; c < CONNS; c++)
        for (unsigned k = 0; k < 2 && plan[c] != GOOD; k++) CHECK(statuses[c][k] == UNKNOWN);
    barrier();
    for (unsigned c = 0; c < CONNS; c++) {
        struct conn *conn = &conns[c];
        recovered[c] = UNKNOWN;
        if (plan[c] == RESUMED)
            gm_resume_sending(ports[conn->from], conn->priority, other, numbers[conn->to], on_sent, &recovered[c]);
        if (plan[c] == DROPPED)
            gm_drop_sends(ports[conn->from], conn->priority, other, numbers[conn->to], on_sent, &recovered[c]);
    }
    for (unsigned c = 0; c < CONNS; c++) {
        if (plan[c] == GOOD) continue;
        int expected = plan[c] == RESUMED ? GM_SUCCESS : GM_SEND_DROPPED;
        CHECK(status_of(ports[conns[c].from], &recovered[c]) == GM_SUCCESS);
        for (unsigned k = 0; k < 2; k++) CHECK(status_of(ports[conns[c].from], &statuses[c][k]) == expected);
    }
}

/* Receives messages at a port until it has as many as the plan requires. */
static void receive_words(unsigned port, const unsigned *plan, unsigned wanted) {
    unsigned count = 0;
    for (unsigned c = 0; c < CONNS; c++) count += conns[c].to == port && plan[c] == wanted ? 2 : 0;
    while (count--) {
        gm_recv_event_t *event = next_message(ports[port]);
        unsigned word = word_of(event), c = word >> 16;
        CHECK(c < CONNS && conns[c].to == port && plan[c] == wanted && (word & 0xffff) == conns[c].next);
        CHECK(gm_ntoh_u8(event->recv.sender_port_id) == numbers[conns[c].from]);
        conns[c].next++;
        provide(port, gm_ntohp(event->recv.buffer), conns[c].priority);
    }
}

static void failures_stop_their_connections_alone(void) {
    static char buffers[PORTS][2][4 * PORTS][64];
    for (unsigned c = 0; c < CONNS; c++) conns[c] = (struct conn){c % PORTS, c / PORTS % PORTS, c / PORTS / PORTS, 0};
    for (unsigned i = 0; i < PORTS && me == 2; i++) {
        for (unsigned k = 0; k < 4 * PORTS; k++) provide(i, buffers[i][k % 2][k / 2], k % 2);
        for (unsigned priority = 0; priority < 2; priority++)
            OK(gm_set_acceptable_sizes(ports[i], priority, 1UL << SIZE));
    }
    barrier();
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned plan[CONNS];
        for (unsigned c = 0; c < CONNS; c++) plan[c] = draw(2) ? GOOD : 1 + draw(2);
        if (me == 1) {
            send_round(plan);
            for (unsigned c = 0; c < CONNS; c++) conns[c].next += plan[c] == DROPPED ? 0 : 2;
        } else {
            for (unsigned i = 0; i < PORTS; i++) receive_words(i, plan, GOOD);
            for (unsigned i = 0; i < PORTS; i++) CHECK(!gm_receive_pending(ports[i]));
            barrier();
            for (unsigned i = 0; i < PORTS; i++) receive_words(i, plan, RESUMED);
        }
        barrier();
    }
}

int main(void) {
    begin();
    for (unsigned i = 0; i < PORTS; i++) OK(gm_open(&ports[i], 0, numbers[i], "lane", GM_API_VERSION));
    barrier();
    high_ones_pass();
    barrier();
    failures_stop_their_connections_alone();
    for (unsigned i = 0; i < PORTS; i++) gm_close(ports[i]);
    end();
    printf("node %u is done\n", me);
    return 0;
}
