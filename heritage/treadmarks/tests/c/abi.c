/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Types and constants of tmk.h as a C compiler sees them. header.rs compares them with Rust's. */

#include <tmk.h>
#include <tmk.h>

#include <stdio.h>

#define IS(function, type) _Static_assert(_Generic(&(function), type: 1, default: 0), #function)

IS(Tmk_startup, void (*)(int, char **));
IS(Tmk_exit, void (*)(int));
IS(Tmk_barrier, void (*)(unsigned));
IS(Tmk_lock_acquire, void (*)(unsigned));
IS(Tmk_lock_release, void (*)(unsigned));
IS(Tmk_lock_cond_wait, void (*)(unsigned, unsigned));
IS(Tmk_lock_cond_signal, void (*)(unsigned, unsigned));
IS(Tmk_lock_cond_broadcast, void (*)(unsigned, unsigned));
IS(Tmk_malloc, void *(*)(size_t));
IS(Tmk_sbrk, void *(*)(unsigned));
IS(Tmk_free, void (*)(void *));
IS(Tmk_distribute, void (*)(const void *, int));
IS(Tmk_proc_id, unsigned *);
IS(Tmk_nprocs, unsigned *);
IS(Tmk_page_size, unsigned *);

int main(void) {
    printf("TMK_NPROCS %d\nTMK_NLOCKS %d\nTMK_NBARRIERS %d\nTMK_NCONDS %d\n", TMK_NPROCS,
           TMK_NLOCKS, TMK_NBARRIERS, TMK_NCONDS);
    printf("before %u %u\n", Tmk_proc_id, Tmk_nprocs);
    return 0;
}
