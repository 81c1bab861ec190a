/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The travelling salesman by branch and bound in shared memory.
 *
 *     tsp [CITIES] [SEED]
 *
 * A shared counter under a lock gives out the first cities of tours. Each process completes them,
 * and compares with the shortest tour so far, which another lock protects. Process 0 compares the
 * length with that of dynamic programming over sets of cities. */

#include "dsm.h"

enum { CITIES_MAX = 16, TASKS = 0, BEST = 1 };

/* Shared by all processes. */
struct shared {
    unsigned next_task;
    unsigned best_length;
    unsigned distance[CITIES_MAX][CITIES_MAX];
    unsigned char tour[CITIES_MAX];
};

static struct shared *shared;

/* Private state of one process while it completes a tour. */
struct search {
    unsigned cities;
    unsigned best_length;
    unsigned distance[CITIES_MAX][CITIES_MAX];
    unsigned char tour[CITIES_MAX];
};

static unsigned random_number(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33);
}

static void draw_map(unsigned cities, uint64_t seed) {
    int x[CITIES_MAX], y[CITIES_MAX];
    for (unsigned i = 0; i < cities; i++) {
        x[i] = (int)(random_number(&seed) % 1000);
        y[i] = (int)(random_number(&seed) % 1000);
    }
    for (unsigned i = 0; i < cities; i++)
        for (unsigned j = 0; j < cities; j++)
            shared->distance[i][j] = (unsigned)(abs(x[i] - x[j]) + abs(y[i] - y[j]));
}

/* Records a tour if it is still the shortest, and updates the private length of the shortest. */
static void offer(struct search *search, unsigned length) {
    Tmk_lock_acquire(BEST);
    if (length < shared->best_length) {
        shared->best_length = length;
        memcpy(shared->tour, search->tour, search->cities);
    }
    search->best_length = shared->best_length;
    Tmk_lock_release(BEST);
}

static void extend(struct search *search, unsigned count, unsigned visited, unsigned length) {
    unsigned last = search->tour[count - 1];
    if (length >= search->best_length) return;
    if (count == search->cities) {
        unsigned closed = length + search->distance[last][0];
        if (closed < search->best_length) offer(search, closed);
        return;
    }
    for (unsigned city = 1; city < search->cities; city++) {
        if (visited & 1u << city) continue;
        search->tour[count] = (unsigned char)city;
        extend(search, count + 1, visited | 1u << city, length + search->distance[last][city]);
    }
}

/* Completes all tours that begin with city 0 and the two cities of the task. */
static void solve(struct search *search, unsigned task) {
    unsigned first = 1 + task / (search->cities - 1), second = 1 + task % (search->cities - 1);
    if (first == second) return;
    search->tour[0] = 0;
    search->tour[1] = (unsigned char)first;
    search->tour[2] = (unsigned char)second;
    extend(search, 3, 1u | 1u << first | 1u << second,
           search->distance[0][first] + search->distance[first][second]);
}

static void work(unsigned cities) {
    struct search search = {.cities = cities};
    memcpy(search.distance, shared->distance, sizeof(search.distance));
    unsigned tasks = (cities - 1) * (cities - 1);
    for (;;) {
        Tmk_lock_acquire(TASKS);
        unsigned task = shared->next_task < tasks ? shared->next_task++ : tasks;
        Tmk_lock_release(TASKS);
        if (task == tasks) return;
        Tmk_lock_acquire(BEST);
        search.best_length = shared->best_length;
        Tmk_lock_release(BEST);
        solve(&search, task);
    }
}

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

/* Returns the length of the shortest tour: for each set of cities and last city, the shortest way
 * from city 0 through the set. */
static unsigned shortest(unsigned cities) {
    size_t sets = (size_t)1 << cities;
    unsigned(*way)[CITIES_MAX] = private_memory(sets, sizeof(*way));
    memset(way, 0xff, sets * sizeof(*way));
    way[1][0] = 0;
    for (size_t set = 1; set < sets; set += 2)
        for (unsigned last = 0; last < cities; last++)
            for (unsigned city = 1; way[set][last] != UINT32_MAX && city < cities; city++) {
                size_t larger = set | (size_t)1 << city;
                if (larger != set)
                    way[larger][city] = least(way[larger][city],
                                              way[set][last] + shared->distance[last][city]);
            }
    unsigned length = UINT32_MAX;
    for (unsigned last = 1; last < cities; last++)
        length = least(length, way[sets - 1][last] + shared->distance[last][0]);
    free(way);
    return length;
}

/* Checks the length, and that the tour has it and visits each city once. */
static int is_right(unsigned cities) {
    unsigned visited = 0, length = 0;
    for (unsigned i = 0; i < cities; i++) {
        unsigned city = shared->tour[i], next = shared->tour[(i + 1) % cities];
        visited |= 1u << city;
        length += shared->distance[city][next];
    }
    return visited == (1u << cities) - 1 && length == shared->best_length &&
           length == shortest(cities);
}

int main(int argc, char **argv) {
    unsigned cities = (unsigned)argument(argc, argv, 1, 12, 4, CITIES_MAX);
    uint64_t seed = argument(argc, argv, 2, 1, 0, 1000000000);
    Tmk_startup(argc, argv);
    if (Tmk_proc_id == 0) {
        shared = shared_memory(1, sizeof(*shared));
        shared->best_length = UINT32_MAX;
        draw_map(cities, seed);
        Tmk_distribute(&shared, sizeof(shared));
    }
    Tmk_barrier(0);
    double start = seconds();
    work(cities);
    Tmk_barrier(1);
    double elapsed = seconds() - start;
    finish("tsp", Tmk_proc_id != 0 || is_right(cities), elapsed);
}
