/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Library that `portolan profile` loads between a program and its MPI. It is built for each MPI with
 * that MPI's compiler and mpi.h, because handles and constants differ. It needs only this directory.
 *
 * It changes no argument except statuses that the program ignores. It sends messages of its own only
 * in MPI_Init and MPI_Finalize.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#if defined(WANT_OPEN_MPI) != defined(OPEN_MPI)
#error "the compiler and the launcher belong to different MPIs"
#endif
#if MPI_VERSION < 3
#error "MPI 3 or later is required"
#endif

#include "record.h"

#include "state.h"

#include "comms.h"

#include "requests.h"

#include "account.h"

#include "wrap.h"

#include "begin.h"

#define FN(name) MPI_##name
#define COUNT int
#define AINT int
#include "collectives.h"
#include "messages.h"
#include "onesided.h"
#undef FN
#undef COUNT
#undef AINT

#if MPI_VERSION >= 4
#define FN(name) MPI_##name##_c
#define COUNT MPI_Count
#define AINT MPI_Aint
#include "collectives.h"
#include "messages.h"
#include "onesided.h"
#undef FN
#undef COUNT
#undef AINT
#endif

#include "waits.h"

#include "windows.h"

#include "life.h"
