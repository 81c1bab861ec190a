/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A task farm: portolan run -n 4 -- task_farm [LIMIT]. Rank 0 gives out ranges of numbers, and the
 * others count the primes in them. Whoever is done gets the next range. */
#include "../c/example.h"

enum { TASKS = 1, RESULTS = 2, RANGE = 1000 };
#define END UINT64_MAX

static uint64_t give_out(portolan_node_t *node, unsigned workers, uint64_t limit) {
    uint64_t next = 0, primes = 0;
    for (; workers > 0; next += RANGE) {
        portolan_received_t got = PORTOLAN_SIZED(portolan_received_t);
        uint64_t result = 0;
        MUST(portolan_recv(node, RESULTS, PORTOLAN_ANY_SOURCE, &result, sizeof result, &got));
        primes += result;
        uint64_t task = next < limit ? next : END;
        MUST(portolan_send(node, got.source, TASKS, &task, sizeof task, 0));
        workers -= task == END;
    }
    return primes;
}

static int is_prime(uint64_t number) {
    for (uint64_t divisor = 2; divisor * divisor <= number; divisor++)
        if (number % divisor == 0) return 0;
    return number > 1;
}

static void work(portolan_node_t *node, uint64_t limit) {
    /* The first message has no result, and asks for a task only. */
    uint64_t task, primes = 0;
    for (;;) {
        MUST(portolan_send(node, 0, RESULTS, &primes, sizeof primes, 0));
        MUST(portolan_recv(node, TASKS, 0, &task, sizeof task, NULL));
        if (task == END) return;
        primes = 0;
        for (uint64_t number = task; number < limit && number < task + RANGE; number++)
            primes += (uint64_t)is_prime(number);
    }
}

int main(int argc, char **argv) {
    uint64_t limit = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    portolan_node_t *node;
    MUST(portolan_join(&node));
    MUST(portolan_open(node, TASKS));
    MUST(portolan_open(node, RESULTS));
    if (MUST(portolan_rank(node)) == 0) {
        uint64_t primes = give_out(node, (unsigned)MUST(portolan_size(node)) - 1, limit);
        printf("%llu primes below %llu\n", (unsigned long long)primes, (unsigned long long)limit);
    } else work(node, limit);
    MUST(portolan_close(node));
    return 0;
}
