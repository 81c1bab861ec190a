/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every function of tmk.h. */

#include "check.h"

enum { COUNTER = 4, QUEUE = 5, ROUNDS = 40, NOT_EMPTY = 0, NOT_FULL = 1, ITEMS = 30 };

struct shared {
    unsigned counter;
    char bytes[64];
    unsigned length, produced, consumed, sum;
    void *blocks[TMK_NPROCS];
};

static struct shared *shared;
static struct {
    int numbers[5000];
    double last;
} parameters;

static unsigned me, all;

/* Global variables of any length are copied; shared memory needs no copy. */
static void distributing(void) {
    if (me == 0) {
        shared = Tmk_sbrk(sizeof(*shared));
        CHECK(shared && shared->counter == 0);
        for (int i = 0; i < 5000; i++) parameters.numbers[i] = 7 * i;
        parameters.last = 0.5;
        Tmk_distribute(&shared, sizeof(shared));
        Tmk_distribute(&parameters, sizeof(parameters));
        Tmk_distribute(shared, sizeof(*shared));
        Tmk_distribute(NULL, 0);
    }
    Tmk_barrier(0);
    CHECK(shared && parameters.last == 0.5);
    for (int i = 0; i < 5000; i++) CHECK(parameters.numbers[i] == 7 * i);
}

/* Increments under a lock are not lost. Neighbouring bytes have different writers. */
static void counting(void) {
    for (unsigned i = 0; i < ROUNDS; i++) {
        Tmk_lock_acquire(COUNTER);
        shared->counter++;
        Tmk_lock_release(COUNTER);
        shared->bytes[me] = (char)(i + me);
        if (i % 10 != 9) continue;
        Tmk_barrier(1);
        for (unsigned other = 0; other < all; other++)
            CHECK(shared->bytes[other] == (char)(i + other));
        Tmk_barrier(2);
    }
    Tmk_barrier(31);
    CHECK(shared->counter == ROUNDS * all);
}

/* The last process produces items for the others, in a queue of one. */
static void produce(void) {
    for (unsigned i = 0; i < ITEMS; i++) {
        Tmk_lock_acquire(QUEUE);
        while (shared->length == 1) Tmk_lock_cond_wait(QUEUE, NOT_FULL);
        shared->length = 1;
        shared->produced++;
        Tmk_lock_cond_signal(QUEUE, NOT_EMPTY);
        Tmk_lock_release(QUEUE);
    }
    Tmk_lock_acquire(QUEUE);
    while (shared->length == 1) Tmk_lock_cond_wait(QUEUE, NOT_FULL);
    shared->produced = UINT32_MAX;
    Tmk_lock_cond_broadcast(QUEUE, NOT_EMPTY);
    Tmk_lock_release(QUEUE);
}

static void consume(void) {
    Tmk_lock_acquire(QUEUE);
    for (;;) {
        while (shared->length == 0 && shared->produced != UINT32_MAX)
            Tmk_lock_cond_wait(QUEUE, NOT_EMPTY);
        if (shared->length == 0) break;
        shared->length = 0;
        shared->consumed++;
        Tmk_lock_cond_broadcast(QUEUE, NOT_FULL);
    }
    Tmk_lock_release(QUEUE);
}

static void waiting(void) {
    if (me == all - 1) produce();
    else consume();
    Tmk_barrier(3);
    CHECK(shared->consumed == (all > 1 ? ITEMS : 0));
}

/* Each process allocates, and the next one reads and frees. */
static void allocating(void) {
    for (unsigned round = 1; round <= 4; round++) {
        size_t len = round * 5000;
        unsigned *block = Tmk_malloc(len * sizeof(unsigned));
        CHECK(block && (uintptr_t)block % Tmk_page_size == 0);
        for (size_t i = 0; i < len; i++) block[i] = (unsigned)i * round + me;
        shared->blocks[me] = block;
        Tmk_barrier(4);
        unsigned next = (me + 1) % all;
        unsigned *theirs = shared->blocks[next];
        for (size_t i = 0; i < len; i++) CHECK(theirs[i] == (unsigned)i * round + next);
        Tmk_free(theirs);
        Tmk_barrier(4);
    }
    Tmk_free(NULL);
    void *a = Tmk_malloc(1), *b = Tmk_malloc(1);
    CHECK(a && b && a != b && (uintptr_t)a % 16 == 0);
    CHECK(!Tmk_malloc((size_t)1 << 50));
    Tmk_free(a);
    Tmk_free(b);
}

int main(int argc, char **argv) {
    Tmk_startup(argc, argv);
    me = Tmk_proc_id;
    all = Tmk_nprocs;
    CHECK(me < all && all <= TMK_NPROCS && Tmk_page_size == (unsigned)sysconf(_SC_PAGESIZE));
    distributing();
    counting();
    if (all > 1) waiting();
    allocating();
    printf("process %u of %u is done\n", me, all);
    fflush(stdout);
    Tmk_exit(0);
}
