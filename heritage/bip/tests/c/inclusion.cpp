// SPDX-License-Identifier: MIT OR Apache-2.0
// A C++ program: a job of one, in which nothing has come.

#include <bip.h>

int main() {
    bip_taginit(3, BIPSMALLSIZE, 10);
    bip_init();
    if (bip_mynode != 0 || bip_numnodes != 1) return 1;
    int word = 0, id = bip_tirecv(3, &word, 1);
    return bip_rtest(id) == -1 && bip_tnrecv(4, &word, 1) == -1 ? 0 : 2;
}
