/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the C tests share: a check that names itself when it fails, and ends the job. */
#ifndef CHECK_H
#define CHECK_H

#include <gamma.h>

#define LAST_ERROR() gamma_last_error()
#include "expect.h"

#define OK(call) CHECK((call) == 0)

#define FAILS(code, words, call) CHECK((call) == (code) && strstr(gamma_last_error(), words))

#endif
