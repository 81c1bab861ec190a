/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions without lengths: atomic operations on one element, synchronisation of windows, barriers,
 * and calls that may block without being messages.
 */

int MPI_Fetch_and_op(const void *own, void *before, MPI_Datatype type, int target, MPI_Aint place, MPI_Op op, MPI_Win win)
{
    CALL(MPI_Fetch_and_op, "One-sided", (own, before, type, target, place, op, win));
    if (OK)
        count_remote(&call, win, target, bytes_of(1, type), 0);
    return leave(&call);
}
ALIAS(MPI_Fetch_and_op)

int MPI_Compare_and_swap(const void *own, const void *expected, void *before, MPI_Datatype type, int target,
                         MPI_Aint place, MPI_Win win)
{
    CALL(MPI_Compare_and_swap, "One-sided", (own, expected, before, type, target, place, win));
    if (OK)
        count_remote(&call, win, target, bytes_of(1, type), 0);
    return leave(&call);
}
ALIAS(MPI_Compare_and_swap)

TIMED(Win_fence, "One-sided", (int assert, MPI_Win win), (assert, win))
TIMED(Win_start, "One-sided", (MPI_Group group, int assert, MPI_Win win), (group, assert, win))
TIMED(Win_complete, "One-sided", (MPI_Win win), (win))
TIMED(Win_post, "One-sided", (MPI_Group group, int assert, MPI_Win win), (group, assert, win))
TIMED(Win_wait, "One-sided", (MPI_Win win), (win))
TIMED(Win_test, "One-sided", (MPI_Win win, int *flag), (win, flag))
TIMED(Win_lock, "One-sided", (int type, int rank, int assert, MPI_Win win), (type, rank, assert, win))
TIMED(Win_unlock, "One-sided", (int rank, MPI_Win win), (rank, win))
TIMED(Win_lock_all, "One-sided", (int assert, MPI_Win win), (assert, win))
TIMED(Win_unlock_all, "One-sided", (MPI_Win win), (win))
TIMED(Win_flush, "One-sided", (int rank, MPI_Win win), (rank, win))
TIMED(Win_flush_all, "One-sided", (MPI_Win win), (win))
TIMED(Win_flush_local, "One-sided", (int rank, MPI_Win win), (rank, win))
TIMED(Win_flush_local_all, "One-sided", (MPI_Win win), (win))
TIMED(Win_sync, "One-sided", (MPI_Win win), (win))
TIMED(Win_free, "Other", (MPI_Win *win), (win))
TIMED(Win_create, "Other", (void *base, MPI_Aint len, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *win),
      (base, len, unit, info, comm, win))
TIMED(Win_allocate, "Other", (MPI_Aint len, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win),
      (len, unit, info, comm, base, win))

TIMED(Comm_dup, "Other", (MPI_Comm comm, MPI_Comm *made), (comm, made))
TIMED(Comm_split, "Other", (MPI_Comm comm, int color, int key, MPI_Comm *made), (comm, color, key, made))
TIMED(Comm_create, "Other", (MPI_Comm comm, MPI_Group group, MPI_Comm *made), (comm, group, made))
TIMED(Comm_free, "Other", (MPI_Comm *comm), (comm))
TIMED(Cart_create, "Other",
      (MPI_Comm comm, int count, const int sizes[], const int periods[], int reorder, MPI_Comm *made),
      (comm, count, sizes, periods, reorder, made))

/* Implies the messages of a barrier: each process sends one without data in each of log2(n)
 * rounds. */
static void imply_barrier(const struct comm *ranks)
{
    for (int reached = 1; reached < ranks->size; reached *= 2)
        imply(1, 0);
}

int MPI_Barrier(MPI_Comm comm)
{
    CALL(MPI_Barrier, "Collective", (comm));
    if (OK) {
        imply_barrier(ranks_of(comm));
        count_collective(&call, ranks_of(comm), 0, -1, 0);
    }
    return leave(&call);
}
ALIAS(MPI_Barrier)

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    CALL(MPI_Ibarrier, "Collective", (comm, request));
    if (OK) {
        imply_barrier(ranks_of(comm));
        count_collective(&call, ranks_of(comm), 0, -1, begin_other(*request));
    }
    return leave(&call);
}
ALIAS(MPI_Ibarrier)
