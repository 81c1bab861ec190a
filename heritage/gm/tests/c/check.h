/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared code of the C tests: checks that name themselves on failure, ports, and waiting. */
#ifndef CHECK_H
#define CHECK_H

#include <gm.h>

#define LAST_ERROR() gm_last_error()
#include "expect.h"

#define OK(call) CHECK((call) == GM_SUCCESS)

#define FAILS(status, words, call) CHECK((call) == (status) && strstr(gm_last_error(), words))

enum { BARRIER = 7, BARRIER_SIZE = 4, UNKNOWN = -1 };

static unsigned me, other; /* nodes: 1 and 2 */
static struct gm_port *barrier_port;
static char barrier_buffers[2][16];

/* Stores the status of a send at its context; the initial value is -1. */
static inline void on_sent(struct gm_port *port, void *context, gm_status_t status) {
    (void)port;
    if (context) *(int *)context = status;
}

static inline int is_message(const gm_recv_event_t *event) {
    int type = GM_RECV_EVENT_TYPE(event);
    return type >= GM_RECV_EVENT && type <= GM_FAST_HIGH_PEER_RECV_EVENT;
}

static inline int is_fast(const gm_recv_event_t *event) {
    return GM_RECV_EVENT_TYPE(event) >= GM_FAST_RECV_EVENT;
}

/* Messages that arrived while another event was awaited, by port. */
enum { STASH = 256 };
static struct stash {
    gm_recv_event_t events[STASH];
    unsigned first, last;
} stashes[8];

/* Returns the next message of a port. All other events go to the library. */
static inline gm_recv_event_t *next_message(struct gm_port *port) {
    struct stash *stash = &stashes[gm_get_port_id(port)];
    if (stash->first != stash->last) return &stash->events[stash->first++ % STASH];
    for (;;) {
        gm_recv_event_t *event = gm_blocking_receive(port);
        if (is_message(event)) return event;
        gm_unknown(port, event);
    }
}

/* Handles an event that is not awaited. */
static inline void put_aside(struct gm_port *port, gm_recv_event_t *event) {
    struct stash *stash = &stashes[gm_get_port_id(port)];
    if (!is_message(event)) {
        gm_unknown(port, event);
        return;
    }
    CHECK(stash->last - stash->first < STASH);
    stash->events[stash->last++ % STASH] = *event;
}

/* Waits until a callback has written the status, and returns it. */
static inline int status_of(struct gm_port *port, volatile int *status) {
    while (*status == UNKNOWN) put_aside(port, gm_receive(port));
    return *status;
}

/* Returns the bytes of a message, in its buffer or elsewhere. */
static inline const char *bytes_of(const gm_recv_event_t *event) {
    return gm_ntohp(is_fast(event) ? event->recv.message : event->recv.buffer);
}

/* Waits until both processes have called this. */
static inline void barrier(void) {
    int status = UNKNOWN;
    gm_send_to_peer_with_callback(barrier_port, NULL, BARRIER_SIZE, 0, GM_LOW_PRIORITY, other, on_sent, &status);
    gm_recv_event_t *event = next_message(barrier_port);
    gm_provide_receive_buffer_with_tag(barrier_port, gm_ntohp(event->recv.buffer), BARRIER_SIZE, GM_LOW_PRIORITY, 0);
    CHECK(status_of(barrier_port, &status) == GM_SUCCESS);
}

static inline void begin(void) {
    OK(gm_init());
    OK(gm_open(&barrier_port, 0, BARRIER, "barrier", GM_API_VERSION));
    OK(gm_get_node_id(barrier_port, &me));
    other = 3 - me;
    for (int i = 0; i < 2; i++)
        gm_provide_receive_buffer_with_tag(barrier_port, barrier_buffers[i], BARRIER_SIZE, GM_LOW_PRIORITY, 0);
    barrier();
}

static inline void end(void) {
    barrier();
    gm_close(barrier_port);
    gm_finalize();
}

static inline void fill(char *bytes, size_t len, unsigned node, unsigned number) {
    for (size_t i = 0; i < len; i++) bytes[i] = (char)(node * 31 + number * 7 + i / 3);
}

static inline int is_filled(const char *bytes, size_t len, unsigned node, unsigned number) {
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != (char)(node * 31 + number * 7 + i / 3)) return 0;
    return 1;
}

#endif
