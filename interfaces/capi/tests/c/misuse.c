/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every detectable misuse returns its error. A job of one. */

#include "check.h"

#include <sys/wait.h>
#include <unistd.h>
#include <pthread.h>
#include <stddef.h>

enum { PORT = 4, ACTIVE = 5, CLOSED = 6 };

static void before_joining(void) {
    char byte = 0;
    CHECK(portolan_last_error()[0] == '\0');
    FAILS(PORTOLAN_ERR_NULL, "portolan_join", portolan_send(NULL, 0, PORT, &byte, 1, 0));
    FAILS(PORTOLAN_ERR_NULL, "portolan_join", portolan_rank(NULL));
    FAILS(PORTOLAN_ERR_NULL, "portolan_join", portolan_close(NULL));
    FAILS(PORTOLAN_ERR_NULL, "node", portolan_join(NULL));
    /* A refused call leaves a pointer that free() accepts. */
    void *memory = &byte;
    FAILS(PORTOLAN_ERR_NULL, "portolan_join",
          portolan_recv_alloc(NULL, PORT, PORTOLAN_ANY_SOURCE, &memory, NULL));
    CHECK(memory == NULL);
    memory = &byte;
    FAILS(PORTOLAN_ERR_NULL, "portolan_join",
          portolan_recv_tagged_alloc(NULL, 5, 0, PORTOLAN_ANY_SOURCE, &memory, NULL));
    CHECK(memory == NULL);
    memory = &byte;
    FAILS(PORTOLAN_ERR_NULL, "portolan_join",
          portolan_call(NULL, 0, PORT, NULL, 0, 0, &memory, NULL));
    CHECK(memory == NULL);
    uint64_t words[32] = {0};
    FAILS(PORTOLAN_ERR_HANDLE, "not a node", portolan_rank((portolan_node_t *)(void *)words));
}

static void wrong_arguments(portolan_node_t *node) {
    char bytes[8] = {0};
    portolan_request_t request;
    FAILS(PORTOLAN_ERR_NULL, "buffer", portolan_send(node, 0, PORT, NULL, 1, 0));
    FAILS(PORTOLAN_ERR_NULL, "buffer",
          portolan_recv(node, PORT, PORTOLAN_ANY_SOURCE, NULL, 1, NULL));
    FAILS(PORTOLAN_ERR_NULL, "request", portolan_isend(node, 0, PORT, bytes, 1, 0, NULL));
    FAILS(PORTOLAN_ERR_NULL, "handler", portolan_open_active(node, 9, 0, NULL, NULL));
    FAILS(PORTOLAN_ERR_NULL, "done", portolan_wait_until(node, NULL, NULL));
    FAILS(PORTOLAN_ERR_NULL, "call", portolan_recv_call(node, PORT, 0, NULL));
    FAILS(PORTOLAN_ERR_NULL, "counters", portolan_counters(node, NULL));
    FAILS(PORTOLAN_ERR_NULL, "name", portolan_option(node, NULL, bytes, 8));
    FAILS(PORTOLAN_ERR_NULL, "id", portolan_job_id(node, NULL));
    FAILS(PORTOLAN_ERR_NO_OPTION, "colour", portolan_option(node, "colour", bytes, 8));
    FAILS(PORTOLAN_ERR_ARGUMENT, "flags", portolan_send(node, 0, PORT, bytes, 1, 64));
    FAILS(PORTOLAN_ERR_ARGUMENT, "memory", portolan_send(node, 0, PORT, bytes, (size_t)-1, 0));
    FAILS(PORTOLAN_ERR_ARGUMENT, "pieces", portolan_send_gather(node, 0, PORT, NULL, 5000, 0));
    portolan_piece_t longer_than_memory[] = {{bytes, SIZE_MAX / 2}, {bytes, SIZE_MAX / 2}};
    FAILS(PORTOLAN_ERR_ARGUMENT, "memory",
          portolan_send_gather(node, 0, PORT, longer_than_memory, 2, 0));
    FAILS(PORTOLAN_ERR_PORT, "65536", portolan_open(node, 65536));
    FAILS(PORTOLAN_ERR_PORT, "70000", portolan_send(node, 0, 70000, bytes, 1, 0));
    FAILS(PORTOLAN_ERR_PORT_CLOSED, "6",
          portolan_recv(node, CLOSED, PORTOLAN_ANY_SOURCE, bytes, 8, NULL));
    FAILS(PORTOLAN_ERR_PORT_IN_USE, "4", portolan_open(node, PORT));
    FAILS(PORTOLAN_ERR_NO_SUCH_RANK, "rank 7", portolan_send(node, 7, PORT, bytes, 1, 0));
    FAILS(PORTOLAN_ERR_STALE_REQUEST, "request 0 is not an operation", portolan_wait(node, 0, NULL));
    FAILS(PORTOLAN_ERR_STALE_REQUEST, "request 0 is not an operation", portolan_test(node, 0, NULL));
    request = 0;
    /* More elements than an array can have. */
    FAILS(PORTOLAN_ERR_ARGUMENT, "requests", portolan_wait_all(node, &request, (size_t)1 << 61));
    FAILS(PORTOLAN_ERR_ARGUMENT, "requests", portolan_wait_all(node, &request, SIZE_MAX));
    FAILS(PORTOLAN_ERR_NULL, "requests", portolan_wait_all(node, NULL, 1));
    OK(portolan_wait_all(node, &request, 1));
    OK(portolan_wait_all(node, NULL, 0));
    FAILS(PORTOLAN_ERR_ARGUMENT, "ranks", portolan_group_new(node, 1, &(uint32_t){0}, (size_t)1 << 62,
                                                             &(portolan_group_t *){NULL}));
    FAILS(PORTOLAN_ERR_ARGUMENT, "values",
          portolan_allreduce(node, NULL, PORTOLAN_SUM, PORTOLAN_DOUBLE, &(double){0}, (size_t)1 << 60));
    OK(portolan_isend(node, 0, PORT, bytes, 1, 0, &request));
    OK(portolan_wait(node, request, NULL));
    FAILS(PORTOLAN_ERR_STALE_REQUEST, "already", portolan_wait(node, request, NULL));
    FAILS(PORTOLAN_ERR_STALE_REQUEST, "already", portolan_test(node, request, NULL));
    OK(portolan_recv(node, PORT, 0, bytes, 8, NULL));
}

static void wrong_sizes(portolan_node_t *node) {
    char byte = 0;
    portolan_counters_t counters = {0};
    FAILS(PORTOLAN_ERR_STRUCT_SIZE, "size", portolan_counters(node, &counters));
    /* A program older than the library: its structure ends before the last counters. */
    counters.size = offsetof(portolan_counters_t, remote_requests) - 1;
    FAILS(PORTOLAN_ERR_STRUCT_SIZE, "size", portolan_counters(node, &counters));
    counters.size++;
    counters.remote_requests = 77;
    OK(portolan_counters(node, &counters));
    CHECK(counters.messages_sent > 0 && counters.remote_requests == 77);
    /* A program newer than the library: fields unknown to the library do not change. */
    struct {
        portolan_received_t known;
        uint64_t newer;
    } bigger = {{.size = sizeof bigger}, 77};
    OK(portolan_send(node, 0, PORT, &byte, 1, 0));
    OK(portolan_recv(node, PORT, 0, &byte, 1, &bigger.known));
    CHECK(bigger.known.len == 1 && bigger.known.size == sizeof bigger && bigger.newer == 77);
}

/* A call refused because of its arguments has no effect: its message or request still exists. */
static void refused_calls_have_no_effect(portolan_node_t *node) {
    char byte = 0;
    uint64_t key;
    portolan_request_t request;
    portolan_claim_t claim = 0;
    portolan_received_t got = {0};
    portolan_envelope_t envelope = {0};
    portolan_completion_t done = {0};
    portolan_notice_t notice = {0};
    OK(portolan_send(node, 0, PORT, "a", 1, 0));
    FAILS(PORTOLAN_ERR_STRUCT_SIZE, "size", portolan_recv(node, PORT, 0, &byte, 1, &got));
    OK(portolan_recv(node, PORT, 0, &byte, 1, NULL));
    CHECK(byte == 'a');
    OK(portolan_send_tagged(node, 0, 5, NULL, "b", 1, 0));
    FAILS(PORTOLAN_ERR_STRUCT_SIZE, "size", portolan_peek(node, 5, 0, 0, &envelope));
    FAILS(PORTOLAN_ERR_STRUCT_SIZE, "size", portolan_recv_tagged(node, 5, 0, 0, &byte, 1, &envelope));
    FAILS(PORTOLAN_ERR_STRUCT_SIZE, "size", portolan_claim(node, 5, 0, 0, &envelope, &claim));
    CHECK(claim == 0);
    OK(portolan_recv_tagged(node, 5, 0, 0, &byte, 1, NULL));
    CHECK(byte == 'b');
    OK(portolan_isend(node, 0, PORT, "c", 1, 0, &request));
    FAILS(PORTOLAN_ERR_STRUCT_SIZE, "size", portolan_wait(node, request, &done));
    FAILS(PORTOLAN_ERR_STRUCT_SIZE, "size", portolan_test(node, request, &done));
    OK(portolan_wait(node, request, NULL));
    FAILS(PORTOLAN_ERR_NULL, "request",
          portolan_post_recv(node, PORT, PORTOLAN_ANY_SOURCE, &byte, 1, NULL));
    OK(portolan_recv(node, PORT, 0, &byte, 1, NULL));
    CHECK(byte == 'c');
    OK(portolan_register(node, &byte, 1, PORTOLAN_WRITE_ACCESS, &key));
    portolan_remote_t place = PORTOLAN_SIZED(portolan_remote_t);
    place.key = key;
    place.flags = PORTOLAN_NOTIFY;
    OK(portolan_put(node, &place, "d", 1));
    FAILS(PORTOLAN_ERR_STRUCT_SIZE, "size", portolan_next_notice(node, &notice));
    FAILS(PORTOLAN_ERR_STRUCT_SIZE, "size", portolan_wait_notice(node, &notice));
    CHECK(portolan_next_notice(node, NULL) == 1);
    OK(portolan_deregister(node, key));
}

static void wrong_atomics(portolan_node_t *node) {
    double numbers[1000] = {0};
    portolan_remote_t place = PORTOLAN_SIZED(portolan_remote_t);
    portolan_atomic_t what = PORTOLAN_SIZED(portolan_atomic_t);
    what.type = PORTOLAN_DOUBLE;
    what.count = 1;
    FAILS(PORTOLAN_ERR_NULL, "operands", portolan_atomic(node, &place, &what));
    what.operands = numbers;
    FAILS(PORTOLAN_ERR_REMOTE_REFUSED, "refused", portolan_atomic(node, &place, &what));
    what.operation = PORTOLAN_SWAP_IF_LESS;
    FAILS(PORTOLAN_ERR_NULL, "compare", portolan_atomic(node, &place, &what));
    what.operation = PORTOLAN_READ;
    FAILS(PORTOLAN_ERR_NULL, "before", portolan_atomic(node, &place, &what));
    what.operation = PORTOLAN_BIT_OR;
    FAILS(PORTOLAN_ERR_ARGUMENT, "integers", portolan_atomic(node, &place, &what));
    what.operation = 99;
    FAILS(PORTOLAN_ERR_ARGUMENT, "operation 99", portolan_atomic(node, &place, &what));
    what.operation = PORTOLAN_SUM;
    what.type = 99;
    FAILS(PORTOLAN_ERR_ARGUMENT, "type 99", portolan_atomic(node, &place, &what));
    what.type = PORTOLAN_DOUBLE;
    what.count = 1000;
    FAILS(PORTOLAN_ERR_ARGUMENT, "4096", portolan_atomic(node, &place, &what));
    what.count = (size_t)-1 / 2;
    FAILS(PORTOLAN_ERR_ARGUMENT, "4096", portolan_atomic(node, &place, &what));
    what.count = 0;
    FAILS(PORTOLAN_ERR_ARGUMENT, "count", portolan_atomic(node, &place, &what));
    FAILS(PORTOLAN_ERR_NULL, "operation", portolan_atomic(node, &place, NULL));
}

static void wrong_places(portolan_node_t *node) {
    char byte = 0;
    uint64_t key;
    portolan_request_t request;
    portolan_remote_t place = PORTOLAN_SIZED(portolan_remote_t);
    FAILS(PORTOLAN_ERR_ARGUMENT, "access", portolan_register(node, &byte, 1, 0, &key));
    FAILS(PORTOLAN_ERR_ARGUMENT, "access", portolan_register(node, &byte, 1, 4, &key));
    FAILS(PORTOLAN_ERR_NULL, "buffer", portolan_register(node, NULL, 1, 1, &key));
    FAILS(PORTOLAN_ERR_NO_REGION, "key", portolan_deregister(node, 12345));
    FAILS(PORTOLAN_ERR_NULL, "place", portolan_put(node, NULL, &byte, 1));
    FAILS(PORTOLAN_ERR_NULL, "request", portolan_iput(node, &place, &byte, 1, NULL));
    FAILS(PORTOLAN_ERR_REMOTE_REFUSED, "refused", portolan_get(node, &place, &byte, 1));
    place.flags = 64;
    FAILS(PORTOLAN_ERR_ARGUMENT, "flags", portolan_put(node, &place, &byte, 1));
    place.size = 8;
    FAILS(PORTOLAN_ERR_STRUCT_SIZE, "size", portolan_put(node, &place, &byte, 1));
    FAILS(PORTOLAN_ERR_ARGUMENT, "PORTOLAN_HIGH",
          portolan_send_tagged(node, 0, 1, NULL, &byte, 1, PORTOLAN_BEST_EFFORT));
    FAILS(PORTOLAN_ERR_NO_SUCH_RANK, "rank 9", portolan_peek(node, 1, 0, 9, NULL));
    FAILS(PORTOLAN_ERR_NULL, "claim", portolan_claim(node, 1, 0, 0, NULL, NULL));
    FAILS(PORTOLAN_ERR_NO_CLAIM, "claim 7", portolan_recv_claimed(node, 7, &byte, 1, &request));
    FAILS(PORTOLAN_ERR_NULL, "request", portolan_post_recv_tagged(node, 1, 0, 0, &byte, 1, NULL));
    CHECK(portolan_cancel(node, 999) == 0);
    wrong_atomics(node);
}

static void wrong_groups(portolan_node_t *node) {
    uint32_t ranks[] = {0, 0};
    double values[2] = {1, 2};
    portolan_group_t *group = NULL;
    FAILS(PORTOLAN_ERR_SETTING, "once", portolan_group_new(node, 1, ranks, 2, &group));
    FAILS(PORTOLAN_ERR_SETTING, "16383", portolan_group_new(node, 70000, ranks, 1, &group));
    FAILS(PORTOLAN_ERR_NULL, "ranks", portolan_group_new(node, 1, NULL, 1, &group));
    FAILS(PORTOLAN_ERR_NULL, "group", portolan_group_rank(NULL));
    CHECK(group == NULL);
    OK(portolan_group_new(node, 1, ranks, 1, &group));
    CHECK(portolan_group_size(group) == 1 && portolan_group_rank(group) == 0);
    FAILS(PORTOLAN_ERR_ARGUMENT, "operation", portolan_allreduce(node, group, 9, PORTOLAN_DOUBLE, values, 2));
    FAILS(PORTOLAN_ERR_ARGUMENT, "type", portolan_allreduce(node, group, PORTOLAN_SUM, 99, values, 2));
    FAILS(PORTOLAN_ERR_ARGUMENT, "aligned",
          portolan_allreduce(node, group, PORTOLAN_SUM, PORTOLAN_DOUBLE, (char *)values + 1, 1));
    FAILS(PORTOLAN_ERR_NO_SUCH_RANK, "rank 3 does not exist: this job has 1 process,",
          portolan_broadcast(node, NULL, 3, values, 8));
    FAILS(PORTOLAN_ERR_NO_SUCH_RANK, "member 3 does not exist: this group has 1 member,",
          portolan_broadcast(node, group, 3, values, 8));
    FAILS(PORTOLAN_ERR_NO_SUCH_RANK, "member 3",
          portolan_reduce(node, group, 3, PORTOLAN_SUM, PORTOLAN_DOUBLE, values, 2));
    portolan_request_t collective;
    size_t index;
    FAILS(PORTOLAN_ERR_NULL, "request", portolan_ibarrier(node, group, NULL));
    FAILS(PORTOLAN_ERR_NULL, "request", portolan_ibroadcast(node, group, 0, values, 8, NULL));
    FAILS(PORTOLAN_ERR_NULL, "buffer", portolan_ibroadcast(node, group, 0, NULL, 8, &collective));
    FAILS(PORTOLAN_ERR_NO_SUCH_RANK, "member 3",
          portolan_ibroadcast(node, group, 3, values, 8, &collective));
    FAILS(PORTOLAN_ERR_ARGUMENT, "type",
          portolan_iallreduce(node, group, PORTOLAN_SUM, 99, values, 2, &collective));
    FAILS(PORTOLAN_ERR_NO_SUCH_RANK, "member 3",
          portolan_ireduce(node, group, 3, PORTOLAN_SUM, PORTOLAN_DOUBLE, values, 2, &collective));
    FAILS(PORTOLAN_ERR_NULL, "index", portolan_wait_any(node, &collective, 1, NULL, NULL));
    FAILS(PORTOLAN_ERR_NULL, "requests", portolan_test_any(node, NULL, 1, &index, NULL));
    OK(portolan_group_free(group));
    FAILS(PORTOLAN_ERR_CLOSED, "freed", portolan_ibarrier(node, group, &collective));
    FAILS(PORTOLAN_ERR_CLOSED, "freed", portolan_barrier(node, group));
    FAILS(PORTOLAN_ERR_CLOSED, "freed", portolan_group_free(group));
    OK(portolan_group_free(NULL));
}

static void wrong_choices(portolan_node_t *node) {
    portolan_choices_t choices = PORTOLAN_SIZED(portolan_choices_t);
    FAILS(PORTOLAN_ERR_NULL, "choices", portolan_choose(node, NULL));
    choices.lone_count = 1;
    FAILS(PORTOLAN_ERR_NULL, "lone", portolan_choose(node, &choices));
    choices.size = 8;
    FAILS(PORTOLAN_ERR_STRUCT_SIZE, "size", portolan_choose(node, &choices));
    FAILS(PORTOLAN_ERR_NULL, "text", portolan_model(node, NULL, 8));
}

static void wrong_memory(void) {
    void *memory = NULL;
    int other = 0;
    FAILS(PORTOLAN_ERR_ARGUMENT, "0 bytes", portolan_alloc(0, &memory));
    FAILS(PORTOLAN_ERR_NULL, "memory", portolan_alloc(8, NULL));
    OK(portolan_alloc(100, &memory));
    memset(memory, 1, 100);
    int large = portolan_has_large_pages(memory);
    CHECK(large == 0 || large == 1);
    FAILS(PORTOLAN_ERR_ARGUMENT, "portolan_alloc", portolan_has_large_pages(&other));
    FAILS(PORTOLAN_ERR_ARGUMENT, "portolan_alloc", portolan_has_large_pages(NULL));
    FAILS(PORTOLAN_ERR_ARGUMENT, "portolan_alloc", portolan_free(&other));
    OK(portolan_free(memory));
    FAILS(PORTOLAN_ERR_ARGUMENT, "portolan_alloc", portolan_free(memory));
    OK(portolan_free(NULL));
}

static void try_everything(portolan_node_t *node, const portolan_message_t *message, void *user) {
    char *buffer = user;
    (void)message;
    CHECK(portolan_rank(node) == 0 && portolan_size(node) == 1);
    FAILS(PORTOLAN_ERR_IN_HANDLER, "handler", portolan_send(node, 0, PORT, buffer, 1, 0));
    FAILS(PORTOLAN_ERR_IN_HANDLER, "handler", portolan_barrier(node, NULL));
    FAILS(PORTOLAN_ERR_IN_HANDLER, "handler", portolan_progress(node));
    FAILS(PORTOLAN_ERR_IN_HANDLER, "handler", portolan_close(node));
    FAILS(PORTOLAN_ERR_ARGUMENT, "source", portolan_post_recv(node, PORT, 0, buffer, 1, NULL));
    OK(portolan_isend_copy(node, 0, PORT, "x", 1, 0));
}

static int always_wrong(void *node) {
    FAILS(PORTOLAN_ERR_IN_HANDLER, "condition", portolan_progress(node));
    return 1;
}

static void from_handlers(portolan_node_t *node) {
    char buffer[4];
    OK(portolan_open_active(node, ACTIVE, PORTOLAN_IN_PLACE, try_everything, buffer));
    FAILS(PORTOLAN_ERR_ARGUMENT, "flags",
          portolan_open_active(node, 99, 8, try_everything, buffer));
    FAILS(PORTOLAN_ERR_PORT_IN_USE, "has a handler",
          portolan_recv(node, ACTIVE, PORTOLAN_ANY_SOURCE, buffer, sizeof buffer, NULL));
    OK(portolan_send(node, 0, ACTIVE, NULL, 0, 0));
    OK(portolan_recv(node, PORT, 0, buffer, sizeof buffer, NULL));
    CHECK(buffer[0] == 'x');
    OK(portolan_wait_until(node, always_wrong, node));
}

static void *elsewhere(void *node) {
    FAILS(PORTOLAN_ERR_WRONG_THREAD, "portolan_adopt", portolan_rank(node));
    OK(portolan_adopt(node));
    CHECK(portolan_rank(node) == 0);
    return NULL;
}

static void on_threads(portolan_node_t *node) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, elsewhere, node) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    /* The other thread has ended. The system may reuse its number, but not for this thread. */
    FAILS(PORTOLAN_ERR_WRONG_THREAD, "another thread", portolan_rank(node));
    OK(portolan_adopt(node));
    CHECK(portolan_rank(node) == 0);
}

/* The node belongs to the parent. Every call in the child reports this, and the parent continues. */
static void in_a_child(portolan_node_t *node) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        FAILS(PORTOLAN_ERR_FORKED, "forked", portolan_rank(node));
        FAILS(PORTOLAN_ERR_FORKED, "forked", portolan_send(node, 0, PORT, "x", 1, 0));
        FAILS(PORTOLAN_ERR_FORKED, "forked", portolan_recv(node, PORT, PORTOLAN_ANY_SOURCE, &byte, 1, NULL));
        FAILS(PORTOLAN_ERR_FORKED, "forked", portolan_adopt(node));
        FAILS(PORTOLAN_ERR_FORKED, "forked", portolan_close(node));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(portolan_rank(node) == 0);
    OK(portolan_send(node, 0, PORT, "x", 1, 0));
}

int main(void) {
    before_joining();
    portolan_node_t *node;
    OK(portolan_join(&node));
    OK(portolan_open(node, PORT));
    wrong_arguments(node);
    wrong_sizes(node);
    refused_calls_have_no_effect(node);
    wrong_places(node);
    wrong_groups(node);
    wrong_choices(node);
    wrong_memory();
    from_handlers(node);
    on_threads(node);
    in_a_child(node);
    OK(portolan_close(node));
    FAILS(PORTOLAN_ERR_CLOSED, "closed", portolan_close(node));
    FAILS(PORTOLAN_ERR_CLOSED, "closed", portolan_rank(node));
    FAILS(PORTOLAN_ERR_CLOSED, "closed", portolan_adopt(node));
    FAILS(PORTOLAN_ERR_CLOSED, "closed", portolan_send(node, 0, PORT, "x", 1, 0));
    puts("every misuse returned its error");
    return 0;
}
