/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Selection of the calls to time. Two clock reads cost about 25 ns, a tenth of a short message within
 * a host. Of a frequently called function, one call in several is therefore timed and stands for all
 * since the previous timed one. Long calls are never missed: a thread periodically checks the running
 * call, and a call found in two consecutive checks counts with its own duration.
 *
 * Invariant: the choice to time a call is made before the call begins, so the sums are unbiased.
 */

/* Target interval between timed calls of a function. The clock reads then cost 0.5 % of the
 * time. */
enum { BETWEEN_TIMED_NS = 5000 };

/* Maximum mean number of calls that a timed one stands for. The share of the clock reads is then
 * already small. It also limits the weight of a call that is long, but too short for the
 * watcher. */
enum { GAP_MAX = 16 };

/* Interval of the watcher. A check costs a core 3 us, 0.15 % of the interval. */
enum { CHECK_NS = 2000000 };

struct pace {
    int left;          /* calls until the next timed one, inclusive */
    unsigned gap;      /* calls that the timed one stands for, inclusive */
    uint64_t last_end; /* end of the last timed call */
};

static struct pace paces[OPS_MAX];
/* BETWEEN_TIMED_NS in ticks of the clock; with 0 all calls are timed */
static uint64_t between_timed;

/* The call that the watcher found in two consecutive checks. */
static struct {
    uint64_t running; /* as in the header */
    uint64_t calls;   /* completed calls of that operation before this one */
    uint64_t since;   /* its start, to half an interval; 0 for none */
} long_call;

static inline uint64_t load_relaxed(const uint64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

/* Watches until MPI_Finalize. A check that is delayed by other load makes a start less exact. */
static void *watch(void *record)
{
    struct header *watched = record;
    uint64_t running = 0, calls = 0, began = 0, before = now();
    struct timespec pause = {.tv_nsec = CHECK_NS};
    while (__atomic_load_n(&header, __ATOMIC_RELAXED) == watched) {
        nanosleep(&pause, NULL);
        uint64_t at = now(), found = load_relaxed(&watched->running);
        uint64_t completed = found ? load_relaxed(&ops[found - 1].calls) : 0;
        if (found && found == running && completed == calls) {
            __atomic_store_n(&long_call.running, found, __ATOMIC_RELAXED);
            __atomic_store_n(&long_call.calls, calls, __ATOMIC_RELAXED);
            __atomic_store_n(&long_call.since, began, __ATOMIC_RELEASE);
        } else {
            running = found;
            calls = completed;
            began = before + (at - before) / 2;
            if (found)
                __atomic_store_n(&watched->running_since, began, __ATOMIC_RELAXED);
        }
        before = at;
    }
    return NULL;
}

/* Starts the watcher. If that fails, all calls are timed. The watcher blocks signals, which are
 * for the program. */
static void start_watcher(void)
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

/* After a timed call, chooses how many calls the next one stands for. The number is random
 * around the mean, because programs repeat themselves. */
static void plan(struct pace *pace, uint64_t end)
{
    static uint32_t chance = 2463534242u; /* Marsaglia's xorshift */
    uint64_t mean = between_timed * pace->gap / (end - pace->last_end + 1);
    pace->last_end = end;
    pace->gap = 1;
    if (mean >= 2) {
        start_watcher();
        chance ^= chance << 13;
        chance ^= chance >> 17;
        chance ^= chance << 5;
        mean = mean < GAP_MAX ? mean : GAP_MAX;
        pace->gap = (unsigned)(mean / 2 + (chance >> 16) * mean / 65536 + 1);
    }
    pace->left = (int)pace->gap;
}

/* Returns the start of the `calls`th call of operation `row`, which has just returned, if the
 * watcher found it twice; otherwise 0. */
static uint64_t long_call_start(int row, uint64_t calls)
{
    uint64_t since = __atomic_exchange_n(&long_call.since, 0, __ATOMIC_ACQUIRE);
    int is_it = load_relaxed(&long_call.running) == (uint64_t)row + 1 && load_relaxed(&long_call.calls) + 1 == calls;
    return is_it ? since : 0;
}
