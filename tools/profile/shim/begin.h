/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Start of requests, and messages matched before they are received.
 */

static void begin_send(const struct call *call, MPI_Comm comm, uint64_t bytes, int dest, int tag, MPI_Request request)
{
    struct comm *ranks = ranks_of(comm);
    uint32_t id = track((struct request){
        .handle = HANDLE(request),
        .comm = ranks,
        .about = SENDING,
        .is_active = 1,
    });
    count_sent(call, ranks, dest, tag, bytes, id);
}

static void begin_receive(const struct call *call, struct comm *ranks, uint64_t bytes, int source, int tag,
                          MPI_Request request)
{
    uint32_t id = track((struct request){
        .handle = HANDLE(request),
        .comm = ranks,
        .about = RECEIVING,
        .is_active = 1,
    });
    struct subject of = {
        .peer = world_rank(ranks, source),
        .tag = tag == MPI_ANY_TAG ? -1 : tag,
        .request = id,
        .group = ranks->hash,
        .bytes = bytes,
    };
    note(call, POSTED, of);
}

/* Starts a request of a collective or one-sided operation. */
static uint32_t begin_other(MPI_Request request)
{
    return track((struct request){.handle = HANDLE(request), .about = OTHER, .is_active = 1});
}

static void count_exchange(const struct call *call, MPI_Comm comm, uint64_t bytes, int dest, int tag,
                           const MPI_Status *got)
{
    struct comm *ranks = ranks_of(comm);
    count_sent(call, ranks, dest, tag, bytes, 0);
    count_received(call, ranks, got, call->ticks, RECEIVED, 0);
}

/* Registers a persistent request, which starts later. */
static void prepare(MPI_Request request, enum about about, struct comm *ranks, uint64_t bytes, int peer, int tag)
{
    if (peer == MPI_PROC_NULL)
        return;
    track((struct request){
        .handle = HANDLE(request),
        .comm = ranks,
        .bytes = bytes,
        .peer = peer,
        .tag = tag,
        .about = about,
        .is_persistent = 1,
    });
}

static void start_prepared(const struct call *call, MPI_Request handle)
{
    struct request *request = find(HANDLE(handle));
    if (!request || !request->is_persistent)
        return;
    request->is_active = 1;
    request->id = ++last_id;
    if (request->about == SENDING) {
        count_sent(call, request->comm, request->peer, request->tag, request->bytes, request->id);
        return;
    }
    struct subject of = {
        .peer = world_rank(request->comm, request->peer),
        .tag = request->tag == MPI_ANY_TAG ? -1 : request->tag,
        .request = request->id,
        .group = request->comm->hash,
        .bytes = request->bytes,
    };
    note(call, POSTED, of);
}

/* Keeps a matched message (MPI_Mprobe) for the receive by its handle. */
static void track_message(MPI_Message message, MPI_Comm comm)
{
    if (message == MPI_MESSAGE_NO_PROC || message == MPI_MESSAGE_NULL)
        return;
    track((struct request){.handle = HANDLE(message), .comm = ranks_of(comm), .about = MESSAGE});
}

/* Returns the communicator of a matched message. The caller releases it. */
static struct comm *claim(uintptr_t message)
{
    struct request *tracked = find(message);
    struct comm *ranks = tracked && tracked->about == MESSAGE ? tracked->comm : the_world;
    ranks->users++;
    if (tracked && tracked->about == MESSAGE)
        forget(tracked);
    return ranks;
}
