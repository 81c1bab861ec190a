/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Messages between two processes. Included once for int lengths and once for MPI_Count lengths.
 */

#define SEND(name, group)                                                                                        \
    int FN(name)(const void *buf, COUNT count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)              \
    {                                                                                                            \
        CALL(FN(name), group, (buf, count, type, dest, tag, comm));                                              \
        if (OK)                                                                                                  \
            count_sent(&call, ranks_of(comm), dest, tag, bytes_of(count, type), 0);                              \
        return leave(&call);                                                                                     \
    }                                                                                                            \
    ALIAS(FN(name))

SEND(Send, "Send")
SEND(Bsend, "Send")
SEND(Ssend, "Send")
SEND(Rsend, "Send")

#define ISEND(name)                                                                                              \
    int FN(name)(const void *buf, COUNT count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,              \
                 MPI_Request *request)                                                                           \
    {                                                                                                            \
        CALL(FN(name), "Isend", (buf, count, type, dest, tag, comm, request));                                   \
        if (OK && dest != MPI_PROC_NULL)                                                                         \
            begin_send(&call, comm, bytes_of(count, type), dest, tag, *request);                                 \
        return leave(&call);                                                                                     \
    }                                                                                                            \
    ALIAS(FN(name))

ISEND(Isend)
ISEND(Ibsend)
ISEND(Issend)
ISEND(Irsend)

int FN(Recv)(void *buf, COUNT count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    MPI_Status own, *got = status == MPI_STATUS_IGNORE ? &own : status;
    PASS(FN(Recv), (buf, count, type, source, tag, comm, status));
    RUN(FN(Recv), "Recv", (buf, count, type, source, tag, comm, got));
    if (OK)
        count_received(&call, ranks_of(comm), got, call.ticks, RECEIVED, 0);
    return leave(&call);
}
ALIAS(FN(Recv))

int FN(Irecv)(void *buf, COUNT count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request)
{
    CALL(FN(Irecv), "Irecv", (buf, count, type, source, tag, comm, request));
    if (OK && source != MPI_PROC_NULL)
        begin_receive(&call, ranks_of(comm), bytes_of(count, type), source, tag, *request);
    return leave(&call);
}
ALIAS(FN(Irecv))

int FN(Sendrecv)(const void *out, COUNT out_count, MPI_Datatype out_type, int dest, int out_tag, void *in, COUNT in_count,
                 MPI_Datatype in_type, int source, int in_tag, MPI_Comm comm, MPI_Status *status)
{
    MPI_Status own, *got = status == MPI_STATUS_IGNORE ? &own : status;
    PASS(FN(Sendrecv), (out, out_count, out_type, dest, out_tag, in, in_count, in_type, source, in_tag, comm, status));
    RUN(FN(Sendrecv), "Sendrecv",
        (out, out_count, out_type, dest, out_tag, in, in_count, in_type, source, in_tag, comm, got));
    if (OK)
        count_exchange(&call, comm, bytes_of(out_count, out_type), dest, out_tag, got);
    return leave(&call);
}
ALIAS(FN(Sendrecv))

int FN(Sendrecv_replace)(void *buf, COUNT count, MPI_Datatype type, int dest, int out_tag, int source, int in_tag,
                         MPI_Comm comm, MPI_Status *status)
{
    MPI_Status own, *got = status == MPI_STATUS_IGNORE ? &own : status;
    PASS(FN(Sendrecv_replace), (buf, count, type, dest, out_tag, source, in_tag, comm, status));
    RUN(FN(Sendrecv_replace), "Sendrecv", (buf, count, type, dest, out_tag, source, in_tag, comm, got));
    if (OK)
        count_exchange(&call, comm, bytes_of(count, type), dest, out_tag, got);
    return leave(&call);
}
ALIAS(FN(Sendrecv_replace))

#define SEND_INIT(name)                                                                                          \
    int FN(name)(const void *buf, COUNT count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,              \
                 MPI_Request *request)                                                                           \
    {                                                                                                            \
        CALL(FN(name), "Isend", (buf, count, type, dest, tag, comm, request));                                   \
        if (OK)                                                                                                  \
            prepare(*request, SENDING, ranks_of(comm), bytes_of(count, type), dest, tag);                        \
        return leave(&call);                                                                                     \
    }                                                                                                            \
    ALIAS(FN(name))

SEND_INIT(Send_init)
SEND_INIT(Bsend_init)
SEND_INIT(Ssend_init)
SEND_INIT(Rsend_init)

int FN(Recv_init)(void *buf, COUNT count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request)
{
    CALL(FN(Recv_init), "Irecv", (buf, count, type, source, tag, comm, request));
    if (OK)
        prepare(*request, RECEIVING, ranks_of(comm), bytes_of(count, type), source, tag);
    return leave(&call);
}
ALIAS(FN(Recv_init))

int FN(Mrecv)(void *buf, COUNT count, MPI_Datatype type, MPI_Message *message, MPI_Status *status)
{
    MPI_Status own, *got = status == MPI_STATUS_IGNORE ? &own : status;
    PASS(FN(Mrecv), (buf, count, type, message, status));
    uintptr_t handle = HANDLE(*message);
    RUN(FN(Mrecv), "Recv", (buf, count, type, message, got));
    if (OK) {
        struct comm *ranks = claim(handle);
        count_received(&call, ranks, got, call.ticks, RECEIVED, 0);
        release(ranks);
    }
    return leave(&call);
}
ALIAS(FN(Mrecv))

int FN(Imrecv)(void *buf, COUNT count, MPI_Datatype type, MPI_Message *message, MPI_Request *request)
{
    PASS(FN(Imrecv), (buf, count, type, message, request));
    uintptr_t handle = HANDLE(*message);
    RUN(FN(Imrecv), "Irecv", (buf, count, type, message, request));
    if (OK) {
        struct comm *ranks = claim(handle);
        begin_receive(&call, ranks, bytes_of(count, type), MPI_ANY_SOURCE, MPI_ANY_TAG, *request);
        release(ranks);
    }
    return leave(&call);
}
ALIAS(FN(Imrecv))

#undef SEND
#undef ISEND
#undef SEND_INIT
