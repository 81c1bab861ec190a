/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the C tests share: a check that names itself when it fails, and ends the job. */
#ifndef CHECK_H
#define CHECK_H

#include <gamma.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: last error: %s\n", __FILE__, __LINE__, #condition,          \
                    gamma_last_error());                                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK(call) CHECK((call) == 0)

#define FAILS(code, words, call) CHECK((call) == (code) && strstr(gamma_last_error(), words))

#endif
