// SPDX-License-Identifier: MIT OR Apache-2.0
// Latency, bandwidth and message rate of an MPI, in the columns of the OSU benchmarks. It needs two
// processes; `rate` also runs on any even number, where the first half sends to the second.
//
//   mpibench latency|bw|rate [-m LEN_MIN:LEN_MAX] [-i ITERATIONS | -n PASSES | -t SECONDS]
//            [-w WINDOW] [-b BATCH] [-c] [-o FILE]
//
// With -c every received byte is compared with the sent one, and figures are meaningless. -t is the time
// per length, -n the number of passes: windows, or batches of round trips (-b, one by default). -o writes
// the nanoseconds of each pass of the last length to FILE.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    TAG_DATA = 1,
    TAG_ACK = 2,
    // Minimum length for which a tenth of the iterations is sufficient.
    LONG = 8192,
    // Untimed passes.
    WARM_UP = 10,
    WINDOW_MAX = 1024,
};

struct plan {
    size_t min, max;
    int iterations, passes, window, batch; // passes 0: limited by the iterations
    double seconds;                        // 0: not limited by time
    const char *times_file;
    int check;
    int rank, count;
};

// Work of one process in each pass.
struct work {
    const struct plan *plan;
    unsigned char *out, *in;
    size_t len;
    int peer, sends;
};

typedef void pass_of(const struct work *, int pass);

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
        die("out of memory; choose shorter messages with -m");
    return memory;
}

// Writes a pattern that differs between rounds, so that a stale message is detected.
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

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// Returns the number of passes that fill the time, estimated from some passes. All processes get the same.
static int passes_for(const struct work *work, pass_of *pass, double seconds)
{
    // A tenth of the time gives a reliable estimate.
    for (int count = WARM_UP;; count *= 2) {
        double begun = now();
        for (int at = 0; at < count; at++)
            pass(work, at);
        double took = now() - begun;
        MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (took >= seconds / 10 || count > 1 << 28)
            return (int)(seconds * count / took) + 1;
    }
}

static int passes(const struct work *work, pass_of *pass)
{
    const struct plan *plan = work->plan;
    if (plan->seconds > 0)
        return passes_for(work, pass, plan->seconds);
    if (plan->passes > 0)
        return plan->passes;
    int all = work->len >= LONG ? plan->iterations / 10 : plan->iterations;
    return all > 0 ? all : 1;
}

static void write_times(const struct plan *plan, const double *seconds, int count)
{
    FILE *file = fopen(plan->times_file, "w");
    if (file == NULL)
        die("the file of -o cannot be written");
    for (int at = 0; at < count; at++)
        fprintf(file, "%.0f\n", seconds[at] * 1e9);
    if (fclose(file) != 0)
        die("the file of -o cannot be written");
}

// Runs the passes. Returns their total seconds and their number.
static double measure(const struct work *work, pass_of *pass, int *count)
{
    const struct plan *plan = work->plan;
    for (int at = 0; at < WARM_UP; at++)
        pass(work, at);
    *count = passes(work, pass);
    int records = plan->times_file != NULL && plan->rank == 0;
    double *times = records ? malloc((size_t)*count * sizeof *times) : NULL;
    if (records && times == NULL)
        die("out of memory for the times: choose a smaller -t");
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = now(), before = begun;
    for (int at = 0; at < *count; at++) {
        pass(work, at);
        if (records) {
            double after = now();
            times[at] = after - before;
            before = after;
        }
    }
    double took = now() - begun;
    if (records)
        write_times(plan, times, *count);
    free(times);
    return took;
}

// Performs a batch of round trips.
static void exchange(const struct work *work, int pass)
{
    int size = (int)work->len;
    for (int trip = 0; trip < work->plan->batch; trip++) {
        int round = pass + trip;
        fill(work->plan, work->out, work->len, round);
        if (work->sends) {
            MPI_Send(work->out, size, MPI_BYTE, work->peer, TAG_DATA, MPI_COMM_WORLD);
            MPI_Recv(work->in, size, MPI_BYTE, work->peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(work->in, size, MPI_BYTE, work->peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(work->out, size, MPI_BYTE, work->peer, TAG_DATA, MPI_COMM_WORLD);
        }
        compare(work->plan, work->in, work->len, round);
    }
}

static void latency(const struct plan *plan, size_t len)
{
    int count;
    struct work work = {plan, buffer(len), buffer(len), len, 1 - plan->rank, plan->rank == 0};
    double took = measure(&work, exchange, &count);
    if (plan->rank == 0)
        printf("%-10zu%15.2f\n", len, took * 1e6 / (2.0 * count * plan->batch));
    free(work.out);
    free(work.in);
}

// Sends or receives a window, then its acknowledgement.
static void window(const struct work *work, int pass)
{
    static MPI_Request requests[WINDOW_MAX];
    int size = (int)work->len;
    for (int at = 0; at < work->plan->window; at++) {
        unsigned char *own = work->out + work->len * (size_t)at;
        if (work->sends) {
            fill(work->plan, own, work->len, pass + at);
            MPI_Isend(own, size, MPI_BYTE, work->peer, TAG_DATA, MPI_COMM_WORLD, &requests[at]);
        } else {
            MPI_Irecv(own, size, MPI_BYTE, work->peer, TAG_DATA, MPI_COMM_WORLD, &requests[at]);
        }
    }
    MPI_Waitall(work->plan->window, requests, MPI_STATUSES_IGNORE);
    if (work->sends) {
        MPI_Recv(NULL, 0, MPI_BYTE, work->peer, TAG_ACK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    }
    for (int at = 0; at < work->plan->window; at++)
        compare(work->plan, work->out + work->len * (size_t)at, work->len, pass + at);
    MPI_Send(NULL, 0, MPI_BYTE, work->peer, TAG_ACK, MPI_COMM_WORLD);
}

// Runs the windows of one pair. Returns their total seconds.
static double windows(const struct plan *plan, size_t len, int peer, int sends, int *count)
{
    struct work work = {plan, buffer(len * (size_t)plan->window), NULL, len, peer, sends};
    double took = measure(&work, window, count);
    free(work.out);
    return took;
}

static void bandwidth(const struct plan *plan, size_t len)
{
    int count;
    double took = windows(plan, len, 1 - plan->rank, plan->rank == 0, &count);
    if (plan->rank == 0)
        printf("%-10zu%15.2f\n", len, (double)len * plan->window * count / took / 1e6);
}

static void rate(const struct plan *plan, size_t len)
{
    int half = plan->count / 2, sends = plan->rank < half, count;
    double took = windows(plan, len, sends ? plan->rank + half : plan->rank - half, sends, &count);
    double longest = 0;
    MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    double messages = (double)plan->window * count * half;
    if (plan->rank == 0)
        printf("%-10zu%15.2f%20.2f\n", len, messages * (double)len / longest / 1e6,
               messages / longest);
}

static struct plan parse(int argc, char **argv)
{
    struct plan plan = {.min = 1, .max = 4u << 20, .iterations = 1000, .window = 64, .batch = 1};
    int option;
    while ((option = getopt(argc, argv, "m:i:n:t:w:b:o:c")) != -1) {
        switch (option) {
        case 'm':
            if (sscanf(optarg, "%zu:%zu", &plan.min, &plan.max) != 2 || plan.max > 1u << 30)
                die("-m requires two lengths of at most 1 GiB, as in -m 8:1048576");
            break;
        case 'i':
            plan.iterations = atoi(optarg);
            break;
        case 'n':
            plan.passes = atoi(optarg);
            if (plan.passes < 1)
                die("-n requires a number of at least 1");
            break;
        case 't':
            plan.seconds = atof(optarg);
            if (!(plan.seconds > 0 && plan.seconds < 1e6))
                die("-t requires seconds above 0");
            break;
        case 'b':
            plan.batch = atoi(optarg);
            break;
        case 'o':
            plan.times_file = optarg;
            break;
        case 'w':
            plan.window = atoi(optarg);
            break;
        case 'c':
            plan.check = 1;
            break;
        default:
            die("usage: mpibench latency|bw|rate [-m MIN:MAX] [-i ITERATIONS | -n PASSES | -t SECONDS] [-w WINDOW] [-c] "
                "[-b BATCH] [-o FILE]");
        }
    }
    if (plan.iterations < 1 || plan.batch < 1 || plan.window < 1 || plan.window > WINDOW_MAX)
        die("iterations and batches are at least 1, windows 1 to 1024");
    return plan;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    struct plan plan = parse(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &plan.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &plan.count);
    const char *what = optind < argc ? argv[optind] : "";
    void (*of)(const struct plan *, size_t) = NULL;
    const char *columns = "";
    if (strcmp(what, "latency") == 0) {
        of = latency, columns = "# Size          Latency (us)";
    } else if (strcmp(what, "bw") == 0) {
        of = bandwidth, columns = "# Size      Bandwidth (MB/s)";
    } else if (strcmp(what, "rate") == 0) {
        of = rate, columns = "# Size                  MB/s          Messages/s";
    } else {
        die("specify the measurement: latency, bw or rate");
    }
    if (plan.count % 2 != 0 || (of != rate && plan.count != 2))
        die("mpibench needs two processes, or an even number for rate; start it with mpirun -n 2");
    if (plan.rank == 0)
        puts(columns);
    for (size_t len = plan.min; len <= plan.max; len = len > 0 ? len * 2 : 1)
        of(&plan, len);
    MPI_Finalize();
    return 0;
}
