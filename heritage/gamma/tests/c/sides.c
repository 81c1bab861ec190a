/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Several groups in one job. The argument is the number of nodes of each group. Every node sends to
 * the nodes with its index in all groups, its own included, and the groups run different numbers of
 * barriers and broadcasts in the meantime. */

#include "check.h"

enum { GROUPS_MAX = 8, ROUNDS = 100, SEMAPHORE = 1 };

struct word {
    int group, node, round;
};

static struct word in[GROUPS_MAX];
static int received[GROUPS_MAX], own, me;

/* Port `group` receives from that group. */
static void on_word(void) {
    int group = gamma_active_port;
    struct word *word = &in[group];
    CHECK(gamma_msglen == sizeof *word && word->group == group && word->node == me);
    CHECK(word->round == received[group]++);
    OK(gamma_signal(SEMAPHORE));
}

static void collectives(int nodes) {
    for (int i = 0; i < 10 * own; i++) {
        int root = i % nodes, agreed = me == root ? own * 1000 + i : 0;
        OK(gamma_broadcast((unsigned short)root, &agreed, sizeof agreed));
        CHECK(agreed == own * 1000 + i);
        OK(gamma_sync());
    }
}

/* Groups have no barrier in common: a message for a port that is not set yet waits. */
static void exchange(int groups) {
    for (int round = 0; round < ROUNDS; round++) {
        for (int group = 0; group < groups; group++) {
            struct word word = {own, me, round};
            OK(gamma_send_flowctl((unsigned short)group, &word, sizeof word));
        }
        OK(gamma_wait(SEMAPHORE, (unsigned)groups));
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int nodes = atoi(argv[1]);
    OK(gamma_init((unsigned char)nodes, argc, argv));
    int groups = gamma_how_many_groups();
    me = gamma_my_node();
    CHECK(groups >= 2 && groups <= GROUPS_MAX && gamma_how_many_nodes() == nodes && me < nodes);
    own = -1;
    for (int group = 0; group < groups; group++) {
        unsigned char pid = (unsigned char)gamma_group_par_pid(group);
        CHECK(gamma_group_nodes(pid) == nodes);
        if (pid == gamma_my_par_pid()) own = group;
    }
    CHECK(own >= 0);
    for (int group = 0; group < groups; group++) {
        unsigned char pid = (unsigned char)gamma_group_par_pid(group);
        OK(gamma_set_active_port((unsigned short)group, (unsigned short)me, pid, (unsigned short)own,
                                 on_word, SEMAPHORE, GO_BACK, &in[group], sizeof in[group]));
        FAILS(GAMMA_ERR_NODE, "node", gamma_set_passive_port(99, (unsigned short)nodes, pid, 1, 1,
                                                             GO_BACK, NULL, 0));
    }
    FAILS(GAMMA_ERR_ARGUMENT, "does not exist", gamma_group_par_pid(groups));
    FAILS(GAMMA_ERR_PAR_PID, "parallel PID", gamma_group_nodes(0));
    collectives(nodes);
    exchange(groups);
    collectives(nodes);
    OK(gamma_exit());
    printf("group %d: node %d is done\n", own, me);
    return 0;
}
