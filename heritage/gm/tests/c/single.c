/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tests in a job of one: opening and closing, names, events, alarms, memory, and refused calls. */

#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static struct gm_port *port;

static void opening(void) {
    struct gm_port *again = NULL;
    char name[GM_MAX_PORT_NAME_LEN + 1];
    memset(name, 'n', sizeof name);
    name[GM_MAX_PORT_NAME_LEN] = 0;
    CHECK(gm_last_error()[0] == 0);
    FAILS(GM_INVALID_PARAMETER, "null", gm_open(NULL, 0, 2, "x", GM_API_VERSION));
    FAILS(GM_INVALID_PARAMETER, "null", gm_open(&port, 0, 2, NULL, GM_API_VERSION));
    FAILS(GM_INVALID_PARAMETER, "31", gm_open(&port, 0, 2, name, GM_API_VERSION));
    FAILS(GM_NO_SUCH_DEVICE, "unit 1", gm_open(&port, 1, 2, "x", GM_API_VERSION));
    FAILS(GM_INVALID_PORT_NUMBER, "port 8", gm_open(&port, 0, 8, "x", GM_API_VERSION));
    FAILS(GM_INCOMPATIBLE_LIB_AND_DRIVER, "0x300", gm_open(&port, 0, 2, "x", 0x300));
    OK(gm_init());
    OK(gm_init());
    OK(gm_open(&port, 0, 2, "port", GM_API_VERSION));
    for (unsigned taken = 0; taken < 4; taken++)
        FAILS(GM_BUSY, "reserved", gm_open(&again, 0, taken, "x", GM_API_VERSION));
    struct gm_port *all[3];
    for (unsigned i = 0; i < 3; i++) {
        OK(gm_open(&all[i], 0, 5 + i, "x", GM_API_VERSION_1_0));
        CHECK(gm_get_port_id(all[i]) == 5 + i);
        gm_close(all[i]);
        FAILS(GM_UNATTACHED, "closed", gm_get_node_id(all[i], &(unsigned){0}));
    }
    FAILS(GM_INVALID_PARAMETER, "port", gm_get_node_id((struct gm_port *)&all, &(unsigned){0}));
    CHECK(gm_num_ports(port) == 8 && gm_mtu(port) == 4096 && gm_min_message_size(port) == 3);
}

static void names(void) {
    char name[GM_MAX_HOST_NAME_LEN] = "", same[GM_MAX_HOST_NAME_LEN + 1] = "";
    char board[6], mapper[6];
    unsigned node = 0;
    OK(gm_get_node_id(port, &node));
    CHECK(node == 1);
    OK(gm_get_host_name(port, name));
    OK(gm_node_id_to_host_name_ex(port, 1000, 1, &same));
    CHECK(name[0] && strcmp(name, same) == 0);
    CHECK(strcmp(gm_node_id_to_host_name(port, 1), name) == 0);
    CHECK(!gm_node_id_to_host_name(port, 2) && !gm_node_id_to_host_name(NULL, 1));
    CHECK(gm_host_name_to_node_id(port, name) == 1);
    strcat(same, ":0");
    node = 0;
    OK(gm_host_name_to_node_id_ex(port, 1000, same, &node));
    CHECK(node == 1 && gm_host_name_to_node_id(port, "nobody:7") == GM_NO_SUCH_NODE_ID);
    FAILS(GM_NO_MATCH, "nobody", gm_host_name_to_node_id_ex(port, 0, "nobody", &node));
    FAILS(GM_INVALID_PARAMETER, "node 2", gm_node_id_to_host_name_ex(port, 0, 2, &same));
    FAILS(GM_INVALID_PARAMETER, "null", gm_get_host_name(port, NULL));
    OK(gm_get_unique_board_id(port, board));
    OK(gm_get_mapper_unique_id(port, mapper));
    CHECK(memcmp(board, mapper, 6) == 0);
    OK(gm_node_id_to_unique_id(port, 1, mapper));
    CHECK(memcmp(board, mapper, 6) == 0);
    node = 0;
    OK(gm_unique_id_to_node_id(port, board, &node));
    CHECK(node == 1);
    board[5]++;
    FAILS(GM_NO_MATCH, "board", gm_unique_id_to_node_id(port, board, &node));
    OK(gm_node_id_to_global_id(port, 1, &node));
    OK(gm_global_id_to_node_id(port, node, &node));
    CHECK(node == 1);
    OK(gm_max_node_id_in_use(port, &node));
    CHECK(node == 1);
    OK(gm_max_node_id(port, &node));
    CHECK(node == 65535);
}

static void lengths(void) {
    CHECK(gm_min_size_for_length(0) == 3 && gm_min_size_for_length(1) == 4 && gm_min_size_for_length(8) == 4);
    CHECK(gm_min_size_for_length(9) == 5 && gm_min_size_for_length((1UL << 31) - 8) == 31);
    CHECK(gm_max_length_for_size(0) == 0 && gm_max_length_for_size(3) == 0 && gm_max_length_for_size(4) == 8);
    CHECK(gm_max_length_for_size(31) == (1UL << 31) - 8);
    for (unsigned size = 3; size < 32; size++) {
        CHECK(gm_min_size_for_length(gm_max_length_for_size(size)) == size);
        CHECK(gm_min_size_for_length(gm_max_length_for_size(size) + 1) == size + 1);
    }
    CHECK(gm_log2_roundup(1) == 0 && gm_log2_roundup(4096) == 12 && gm_log2_roundup(4097) == 13);
    /* No number can represent the next power of two. */
    CHECK(gm_log2_roundup(-1UL) == 64 && gm_log2_roundup((1UL << 63) + 1) == 64 && gm_log2_roundup(1UL << 63) == 63);
    CHECK(gm_min_size_for_length(-1UL) == 64 && gm_min_size_for_length(1UL << 63) == 64);
}

/* Sends to the own node follow the same rules. */
static void to_itself(void) {
    char word[16] = "ahoy", buffer[16] = "";
    int status = UNKNOWN;
    gm_send_with_callback(port, word, 4, 5, GM_LOW_PRIORITY, 1, 2, on_sent, &status);
    for (int i = 0; i < 100; i++) CHECK(GM_RECV_EVENT_TYPE(gm_receive(port)) == GM_NO_RECV_EVENT);
    gm_provide_receive_buffer(port, buffer, 4, GM_LOW_PRIORITY);
    gm_recv_event_t *event = next_message(port);
    CHECK(GM_RECV_EVENT_TYPE(event) == GM_FAST_PEER_RECV_EVENT && strcmp(bytes_of(event), "ahoy") == 0);
    CHECK(status_of(port, &status) == GM_SUCCESS);
    status = UNKNOWN;
    gm_resume_sending(port, GM_LOW_PRIORITY, 1, 2, on_sent, &status);
    CHECK(status_of(port, &status) == GM_SUCCESS);
    /* Without a token nothing is sent, and an event reports it. */
    for (unsigned i = 0; i <= gm_num_send_tokens(port); i++)
        gm_send_with_callback(port, word, 4, 5, GM_LOW_PRIORITY, 1, 2, NULL, NULL);
    CHECK(GM_RECV_EVENT_TYPE(gm_blocking_receive(port)) == GM_SEND_TOKEN_VIOLATION_EVENT);
    /* The messages arrive and wait for buffers. */
    for (int i = 0; i < 100; i++) CHECK(GM_RECV_EVENT_TYPE(gm_receive(port)) == GM_NO_RECV_EVENT);
    gm_close(port);
    OK(gm_open(&port, 0, 2, "again", GM_API_VERSION));
    for (unsigned i = 0; i <= gm_num_receive_tokens(port); i++)
        gm_provide_receive_buffer(port, buffer, 4, GM_LOW_PRIORITY);
    CHECK(GM_RECV_EVENT_TYPE(gm_blocking_receive_no_spin(port)) == GM_RECV_TOKEN_VIOLATION_EVENT);
    gm_close(port);
    OK(gm_open(&port, 0, 2, "again", GM_API_VERSION));
    /* The new port has no messages, tokens or failures of the old one. */
    gm_provide_receive_buffer(port, buffer, 4, GM_LOW_PRIORITY);
    for (int i = 0; i < 100; i++) CHECK(GM_RECV_EVENT_TYPE(gm_receive(port)) == GM_NO_RECV_EVENT);
    status = UNKNOWN;
    gm_send_with_callback(port, word, 4, 5, GM_LOW_PRIORITY, 1, 2, on_sent, &status);
    CHECK(strcmp(bytes_of(next_message(port)), "ahoy") == 0 && status_of(port, &status) == GM_SUCCESS);
}

/* A short message stays at the address in its event, however many messages arrive before the event
 * is taken. */
static void short_ones_that_wait(void) {
    static char words[2][16], high[16], low[16];
    struct gm_port *second;
    int status = UNKNOWN;
    OK(gm_open(&second, 0, 4, "second", GM_API_VERSION));
    strcpy(words[0], "ahoy");
    gm_provide_receive_buffer(port, low, 4, GM_LOW_PRIORITY);
    gm_send_with_callback(second, words[0], 4, 5, GM_LOW_PRIORITY, 1, 2, on_sent, &status);
    CHECK(status_of(second, &status) == GM_SUCCESS);
    for (unsigned i = 0; i < 2 * gm_num_receive_tokens(port); i++) {
        gm_provide_receive_buffer(port, high, 4, GM_HIGH_PRIORITY);
        fill(words[1], 8, 1, i);
        status = UNKNOWN;
        gm_send_with_callback(second, words[1], 4, 8, GM_HIGH_PRIORITY, 1, 2, on_sent, &status);
        CHECK(status_of(second, &status) == GM_SUCCESS);
        gm_recv_event_t *event = gm_receive(port);
        CHECK(GM_RECV_EVENT_TYPE(event) == GM_FAST_HIGH_RECV_EVENT && is_filled(bytes_of(event), 8, 1, i));
        /* Every second one is taken into its buffer. */
        if (i % 2) gm_unknown(port, event);
        if (i % 2) CHECK(GM_RECV_EVENT_TYPE(gm_receive(port)) == GM_HIGH_RECV_EVENT && is_filled(high, 8, 1, i));
    }
    CHECK(strcmp(bytes_of(gm_receive(port)), "ahoy") == 0);
    gm_close(second);
}

static int rung;
static void ring(void *context) { rung = rung * 10 + *(int *)context; }

static void alarms(void) {
    static int numbers[] = {1, 2, 3};
    gm_alarm_t all[3];
    for (int i = 0; i < 3; i++) gm_initialize_alarm(&all[i]);
    gm_set_alarm(port, &all[2], 9000, ring, &numbers[2]);
    gm_set_alarm(port, &all[0], 1000, ring, &numbers[0]);
    gm_set_alarm(port, &all[1], 3600000000, ring, &numbers[0]);
    gm_set_alarm(port, &all[1], 4000, ring, &numbers[1]);
    while (rung < 100) {
        gm_recv_event_t *event = rung % 2 ? gm_blocking_receive(port) : gm_blocking_receive_no_spin(port);
        CHECK(GM_RECV_EVENT_TYPE(event) == GM_ALARM_EVENT);
        gm_unknown(port, event);
    }
    CHECK(rung == 123);
    /* An alarm that is set again at another port does not ring at the first. */
    struct gm_port *second;
    OK(gm_open(&second, 0, 4, "second", GM_API_VERSION));
    gm_set_alarm(port, &all[0], 0, ring, &numbers[0]);
    gm_set_alarm(second, &all[0], 3600000000, ring, &numbers[0]);
    CHECK(gm_receive_pending(port) == 0);
    gm_set_alarm(second, &all[0], 0, ring, &numbers[0]);
    CHECK(gm_receive_pending(second) == 1);
    gm_close(second);
    /* A cancelled alarm does not ring, even if it is due. */
    gm_set_alarm(port, &all[0], 0, ring, &numbers[0]);
    gm_set_alarm(port, &all[1], 0, ring, &numbers[1]);
    gm_recv_event_t *event = gm_blocking_receive(port);
    gm_cancel_alarm(&all[0]);
    gm_unknown(port, event);
    gm_unknown(port, gm_blocking_receive(port));
    gm_cancel_alarm(&all[0]);
    CHECK(rung == 1232 && gm_receive_pending(port) == 0);
}

static void memory(void) {
    char bytes[100];
    OK(gm_register_memory(port, bytes, 100));
    OK(gm_register_memory_ex(port, bytes, 100, bytes));
    FAILS(GM_INVALID_PARAMETER, "pvma", gm_register_memory_ex(port, bytes, 100, bytes + 1));
    FAILS(GM_INVALID_PARAMETER, "null", gm_register_memory(port, NULL, 100));
    FAILS(GM_INVALID_PARAMETER, "exceeds", gm_register_memory(port, bytes, -1UL));
    FAILS(GM_INVALID_PARAMETER, "not registered", gm_deregister_memory(port, bytes, 99));
    OK(gm_deregister_memory(port, bytes, 100));
    OK(gm_deregister_memory(port, bytes, 100));
    FAILS(GM_INVALID_PARAMETER, "not registered", gm_deregister_memory(port, bytes, 100));
    CHECK(!gm_dma_malloc(port, -1UL) && !gm_dma_calloc(port, 1UL << 63, 2));
    gm_dma_free(port, NULL);
    FAILS(GM_INVALID_PARAMETER, "options", gm_set_port_options(port, 8));
    FAILS(GM_INVALID_PARAMETER, "priority 2", gm_set_acceptable_sizes(port, 2, 0));
}

/* Returns the next event of a send without a callback. */
static gm_recv_event_t *next_sent(void) {
    for (;;) {
        gm_recv_event_t *event = gm_blocking_receive(port);
        int type = GM_RECV_EVENT_TYPE(event);
        if (type == GM_SENT_EVENT || type == GM_SENDS_FAILED_EVENT) return event;
        gm_unknown(port, event);
    }
}

static int is_list_of(gm_recv_event_t *event, void *message) {
    void **list = gm_ntohp(event->sent.message_list);
    return list && list[0] == message && !list[1];
}

/* Sends that report their end by an event, and copies between the processes of a host. */
static void without_callbacks(void) {
    static char word[] = "ahoy", room[32], source[8] = "source", target[8];
    gm_provide_receive_buffer(port, room, 5, GM_LOW_PRIORITY);
    gm_send(port, word, 5, 5, GM_LOW_PRIORITY, 1, 2);
    gm_recv_event_t *event = next_sent();
    CHECK(GM_RECV_EVENT_TYPE(event) == GM_SENT_EVENT && is_list_of(event, word));
    gm_unknown(port, event);
    gm_provide_receive_buffer(port, room, 5, GM_LOW_PRIORITY);
    gm_send_to_peer(port, word, 5, 5, GM_LOW_PRIORITY, 1);
    CHECK(is_list_of(next_sent(), word));
    gm_send(port, word, 5, 5, GM_LOW_PRIORITY, 9, 2);
    event = next_sent();
    CHECK(GM_RECV_EVENT_TYPE(event) == GM_SENDS_FAILED_EVENT && is_list_of(event, word));
    CHECK(gm_directcopy_get(port, source, target, 7, 0, 2) == GM_PERMISSION_DENIED);
    OK(gm_allow_remote_memory_access(port));
    FAILS(GM_NO_MATCH, "no board 3", gm_directcopy_get(port, source, target, 7, 3, 2));
    FAILS(GM_MEMORY_FAULT, "refused", gm_directcopy_get(port, source, target, 7, 0, 2));
    OK(gm_register_memory(port, source, 8));
    OK(gm_register_memory(port, target, 8));
    OK(gm_directcopy_get(port, source, target, 7, 0, 2));
    CHECK(strcmp(target, "source") == 0);
    gm_directed_send(port, word, (gm_remote_ptr_t)(uintptr_t)target, 5, GM_LOW_PRIORITY, 1, 2);
    CHECK(is_list_of(next_sent(), word) && strcmp(target, "ahoy") == 0);
    int status = -1;
    gm_u32_t number = 77, got = 0;
    gm_provide_receive_buffer(port, room, 5, GM_LOW_PRIORITY);
    gm_datagram_send_4(port, number, 5, 4, GM_LOW_PRIORITY, 1, 2, on_sent, &status);
    while (status == -1) gm_unknown(port, gm_receive(port));
    CHECK(status == GM_SUCCESS);
    event = next_message(port);
    memcpy(&got, is_fast(event) ? gm_ntohp(event->recv.message) : room, sizeof got);
    CHECK(gm_ntohl(event->recv.length) == 4 && got == number);
    status = -1;
    gm_datagram_send_4(port, number, 5, 5, GM_LOW_PRIORITY, 1, 2, on_sent, &status);
    while (status == -1) gm_unknown(port, gm_receive(port));
    CHECK(status == GM_INVALID_PARAMETER);
    OK(gm_deregister_memory(port, source, 8));
    OK(gm_deregister_memory(port, target, 8));
}

static void statuses(void) {
    CHECK(strstr(gm_strerror(GM_SEND_TIMED_OUT), "GM_SEND_TIMED_OUT"));
    CHECK(gm_strerror(-1) && gm_strerror(48) && gm_strerror(47));
    gm_perror("gm", GM_BUSY);
    gm_hex_dump("0123456789abcdefghi", 19);
    unsigned long before = gm_ticks(port);
    CHECK(gm_sleep(0) == 0 && gm_ticks(port) >= before && gm_getpid() == (unsigned)getpid());
    gm_printf("printed %d\n", 1);
    gm_eprintf("printed %d\n", 2);
}

/* The ports belong to the parent, and calls of the child fail. */
static void in_a_child(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(GM_ACCESS_DENIED, "forked", gm_get_node_id(port, &(unsigned){0}));
        FAILS(GM_ACCESS_DENIED, "forked", gm_init());
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    opening();
    if (argc > 1) {
        static char bytes[16];
        gm_alarm_t *none = NULL;
        if (!strcmp(argv[1], "abort")) gm_abort();
        if (!strcmp(argv[1], "exit")) gm_exit(GM_SUCCESS);
        if (!strcmp(argv[1], "exit badly")) gm_exit(GM_FAILURE);
        if (!strcmp(argv[1], "no port")) gm_receive(NULL);
        if (!strcmp(argv[1], "no buffer")) gm_provide_receive_buffer(port, NULL, 4, 0);
        if (!strcmp(argv[1], "no size")) gm_provide_receive_buffer(port, bytes, 32, 0);
        if (!strcmp(argv[1], "no priority")) gm_provide_receive_buffer(port, bytes, 4, 2);
        if (!strcmp(argv[1], "no tag")) gm_provide_receive_buffer_with_tag(port, bytes, 4, 0, 256);
        if (!strcmp(argv[1], "no node")) gm_drop_sends(port, 0, 2, 2, NULL, NULL);
        if (!strcmp(argv[1], "no such port")) gm_resume_sending(port, 0, 1, 8, NULL, NULL);
        if (!strcmp(argv[1], "no account")) gm_free_send_token(port, 2);
        if (!strcmp(argv[1], "no event")) gm_unknown(port, NULL);
        if (!strcmp(argv[1], "no alarm")) gm_initialize_alarm(none);
        if (!strcmp(argv[1], "no callback")) gm_set_alarm(port, &(gm_alarm_t){0}, 1, NULL, NULL);
        if (!strcmp(argv[1], "no memory")) gm_dma_free(port, bytes + 1);
        if (!strcmp(argv[1], "no use")) gm_finalize(), gm_finalize(), gm_finalize();
        if (!strcmp(argv[1], "failed send")) {
            gm_send(port, bytes, 4, 5, GM_LOW_PRIORITY, 9, 2);
            gm_unknown(port, gm_receive(port));
        }
        if (!strcmp(argv[1], "too many sends")) {
            for (unsigned i = 0; i <= gm_num_send_tokens(port); i++)
                gm_send_with_callback(port, bytes, 4, 5, GM_LOW_PRIORITY, 1, 2, NULL, NULL);
            gm_unknown(port, gm_receive(port));
        }
        fprintf(stderr, "%s was no mistake\n", argv[1]);
        return 0;
    }
    names();
    lengths();
    to_itself();
    short_ones_that_wait();
    alarms();
    memory();
    without_callbacks();
    statuses();
    in_a_child();
    gm_finalize();
    OK(gm_get_node_id(port, &(unsigned){0}));
    gm_finalize();
    FAILS(GM_UNATTACHED, "closed", gm_get_node_id(port, &(unsigned){0}));
    OK(gm_init());
    OK(gm_open(&port, 0, 2, "once more", GM_API_VERSION));
    gm_finalize();
    puts("all is as it should be");
    return 0;
}
