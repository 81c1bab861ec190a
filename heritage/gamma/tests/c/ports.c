/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Active Ports between two processes or more: all sends, both kinds of buffers, and messages
 * without an armed buffer. */

#include "check.h"

#include <pthread.h>

enum { ROUNDS = 200, RING = 1, BACK = 2, FORTH = 3, SWAP = 4, ERRORS = 5, PASSIVE = 6, NEVER = 7, LONG = 8, TWO = 9, QUIET = 10, THREADS = 20 };
enum { LONG_LEN = 1 << 20 };

static int me, size, next, previous;
static unsigned char pid;

/* All eight sends in turn, of 0 to 2000 bytes. */

static char ring_buffer[2000];
static unsigned long ring_len;

static void on_ring(void) {
    CHECK(gamma_active_port == RING);
    ring_len = gamma_msglen;
    OK(gamma_signal(1));
}

static int send_as(int how, const char *bytes, unsigned long len) {
    unsigned long half = len / 2;
    switch (how % 8) {
    case 0: return gamma_send(RING, bytes, len);
    case 1: return gamma_send_flowctl(RING, bytes, len);
    case 2: return gamma_send_2p(RING, bytes, half, bytes + half, len - half);
    case 3: return gamma_send_2p_flowctl(RING, bytes, half, bytes + half, len - half);
    case 4: return gamma_isend(RING, bytes, len);
    case 5: return gamma_isend_flowctl(RING, bytes, len);
    case 6: return gamma_isend_2p(RING, bytes, half, bytes + half, len - half);
    default: return gamma_isend_2p_flowctl(RING, bytes, half, bytes + half, len - half);
    }
}

static void all_sends(void) {
    static char out[2000];
    for (int round = 0; round < ROUNDS; round++) {
        unsigned long len = (unsigned long)(round * round % 2001);
        memset(out, round + me, sizeof out);
        OK(send_as(round, out, len));
        OK(gamma_wait(1, 1));
        CHECK(ring_len == len);
        for (unsigned long i = 0; i < len; i++) CHECK(ring_buffer[i] == (char)(round + previous));
        OK(gamma_wsend(RING));
        CHECK(gamma_tsend(RING) == 1);
    }
}

/* GO_BACK: a message that was not collected is never overwritten. */

static int back_buffer, back_seen;

static void on_back(void) {
    back_seen++;
    OK(gamma_signal(2));
}

static void go_back(void) {
    for (int i = 1; i <= 5; i++) OK(gamma_send_flowctl(BACK, &i, sizeof i));
    OK(gamma_sync());
    /* All five messages are here or in flight, and the buffer was armed for one. */
    for (int i = 0; i < 100; i++) CHECK(gamma_test(99) == 0);
    for (int i = 1; i <= 5; i++) {
        OK(gamma_wait(2, 1));
        CHECK(back_seen == i && back_buffer == i);
    }
    CHECK(gamma_test(2) == 0);
    OK(gamma_sync());
}

/* A second buffer, armed before the first message is collected, is not overwritten either. */
static void go_back_with_two(void) {
    static int first, second;
    unsigned short to = (unsigned short)next;
    OK(gamma_set_passive_port(TWO, to, pid, TWO, 9, GO_BACK, &first, sizeof first));
    OK(gamma_sync());
    for (int i = 1; i <= 3; i++) OK(gamma_send_flowctl(TWO, &i, sizeof i));
    OK(gamma_sync());
    for (int i = 0; i < 100; i++) CHECK(gamma_test(99) == 0);
    OK(gamma_post_recv(TWO, &second, sizeof second));
    for (int i = 0; i < 100; i++) CHECK(gamma_test(99) == 0);
    for (int i = 0; i < 2; i++) {
        OK(gamma_wait(9, 1));
        for (int j = 0; j < 100; j++) CHECK(gamma_test(99) == 0);
        CHECK(first == 1 && second == 2);
    }
    OK(gamma_wait(9, 1));
    CHECK(first == 1 && second == 3);
    OK(gamma_sync());
}

/* GO_FORTH: each message is written behind the last, until the buffer is full. */

static char forth_buffer[12];
static int forth_seen;

static void on_forth(void) {
    forth_seen++;
    OK(gamma_signal(3));
}

static void go_forth(void) {
    for (char c = 'a'; c < 'e'; c++) {
        char out[4] = {c, c, c, c};
        OK(gamma_isend_flowctl(FORTH, out, 4));
        OK(gamma_wsend(FORTH));
        if (c == 'c') {
            OK(gamma_wait(3, 3));
            CHECK(memcmp(forth_buffer, "aaaabbbbcccc", 12) == 0 && forth_seen == 3);
        }
    }
    OK(gamma_sync());
    CHECK(gamma_test(3) == 0); /* the fourth waits for a buffer */
    OK(gamma_post_recv(FORTH, forth_buffer, sizeof forth_buffer));
    OK(gamma_wait(3, 1));
    CHECK(memcmp(forth_buffer, "ddddbbbbcccc", 12) == 0);
    OK(gamma_sync());
}

/* A handler that swaps buffers, and sends a reply. */

static long swap_buffers[4];
static long swap_sum;
static int swap_next = 1;

static void on_swap(void) {
    CHECK(gamma_msglen == sizeof(long));
    swap_sum += swap_buffers[(swap_next + 3) % 4];
    OK(gamma_post_recv(SWAP, &swap_buffers[swap_next], sizeof(long)));
    swap_next = (swap_next + 1) % 4;
    OK(gamma_signal(4));
}

static void swapping(void) {
    for (long i = 1; i <= ROUNDS; i++) {
        OK(gamma_isend_flowctl(SWAP, &i, sizeof i));
        OK(gamma_wsend(SWAP));
    }
    OK(gamma_wait(4, ROUNDS));
    CHECK(swap_sum == ROUNDS * (ROUNDS + 1) / 2);
}

/* A handler that gives no signal: the port's semaphore is signalled, and the buffer is armed
 * again. */

static int quiet_buffer, quiet_sum;

static void on_quiet(void) { quiet_sum += quiet_buffer; }

static void quiet(void) {
    enum { COUNT = 5, SEMAPHORE = 11 };
    OK(gamma_set_active_port(QUIET, (unsigned short)next, pid, QUIET, on_quiet, SEMAPHORE, GO_BACK, &quiet_buffer,
                             sizeof quiet_buffer));
    OK(gamma_sync());
    for (int i = 1; i <= COUNT; i++) OK(gamma_send_flowctl(QUIET, &i, sizeof i));
    OK(gamma_wait(SEMAPHORE, COUNT));
    CHECK(quiet_sum == COUNT * (COUNT + 1) / 2);
    CHECK(gamma_test(SEMAPHORE) == 0);
    OK(gamma_sync());
}

/* Errors of handlers, and messages that are too long. */

static void on_errors(void) {
    FAILS(GAMMA_ERR_IN_HANDLER, "handler", gamma_wait(1, 1));
    FAILS(GAMMA_ERR_IN_HANDLER, "handler", gamma_sync());
    FAILS(GAMMA_ERR_IN_HANDLER, "handler", gamma_exit());
    FAILS(GAMMA_ERR_IN_HANDLER, "handler", gamma_wsend(ERRORS));
    CHECK(gamma_my_node() == me && gamma_how_many_nodes() == size);
    CHECK(gamma_msglen == 9); /* longer than the buffer */
    OK(gamma_sigerr(5));
}

static void errors(void) {
    OK(gamma_send(ERRORS, "too long!", 9));
    FAILS(GAMMA_ERR_SIGNALLED, "semaphore 5", gamma_wait(5, 1));
    CHECK(gamma_test(5) == 0); /* the error replaced the handler's signal */
    OK(gamma_send(PASSIVE, "four", 4));
    OK(gamma_wait(6, 1));
    OK(gamma_send(PASSIVE, "too long!", 9));
    FAILS(GAMMA_ERR_SIGNALLED, "semaphore 6", gamma_wait(6, 1));
    FAILS(GAMMA_ERR_PORT, "port 7", gamma_send(NEVER, "x", 1));
    FAILS(GAMMA_ERR_PORT, "port 7", gamma_post_recv(NEVER, NULL, 0));
    FAILS(GAMMA_ERR_NULL, "null", gamma_send(RING, NULL, 1));
    FAILS(GAMMA_ERR_NODE, "node 999", gamma_set_passive_port(NEVER, 999, pid, 1, 1, GO_BACK, NULL, 0));
    FAILS(GAMMA_ERR_PAR_PID, "parallel PID",
          gamma_set_passive_port(NEVER, 0, (unsigned char)(pid + 1), 1, 1, GO_BACK, NULL, 0));
    FAILS(GAMMA_ERR_ARGUMENT, "GO_FORTH", gamma_set_passive_port(NEVER, 0, pid, 1, 1, 7, NULL, 0));
    FAILS(GAMMA_ERR_NULL, "passive", gamma_set_active_port(NEVER, 0, pid, 1, NULL, 1, GO_BACK, NULL, 0));
    FAILS(GAMMA_ERR_ALREADY, "before", gamma_init(0, 0, NULL));
    OK(gamma_sync());
}

/* Long messages, memory, time, broadcast. */

/* Answers through the port on which the program may wait for a send. */
static void on_long(void) {
    if (gamma_msglen == LONG_LEN) OK(gamma_isend(LONG, NULL, 0));
    OK(gamma_signal(8));
}

static void the_rest(void) {
    gamma_time_t begin = gamma_time();
    char *out = malloc(LONG_LEN), *in = malloc(LONG_LEN);
    CHECK(out && in);
    OK(gamma_mlock(out, LONG_LEN));
    OK(gamma_set_active_port(LONG, (unsigned short)next, pid, LONG, on_long, 8, GO_BACK, in, LONG_LEN));
    memset(out, 'a' + me, LONG_LEN);
    OK(gamma_isend_flowctl(LONG, out, LONG_LEN));
    OK(gamma_wsend(LONG));
    OK(gamma_wait(8, 1));
    for (int i = 0; i < LONG_LEN; i++) CHECK(in[i] == 'a' + previous);
    OK(gamma_wait(8, 1));
    OK(gamma_wsend(LONG));
    OK(gamma_munlock(out, LONG_LEN));
    OK(gamma_munlockall());
    FAILS(GAMMA_ERR_NULL, "null", gamma_mlock(NULL, 1));
    memset(out, me == size - 1 ? 'z' : '?', LONG_LEN);
    OK(gamma_broadcast((unsigned short)(size - 1), out, LONG_LEN));
    CHECK(out[0] == 'z' && out[LONG_LEN - 1] == 'z');
    FAILS(GAMMA_ERR_NODE, "member", gamma_broadcast((unsigned short)size, out, 1));
    OK(gamma_sync());
    CHECK(gamma_time_diff(gamma_time(), begin) > 0);
    free(out);
    /* The port stays armed with the buffer until the parallel section ends. */
    static char *kept;
    kept = in;
    (void)kept;
}

/* Threads, each on its own port, with barriers in parallel. */

static int thread_buffers[2];
static int in_section;

static void section(void) {
    CHECK(in_section++ == 0);
    in_section--;
}

static void *thread(void *argument) {
    int which = *(int *)argument;
    unsigned short port = (unsigned short)(THREADS + which);
    unsigned short semaphore = (unsigned short)(THREADS + which);
    OK(gamma_set_passive_port(port, (unsigned short)next, pid, port, semaphore, GO_BACK,
                              &thread_buffers[which], sizeof(int)));
    for (int round = 0; round < 50; round++) {
        int out = round * 2 + which;
        if (round % 10 == 0) OK(gamma_sync());
        OK(gamma_send_flowctl(port, &out, sizeof out));
        OK(gamma_wait(semaphore, 1));
        CHECK(thread_buffers[which] == out);
        OK(gamma_atomic(section));
    }
    return NULL;
}

/* One thread of each process runs barriers, the other broadcasts, in no agreed order. */
static void *in_collectives(void *argument) {
    static char word[100000];
    for (int round = 0; round < 20; round++) {
        if (*(int *)argument == 0) {
            OK(gamma_sync());
            continue;
        }
        int root = round % size;
        unsigned long len = round % 2 ? 8 : sizeof word;
        memset(word, me == root ? round : 77, len);
        OK(gamma_broadcast((unsigned short)root, word, len));
        CHECK(word[0] == round && word[len - 1] == round);
    }
    return NULL;
}

static void run_two(void *(*body)(void *)) {
    pthread_t ids[2];
    static int numbers[2] = {0, 1};
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&ids[i], NULL, body, &numbers[i]) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    OK(gamma_sync());
}

static void threads(void) {
    run_two(thread);
    run_two(in_collectives);
}

int main(int argc, char **argv) {
    FAILS(GAMMA_ERR_NOT_INITIALISED, "gamma_init", gamma_my_node());
    FAILS(GAMMA_ERR_NOT_INITIALISED, "gamma_init", gamma_send(RING, "x", 1));
    CHECK(argc == 2 && strcmp(argv[1], "argument") == 0);
    OK(gamma_init((unsigned char)strtol(getenv("NODES"), NULL, 10), argc, argv));
    me = gamma_my_node();
    size = gamma_how_many_nodes();
    pid = (unsigned char)gamma_my_par_pid();
    next = (me + 1) % size;
    previous = (me + size - 1) % size;
    CHECK(pid > 0 && me >= 0 && me < size);
    static char four[4];
    unsigned short to = (unsigned short)next;
    OK(gamma_set_active_port(RING, to, pid, RING, on_ring, 1, GO_BACK, ring_buffer, sizeof ring_buffer));
    OK(gamma_set_active_port(BACK, to, pid, BACK, on_back, 2, GO_BACK, &back_buffer, sizeof(int)));
    OK(gamma_set_active_port(FORTH, to, pid, FORTH, on_forth, 3, GO_FORTH, forth_buffer, sizeof forth_buffer));
    OK(gamma_set_active_port(SWAP, to, pid, SWAP, on_swap, 4, GO_BACK, &swap_buffers[0], sizeof(long)));
    OK(gamma_set_active_port(ERRORS, to, pid, ERRORS, on_errors, 5, GO_BACK, four, sizeof four));
    OK(gamma_set_passive_port(PASSIVE, to, pid, PASSIVE, 6, GO_BACK, four, sizeof four));
    OK(gamma_sync());
    all_sends();
    go_back();
    go_back_with_two();
    go_forth();
    swapping();
    quiet();
    errors();
    the_rest();
    threads();
    OK(gamma_exit());
    FAILS(GAMMA_ERR_EXITED, "gamma_exit", gamma_my_node());
    FAILS(GAMMA_ERR_EXITED, "once", gamma_init(0, 0, NULL));
    printf("node %d of %d is done\n", me, size);
    return 0;
}
