/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A parameter server that outlives its workers:
 * portolan run -n 4 --on-failure=continue -- parameter_server [STEPS [VICTIM]]
 *
 * A worker's call brings the gradient of its last step, and the reply the next step. The step of a
 * worker that dies is given to another one. Worker VICTIM kills itself at its first reply. */
#include "../c/example.h"

#include <signal.h>

enum { PORT = 1, NO_STEP = 1, RANKS_MAX = 64, STEPS_MAX = 1 << 16, MS = 1000000 };

static void serve(portolan_node_t *node, unsigned workers, uint64_t steps) {
    static uint64_t queue[STEPS_MAX], at[RANKS_MAX], idle_number[RANKS_MAX];
    uint32_t idle[RANKS_MAX], idle_count = 0, lost = 0;
    uint64_t queued = 0, done = 0, parameter = 0;
    while (queued < steps) queue[queued] = queued + 1, queued++; /* 0 is no step */
    while (workers > 0) {
        portolan_peer_event_t event = PORTOLAN_SIZED(portolan_peer_event_t);
        while (MUST(portolan_next_peer_event(node, &event)) == 1) {
            workers--;
            lost += event.kind == PORTOLAN_PEER_LOST;
            if (at[event.rank]) queue[queued++] = at[event.rank];
            at[event.rank] = 0;
        }
        portolan_call_t call = PORTOLAN_SIZED(portolan_call_t);
        int result = portolan_recv_call(node, PORT, 10 * MS, &call);
        if (result == PORTOLAN_OK) {
            if (at[call.source]) parameter += *(uint64_t *)call.memory, done++;
            at[call.source] = 0;
            idle[idle_count] = call.source;
            idle_number[idle_count++] = call.number;
            free(call.memory);
        } else if (result != PORTOLAN_ERR_TIMEOUT && result != PORTOLAN_ERR_NOBODY_LEFT) MUST(result);
        while (idle_count > 0 && (done == steps || queued > 0)) {
            uint32_t worker = idle[--idle_count];
            uint64_t step = queued > 0 ? queue[--queued] : 0;
            at[worker] = step;
            /* The event of a worker that has died follows. */
            portolan_reply(node, worker, idle_number[idle_count], step ? 0 : NO_STEP, &step, sizeof step);
        }
    }
    printf("%llu steps, parameter %llu, %u lost\n", (unsigned long long)steps,
           (unsigned long long)parameter, lost);
}

static void work(portolan_node_t *node, int is_victim) {
    portolan_reply_t reply = PORTOLAN_SIZED(portolan_reply_t);
    uint64_t gradient = 0, *step;
    for (;;) {
        MUST(portolan_call(node, 0, PORT, &gradient, sizeof gradient, UINT64_MAX, (void **)&step, &reply));
        gradient = (*step - 1) * (*step - 1);
        free(step);
        if (is_victim) raise(SIGKILL);
        if (reply.status == NO_STEP) return;
    }
}

int main(int argc, char **argv) {
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
    int victim = argc > 2 ? atoi(argv[2]) : -1;
    portolan_node_t *node;
    MUST(portolan_join(&node));
    int rank = MUST(portolan_rank(node)), size = MUST(portolan_size(node));
    if (size > RANKS_MAX || steps >= STEPS_MAX) die("at most %d processes, %d steps", RANKS_MAX, STEPS_MAX);
    MUST(portolan_open(node, PORT));
    if (rank == 0) serve(node, (unsigned)size - 1, steps);
    else work(node, rank == victim);
    MUST(portolan_close(node));
    return 0;
}
