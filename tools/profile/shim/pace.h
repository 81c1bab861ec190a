/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Which calls are timed. Two looks at the clock cost some 25 ns, a tenth of what a short message takes
 * within a host. So of a function that is called all the time one call in several is timed, and stands
 * for those since the last that was. A call that takes long is never missed: a thread looks now and
 * then which call runs, and one that it meets twice counts as long as it took.
 *
 * The invariant: whether a call is timed was decided before it began, so the sums have no bias.
 */

/* One call of a function in so long is timed: the looks at the clock take a two-hundredth of it. */
enum { BETWEEN_TIMED_NS = 5000 };

/* Calls for which one stands in the mean, at most: the clock's share is small then, and a call that is
 * long, but not long enough for the watcher, does not weigh too much. */
enum { GAP_MAX = 16 };

/* Between two looks at the call that runs: a look costs a core 3 us, so a thousandth and a half of it. */
enum { LOOK_NS = 2000000 };

struct pace {
    int left;          /* calls until one is timed, that one included */
    unsigned gap;      /* calls that it stands for, itself included */
    uint64_t last_end; /* of the last call that was timed */
};

static struct pace paces[OPS_MAX];
/* BETWEEN_TIMED_NS by the clock; 0: all calls are timed. */
static uint64_t between_timed;

/* The call that the watcher met twice. */
static struct {
    uint64_t running; /* as in the header */
    uint64_t calls;   /* of that operation that had returned before */
    uint64_t since;   /* when it began, to half a look; 0: there is none */
} met_call;

static inline uint64_t look(const uint64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

/* Until MPI_Finalize. A look that comes late, on a core that is not free, makes a start less exact. */
static void *watch(void *record)
{
    struct header *watched = record;
    uint64_t running = 0, calls = 0, began = 0, before = now();
    struct timespec pause = {.tv_nsec = LOOK_NS};
    while (__atomic_load_n(&header, __ATOMIC_RELAXED) == watched) {
        nanosleep(&pause, NULL);
        uint64_t at = now(), found = look(&watched->running);
        uint64_t had = found ? look(&ops[found - 1].calls) : 0;
        if (found && found == running && had == calls) {
            __atomic_store_n(&met_call.running, found, __ATOMIC_RELAXED);
            __atomic_store_n(&met_call.calls, calls, __ATOMIC_RELAXED);
            __atomic_store_n(&met_call.since, began, __ATOMIC_RELEASE);
        } else {
            running = found;
            calls = had;
            began = before + (at - before) / 2;
            if (found)
                __atomic_store_n(&watched->running_since, began, __ATOMIC_RELAXED);
        }
        before = at;
    }
    return NULL;
}

/* Without a thread that watches, all calls are timed. Signals are the program's. */
static void begin_to_watch(void)
{
    static int begun;
    if (begun++)
        return;
    sigset_t all, own;
    pthread_t watcher;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &own) != 0)
        return;
    if (pthread_create(&watcher, NULL, watch, header) == 0)
        pthread_detach(watcher);
    else
        between_timed = 0;
    pthread_sigmask(SIG_SETMASK, &own, NULL);
}

/* After a timed call: how many calls the next one stands for. By chance around the mean, since
 * programs repeat themselves. */
static void plan(struct pace *pace, uint64_t end)
{
    static uint32_t chance = 2463534242u; /* Marsaglia's xorshift */
    uint64_t mean = between_timed * pace->gap / (end - pace->last_end + 1);
    pace->last_end = end;
    pace->gap = 1;
    if (mean >= 2) {
        begin_to_watch();
        chance ^= chance << 13;
        chance ^= chance >> 17;
        chance ^= chance << 5;
        mean = mean < GAP_MAX ? mean : GAP_MAX;
        pace->gap = (unsigned)(mean / 2 + (chance >> 16) * mean / 65536 + 1);
    }
    pace->left = (int)pace->gap;
}

/* When the call of operation `row` began that has returned as its `calls`th, if the watcher met it
 * twice; else 0. */
static uint64_t met(int row, uint64_t calls)
{
    uint64_t since = __atomic_exchange_n(&met_call.since, 0, __ATOMIC_ACQUIRE);
    int is_it = look(&met_call.running) == (uint64_t)row + 1 && look(&met_call.calls) + 1 == calls;
    return is_it ? since : 0;
}
