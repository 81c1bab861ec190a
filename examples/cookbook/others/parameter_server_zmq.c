/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The form of ../parameter_server.c in ZeroMQ, for comparison. The program starts its own workers, and
 * takes a worker for dead after five seconds of silence, since ZeroMQ reports no deaths. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

enum { STEPS_MAX = 1 << 16, WORKERS_MAX = 64, SILENCE_MS = 5000 };
static const char ENDPOINT[] = "tcp://127.0.0.1:%d";

#define MUST(call) must((call), #call)

static int must(int result, const char *call) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", call, zmq_strerror(errno));
        exit(1);
    }
    return result;
}

static void serve(void *socket, uint32_t workers, uint64_t steps) {
    static uint64_t queue[STEPS_MAX], at[WORKERS_MAX];
    static char is_lost[WORKERS_MAX];
    uint32_t idle[WORKERS_MAX], idle_count = 0, lost = 0;
    uint64_t queued = 0, done = 0, parameter = 0;
    while (queued < steps) queue[queued] = queued + 1, queued++; /* 0 is no step */
    while (workers > 0) {
        struct { uint32_t worker; uint64_t gradient; } call;
        if (zmq_recv(socket, &call.worker, sizeof call.worker, 0) < 0) {
            for (uint32_t worker = 0; worker < WORKERS_MAX; worker++) {
                if (!at[worker]) continue;
                queue[queued++] = at[worker];
                at[worker] = 0;
                if (!is_lost[worker]) workers--, lost++;
                is_lost[worker] = 1;
            }
        } else {
            MUST(zmq_recv(socket, NULL, 0, 0)); /* the delimiter of a request */
            MUST(zmq_recv(socket, &call.gradient, sizeof call.gradient, 0));
            if (call.worker >= WORKERS_MAX) continue;
            if (at[call.worker]) parameter += call.gradient, done++;
            at[call.worker] = 0;
            idle[idle_count++] = call.worker;
        }
        while (idle_count > 0 && (done == steps || queued > 0)) {
            uint32_t worker = idle[--idle_count];
            uint64_t step = queued > 0 ? queue[--queued] : 0;
            at[worker] = step;
            workers -= step == 0 && !is_lost[worker];
            zmq_send(socket, &worker, sizeof worker, ZMQ_SNDMORE);
            zmq_send(socket, "", 0, ZMQ_SNDMORE);
            zmq_send(socket, &step, sizeof step, 0);
        }
    }
    printf("%" PRIu64 " steps, parameter %" PRIu64 ", %u lost\n", steps, parameter, lost);
}

static void work(uint32_t rank, int port, int is_victim) {
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_REQ);
    char endpoint[32];
    uint64_t gradient = 0, step;
    snprintf(endpoint, sizeof endpoint, ENDPOINT, port);
    zmq_setsockopt(socket, ZMQ_ROUTING_ID, &rank, sizeof rank);
    MUST(zmq_connect(socket, endpoint));
    for (;;) {
        MUST(zmq_send(socket, &gradient, sizeof gradient, 0));
        MUST(zmq_recv(socket, &step, sizeof step, 0));
        if (is_victim) raise(SIGKILL);
        if (step == 0) exit(0);
        gradient = (step - 1) * (step - 1);
    }
}

int main(int argc, char **argv) {
    uint64_t steps = argc > 3 ? strtoull(argv[3], NULL, 10) : 100;
    uint32_t workers = argc > 1 ? (uint32_t)atoi(argv[1]) : 3, victim = argc > 4 ? (uint32_t)atoi(argv[4]) : 0;
    int port = argc > 2 ? atoi(argv[2]) : 7000, silence = SILENCE_MS;
    char endpoint[32];
    if (workers >= WORKERS_MAX || steps >= STEPS_MAX) return fprintf(stderr, "too many workers or steps\n"), 1;
    for (uint32_t rank = 1; rank <= workers; rank++)
        if (fork() == 0) work(rank, port, rank == victim);
    snprintf(endpoint, sizeof endpoint, ENDPOINT, port);
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_ROUTER);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &silence, sizeof silence);
    MUST(zmq_bind(socket, endpoint));
    serve(socket, workers, steps);
    zmq_close(socket);
    zmq_ctx_term(context);
    return 0;
}
