/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Bodies that attract each other, in shared memory, in the manner of the program "water".
 *
 *     water [BODIES] [STEPS]
 *
 * Each process computes the forces of its bodies with half of all others, sums them in private
 * memory, and adds the sums to the shared ones, which a lock for each process's bodies protects.
 * Numbers are integers, so that the order of the additions does not matter. Process 0 compares the
 * result with that of a sequential computation. */

#include "dsm.h"

enum { AXES = 3 };

struct body {
    int64_t place[AXES], speed[AXES], force[AXES];
};

static size_t count;
static struct body *bodies;

static void fill(struct body *all) {
    uint64_t state = 12345;
    for (size_t i = 0; i < count; i++)
        for (size_t axis = 0; axis < AXES; axis++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            all[i].place[axis] = (int64_t)(state >> 44);
        }
}

/* Adds the forces between the bodies from `from` to `to` and the half of all that follows each. */
static void attract(const struct body *all, int64_t (*sums)[AXES], size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        for (size_t step = 1; step <= count / 2; step++) {
            size_t j = (i + step) % count;
            /* With an even count, each pair of opposite bodies is counted by one of them. */
            if (2 * step == count && i > j) continue;
            int64_t distance = 1000;
            for (size_t axis = 0; axis < AXES; axis++)
                distance += llabs(all[j].place[axis] - all[i].place[axis]);
            for (size_t axis = 0; axis < AXES; axis++) {
                int64_t pull = (all[j].place[axis] - all[i].place[axis]) * 4096 / distance;
                sums[i][axis] += pull;
                sums[j][axis] -= pull;
            }
        }
}

static void move(struct body *all, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        for (size_t axis = 0; axis < AXES; axis++) {
            all[i].speed[axis] += all[i].force[axis] / 64;
            all[i].place[axis] += all[i].speed[axis] / 16;
            all[i].force[axis] = 0;
        }
}

static void add(struct body *all, int64_t (*sums)[AXES], size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        for (size_t axis = 0; axis < AXES; axis++) all[i].force[axis] += sums[i][axis];
}

/* One step of this process. The lock of a process's bodies has its number. */
static void step(int64_t (*sums)[AXES]) {
    size_t from = share(count, Tmk_proc_id), to = share(count, Tmk_proc_id + 1);
    memset(sums, 0, count * sizeof(*sums));
    attract(bodies, sums, from, to);
    for (unsigned i = 0; i < Tmk_nprocs; i++) {
        unsigned owner = (Tmk_proc_id + i) % Tmk_nprocs;
        Tmk_lock_acquire(owner);
        add(bodies, sums, share(count, owner), share(count, owner + 1));
        Tmk_lock_release(owner);
    }
    Tmk_barrier(1);
    move(bodies, from, to);
    Tmk_barrier(2);
}

static int is_right(size_t steps, int64_t (*sums)[AXES]) {
    struct body *expected = private_memory(count, sizeof(*expected));
    fill(expected);
    for (size_t i = 0; i < steps; i++) {
        memset(sums, 0, count * sizeof(*sums));
        attract(expected, sums, 0, count);
        add(expected, sums, 0, count);
        move(expected, 0, count);
    }
    int same = memcmp(expected, bodies, count * sizeof(*expected)) == 0;
    free(expected);
    return same;
}

int main(int argc, char **argv) {
    count = argument(argc, argv, 1, 300, 2, 100000);
    size_t steps = argument(argc, argv, 2, 5, 1, 100000);
    Tmk_startup(argc, argv);
    if (Tmk_proc_id == 0) {
        bodies = shared_memory(count, sizeof(*bodies));
        fill(bodies);
        Tmk_distribute(&bodies, sizeof(bodies));
    }
    Tmk_barrier(0);
    int64_t(*sums)[AXES] = private_memory(count, sizeof(*sums));
    double start = seconds();
    for (size_t i = 0; i < steps; i++) step(sums);
    double elapsed = seconds() - start;
    int right = Tmk_proc_id != 0 || is_right(steps, sums);
    free(sums);
    finish("water", right, elapsed);
}
