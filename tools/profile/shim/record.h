/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What a process leaves: a file that is mapped while the program runs, so that a process that is
 * killed leaves it, too. In the byte order of the host. src/record.rs reads it.
 *
 * header | operations | peers (one a process of MPI_COMM_WORLD, one for all others) | events
 */
#include <stdint.h>

/* The last digit changes with the layout. */
static const char MAGIC[8] = "PTLNMPI1";

/* Flags of a header. */
enum { FINALIZED = 1, ABORTED = 2, SEVERAL_HOSTS = 4, SEVERAL_THREADS = 8 };

/* Sizes by decimal digits: 0-9, 10-99, ..., 100,000 and more: Table 4 of the NPB paper. */
enum { CLASS_COUNT = 6 };

/* What is counted by size. */
enum { MESSAGES, ONE_SIDED, OF_COLLECTIVES, COUNTED };

/* Functions of MPI that one program calls; the shim wraps fewer. */
enum { OPS_MAX = 256 };

/* What an event is, for who replays it. */
enum kind {
    CALLED,    /* a call that moves nothing by itself: a wait, a test, a fence */
    SENT,      /* a send begins; with a request it does not block */
    RECEIVED,  /* a receive that blocks has ended */
    POSTED,    /* a receive that does not block */
    COMPLETED, /* a request ended in the last CALLED event */
    COLLECTIVE,
    REMOTE, /* a put, a get, an atomic operation */
};

struct volume {
    uint64_t count, bytes;
};

struct header {
    char magic[8];
    uint32_t rank, rank_count;
    uint32_t pid, flags;
    /* The same in all processes of one MPI_COMM_WORLD, and in no others. */
    uint64_t world;
    uint64_t op_count, ops_off;
    uint64_t peers_off;
    uint64_t event_count, events_dropped, events_off;
    /* The clock at the ends of MPI_Init and at the beginning of MPI_Finalize, beside CLOCK_MONOTONIC. */
    uint64_t init_ticks, init_ns, end_ticks, end_ns;
    /* As measured in MPI_Init: for a process that has no end. */
    uint64_t ticks_per_s;
    /* Rank 0's CLOCK_MONOTONIC less this one's. */
    int64_t init_ahead_ns, end_ahead_ns;
    /* The operation that has not returned: its index and 1, or 0; since when; the end of the last. */
    uint64_t running, running_since, last_ticks;
    struct volume volumes[COUNTED][CLASS_COUNT];
    char host[64];
    char program[256];
    char library[128];
};

struct op {
    char name[32];
    char group[16];
    uint64_t calls, ticks, bytes;
};

struct peer {
    struct volume sent, received, remote;
    /* In receives and waits, shared equally among the messages that a call brought. */
    uint64_t waited_ticks;
};

struct event {
    uint64_t start, end;
    /* Bytes in 44 bits, the kind in 4, the index of the operation in 16. */
    uint64_t what;
    /* Of MPI_COMM_WORLD; -1 for any, or for processes that are not in it. */
    int32_t peer;
    /* Of a collective operation: the number of processes. */
    int32_t tag;
    /* 0 if there is none. Of CALLED: how many calls this stands for. */
    uint32_t request;
    /* A hash of the members' ranks. */
    uint32_t group;
};

/* Bytes before the operations, a page. */
enum { HEADER_LEN = 4096, OPS_LEN = OPS_MAX * sizeof(struct op) };

_Static_assert(sizeof(struct header) <= HEADER_LEN, "the header has its page");
_Static_assert(sizeof(struct header) == 896 && sizeof(struct op) == 72 && sizeof(struct peer) == 56 && sizeof(struct event) == 40,
               "src/record.rs knows these sizes");
