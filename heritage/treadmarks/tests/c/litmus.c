/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Litmus tests of release consistency with random pauses, in rounds of a few seconds at most.
 *
 *     litmus ROUNDS SEED */

#include "check.h"

enum { PAGES = 4, BYTES = 256 };

struct page {
    _Alignas(4096) unsigned x;
    unsigned y;
    unsigned char bytes[BYTES];
};

static struct page *pages;
static unsigned me, all, round_number;
static uint64_t state;

/* Lets other processes run first, sometimes. */
static void pause_randomly(void) {
    if (random_below(&state, 4) == 0) usleep(random_below(&state, 300));
}

/* A process that sees the flag sees the data that was written before it. */
static void message_passing(void) {
    pause_randomly();
    Tmk_lock_acquire(0);
    if (me == 0) {
        pages[1].x = round_number;
        pages[0].y = round_number;
    } else if (pages[0].y == round_number) {
        CHECK(pages[1].x == round_number);
    }
    Tmk_lock_release(0);
}

/* One of the first two processes sees the store of the other. */
static void store_buffering(void) {
    static unsigned seen;
    unsigned *own = me == 0 ? &pages[2].x : &pages[2].y;
    unsigned *other = me == 0 ? &pages[2].y : &pages[2].x;
    if (me < 2) {
        pause_randomly();
        Tmk_lock_acquire(1);
        *own = round_number;
        Tmk_lock_release(1);
        Tmk_lock_acquire(1);
        seen = *other == round_number;
        Tmk_lock_release(1);
        pages[3].bytes[me] = (unsigned char)seen;
    }
    Tmk_barrier(1);
    CHECK(pages[3].bytes[0] || pages[3].bytes[1]);
    Tmk_barrier(2);
}

/* Each process writes its bytes of one page without a lock. */
static void false_sharing(void) {
    for (unsigned i = me; i < BYTES; i += all) pages[2].bytes[i] = (unsigned char)(round_number + i);
    pause_randomly();
    Tmk_barrier(3);
    for (unsigned i = 0; i < BYTES; i++)
        CHECK(pages[2].bytes[i] == (unsigned char)(round_number + i));
    Tmk_barrier(4);
}

/* Order is transitive over two locks, along a chain of processes. */
static void transitivity(void) {
    unsigned *flags = (unsigned *)(void *)pages[1].bytes;
    pause_randomly();
    if (me == 0) {
        pages[3].y = round_number;
        Tmk_lock_acquire(10);
        flags[0] = round_number;
        Tmk_lock_release(10);
        return;
    }
    for (unsigned seen = 0; seen != round_number;) {
        Tmk_lock_acquire(10 + me - 1);
        seen = flags[me - 1];
        Tmk_lock_release(10 + me - 1);
        if (seen != round_number) usleep(200);
    }
    CHECK(pages[3].y == round_number);
    Tmk_lock_acquire(10 + me);
    flags[me] = round_number;
    Tmk_lock_release(10 + me);
}

static void counter(void) {
    for (int i = 0; i < 5; i++) {
        Tmk_lock_acquire(9);
        pages[0].x++;
        Tmk_lock_release(9);
        pause_randomly();
    }
    Tmk_barrier(5);
    CHECK(pages[0].x == round_number * 5 * all);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    unsigned rounds = (unsigned)atoi(argv[1]);
    Tmk_startup(argc, argv);
    me = Tmk_proc_id;
    all = Tmk_nprocs;
    state = (uint64_t)atoi(argv[2]) * 64 + me;
    if (me == 0) {
        pages = Tmk_malloc(PAGES * sizeof(*pages));
        Tmk_distribute(&pages, sizeof(pages));
    }
    Tmk_barrier(0);
    for (round_number = 1; round_number <= rounds; round_number++) {
        message_passing();
        store_buffering();
        false_sharing();
        transitivity();
        Tmk_barrier(6);
        counter();
        Tmk_barrier(7);
    }
    if (me == 0) printf("%u rounds on %u processes are right\n", rounds, all);
    fflush(stdout);
    Tmk_exit(0);
}
