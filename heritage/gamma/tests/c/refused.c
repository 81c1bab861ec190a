/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One of three processes that request groups of two nodes. All of them are refused. */

#include "check.h"

int main(int argc, char **argv) {
    FAILS(GAMMA_ERR_LAUNCH, "from rank 2 on", gamma_init(2, argc, argv));
    printf("was refused\n");
    return 0;
}
