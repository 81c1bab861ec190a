/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every detectable mistake returns its own error. A group of one process. */

#include "check.h"

#include <sys/wait.h>
#include <unistd.h>
#include <sys/mman.h>

enum { PORT = 1, UNSET = 2, SEMAPHORE = 3 };

static char buffer[64];
static unsigned char pid;

static void handler(void) {}

/* All functions that need the parallel section fail with this code. */
static void outside(int code, const char *words) {
    FAILS(code, words, gamma_exit());
    FAILS(code, words, gamma_abort());
    FAILS(code, words, gamma_set_active_port(PORT, 0, 1, PORT, handler, 1, GO_BACK, buffer, 1));
    FAILS(code, words, gamma_set_passive_port(PORT, 0, 1, PORT, 1, GO_BACK, buffer, 1));
    FAILS(code, words, gamma_post_recv(PORT, buffer, 1));
    FAILS(code, words, gamma_send(PORT, "x", 1));
    FAILS(code, words, gamma_send_flowctl(PORT, "x", 1));
    FAILS(code, words, gamma_send_2p(PORT, "x", 1, "y", 1));
    FAILS(code, words, gamma_send_2p_flowctl(PORT, "x", 1, "y", 1));
    FAILS(code, words, gamma_isend(PORT, "x", 1));
    FAILS(code, words, gamma_isend_flowctl(PORT, "x", 1));
    FAILS(code, words, gamma_isend_2p(PORT, "x", 1, "y", 1));
    FAILS(code, words, gamma_isend_2p_flowctl(PORT, "x", 1, "y", 1));
    FAILS(code, words, gamma_wsend(PORT));
    FAILS(code, words, gamma_tsend(PORT));
    FAILS(code, words, gamma_signal(SEMAPHORE));
    FAILS(code, words, gamma_sigerr(SEMAPHORE));
    FAILS(code, words, gamma_wait(SEMAPHORE, 1));
    FAILS(code, words, gamma_test(SEMAPHORE));
    FAILS(code, words, gamma_atomic(handler));
    FAILS(code, words, gamma_sync());
    FAILS(code, words, gamma_broadcast(0, buffer, 1));
    FAILS(code, words, gamma_my_node());
    FAILS(code, words, gamma_how_many_nodes());
    FAILS(code, words, gamma_my_par_pid());
    FAILS(code, words, gamma_how_many_groups());
    FAILS(code, words, gamma_handle_at_once(1));
    FAILS(code, words, gamma_group_par_pid(0));
    FAILS(code, words, gamma_group_nodes(1));
}

static void beginning(void) {
    char *arguments[] = {"program", NULL};
    FAILS(GAMMA_ERR_NULL, "argv", gamma_init(3, 1, NULL));
    OK(gamma_init(1, 1, arguments));
    FAILS(GAMMA_ERR_ALREADY, "before", gamma_init(1, 1, arguments));
    CHECK(gamma_my_node() == 0 && gamma_how_many_nodes() == 1);
    pid = (unsigned char)gamma_my_par_pid();
    CHECK(pid > 0);
}

static void ports(void) {
    unsigned char other = (unsigned char)(pid == 255 ? 1 : pid + 1);
    FAILS(GAMMA_ERR_NODE, "node 1",
          gamma_set_active_port(UNSET, 1, pid, 1, handler, 1, GO_BACK, buffer, 1));
    FAILS(GAMMA_ERR_PAR_PID, "parallel PID",
          gamma_set_active_port(UNSET, 0, other, 1, handler, 1, GO_BACK, buffer, 1));
    FAILS(GAMMA_ERR_ARGUMENT, "GO_FORTH",
          gamma_set_active_port(UNSET, 0, pid, 1, handler, 1, 7, buffer, 1));
    FAILS(GAMMA_ERR_NULL, "buffer",
          gamma_set_active_port(UNSET, 0, pid, 1, handler, 1, GO_BACK, NULL, 1));
    FAILS(GAMMA_ERR_ARGUMENT, "memory",
          gamma_set_passive_port(UNSET, 0, pid, 1, 1, GO_BACK, buffer, (unsigned long)-1));
    FAILS(GAMMA_ERR_NULL, "gamma_set_passive_port",
          gamma_set_active_port(UNSET, 0, pid, 1, NULL, 1, GO_BACK, buffer, 1));
    OK(gamma_set_passive_port(PORT, 0, pid, PORT, SEMAPHORE, GO_BACK, buffer, sizeof buffer));
    FAILS(GAMMA_ERR_NULL, "buffer", gamma_post_recv(PORT, NULL, 1));
    FAILS(GAMMA_ERR_ARGUMENT, "memory", gamma_post_recv(PORT, buffer, (unsigned long)-1));
    FAILS(GAMMA_ERR_PORT, "port 2", gamma_post_recv(UNSET, buffer, 1));
    FAILS(GAMMA_ERR_PORT, "port 2", gamma_handle_at_once(UNSET));
}

static void sends(void) {
    FAILS(GAMMA_ERR_PORT, "port 2", gamma_send(UNSET, "x", 1));
    FAILS(GAMMA_ERR_PORT, "port 2", gamma_isend_2p(UNSET, "x", 1, "y", 1));
    FAILS(GAMMA_ERR_PORT, "port 2", gamma_wsend(UNSET));
    FAILS(GAMMA_ERR_PORT, "port 2", gamma_tsend(UNSET));
    FAILS(GAMMA_ERR_NULL, "buffer", gamma_send(PORT, NULL, 1));
    FAILS(GAMMA_ERR_NULL, "buffer", gamma_send_flowctl(PORT, NULL, 1));
    FAILS(GAMMA_ERR_NULL, "buffer", gamma_send_2p(PORT, "x", 1, NULL, 1));
    FAILS(GAMMA_ERR_NULL, "buffer", gamma_send_2p_flowctl(PORT, NULL, 1, "x", 1));
    FAILS(GAMMA_ERR_NULL, "buffer", gamma_isend(PORT, NULL, 1));
    FAILS(GAMMA_ERR_NULL, "buffer", gamma_isend_flowctl(PORT, NULL, 1));
    FAILS(GAMMA_ERR_NULL, "buffer", gamma_isend_2p(PORT, "x", 1, NULL, 1));
    FAILS(GAMMA_ERR_NULL, "buffer", gamma_isend_2p_flowctl(PORT, NULL, 1, "x", 1));
    FAILS(GAMMA_ERR_ARGUMENT, "memory", gamma_send(PORT, "x", (unsigned long)-1));
    FAILS(GAMMA_ERR_ARGUMENT, "memory",
          gamma_send_2p(PORT, buffer, (unsigned long)-1 / 2, buffer, (unsigned long)-1 / 2));
    FAILS(GAMMA_ERR_ARGUMENT, "memory",
          gamma_isend_2p(PORT, buffer, (unsigned long)-1 / 2, buffer, (unsigned long)-1 / 2));
    OK(gamma_send(PORT, NULL, 0));
    OK(gamma_wait(SEMAPHORE, 1));
    CHECK(gamma_tsend(PORT) == 1);
}

static void semaphores(void) {
    OK(gamma_sigerr(SEMAPHORE));
    OK(gamma_signal(SEMAPHORE));
    CHECK(gamma_test(SEMAPHORE) == 1);
    FAILS(GAMMA_ERR_SIGNALLED, "semaphore 3", gamma_test(SEMAPHORE));
    CHECK(gamma_test(SEMAPHORE) == 0);
    OK(gamma_wait(SEMAPHORE, 0));
    FAILS(GAMMA_ERR_NULL, "section", gamma_atomic(NULL));
}

static void collectives(void) {
    FAILS(GAMMA_ERR_NODE, "member 1", gamma_broadcast(1, buffer, 1));
    FAILS(GAMMA_ERR_NULL, "buffer", gamma_broadcast(0, NULL, 1));
    FAILS(GAMMA_ERR_ARGUMENT, "memory", gamma_broadcast(0, buffer, (unsigned long)-1));
    OK(gamma_broadcast(0, NULL, 0));
    OK(gamma_sync());
}

static void memory(void) {
#ifndef __SANITIZE_ADDRESS__ /* the address sanitizer disables locking */
    /* Pages that are not mapped. */
    void *unmapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(unmapped != MAP_FAILED && munmap(unmapped, 4096) == 0);
    FAILS(GAMMA_ERR_SYSTEM, "memory", gamma_mlock(unmapped, 4096));
    FAILS(GAMMA_ERR_SYSTEM, "memory", gamma_munlock(unmapped, 4096));
#endif
    FAILS(GAMMA_ERR_NULL, "buffer", gamma_mlock(NULL, 1));
    FAILS(GAMMA_ERR_NULL, "buffer", gamma_munlock(NULL, 1));
    OK(gamma_munlockall());
}

/* The group belongs to the parent. Every call of the child fails with that error, and the parent
 * continues. */
static void in_a_child(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char *arguments[] = {"program", NULL};
        FAILS(GAMMA_ERR_FORKED, "forked", gamma_sync());
        FAILS(GAMMA_ERR_FORKED, "forked", gamma_signal(SEMAPHORE));
        FAILS(GAMMA_ERR_FORKED, "forked", gamma_init(1, 1, arguments));
        FAILS(GAMMA_ERR_FORKED, "forked", gamma_exit());
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(gamma_sync());
}

int main(void) {
    char *arguments[] = {"program", NULL};
    CHECK(gamma_last_error()[0] == '\0');
    outside(GAMMA_ERR_NOT_INITIALISED, "gamma_init");
    beginning();
    ports();
    sends();
    semaphores();
    collectives();
    memory();
    in_a_child();
    OK(gamma_exit());
    outside(GAMMA_ERR_EXITED, "gamma_exit");
    FAILS(GAMMA_ERR_EXITED, "once", gamma_init(1, 1, arguments));
    puts("all mistakes were named");
    return 0;
}
