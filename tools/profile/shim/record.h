/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Record of a process: a file that is mapped while the program runs, so that a killed process leaves
 * it as well. It has the host's byte order. src/record.rs reads it.
 *
 * header | operations | peers (one per process of MPI_COMM_WORLD, one for all others) | events
 */
#include <stdint.h>

/* The last digit is the version of the layout. */
static const char MAGIC[8] = "PTLNMPI1";

/* Flags of a header. */
enum { FINALIZED = 1, ABORTED = 2, SEVERAL_HOSTS = 4, SEVERAL_THREADS = 8 };

/* Number of size classes by decimal digits, 0-9, 10-99, ..., 100,000 and more, as in Table 4 of
 * the NPB paper. */
enum { CLASS_COUNT = 6 };

/* Counts by size. */
enum { MESSAGES, ONE_SIDED, OF_COLLECTIVES, COUNTED };

/* Maximum number of MPI functions called by one program. The shim wraps fewer. */
enum { OPS_MAX = 256 };

/* Kinds of events, for the replay. */
enum kind {
    CALLED,    /* a call that moves no data by itself: a wait, a test, a fence */
    SENT,      /* a send has started; with a request it does not block */
    RECEIVED,  /* a blocking receive has completed */
    POSTED,    /* a non-blocking receive has been posted */
    COMPLETED, /* a request has completed in the last CALLED event */
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
    /* Equal in all processes of one MPI_COMM_WORLD, and different from all others. */
    uint64_t world;
    uint64_t op_count, ops_off;
    uint64_t peers_off;
    uint64_t event_count, events_dropped, events_off;
    /* Clock at the end of MPI_Init and at the start of MPI_Finalize, with CLOCK_MONOTONIC. */
    uint64_t init_ticks, init_ns, end_ticks, end_ns;
    /* Rate measured in MPI_Init, for a process without an end. */
    uint64_t ticks_per_s;
    /* Rank 0's CLOCK_MONOTONIC less this host's. */
    int64_t init_ahead_ns, end_ahead_ns;
    /* Index plus 1 of the operation that has not returned, or 0; its start; the end of the last
     * call. */
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
    /* Ticks in receives and waits. The time of one call is shared equally among its messages. */
    uint64_t waited_ticks;
};

struct event {
    uint64_t start, end;
    /* Bytes in 44 bits, the kind in 4, the index of the operation in 16. */
    uint64_t what;
    /* Rank in MPI_COMM_WORLD; -1 for any rank and for processes outside it. */
    int32_t peer;
    /* Tag; for a collective operation, the number of processes. */
    int32_t tag;
    /* Request id; 0 for none. In CALLED, the number of calls that this event stands for. */
    uint32_t request;
    /* Hash of the members' ranks. */
    uint32_t group;
};

/* Bytes before the operations: one page. */
enum { HEADER_LEN = 4096, OPS_LEN = OPS_MAX * sizeof(struct op) };

_Static_assert(sizeof(struct header) <= HEADER_LEN, "the header has its page");
_Static_assert(sizeof(struct header) == 896 && sizeof(struct op) == 72 && sizeof(struct peer) == 56 && sizeof(struct event) == 40,
               "src/record.rs knows these sizes");
