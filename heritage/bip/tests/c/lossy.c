/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The network loses one frame in ten. All messages still arrive once, in order and intact. BIP
 * could not recover from losses, and would have ended the job. */

#include "check.h"

enum { SHORT_COUNT = 2000, LONG_COUNT = 20, LONG_LEN = 30000 };

static int len_of(int number) { return number < SHORT_COUNT ? number % (BIPSMALLSIZE + 1) : LONG_LEN + number; }

int main(void) {
    static int out[LONG_LEN * 2], in[LONG_LEN * 2];
    bip_init();
    int other = 1 - bip_mynode;
    for (int number = 0; number < SHORT_COUNT + LONG_COUNT; number++) {
        int len = len_of(number), tag = number % 3;
        fill(out, len, bip_mynode, number);
        int receive = bip_tirecv(tag, in, LONG_LEN * 2);
        int send = bip_tisend(other, tag, out, len);
        CHECK(bip_rwait(receive) == len && is_filled(in, len, other, number));
        bip_swait(send);
        memset(out, 0xa5, sizeof *out * (size_t)len);
    }
    printf("node %d has all messages\n", bip_mynode);
    return 0;
}
