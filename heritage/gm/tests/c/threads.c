/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Two threads of each process, each with its own port: one waits, in various ways, for a message
 * that the other thread sends. */

#include "check.h"

#include <pthread.h>

enum { ROUNDS = 300 };

static void *echo(void *context) {
    unsigned which = *(unsigned *)context;
    struct gm_port *port;
    char word[8] = "word", buffers[2][16];
    OK(gm_open(&port, 0, 4 + which, "thread", GM_API_VERSION));
    /* Two threads may send to this port at once, and each waits until its message is accepted. */
    for (int i = 0; i < 2; i++) gm_provide_receive_buffer(port, buffers[i], 4, GM_LOW_PRIORITY);
    for (unsigned round = 0; round < ROUNDS; round++) {
        int status = UNKNOWN;
        /* To the other thread, of the other process and of this one alternately. */
        unsigned to = round % 2 ? other : me;
        gm_send_with_callback(port, word, 4, 5, GM_LOW_PRIORITY, to, 5 - which, on_sent, &status);
        gm_recv_event_t *event = next_message(port);
        CHECK(strcmp(bytes_of(event), "word") == 0 && gm_ntoh_u8(event->recv.sender_port_id) == 5 - which);
        gm_provide_receive_buffer(port, gm_ntohp(event->recv.buffer), 4, GM_LOW_PRIORITY);
        CHECK(status_of(port, &status) == GM_SUCCESS);
    }
    gm_close(port);
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    static unsigned numbers[2] = {0, 1};
    begin();
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, echo, &numbers[i]) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    end();
    printf("node %u is done\n", me);
    return 0;
}
