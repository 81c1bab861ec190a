/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Handlers that run while the program makes no call. Node 1 sends numbers, each of which the handler
 * of node 0 answers. Node 0 computes until a handler has seen the last one. */

#include "check.h"

#include <stdatomic.h>
#include <unistd.h>

enum { PORT = 1, QUIET = 2, SEMAPHORE = 1, COUNT = 10000 };

static int in, quiet_in;
static atomic_int seen;
static int guarded, quiet_count;

static void count(void) { guarded += 2; }

static void on_number(void) {
    CHECK(in == atomic_load(&seen) && gamma_msglen == sizeof in);
    int answer = in * 2;
    OK(gamma_send(PORT, &answer, sizeof answer));
    guarded++;
    atomic_fetch_add(&seen, 1);
}

static void on_answer(void) { OK(gamma_signal(SEMAPHORE)); }

static void on_quiet(void) { quiet_count++; }

int main(int argc, char **argv) {
    OK(gamma_init(2, argc, argv));
    int me = gamma_my_node();
    unsigned short other = (unsigned short)(1 - me);
    unsigned char pid = (unsigned char)gamma_my_par_pid();
    OK(gamma_set_active_port(PORT, other, pid, PORT, me ? on_answer : on_number, SEMAPHORE, GO_BACK, &in, sizeof in));
    if (me == 0) OK(gamma_handle_at_once(PORT));
    OK(gamma_sync());
    if (me == 1) {
        for (int number = 0; number < COUNT; number++) {
            OK(gamma_send_flowctl(PORT, &number, sizeof number));
            OK(gamma_wait(SEMAPHORE, 1));
            CHECK(in == number * 2);
        }
    } else {
        /* No call from here on, except one in the middle. */
        while (atomic_load(&seen) < COUNT / 2) usleep(1000);
        OK(gamma_atomic(count));
        while (atomic_load(&seen) < COUNT) usleep(1000);
        OK(gamma_atomic(count));
        CHECK(guarded == COUNT + 4);
    }
    OK(gamma_sync());
    /* The handler of a port without this setting runs in the program's calls only. */
    OK(gamma_set_active_port(QUIET, other, pid, QUIET, on_quiet, QUIET, GO_BACK, &quiet_in, sizeof quiet_in));
    OK(gamma_sync());
    if (me == 1) {
        OK(gamma_send_flowctl(QUIET, &me, sizeof me));
    } else {
        int before = quiet_count;
        usleep(20000);
        CHECK(quiet_count == before);
        OK(gamma_wait(QUIET, 1));
        CHECK(quiet_count == 1 && quiet_in == 1);
    }
    OK(gamma_sync());
    OK(gamma_exit());
    printf("node %d is done\n", me);
    return 0;
}
