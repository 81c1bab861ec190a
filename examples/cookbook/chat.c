/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A chat: chat serve ADDRESS, and chat join ADDRESS NAME with lines on standard input. */
#include "../c/example.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { PORT = 7, MEMBERS_MAX = 1024 };
static const char SECRET[] = "16 random bytes or more, from a file";

/* Sleeps until the node, or standard input if it is awaited, may have something. */
static int rest(portolan_node_t *node, int with_input) {
    struct pollfd fds[2] = {{.fd = MUST(portolan_event_fd(node)), .events = POLLIN},
                            {.fd = STDIN_FILENO, .events = POLLIN}};
    poll(fds, with_input ? 2 : 1, MUST(portolan_arm(node)) == 1 ? -1 : 0);
    MUST(portolan_disarm(node));
    return with_input && fds[1].revents != 0;
}

/* Passes each message on to all members. */
static void serve(portolan_node_t *node, const char *address) {
    static char is_member[MEMBERS_MAX];
    printf("listening at port %d\n", MUST(portolan_listen(node, address, SECRET, sizeof SECRET - 1)));
    fflush(stdout);
    for (;; rest(node, 0)) {
        portolan_peer_event_t event = PORTOLAN_SIZED(portolan_peer_event_t);
        while (MUST(portolan_next_peer_event(node, &event)) == 1)
            if (event.rank < MEMBERS_MAX) is_member[event.rank] = event.kind == PORTOLAN_PEER_JOINED;
        char text[4096];
        portolan_received_t got = PORTOLAN_SIZED(portolan_received_t);
        while (portolan_recv_for(node, PORT, PORTOLAN_ANY_SOURCE, text, sizeof text, 0, &got) == PORTOLAN_OK)
            for (unsigned rank = 0; rank < MEMBERS_MAX; rank++)
                if (is_member[rank]) portolan_isend_copy(node, rank, PORT, text, got.len, 0);
    }
}

static void join(portolan_node_t *node, const char *address, const char *name) {
    portolan_peer_t server = PORTOLAN_SIZED(portolan_peer_t);
    MUST(portolan_connect(node, address, SECRET, sizeof SECRET - 1, 30000000000, &server));
    for (;;) {
        char line[1024], text[4096];
        if (rest(node, 1)) {
            if (!fgets(line, sizeof line, stdin)) return;
            int len = snprintf(text, sizeof text, "%s: %.*s", name, (int)strcspn(line, "\n"), line);
            MUST(portolan_send(node, server.rank, PORT, text, (size_t)len, 0));
        }
        portolan_received_t got = PORTOLAN_SIZED(portolan_received_t);
        while (portolan_recv_for(node, PORT, server.rank, text, sizeof text, 0, &got) == PORTOLAN_OK)
            printf("%.*s\n", (int)got.len, text);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    portolan_node_t *node;
    setvbuf(stdin, NULL, _IONBF, 0); /* `poll` does not know the buffer */
    MUST(portolan_standalone(&node));
    MUST(portolan_open(node, PORT));
    if (argc == 3 && strcmp(argv[1], "serve") == 0) serve(node, argv[2]);
    else if (argc == 4 && strcmp(argv[1], "join") == 0) join(node, argv[2], argv[3]);
    else die("usage: chat serve ADDRESS | chat join ADDRESS NAME");
    MUST(portolan_close(node));
    return 0;
}
