/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One node aborts the group, from a handler if there is an argument. The other nodes wait in
 * vain. */

#include "check.h"

enum { PORT = 1 };

static void on_message(void) { gamma_abort(); }

int main(int argc, char **argv) {
    static char buffer[4];
    FAILS(GAMMA_ERR_NOT_INITIALISED, "gamma_init", gamma_abort());
    OK(gamma_init(0, argc, argv));
    OK(gamma_set_active_port(PORT, 0, (unsigned char)gamma_my_par_pid(), PORT, on_message, 1,
                             GO_BACK, buffer, sizeof buffer));
    OK(gamma_sync());
    if (gamma_my_node() == 1) {
        if (argc == 1) gamma_abort();
        OK(gamma_send(PORT, "end", 3));
    }
    int code = gamma_wait(2, 1);
    printf("gamma_wait returned %d: %s\n", code, gamma_last_error());
    return 3;
}
