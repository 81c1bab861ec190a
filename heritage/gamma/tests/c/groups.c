/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One of several groups that run on the same host concurrently. Its messages, barriers and
 * broadcasts stay within it, and its nodes agree on their parallel PID. The argument names the
 * group. */

#include "check.h"

enum { PORT = 1, SEMAPHORE = 1, ROUNDS = 200, WORD = 32 };

int main(int argc, char **argv) {
    static char in[WORD], expected[WORD], out[WORD];
    CHECK(argc == 2);
    OK(gamma_init(0, argc, argv));
    int me = gamma_my_node(), size = gamma_how_many_nodes(), pid = gamma_my_par_pid();
    int agreed = me == 0 ? pid : 0;
    OK(gamma_broadcast(0, &agreed, sizeof agreed));
    CHECK(pid == agreed && pid >= 1 && pid <= 255);
    OK(gamma_set_passive_port(PORT, (unsigned short)((me + 1) % size), (unsigned char)pid, PORT,
                              SEMAPHORE, GO_BACK, in, sizeof in));
    OK(gamma_sync());
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(out, sizeof out, "%s %d %d", argv[1], me, round);
        snprintf(expected, sizeof expected, "%s %d %d", argv[1], (me + size - 1) % size, round);
        OK(gamma_send_flowctl(PORT, out, sizeof out));
        OK(gamma_wait(SEMAPHORE, 1));
        CHECK(strcmp(in, expected) == 0);
        if (round % 50 == 0) OK(gamma_sync());
    }
    OK(gamma_sync());
    OK(gamma_exit());
    printf("%s: node %d of %d\n", argv[1], me, size);
    return 0;
}
