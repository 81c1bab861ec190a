// SPDX-License-Identifier: MIT OR Apache-2.0
// Latency, bandwidth and message rate of an MPI, in the columns that people know from the OSU
// benchmarks. Two processes; `rate` takes any even number, the first half sends to the second.
//
//   mpibench latency|bw|rate [-m LEN_MIN:LEN_MAX] [-i ITERATIONS] [-w WINDOW] [-c]
//
// With -c every byte received is compared with what was sent, and figures mean nothing.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TAG_DATA = 1,
    TAG_ACK = 2,
    // From this length on a tenth of the iterations is enough.
    LONG = 8192,
    // Rounds that are not timed.
    WARM_UP = 10,
    WINDOW_MAX = 1024,
};

struct plan {
    size_t min, max;
    int iterations, window;
    int check;
    int rank, count;
};

static void die(const char *what)
{
    fprintf(stderr, "mpibench: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

static void *buffer(size_t len)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, len > 0 ? len : 1) != 0)
        die("out of memory; ask for shorter messages with -m");
    return memory;
}

// A pattern that differs between rounds, so that an old message is not taken for a new one.
static void fill(const struct plan *plan, unsigned char *bytes, size_t len, int round)
{
    if (plan->check)
        for (size_t i = 0; i < len; i++)
            bytes[i] = (unsigned char)(i * 31 + (size_t)round);
}

static void compare(const struct plan *plan, const unsigned char *bytes, size_t len, int round)
{
    if (!plan->check)
        return;
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != (unsigned char)(i * 31 + (size_t)round))
            die("a byte differs from what was sent");
}

static int rounds(const struct plan *plan, size_t len)
{
    int all = len >= LONG ? plan->iterations / 10 : plan->iterations;
    return all > 0 ? all : 1;
}

static void latency(const struct plan *plan, size_t len)
{
    unsigned char *out = buffer(len), *in = buffer(len);
    int all = rounds(plan, len), size = (int)len;
    double begun = 0;
    for (int round = -WARM_UP; round < all; round++) {
        if (round == 0)
            begun = MPI_Wtime();
        fill(plan, out, len, round);
        if (plan->rank == 0) {
            MPI_Send(out, size, MPI_BYTE, 1, TAG_DATA, MPI_COMM_WORLD);
            MPI_Recv(in, size, MPI_BYTE, 1, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, size, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, size, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD);
        }
        compare(plan, in, len, round);
    }
    if (plan->rank == 0)
        printf("%-10zu%15.2f\n", len, (MPI_Wtime() - begun) * 1e6 / (2.0 * all));
    free(out);
    free(in);
}

// One pair's windows: a window of sends, then a short answer. Returns the seconds it took.
static double windows(const struct plan *plan, size_t len, int peer, int sends)
{
    static MPI_Request requests[WINDOW_MAX];
    unsigned char *bytes = buffer(len * (size_t)plan->window);
    int all = rounds(plan, len), size = (int)len;
    double begun = 0;
    for (int round = -WARM_UP; round < all; round++) {
        if (round == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begun = MPI_Wtime();
        }
        for (int at = 0; at < plan->window; at++) {
            unsigned char *own = bytes + len * (size_t)at;
            if (sends) {
                fill(plan, own, len, round + at);
                MPI_Isend(own, size, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &requests[at]);
            } else {
                MPI_Irecv(own, size, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &requests[at]);
            }
        }
        MPI_Waitall(plan->window, requests, MPI_STATUSES_IGNORE);
        if (sends) {
            MPI_Recv(NULL, 0, MPI_BYTE, peer, TAG_ACK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            for (int at = 0; at < plan->window; at++)
                compare(plan, bytes + len * (size_t)at, len, round + at);
            MPI_Send(NULL, 0, MPI_BYTE, peer, TAG_ACK, MPI_COMM_WORLD);
        }
    }
    double took = MPI_Wtime() - begun;
    free(bytes);
    return took;
}

static void bandwidth(const struct plan *plan, size_t len)
{
    double took = windows(plan, len, 1 - plan->rank, plan->rank == 0);
    double bytes = (double)len * plan->window * rounds(plan, len);
    if (plan->rank == 0)
        printf("%-10zu%15.2f\n", len, bytes / took / 1e6);
}

static void rate(const struct plan *plan, size_t len)
{
    int half = plan->count / 2, sends = plan->rank < half;
    double took = windows(plan, len, sends ? plan->rank + half : plan->rank - half, sends);
    double longest = 0;
    MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    double messages = (double)plan->window * rounds(plan, len) * half;
    if (plan->rank == 0)
        printf("%-10zu%15.2f%20.2f\n", len, messages * (double)len / longest / 1e6,
               messages / longest);
}

static struct plan parse(int argc, char **argv)
{
    struct plan plan = {.min = 1, .max = 4u << 20, .iterations = 1000, .window = 64};
    int option;
    while ((option = getopt(argc, argv, "m:i:w:c")) != -1) {
        switch (option) {
        case 'm':
            if (sscanf(optarg, "%zu:%zu", &plan.min, &plan.max) != 2 || plan.max > 1u << 30)
                die("-m takes two lengths of at most 1 GiB, as in -m 8:1048576");
            break;
        case 'i':
            plan.iterations = atoi(optarg);
            break;
        case 'w':
            plan.window = atoi(optarg);
            break;
        case 'c':
            plan.check = 1;
            break;
        default:
            die("usage: mpibench latency|bw|rate [-m MIN:MAX] [-i ITERATIONS] [-w WINDOW] [-c]");
        }
    }
    if (plan.iterations < 1 || plan.window < 1 || plan.window > WINDOW_MAX)
        die("iterations are at least 1, windows 1 to 1024");
    return plan;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    struct plan plan = parse(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &plan.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &plan.count);
    const char *what = optind < argc ? argv[optind] : "";
    void (*measure)(const struct plan *, size_t) = NULL;
    const char *columns = "";
    if (strcmp(what, "latency") == 0) {
        measure = latency, columns = "# Size          Latency (us)";
    } else if (strcmp(what, "bw") == 0) {
        measure = bandwidth, columns = "# Size      Bandwidth (MB/s)";
    } else if (strcmp(what, "rate") == 0) {
        measure = rate, columns = "# Size                  MB/s          Messages/s";
    } else {
        die("say what to measure: latency, bw or rate");
    }
    if (plan.count % 2 != 0 || (measure != rate && plan.count != 2))
        die("two processes are needed, or an even number for rate; start it with mpirun -n 2");
    if (plan.rank == 0)
        puts(columns);
    for (size_t len = plan.min; len <= plan.max; len = len > 0 ? len * 2 : 1)
        measure(&plan, len);
    MPI_Finalize();
    return 0;
}
