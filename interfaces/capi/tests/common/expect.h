/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A check that prints itself when it fails, and ends the program. LAST_ERROR() is the text of the last
 * failure of the library under test. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: last error: %s\n", __FILE__, __LINE__, #condition,          \
                    LAST_ERROR());                                                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
