/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Types and constants of bip.h as a C compiler sees them. header.rs compares them with Rust's. The
 * known types of BIP are asserted. */

#include <bip.h>
#include <bip.h>

#include <stdio.h>

#define IS(function, type) _Static_assert(_Generic(&(function), type: 1, default: 0), #function)

IS(bip_init, void (*)(void));
IS(bip_taginit, void (*)(int, int, int));
IS(bip_send, void (*)(int, const int *, int));
IS(bip_recv, int (*)(int *, int));
IS(bip_isend, int (*)(int, const int *, int));
IS(bip_irecv, int (*)(int *, int));
IS(bip_tsend, void (*)(int, int, const int *, int));
IS(bip_trecv, int (*)(int, int *, int));
IS(bip_trecvx, int (*)(int, int *, int, int *));
IS(bip_tisend, int (*)(int, int, const int *, int));
IS(bip_swait, void (*)(int));
IS(bip_stest, int (*)(int));
IS(bip_tirecv, int (*)(int, int *, int));
IS(bip_rwait, int (*)(int));
IS(bip_rtest, int (*)(int));
IS(bip_rwaitx, int (*)(int, int *));
IS(bip_rtestx, int (*)(int, int *));
IS(bip_tnrecv, int (*)(int, int *, int));
IS(bip_tnrecvx, int (*)(int, int *, int, int *));
IS(bip_tgetmsg, int *(*)(int, int *, int *));
IS(bip_tngetmsg, int *(*)(int, int *, int *));
IS(bip_tfreemsg, void (*)(int));
IS(bip_mynode, int *);
IS(bip_numnodes, int *);

int main(void) {
    printf("BIPSMALLSIZE %d\nBIPMAXTAG %d\n", BIPSMALLSIZE, BIPMAXTAG);
    printf("before %d %d\n", bip_mynode, bip_numnodes);
    return 0;
}
