/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What comes for a process that has returned from main() is written nowhere: its memory is no program's
 * any more. */

#include "check.h"

#include <unistd.h>

enum { LEN = 100, TAG = 3 };

static int words[2][LEN];

/* Registered before the library's own, so it runs after that. */
static void look(void) {
    if (bip_mynode != 1) return;
    for (int i = 0; i < LEN; i++)
        if (words[0][i] || words[1][i]) {
            fprintf(stderr, "word %d was written\n", i);
            _exit(1);
        }
    printf("nothing was written\n");
}

int main(void) {
    CHECK(atexit(look) == 0);
    bip_init();
    if (bip_mynode == 1) {
        bip_tirecv(TAG, words[0], LEN);
        bip_irecv(words[1], LEN);
        return 0;
    }
    /* Within the second for which the other one waits; if it is slow, there is nothing to see. */
    usleep(200000);
    int out[10];
    fill(out, 10, 0, 1);
    bip_tsend(1, TAG, out, 10);
    bip_send(1, out, 10);
    return 0;
}
