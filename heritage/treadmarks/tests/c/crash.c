/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A fault outside of the shared memory reaches the program's own handler, or ends the process. */

#include "check.h"

#include <signal.h>

static void on_fault(int signal) {
    (void)signal;
    static const char text[] = "the program's handler\n";
    if (write(1, text, sizeof(text) - 1) < 0) _exit(1);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc == 2) signal(SIGSEGV, on_fault);
    Tmk_startup(argc, argv);
    volatile int *nowhere = (volatile int *)16;
    return *nowhere;
}
