/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* With progress=thread, a node that makes no call serves puts, directed sends and gets. The peer
 * reports by a file, named by the argument, that all of them are complete. */

#include "check.h"

#include <stdint.h>
#include <unistd.h>

enum { PORT = 2, PUTS = 10000, LONG_LEN = 20000, SLOT = 8, SPAN = PUTS * SLOT, EACH_LONG = 1000 };

static struct gm_port *port;
static char *shared, *local;

/* Puts a number into each slot, some longer data behind the slots, and gets that back. */
static void use_remote(gm_remote_ptr_t where) {
    for (unsigned i = 0; i < PUTS; i++) {
        uint64_t number = i * 3;
        int status = UNKNOWN;
        memcpy(local, &number, SLOT);
        if (i % 2)
            gm_put(port, local, where + i * SLOT, SLOT, GM_LOW_PRIORITY, other, PORT, on_sent, &status);
        else
            gm_directed_send_with_callback(port, local, where + i * SLOT, SLOT, GM_LOW_PRIORITY, other, PORT, on_sent,
                                           &status);
        CHECK(status_of(port, &status) == GM_SUCCESS);
        if (i % EACH_LONG != 0) continue;
        fill(local, LONG_LEN, me, i);
        status = UNKNOWN;
        gm_put(port, local, where + SPAN, LONG_LEN, GM_LOW_PRIORITY, other, PORT, on_sent, &status);
        CHECK(status_of(port, &status) == GM_SUCCESS);
        memset(local, 0, LONG_LEN);
        status = UNKNOWN;
        gm_get(port, where + SPAN, local, LONG_LEN, GM_LOW_PRIORITY, other, PORT, on_sent, &status);
        CHECK(status_of(port, &status) == GM_SUCCESS);
        CHECK(is_filled(local, LONG_LEN, me, i));
    }
}

static void check_memory(void) {
    for (unsigned i = 0; i < PUTS; i++) {
        uint64_t number;
        memcpy(&number, shared + i * SLOT, SLOT);
        CHECK(number == i * 3);
    }
    CHECK(is_filled(shared + SPAN, LONG_LEN, other, PUTS - EACH_LONG));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    begin();
    OK(gm_open(&port, 0, PORT, "computing", GM_API_VERSION));
    shared = gm_dma_malloc(port, SPAN + LONG_LEN);
    local = gm_dma_malloc(port, LONG_LEN);
    CHECK(shared && local);
    OK(gm_allow_remote_memory_access(port));
    gm_provide_receive_buffer_with_tag(port, local, 6, GM_LOW_PRIORITY, 0);
    barrier();
    if (me == 1) {
        int status = UNKNOWN;
        static gm_remote_ptr_t at;
        at = (uintptr_t)shared;
        gm_send_to_peer_with_callback(port, &at, 6, sizeof at, GM_LOW_PRIORITY, other, on_sent, &status);
        CHECK(status_of(port, &status) == GM_SUCCESS);
        /* No call from here on. */
        while (access(argv[1], F_OK) != 0) usleep(1000);
        check_memory();
    } else {
        gm_remote_ptr_t where;
        memcpy(&where, bytes_of(next_message(port)), sizeof where);
        use_remote(where);
        FILE *file = fopen(argv[1], "w");
        CHECK(file && fclose(file) == 0);
    }
    barrier();
    gm_dma_free(port, shared);
    gm_dma_free(port, local);
    gm_close(port);
    printf("node %u is done\n", me);
    end();
    return 0;
}
