/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A key-value store in the memory of all processes, by remote memory alone:
 * portolan run -n 4 -- key_value [COUNT]. No process answers requests. */
#include "../c/example.h"

#include <inttypes.h>

enum { SLOTS = 4096, RANKS_MAX = 64 };
static const uint64_t EMPTY = 0;

static portolan_node_t *node;
static uint64_t keys[RANKS_MAX]; /* of the registered tables, not of their entries */
static unsigned size;

/* Finds the value of `key` in a table with open addressing. Takes an empty slot if `insert` is set. */
static int find(uint64_t key, int insert, portolan_remote_t *place) {
    uint64_t hash = key * 0x9e3779b97f4a7c15u, found;
    portolan_atomic_t what = PORTOLAN_SIZED(portolan_atomic_t);
    what.operation = insert ? PORTOLAN_SWAP_IF_EQUAL : PORTOLAN_READ;
    what.type = PORTOLAN_UINT64;
    what.count = 1;
    what.operands = &key;
    what.compare = &EMPTY;
    what.before = &found;
    place->rank = (uint32_t)(hash % size);
    place->key = keys[place->rank];
    for (uint64_t probe = 0; probe < SLOTS; probe++) {
        place->offset = ((hash >> 32) + probe) % SLOTS * 2 * sizeof key;
        MUST(portolan_atomic(node, place, &what));
        if (found != key && found != EMPTY) continue;
        place->offset += sizeof key;
        return found == key || insert;
    }
    die("the table is full");
}

int main(int argc, char **argv) {
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 200, sum = 0, value;
    portolan_remote_t place = PORTOLAN_SIZED(portolan_remote_t);
    MUST(portolan_join(&node));
    uint64_t rank = (uint64_t)MUST(portolan_rank(node)), own;
    size = (unsigned)MUST(portolan_size(node));
    if (size > RANKS_MAX) die("at most %d processes", RANKS_MAX);
    uint64_t *table = allocate(2 * SLOTS, sizeof *table);
    uint32_t access = PORTOLAN_READ_ACCESS | PORTOLAN_WRITE_ACCESS;
    MUST(portolan_register(node, table, 2 * SLOTS * sizeof *table, access, &own));
    MUST(portolan_allgather(node, NULL, &own, sizeof own, keys));
    for (uint64_t number = 1; number <= count; number++) {
        value = number * number;
        find(number * size + rank, 1, &place);
        MUST(portolan_put(node, &place, &value, sizeof value));
    }
    MUST(portolan_barrier(node, NULL));
    /* Reads what the next process has written. */
    for (uint64_t number = 1; number <= count; number++) {
        if (!find(number * size + (rank + 1) % size, 0, &place)) die("a key is missing");
        MUST(portolan_get(node, &place, &value, sizeof value));
        sum += value;
    }
    if (find(UINT64_MAX, 0, &place)) die("this was never put");
    printf("rank %" PRIu64 ": %" PRIu64 " values, sum %" PRIu64 "\n", rank, count, sum);
    MUST(portolan_barrier(node, NULL));
    MUST(portolan_close(node));
    free(table);
    return 0;
}
