/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Pending requests. A completed wait is counted by the data of its request. The requests are in an
 * open-addressing hash table by handle, which grows by doubling, so few calls allocate.
 *
 * MPIs return the same handle for all sends that completed at once. Only the last one is tracked, which
 * is harmless: such a send has already been counted, and no call waits for it.
 */

enum about { SENDING, RECEIVING, MESSAGE, OTHER };

struct request {
    uintptr_t handle; /* 0 for a free slot */
    struct comm *comm;
    uint64_t bytes;
    int32_t peer, tag; /* of a send, as passed to MPI: the rank in comm */
    uint32_t id;
    uint8_t about, is_persistent, is_active;
};

static struct request *table;
static size_t table_len; /* a power of two */
static size_t table_used;
static uint32_t last_id;

/* Handles are integers or pointers, depending on the MPI. */
#define HANDLE(request) ((uintptr_t)(request))

static inline size_t place_of(uintptr_t handle)
{
    /* Fibonacci hashing. Handles differ in their low bits or, as pointers, in slightly higher
     * ones. */
    return (size_t)((uint64_t)handle * 0x9e3779b97f4a7c15u >> 20) & (table_len - 1);
}

static struct request *find(uintptr_t handle)
{
    for (size_t at = place_of(handle); table[at].handle; at = (at + 1) & (table_len - 1)) {
        if (table[at].handle == handle)
            return &table[at];
    }
    return NULL;
}

static void put_in(struct request request)
{
    size_t at = place_of(request.handle);
    while (table[at].handle)
        at = (at + 1) & (table_len - 1);
    table[at] = request;
}

/* Doubles the table. Without memory it keeps its size, and requests that do not fit are not
 * tracked. */
static int grow(void)
{
    size_t old_len = table_len;
    struct request *old = table;
    struct request *bigger = calloc(old_len * 2, sizeof *bigger);
    if (!bigger)
        return table_used + 1 < table_len;
    table = bigger;
    table_len = old_len * 2;
    for (size_t i = 0; i < old_len; i++) {
        if (old[i].handle)
            put_in(old[i]);
    }
    free(old);
    return 1;
}

/* Removes a request and closes the gap, so that no search ends too early. */
static void forget(struct request *request)
{
    release(request->comm);
    size_t gap = (size_t)(request - table);
    for (size_t at = (gap + 1) & (table_len - 1); table[at].handle; at = (at + 1) & (table_len - 1)) {
        size_t from_home = (at - place_of(table[at].handle)) & (table_len - 1);
        if (from_home >= ((at - gap) & (table_len - 1))) {
            table[gap] = table[at];
            gap = at;
        }
    }
    table[gap].handle = 0;
    table_used--;
}

/* Stores a request and returns its id. */
static uint32_t track(struct request request)
{
    struct request *same = find(request.handle);
    if (same)
        forget(same);
    if ((table_used + 1) * 2 > table_len && !grow())
        return 0;
    request.id = ++last_id;
    if (request.comm)
        request.comm->users++;
    table_used++;
    put_in(request);
    return request.id;
}
