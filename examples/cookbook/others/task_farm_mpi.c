/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The form of ../task_farm.c in MPI, for comparison. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { TASKS = 1, RESULTS = 2, RANGE = 1000 };
#define END UINT64_MAX

static uint64_t give_out(int workers, uint64_t limit) {
    uint64_t next = 0, primes = 0;
    for (; workers > 0; next += RANGE) {
        MPI_Status got;
        uint64_t result = 0;
        MPI_Recv(&result, 1, MPI_UINT64_T, MPI_ANY_SOURCE, RESULTS, MPI_COMM_WORLD, &got);
        primes += result;
        uint64_t task = next < limit ? next : END;
        MPI_Send(&task, 1, MPI_UINT64_T, got.MPI_SOURCE, TASKS, MPI_COMM_WORLD);
        workers -= task == END;
    }
    return primes;
}

static int is_prime(uint64_t number) {
    for (uint64_t divisor = 2; divisor * divisor <= number; divisor++)
        if (number % divisor == 0) return 0;
    return number > 1;
}

static void work(uint64_t limit) {
    /* The first message has no result, and asks for a task only. */
    uint64_t task, primes = 0;
    for (;;) {
        MPI_Send(&primes, 1, MPI_UINT64_T, 0, RESULTS, MPI_COMM_WORLD);
        MPI_Recv(&task, 1, MPI_UINT64_T, 0, TASKS, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (task == END) return;
        primes = 0;
        for (uint64_t number = task; number < limit && number < task + RANGE; number++)
            primes += (uint64_t)is_prime(number);
    }
}

int main(int argc, char **argv) {
    uint64_t limit = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) {
        uint64_t primes = give_out(size - 1, limit);
        printf("%llu primes below %llu\n", (unsigned long long)primes, (unsigned long long)limit);
    } else work(limit);
    MPI_Finalize();
    return 0;
}
