/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The form of ../key_value.c in MPI, for comparison. */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 4096 };
static const uint64_t EMPTY = 0;

static MPI_Win window;
static int size;

static void fail(const char *why) {
    fprintf(stderr, "%s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Finds the value of `key` in a table with open addressing. Takes an empty slot if `insert` is set. */
static int find(uint64_t key, int insert, int *rank, MPI_Aint *place) {
    uint64_t hash = key * 0x9e3779b97f4a7c15u, found;
    *rank = (int)(hash % (uint64_t)size);
    for (uint64_t probe = 0; probe < SLOTS; probe++) {
        *place = (MPI_Aint)(((hash >> 32) + probe) % SLOTS * 2);
        if (insert)
            MPI_Compare_and_swap(&key, &EMPTY, &found, MPI_UINT64_T, *rank, *place, window);
        else
            MPI_Fetch_and_op(&key, &found, MPI_UINT64_T, *rank, *place, MPI_NO_OP, window);
        MPI_Win_flush(*rank, window);
        if (found != key && found != EMPTY) continue;
        *place += 1;
        return found == key || insert;
    }
    fail("the table is full");
    return 0;
}

int main(int argc, char **argv) {
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 200, sum = 0, value, *table;
    int rank, home;
    MPI_Aint place;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Win_allocate(2 * SLOTS * sizeof *table, sizeof *table, MPI_INFO_NULL, MPI_COMM_WORLD, &table, &window);
    for (size_t at = 0; at < 2 * SLOTS; at++) table[at] = EMPTY;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    for (uint64_t number = 1; number <= count; number++) {
        value = number * number;
        find(number * (uint64_t)size + (uint64_t)rank, 1, &home, &place);
        MPI_Put(&value, 1, MPI_UINT64_T, home, place, 1, MPI_UINT64_T, window);
        MPI_Win_flush(home, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* Reads what the next process has written. */
    for (uint64_t number = 1; number <= count; number++) {
        uint64_t key = number * (uint64_t)size + (uint64_t)((rank + 1) % size);
        if (!find(key, 0, &home, &place)) fail("a key is missing");
        MPI_Get(&value, 1, MPI_UINT64_T, home, place, 1, MPI_UINT64_T, window);
        MPI_Win_flush(home, window);
        sum += value;
    }
    if (find(UINT64_MAX, 0, &home, &place)) fail("this was never put");
    printf("rank %d: %" PRIu64 " values, sum %" PRIu64 "\n", rank, count, sum);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
