// SPDX-License-Identifier: MIT OR Apache-2.0
// A C++ program: a job of one, whose memory is its own.

#include <tmk.h>

static int *shared;

int main(int argc, char **argv) {
    Tmk_startup(argc, argv);
    if (Tmk_proc_id != 0 || Tmk_nprocs != 1) Tmk_exit(1);
    shared = static_cast<int *>(Tmk_malloc(sizeof(int)));
    Tmk_distribute(&shared, sizeof(shared));
    Tmk_lock_acquire(0);
    *shared += 5;
    Tmk_lock_release(0);
    Tmk_barrier(0);
    if (*shared != 5) Tmk_exit(2);
    Tmk_free(shared);
    Tmk_exit(0);
}
