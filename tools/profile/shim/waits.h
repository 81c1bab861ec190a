/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Waits, tests and probes; starting, freeing and cancelling requests.
 */

/* Handles and statuses of one call. MPI clears the handles before they are counted. */
static __thread uintptr_t *handles;
static __thread MPI_Status *statuses;
static __thread int capacity;

/* Copies the handles. Returns false if there is no memory. */
static int copy_handles(int count, const MPI_Request *requests)
{
    if (count > capacity) {
        uintptr_t *more_handles = realloc(handles, (size_t)count * 2 * sizeof *handles);
        handles = more_handles ? more_handles : handles;
        MPI_Status *more_statuses = realloc(statuses, (size_t)count * 2 * sizeof *statuses);
        statuses = more_statuses ? more_statuses : statuses;
        if (!more_handles || !more_statuses)
            return 0;
        capacity = count * 2;
    }
    for (int i = 0; i < count; i++)
        handles[i] = HANDLE(requests[i]);
    return 1;
}

static int is_receive(uintptr_t handle)
{
    const struct request *request = find(handle);
    return request && request->is_active && request->about == RECEIVING;
}

/* Counts the completion of `count` requests: those at `indices`, or the first ones. */
static void count_ended(const struct call *call, int count, const int *indices, const MPI_Status *got)
{
    uint64_t receives = 0;
    note(call, CALLED, (struct subject){.peer = -1, .request = 1});
    for (int i = 0; i < count; i++)
        receives += (uint64_t)is_receive(handles[indices ? indices[i] : i]);
    uint64_t ticks = receives ? call->ticks / receives : 0;
    for (int i = 0; i < count; i++)
        count_completed(call, handles[indices ? indices[i] : i], &got[i], ticks);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    MPI_Status own, *got = status == MPI_STATUS_IGNORE ? &own : status;
    PASS(MPI_Wait, (request, status));
    if (!copy_handles(1, request))
        return real(request, status);
    RUN(MPI_Wait, "Wait", (request, got));
    if (OK)
        count_ended(&call, 1, NULL, got);
    return leave(&call);
}
ALIAS(MPI_Wait)

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status all[])
{
    PASS(MPI_Waitall, (count, requests, all));
    if (!copy_handles(count, requests))
        return real(count, requests, all);
    MPI_Status *got = all == MPI_STATUSES_IGNORE ? statuses : all;
    RUN(MPI_Waitall, "Wait", (count, requests, got));
    if (OK)
        count_ended(&call, count, NULL, got);
    return leave(&call);
}
ALIAS(MPI_Waitall)

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status)
{
    MPI_Status own, *got = status == MPI_STATUS_IGNORE ? &own : status;
    PASS(MPI_Waitany, (count, requests, index, status));
    if (!copy_handles(count, requests))
        return real(count, requests, index, status);
    RUN(MPI_Waitany, "Wait", (count, requests, index, got));
    if (OK)
        count_ended(&call, *index != MPI_UNDEFINED, index, got);
    return leave(&call);
}
ALIAS(MPI_Waitany)

#define SOME(name, group)                                                                                 \
    int MPI_##name(int count, MPI_Request requests[], int *ended, int indices[], MPI_Status some[])       \
    {                                                                                                     \
        PASS(MPI_##name, (count, requests, ended, indices, some));                                        \
        if (!copy_handles(count, requests))                                                               \
            return real(count, requests, ended, indices, some);                                           \
        MPI_Status *got = some == MPI_STATUSES_IGNORE ? statuses : some;                                  \
        RUN(MPI_##name, group, (count, requests, ended, indices, got));                                   \
        if (OK && *ended != MPI_UNDEFINED && *ended > 0)                                                  \
            count_ended(&call, *ended, indices, got);                                                     \
        else                                                                                              \
            note_poll(&call);                                                                             \
        return leave(&call);                                                                              \
    }                                                                                                     \
    ALIAS(MPI_##name)

SOME(Waitsome, "Wait")
SOME(Testsome, "Test")

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    MPI_Status own, *got = status == MPI_STATUS_IGNORE ? &own : status;
    PASS(MPI_Test, (request, flag, status));
    if (!copy_handles(1, request))
        return real(request, flag, status);
    RUN(MPI_Test, "Test", (request, flag, got));
    if (OK && *flag)
        count_ended(&call, 1, NULL, got);
    else
        note_poll(&call);
    return leave(&call);
}
ALIAS(MPI_Test)

int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status all[])
{
    PASS(MPI_Testall, (count, requests, flag, all));
    if (!copy_handles(count, requests))
        return real(count, requests, flag, all);
    MPI_Status *got = all == MPI_STATUSES_IGNORE ? statuses : all;
    RUN(MPI_Testall, "Test", (count, requests, flag, got));
    if (OK && *flag)
        count_ended(&call, count, NULL, got);
    else
        note_poll(&call);
    return leave(&call);
}
ALIAS(MPI_Testall)

int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
    MPI_Status own, *got = status == MPI_STATUS_IGNORE ? &own : status;
    PASS(MPI_Testany, (count, requests, index, flag, status));
    if (!copy_handles(count, requests))
        return real(count, requests, index, flag, status);
    RUN(MPI_Testany, "Test", (count, requests, index, flag, got));
    if (OK && *flag && *index != MPI_UNDEFINED)
        count_ended(&call, 1, index, got);
    else
        note_poll(&call);
    return leave(&call);
}
ALIAS(MPI_Testany)

int MPI_Start(MPI_Request *request)
{
    CALL(MPI_Start, "Start", (request));
    if (OK)
        start_prepared(&call, *request);
    return leave(&call);
}
ALIAS(MPI_Start)

int MPI_Startall(int count, MPI_Request requests[])
{
    CALL(MPI_Startall, "Start", (count, requests));
    for (int i = 0; OK && i < count; i++)
        start_prepared(&call, requests[i]);
    return leave(&call);
}
ALIAS(MPI_Startall)

int MPI_Request_free(MPI_Request *request)
{
    PASS(MPI_Request_free, (request));
    uintptr_t handle = HANDLE(*request);
    RUN(MPI_Request_free, "Other", (request));
    struct request *known = find(handle);
    if (OK && known)
        forget(known);
    return leave(&call);
}
ALIAS(MPI_Request_free)

int MPI_Cancel(MPI_Request *request)
{
    may_be_cancelled = 1;
    CALL(MPI_Cancel, "Other", (request));
    return leave(&call);
}
ALIAS(MPI_Cancel)

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    CALL(MPI_Iprobe, "Probe", (source, tag, comm, flag, status));
    note_poll(&call);
    return leave(&call);
}
ALIAS(MPI_Iprobe)

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status)
{
    CALL(MPI_Improbe, "Probe", (source, tag, comm, flag, message, status));
    if (OK && *flag)
        track_message(*message, comm);
    note_poll(&call);
    return leave(&call);
}
ALIAS(MPI_Improbe)

int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status)
{
    CALL(MPI_Mprobe, "Probe", (source, tag, comm, message, status));
    if (OK)
        track_message(*message, comm);
    note(&call, CALLED, (struct subject){.peer = -1, .request = 1});
    return leave(&call);
}
ALIAS(MPI_Mprobe)

TIMED(Probe, "Probe", (int source, int tag, MPI_Comm comm, MPI_Status *status), (source, tag, comm, status))
TIMED(Request_get_status, "Test", (MPI_Request request, int *flag, MPI_Status *status), (request, flag, status))
TIMED(Buffer_detach, "Other", (void *buffer, int *size), (buffer, size))
