/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Process 1 is killed while another one waits for what the argument names. */

#include "check.h"

#include <signal.h>

static unsigned *shared;

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    int waits_for = argv[1][0];
    Tmk_startup(argc, argv);
    if (Tmk_proc_id == 1) {
        shared = Tmk_malloc(sizeof(*shared));
        *shared = 1;
        Tmk_distribute(&shared, sizeof(shared));
        Tmk_lock_acquire(1);
    }
    Tmk_barrier(0);
    if (Tmk_proc_id == 1) {
        usleep(waits_for == 'p' ? 0 : 300000);
        raise(SIGKILL);
    }
    if (waits_for == 'b') Tmk_barrier(1);
    if (waits_for == 'l') Tmk_lock_acquire(1);
    if (waits_for == 'p') sleep(1), printf("%u\n", *(volatile unsigned *)shared);
    if (waits_for == 'c')
        for (;;) pause();
    return 0;
}
