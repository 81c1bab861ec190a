/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Process 0 computes without a call until the others have read its pages, which only the helper
 * thread can serve, and have told so in private memory: a file. */

#include "check.h"

#include <sys/stat.h>

enum { PAGES = 20 };

static unsigned char *shared;

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    char name[4096];
    struct stat there;
    Tmk_startup(argc, argv);
    if (Tmk_proc_id == 0) {
        shared = Tmk_malloc(PAGES * (size_t)Tmk_page_size);
        for (unsigned i = 0; i < PAGES; i++) shared[i * Tmk_page_size] = (unsigned char)(i + 1);
        Tmk_distribute(&shared, sizeof(shared));
        Tmk_lock_acquire(0);
        Tmk_lock_release(0);
    }
    Tmk_barrier(0);
    if (Tmk_proc_id == 0) {
        for (unsigned other = 1; other < Tmk_nprocs; other++) {
            snprintf(name, sizeof(name), "%s/%u", argv[1], other);
            while (stat(name, &there) != 0) usleep(1000);
        }
        puts("the others have all pages");
        fflush(stdout);
    } else {
        Tmk_lock_acquire(0);
        for (unsigned i = 0; i < PAGES; i++) CHECK(shared[i * Tmk_page_size] == i + 1);
        Tmk_lock_release(0);
        snprintf(name, sizeof(name), "%s/%u", argv[1], Tmk_proc_id);
        FILE *file = fopen(name, "w");
        CHECK(file);
        fclose(file);
    }
    Tmk_exit(0);
}
