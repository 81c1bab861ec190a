/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Node 2 of three is killed. Operations that need it fail with an error that names it. */

#include "check.h"

#include <signal.h>
#include <time.h>

enum { PORT = 1, VICTIM = 2, LARGE = 3 << 20 };

int main(int argc, char **argv) {
    static char bytes[LARGE], in[4];
    OK(gamma_init(3, argc, argv));
    int me = gamma_my_node();
    OK(gamma_set_passive_port(PORT, VICTIM, (unsigned char)gamma_my_par_pid(), PORT, 1, GO_BACK, in,
                              sizeof in));
    OK(gamma_sync());
    if (me == VICTIM) {
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        raise(SIGKILL);
    }
    FAILS(GAMMA_ERR_NODE_GONE, "rank 2", gamma_broadcast(VICTIM, bytes, LARGE));
    FAILS(GAMMA_ERR_NODE_GONE, "rank 2", gamma_send_flowctl(PORT, bytes, LARGE));
    FAILS(GAMMA_ERR_NODE_GONE, "rank 2", gamma_isend_flowctl(PORT, bytes, LARGE));
    printf("node %d was notified: %s\n", me, gamma_last_error());
    OK(gamma_exit());
    return 0;
}
