/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A server in a child process, and a client that finds it, loses it when it is killed, and finds its
 * successor. */

#include "check.h"

#include <signal.h>
#include <sys/socket.h>
#include <arpa/inet.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PORT = 7 };
static const uint64_t LONG = 60ull * 1000 * 1000 * 1000;
static const char SECRET[] = "known to the test only";

/* Returns a port that no process listens at. */
static int free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    close(fd);
    return ntohs(at.sin_port);
}

/* Answers calls until it is killed. */
static void serve(const char *address, uint32_t status) {
    portolan_node_t *node;
    portolan_call_t call = PORTOLAN_SIZED(portolan_call_t);
    OK(portolan_standalone(&node));
    OK(portolan_open(node, PORT));
    CHECK(portolan_listen(node, address, SECRET, sizeof SECRET) > 0);
    for (;;) {
        OK(portolan_recv_call(node, PORT, LONG, &call));
        OK(portolan_reply(node, call.source, call.number, status, call.memory, call.len));
        free(call.memory);
    }
}

static pid_t start(const char *address, uint32_t status) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char text[16];
        snprintf(text, sizeof text, "%u", status);
        execl("/proc/self/exe", "server", address, text, (char *)NULL);
        _exit(1);
    }
    return child;
}

static int never(void *user) {
    (void)user;
    return 0;
}

static portolan_peer_event_t next_event(portolan_node_t *node, uint32_t kind) {
    portolan_peer_event_t event = PORTOLAN_SIZED(portolan_peer_event_t);
    while (portolan_next_peer_event(node, &event) == 0)
        CHECK(portolan_wait_until_for(node, never, NULL, 5000000) == PORTOLAN_ERR_TIMEOUT);
    CHECK(event.kind == kind);
    return event;
}

static void call(portolan_node_t *node, uint32_t server, uint32_t status) {
    void *bytes;
    portolan_reply_t reply = PORTOLAN_SIZED(portolan_reply_t);
    OK(portolan_call(node, server, PORT, "ahoy", 4, LONG, &bytes, &reply));
    CHECK(reply.len == 4 && memcmp(bytes, "ahoy", 4) == 0 && reply.status == status);
    free(bytes);
}

int main(int argc, char **argv) {
    char address[32];
    portolan_node_t *node;
    if (argc == 3) serve(argv[1], (uint32_t)atoi(argv[2]));
    portolan_peer_t peer = PORTOLAN_SIZED(portolan_peer_t), next = peer;
    snprintf(address, sizeof address, "127.0.0.1:%d", free_port());
    pid_t server = start(address, 1);
    OK(portolan_standalone(&node));
    FAILS(PORTOLAN_ERR_ADDRESS, "nowhere", portolan_listen(node, "nowhere", SECRET, 4));
    FAILS(PORTOLAN_ERR_SETTING, "secret", portolan_listen(node, address, NULL, 0));
    OK(portolan_connect(node, address, SECRET, sizeof SECRET, LONG, &peer));
    FAILS(PORTOLAN_ERR_SERVER_REFUSED, "secret",
          portolan_connect(node, address, "a guess", 7, LONG, &next));
    CHECK(next_event(node, PORTOLAN_PEER_JOINED).rank == peer.rank);
    call(node, peer.rank, 1);
    CHECK(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
    portolan_peer_event_t lost = next_event(node, PORTOLAN_PEER_LOST);
    CHECK(lost.rank == peer.rank && lost.generation == peer.generation);
    FAILS(PORTOLAN_ERR_NO_SERVER, address,
          portolan_connect(node, address, SECRET, sizeof SECRET, 1000000, &next));
    server = start(address, 2);
    OK(portolan_connect(node, address, SECRET, sizeof SECRET, LONG, &next));
    CHECK(next.rank != peer.rank || next.generation != peer.generation);
    call(node, next.rank, 2);
    OK(portolan_disconnect(node, peer.rank, peer.generation));
    OK(portolan_disconnect(node, next.rank, next.generation));
    FAILS(PORTOLAN_ERR_PEER_GONE, "disconnected",
          portolan_send(node, next.rank, PORT, "late", 4, 0));
    CHECK(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
    OK(portolan_close(node));
    puts("the server was found twice");
    return 0;
}
