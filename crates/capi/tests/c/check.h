/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the C tests share: a check that names itself when it fails, and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <portolan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: last error: %s\n", __FILE__, __LINE__, #condition,          \
                    portolan_last_error());                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK(call) CHECK((call) == PORTOLAN_OK)

/* The call fails with that code, and says `words` somewhere in its text. */
#define FAILS(code, words, call)                                                                   \
    do {                                                                                           \
        int result_ = (call);                                                                      \
        if (result_ != (code) || strstr(portolan_last_error(), (words)) == NULL) {                  \
            fprintf(stderr, "%s:%d: %s gave %s (%s), not %s\n", __FILE__, __LINE__, #call,          \
                    portolan_error_name(result_), portolan_last_error(), #code);                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
