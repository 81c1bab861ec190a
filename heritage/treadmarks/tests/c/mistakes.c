/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Process 1 makes the mistake whose name is the argument; programs.rs has the expected error
 * message. The other process waits at a barrier. */

#include "check.h"

#include <sys/wait.h>

static const char *which;
static int *shared;

static int is(const char *name) { return strcmp(which, name) == 0; }

static void synchronising(void) {
    if (is("release before acquire")) Tmk_lock_release(3);
    if (is("acquire twice")) Tmk_lock_acquire(3), Tmk_lock_acquire(3);
    if (is("no such lock")) Tmk_lock_acquire(TMK_NLOCKS);
    if (is("no such lock to release")) Tmk_lock_release(TMK_NLOCKS);
    if (is("no such barrier")) Tmk_barrier(TMK_NBARRIERS);
    if (is("another barrier")) Tmk_barrier(8);
    if (is("wait without lock")) Tmk_lock_cond_wait(3, 0);
    if (is("signal without lock")) Tmk_lock_cond_signal(3, 0);
    if (is("no such condition")) Tmk_lock_cond_broadcast(3, TMK_NCONDS);
    if (is("leave with lock")) Tmk_lock_acquire(7), Tmk_exit(0);
    if (is("leave early")) Tmk_exit(0);
    if (is("fail")) Tmk_exit(3);
}

static void using_memory(void) {
    int local = 0;
    if (is("distribute the stack")) Tmk_distribute(&local, sizeof(local));
    if (is("distribute nothing")) Tmk_distribute(NULL, 4);
    if (is("distribute less")) Tmk_distribute(&shared, -1);
    if (is("free what is not shared")) Tmk_free(&local);
    if (is("free twice")) {
        void *block = Tmk_malloc(10);
        Tmk_free(block);
        Tmk_free(block);
    }
    if (is("start twice")) Tmk_startup(0, NULL);
    if (is("in a child")) {
        pid_t child = fork();
        if (child == 0) Tmk_lock_acquire(1), _exit(0);
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        Tmk_lock_release(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    which = argv[1];
    if (is("too early")) Tmk_barrier(0);
    Tmk_startup(argc, argv);
    Tmk_barrier(0);
    if (Tmk_proc_id == 1) {
        synchronising();
        using_memory();
        fprintf(stderr, "%s was no mistake\n", which);
        Tmk_exit(0);
    }
    Tmk_barrier(9);
    Tmk_barrier(9);
    Tmk_exit(0);
}
