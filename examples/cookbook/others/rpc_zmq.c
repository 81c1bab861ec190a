/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The form of ../rpc.c in ZeroMQ, for comparison. Its messages are not authenticated. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define MUST(call) must((call), #call)

static int must(int result, const char *call) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", call, zmq_strerror(errno));
        exit(1);
    }
    return result;
}

static void serve(void *context, const char *endpoint) {
    void *socket = zmq_socket(context, ZMQ_REP);
    MUST(zmq_bind(socket, endpoint));
    printf("listening at %s\n", endpoint);
    fflush(stdout);
    for (;;) {
        zmq_msg_t message;
        zmq_msg_init(&message);
        MUST(zmq_msg_recv(&message, socket, 0));
        char *text = zmq_msg_data(&message);
        for (size_t i = 0; i < zmq_msg_size(&message); i++) text[i] = (char)toupper((unsigned char)text[i]);
        MUST(zmq_msg_send(&message, socket, 0));
    }
}

/* Returns a new socket: one that has lost its request cannot send another one. */
static void *connect_to(void *context, const char *endpoint) {
    void *socket = zmq_socket(context, ZMQ_REQ);
    int patience = 1000 /* ms */, linger = 0;
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &patience, sizeof patience);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    MUST(zmq_connect(socket, endpoint));
    return socket;
}

static void call(void *context, const char *endpoint, const char *text, long count) {
    void *socket = connect_to(context, endpoint);
    for (long done = 0; done < count;) {
        zmq_msg_t reply;
        zmq_msg_init(&reply);
        MUST(zmq_send(socket, text, strlen(text), 0));
        if (zmq_msg_recv(&reply, socket, 0) < 0) {
            zmq_close(socket);
            socket = connect_to(context, endpoint);
            continue;
        }
        if (done++ == 0) printf("%.*s\n", (int)zmq_msg_size(&reply), (char *)zmq_msg_data(&reply));
        zmq_msg_close(&reply);
    }
    printf("%ld calls returned\n", count);
    zmq_close(socket);
}

int main(int argc, char **argv) {
    void *context = zmq_ctx_new();
    if (argc == 3 && strcmp(argv[1], "serve") == 0) serve(context, argv[2]);
    else if (argc == 5 && strcmp(argv[1], "call") == 0) call(context, argv[2], argv[3], atol(argv[4]));
    else return fprintf(stderr, "usage: rpc serve ENDPOINT | rpc call ENDPOINT TEXT COUNT\n"), 1;
    zmq_ctx_term(context);
    return 0;
}
