/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
  * IS, integer sort: ranks keys by a bucket sort with an all-to-all exchange.
 *
 *   mpirun -n PROCESSES ./is CLASS [--json] [--corrupt]
 *
  * Written from the statement of the NAS Parallel Benchmarks (RNR-94-007). The number of processes
  * must not exceed the number of buckets, 1024. */

#include "common.h"

#include <stdio.h>
#include <stdlib.h>

#define SEED UINT64_C(314159265)
#define ITERATIONS 10
#define TEST_COUNT 5
#define BUCKETS_LOG2 10
#define BUCKET_COUNT (1 << BUCKETS_LOG2)

struct problem {
    int keys_log2, values_log2;
    /* The published places of five keys, and their ranks, which change by `step` each iteration. */
    int64_t test_index[TEST_COUNT];
    int64_t test_rank[TEST_COUNT];
    int step[TEST_COUNT];
};

/* `test_rank` is the rank in iteration 0, which is not run. */
static const struct problem PROBLEMS[] = {
    { 16, 11, { 48427, 17148, 23627, 62548, 4431 }, { 0, 18, 346, 64917, 65463 }, { 1, 1, 1, -1, -1 } },
    { 20, 16, { 357773, 934767, 875723, 898999, 404505 },
      { 1247, 11696, 1039987, 1043896, 1048018 }, { 1, 1, -1, -1, -1 } },
    { 23, 19, { 2112377, 662041, 5336171, 3642833, 4250760 },
      { 103, 17522, 123927, 8288933, 8388265 }, { 1, 1, 1, -1, -1 } },
    { 25, 21, { 41869, 812306, 5102857, 18232239, 26860214 },
      { 33422937, 10244, 59149, 33135281, 99 }, { -1, 1, 1, -1, 1 } },
};

struct sorter {
    struct npb_run *run;
    const struct problem *problem;
    int bucket_shift; /* a key shifted right by this gives its bucket */
    int64_t key_first, key_count; /* the initial keys of this process among all keys */
    int32_t *keys; /* as generated */
    int32_t *by_bucket; /* the same, in the order of buckets */
    int32_t *received; /* keys of this process's buckets */
    size_t received_capacity;
    int received_count;
    int32_t value_first, value_end; /* keys of this process's buckets are in this half-open range */
    int64_t before; /* keys in the buckets of lower processes */
    int64_t *below; /* for each of these values: number of smaller keys in this process */
    size_t below_capacity;
    int *send_count, *send_first, *receive_count, *receive_first;
    int64_t right_ranks; /* published ranks that this process confirmed */
};

static void generate(struct sorter *s) {
    double quarter = (double)(1 << s->problem->values_log2) / 4;
    uint64_t state = npb_jump(SEED, 4 * (uint64_t)s->key_first);
    for (int64_t i = 0; i < s->key_count; i++) {
        double sum = npb_random(&state);
        for (int more = 0; more < 3; more++)
            sum += npb_random(&state);
        s->keys[i] = (int32_t)(quarter * sum);
    }
}

static void prepare(struct sorter *s, struct npb_run *run) {
    int64_t total = INT64_C(1) << PROBLEMS[npb_class_index(run)].keys_log2;
    size_t size = (size_t)run->size;
    *s = (struct sorter){ .run = run, .problem = &PROBLEMS[npb_class_index(run)] };
    s->bucket_shift = s->problem->values_log2 - BUCKETS_LOG2;
    s->key_first = npb_share(total, run->rank, run->size);
    s->key_count = npb_share(total, run->rank + 1, run->size) - s->key_first;
    s->keys = npb_alloc((size_t)s->key_count, sizeof *s->keys);
    s->by_bucket = npb_alloc((size_t)s->key_count, sizeof *s->by_bucket);
    s->send_count = npb_alloc(size, sizeof(int));
    s->send_first = npb_alloc(size, sizeof(int));
    s->receive_count = npb_alloc(size, sizeof(int));
    s->receive_first = npb_alloc(size, sizeof(int));
    generate(s);
}

static void release(struct sorter *s) {
    free(s->keys);
    free(s->by_bucket);
    free(s->received);
    free(s->below);
    free(s->send_count);
    free(s->send_first);
    free(s->receive_count);
    free(s->receive_first);
}

/* Changes keys in each iteration, so that no iteration can be omitted. */
static void change_keys(struct sorter *s, int iteration) {
    int64_t places[2] = { iteration, iteration + ITERATIONS };
    int32_t values[2] = { iteration, (1 << s->problem->values_log2) - iteration };
    for (int i = 0; i < 2; i++) {
        int64_t at = places[i] - s->key_first;
        if (at >= 0 && at < s->key_count)
            s->keys[at] = values[i];
    }
}

/* Counts this process's keys by bucket, and sorts them by bucket. `counts` has one item per bucket,
 * followed by the tested keys at places of this process. */
static void order_by_bucket(struct sorter *s, int64_t *counts) {
    int64_t next[BUCKET_COUNT];
    for (int64_t i = 0; i < s->key_count; i++)
        counts[s->keys[i] >> s->bucket_shift]++;
    for (int64_t bucket = 0, first = 0; bucket < BUCKET_COUNT; bucket++) {
        next[bucket] = first;
        first += counts[bucket];
    }
    for (int64_t i = 0; i < s->key_count; i++)
        s->by_bucket[next[s->keys[i] >> s->bucket_shift]++] = s->keys[i];
    for (int test = 0; test < TEST_COUNT; test++) {
        int64_t at = s->problem->test_index[test] - s->key_first;
        if (at >= 0 && at < s->key_count)
            counts[BUCKET_COUNT + test] = s->keys[at];
    }
}

/* Assigns adjacent buckets to each process, which together hold its share of all keys as nearly as
 * possible. */
static void share_buckets(struct sorter *s, const int64_t *own, const int64_t *all) {
    int64_t total = INT64_C(1) << s->problem->keys_log2, passed = 0;
    int bucket = 0, first = 0;
    for (int process = 0; process < s->run->size; process++) {
        int64_t until = npb_share(total, process + 1, s->run->size);
        int begin = bucket;
        int64_t count = 0, before = passed;
        while (bucket < BUCKET_COUNT && (passed < until || process + 1 == s->run->size)) {
            passed += all[bucket];
            count += own[bucket++];
        }
        s->send_count[process] = (int)count;
        s->send_first[process] = first;
        first += (int)count;
        if (process == s->run->rank) {
            s->value_first = begin << s->bucket_shift;
            s->value_end = bucket << s->bucket_shift;
            s->before = before;
        }
    }
}

/* Returns memory for `count` items; old items are not preserved. */
static void *enlarged(void *memory, size_t *capacity, size_t count, size_t len) {
    if (count <= *capacity)
        return memory;
    free(memory);
    *capacity = count;
    return npb_alloc(count, len);
}

/* Sends each key to the process of its bucket. */
static void exchange(struct sorter *s) {
    int count = 0;
    MPI_Alltoall(s->send_count, 1, MPI_INT, s->receive_count, 1, MPI_INT, MPI_COMM_WORLD);
    for (int process = 0; process < s->run->size; process++) {
        s->receive_first[process] = count;
        count += s->receive_count[process];
    }
    s->received_count = count;
    s->received = enlarged(s->received, &s->received_capacity, (size_t)count, sizeof *s->received);
    MPI_Alltoallv(s->by_bucket, s->send_count, s->send_first, MPI_INT32_T, s->received,
                  s->receive_count, s->receive_first, MPI_INT32_T, MPI_COMM_WORLD);
}

/* Counts the smaller keys for each value. */
static void count_smaller(struct sorter *s) {
    size_t values = (size_t)(s->value_end - s->value_first);
    s->below = enlarged(s->below, &s->below_capacity, values + 1, sizeof *s->below);
    for (size_t value = 0; value <= values; value++)
        s->below[value] = 0;
    for (int i = 0; i < s->received_count; i++)
        s->below[s->received[i] - s->value_first + 1]++;
    for (size_t value = 0; value < values; value++)
        s->below[value + 1] += s->below[value];
}

/* Ranks all keys once, and counts the published ranks that are correct. */
static void rank_keys(struct sorter *s, int iteration) {
    int64_t own[BUCKET_COUNT + TEST_COUNT] = { 0 }, all[BUCKET_COUNT + TEST_COUNT];
    change_keys(s, iteration);
    order_by_bucket(s, own);
    MPI_Allreduce(own, all, BUCKET_COUNT + TEST_COUNT, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    share_buckets(s, own, all);
    exchange(s);
    if (s->run->corrupt && iteration == ITERATIONS && s->received_count > 0)
        s->received[0] = s->value_first + (s->received[0] == s->value_first);
    count_smaller(s);
    for (int test = 0; test < TEST_COUNT; test++) {
        int64_t key = all[BUCKET_COUNT + test];
        if (key < s->value_first || key >= s->value_end)
            continue;
        int64_t expected = s->problem->test_rank[test] + iteration * s->problem->step[test];
        s->right_ranks += s->before + s->below[key - s->value_first] == expected;
    }
}

/* Hashes a key with the finaliser of splitmix64, so that different keys hardly have the same sum. */
static uint64_t mixed(int32_t key) {
    uint64_t bits = (uint64_t)key + UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

/* Returns the number of keys of all processes; sets `same` if their sums match the generated keys. */
static int64_t same_keys(const struct sorter *s, const int32_t *sorted, bool *same) {
    uint64_t own[2] = { 0, (uint64_t)s->received_count }, all[2];
    for (int64_t i = 0; i < s->key_count; i++)
        own[0] += mixed(s->keys[i]);
    for (int i = 0; i < s->received_count; i++)
        own[0] -= mixed(sorted[i]);
    MPI_Allreduce(own, all, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    *same = all[0] == 0;
    return (int64_t)all[1];
}

/* Returns the number of adjacent keys in the wrong order, among all keys. */
static int64_t disorder(const struct sorter *s, const int32_t *sorted) {
    int64_t own = 0, all;
    int32_t last = s->received_count > 0 ? sorted[s->received_count - 1] : -1, before = -1;
    for (int i = 1; i < s->received_count; i++)
        own += sorted[i - 1] > sorted[i];
    /* The largest key of all lower processes. */
    MPI_Exscan(&last, &before, 1, MPI_INT32_T, MPI_MAX, MPI_COMM_WORLD);
    own += s->run->rank > 0 && s->received_count > 0 && before > sorted[0];
    MPI_Allreduce(&own, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* Puts the keys in the order of their ranks, and checks that they are sorted and unchanged. */
static void check(struct sorter *s) {
    bool same;
    int64_t right, total = INT64_C(1) << s->problem->keys_log2;
    int32_t *sorted = npb_alloc((size_t)s->received_count, sizeof *sorted);
    for (int i = 0; i < s->received_count; i++)
        sorted[s->below[s->received[i] - s->value_first]++] = s->received[i];
    MPI_Allreduce(&s->right_ranks, &right, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    npb_check(s->run, "published ranks found", (double)right, ITERATIONS * TEST_COUNT, 0);
    npb_check(s->run, "neighbours out of order", (double)disorder(s, sorted), 0, 0);
    npb_check(s->run, "keys after the exchange", (double)same_keys(s, sorted, &same), (double)total, 0);
    npb_check(s->run, "same keys as before, by their sum of hashes", same, 1, 0);
    free(sorted);
}

int main(int argc, char **argv) {
    struct npb_run run;
    struct sorter sorter;
    npb_begin(&run, "IS", argc, argv);
    if (run.size > BUCKET_COUNT)
        npb_refuse(&run, "there are more processes than buckets: take 1024 or fewer");
    prepare(&sorter, &run);
    /* One untimed iteration, because memory is touched and connections are made in it. */
    rank_keys(&sorter, 1);
    sorter.right_ranks = 0;
    npb_start(&run);
    for (int iteration = 1; iteration <= ITERATIONS; iteration++)
        rank_keys(&sorter, iteration);
    npb_stop(&run);
    run.operations = (double)ITERATIONS * (double)(INT64_C(1) << sorter.problem->keys_log2);
    check(&sorter);
    release(&sorter);
    return npb_end(&run);
}
