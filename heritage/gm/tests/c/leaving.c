/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Messages for a process that has returned from main() are not written to memory, which the program
 * no longer owns. */

#include "check.h"

#include <unistd.h>

enum { PORT = 2, LEN = 1000, SIZE = 10 };

static char *shared, *provided;

/* Registered before the library's own function, so it runs after that. */
static void check_memory(void) {
    if (me != 2) return;
    for (int i = 0; i < LEN; i++)
        if (shared[i] != 0x5a || provided[i] != 0x5a) {
            fprintf(stderr, "byte %d was written\n", i);
            _exit(1);
        }
    printf("nothing was written\n");
}

int main(void) {
    struct gm_port *port;
    CHECK(atexit(check_memory) == 0);
    shared = malloc(1 << SIZE), provided = malloc(1 << SIZE);
    CHECK(shared && provided);
    memset(shared, 0x5a, 1 << SIZE);
    memset(provided, 0x5a, 1 << SIZE);
    begin();
    OK(gm_open(&port, 0, PORT, "port", GM_API_VERSION));
    static char word[8];
    gm_provide_receive_buffer(port, word, 4, GM_HIGH_PRIORITY);
    OK(gm_allow_remote_memory_access(port));
    barrier();
    gm_send_to_peer_with_callback(port, &shared, 4, 8, GM_HIGH_PRIORITY, other, on_sent, NULL);
    gm_recv_event_t *event = next_message(port);
    void *there;
    memcpy(&there, bytes_of(event), sizeof there);
    if (me == 2) {
        OK(gm_register_memory(port, shared, LEN));
        gm_provide_receive_buffer(port, provided, SIZE, GM_LOW_PRIORITY);
        barrier();
        return 0;
    }
    barrier();
    /* Within the second for which the other process waits. If that process is slow, the bytes
     * arrive too early or too late, and the test shows nothing. */
    for (int i = 0; i < 100; i++) {
        usleep(2000);
        put_aside(port, gm_receive(port));
    }
    static char bytes[LEN];
    gm_remote_ptr_t far = (gm_remote_ptr_t)(size_t)there;
    gm_put(port, bytes, far, LEN, GM_HIGH_PRIORITY, other, PORT, on_sent, NULL);
    gm_send_to_peer_with_callback(port, bytes, SIZE, LEN, GM_LOW_PRIORITY, other, on_sent, NULL);
    for (int i = 0; i < 1000; i++) put_aside(port, gm_receive(port));
    return 0;
}
