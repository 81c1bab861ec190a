// SPDX-License-Identifier: MIT OR Apache-2.0
// Benchmarks of `portolan bench` for other libraries: round trips, and windows of messages with an
// acknowledgement, as in the OSU benchmarks. There are two spinning processes; one drives and measures.
// A program includes this file and defines the functions declared below.
//
//   fabricbench drive|answer latency|window -p PROVIDER -a ADDRESS -m LEN (-t SECONDS | -n PASSES)
//               [-w WINDOW] [-b BATCH] -o FILE
//
// Each process prints its address in hexadecimal digits as a line and reads the other's. The program writes
// to FILE the nanoseconds of each pass: a window, or a batch of round trips. A tenth of the time or of the
// passes precedes them as a warm-up. The first byte of a message is nonzero in the last pass, in which every
// byte is compared.

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    TAG_DATA = 1,
    TAG_ACK = 2,
    ACK_LEN = 4,
    WINDOW_MAX = 1024,
    // Maximum bytes of an address. UCX lists all its interfaces in one.
    NAME_LEN_MAX = 8192,
    // Initial capacity of the array of times.
    TIMES_FIRST = 1 << 20,
    // Polls between two clock reads of a waiting end.
    SPINS = 1 << 16,
};

// Seconds without progress after which the other end is considered failed.
static const double SILENCE_MAX = 10;

// Seconds for which the answerer still retransmits after its last message.
static const double LINGER = 0.1;

// Functions of the library. `len` is never 0.
// The including file defines PROGRAM, the name of the program, first.
static void library_open(const char *provider, const char *address, size_t len_max);
static size_t library_name(void *name, size_t len_max);
static void library_connect(const void *name, size_t len);
static void post_send(const void *bytes, size_t len, uint64_t tag);
static void post_receive(void *bytes, size_t len, uint64_t tag);
static void progress(void);
static void library_close(void);

// Posted operations that have not completed.
static long sends_open, receives_open;

struct plan {
    const char *provider, *address, *times_file;
    size_t len;
    double seconds;
    long passes; // 0: limited by time
    int window, batch, drives;
    unsigned char *out, *in, ack[ACK_LEN];
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s%s%s\n", PROGRAM, what, why ? ": " : "", why ? why : "");
    exit(2);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void wait_for(const long *open)
{
    double begun = 0;
    for (long spins = 1; *open > 0; spins++) {
        progress();
        if (spins % SPINS != 0)
            continue;
        if (begun == 0)
            begun = now();
        else if (now() - begun > SILENCE_MAX)
            die("the other end sends nothing", NULL);
    }
}

// Writes the pattern of the last pass, or clears the first byte in other passes.
static void fill(unsigned char *bytes, size_t len, int last)
{
    bytes[0] = (unsigned char)last;
    for (size_t at = 1; last && at < len; at++)
        bytes[at] = (unsigned char)(at * 31);
}

static int is_last(const unsigned char *bytes, size_t len)
{
    for (size_t at = 1; bytes[0] && at < len; at++)
        if (bytes[at] != (unsigned char)(at * 31))
            die("a byte differs from what was sent", NULL);
    return bytes[0];
}

static void exchange(struct plan *plan, int last)
{
    fill(plan->out, plan->len, 0);
    for (int trip = 1; trip <= plan->batch; trip++) {
        int ends = last && trip == plan->batch;
        if (ends)
            fill(plan->out, plan->len, 1);
        post_receive(plan->in, plan->len, TAG_DATA);
        post_send(plan->out, plan->len, TAG_DATA);
        wait_for(&sends_open);
        wait_for(&receives_open);
        if (is_last(plan->in, plan->len) != ends)
            die("a reply differs from its request", NULL);
    }
}

static void answer_trips(struct plan *plan)
{
    int last = 0;
    post_receive(plan->in, plan->len, TAG_DATA);
    while (!last) {
        wait_for(&receives_open);
        last = is_last(plan->in, plan->len);
        fill(plan->out, plan->len, last);
        // Posted before the reply, because the driver then sends the next message at once.
        if (!last)
            post_receive(plan->in, plan->len, TAG_DATA);
        post_send(plan->out, plan->len, TAG_DATA);
        wait_for(&sends_open);
    }
}

static void send_window(struct plan *plan, int last)
{
    fill(plan->out, plan->len, last);
    post_receive(plan->ack, ACK_LEN, TAG_ACK);
    for (int at = 0; at < plan->window; at++)
        post_send(plan->out, plan->len, TAG_DATA);
    wait_for(&sends_open);
    wait_for(&receives_open);
}

// Posts receives of all messages of a window into one buffer, as osu_bw does. It stays in the cache.
static void post_window(struct plan *plan)
{
    for (int at = 0; at < plan->window; at++)
        post_receive(plan->in, plan->len, TAG_DATA);
}

static void answer_windows(struct plan *plan)
{
    int last = 0;
    post_window(plan);
    while (!last) {
        wait_for(&receives_open);
        last = is_last(plan->in, plan->len);
        if (!last)
            post_window(plan);
        post_send(plan->ack, ACK_LEN, TAG_ACK);
        wait_for(&sends_open);
    }
}

static double *times;
static long times_count, times_max;

static void add_time(double seconds)
{
    if (times_count == times_max) {
        times_max = times_max ? 2 * times_max : TIMES_FIRST;
        times = realloc(times, (size_t)times_max * sizeof *times);
        if (times == NULL)
            die("out of memory for the times", NULL);
        // Touches the pages now, not during a pass.
        memset(times + times_count, 0, (size_t)(times_max - times_count) * sizeof *times);
    }
    times[times_count++] = seconds;
}

static void write_times(const char *name)
{
    FILE *file = fopen(name, "w");
    if (file == NULL)
        die("the file of -o cannot be written", strerror(errno));
    for (long at = 0; at < times_count; at++)
        fprintf(file, "%.0f\n", times[at] * 1e9);
    if (fclose(file) != 0)
        die("the file of -o cannot be written", strerror(errno));
}

static void drive(struct plan *plan, void (*pass)(struct plan *, int last))
{
    double begun = now();
    for (long passes = 0; plan->passes ? passes < 1 + plan->passes / 10 : now() - begun < plan->seconds / 10; passes++)
        pass(plan, 0);
    add_time(0);
    times_count = 0;
    double spent = 0, before = now();
    while (plan->passes ? times_count < plan->passes : spent < plan->seconds || times_count == 0) {
        pass(plan, 0);
        double after = now();
        add_time(after - before);
        spent += after - before;
        before = times_count < times_max ? after : now();
    }
    pass(plan, 1);
    write_times(plan->times_file);
}

static void linger(void)
{
    for (double begun = now(); now() - begun < LINGER;)
        progress();
}

static void exchange_addresses(void)
{
    static unsigned char name[NAME_LEN_MAX];
    static char line[2 * NAME_LEN_MAX + 2];
    size_t len = library_name(name, sizeof name);
    for (size_t at = 0; at < len; at++)
        printf("%02x", name[at]);
    putchar('\n');
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL)
        die("received no address of the other end", NULL);
    for (len = 0; sscanf(line + 2 * len, "%2hhx", &name[len]) == 1;)
        len++;
    library_connect(name, len);
}

static unsigned char *buffer(size_t len)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, len) != 0)
        die("out of memory", NULL);
    return memset(memory, 0, len);
}

static struct plan parse(int argc, char **argv)
{
    struct plan plan = {.window = 1, .batch = 1, .len = 1, .provider = "", .address = "", .times_file = ""};
    int option;
    while ((option = getopt(argc, argv, "p:a:m:t:n:w:b:o:")) != -1) {
        switch (option) {
        case 'p': plan.provider = optarg; break;
        case 'a': plan.address = optarg; break;
        case 'm': plan.len = strtoul(optarg, NULL, 10); break;
        case 't': plan.seconds = atof(optarg); break;
        case 'n': plan.passes = atol(optarg); break;
        case 'w': plan.window = atoi(optarg); break;
        case 'b': plan.batch = atoi(optarg); break;
        case 'o': plan.times_file = optarg; break;
        default: die("unknown option", NULL);
        }
    }
    if (plan.len < 1 || plan.len > 1u << 30 || plan.window < 1 || plan.window > WINDOW_MAX || plan.batch < 1)
        die("lengths are 1 to 2^30, windows 1 to 1024, batches at least 1", NULL);
    if (plan.passes < 1 && !(plan.seconds > 0))
        die("specify the duration with -t or -n", NULL);
    return plan;
}

int main(int argc, char **argv)
{
    // Ends with the parent process. On SIGTERM libfabric removes its shared memory; on SIGKILL it could not.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (argc < 3)
        die("usage: drive|answer latency|window OPTIONS", NULL);
    int drives = strcmp(argv[1], "drive") == 0, trips = strcmp(argv[2], "latency") == 0;
    struct plan plan = parse(argc - 2, argv + 2);
    plan.out = buffer(plan.len);
    plan.in = buffer(plan.len);
    library_open(plan.provider, plan.address, plan.len);
    exchange_addresses();
    if (drives) {
        drive(&plan, trips ? exchange : send_window);
    } else {
        trips ? answer_trips(&plan) : answer_windows(&plan);
        linger();
    }
    library_close();
    return 0;
}
