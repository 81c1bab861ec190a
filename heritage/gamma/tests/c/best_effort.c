/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sends without flow control may lose messages, but not those that the receiver waits for. This
 * also holds for a message that is longer than the last one. */

#include "check.h"

enum { PORT = 1, SEMAPHORE = 1, ROUNDS = 300 };
/* Lengths of one frame on every network, of several frames on Ethernet, and the maximum. Each is
 * too long to be received without an armed buffer. */
enum { INTS = 300, MORE = 3000, MOST = 16384 };

int main(int argc, char **argv) {
    static int in[MOST], out[MOST];
    static const int lasts[] = {0, 0, INTS - 1, 0, MORE - 1, 0, MOST - 1};
    OK(gamma_init(2, argc, argv));
    int me = gamma_my_node();
    OK(gamma_set_passive_port(PORT, (unsigned short)(1 - me), (unsigned char)gamma_my_par_pid(), PORT,
                              SEMAPHORE, GO_BACK, in, sizeof in));
    OK(gamma_sync());
    for (int round = 0; round < ROUNDS; round++) {
        int last = lasts[round % 7];
        unsigned long len = (unsigned long)(last + 1) * sizeof *out;
        out[0] = out[last] = round;
        if (me == 0) OK(gamma_send(PORT, out, len));
        OK(gamma_wait(SEMAPHORE, 1));
        CHECK(in[0] == round && in[last] == round);
        if (me == 1) OK(gamma_send(PORT, out, len));
    }
    OK(gamma_sync());
    OK(gamma_exit());
    printf("node %d lost nothing\n", me);
    return 0;
}
