/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Closes a port with long sends that no receiver has taken: when gm_close() has returned, their
 * bytes may be freed. */

#include "check.h"

#include <sys/mman.h>

enum { PORT = 2, SIZE = 22, SENDS = 8, ROUNDS = 5 };

int main(void) {
    enum { LEN = (1 << SIZE) - 8 };
    struct gm_port *port;
    begin();
    for (unsigned round = 0; round < ROUNDS; round++) {
        OK(gm_open(&port, 0, PORT, "port", GM_API_VERSION));
        barrier();
        if (me == 1) {
            size_t len = (size_t)1 << SIZE;
            char *bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(bytes != MAP_FAILED);
            memset(bytes, 'x', len);
            for (int i = 0; i < SENDS; i++)
                gm_send_to_peer_with_callback(port, bytes, SIZE, LEN, GM_LOW_PRIORITY, other, on_sent, NULL);
            gm_close(port);
            CHECK(munmap(bytes, len) == 0);
        }
        barrier();
        if (me == 2) gm_close(port);
        barrier();
    }
    end();
    printf("node %u is done\n", me);
    return 0;
}
