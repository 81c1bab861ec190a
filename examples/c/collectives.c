/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every operation on blocks, blocking and as requests, on numbers that are easy to check:
 * portolan run -n 3 -- collectives */
#include "example.h"

#include <string.h>

enum { MANY = 2, RANKS_MAX = 16 };

static portolan_node_t *node;
static unsigned rank, size;

static void check(int is_right, const char *what) {
    if (is_right) return;
    fprintf(stderr, "rank %u: %s has a wrong result\n", rank, what);
    portolan_abort(node, 1, what);
    exit(1);
}

static void finish(portolan_request_t request) { MUST(portolan_wait(node, request, NULL)); }

/* Combines numbers by a function of this program, like PORTOLAN_SUM. */
static void add(const void *lower, void *upper, size_t count, void *user) {
    const uint32_t *low = lower;
    uint32_t *high = upper;
    (void)user;
    for (size_t i = 0; i < count; i++) high[i] += low[i];
}

/* Returns whether block `i` of MANY numbers is filled with `i` plus `more`. */
static int is_filled(const uint32_t *blocks, uint32_t more) {
    for (uint32_t i = 0; i < MANY * size; i++)
        if (blocks[i] != i / MANY + more) return 0;
    return 1;
}

static void exchange_equal_blocks(void) {
    uint32_t own[MANY] = {rank, rank}, all[MANY * RANKS_MAX], out[MANY * RANKS_MAX], back[MANY];
    size_t len = sizeof own;
    portolan_request_t request;
    MUST(portolan_iallgather(node, NULL, own, len, all, &request));
    finish(request);
    check(is_filled(all, 0), "allgather");
    memset(all, 0, sizeof all);
    MUST(portolan_igather(node, NULL, 0, own, len, all, &request));
    finish(request);
    check(rank != 0 || is_filled(all, 0), "gather");
    for (uint32_t i = 0; i < MANY * size; i++) out[i] = i / MANY;
    MUST(portolan_iscatter(node, NULL, 0, out, back, len, &request));
    finish(request);
    check(back[0] == rank && back[1] == rank, "scatter");
    for (uint32_t i = 0; i < MANY * size; i++) out[i] = rank;
    MUST(portolan_ialltoall(node, NULL, out, all, len, &request));
    finish(request);
    check(is_filled(all, 0), "alltoall");
}

/* Member i has i + 1 numbers. */
static void exchange_unequal_blocks(void) {
    uint32_t own[RANKS_MAX], all[RANKS_MAX * RANKS_MAX], back[RANKS_MAX];
    size_t lens[RANKS_MAX], same[RANKS_MAX], sum = 0;
    portolan_request_t request;
    for (uint32_t i = 0; i < size; i++) {
        own[i] = rank;
        lens[i] = (i + 1) * sizeof *own;
        same[i] = (rank + 1) * sizeof *own;
        sum += i + 1;
    }
    MUST(portolan_allgatherv(node, NULL, own, all, lens));
    check(all[0] == 0 && all[sum - 1] == size - 1, "allgatherv");
    MUST(portolan_iallgatherv(node, NULL, own, all, lens, &request));
    finish(request);
    check(all[0] == 0 && all[sum - 1] == size - 1, "iallgatherv");
    MUST(portolan_igatherv(node, NULL, 0, own, lens[rank], all, lens, &request));
    finish(request);
    check(rank != 0 || all[sum - 1] == size - 1, "gatherv");
    MUST(portolan_iscatterv(node, NULL, 0, all, lens, back, lens[rank], &request));
    finish(request);
    check(back[0] == rank && back[rank] == rank, "scatterv");
    /* Each member sends member i its block of i + 1 numbers. */
    for (uint32_t i = 0; i < sum; i++) all[i] = rank;
    uint32_t theirs[RANKS_MAX * RANKS_MAX];
    MUST(portolan_ialltoallv(node, NULL, all, lens, theirs, same, &request));
    finish(request);
    check(theirs[0] == 0 && theirs[size * (rank + 1) - 1] == size - 1, "alltoallv");
}

static void reduce(void) {
    uint32_t values[MANY * RANKS_MAX], own[MANY * RANKS_MAX], one = 1, scanned = 1;
    size_t counts[RANKS_MAX], len = sizeof one;
    portolan_request_t request;
    for (uint32_t i = 0; i < MANY * size; i++) values[i] = i / MANY;
    for (uint32_t i = 0; i < size; i++) counts[i] = MANY;
    MUST(portolan_ireduce_scatter(node, NULL, PORTOLAN_SUM, PORTOLAN_UINT32, values, own, MANY, &request));
    finish(request);
    check(own[0] == rank * size, "reduce_scatter");
    MUST(portolan_reduce_scatterv(node, NULL, PORTOLAN_SUM, PORTOLAN_UINT32, values, own, counts));
    check(own[1] == rank * size, "reduce_scatterv");
    MUST(portolan_ireduce_scatterv(node, NULL, PORTOLAN_SUM, PORTOLAN_UINT32, values, own, counts, &request));
    finish(request);
    check(own[1] == rank * size, "ireduce_scatterv");
    MUST(portolan_reduce_scatter_by(node, NULL, add, NULL, len, values, own, MANY));
    check(own[0] == rank * size, "reduce_scatter_by");
    MUST(portolan_ireduce_scatter_by(node, NULL, add, NULL, len, values, own, MANY, &request));
    finish(request);
    check(own[1] == rank * size, "ireduce_scatter_by");
    MUST(portolan_iscan(node, NULL, PORTOLAN_SUM, PORTOLAN_UINT32, &scanned, 1, &request));
    finish(request);
    check(scanned == rank + 1, "scan");
    scanned = 1;
    MUST(portolan_iscan_by(node, NULL, add, NULL, len, &scanned, 1, &request));
    finish(request);
    check(scanned == rank + 1, "scan_by");
    uint32_t before = 1;
    MUST(portolan_iexscan(node, NULL, PORTOLAN_SUM, PORTOLAN_UINT32, &before, 1, &request));
    finish(request);
    check(before == (rank == 0 ? 1 : rank), "exscan");
    before = 1;
    MUST(portolan_iexscan_by(node, NULL, add, NULL, len, &before, 1, &request));
    finish(request);
    check(before == (rank == 0 ? 1 : rank), "exscan_by");
    before = 1;
    MUST(portolan_exscan(node, NULL, PORTOLAN_MAX, PORTOLAN_UINT32, &before, 1));
    MUST(portolan_exscan_by(node, NULL, add, NULL, len, &before, 1));
    check(before == (rank == 0 ? 1 : rank), "exscan of exscan");
    MUST(portolan_iallreduce_by(node, NULL, add, NULL, len, &one, 1, &request));
    finish(request);
    check(one == size, "allreduce_by");
    MUST(portolan_ireduce_by(node, NULL, 0, add, NULL, len, &one, 1, &request));
    finish(request);
    check(rank != 0 || one == size * size, "reduce_by");
}

int main(void) {
    if (portolan_abi_version() < PORTOLAN_ABI_VERSION) die("version %s is too old", portolan_version());
    int joined = portolan_join(&node);
    if (joined < 0) die("%s: %s", portolan_strerror(joined), portolan_last_error());
    rank = (unsigned)MUST(portolan_rank(node));
    size = (unsigned)MUST(portolan_size(node));
    if (size > RANKS_MAX) die("at most %d processes", RANKS_MAX);
    exchange_equal_blocks();
    exchange_unequal_blocks();
    reduce();
    if (rank == 0) printf("all operations on blocks are right\n");
    MUST(portolan_close(node));
    return 0;
}
