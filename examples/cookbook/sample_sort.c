/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sorts random numbers by samples: portolan run -n 4 -- sample_sort [COUNT], with COUNT numbers at
 * each process. */
#include "../c/example.h"

static int compare(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static uint64_t sum(const uint64_t *numbers, size_t count) {
    uint64_t sum = 0;
    while (count > 0) sum += numbers[--count];
    return sum;
}

int main(int argc, char **argv) {
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000, total = 0, at = 0;
    portolan_node_t *node;
    MUST(portolan_join(&node));
    size_t rank = (size_t)MUST(portolan_rank(node)), size = (size_t)MUST(portolan_size(node));
    uint64_t *own = allocate(count, sizeof *own), state = 0x9e3779b97f4a7c15u ^ (rank + 1);
    for (size_t i = 0; i < count; i++) { /* xorshift64 (Marsaglia, Xorshift RNGs, 2003) */
        state ^= state << 13;
        state ^= state >> 7;
        own[i] = state ^= state << 17;
    }
    qsort(own, count, sizeof *own, compare);
    uint64_t check[2] = {count, sum(own, count)};
    /* Each process gives some samples; every size-th of them divides the numbers. */
    uint64_t *samples = allocate(size, sizeof *own), *all = allocate(size * size, sizeof *own);
    for (size_t i = 0; i < size && count > 0; i++) samples[i] = own[i * count / size];
    MUST(portolan_allgather(node, NULL, samples, size * sizeof *own, all));
    qsort(all, size * size, sizeof *own, compare);
    size_t *lens = allocate(size, sizeof *lens), *their_lens = allocate(size, sizeof *lens);
    for (size_t i = 0; i < size; i++)
        for (; at < count && (i + 1 == size || own[at] < all[(i + 1) * size]); at++) lens[i] += sizeof *own;
    MUST(portolan_alltoall(node, NULL, lens, their_lens, sizeof *lens));
    for (size_t i = 0; i < size; i++) total += their_lens[i] / sizeof *own;
    uint64_t *sorted = allocate(total, sizeof *sorted);
    MUST(portolan_alltoallv(node, NULL, own, lens, sorted, their_lens));
    qsort(sorted, total, sizeof *sorted, compare);
    /* Nothing is lost, and nothing here is less than anything at the processes before. */
    uint64_t after[2] = {total, sum(sorted, total)}, last = total > 0 ? sorted[total - 1] : 0;
    uint64_t highest = last;
    MUST(portolan_scan(node, NULL, PORTOLAN_MAX, PORTOLAN_UINT64, &highest, 1));
    uint64_t is_ordered = total == 0 || last == highest;
    MUST(portolan_allreduce(node, NULL, PORTOLAN_SUM, PORTOLAN_UINT64, check, 2));
    MUST(portolan_allreduce(node, NULL, PORTOLAN_SUM, PORTOLAN_UINT64, after, 2));
    MUST(portolan_allreduce(node, NULL, PORTOLAN_MIN, PORTOLAN_UINT64, &is_ordered, 1));
    if (check[0] != after[0] || check[1] != after[1] || !is_ordered) die("not sorted");
    if (rank == 0) printf("%llu numbers are sorted\n", (unsigned long long)after[0]);
    MUST(portolan_close(node));
    free(own), free(samples), free(all), free(lens), free(their_lens), free(sorted);
    return 0;
}
