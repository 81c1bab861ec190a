/* SPDX-License-Identifier: MIT OR Apache-2.0
 * An MPI program for scripts/test-mpi.sh: each rank has many operations in flight on a dynamic window and
 * compares every byte.
 *
 *   dynamic ROUNDS
 *
 * Each rank works on the memory of the next one. A round has long puts that one flush completes, then gets
 * and puts with requests, of other lengths. MPIs implement such windows in different ways: by remote memory
 * access, or by active messages after which the target reads the memory of the origin. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { PUTS = 8, PUT_LEN = 300000, MIXED = 12, MIXED_LEN_MIN = 20000, MIXED_LEN_MAX = 100000 };

/* Offsets in a rank's memory: areas for puts, for gets, and for puts with requests. */
enum { PUT_AT = 0, GET_AT = PUTS * PUT_LEN, RPUT_AT = GET_AT + MIXED * MIXED_LEN_MAX };
enum { MEMORY_LEN = RPUT_AT + MIXED * MIXED_LEN_MAX };

/* Kinds of patterns. */
enum { BY_PUT = 1, TO_GET, BY_RPUT };

static int rank, size, next, before;

static unsigned char byte_of(int owner, int kind, int round, int slot, int at)
{
    unsigned x = (unsigned)at * 2654435761u;

    x ^= (unsigned)(owner * 1009 + kind * 131 + round * 17 + slot) * 40503u;
    return (unsigned char)(x >> 13 ^ x);
}

static void fill(unsigned char *to, int len, int owner, int kind, int round, int slot)
{
    int at;

    for (at = 0; at < len; at++)
        to[at] = byte_of(owner, kind, round, slot, at);
}

/* Returns the number of bytes that differ. */
static int differing(const unsigned char *got, int len, int owner, int kind, int round, int slot)
{
    int at, wrong = 0;

    for (at = 0; at < len; at++)
        wrong += got[at] != byte_of(owner, kind, round, slot, at);
    return wrong;
}

static int mixed_len(int slot)
{
    return MIXED_LEN_MIN + slot * (MIXED_LEN_MAX - MIXED_LEN_MIN) / (MIXED - 1);
}

/* Issues long puts and one flush. Returns the number of wrong bytes. */
static int put_all(MPI_Win window, MPI_Aint there, const unsigned char *memory, int round)
{
    static unsigned char out[PUTS][PUT_LEN];
    int slot, wrong = 0;

    for (slot = 0; slot < PUTS; slot++) {
        fill(out[slot], PUT_LEN, rank, BY_PUT, round, slot);
        MPI_Put(out[slot], PUT_LEN, MPI_BYTE, next, there + PUT_AT + slot * PUT_LEN, PUT_LEN, MPI_BYTE, window);
    }
    MPI_Win_flush(next, window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (slot = 0; slot < PUTS; slot++)
        wrong += differing(memory + PUT_AT + slot * PUT_LEN, PUT_LEN, before, BY_PUT, round, slot);
    return wrong;
}

/* Issues gets and puts with requests together. Returns the number of wrong bytes. */
static int mix(MPI_Win window, MPI_Aint there, unsigned char *memory, int round)
{
    static unsigned char in[MIXED][MIXED_LEN_MAX], out[MIXED][MIXED_LEN_MAX];
    MPI_Request puts[MIXED];
    int slot, len, wrong = 0;

    for (slot = 0; slot < MIXED; slot++)
        fill(memory + GET_AT + slot * MIXED_LEN_MAX, mixed_len(slot), rank, TO_GET, round, slot);
    MPI_Barrier(MPI_COMM_WORLD);
    for (slot = 0; slot < MIXED; slot++) {
        len = mixed_len(slot);
        fill(out[slot], len, rank, BY_RPUT, round, slot);
        MPI_Get(in[slot], len, MPI_BYTE, next, there + GET_AT + slot * MIXED_LEN_MAX, len, MPI_BYTE, window);
        MPI_Rput(out[slot], len, MPI_BYTE, next, there + RPUT_AT + slot * MIXED_LEN_MAX, len, MPI_BYTE, window,
                 &puts[slot]);
    }
    MPI_Waitall(MIXED, puts, MPI_STATUSES_IGNORE);
    MPI_Win_flush(next, window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (slot = 0; slot < MIXED; slot++) {
        len = mixed_len(slot);
        wrong += differing(in[slot], len, next, TO_GET, round, slot);
        wrong += differing(memory + RPUT_AT + slot * MIXED_LEN_MAX, len, before, BY_RPUT, round, slot);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    int round, rounds = 0, wrong = 0;
    unsigned char *memory;
    MPI_Aint here, there;
    MPI_Win window;

    MPI_Init(&argc, &argv);
    if (argc != 2 || (rounds = atoi(argv[1])) <= 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size;
    before = (rank + size - 1) % size;
    memory = calloc(MEMORY_LEN, 1);
    if (memory == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_attach(window, memory, MEMORY_LEN);
    MPI_Get_address(memory, &here);
    MPI_Sendrecv(&here, 1, MPI_AINT, before, 0, &there, 1, MPI_AINT, next, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Win_lock_all(0, window);
    for (round = 0; round < rounds; round++) {
        wrong += put_all(window, there, memory, round);
        wrong += mix(window, there, memory, round);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_detach(window, memory);
    MPI_Win_free(&window);
    printf("rank %d: %d wrong\n", rank, wrong);
    fflush(stdout);
    MPI_Finalize();
    free(memory);
    return wrong != 0;
}
