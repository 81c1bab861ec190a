/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Measures GAMMA's figures of a path: latency, asymptotic bandwidth, half-power point.
 *
 * gamma_pingpong [TRIALS [BYTES]]   spawns its second process; or: portolan run -n 2 --
 *   gamma_pingpong
 *
 * With BYTES, measures only the delay of one message length in one run, like examples/c/pingpong.c.
 *
 * Definitions as published by GAMMA's authors:
 * - the delay D(S) of a message of S bytes is half the round trip of a ping-pong, the best of three
 *   runs of (here by default) 50 trials each;
 * - latency is D(0);
 * - end-to-end throughput T(S) is S / D(S);
 * - asymptotic bandwidth is S / (D(S) - D(0)) for a very large S;
 * - the half-power point is the S for which T(S) is half of the asymptotic bandwidth. */

#include <gamma.h>

#include <stdio.h>
#include <stdlib.h>

enum { PORT = 1, SEMAPHORE = 1, RUNS = 3, TRIALS = 50, WARM_UP = 20 };
static const unsigned long LEN_MAX = 4 << 20;

static int me;

static void must(int result) {
    if (result >= 0) return;
    fprintf(stderr, "gamma_pingpong: %s\n", gamma_last_error());
    exit(1);
}

static void on_message(void) { must(gamma_signal(SEMAPHORE)); }

/* Returns half a round trip in microseconds, the mean of `trials`. */
static double run(const void *out, unsigned long len, int trials) {
    gamma_time_t begin = 0;
    for (int trial = -WARM_UP; trial < trials; trial++) {
        if (trial == 0) begin = gamma_time();
        if (me == 0) must(gamma_send_flowctl(PORT, out, len));
        must(gamma_wait(SEMAPHORE, 1));
        if (me == 1) must(gamma_send_flowctl(PORT, out, len));
    }
    return gamma_time_diff(gamma_time(), begin) / (2.0 * trials);
}

/* Returns D(S) in microseconds. Both processes get the same value, so that they take the same branches. */
static double delay(const void *out, unsigned long len, int trials) {
    double best = 0;
    for (int i = 0; i < RUNS; i++) {
        double us = run(out, len, trials);
        if (i == 0 || us < best) best = us;
    }
    must(gamma_broadcast(0, &best, sizeof best));
    return best;
}

/* Returns the length at which throughput reaches `half` (bytes per microsecond). */
static unsigned long half_power(const void *out, int trials, double half) {
    unsigned long low = 1, high = LEN_MAX;
    while (high - low > 1 + low / 32) {
        unsigned long middle = low + (high - low) / 2;
        if (high > 4 * low) middle = 2 * low;
        if ((double)middle / delay(out, middle, trials) < half) low = middle;
        else high = middle;
    }
    return high;
}

static void figures(const void *out, int trials) {
    double latency = delay(out, 0, trials);
    double large = delay(out, LEN_MAX, trials);
    double bandwidth = (double)LEN_MAX / (large - latency);
    unsigned long half = half_power(out, trials, bandwidth / 2);
    if (me == 0) {
        printf("latency %.3f µs, asymptotic bandwidth %.1f MByte/s, half-power point %lu bytes\n",
               latency, bandwidth, half);
    }
}

int main(int argc, char **argv) {
    must(gamma_init(2, argc, argv));
    me = gamma_my_node();
    int trials = argc > 1 ? atoi(argv[1]) : TRIALS;
    unsigned long len = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    char *in = calloc(1, LEN_MAX), *out = calloc(1, LEN_MAX);
    if (!in || !out || trials < 1 || len > LEN_MAX) {
        fputs("gamma_pingpong: TRIALS from 1 on, BYTES up to 4 MiB, and memory for them\n", stderr);
        return 2;
    }
    must(gamma_set_active_port(PORT, (unsigned short)(1 - me), (unsigned char)gamma_my_par_pid(),
                               PORT, on_message, SEMAPHORE, GO_BACK, in, LEN_MAX));
    must(gamma_mlock(in, LEN_MAX));
    must(gamma_mlock(out, LEN_MAX));
    must(gamma_sync());
    if (argc > 2) {
        double us = run(out, len, trials);
        if (me == 0) printf("%lu bytes: %.3f µs\n", len, us);
    } else {
        figures(out, trials);
    }
    must(gamma_exit());
    free(in);
    free(out);
    return 0;
}
