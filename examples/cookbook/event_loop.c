/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Waits for messages and a pipe at once, by poll: portolan run -n 2 -- event_loop PIPE. Rank 0 copies
 * what comes from the pipe to the other ranks, which print it, until the pipe is closed. */
#include "../c/example.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

enum { PORT = 1 };

/* Waits until the pipe, if there is one, or the node is readable. Returns 1 for the pipe. */
static int rest(portolan_node_t *node, int pipe) {
    struct pollfd fds[2] = {{.fd = MUST(portolan_event_fd(node)), .events = POLLIN},
                            {.fd = pipe, .events = POLLIN}};
    poll(fds, pipe >= 0 ? 2 : 1, MUST(portolan_arm(node)) == 1 ? -1 : 0);
    MUST(portolan_disarm(node));
    return pipe >= 0 && fds[1].revents != 0;
}

int main(int argc, char **argv) {
    if (argc != 2) die("usage: event_loop PIPE");
    portolan_node_t *node;
    char text[4096];
    MUST(portolan_join(&node));
    MUST(portolan_open(node, PORT));
    unsigned size = (unsigned)MUST(portolan_size(node));
    int is_source = MUST(portolan_rank(node)) == 0, is_over = size == 1;
    int pipe = is_source ? open(argv[1], O_RDONLY) : -1;
    if (is_source && pipe < 0) die("%s cannot be opened", argv[1]);
    while (!is_over) {
        if (rest(node, pipe)) {
            ssize_t len = read(pipe, text, sizeof text);
            if (len < 0) die("the pipe cannot be read");
            for (unsigned rank = 1; rank < size; rank++)
                MUST(portolan_isend_copy(node, rank, PORT, text, (size_t)len, 0));
            is_over = len == 0;
        }
        while (!is_over && !is_source) {
            portolan_received_t got = PORTOLAN_SIZED(portolan_received_t);
            int result = portolan_recv_for(node, PORT, 0, text, sizeof text, 0, &got);
            if (result == PORTOLAN_ERR_TIMEOUT) break;
            MUST(result);
            printf("%.*s", (int)got.len, text);
            fflush(stdout);
            is_over = got.len == 0;
        }
    }
    MUST(portolan_close(node));
    return 0;
}
