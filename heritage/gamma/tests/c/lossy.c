/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The network loses one frame in ten. Messages of non-blocking sends still arrive once, in order
 * and intact, which GAMMA could not guarantee. Short messages share frames. Long ones are gathered
 * from the program's memory again when they are retransmitted. */

#include "check.h"

enum { PORT = 1, SEMAPHORE = 1, SHORT = 400, LONG = 16, LONG_LEN = 150000, BATCH = 8 };

static int me;

static unsigned char byte_at(int message, int sender, size_t i) {
    return (unsigned char)((size_t)message * 31 + (size_t)sender * 7 + i / 3);
}

static size_t length_of(int message) {
    return message < SHORT ? (size_t)message % 97 * 11 : LONG_LEN + (size_t)message;
}

static unsigned char in[2][LONG_LEN + SHORT + LONG], out[BATCH][LONG_LEN + SHORT + LONG];
static int seen;

static void on_message(void) {
    size_t len = length_of(seen);
    CHECK(gamma_msglen == len);
    for (size_t i = 0; i < len; i++) CHECK(in[seen % 2][i] == byte_at(seen, 1 - me, i));
    OK(gamma_post_recv(PORT, in[seen % 2], sizeof in[0]));
    seen++;
    OK(gamma_signal(SEMAPHORE));
}

/* A message of two pieces has the same contents as one of one piece. */
static int isend(int message, const unsigned char *bytes, size_t len) {
    size_t half = len / 2;
    switch (message % 4) {
    case 0: return gamma_isend(PORT, bytes, len);
    case 1: return gamma_isend_flowctl(PORT, bytes, len);
    case 2: return gamma_isend_2p(PORT, bytes, half, bytes + half, len - half);
    default: return gamma_isend_2p_flowctl(PORT, bytes, half, bytes + half, len - half);
    }
}

int main(int argc, char **argv) {
    OK(gamma_init(2, argc, argv));
    me = gamma_my_node();
    unsigned char pid = (unsigned char)gamma_my_par_pid();
    OK(gamma_set_active_port(PORT, (unsigned short)(1 - me), pid, PORT, on_message, SEMAPHORE,
                             GO_BACK, in[0], sizeof in[0]));
    OK(gamma_post_recv(PORT, in[1], sizeof in[1]));
    OK(gamma_sync());
    for (int message = 0; message < SHORT + LONG; message++) {
        unsigned char *bytes = out[message % BATCH];
        size_t len = length_of(message);
        for (size_t i = 0; i < len; i++) bytes[i] = byte_at(message, me, i);
        OK(isend(message, bytes, len));
        if ((message + 1) % BATCH != 0) continue;
        /* From here on the program owns the memory again. */
        OK(gamma_wsend(PORT));
        memset(out, 0xa5, sizeof out);
    }
    OK(gamma_wait(SEMAPHORE, SHORT + LONG));
    CHECK(seen == SHORT + LONG);
    OK(gamma_sync());
    OK(gamma_exit());
    printf("node %d has all messages\n", me);
    return 0;
}
