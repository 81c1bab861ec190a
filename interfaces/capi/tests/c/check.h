/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks shared by the C tests. A failed check prints itself and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <portolan.h>

#define LAST_ERROR() portolan_last_error()
#include "expect.h"

#define OK(call) CHECK((call) == PORTOLAN_OK)

/* Checks that the call fails with that code, and that its text contains `words`. */
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
