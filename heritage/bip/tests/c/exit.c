/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A message sent just before exit() arrives, although its receiver is late. */

#include "check.h"

#include <unistd.h>

int main(void) {
    int word = 42;
    bip_init();
    if (bip_mynode == 0) {
        for (int i = 0; i < 1000; i++) bip_send(1, &word, 1);
        exit(0);
    }
    usleep(200000);
    for (int i = 0; i < 1000; i++) CHECK(bip_recv(&word, 1) == 1 && word == 42);
    puts("all words were received");
    return 0;
}
