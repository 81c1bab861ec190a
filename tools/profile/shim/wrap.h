/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Wrapping of functions. Both names of a function are wrapped: C programs call MPI_Send, and the Fortran
 * layers of MPIs call PMPI_Send or MPI_Send, so Fortran programs are counted as well.
 *
 * FN(Send) is MPI_Send, or MPI_Send_c if lengths are MPI_Count. COUNT and AINT are the types that
 * differ between the two.
 */

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define ALIAS_OF(name) extern __typeof__(name) P##name __attribute__((alias(#name)));
#define ALIAS(name) ALIAS_OF(name)
#define STRIP(...) __VA_ARGS__

/* Finds the wrapped function. */
#define PASS_ALWAYS(function)                                                   \
    static __typeof__(function) *real;                                          \
    if (!real)                                                                  \
    real = (__typeof__(real))next_function("P" TEXT(function))

/* Passes on a call that must not be counted. */
#define PASS(function, args)                                                    \
    PASS_ALWAYS(function);                                                      \
    if (!is_counted())                                                          \
        return real args

/* Makes the call, with timing around it. */
#define RUN(function, group, args)                                              \
    static int row = -1;                                                        \
    struct call call;                                                           \
    enter(&call, &row, TEXT(function), group);                                  \
    call.result = real args;                                                    \
    returned(&call)

#define CALL(function, group, args)                                             \
    PASS(function, args);                                                       \
    RUN(function, group, args)

#define OK (call.result == MPI_SUCCESS)

/* Wraps a function of which only the time is counted. */
#define TIMED(name, group, params, args)                                        \
    int MPI_##name(STRIP params)                                                \
    {                                                                           \
        CALL(MPI_##name, group, args);                                          \
        note(&call, CALLED, (struct subject){.peer = -1, .request = 1});        \
        return leave(&call);                                                    \
    }                                                                           \
    ALIAS(MPI_##name)
