/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Rank 0 waits in a call for an event that can no longer occur, because rank 1, the only other process,
 * ends meanwhile. Each call returns the error of the table.
 *
 * Arguments: the name of the call, and the way in which rank 1 ends: `close` (normally) or `kill` (by
 * SIGKILL). The name `list` prints the names of all calls. */

#include "check.h"

#include <poll.h>
#include <signal.h>
#include <time.h>

enum { PORT = 1, HANDLED = 2, OTHER = 1, LARGE = 3 << 20, SHORT = 1 << 10, TAG = 5, CLAIMED = 6 };

static portolan_node_t *node;
static char bytes[LARGE];
static uint64_t key;

static void nap(int ms) {
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* Polls until the call fails; 0 means that there is no result yet. */
#define POLL(call)                                                                                 \
    for (;;) {                                                                                     \
        int code_ = (call);                                                                        \
        if (code_ < 0) return code_;                                                               \
        nap(1);                                                                                    \
    }

/* The same without a pause: repeated sends exhaust the receiver's credit. */
#define REPEAT(call)                                                                               \
    for (;;) {                                                                                     \
        int code_ = (call);                                                                        \
        if (code_ < 0) return code_;                                                               \
    }

static int wait_for(int begun, const portolan_request_t *request) {
    OK(begun);
    return portolan_wait(node, *request, NULL);
}

/* The same for an operation that may fail at once. */
static int ended(int begun, const portolan_request_t *request) {
    return begun == PORTOLAN_OK ? portolan_wait(node, *request, NULL) : begun;
}

static portolan_remote_t place(void) {
    portolan_remote_t place = PORTOLAN_SIZED(portolan_remote_t);
    place.rank = OTHER;
    place.key = key;
    return place;
}

static portolan_atomic_t sum(void) {
    static const int64_t one = 1;
    portolan_atomic_t what = PORTOLAN_SIZED(portolan_atomic_t);
    what.operation = PORTOLAN_SUM;
    what.type = PORTOLAN_INT64;
    what.count = 1;
    what.operands = &one;
    return what;
}

static int send_long(void) { return portolan_send(node, OTHER, PORT, bytes, LARGE, 0); }
static int send_short(void) { REPEAT(portolan_send(node, OTHER, PORT, bytes, SHORT, 0)) }
static int send_high(void) {
    REPEAT(portolan_send(node, OTHER, PORT, bytes, SHORT, PORTOLAN_HIGH))
}
static int send_best_effort(void) {
    POLL(portolan_send(node, OTHER, PORT, bytes, SHORT, PORTOLAN_BEST_EFFORT))
}
static int send_gather(void) {
    portolan_piece_t pieces[2] = {{bytes, LARGE / 2}, {bytes, LARGE / 2}};
    return portolan_send_gather(node, OTHER, PORT, pieces, 2, 0);
}
static int isend(void) {
    portolan_request_t request;
    return wait_for(portolan_isend(node, OTHER, PORT, bytes, LARGE, 0, &request), &request);
}
/* The call makes no progress by itself. */
static int isend_copy(void) {
    POLL((portolan_progress(node), portolan_isend_copy(node, OTHER, PORT, bytes, SHORT, 0)))
}
static int recv_any(void) {
    return portolan_recv(node, PORT, PORTOLAN_ANY_SOURCE, bytes, SHORT, NULL);
}
static int recv_from(void) { return portolan_recv(node, PORT, OTHER, bytes, SHORT, NULL); }
static int recv_long(void) { return portolan_recv(node, PORT, OTHER, bytes, LARGE, NULL); }

static int wait_recv(uint32_t source) {
    portolan_request_t request;
    return wait_for(portolan_post_recv(node, PORT, source, bytes, SHORT, &request), &request);
}
static int wait_any(void) { return wait_recv(PORTOLAN_ANY_SOURCE); }
static int wait_from(void) { return wait_recv(OTHER); }

static int wait_all(uint32_t source) {
    portolan_request_t requests[3] = {0};
    OK(portolan_post_recv(node, PORT, source, bytes, SHORT, &requests[0]));
    OK(portolan_post_recv(node, PORT, source, bytes + SHORT, SHORT, &requests[2]));
    return portolan_wait_all(node, requests, 3);
}
static int wait_all_any(void) { return wait_all(PORTOLAN_ANY_SOURCE); }
static int wait_all_from(void) { return wait_all(OTHER); }

static int test_recv(uint32_t source) {
    portolan_request_t request;
    OK(portolan_post_recv(node, PORT, source, bytes, SHORT, &request));
    POLL(portolan_test(node, request, NULL))
}
static int test_any(void) { return test_recv(PORTOLAN_ANY_SOURCE); }
static int test_from(void) { return test_recv(OTHER); }
static int test_send(void) {
    portolan_request_t request;
    OK(portolan_isend(node, OTHER, PORT, bytes, LARGE, 0, &request));
    POLL(portolan_test(node, request, NULL))
}

static int progress(void) { POLL(portolan_progress(node)) }

static int send_tagged(void) { return portolan_send_tagged(node, OTHER, TAG, NULL, bytes, LARGE, 0); }
static int isend_tagged(void) {
    portolan_request_t request;
    return wait_for(portolan_isend_tagged(node, OTHER, TAG, NULL, bytes, LARGE, 0, &request),
                    &request);
}
static int isend_tagged_copy(void) {
    POLL((portolan_progress(node),
          portolan_isend_tagged_copy(node, OTHER, TAG, NULL, bytes, SHORT, 0)))
}
static int recv_tagged(uint32_t source) {
    return portolan_recv_tagged(node, TAG, 0, source, bytes, SHORT, NULL);
}
static int recv_tagged_any(void) { return recv_tagged(PORTOLAN_ANY_SOURCE); }
static int recv_tagged_from(void) { return recv_tagged(OTHER); }

static int wait_tagged(uint32_t source) {
    portolan_request_t request;
    return wait_for(portolan_post_recv_tagged(node, TAG, 0, source, bytes, SHORT, &request), &request);
}
static int wait_tagged_any(void) { return wait_tagged(PORTOLAN_ANY_SOURCE); }
static int wait_tagged_from(void) { return wait_tagged(OTHER); }

static int test_tagged_from(void) {
    portolan_request_t request;
    OK(portolan_post_recv_tagged(node, TAG, 0, OTHER, bytes, SHORT, &request));
    POLL(portolan_test(node, request, NULL))
}

static int peek(uint32_t source) {
    POLL(portolan_peek(node, TAG, 0, source, NULL))
}
static int peek_any(void) { return peek(PORTOLAN_ANY_SOURCE); }
static int peek_from(void) { return peek(OTHER); }

static int claim(uint32_t source) {
    portolan_claim_t claimed;
    POLL(portolan_claim(node, TAG, 0, source, NULL, &claimed))
}
static int claim_any(void) { return claim(PORTOLAN_ANY_SOURCE); }
static int claim_from(void) { return claim(OTHER); }

/* Rank 1 has announced a long message, and ends before its bytes are requested. */
static int recv_claimed(void) {
    portolan_claim_t claimed = 0;
    portolan_request_t request;
    while (portolan_claim(node, CLAIMED, 0, OTHER, NULL, &claimed) == 0) nap(1);
    CHECK(claimed != 0);
    int code = PORTOLAN_OK;
    /* Sends succeed while the peer is still alive. */
    while (code == PORTOLAN_OK) code = portolan_send(node, OTHER, PORT, bytes, SHORT, 0);
    CHECK(code == PORTOLAN_ERR_PEER_GONE);
    return wait_for(portolan_recv_claimed(node, claimed, bytes, LARGE, &request), &request);
}

static void never(portolan_node_t *its, const portolan_message_t *message, void *user) {
    (void)its, (void)message, (void)user;
    CHECK(!"nobody sends to this port");
}
static int is_done(void *user) {
    (void)user;
    return 0;
}
static int wait_until(void) { return portolan_wait_until(node, is_done, NULL); }

/* A program's own event loop. */
static int event_loop(void) {
    struct pollfd ready = {.fd = portolan_event_fd(node), .events = POLLIN};
    CHECK(ready.fd >= 0);
    for (;;) {
        int armed = portolan_arm(node);
        if (armed < 0) return armed;
        if (armed == 0) {
            portolan_progress(node);
            continue;
        }
        CHECK(poll(&ready, 1, -1) == 1);
        OK(portolan_disarm(node));
    }
}

static int barrier(void) { return portolan_barrier(node, NULL); }
static int broadcast(void) { return portolan_broadcast(node, NULL, OTHER, bytes, SHORT); }
/* The root does not wait for short broadcasts. */
static int broadcast_root(void) { return portolan_broadcast(node, NULL, 0, bytes, LARGE); }
static int broadcast_long(void) { return portolan_broadcast(node, NULL, OTHER, bytes, LARGE); }
static int allreduce(void) {
    return portolan_allreduce(node, NULL, PORTOLAN_SUM, PORTOLAN_INT64, bytes, 4);
}
static int reduce(void) {
    return portolan_reduce(node, NULL, 0, PORTOLAN_SUM, PORTOLAN_INT64, bytes, 4);
}
static int ibarrier(void) {
    portolan_request_t begun;
    OK(portolan_ibarrier(node, NULL, &begun));
    POLL(portolan_test(node, begun, NULL))
}
static int ibroadcast(uint32_t root) {
    portolan_request_t begun;
    OK(portolan_ibroadcast(node, NULL, root, bytes, LARGE, &begun));
    POLL(portolan_test(node, begun, NULL))
}
static int ibroadcast_leaf(void) { return ibroadcast(OTHER); }
static int ibroadcast_root(void) { return ibroadcast(0); }

/* A live peer may serve some of these requests although it makes no call. */
static int put(void) {
    portolan_remote_t to = place();
    REPEAT(portolan_put(node, &to, bytes, LARGE))
}
static int get(void) {
    portolan_remote_t from = place();
    REPEAT(portolan_get(node, &from, bytes, LARGE))
}
static int atomic(void) {
    portolan_remote_t at = place();
    portolan_atomic_t what = sum();
    REPEAT(portolan_atomic(node, &at, &what))
}
static int wait_put(void) {
    portolan_remote_t to = place();
    portolan_request_t request;
    REPEAT(ended(portolan_iput(node, &to, bytes, LARGE, &request), &request))
}
static int wait_get(void) {
    portolan_remote_t from = place();
    portolan_request_t request;
    REPEAT(ended(portolan_iget(node, &from, bytes, LARGE, &request), &request))
}
static int wait_atomic(void) {
    portolan_remote_t at = place();
    portolan_atomic_t what = sum();
    portolan_request_t request;
    REPEAT(ended(portolan_iatomic(node, &at, &what, &request), &request))
}

static int next_notice(void) {
    portolan_notice_t notice = PORTOLAN_SIZED(portolan_notice_t);
    for (;;) {
        int code = portolan_next_notice(node, &notice);
        if (code < 0) return code;
        CHECK(code == 0);
        portolan_progress(node);
        nap(1);
    }
}
static int wait_notice(void) {
    portolan_notice_t notice = PORTOLAN_SIZED(portolan_notice_t);
    return portolan_wait_notice(node, &notice);
}

/* Does not wait for rank 1, which has ended: messages to it are discarded. */
static int close_node(void) {
    portolan_request_t request;
    OK(portolan_isend_copy(node, OTHER, PORT, bytes, LARGE, 0));
    OK(portolan_isend(node, OTHER, PORT, bytes, LARGE, 0, &request));
    return portolan_close(node);
}

enum { GONE = PORTOLAN_ERR_PEER_GONE, NOBODY = PORTOLAN_ERR_NOBODY_LEFT };

static const struct call {
    const char *name;
    int (*wait)(void);
    int code;
} calls[] = {
    {"send", send_long, GONE},
    {"send short", send_short, GONE},
    {"send high", send_high, GONE},
    {"send best effort", send_best_effort, GONE},
    {"send_gather", send_gather, GONE},
    {"isend", isend, GONE},
    {"isend_copy", isend_copy, GONE},
    {"recv any", recv_any, NOBODY},
    {"recv from", recv_from, GONE},
    {"recv long", recv_long, GONE},
    {"wait any", wait_any, NOBODY},
    {"wait from", wait_from, GONE},
    {"wait_all any", wait_all_any, NOBODY},
    {"wait_all from", wait_all_from, GONE},
    {"test any", test_any, NOBODY},
    {"test from", test_from, GONE},
    {"test send", test_send, GONE},
    {"progress", progress, NOBODY},
    {"send_tagged", send_tagged, GONE},
    {"isend_tagged", isend_tagged, GONE},
    {"isend_tagged_copy", isend_tagged_copy, GONE},
    {"recv_tagged any", recv_tagged_any, NOBODY},
    {"recv_tagged from", recv_tagged_from, GONE},
    {"wait tagged any", wait_tagged_any, NOBODY},
    {"wait tagged from", wait_tagged_from, GONE},
    {"test tagged from", test_tagged_from, GONE},
    {"peek any", peek_any, NOBODY},
    {"peek from", peek_from, GONE},
    {"claim any", claim_any, NOBODY},
    {"claim from", claim_from, GONE},
    {"recv_claimed", recv_claimed, GONE},
    {"wait_until", wait_until, NOBODY},
    {"event loop", event_loop, NOBODY},
    {"barrier", barrier, GONE},
    {"broadcast", broadcast, GONE},
    {"broadcast root", broadcast_root, GONE},
    {"broadcast long", broadcast_long, GONE},
    {"allreduce", allreduce, GONE},
    {"reduce", reduce, GONE},
    {"ibarrier", ibarrier, GONE},
    {"ibroadcast", ibroadcast_leaf, GONE},
    {"ibroadcast root", ibroadcast_root, GONE},
    {"put", put, GONE},
    {"get", get, GONE},
    {"atomic", atomic, GONE},
    {"iput", wait_put, GONE},
    {"iget", wait_get, GONE},
    {"iatomic", wait_atomic, GONE},
    {"next_notice", next_notice, NOBODY},
    {"wait_notice", wait_notice, NOBODY},
    {"close", close_node, PORTOLAN_OK},
};

enum { CALLS = sizeof calls / sizeof calls[0] };

static const struct call *find(const char *name) {
    for (size_t index = 0; index < CALLS; index++) {
        if (strcmp(calls[index].name, name) == 0) return &calls[index];
    }
    CHECK(!"a call of the table");
    return NULL;
}

static void end(const char *how) {
    /* Rank 0 is waiting by then. */
    nap(150);
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    OK(portolan_close(node));
}

static void survive(const struct call *call) {
    int code = call->wait();
    if (code != call->code || (code == GONE && strstr(portolan_last_error(), "rank 1") == NULL)) {
        fprintf(stderr, "%s gave %s (%s), not %s\n", call->name, portolan_error_name(code),
                portolan_last_error(), portolan_error_name(call->code));
        exit(1);
    }
    printf("%s ended: %s\n", call->name, code == PORTOLAN_OK ? "well" : portolan_last_error());
    if (call->wait != close_node) OK(portolan_close(node));
}

int main(int argc, char **argv) {
    static char shared[LARGE];
    portolan_request_t request;
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (size_t index = 0; index < CALLS; index++) puts(calls[index].name);
        return 0;
    }
    CHECK(argc == 3);
    const struct call *call = find(argv[1]);
    OK(portolan_join(&node));
    CHECK(portolan_size(node) == 2);
    OK(portolan_open(node, PORT));
    OK(portolan_open_active(node, HANDLED, PORTOLAN_IN_PLACE, never, NULL));
    int is_survivor = portolan_rank(node) == 0;
    if (!is_survivor) {
        uint32_t access = PORTOLAN_READ_ACCESS | PORTOLAN_WRITE_ACCESS;
        OK(portolan_register(node, shared, LARGE, access, &key));
    }
    OK(portolan_broadcast(node, NULL, OTHER, &key, sizeof key));
    if (!is_survivor && call->wait == recv_claimed)
        OK(portolan_isend_tagged(node, 0, CLAIMED, NULL, shared, LARGE, 0, &request));
    OK(portolan_barrier(node, NULL));
    if (is_survivor) {
        survive(call);
    } else {
        end(argv[2]);
    }
    return 0;
}
