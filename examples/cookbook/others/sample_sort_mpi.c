/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The form of ../sample_sort.c in MPI, for comparison. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

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
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t n = (size_t)size;
    uint64_t *own = calloc(count + 1, sizeof *own), state = 0x9e3779b97f4a7c15u ^ (uint64_t)(rank + 1);
    for (size_t i = 0; i < count; i++) { /* xorshift64 (Marsaglia, Xorshift RNGs, 2003) */
        state ^= state << 13;
        state ^= state >> 7;
        own[i] = state ^= state << 17;
    }
    qsort(own, count, sizeof *own, compare);
    uint64_t before[2] = {count, sum(own, count)}, check[2];
    /* Each process gives some samples; every size-th of them divides the numbers. */
    uint64_t *samples = calloc(n, sizeof *own), *all = calloc(n * n, sizeof *own);
    for (size_t i = 0; i < n && count > 0; i++) samples[i] = own[i * count / n];
    MPI_Allgather(samples, size, MPI_UINT64_T, all, size, MPI_UINT64_T, MPI_COMM_WORLD);
    qsort(all, n * n, sizeof *own, compare);
    int *counts = calloc(n, sizeof *counts), *places = calloc(n, sizeof *places);
    int *their_counts = calloc(n, sizeof *counts), *their_places = calloc(n, sizeof *places);
    for (size_t i = 0; i < n; i++) {
        places[i] = (int)at;
        for (; at < count && (i + 1 == n || own[at] < all[(i + 1) * n]); at++) counts[i]++;
    }
    MPI_Alltoall(counts, 1, MPI_INT, their_counts, 1, MPI_INT, MPI_COMM_WORLD);
    for (size_t i = 0; i < n; i++) {
        their_places[i] = (int)total;
        total += (size_t)their_counts[i];
    }
    uint64_t *sorted = calloc(total + 1, sizeof *sorted);
    MPI_Alltoallv(own, counts, places, MPI_UINT64_T, sorted, their_counts, their_places, MPI_UINT64_T,
                  MPI_COMM_WORLD);
    qsort(sorted, total, sizeof *sorted, compare);
    /* Nothing is lost, and nothing here is less than anything at the processes before. */
    uint64_t mine[2] = {total, sum(sorted, total)}, after[2], last = total > 0 ? sorted[total - 1] : 0;
    uint64_t highest;
    MPI_Scan(&last, &highest, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    int is_ordered = total == 0 || last == highest, are_ordered;
    MPI_Allreduce(before, check, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(mine, after, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&is_ordered, &are_ordered, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (check[0] != after[0] || check[1] != after[1] || !are_ordered) MPI_Abort(MPI_COMM_WORLD, 1);
    if (rank == 0) printf("%llu numbers are sorted\n", (unsigned long long)after[0]);
    MPI_Finalize();
    free(own), free(samples), free(all), free(sorted);
    free(counts), free(places), free(their_counts), free(their_places);
    return 0;
}
