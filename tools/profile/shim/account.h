/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Accounting of messages, collective operations and completed requests.
 */

/* Counts the start of a send of `bytes` to rank `dest` of `ranks`. `request` is 0 for a blocking
 * send. */
static inline void count_sent(const struct call *call, const struct comm *ranks, int dest, int tag, uint64_t bytes,
                              uint32_t request)
{
    if (dest == MPI_PROC_NULL)
        return;
    int to = world_rank(ranks, dest);
    add_to(&peer_of(to)->sent, bytes);
    ops[call->row].bytes += bytes;
    count_volume(MESSAGES, bytes);
    if (events_max)
        note(call, SENT, (struct subject){to, tag, request, ranks->hash, bytes});
}

/* Returns the length field of a status, if mpi.h shows one. */
static inline uint64_t shown_length(const MPI_Status *status)
{
#if defined(OPEN_MPI)
    return status->_ucount;
#elif defined(MPICH_NAME)
    /* The lowest bit of the upper half is the cancelled flag. */
    return (uint32_t)status->count_lo | (uint64_t)((uint32_t)status->count_hi_and_cancelled >> 1) << 32;
#else
    (void)status;
    return 0;
#endif
}

static int length_is_shown;

/* Tests if the MPI keeps lengths in the field shown by its mpi.h. Calling a function for each
 * length would cost as much as all other accounting of a message. */
static void detect_length_field(void)
{
    const MPI_Count tried = 0x123456789a;
    MPI_Status status;
    memset(&status, 0xa5, sizeof status);
    int set = PMPI_Status_set_elements_x(&status, MPI_BYTE, tried) == MPI_SUCCESS &&
              PMPI_Status_set_cancelled(&status, 0) == MPI_SUCCESS;
    length_is_shown = set && shown_length(&status) == (uint64_t)tried;
}

static inline uint64_t length_in(const MPI_Status *status)
{
    if (length_is_shown)
        return shown_length(status);
    MPI_Count len = 0;
    if (PMPI_Get_elements_x((MPI_Status *)status, MPI_BYTE, &len) != MPI_SUCCESS || len < 0)
        return 0;
    return (uint64_t)len;
}

/* Counts a message received with `status`, on which `ticks` were spent. */
static inline void count_received(const struct call *call, const struct comm *ranks, const MPI_Status *status,
                                  uint64_t ticks, enum kind kind, uint32_t request)
{
    if (status->MPI_SOURCE == MPI_PROC_NULL || status->MPI_SOURCE < 0)
        return;
    int from = world_rank(ranks, status->MPI_SOURCE);
    uint64_t bytes = length_in(status);
    struct peer *peer = peer_of(from);
    add_to(&peer->received, bytes);
    if (ticks)
        peer->waited_ticks += ticks;
    if (events_max)
        note(call, kind, (struct subject){from, status->MPI_TAG, request, ranks->hash, bytes});
}

/* Set by the first MPI_Cancel. Only then are receives tested for cancellation. */
static int may_be_cancelled;

static int was_cancelled(const MPI_Status *status)
{
    int cancelled = 0;
    if (may_be_cancelled)
        PMPI_Test_cancelled((MPI_Status *)status, &cancelled);
    return cancelled;
}

/* Counts the completion of the request with `handle`. */
static void count_completed(const struct call *call, uintptr_t handle, const MPI_Status *status, uint64_t ticks)
{
    struct request *request = find(handle);
    if (!request || !request->is_active)
        return;
    if (request->about == RECEIVING && !was_cancelled(status))
        count_received(call, request->comm, status, ticks, COMPLETED, request->id);
    else
        note(call, COMPLETED, (struct subject){.peer = -1, .request = request->id});
    if (request->is_persistent)
        request->is_active = 0;
    else
        forget(request);
}

/* Counts the start of an operation of `bytes` on the memory of rank `target`. */
static void count_remote(const struct call *call, MPI_Win win, int target, uint64_t bytes, uint32_t request)
{
    if (target == MPI_PROC_NULL)
        return;
    const struct comm *ranks = ranks_of_window(win);
    struct subject of = {
        .peer = world_rank(ranks, target),
        .request = request,
        .group = ranks->hash,
        .bytes = bytes,
    };
    struct peer *peer = peer_of(of.peer);
    peer->remote.count++;
    peer->remote.bytes += bytes;
    ops[call->row].bytes += bytes;
    count_volume(ONE_SIDED, bytes);
    note(call, REMOTE, of);
}

/* Counts the messages that a simple algorithm would send for a collective operation: `count`
 * messages of `bytes` by this process. */
static void imply(uint64_t count, uint64_t bytes)
{
    for (uint64_t i = 0; i < count; i++)
        count_volume(OF_COLLECTIVES, bytes);
}

/* Counts a collective operation to which this process contributes `bytes`. */
static void count_collective(const struct call *call, const struct comm *ranks, uint64_t bytes, int root, uint32_t request)
{
    ops[call->row].bytes += bytes;
    struct subject of = {
        .peer = root < 0 ? -1 : world_rank(ranks, root),
        .tag = ranks->size,
        .request = request,
        .group = ranks->hash,
        .bytes = bytes,
    };
    note(call, COLLECTIVE, of);
}
