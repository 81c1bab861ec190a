/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sends without flow control that may lose messages do not lose those that are waited for. */

#include "check.h"

enum { PORT = 1, SEMAPHORE = 1, ROUNDS = 300 };

int main(int argc, char **argv) {
    static int in;
    OK(gamma_init(2, argc, argv));
    int me = gamma_my_node();
    OK(gamma_set_passive_port(PORT, (unsigned short)(1 - me), (unsigned char)gamma_my_par_pid(), PORT,
                              SEMAPHORE, GO_BACK, &in, sizeof in));
    OK(gamma_sync());
    for (int round = 0; round < ROUNDS; round++) {
        if (me == 0) OK(gamma_send(PORT, &round, sizeof round));
        OK(gamma_wait(SEMAPHORE, 1));
        CHECK(in == round);
        if (me == 1) OK(gamma_send(PORT, &round, sizeof round));
    }
    OK(gamma_sync());
    OK(gamma_exit());
    printf("node %d lost nothing\n", me);
    return 0;
}
