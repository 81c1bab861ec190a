/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A parameter server that outlives its workers:
 * `portolan run -n 4 --on-failure=continue -- parameters [STEPS [VICTIM AFTER]]`.
 *
  * Rank 0 holds a parameter and assigns steps; each worker answers a step with a gradient. When a
  * worker dies, the server takes the peer event and assigns the worker's step to another worker. At
  * the end the survivors form a new group and sum the numbers of steps that they have done.
  * Worker VICTIM kills itself after AFTER steps. */
#include "example.h"

#include <poll.h>
#include <signal.h>
#include <string.h>

enum { STEP_PORT = 1, GRADIENT_PORT = 2, RANKS_MAX = 64, GROUP = 1 };

/* Message from the server: a step and the current parameter, or the end and the survivors. */
struct step {
    int64_t number; /* -1: the end */
    int64_t parameter;
    uint32_t survivors[RANKS_MAX];
    uint32_t survivor_count;
};

struct gradient {
    int64_t number;
    int64_t value;
};

struct server {
    portolan_node_t *node;
    uint32_t size;
    int64_t steps, next, done, parameter;
    int64_t at[RANKS_MAX]; /* the step of each worker, -1 for none */
    int64_t again[RANKS_MAX]; /* steps of dead workers */
    uint32_t again_count, lost_count;
    int dead[RANKS_MAX];
};

static void lose(struct server *server, uint32_t rank) {
    if (rank == 0 || server->dead[rank]) return;
    server->dead[rank] = 1;
    server->lost_count++;
    if (server->at[rank] >= 0) server->again[server->again_count++] = server->at[rank];
    server->at[rank] = -1;
    if (server->lost_count == server->size - 1) die("no worker is left");
}

/* Assigns a step to each idle worker, while steps are left. */
static void hand_out(struct server *server) {
    for (uint32_t rank = 1; rank < server->size; rank++) {
        if (server->dead[rank] || server->at[rank] >= 0) continue;
        int64_t number;
        if (server->again_count > 0) number = server->again[--server->again_count];
        else if (server->next < server->steps) number = server->next++;
        else return;
        server->at[rank] = number;
        struct step step = {.number = number, .parameter = server->parameter};
        int sent = portolan_send(server->node, rank, STEP_PORT, &step, sizeof step, 0);
        if (sent == PORTOLAN_ERR_PEER_GONE) lose(server, rank);
        else MUST(sent);
    }
}

static void hear_of_deaths(struct server *server) {
    portolan_peer_event_t event = PORTOLAN_SIZED(portolan_peer_event_t);
    while (MUST(portolan_next_peer_event(server->node, &event)) == 1) {
        fprintf(stderr, "the server goes on without worker %u: %s\n", event.rank, event.reason);
        lose(server, event.rank);
    }
}

/* Sleeps until an event may be pending. */
static void rest(portolan_node_t *node) {
    struct pollfd fd = {.fd = MUST(portolan_event_fd(node)), .events = POLLIN};
    if (MUST(portolan_arm(node)) == 1) poll(&fd, 1, -1);
    MUST(portolan_disarm(node));
}

static void serve(struct server *server) {
    struct gradient gradient;
    portolan_request_t request = 0;
    while (server->done < server->steps) {
        hear_of_deaths(server);
        hand_out(server);
        if (request == 0)
            MUST(portolan_post_recv(server->node, GRADIENT_PORT, PORTOLAN_ANY_SOURCE, &gradient,
                                    sizeof gradient, &request));
        portolan_completion_t completion = PORTOLAN_SIZED(portolan_completion_t);
        if (MUST(portolan_test(server->node, request, &completion)) == PORTOLAN_PENDING) {
            rest(server->node);
            continue;
        }
        request = 0;
        /* A gradient sent before a worker's death counts, unless its step was assigned again. */
        if (server->at[completion.source] != gradient.number) continue;
        server->at[completion.source] = -1;
        server->parameter += gradient.value;
        server->done++;
    }
}

/* Sums the steps of the survivors, which all pass the same members in the same order. */
static int64_t add_up(portolan_node_t *node, const struct step *end, int64_t done) {
    portolan_group_t *group = NULL;
    MUST(portolan_group_new(node, GROUP, end->survivors, end->survivor_count, &group));
    MUST(portolan_allreduce(node, group, PORTOLAN_SUM, PORTOLAN_INT64, &done, 1));
    portolan_group_free(group);
    return done;
}

static void run_server(portolan_node_t *node, uint32_t size, int64_t steps) {
    struct server server = {.node = node, .size = size, .steps = steps};
    memset(server.at, -1, sizeof server.at);
    serve(&server);
    struct step end = {.number = -1};
    for (uint32_t rank = 0; rank < size; rank++)
        if (!server.dead[rank]) end.survivors[end.survivor_count++] = rank;
    for (uint32_t i = 1; i < end.survivor_count; i++)
        MUST(portolan_send(node, end.survivors[i], STEP_PORT, &end, sizeof end, 0));
    int64_t done = add_up(node, &end, 0);
    printf("%lld steps, parameter %lld, %u lost, %u survivors\n", (long long)steps,
           (long long)server.parameter, server.lost_count, end.survivor_count);
    if (server.lost_count == 0 && done != steps) die("the survivors have done %lld", (long long)done);
}

static void work(portolan_node_t *node, int64_t die_after) {
    int64_t done = 0;
    for (;;) {
        struct step step;
        MUST(portolan_recv(node, STEP_PORT, 0, &step, sizeof step, NULL));
        if (step.number < 0) {
            add_up(node, &step, done);
            return;
        }
        if (done == die_after) raise(SIGKILL);
        struct gradient gradient = {.number = step.number, .value = step.number * step.number};
        MUST(portolan_send(node, 0, GRADIENT_PORT, &gradient, sizeof gradient, 0));
        done++;
    }
}

int main(int argc, char **argv) {
    int64_t steps = argc > 1 ? atoll(argv[1]) : 100;
    int64_t victim = argc > 3 ? atoll(argv[2]) : -1;
    int64_t after = argc > 3 ? atoll(argv[3]) : -1;
    portolan_node_t *node = NULL;
    MUST(portolan_join(&node));
    uint32_t rank = (uint32_t)MUST(portolan_rank(node));
    uint32_t size = (uint32_t)MUST(portolan_size(node));
    if (size < 2 || size > RANKS_MAX) die("start 2 to %d processes", RANKS_MAX);
    MUST(portolan_open(node, STEP_PORT));
    MUST(portolan_open(node, GRADIENT_PORT));
    if (rank == 0) run_server(node, size, steps);
    else work(node, rank == victim ? after : -1);
    MUST(portolan_close(node));
    return 0;
}
