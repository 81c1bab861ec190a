/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Types and constants of gamma.h as a C compiler sees them. header.rs compares them with Rust's.
 * The known types of GAMMA are asserted. */

#include <gamma.h>
#include <gamma.h>

#include <stdio.h>

#define IS(function, type) _Static_assert(_Generic(&(function), type: 1, default: 0), #function)

typedef unsigned char byte;
typedef unsigned short number;
typedef unsigned long length;

IS(gamma_init, int (*)(byte, int, char **));
IS(gamma_exit, int (*)(void));
IS(gamma_abort, int (*)(void));
IS(gamma_set_active_port,
   int (*)(number, number, byte, number, void (*)(void), number, byte, void *, length));
IS(gamma_set_passive_port, int (*)(number, number, byte, number, number, byte, void *, length));
IS(gamma_post_recv, int (*)(number, void *, length));
IS(gamma_send, int (*)(number, const void *, length));
IS(gamma_send_flowctl, int (*)(number, const void *, length));
IS(gamma_send_2p, int (*)(number, const void *, length, const void *, length));
IS(gamma_isend, int (*)(number, const void *, length));
IS(gamma_wait, int (*)(number, unsigned));
IS(gamma_signal, int (*)(number));
IS(gamma_my_node, int (*)(void));
IS(gamma_handle_at_once, int (*)(number));
IS(gamma_how_many_groups, int (*)(void));
IS(gamma_group_par_pid, int (*)(int));
IS(gamma_group_nodes, int (*)(byte));
IS(gamma_time_diff, double (*)(gamma_time_t, gamma_time_t));
IS(gamma_active_port, number *);
IS(gamma_msglen, length *);

int main(void) {
    printf("gamma_time_t %zu %zu\n", sizeof(gamma_time_t), _Alignof(gamma_time_t));
    printf("gamma_handler_t %zu\n", sizeof(gamma_handler_t));
    printf("gamma_active_port %zu\n", sizeof gamma_active_port);
    printf("gamma_msglen %zu\n", sizeof gamma_msglen);
    printf("GO_BACK %d\nGO_FORTH %d\n", GO_BACK, GO_FORTH);
    return 0;
}
