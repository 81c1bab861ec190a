/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Everything that a C program can do with ports and groups, as a job of two or more. */

#include "check.h"

#include <poll.h>

enum { TAG = 77, OTHER_TAG = 78, ANSWER = 500, ASK = 6, REGION_LEN = 1 << 20 };
enum { RING = 1, POSTED = 2, IN_PLACE = 3, EVENTS = 4, LONG = 5, LONG_LEN = 3 << 20,
       MUCH_LEN = (5 << 20) + 77, ROUNDS = 100 };

static portolan_node_t *node;
static uint32_t rank, size, next, previous;

/* A length from 0 to a few frames that is not a power of two. */
static size_t length_of(size_t round) { return round * round * 3 % 4099; }

static void fill(unsigned char *bytes, size_t len, size_t seed) {
    for (size_t i = 0; i < len; i++) bytes[i] = (unsigned char)((i * 7 + seed * 13) & 0xff);
}

static void expect(const unsigned char *bytes, size_t len, size_t seed) {
    for (size_t i = 0; i < len; i++) CHECK(bytes[i] == ((i * 7 + seed * 13) & 0xff));
}

static void blocking(void) {
    unsigned char out[4099], in[4099];
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t len = length_of(round);
        portolan_received_t got = PORTOLAN_SIZED(portolan_received_t);
        fill(out, len, round + rank);
        portolan_piece_t pieces[] = {{out, len / 3}, {NULL, 0}, {out + len / 3, len - len / 3}};
        uint32_t flags = round % 3 == 1 ? PORTOLAN_HIGH : 0;
        if (round % 2 == 0) OK(portolan_send(node, next, RING, out, len, flags));
        else OK(portolan_send_gather(node, next, RING, pieces, 3, flags));
        OK(portolan_recv(node, RING, previous, in, sizeof in, &got));
        CHECK(got.len == len && got.source == previous);
        expect(in, len, round + previous);
        OK(portolan_barrier(node, NULL));
    }
    char two[2];
    portolan_request_t request;
    portolan_completion_t done = PORTOLAN_SIZED(portolan_completion_t);
    portolan_received_t cut = PORTOLAN_SIZED(portolan_received_t);
    OK(portolan_send(node, next, RING, "long", 4, 0));
    FAILS(PORTOLAN_ERR_TRUNCATED, "4 bytes",
          portolan_recv(node, RING, PORTOLAN_ANY_SOURCE, two, 2, &cut));
    CHECK(cut.len == 4 && cut.source == previous && memcmp(two, "lo", 2) == 0);
    OK(portolan_post_recv(node, RING, PORTOLAN_ANY_SOURCE, two, 2, &request));
    OK(portolan_send(node, next, RING, "again", 5, 0));
    FAILS(PORTOLAN_ERR_TRUNCATED, "5 bytes", portolan_wait(node, request, &done));
    CHECK(done.buffer == two);
    CHECK(done.len == 5 && done.source == previous && done.tag == 0 && memcmp(two, "ag", 2) == 0);
    OK(portolan_barrier(node, NULL));
}

static void non_blocking(void) {
    static unsigned char out[ROUNDS][300], in[ROUNDS][300];
    portolan_request_t receives[ROUNDS], sends[ROUNDS];
    for (size_t i = 0; i < ROUNDS; i++)
        OK(portolan_post_recv(node, RING, previous, in[i], sizeof in[i], &receives[i]));
    for (size_t i = 0; i < ROUNDS; i++) {
        fill(out[i], i * 3, i + rank);
        OK(portolan_isend(node, next, RING, out[i], i * 3, 0, &sends[i]));
    }
    for (size_t i = 0; i < ROUNDS; i++) {
        portolan_completion_t done = PORTOLAN_SIZED(portolan_completion_t);
        int result;
        while ((result = portolan_test(node, receives[i], &done)) == PORTOLAN_PENDING) continue;
        CHECK(result == PORTOLAN_OK && done.len == i * 3 && done.source == previous);
        CHECK(done.buffer == in[i]);
        expect(in[i], i * 3, i + previous);
    }
    OK(portolan_wait_all(node, sends, ROUNDS));
    CHECK(sends[0] == 0);
    OK(portolan_barrier(node, NULL));
}

static void ask_first(portolan_node_t *here, size_t eager_len_max) {
    portolan_lone_pieces_t lone = {.message_len_max = 1 << 20, .call_len = 1 << 14};
    portolan_choices_t choices = PORTOLAN_SIZED(portolan_choices_t);
    choices.eager_len_max = eager_len_max;
    choices.eager_len_max_shm = eager_len_max;
    choices.lone = &lone;
    choices.lone_count = eager_len_max == 0 ? 0 : 1;
    OK(portolan_choose(here, &choices));
}

/* A message without announcement has left when its send was started. An announced message waits for a
 * buffer, which its receiver posts only after the sender has reported that it is still waiting. */
static void chosen(void) {
    static unsigned char out[4096], in[4096];
    char model[200] = "?", word = 0;
    portolan_request_t request;
    CHECK(portolan_model(node, model, sizeof model) == PORTOLAN_MODEL_OFF);
    CHECK(strstr(model, "switched off") != NULL);
    CHECK(portolan_model(node, NULL, 0) == PORTOLAN_MODEL_OFF);
    for (int asks = 0; asks < 2; asks++) {
        fill(out, sizeof out, rank);
        ask_first(node, asks ? 64 : 0);
        OK(portolan_barrier(node, NULL));
        OK(portolan_isend(node, next, LONG, out, sizeof out, 0, &request));
        int waits = portolan_test(node, request, NULL);
        CHECK(waits == (asks ? PORTOLAN_PENDING : PORTOLAN_OK));
        OK(portolan_isend_copy(node, next, RING, "w", 1, PORTOLAN_HIGH));
        OK(portolan_recv(node, RING, previous, &word, 1, NULL));
        OK(portolan_recv(node, LONG, previous, in, sizeof in, NULL));
        expect(in, sizeof in, previous);
        if (waits == PORTOLAN_PENDING) OK(portolan_wait(node, request, NULL));
    }
    ask_first(node, 0);
    OK(portolan_barrier(node, NULL));
}

static void long_messages(void) {
    void *out, *in;
    portolan_request_t request;
    OK(portolan_alloc(LONG_LEN, &out));
    OK(portolan_alloc(LONG_LEN, &in));
    fill(out, LONG_LEN, rank);
    OK(portolan_post_recv(node, LONG, PORTOLAN_ANY_SOURCE, in, LONG_LEN, &request));
    OK(portolan_send(node, next, LONG, out, LONG_LEN, 0));
    OK(portolan_wait(node, request, NULL));
    expect(in, LONG_LEN, previous);
    OK(portolan_barrier(node, NULL));
    OK(portolan_free(out));
    OK(portolan_free(in));
}

struct seen {
    unsigned count;
    uint64_t bytes;
};

static void on_posted(portolan_node_t *here, const portolan_message_t *message, void *user) {
    struct seen *seen = user;
    CHECK(here == node && message->size == sizeof *message && message->port == POSTED);
    CHECK(message->source == previous && message->len == message->message_len);
    CHECK(message->buffer == message->bytes && message->buffer_len == 64);
    expect(message->bytes, (size_t)message->len, seen->count);
    seen->bytes += message->len;
    seen->count++;
    OK(portolan_post_recv(node, POSTED, PORTOLAN_ANY_SOURCE, message->buffer, 64, NULL));
}

static void on_in_place(portolan_node_t *here, const portolan_message_t *message, void *user) {
    struct seen *seen = user;
    CHECK(message->buffer == NULL && message->buffer_len == 0);
    seen->bytes += message->len;
    seen->count++;
    /* The answer returns to the sender, which counts it at its other port. */
    if (message->len == 1)
        OK(portolan_isend_copy(here, message->source, IN_PLACE, NULL, 0, PORTOLAN_HIGH));
}

static int all_seen(void *user) { return ((struct seen *)user)->count == ROUNDS; }

static void handlers(void) {
    static unsigned char buffers[2][64];
    static struct seen posted, in_place;
    unsigned char out[64];
    OK(portolan_open_active(node, POSTED, 0, on_posted, &posted));
    OK(portolan_open_active(node, IN_PLACE, PORTOLAN_IN_PLACE, on_in_place, &in_place));
    for (size_t i = 0; i < 2; i++)
        OK(portolan_post_recv(node, POSTED, PORTOLAN_ANY_SOURCE, buffers[i], 64, NULL));
    OK(portolan_barrier(node, NULL));
    for (size_t i = 0; i < ROUNDS; i++) {
        fill(out, i % 64, i);
        OK(portolan_isend_copy(node, next, POSTED, out, i % 64, 0));
    }
    OK(portolan_wait_until(node, all_seen, &posted));
    CHECK(posted.bytes == 63 * 64 / 2 + 35 * 36 / 2);
    for (size_t i = 0; i < ROUNDS / 2; i++) OK(portolan_isend_copy(node, next, IN_PLACE, "q", 1, 0));
    OK(portolan_wait_until(node, all_seen, &in_place));
    CHECK(in_place.bytes == ROUNDS / 2);
    OK(portolan_barrier(node, NULL));
}

/* The lower operand in front of the upper one: the result is the first and the last member. */
static void join(const void *lower, void *upper, size_t count, void *user) {
    const uint32_t *left = lower;
    uint32_t *right = upper;
    for (size_t i = 0; i < 2 * count; i += 2) {
        CHECK(left[i + 1] + 1 == right[i]);
        right[i] = left[i];
    }
    *(int *)user += 1;
}

/* Operations on blocks, with and without a request, compared with a loop over all members. */
static void blocks(void) {
    uint32_t mine[64], all[64];
    size_t lens[64], their_lens[64], counts[64];
    portolan_request_t request;
    CHECK(size <= 8);
    mine[0] = 100 + rank;
    OK(portolan_allgather(node, NULL, mine, 4, all));
    for (uint32_t r = 0; r < size; r++) CHECK(all[r] == 100 + r);
    for (uint32_t r = 0; r < size; r++) lens[r] = 4 * r;
    for (uint32_t i = 0; i < rank; i++) mine[i] = 10 * rank + i;
    OK(portolan_iallgatherv(node, NULL, mine, all, lens, &request));
    OK(portolan_wait(node, request, NULL));
    for (uint32_t r = 0, at = 0; r < size; r++)
        for (uint32_t i = 0; i < r; i++) CHECK(all[at++] == 10 * r + i);
    OK(portolan_gatherv(node, NULL, 1, mine, 4 * rank, rank == 1 ? all : NULL, rank == 1 ? lens : NULL));
    OK(portolan_scatterv(node, NULL, 1, rank == 1 ? all : NULL, rank == 1 ? lens : NULL, mine, 4 * rank));
    for (uint32_t i = 0; i < rank; i++) CHECK(mine[i] == 10 * rank + i);
    OK(portolan_gather(node, NULL, 0, &rank, 4, rank == 0 ? all : NULL));
    OK(portolan_scatter(node, NULL, 0, rank == 0 ? all : NULL, mine, 4));
    CHECK(mine[0] == rank);
    for (uint32_t r = 0; r < size; r++) mine[r] = 10 * rank + r;
    OK(portolan_alltoall(node, NULL, mine, all, 4));
    for (uint32_t r = 0; r < size; r++) CHECK(all[r] == 10 * r + rank);
    for (uint32_t r = 0; r < size; r++) lens[r] = 4 * (rank < r), their_lens[r] = 4 * (r < rank);
    for (uint32_t r = 0; r < size; r++) mine[r] = rank;
    OK(portolan_alltoallv(node, NULL, mine, lens, all, their_lens));
    for (uint32_t r = 0; r < rank; r++) CHECK(all[r] == r);
    for (uint32_t r = 0; r < size; r++) mine[r] = r, counts[r] = r == 1 ? size : 0;
    OK(portolan_reduce_scatter(node, NULL, PORTOLAN_SUM, PORTOLAN_UINT32, mine, all, 1));
    CHECK(all[0] == size * rank);
    OK(portolan_ireduce_scatterv(node, NULL, PORTOLAN_MAX, PORTOLAN_UINT32, mine, all, counts, &request));
    OK(portolan_wait(node, request, NULL));
    if (rank == 1) CHECK(all[size - 1] == size - 1);
    mine[0] = 1;
    OK(portolan_scan(node, NULL, PORTOLAN_SUM, PORTOLAN_UINT32, mine, 1));
    CHECK(mine[0] == rank + 1);
    mine[0] = 1;
    OK(portolan_exscan(node, NULL, PORTOLAN_SUM, PORTOLAN_UINT32, mine, 1));
    CHECK(mine[0] == (rank == 0 ? 1 : rank));
    uint8_t bits = (uint8_t)(1 << rank % 8);
    OK(portolan_iexscan(node, NULL, PORTOLAN_BIT_OR, PORTOLAN_UINT8, &bits, 1, &request));
    OK(portolan_wait(node, request, NULL));
    CHECK(bits == (rank == 0 ? 1 : (uint8_t)((1 << (rank < 8 ? rank : 8)) - 1)));
    int calls = 0;
    mine[0] = mine[1] = rank;
    OK(portolan_allreduce_by(node, NULL, join, &calls, 8, mine, 1));
    CHECK(mine[0] == 0 && mine[1] == size - 1);
    mine[0] = mine[1] = rank;
    OK(portolan_scan_by(node, NULL, join, &calls, 8, mine, 1));
    CHECK(mine[0] == 0 && mine[1] == rank);
    mine[0] = mine[1] = rank;
    OK(portolan_exscan_by(node, NULL, join, &calls, 8, mine, 1));
    CHECK(mine[0] == 0 && mine[1] == (rank == 0 ? 0 : rank - 1));
    CHECK(portolan_reduce_by(node, NULL, 0, NULL, NULL, 8, mine, 1) == PORTOLAN_ERR_NULL);
}


static void together(void) {
    uint32_t sum = size * (size + 1) / 2;
    int32_t i32[3] = {(int32_t)rank + 1, -(int32_t)rank, 5};
    int64_t i64 = -(int64_t)rank;
    uint32_t u32 = rank + 1;
    uint64_t u64 = 2;
    float f32 = (float)rank;
    double f64[2] = {rank + 0.5, 1e300};
    OK(portolan_allreduce(node, NULL, PORTOLAN_SUM, PORTOLAN_INT32, i32, 3));
    CHECK(i32[0] == (int32_t)sum && i32[1] == (int32_t)(size - sum) && i32[2] == 5 * (int32_t)size);
    OK(portolan_allreduce(node, NULL, PORTOLAN_MIN, PORTOLAN_INT64, &i64, 1));
    CHECK(i64 == 1 - (int64_t)size);
    OK(portolan_allreduce(node, NULL, PORTOLAN_MAX, PORTOLAN_UINT32, &u32, 1));
    CHECK(u32 == size);
    OK(portolan_allreduce(node, NULL, PORTOLAN_PRODUCT, PORTOLAN_UINT64, &u64, 1));
    CHECK(u64 == 1ULL << size);
    OK(portolan_reduce(node, NULL, size - 1, PORTOLAN_MAX, PORTOLAN_FLOAT, &f32, 1));
    if (rank == size - 1) CHECK(f32 == (float)(size - 1));
    OK(portolan_allreduce(node, NULL, PORTOLAN_SUM, PORTOLAN_DOUBLE, f64, 2));
    CHECK(f64[0] == sum - size * 0.5);
    OK(portolan_allreduce(node, NULL, PORTOLAN_SUM, PORTOLAN_DOUBLE, NULL, 0));

    blocks();

    /* The odd ranks and the even ranks, from the last to the first. */
    uint32_t ranks[64], count = 0;
    for (uint32_t r = size; r-- > 0;)
        if (r % 2 == rank % 2) ranks[count++] = r;
    portolan_group_t *group;
    char word[6] = "?????";
    OK(portolan_group_new(node, 1 + rank % 2, ranks, count, &group));
    CHECK(portolan_group_size(group) == (int)count);
    CHECK(ranks[portolan_group_rank(group)] == rank);
    if (portolan_group_rank(group) == 0) memcpy(word, rank % 2 ? "odd.." : "even.", 6);
    OK(portolan_broadcast(node, group, 0, word, sizeof word));
    CHECK(strcmp(word, rank % 2 ? "odd.." : "even.") == 0);
    OK(portolan_barrier(node, group));
    OK(portolan_group_free(group));
    unsigned char *much = malloc(MUCH_LEN);
    CHECK(much != NULL);
    fill(much, MUCH_LEN, rank == size - 1 ? 5 : 99);
    OK(portolan_broadcast(node, NULL, size - 1, much, MUCH_LEN));
    expect(much, MUCH_LEN, 5);
    FAILS(PORTOLAN_ERR_NO_SUCH_RANK, "rank", portolan_broadcast(node, NULL, size, much, MUCH_LEN));
    free(much);
    OK(portolan_barrier(node, NULL));
}

/* A barrier and a broadcast are pending while messages pass on which both depend. */
static void at_once(void) {
    static unsigned char bytes[LONG_LEN];
    portolan_request_t barrier, broadcast;
    uint32_t token = 0;
    fill(bytes, sizeof bytes, rank == 0 ? 3 : 99);
    OK(portolan_ibroadcast(node, NULL, 0, bytes, sizeof bytes, &broadcast));
    if (rank != 0) OK(portolan_recv(node, RING, previous, &token, sizeof token, NULL));
    OK(portolan_ibarrier(node, NULL, &barrier));
    CHECK(size == 1 || rank != 0 || portolan_test(node, barrier, NULL) == PORTOLAN_PENDING);
    token++;
    OK(portolan_send(node, next, RING, &token, sizeof token, 0));
    if (rank == 0) OK(portolan_recv(node, RING, previous, &token, sizeof token, NULL));
    CHECK(rank != 0 || token == size);
    int result;
    while ((result = portolan_test(node, barrier, NULL)) == PORTOLAN_PENDING) continue;
    OK(result);
    OK(portolan_wait(node, broadcast, NULL));
    expect(bytes, sizeof bytes, 3);
    FAILS(PORTOLAN_ERR_STALE_REQUEST, "completed", portolan_wait(node, barrier, NULL));
    OK(portolan_barrier(node, NULL));
}

/* Waits for requests of several kinds at once, in any order of their ends. */
static void any_of(void) {
    double sum = rank, most = rank;
    uint32_t token = 0, sent = rank;
    portolan_request_t requests[5] = {0};
    size_t index, indices[5];
    int results[5];
    portolan_completion_t done = PORTOLAN_SIZED(portolan_completion_t);
    OK(portolan_wait_any(node, requests, 5, &index, &done));
    CHECK(index == SIZE_MAX);
    OK(portolan_iallreduce(node, NULL, PORTOLAN_SUM, PORTOLAN_DOUBLE, &sum, 1, &requests[1]));
    OK(portolan_ireduce(node, NULL, 0, PORTOLAN_MAX, PORTOLAN_DOUBLE, &most, 1, &requests[2]));
    OK(portolan_post_recv(node, RING, previous, &token, sizeof token, &requests[3]));
    OK(portolan_isend(node, next, RING, &sent, sizeof sent, 0, &requests[4]));
    OK(portolan_wait_any(node, requests, 5, &index, &done));
    CHECK(index >= 1 && index <= 4 && requests[index] == 0);
    int ended = portolan_wait_some(node, requests, 5, indices, results, NULL);
    CHECK(ended >= 1 && requests[indices[0]] == 0);
    for (int place = 0; place < ended; place++) CHECK(results[place] == 0);
    do {
        ended = portolan_test_any(node, requests, 5, &index, &done);
    } while (ended == PORTOLAN_PENDING || index != SIZE_MAX);
    OK(ended);
    CHECK(sum == size * (size - 1) / 2.0 && token == previous);
    CHECK(rank != 0 || most == size - 1.0);
    OK(portolan_barrier(node, NULL));
}

/* Receives messages of unknown length. */
static void unknown_length(void) {
    static unsigned char out[LONG_LEN];
    size_t lens[] = {0, 5, 5000, LONG_LEN};
    portolan_received_t got = PORTOLAN_SIZED(portolan_received_t);
    portolan_envelope_t envelope = PORTOLAN_SIZED(portolan_envelope_t);
    portolan_request_t sent;
    void *in;
    FAILS(PORTOLAN_ERR_TIMEOUT, "arrived", portolan_probe_for(node, RING, previous, 1000, &got));
    FAILS(PORTOLAN_ERR_TIMEOUT, "matching",
          portolan_probe_tagged_for(node, 9, 0, previous, 1000, &envelope));
    OK(portolan_barrier(node, NULL));
    for (size_t i = 0; i < 4; i++) {
        fill(out, lens[i], i);
        OK(portolan_isend(node, next, RING, out, lens[i], 0, &sent));
        OK(portolan_probe(node, RING, PORTOLAN_ANY_SOURCE, &got));
        CHECK(got.len == lens[i] && got.source == previous);
        got.len = 99;
        OK(portolan_recv_alloc(node, RING, previous, &in, &got));
        CHECK(got.len == lens[i]);
        expect(in, lens[i], i);
        free(in);
        OK(portolan_wait(node, sent, NULL));
        OK(portolan_isend_tagged(node, next, 9, NULL, out, lens[i], 0, &sent));
        OK(portolan_probe_tagged(node, 9, 0, previous, &envelope));
        CHECK(envelope.len == lens[i] && envelope.tag == 9);
        OK(portolan_recv_tagged_alloc(node, 8, 1, previous, &in, &envelope));
        CHECK(envelope.len == lens[i]);
        expect(in, lens[i], i);
        free(in);
        OK(portolan_wait(node, sent, NULL));
    }
    OK(portolan_barrier(node, NULL));
}

static void count_release(void *memory, void *user) {
    CHECK(memory != NULL);
    ++*(int *)user;
}

/* Rank 0 calls all ranks, itself last, and every rank serves. */
static void calls(void) {
    static unsigned char in[LONG_LEN];
    static int released;
    portolan_reply_t reply = PORTOLAN_SIZED(portolan_reply_t);
    portolan_call_t call = PORTOLAN_SIZED(portolan_call_t);
    void *bytes;
    FAILS(PORTOLAN_ERR_TIMEOUT, "request", portolan_recv_call(node, RING, 1000, &call));
    OK(portolan_barrier(node, NULL));
    if (rank == 0) {
        for (uint32_t to = 1; to < size; to++) {
            fill(in, LONG_LEN, to);
            OK(portolan_call(node, to, RING, in, to * 1000, UINT64_MAX, &bytes, &reply));
            CHECK(reply.len == LONG_LEN && reply.status == to);
            expect(bytes, LONG_LEN, 7);
            free(bytes);
            OK(portolan_call(node, to, RING, "ahoy", 4, UINT64_MAX, &bytes, &reply));
            CHECK(reply.len == 5 && reply.status == 0 && memcmp(bytes, "adieu", 5) == 0);
            free(bytes);
        }
        FAILS(PORTOLAN_ERR_TIMEOUT, "replied", portolan_call(node, 0, RING, "x", 1, 100000, &bytes, &reply));
        CHECK(bytes == NULL);
        OK(portolan_recv_call(node, RING, UINT64_MAX, &call));
        CHECK(call.source == 0 && call.len == 1);
        free(call.memory);
    } else {
        OK(portolan_recv_call(node, RING, UINT64_MAX, &call));
        CHECK(call.source == 0 && call.len == rank * 1000);
        expect(call.memory, call.len, rank);
        free(call.memory);
        fill(in, LONG_LEN, 7);
        OK(portolan_reply_release(node, 0, call.number, rank, in, LONG_LEN, count_release, &released));
        OK(portolan_recv_call(node, RING, UINT64_MAX, &call));
        while (released == 0) CHECK(portolan_progress(node) >= 0);
        CHECK(call.len == 4 && released == 1);
        free(call.memory);
        FAILS(PORTOLAN_ERR_ARGUMENT, "status", portolan_reply(node, 0, call.number, 70000, NULL, 0));
        OK(portolan_reply(node, 0, call.number, 0, "adieu", 5));
    }
    portolan_group_t *half;
    OK(portolan_group_split(node, NULL, rank % 2, size - rank, &half));
    CHECK(portolan_group_size(half) == (int)(size + 1 - rank % 2) / 2);
    CHECK(portolan_group_rank(half) == portolan_group_size(half) - 1 - (int)(rank / 2));
    OK(portolan_barrier(node, half));
    OK(portolan_group_free(half));
    OK(portolan_group_split(node, NULL, PORTOLAN_NO_COLOUR, 0, &half));
    CHECK(half == NULL);
    OK(portolan_barrier(node, NULL));
}

static int never(void *user) {
    (void)user;
    return 0;
}

/* Calls with a timeout end without effect, and can be repeated. */
static void timeouts(void) {
    enum { SHORT_NS = 100000 };
    uint32_t token = 0;
    portolan_request_t requests[2] = {0};
    portolan_notice_t notice = PORTOLAN_SIZED(portolan_notice_t);
    size_t index;
    FAILS(PORTOLAN_ERR_TIMEOUT, "within 100", portolan_recv_for(node, RING, previous, &token,
          sizeof token, SHORT_NS, NULL));
    FAILS(PORTOLAN_ERR_TIMEOUT, "matching", portolan_recv_tagged_for(node, 99, 0, previous, &token,
          sizeof token, SHORT_NS, NULL));
    FAILS(PORTOLAN_ERR_TIMEOUT, "notice", portolan_wait_notice_for(node, SHORT_NS, &notice));
    FAILS(PORTOLAN_ERR_TIMEOUT, "condition", portolan_wait_until_for(node, never, NULL, SHORT_NS));
    OK(portolan_post_recv(node, RING, previous, &token, sizeof token, &requests[1]));
    FAILS(PORTOLAN_ERR_TIMEOUT, "operation", portolan_wait_for(node, requests[1], SHORT_NS, NULL));
    FAILS(PORTOLAN_ERR_TIMEOUT, "operation",
          portolan_wait_any_for(node, requests, 2, SHORT_NS, &index, NULL));
    CHECK(index == SIZE_MAX);
    OK(portolan_barrier(node, NULL));
    OK(portolan_send_for(node, next, RING, &rank, sizeof rank, 0, UINT64_MAX));
    OK(portolan_wait_for(node, requests[1], UINT64_MAX, NULL));
    CHECK(token == previous);
    OK(portolan_barrier(node, NULL));
}

/* Waits for a request like a program's own event loop. */
static void loop_until(portolan_request_t request) {
    int fd = portolan_event_fd(node);
    CHECK(fd >= 0 && fd == portolan_event_fd(node));
    for (;;) {
        int result = portolan_test(node, request, NULL);
        CHECK(result >= 0);
        if (result == PORTOLAN_OK) return;
        int armed = portolan_arm(node);
        CHECK(armed >= 0);
        if (armed == 0) continue;
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        CHECK(poll(&entry, 1, 60000) == 1);
        OK(portolan_disarm(node));
    }
}

static void event_loop(void) {
    char in = 0, token = (char)rank;
    for (int round = 0; round < 20; round++) {
        portolan_request_t request;
        OK(portolan_post_recv(node, EVENTS, previous, &in, 1, &request));
        if (rank == 0) OK(portolan_send(node, next, EVENTS, &token, 1, 0));
        loop_until(request);
        CHECK(in == (char)previous);
        if (rank != 0) OK(portolan_send(node, next, EVENTS, &token, 1, 0));
    }
    OK(portolan_barrier(node, NULL));
}

/* -- tagged messages: out of order, by mask, peeked, claimed, cancelled -- */

static void tagged(void) {
    uint64_t imm = 5;
    char in[8];
    portolan_request_t request;
    portolan_claim_t claim;
    portolan_envelope_t got = PORTOLAN_SIZED(portolan_envelope_t);
    portolan_completion_t done = PORTOLAN_SIZED(portolan_completion_t);
    OK(portolan_send_tagged(node, next, TAG, NULL, "one", 3, 0));
    OK(portolan_isend_tagged_copy(node, next, OTHER_TAG, &imm, "two", 3, 0));
    OK(portolan_isend_tagged(node, next, TAG, NULL, "three", 5, 0, &request));
    OK(portolan_recv_tagged(node, OTHER_TAG, 0, previous, in, sizeof in, &got));
    CHECK(got.len == 3 && got.tag == OTHER_TAG && got.source == previous);
    CHECK(got.has_imm == 1 && got.imm == 5 && memcmp(in, "two", 3) == 0);
    while (portolan_peek(node, 0, UINT64_MAX, PORTOLAN_ANY_SOURCE, &got) == 0) continue;
    CHECK(got.len == 3 && got.tag == TAG && got.has_imm == 0);
    CHECK(portolan_claim(node, TAG, 0, previous, &got, &claim) == 1 && got.len == 3);
    OK(portolan_recv_tagged(node, TAG, 0xff, PORTOLAN_ANY_SOURCE, in, sizeof in, NULL));
    CHECK(memcmp(in, "three", 5) == 0);
    OK(portolan_wait(node, request, NULL));
    OK(portolan_recv_claimed(node, claim, in, sizeof in, &request));
    OK(portolan_wait(node, request, &done));
    CHECK(done.len == 3 && done.tag == TAG && done.has_imm == 0 && memcmp(in, "one", 3) == 0);
    FAILS(PORTOLAN_ERR_NO_CLAIM, "claim", portolan_recv_claimed(node, claim, in, 8, &request));
    OK(portolan_post_recv_tagged(node, 1, 0, PORTOLAN_ANY_SOURCE, in, sizeof in, &request));
    CHECK(portolan_cancel(node, request) == 1);
    FAILS(PORTOLAN_ERR_CANCELLED, "cancelled", portolan_wait(node, request, NULL));
    imm = 99;
    OK(portolan_send_tagged(node, next, TAG, &imm, "long", 4, PORTOLAN_HIGH));
    FAILS(PORTOLAN_ERR_TRUNCATED, "4 bytes",
          portolan_recv_tagged(node, TAG, 0, PORTOLAN_ANY_SOURCE, in, 2, &got));
    CHECK(got.len == 4 && got.source == previous && got.tag == TAG && got.imm == 99);
    OK(portolan_post_recv_tagged(node, 0, ~(uint64_t)0, PORTOLAN_ANY_SOURCE, in, 2, &request));
    OK(portolan_send_tagged(node, next, TAG, &imm, "again", 5, 0));
    int code = PORTOLAN_PENDING;
    while (code == PORTOLAN_PENDING) code = portolan_test(node, request, &done);
    CHECK(code == PORTOLAN_ERR_TRUNCATED && done.len == 5 && done.source == previous);
    CHECK(done.tag == TAG && done.has_imm == 1 && done.imm == 99);
    OK(portolan_barrier(node, NULL));
}

/* -- numbers in the memory of the next process -- */

static void count_together(portolan_remote_t *place, int64_t *numbers) {
    int64_t operands[2] = {1, 10}, before[2] = {0, 0}, compare[2] = {0, 0};
    portolan_atomic_t what = PORTOLAN_SIZED(portolan_atomic_t);
    portolan_request_t request;
    numbers[0] = numbers[1] = 5;
    OK(portolan_barrier(node, NULL));
    place->offset = 0;
    what.operation = PORTOLAN_SUM;
    what.type = PORTOLAN_INT64;
    what.count = 2;
    what.operands = operands;
    OK(portolan_atomic(node, place, &what));
    what.before = before;
    OK(portolan_iatomic(node, place, &what, &request));
    OK(portolan_wait(node, request, NULL));
    CHECK(before[0] == 6 && before[1] == 15);
    what.operation = PORTOLAN_SWAP_IF_EQUAL;
    compare[0] = 7;
    what.compare = compare;
    OK(portolan_atomic(node, place, &what));
    CHECK(before[0] == 7 && before[1] == 25);
    what.operation = PORTOLAN_READ;
    what.operands = NULL;
    OK(portolan_atomic(node, place, &what));
    CHECK(before[0] == 1 && before[1] == 25);
    OK(portolan_barrier(node, NULL));
    CHECK(numbers[0] == 1 && numbers[1] == 25);
    OK(portolan_barrier(node, NULL));
}

/* -- memory of the next process -- */

static void remote(void) {
    void *region, *back;
    uint64_t own, theirs;
    portolan_request_t requests[2];
    OK(portolan_alloc(REGION_LEN, &region));
    OK(portolan_alloc(REGION_LEN, &back));
    OK(portolan_register(node, region, REGION_LEN, PORTOLAN_READ_ACCESS | PORTOLAN_WRITE_ACCESS, &own));
    OK(portolan_send(node, previous, RING, &own, sizeof own, 0));
    OK(portolan_recv(node, RING, next, &theirs, sizeof theirs, NULL));
    portolan_remote_t place = PORTOLAN_SIZED(portolan_remote_t);
    place.rank = next;
    place.key = theirs;
    place.offset = 8;
    place.flags = PORTOLAN_NOTIFY;
    place.notice = rank + 1;
    OK(portolan_put(node, &place, "short", 5));
    portolan_notice_t notice = PORTOLAN_SIZED(portolan_notice_t);
    OK(portolan_wait_notice(node, &notice));
    CHECK(notice.word == previous + 1 && notice.source == previous && notice.key == own);
    CHECK(notice.offset == 8 && notice.len == 5 && memcmp((char *)region + 8, "short", 5) == 0);
    CHECK(portolan_next_notice(node, &notice) == 0);
    /* The put data is checked before the next put overwrites it. */
    OK(portolan_barrier(node, NULL));
    place.flags = 0;
    place.offset = 0;
    fill(back, REGION_LEN, rank);
    OK(portolan_iput(node, &place, back, REGION_LEN, &requests[0]));
    OK(portolan_wait(node, requests[0], NULL));
    memset(back, 0, REGION_LEN);
    OK(portolan_iget(node, &place, back, REGION_LEN / 2, &requests[0]));
    place.offset = REGION_LEN / 2;
    OK(portolan_iget(node, &place, (char *)back + REGION_LEN / 2, REGION_LEN / 2, &requests[1]));
    OK(portolan_wait_all(node, requests, 2));
    expect(back, REGION_LEN, rank);
    OK(portolan_barrier(node, NULL));
    expect(region, REGION_LEN, previous);
    place.offset = REGION_LEN - 2;
    FAILS(PORTOLAN_ERR_REMOTE_REFUSED, "refused", portolan_put(node, &place, "long", 4));
    place.key ^= 1;
    FAILS(PORTOLAN_ERR_REMOTE_REFUSED, "refused", portolan_get(node, &place, back, 1));
    place.key ^= 1;
    OK(portolan_barrier(node, NULL));
    count_together(&place, region);
    OK(portolan_deregister(node, own));
    FAILS(PORTOLAN_ERR_NO_REGION, "deregistered", portolan_deregister(node, own));
    OK(portolan_barrier(node, NULL));
    FAILS(PORTOLAN_ERR_REMOTE_REFUSED, "refused", portolan_get(node, &place, back, 1));
    OK(portolan_barrier(node, NULL));
    OK(portolan_free(region));
    OK(portolan_free(back));
}

/* -- handlers start tagged and remote operations; the program waits for them -- */

static struct {
    portolan_request_t requests[5];
    int64_t got;
    char word[8];
    int asked;
} answer;

static void on_ask(portolan_node_t *here, const portolan_message_t *message, void *user) {
    static const int64_t one = 1;
    uint32_t asker = message->source;
    portolan_remote_t place = PORTOLAN_SIZED(portolan_remote_t);
    portolan_atomic_t sum = PORTOLAN_SIZED(portolan_atomic_t);
    CHECK(user == &answer && message->len == sizeof place.key);
    memcpy(&place.key, message->bytes, sizeof place.key);
    place.rank = asker;
    OK(portolan_iput(here, &place, "put", 4, &answer.requests[0]));
    place.offset = 8;
    sum.operation = PORTOLAN_SUM;
    sum.type = PORTOLAN_INT64;
    sum.count = 1;
    sum.operands = &one;
    OK(portolan_iatomic(here, &place, &sum, &answer.requests[1]));
    place.offset = 16;
    OK(portolan_iget(here, &place, &answer.got, 8, &answer.requests[2]));
    OK(portolan_isend_tagged_copy(here, asker, ANSWER, NULL, "copied", 7, 0));
    OK(portolan_isend_tagged(here, asker, ANSWER + 1, NULL, "lent", 5, PORTOLAN_HIGH,
                             &answer.requests[3]));
    OK(portolan_post_recv_tagged(here, ANSWER + 2, 0, asker, answer.word, sizeof answer.word,
                                 &answer.requests[4]));
    FAILS(PORTOLAN_ERR_IN_HANDLER, "handler", portolan_put(here, &place, "put", 4));
    FAILS(PORTOLAN_ERR_IN_HANDLER, "handler", portolan_atomic(here, &place, &sum));
    FAILS(PORTOLAN_ERR_IN_HANDLER, "handler",
          portolan_recv_tagged(here, ANSWER, 0, asker, answer.word, 8, NULL));
    answer.asked++;
}

static int is_asked(void *user) {
    (void)user;
    return answer.asked;
}

static void from_handlers(void) {
    int64_t region[3] = {0, 40, 70 + (int64_t)rank};
    uint64_t key;
    char in[8];
    OK(portolan_register(node, region, sizeof region, PORTOLAN_READ_ACCESS | PORTOLAN_WRITE_ACCESS,
                       &key));
    OK(portolan_open_active(node, ASK, PORTOLAN_IN_PLACE, on_ask, &answer));
    OK(portolan_barrier(node, NULL));
    OK(portolan_send(node, next, ASK, &key, sizeof key, 0));
    OK(portolan_recv_tagged(node, ANSWER + 1, 0, next, in, sizeof in, NULL));
    CHECK(strcmp(in, "lent") == 0);
    OK(portolan_recv_tagged(node, ANSWER, 0, next, in, sizeof in, NULL));
    CHECK(strcmp(in, "copied") == 0);
    OK(portolan_send_tagged(node, next, ANSWER + 2, NULL, "back", 5, 0));
    OK(portolan_wait_until(node, is_asked, NULL));
    OK(portolan_wait_all(node, answer.requests, 5));
    CHECK(answer.got == 70 + (int64_t)previous && strcmp(answer.word, "back") == 0);
    OK(portolan_barrier(node, NULL));
    CHECK(memcmp(region, "put", 4) == 0 && region[1] == 41);
    OK(portolan_deregister(node, key));
    OK(portolan_barrier(node, NULL));
}

static void count_path(const char *path, void *user) {
    CHECK(strlen(path) > 5);
    ++*(int *)user;
}

static void count_drop(const char *reason, uint64_t count, void *user) {
    CHECK(reason[0] != '\0');
    *(uint64_t *)user += count;
}

static void accounts(void) {
    portolan_counters_t counters = PORTOLAN_SIZED(portolan_counters_t);
    int paths = 0;
    uint64_t drops = 0;
    char colour[4];
    uint8_t own[16] = {0}, first[16];
    OK(portolan_job_id(node, own));
    memcpy(first, own, sizeof own);
    OK(portolan_broadcast(node, NULL, 0, first, sizeof first));
    CHECK(memcmp(first, own, sizeof own) == 0 && memcmp(first, (char[16]){0}, 16) != 0);
    OK(portolan_counters(node, &counters));
    CHECK(counters.messages_sent > ROUNDS && counters.messages_received > ROUNDS);
    CHECK(counters.remote_requests > 0);
    CHECK(portolan_drops(node, count_drop, &drops) >= 0 && drops == counters.drops);
    CHECK(portolan_paths(node, next, count_path, &paths) == paths && paths > 0);
    FAILS(PORTOLAN_ERR_NO_SUCH_RANK, "rank", portolan_paths(node, size, count_path, &paths));
    CHECK(portolan_option(node, "colour", colour, sizeof colour) == 6);
    CHECK(strcmp(colour, "pur") == 0);
}

int main(void) {
    OK(portolan_join(&node));
    rank = (uint32_t)portolan_rank(node);
    size = (uint32_t)portolan_size(node);
    CHECK(size >= 2 && size <= 64);
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    OK(portolan_open(node, RING));
    OK(portolan_open(node, EVENTS));
    OK(portolan_open(node, LONG));
    blocking();
    non_blocking();
    chosen();
    long_messages();
    handlers();
    together();
    at_once();
    any_of();
    unknown_length();
    calls();
    timeouts();
    event_loop();
    tagged();
    remote();
    from_handlers();
    accounts();
    OK(portolan_close(node));
    puts("all messages arrived");
    return 0;
}
