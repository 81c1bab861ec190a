/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tokens under traffic. Two nodes exchange as many messages as the argument gives, of many sizes and
 * both priorities, with datagrams and remote memory accesses among them. All send tokens are used.
 * Every send ends once, every buffer is returned once, and messages are intact and in order. At the
 * end each port has exactly its initial tokens. */

#include "check.h"

#include <stdint.h>

enum { PORT = 2, SEND_TOKENS = 64, RECV_TOKENS = 256, DATAGRAM_SIZE = 9, DATAGRAMS_MAX = 1 << 20, PLAIN_SIZES = 6 };

/* Sizes of ordinary messages, from short ones to those with separately sent bytes, and the number
 * of buffers of each. */
static const unsigned sizes[PLAIN_SIZES] = {5, 6, 8, 12, 13, 17};
static const unsigned buffer_counts[PLAIN_SIZES] = {24, 24, 16, 8, 4, 2};
enum { DATAGRAM_BUFFERS = 16, LEN_MAX = 1 << 17, SHARED_LEN = 1 << 16, GOT_LEN = 512 };

enum kind { MESSAGE, DATAGRAM, PUT, GET, LAST };

/* Header of every message. */
struct head {
    uint64_t number; /* of its priority's messages, from 1; of a datagram, of all datagrams */
    uint64_t put;    /* of the last put before it with the same priority */
    uint32_t len, kind;
};

/* A send in flight, and its bytes. */
struct slot {
    int is_busy, kind;
    char *bytes;
};

/* A buffer of the port. */
struct buffer {
    char *bytes;
    unsigned char size, priority, is_provided;
};

static struct gm_port *port;
static struct slot slots[SEND_TOKENS];
static struct buffer buffers[RECV_TOKENS];
static unsigned buffer_count, free_slots[SEND_TOKENS], free_count;
static uint64_t sent[2], put[2], got[2], sent_datagrams, got_datagrams, ended, begun;
static int is_over[2];
static char got_datagram[DATAGRAMS_MAX];
static char *shared;          /* written by the other: a number for each priority, at 0 and in the middle */
static gm_remote_ptr_t far;   /* the other's */
static uint64_t draw_state;

/* Draws the next random number, the same in every run. */
static unsigned draw(unsigned below) {
    draw_state = draw_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((draw_state >> 33) % below);
}

static char pattern_of(uint64_t number, size_t at) { return (char)(number * 7 + at / 3); }

/* Writes the bytes after a header: all of a short message, the ends and some in between of a long
 * one. */
static void paint(char *bytes, size_t len, uint64_t number) {
    for (size_t at = sizeof(struct head); at < len; at += at < 256 || at + 256 > len ? 1 : 61) bytes[at] = pattern_of(number, at);
}

static int is_painted(const char *bytes, size_t len, uint64_t number) {
    for (size_t at = sizeof(struct head); at < len; at += at < 256 || at + 256 > len ? 1 : 61)
        if (bytes[at] != pattern_of(number, at)) return 0;
    return 1;
}

static void on_end(struct gm_port *at, void *context, gm_status_t status) {
    struct slot *slot = context;
    CHECK(at == port && status == GM_SUCCESS && slot->is_busy);
    if (slot->kind == GET)
        for (unsigned i = 0; i < GOT_LEN; i++) CHECK(slot->bytes[i] == pattern_of(3 - me, i));
    slot->is_busy = 0;
    free_slots[free_count++] = (unsigned)(slot - slots);
    ended++;
}

static void provide(struct buffer *buffer) {
    CHECK(!buffer->is_provided);
    buffer->is_provided = 1;
    unsigned tag = (unsigned)(buffer - buffers);
    gm_provide_receive_buffer_with_tag(port, buffer->bytes, buffer->size, buffer->priority, tag);
}

static void add_buffers(unsigned size, unsigned count) {
    for (unsigned i = 0; i < 2 * count; i++) {
        struct buffer *buffer = &buffers[buffer_count++];
        CHECK(buffer_count <= RECV_TOKENS && (buffer->bytes = malloc((size_t)1 << size)));
        buffer->size = (unsigned char)size;
        buffer->priority = i % 2;
        provide(buffer);
    }
}

static struct slot *take_slot(int kind) {
    struct slot *slot = &slots[free_slots[--free_count]];
    slot->is_busy = 1;
    slot->kind = kind;
    begun++;
    return slot;
}

/* Sends a message or a datagram. */
static void send_message(enum kind kind, unsigned size, unsigned priority) {
    struct slot *slot = take_slot(kind);
    size_t most = gm_max_length_for_size(size);
    struct head head = {kind == DATAGRAM ? ++sent_datagrams : ++sent[priority], put[priority], 0, kind};
    head.len = (uint32_t)(most - draw((unsigned)(most - sizeof head) + 1));
    if (kind == LAST) head.len = sizeof head;
    memcpy(slot->bytes, &head, sizeof head);
    paint(slot->bytes, head.len, head.number);
    if (kind == DATAGRAM)
        gm_datagram_send(port, slot->bytes, size, head.len, priority, other, PORT, on_end, slot);
    else
        gm_send_to_peer_with_callback(port, slot->bytes, size, head.len, priority, other, on_end, slot);
}

static void send_put(unsigned priority) {
    struct slot *slot = take_slot(PUT);
    unsigned len = draw(20) ? 8 + draw(600) : 8 + draw(SHARED_LEN / 2 - 8);
    put[priority]++;
    memcpy(slot->bytes, &put[priority], sizeof put[priority]);
    gm_directed_send_with_callback(port, slot->bytes, far + priority * SHARED_LEN / 2, len, priority, other, PORT, on_end, slot);
}

static void send_get(unsigned priority) {
    struct slot *slot = take_slot(GET);
    memset(slot->bytes, 0x5a, GOT_LEN);
    gm_get(port, far + SHARED_LEN, slot->bytes, GOT_LEN, priority, other, PORT, on_end, slot);
}

static void send_something(void) {
    unsigned which = draw(1000), priority = draw(3) == 0;
    if (which < 20)
        send_message(DATAGRAM, DATAGRAM_SIZE, priority);
    else if (which < 50)
        send_put(priority);
    else if (which < 60)
        send_get(priority);
    else
        send_message(MESSAGE, sizes[which < 62 ? 5 : which < 70 ? 4 : which < 90 ? 3 : which % 3], priority);
}

/* Checks a received message: it is in a provided buffer, intact, and the next of its priority. */
static void on_message(gm_recv_event_t *event) {
    struct buffer *buffer = &buffers[gm_ntoh_u8(event->recv.tag)];
    const char *bytes = bytes_of(event);
    size_t len = gm_ntoh_u32(event->recv.length);
    struct head head;
    CHECK(buffer->is_provided && buffer->bytes == gm_ntohp(event->recv.buffer));
    CHECK(buffer->size == gm_ntoh_u8(event->recv.size) && gm_ntoh_u16(event->recv.sender_node_id) == other);
    buffer->is_provided = 0;
    memcpy(&head, bytes, sizeof head);
    CHECK(head.len == len && is_painted(bytes, len, head.number));
    if (head.kind == DATAGRAM) {
        CHECK(buffer->size == DATAGRAM_SIZE && !got_datagram[head.number % DATAGRAMS_MAX]);
        got_datagram[head.number % DATAGRAMS_MAX] = 1;
        got_datagrams++;
    } else {
        uint64_t in_place;
        CHECK(head.number == ++got[buffer->priority] && !is_over[buffer->priority]);
        memcpy(&in_place, shared + buffer->priority * SHARED_LEN / 2, sizeof in_place);
        CHECK(in_place >= head.put);
        is_over[buffer->priority] = head.kind == LAST;
    }
    provide(buffer);
}

static void take_event(gm_recv_event_t *event) {
    if (is_message(event))
        on_message(event);
    else
        gm_unknown(port, event);
}

static void traffic(uint64_t count) {
    while (begun < count) {
        while (free_count && begun < count) send_something();
        do take_event(free_count ? gm_receive(port) : gm_blocking_receive(port));
        while (gm_receive_pending(port));
    }
    for (unsigned priority = 0; priority < 2; priority++) {
        while (!free_count) take_event(gm_blocking_receive(port));
        send_message(LAST, sizes[0], priority);
    }
    while (ended < begun || !is_over[0] || !is_over[1]) take_event(gm_blocking_receive(port));
}

/* Uses all send tokens and all receive tokens without a violation; one more of each violates. */
static void count_tokens(void) {
    static char words[RECV_TOKENS + 1][16];
    while (gm_receive_pending(port)) take_event(gm_receive(port));
    barrier();
    CHECK(free_count == SEND_TOKENS);
    for (unsigned i = 0; i < SEND_TOKENS; i++) send_get(0);
    gm_get(port, far, words[0], 8, 0, other, PORT, NULL, NULL);
    unsigned violations = 0;
    while (ended < begun) {
        gm_recv_event_t *event = gm_blocking_receive(port);
        if (GM_RECV_EVENT_TYPE(event) == GM_SEND_TOKEN_VIOLATION_EVENT)
            violations++;
        else
            take_event(event);
    }
    CHECK(violations == 1);
    for (unsigned i = buffer_count; i < RECV_TOKENS; i++) gm_provide_receive_buffer_with_tag(port, words[i], 4, 0, 0);
    gm_recv_event_t *event = gm_receive(port);
    for (; is_message(event); event = gm_receive(port)) on_message(event);
    CHECK(GM_RECV_EVENT_TYPE(event) == GM_NO_RECV_EVENT);
    gm_unknown(port, event);
    gm_provide_receive_buffer_with_tag(port, words[RECV_TOKENS], 4, 0, 0);
    event = gm_blocking_receive(port);
    CHECK(GM_RECV_EVENT_TYPE(event) == GM_RECV_TOKEN_VIOLATION_EVENT);
}

/* Sends the address of this process's memory to the other process. */
static void open_memory(void) {
    CHECK(shared = gm_dma_calloc(port, 1, SHARED_LEN + GOT_LEN));
    for (unsigned i = 0; i < GOT_LEN; i++) shared[SHARED_LEN + i] = pattern_of(me, i);
    OK(gm_allow_remote_memory_access(port));
    static char in[16];
    int status = UNKNOWN;
    uint64_t at = (uint64_t)(size_t)shared;
    gm_provide_receive_buffer_with_tag(port, in, 4, GM_LOW_PRIORITY, 0);
    gm_send_to_peer_with_callback(port, &at, 4, sizeof at, GM_LOW_PRIORITY, other, on_sent, &status);
    gm_recv_event_t *event = next_message(port);
    memcpy(&at, bytes_of(event), sizeof at);
    far = at;
    CHECK(status_of(port, &status) == GM_SUCCESS);
    barrier();
}

int main(int argc, char **argv) {
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    begin();
    CHECK(count > 0 && count / 50 < DATAGRAMS_MAX / 2);
    draw_state = me;
    OK(gm_open(&port, 0, PORT, "traffic", GM_API_VERSION));
    open_memory();
    for (unsigned i = 0; i < SEND_TOKENS; i++) {
        CHECK(slots[i].bytes = calloc(1, LEN_MAX));
        free_slots[free_count++] = i;
    }
    for (unsigned i = 0; i < PLAIN_SIZES; i++) add_buffers(sizes[i], buffer_counts[i]);
    add_buffers(DATAGRAM_SIZE, DATAGRAM_BUFFERS);
    barrier();
    traffic(count);
    barrier();
    count_tokens();
    barrier();
    printf("node %u is done: %llu sends, %llu of %llu messages high, %llu datagrams came\n", me, (unsigned long long)begun,
           (unsigned long long)got[1], (unsigned long long)(got[0] + got[1]), (unsigned long long)got_datagrams);
    gm_dma_free(port, shared);
    gm_close(port);
    end();
    for (unsigned i = 0; i < SEND_TOKENS; i++) free(slots[i].bytes);
    for (unsigned i = 0; i < buffer_count; i++) free(buffers[i].bytes);
    return 0;
}
