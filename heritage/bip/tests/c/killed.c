/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Node 1 is killed. A node that sends to it ends with an error message. */

#include "check.h"

#include <signal.h>
#include <unistd.h>

int main(void) {
    static int words[100000];
    bip_init();
    if (bip_mynode == 1) {
        usleep(300000);
        raise(SIGKILL);
    }
    for (;;) bip_tsend(1, 1, words, 100000);
}
