/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A server and its clients, without a launcher: rpc serve ADDRESS and rpc call ADDRESS TEXT COUNT.
 * The server returns texts in capitals. A client finds a restarted server again. */
#include "../c/example.h"

#include <ctype.h>
#include <string.h>

enum { PORT = 7 };
static const char SECRET[] = "16 random bytes or more, from a file";
static const uint64_t PATIENCE = 30000000000; /* ns */

static void serve(portolan_node_t *node, const char *address) {
    MUST(portolan_open(node, PORT));
    printf("listening at port %d\n", MUST(portolan_listen(node, address, SECRET, sizeof SECRET - 1)));
    fflush(stdout);
    for (;;) {
        portolan_call_t call = PORTOLAN_SIZED(portolan_call_t);
        MUST(portolan_recv_call(node, PORT, UINT64_MAX, &call));
        char *text = call.memory;
        for (size_t i = 0; i < call.len; i++) text[i] = (char)toupper((unsigned char)text[i]);
        /* The client may have ended. */
        portolan_reply(node, call.source, call.number, 0, text, call.len);
        free(text);
    }
}

static void call(portolan_node_t *node, const char *address, const char *text, long count) {
    portolan_peer_t server = PORTOLAN_SIZED(portolan_peer_t);
    portolan_reply_t reply = PORTOLAN_SIZED(portolan_reply_t);
    for (long done = 0; done < count;) {
        void *bytes;
        if (server.rank == 0)
            MUST(portolan_connect(node, address, SECRET, sizeof SECRET - 1, PATIENCE, &server));
        int result = portolan_call(node, server.rank, PORT, text, strlen(text), PATIENCE, &bytes, &reply);
        if (result == PORTOLAN_ERR_PEER_GONE) {
            server.rank = 0;
            continue;
        }
        MUST(result);
        if (done++ == 0) printf("%.*s\n", (int)reply.len, (char *)bytes);
        free(bytes);
    }
    printf("%ld calls returned\n", count);
}

int main(int argc, char **argv) {
    portolan_node_t *node;
    MUST(portolan_standalone(&node));
    if (argc == 3 && strcmp(argv[1], "serve") == 0) serve(node, argv[2]);
    else if (argc == 5 && strcmp(argv[1], "call") == 0) call(node, argv[2], argv[3], atol(argv[4]));
    else die("usage: rpc serve ADDRESS | rpc call ADDRESS TEXT COUNT");
    MUST(portolan_close(node));
    return 0;
}
