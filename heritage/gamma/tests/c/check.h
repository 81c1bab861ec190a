/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared by the C tests: a check that prints its condition when it fails, and ends the job. */
#ifndef CHECK_H
#define CHECK_H

#include <gamma.h>

#define LAST_ERROR() gamma_last_error()
#include "expect.h"

#define OK(call) CHECK((call) == 0)

#define FAILS(code, words, call) CHECK((call) == (code) && strstr(gamma_last_error(), words))

#endif
