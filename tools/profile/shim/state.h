/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Record of this process, its clock, and the code of each wrapper around the wrapped call.
 *
 * Invariant: a call within a call (from an MPI's own layers or from the shim) counts nothing.
 */

static struct header *header; /* null before MPI_Init and after MPI_Finalize: nothing is counted */
static struct op *ops;
static struct peer *peers;
static struct event *events;
static uint64_t events_max;
static int record_fd = -1;

/* Ranks in MPI_COMM_WORLD of the processes of a communicator or a window. */
struct comm {
    uint32_t hash;
    int size;  /* of the group of peers; for an intercommunicator, the remote group */
    int rank;  /* of this process, in its own group */
    int inter;
    int users; /* requests, and the communicator itself until it is freed */
    int world[];
};

static struct comm *the_world;

/* Nesting depth of MPI calls in this thread. */
static __thread int depth;

#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Set if several threads may call MPI. A lock then protects the counts. */
static int threaded;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static inline void lock(void)
{
    if (UNLIKELY(threaded))
        pthread_mutex_lock(&mutex);
}

static inline void unlock(void)
{
    if (UNLIKELY(threaded))
        pthread_mutex_unlock(&mutex);
}

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#if defined(__x86_64__)
/* Set if the kernel trusts the time stamp counter. Reading it takes a third of the time of
 * clock_gettime. */
static int counter_is_a_clock;

static void choose_clock(void)
{
    char known[256] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/available_clocksource", "re");
    if (!file)
        return;
    if (fgets(known, sizeof known, file))
        counter_is_a_clock = strstr(known, "tsc") != NULL;
    fclose(file);
}

static inline uint64_t now(void)
{
    return counter_is_a_clock ? __rdtsc() : monotonic_ns();
}
#else
static void choose_clock(void)
{
}

static inline uint64_t now(void)
{
    return monotonic_ns();
}
#endif

/* Returns the MPI function that this library wraps. */
static void *next_function(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "portolan profile: this MPI has no %s: use the MPI that the profiling library was built for\n", name);
        _exit(2);
    }
    return found;
}

#include "pace.h"

/* Returns the row of an operation. Each wrapper calls it once. */
static int row_of(const char *name, const char *group)
{
    lock();
    int row = 0;
    int count = (int)header->op_count;
    while (row < count && strcmp(ops[row].name, name) != 0)
        row++;
    if (row == count && count < OPS_MAX) {
        snprintf(ops[row].name, sizeof ops[row].name, "%s", name);
        snprintf(ops[row].group, sizeof ops[row].group, "%s", group);
        header->op_count = (uint64_t)count + 1;
    }
    unlock();
    row = row < OPS_MAX ? row : OPS_MAX - 1;
    paces[row].gap = 1;
    return row;
}

/* A counted call. */
struct call {
    uint64_t start, end; /* set if it is timed */
    uint64_t ticks;      /* time in ticks of the calls that it stands for */
    int row;
    int is_timed;
    int result;
};

static inline int is_counted(void)
{
    return header && depth == 0;
}

static inline __attribute__((always_inline)) void enter(struct call *call, int *row, const char *name, const char *group)
{
    if (UNLIKELY(*row < 0))
        *row = row_of(name, group);
    depth++;
    call->row = *row;
    call->ticks = 0;
    header->running = (uint64_t)*row + 1;
    call->is_timed = --paces[*row].left <= 0;
    if (UNLIKELY(call->is_timed)) {
        call->start = now();
        header->running_since = call->start;
    }
}

/* Adds the time of a returned call that was timed or may have been found by the watcher. */
static __attribute__((noinline)) void add_time(struct call *call, uint64_t calls)
{
    struct pace *pace = &paces[call->row];
    uint64_t long_since = long_call_start(call->row, calls);
    if (!call->is_timed && !long_since)
        return;
    if (!call->is_timed) {
        call->start = long_since;
        call->end = now();
    }
    call->ticks = call->end - call->start;
    header->last_ticks = call->end;
    if (call->is_timed) {
        if (!long_since)
            call->ticks *= pace->gap;
        plan(pace, call->end);
    } else if (pace->gap > 1) {
        /* The next timed call does not stand for this one. */
        pace->gap--;
    }
    ops[call->row].ticks += call->ticks;
}

static inline __attribute__((always_inline)) void returned(struct call *call)
{
    if (UNLIKELY(call->is_timed))
        call->end = now();
    lock();
    uint64_t calls = ++ops[call->row].calls;
    if (UNLIKELY(call->is_timed || load_relaxed(&long_call.since)))
        add_time(call, calls);
}

static inline int leave(const struct call *call)
{
    header->running = 0;
    unlock();
    depth--;
    return call->result;
}

/* Disk space for events is allocated by the megabyte, so a full disk ends the trace and not the
 * program. */
enum { EVENTS_AT_ONCE = (1 << 20) / sizeof(struct event) };

static struct event *new_event(void)
{
    uint64_t count = header->event_count;
    if (count >= events_max) {
        header->events_dropped++;
        return NULL;
    }
    if (count % EVENTS_AT_ONCE == 0) {
        off_t from = (off_t)(header->events_off + count * sizeof(struct event));
        if (posix_fallocate(record_fd, from, EVENTS_AT_ONCE * sizeof(struct event)) != 0) {
            events_max = count;
            header->events_dropped++;
            return NULL;
        }
    }
    header->event_count = count + 1;
    return &events[count];
}

struct subject {
    int32_t peer, tag;
    uint32_t request, group;
    uint64_t bytes;
};

static __attribute__((noinline)) void append_event(const struct call *call, enum kind kind, struct subject of)
{
    struct event *event = new_event();
    if (!event)
        return;
    *event = (struct event){
        .start = call->start,
        .end = call->end,
        .what = (of.bytes & 0xfffffffffffu) | (uint64_t)kind << 44 | (uint64_t)call->row << 48,
        .peer = of.peer,
        .tag = of.tag,
        .request = of.request,
        .group = of.group,
    };
}

static inline void note(const struct call *call, enum kind kind, struct subject of)
{
    if (UNLIKELY(events_max))
        append_event(call, kind, of);
}

/* Records a call that found nothing. Consecutive ones are merged into one event. */
static void note_poll(const struct call *call)
{
    if (!events_max)
        return;
    uint64_t what = (uint64_t)CALLED << 44 | (uint64_t)call->row << 48;
    struct event *last = header->event_count ? &events[header->event_count - 1] : NULL;
    if (last && header->events_dropped == 0 && last->what == what && last->peer == -2) {
        last->end = call->end;
        last->request++;
        return;
    }
    note(call, CALLED, (struct subject){.peer = -2, .request = 1});
}

/* Returns the class of a size; the last one is cached. The caller holds the lock. */
static inline struct volume *volume_of(int of, uint64_t bytes)
{
    static uint64_t last_bytes;
    static int last_at;
    if (UNLIKELY(bytes != last_bytes)) {
        last_bytes = bytes;
        last_at = (bytes >= 10) + (bytes >= 100) + (bytes >= 1000) + (bytes >= 10000) + (bytes >= 100000);
    }
    return &header->volumes[of][last_at];
}

static inline void add_to(struct volume *volume, uint64_t bytes)
{
    volume->count++;
    volume->bytes += bytes;
}

static inline void count_volume(int of, uint64_t bytes)
{
    add_to(volume_of(of, bytes), bytes);
}

static inline struct peer *peer_of(int world)
{
    uint32_t at = world < 0 ? header->rank_count : (uint32_t)world;
    return &peers[at];
}

/* Last data type used by this thread, if programs cannot free it, with its size. */
static __thread MPI_Datatype last_type;
static __thread uint64_t last_type_len;

static uint64_t query_bytes_of(int64_t count, MPI_Datatype type)
{
    MPI_Count len = 0;
    if (PMPI_Type_size_x(type, &len) != MPI_SUCCESS || len < 0)
        return 0;
    MPI_Datatype lasting[] = {MPI_CHAR, MPI_BYTE, MPI_INT, MPI_LONG, MPI_FLOAT, MPI_DOUBLE, MPI_UNSIGNED, MPI_UNSIGNED_LONG};
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++) {
        if (type == lasting[i]) {
            last_type = type;
            last_type_len = (uint64_t)len;
        }
    }
    return (uint64_t)count * (uint64_t)len;
}

/* Returns the bytes of `count` elements. */
static inline uint64_t bytes_of(int64_t count, MPI_Datatype type)
{
    if (type == last_type && last_type_len > 0)
        return (uint64_t)count * last_type_len;
    return query_bytes_of(count, type);
}
