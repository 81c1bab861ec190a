/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Heat on a torus, with an exchange of halos in each step: portolan run -n 4 -- halo [STEPS]. The
 * rows are divided among the processes. The result does not depend on their number. */
#include "../c/example.h"

enum { DOWN = 1, UP = 2, WIDTH = 64, ROWS = 96, ROW_LEN = WIDTH * sizeof(double) };

static void step(const double *now, double *next, size_t rows) {
    for (size_t at = WIDTH; at < (rows + 1) * WIDTH; at++) {
        size_t row = at / WIDTH * WIDTH, column = at % WIDTH;
        double left = now[row + (column + WIDTH - 1) % WIDTH], right = now[row + (column + 1) % WIDTH];
        double around = left + right + now[at - WIDTH] + now[at + WIDTH];
        next[at] = now[at] + 0.2 * (around - 4.0 * now[at]);
    }
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 50;
    portolan_node_t *node;
    MUST(portolan_join(&node));
    unsigned rank = (unsigned)MUST(portolan_rank(node)), size = (unsigned)MUST(portolan_size(node));
    MUST(portolan_open(node, DOWN));
    MUST(portolan_open(node, UP));
    unsigned above = (rank + size - 1) % size, below = (rank + 1) % size;
    size_t first = ROWS * rank / size, rows = ROWS * (rank + 1) / size - first;
    /* The first row and the last one are halos. */
    double *now = allocate((rows + 2) * WIDTH, sizeof *now), *next = allocate((rows + 2) * WIDTH, sizeof *now);
    for (size_t at = 0; at < rows * WIDTH; at++) {
        size_t cell = first * WIDTH + at;
        now[WIDTH + at] = (double)(cell * cell % 1000);
    }
    for (int i = 0; i < steps; i++) {
        portolan_request_t requests[4];
        MUST(portolan_post_recv(node, DOWN, above, now, ROW_LEN, &requests[0]));
        MUST(portolan_post_recv(node, UP, below, now + (rows + 1) * WIDTH, ROW_LEN, &requests[1]));
        MUST(portolan_isend(node, above, UP, now + WIDTH, ROW_LEN, 0, &requests[2]));
        MUST(portolan_isend(node, below, DOWN, now + rows * WIDTH, ROW_LEN, 0, &requests[3]));
        MUST(portolan_wait_all(node, requests, 4));
        step(now, next, rows);
        double *last = now;
        now = next;
        next = last;
    }
    double sums[2] = {0, 0};
    for (size_t at = WIDTH; at < (rows + 1) * WIDTH; at++) {
        sums[0] += now[at];
        sums[1] += now[at] * now[at];
    }
    MUST(portolan_allreduce(node, NULL, PORTOLAN_SUM, PORTOLAN_DOUBLE, sums, 2));
    if (rank == 0) printf("%d steps: heat %.3f, squares %.3f\n", steps, sums[0], sums[1]);
    MUST(portolan_close(node));
    free(now);
    free(next);
    return 0;
}
