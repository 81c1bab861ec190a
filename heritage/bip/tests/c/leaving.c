/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A message for a process that has returned from main() is not written to its memory, which may be
 * invalid. */

#include "check.h"

#include <unistd.h>

enum { LEN = 100, TAG = 3 };

static int words[2][LEN];

/* Registered before the library's own exit handler, so it runs after that. */
static void check_memory(void) {
    if (bip_mynode != 1) return;
    for (int i = 0; i < LEN; i++)
        if (words[0][i] || words[1][i]) {
            fprintf(stderr, "word %d was written\n", i);
            _exit(1);
        }
    printf("nothing was written\n");
}

int main(void) {
    CHECK(atexit(check_memory) == 0);
    bip_init();
    if (bip_mynode == 1) {
        bip_tirecv(TAG, words[0], LEN);
        bip_irecv(words[1], LEN);
        return 0;
    }
    /* The other process waits for one second. If this one is later, the test cannot detect an
     * error. */
    usleep(200000);
    int out[10];
    fill(out, 10, 0, 1);
    bip_tsend(1, TAG, out, 10);
    bip_send(1, out, 10);
    return 0;
}
