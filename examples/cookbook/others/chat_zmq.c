/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The form of ../chat.c in ZeroMQ, for comparison. Its messages are not authenticated. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#define MUST(call) must((call), #call)

static int must(int result, const char *call) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", call, zmq_strerror(errno));
        exit(1);
    }
    return result;
}

/* Passes each message on to all members. */
static void serve(void *context, const char *words, const char *news) {
    void *pull = zmq_socket(context, ZMQ_PULL), *publish = zmq_socket(context, ZMQ_PUB);
    MUST(zmq_bind(pull, words));
    MUST(zmq_bind(publish, news));
    printf("listening at %s and %s\n", words, news);
    fflush(stdout);
    for (;;) {
        zmq_msg_t message;
        zmq_msg_init(&message);
        MUST(zmq_msg_recv(&message, pull, 0));
        MUST(zmq_msg_send(&message, publish, 0));
    }
}

static void join(void *context, const char *words, const char *news, const char *name) {
    void *push = zmq_socket(context, ZMQ_PUSH), *subscribe = zmq_socket(context, ZMQ_SUB);
    MUST(zmq_connect(push, words));
    MUST(zmq_connect(subscribe, news));
    zmq_setsockopt(subscribe, ZMQ_SUBSCRIBE, "", 0);
    zmq_pollitem_t items[] = {{.socket = subscribe, .events = ZMQ_POLLIN},
                              {.fd = STDIN_FILENO, .events = ZMQ_POLLIN}};
    for (;;) {
        char line[1024], text[4096];
        MUST(zmq_poll(items, 2, -1));
        if (items[1].revents) {
            if (!fgets(line, sizeof line, stdin)) break;
            int len = snprintf(text, sizeof text, "%s: %.*s", name, (int)strcspn(line, "\n"), line);
            MUST(zmq_send(push, text, (size_t)len, 0));
        }
        if (items[0].revents) {
            int len = MUST(zmq_recv(subscribe, text, sizeof text, 0));
            printf("%.*s\n", len, text);
            fflush(stdout);
        }
    }
    zmq_close(push);
    zmq_close(subscribe);
}

int main(int argc, char **argv) {
    void *context = zmq_ctx_new();
    setvbuf(stdin, NULL, _IONBF, 0); /* `zmq_poll` does not know the buffer */
    if (argc == 4 && strcmp(argv[1], "serve") == 0) serve(context, argv[2], argv[3]);
    else if (argc == 5 && strcmp(argv[1], "join") == 0) join(context, argv[2], argv[3], argv[4]);
    else return fprintf(stderr, "usage: chat serve WORDS NEWS | chat join WORDS NEWS NAME\n"), 1;
    zmq_ctx_term(context);
    return 0;
}
