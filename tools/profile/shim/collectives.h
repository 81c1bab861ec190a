/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Collective operations, blocking and non-blocking. Included once for int lengths and once for
 * MPI_Count lengths.
 *
 * Besides time and bytes, each operation counts the messages that a simple algorithm would send: a
 * tree or a chain with one message for each process but one; a reduction to all as a reduction and a
 * broadcast; an exchange between all as one message per pair. The tables of the NPB paper count in
 * the same way, so programs with collective operations can be compared with them.
 */

/* Wraps a function and its non-blocking variant. `counting` sets `own` to the bytes and implies
 * messages. */
#define COLLECTIVE(name, iname, root, params, args, counting)                                              \
    int FN(name)(STRIP params, MPI_Comm comm)                                                              \
    {                                                                                                      \
        CALL(FN(name), "Collective", (STRIP args, comm));                                                  \
        if (OK) {                                                                                          \
            struct comm *ranks = ranks_of(comm);                                                           \
            uint64_t own = 0;                                                                              \
            counting;                                                                                      \
            count_collective(&call, ranks, own, root, 0);                                                  \
        }                                                                                                  \
        return leave(&call);                                                                               \
    }                                                                                                      \
    ALIAS(FN(name))                                                                                        \
    int FN(iname)(STRIP params, MPI_Comm comm, MPI_Request *request)                                       \
    {                                                                                                      \
        CALL(FN(iname), "Collective", (STRIP args, comm, request));                                        \
        if (OK) {                                                                                          \
            struct comm *ranks = ranks_of(comm);                                                           \
            uint64_t own = 0;                                                                              \
            counting;                                                                                      \
            count_collective(&call, ranks, own, root, begin_other(*request));                              \
        }                                                                                                  \
        return leave(&call);                                                                               \
    }                                                                                                      \
    ALIAS(FN(iname))

/* 1 in every process but one, or but the root: each has one message. */
#define BUT_FIRST (ranks->rank != 0)
#define BUT_ROOT (ranks->rank != root)

/* With MPI_IN_PLACE, the arguments of the other direction describe the data. */
#define GIVEN(count, type, in_place_count, in_place_type) \
    (out == MPI_IN_PLACE ? bytes_of(in_place_count, in_place_type) : bytes_of(count, type))

COLLECTIVE(Bcast, Ibcast, root, (void *buf, COUNT count, MPI_Datatype type, int root), (buf, count, type, root), {
    uint64_t whole = bytes_of(count, type);
    own = BUT_ROOT ? 0 : whole;
    imply(BUT_ROOT, whole);
})

COLLECTIVE(Reduce, Ireduce, root, (const void *out, void *in, COUNT count, MPI_Datatype type, MPI_Op op, int root),
           (out, in, count, type, op, root), {
               own = bytes_of(count, type);
               imply(BUT_ROOT, own);
           })

COLLECTIVE(Allreduce, Iallreduce, -1, (const void *out, void *in, COUNT count, MPI_Datatype type, MPI_Op op),
           (out, in, count, type, op), {
               own = bytes_of(count, type);
               imply(2 * (uint64_t)BUT_FIRST, own);
           })

COLLECTIVE(Scan, Iscan, -1, (const void *out, void *in, COUNT count, MPI_Datatype type, MPI_Op op),
           (out, in, count, type, op), {
               own = bytes_of(count, type);
               imply(BUT_FIRST, own);
           })

COLLECTIVE(Exscan, Iexscan, -1, (const void *out, void *in, COUNT count, MPI_Datatype type, MPI_Op op),
           (out, in, count, type, op), {
               own = bytes_of(count, type);
               imply(BUT_FIRST, own);
           })

COLLECTIVE(Reduce_scatter_block, Ireduce_scatter_block, -1,
           (const void *out, void *in, COUNT count, MPI_Datatype type, MPI_Op op), (out, in, count, type, op), {
               uint64_t block = bytes_of(count, type);
               own = block * (uint64_t)ranks->size;
               imply(BUT_FIRST, own);
               imply(BUT_FIRST, block);
           })

COLLECTIVE(Reduce_scatter, Ireduce_scatter, -1,
           (const void *out, void *in, const COUNT counts[], MPI_Datatype type, MPI_Op op), (out, in, counts, type, op), {
               for (int i = 0; i < ranks->size; i++)
                   own += bytes_of(counts[i], type);
               imply(BUT_FIRST, own);
               imply(BUT_FIRST, ranks->rank < ranks->size ? bytes_of(counts[ranks->rank], type) : 0);
           })

COLLECTIVE(Gather, Igather, root,
           (const void *out, COUNT count, MPI_Datatype type, void *in, COUNT in_count, MPI_Datatype in_type, int root),
           (out, count, type, in, in_count, in_type, root), {
               own = GIVEN(count, type, in_count, in_type);
               imply(BUT_ROOT, own);
           })

COLLECTIVE(Gatherv, Igatherv, root,
           (const void *out, COUNT count, MPI_Datatype type, void *in, const COUNT in_counts[], const AINT places[],
            MPI_Datatype in_type, int root),
           (out, count, type, in, in_counts, places, in_type, root), {
               own = GIVEN(count, type, in_counts[ranks->rank], in_type);
               imply(BUT_ROOT, own);
           })

COLLECTIVE(Scatter, Iscatter, root,
           (const void *out, COUNT count, MPI_Datatype type, void *in, COUNT in_count, MPI_Datatype in_type, int root),
           (out, count, type, in, in_count, in_type, root), {
               own = BUT_ROOT ? 0 : bytes_of(count, type) * (uint64_t)ranks->size;
               imply(BUT_ROOT, BUT_ROOT ? bytes_of(in_count, in_type) : 0);
           })

COLLECTIVE(Scatterv, Iscatterv, root,
           (const void *out, const COUNT counts[], const AINT places[], MPI_Datatype type, void *in, COUNT in_count,
            MPI_Datatype in_type, int root),
           (out, counts, places, type, in, in_count, in_type, root), {
               for (int i = 0; !BUT_ROOT && i < ranks->size; i++)
                   own += bytes_of(counts[i], type);
               imply(BUT_ROOT, BUT_ROOT ? bytes_of(in_count, in_type) : 0);
           })

COLLECTIVE(Allgather, Iallgather, -1,
           (const void *out, COUNT count, MPI_Datatype type, void *in, COUNT in_count, MPI_Datatype in_type),
           (out, count, type, in, in_count, in_type), {
               own = GIVEN(count, type, in_count, in_type);
               imply((uint64_t)ranks->size - 1, own);
           })

COLLECTIVE(Allgatherv, Iallgatherv, -1,
           (const void *out, COUNT count, MPI_Datatype type, void *in, const COUNT in_counts[], const AINT places[],
            MPI_Datatype in_type),
           (out, count, type, in, in_counts, places, in_type), {
               own = GIVEN(count, type, in_counts[ranks->rank], in_type);
               imply((uint64_t)ranks->size - 1, own);
           })

COLLECTIVE(Alltoall, Ialltoall, -1,
           (const void *out, COUNT count, MPI_Datatype type, void *in, COUNT in_count, MPI_Datatype in_type),
           (out, count, type, in, in_count, in_type), {
               uint64_t block = GIVEN(count, type, in_count, in_type);
               own = block * (uint64_t)ranks->size;
               imply((uint64_t)ranks->size, block);
           })

COLLECTIVE(Alltoallv, Ialltoallv, -1,
           (const void *out, const COUNT counts[], const AINT places[], MPI_Datatype type, void *in,
            const COUNT in_counts[], const AINT in_places[], MPI_Datatype in_type),
           (out, counts, places, type, in, in_counts, in_places, in_type), {
               for (int i = 0; i < ranks->size; i++) {
                   uint64_t block = GIVEN(counts[i], type, in_counts[i], in_type);
                   own += block;
                   imply(1, block);
               }
           })

COLLECTIVE(Alltoallw, Ialltoallw, -1,
           (const void *out, const COUNT counts[], const AINT places[], const MPI_Datatype types[], void *in,
            const COUNT in_counts[], const AINT in_places[], const MPI_Datatype in_types[]),
           (out, counts, places, types, in, in_counts, in_places, in_types), {
               for (int i = 0; i < ranks->size; i++) {
                   uint64_t block = GIVEN(counts[i], types[i], in_counts[i], in_types[i]);
                   own += block;
                   imply(1, block);
               }
           })

#undef COLLECTIVE
#undef BUT_FIRST
#undef BUT_ROOT
#undef GIVEN
