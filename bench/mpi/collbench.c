// SPDX-License-Identifier: MIT OR Apache-2.0
// Collective operations of an MPI, and one-sided operations of many ranks on one. It prints the time of the
// slowest rank, and the processor time and context switches of all ranks, which vary less on a busy machine.
//
//   collbench NAME LEN ROUNDS
//
// NAME: barrier, bcast, allreduce, reduce, allgather, gather, scatter, alltoall, reduce_scatter, scan,
// iallreduce, ibcast, iallgather, put, get, lock.
// A barrier follows each bcast, reduce, gather, scatter and scan, because some ranks do not wait in them.
// LEN: bytes of one rank's part. Output in one line: name, LEN, ranks, and per round: µs elapsed, µs of
// processor time, voluntary context switches, and involuntary ones (including yields).

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

// Rounds that are not counted.
enum { WARM_UP = 5 };

struct plan {
    int len, rank, size;
    char *in, *out;
    MPI_Win window;
};

static void barrier(struct plan *plan)
{
    (void)plan;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void bcast(struct plan *plan)
{
    MPI_Bcast(plan->in, plan->len, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void reduce(struct plan *plan)
{
    MPI_Reduce(plan->in, plan->out, plan->len / 4, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void allgather(struct plan *plan)
{
    MPI_Allgather(plan->in, plan->len, MPI_BYTE, plan->out, plan->len, MPI_BYTE, MPI_COMM_WORLD);
}

static void gather(struct plan *plan)
{
    MPI_Gather(plan->in, plan->len, MPI_BYTE, plan->out, plan->len, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void scatter(struct plan *plan)
{
    MPI_Scatter(plan->in, plan->len, MPI_BYTE, plan->out, plan->len, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void scan(struct plan *plan)
{
    MPI_Scan(plan->in, plan->out, plan->len / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void allreduce(struct plan *plan)
{
    MPI_Allreduce(plan->in, plan->out, plan->len / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce_scatter(struct plan *plan)
{
    MPI_Reduce_scatter_block(plan->in, plan->out, plan->len / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(struct plan *plan)
{
    MPI_Alltoall(plan->in, plan->len, MPI_BYTE, plan->out, plan->len, MPI_BYTE, MPI_COMM_WORLD);
}

static void iallreduce(struct plan *plan)
{
    MPI_Request request;
    MPI_Iallreduce(plan->in, plan->out, plan->len / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void ibcast(struct plan *plan)
{
    MPI_Request request;
    MPI_Ibcast(plan->in, plan->len, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void iallgather(struct plan *plan)
{
    MPI_Request request;
    MPI_Iallgather(plan->in, plan->len, MPI_BYTE, plan->out, plan->len, MPI_BYTE, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// All other ranks access the memory of rank 0 at once.
static void put(struct plan *plan)
{
    MPI_Win_fence(0, plan->window);
    if (plan->rank != 0)
        MPI_Put(plan->in, plan->len, MPI_BYTE, 0, 0, plan->len, MPI_BYTE, plan->window);
    MPI_Win_fence(0, plan->window);
}

static void get(struct plan *plan)
{
    MPI_Win_fence(0, plan->window);
    if (plan->rank != 0)
        MPI_Get(plan->in, plan->len, MPI_BYTE, 0, 0, plan->len, MPI_BYTE, plan->window);
    MPI_Win_fence(0, plan->window);
}

static void lock(struct plan *plan)
{
    if (plan->rank != 0) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, plan->window);
        MPI_Put(plan->in, plan->len, MPI_BYTE, 0, 0, plan->len, MPI_BYTE, plan->window);
        MPI_Win_unlock(0, plan->window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

// Windows are created only if needed, because some MPIs do not support them everywhere.
static const struct kind {
    const char *name;
    void (*round)(struct plan *);
    int has_window;
} KINDS[] = {
    {"barrier", barrier, 0},       {"bcast", bcast, 0},
    {"allreduce", allreduce, 0},   {"reduce", reduce, 0},
    {"allgather", allgather, 0},   {"gather", gather, 0},
    {"scatter", scatter, 0},       {"alltoall", alltoall, 0},
    {"scan", scan, 0},             {"reduce_scatter", reduce_scatter, 0},
    {"iallreduce", iallreduce, 0}, {"ibcast", ibcast, 0},
    {"iallgather", iallgather, 0}, {"put", put, 1},
    {"get", get, 1},               {"lock", lock, 1},
};

static const struct kind *find(const char *name)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (strcmp(KINDS[i].name, name) == 0)
            return &KINDS[i];
    return NULL;
}

static double used_us(const struct rusage *usage)
{
    return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1e6 +
           (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

static void measure(const struct kind *kind, struct plan *plan, int rounds)
{
    struct rusage before, after;
    double begun, took, longest;
    double own[3], all[3];

    for (int i = 0; i < WARM_UP; i++)
        kind->round(plan);
    MPI_Barrier(MPI_COMM_WORLD);
    getrusage(RUSAGE_SELF, &before);
    begun = MPI_Wtime();
    for (int i = 0; i < rounds; i++)
        kind->round(plan);
    took = MPI_Wtime() - begun;
    getrusage(RUSAGE_SELF, &after);
    own[0] = used_us(&after) - used_us(&before);
    own[1] = (double)(after.ru_nvcsw - before.ru_nvcsw);
    own[2] = (double)(after.ru_nivcsw - before.ru_nivcsw);
    MPI_Reduce(own, all, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (plan->rank == 0)
        printf("%-15s%10d%6d%14.2f%14.2f%10.2f%10.2f\n", kind->name, plan->len, plan->size,
               longest * 1e6 / rounds, all[0] / rounds, all[1] / rounds, all[2] / rounds);
}

int main(int argc, char **argv)
{
    struct plan plan;
    const struct kind *kind;
    size_t len;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &plan.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &plan.size);
    kind = argc == 4 ? find(argv[1]) : NULL;
    plan.len = kind ? atoi(argv[2]) : -1;
    if (plan.len < 0 || atoi(argv[3]) <= 0) {
        if (plan.rank == 0)
            fprintf(stderr, "usage: collbench NAME LEN ROUNDS; collbench.c lists the names at its top\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    len = (size_t)plan.len * (size_t)plan.size + sizeof(float);
    plan.in = calloc(len, 1);
    plan.out = calloc(len, 1);
    if (kind->has_window)
        MPI_Win_create(plan.out, (MPI_Aint)len, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                       &plan.window);
    measure(kind, &plan, atoi(argv[3]));
    if (kind->has_window)
        MPI_Win_free(&plan.window);
    free(plan.in);
    free(plan.out);
    MPI_Finalize();
    return 0;
}
