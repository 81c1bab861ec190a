/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* With progress=thread, messages arrive in the buffers of a process that makes no call. The peer's
 * sends complete, which it reports by a file. The handlers run in order at the next call. */

#include "check.h"

#include <unistd.h>

enum { PORT = 1, SEMAPHORE = 1, COUNT = 12, LEN = 300000 };

static char *buffers[COUNT];
static unsigned handled;

static unsigned len_of(unsigned number) { return number % 3 == 2 ? LEN : 50 + 3000 * (number % 3); }

static void handler(void) {
    CHECK(gamma_msglen == len_of(handled));
    for (unsigned i = 0; i < gamma_msglen; i++) CHECK(buffers[handled][i] == (char)(handled * 7 + i));
    handled++;
    gamma_signal(SEMAPHORE);
}

int main(int argc, char **argv) {
    static char seen[LEN];
    CHECK(argc == 2);
    OK(gamma_init(2, argc, argv));
    int me = gamma_my_node();
    for (int i = 0; i < COUNT; i++) CHECK(buffers[i] = calloc(1, LEN));
    unsigned char pid = (unsigned char)gamma_my_par_pid();
    OK(gamma_set_active_port(PORT, (unsigned short)(1 - me), pid, PORT, handler, SEMAPHORE, GO_BACK, buffers[0], LEN));
    for (int i = 1; i < COUNT; i++) OK(gamma_post_recv(PORT, buffers[i], LEN));
    OK(gamma_sync());
    if (me == 1) {
        for (unsigned number = 0; number < COUNT; number++) {
            for (unsigned i = 0; i < LEN; i++) seen[i] = (char)(number * 7 + i);
            OK(gamma_send(PORT, seen, len_of(number)));
        }
        FILE *file = fopen(argv[1], "w");
        CHECK(file && fclose(file) == 0);
    } else {
        unsigned before = handled;
        while (access(argv[1], F_OK) != 0) usleep(1000);
        CHECK(handled == before);
        OK(gamma_wait(SEMAPHORE, COUNT));
        CHECK(handled == COUNT);
        printf("node 0 has all messages\n");
    }
    OK(gamma_sync());
    OK(gamma_exit());
    for (int i = 0; i < COUNT; i++) free(buffers[i]);
    return 0;
}
