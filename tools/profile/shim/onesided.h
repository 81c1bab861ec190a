/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Puts, gets and atomic operations. Included once for int lengths and once for MPI_Count lengths.
 */

/* Wraps a function and its variant with a request. */
#define REMOTE_OP(name, rname, bytes, params, args)                                            \
    int FN(name)(STRIP params, MPI_Win win)                                                    \
    {                                                                                          \
        CALL(FN(name), "One-sided", (STRIP args, win));                                        \
        if (OK)                                                                                \
            count_remote(&call, win, target, bytes, 0);                                        \
        return leave(&call);                                                                   \
    }                                                                                          \
    ALIAS(FN(name))                                                                            \
    int FN(rname)(STRIP params, MPI_Win win, MPI_Request *request)                             \
    {                                                                                          \
        CALL(FN(rname), "One-sided", (STRIP args, win, request));                              \
        if (OK)                                                                                \
            count_remote(&call, win, target, bytes, begin_other(*request));                    \
        return leave(&call);                                                                   \
    }                                                                                          \
    ALIAS(FN(rname))

REMOTE_OP(Put, Rput, bytes_of(count, type),
          (const void *own, COUNT count, MPI_Datatype type, int target, MPI_Aint place, COUNT target_count,
           MPI_Datatype target_type),
          (own, count, type, target, place, target_count, target_type))

REMOTE_OP(Get, Rget, bytes_of(count, type),
          (void *own, COUNT count, MPI_Datatype type, int target, MPI_Aint place, COUNT target_count,
           MPI_Datatype target_type),
          (own, count, type, target, place, target_count, target_type))

REMOTE_OP(Accumulate, Raccumulate, bytes_of(count, type),
          (const void *own, COUNT count, MPI_Datatype type, int target, MPI_Aint place, COUNT target_count,
           MPI_Datatype target_type, MPI_Op op),
          (own, count, type, target, place, target_count, target_type, op))

REMOTE_OP(Get_accumulate, Rget_accumulate, bytes_of(before_count, before_type),
          (const void *own, COUNT count, MPI_Datatype type, void *before, COUNT before_count, MPI_Datatype before_type,
           int target, MPI_Aint place, COUNT target_count, MPI_Datatype target_type, MPI_Op op),
          (own, count, type, before, before_count, before_type, target, place, target_count, target_type, op))

#undef REMOTE_OP
