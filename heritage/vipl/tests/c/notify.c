/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The library's thread calls the program's functions for completions while the program sleeps.
 * Several threads wait concurrently. */

#include "check.h"

#include <pthread.h>
#include <semaphore.h>

enum { COUNT = 50 };

static sem_t called;
static memory descriptors, data;
static VIP_VI_HANDLE vi, both[2];
static VIP_CQ_HANDLE cq;
static unsigned received_count, sent_count, entry_count;

static void on_recv(void *context, VIP_NIC_HANDLE from, VIP_VI_HANDLE at, VIP_DESCRIPTOR *descriptor) {
    CHECK(context == &received_count && from == nic && at == vi);
    CHECK(descriptor->CS.Length == received_count % 60);
    /* Any function may be called here. */
    if (++received_count < COUNT) {
        OK(VipPostRecv(vi, descriptor, descriptors.handle));
        OK(VipRecvNotify(vi, context, on_recv));
    }
    sem_post(&called);
}

static void on_sent(void *context, VIP_NIC_HANDLE from, VIP_VI_HANDLE at, VIP_DESCRIPTOR *descriptor) {
    CHECK(context == NULL && from == nic && at == vi && descriptor->CS.Status == VIP_STATUS_DONE);
    sent_count++;
    sem_post(&called);
}

static void on_entry(void *context, VIP_NIC_HANDLE from, VIP_VI_HANDLE at, VIP_BOOLEAN is_recv) {
    VIP_DESCRIPTOR *done;
    CHECK(context == &cq && from == nic && at == both[0]);
    OK(is_recv ? VipRecvDone(at, &done) : VipSendDone(at, &done));
    entry_count++;
    sem_post(&called);
}

static void asleep(unsigned count) {
    while (count--) sem_wait(&called);
}

/* Messages one by one: the next is sent when the last was acknowledged. */
static void one_by_one(void) {
    vi = vi_with(VIP_SERVICE_RELIABLE_RECEPTION, NULL, NULL);
    if (me == 0) {
        for (unsigned i = 0; i < 2; i++)
            OK(VipPostRecv(vi, describe(&descriptors, i, &data, 0, 64), descriptors.handle));
        OK(VipRecvNotify(vi, &received_count, on_recv));
    }
    connect_vi(vi, "one by one");
    if (me == 0) {
        asleep(COUNT);
        CHECK(received_count == COUNT);
    } else {
        for (unsigned i = 0; i < COUNT; i++) {
            OK(VipSendNotify(vi, NULL, on_sent));
            OK(VipPostSend(vi, describe(&descriptors, 3, &data, 0, i % 60), descriptors.handle));
            asleep(1);
            CHECK(sent_count == i + 1);
        }
    }
    barrier();
    destroy(vi);
}

static void entries(void) {
    OK(VipCreateCQ(nic, 16, &cq));
    both[0] = vi_with(VIP_SERVICE_RELIABLE_DELIVERY, cq, cq);
    OK(VipPostRecv(both[0], describe(&descriptors, 0, &data, 0, 64), descriptors.handle));
    connect_vi(both[0], "entries");
    OK(VipCQNotify(cq, &cq, on_entry));
    OK(VipCQNotify(cq, &cq, on_entry));
    barrier();
    OK(VipPostSend(both[0], describe(&descriptors, 1, &data, 0, 8), descriptors.handle));
    asleep(2);
    CHECK(entry_count == 2);
    barrier();
    destroy(both[0]);
    OK(VipDestroyCQ(cq));
}

static void *reply(void *context) {
    VIP_VI_HANDLE own = both[*(unsigned *)context];
    unsigned base = 4 * *(unsigned *)context;
    for (unsigned i = 0; i < COUNT; i++) {
        VIP_DESCRIPTOR *recv = received(own);
        CHECK(recv->CS.Length == i);
        OK(VipPostRecv(own, recv, descriptors.handle));
        OK(VipPostSend(own, describe(&descriptors, base + 1, &data, 64 * base, i), descriptors.handle));
        sent(own);
    }
    return NULL;
}

static void *request(void *context) {
    VIP_VI_HANDLE own = both[*(unsigned *)context];
    unsigned base = 4 * *(unsigned *)context;
    for (unsigned i = 0; i < COUNT; i++) {
        OK(VipPostRecv(own, describe(&descriptors, base, &data, 64 * base, 64), descriptors.handle));
        OK(VipPostSend(own, describe(&descriptors, base + 1, &data, 64 * base, i), descriptors.handle));
        CHECK(received(own)->CS.Length == i);
        sent(own);
    }
    return NULL;
}

/* Process 0 replies, and posts its receives first. */
static void threads(void) {
    static unsigned numbers[2] = {0, 1};
    pthread_t made[2];
    for (unsigned i = 0; i < 2; i++) {
        both[i] = vi_with(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        if (me == 0) OK(VipPostRecv(both[i], describe(&descriptors, 4 * i + 2, &data, 64 * (4 * i + 2), 64), descriptors.handle));
        connect_vi(both[i], i ? "second" : "first");
    }
    barrier();
    for (unsigned i = 0; i < 2; i++) CHECK(pthread_create(&made[i], NULL, me ? request : reply, &numbers[i]) == 0);
    for (unsigned i = 0; i < 2; i++) CHECK(pthread_join(made[i], NULL) == 0);
    barrier();
    for (unsigned i = 0; i < 2; i++) destroy(both[i]);
}

int main(void) {
    CHECK(sem_init(&called, 0, 0) == 0);
    begin();
    descriptors = memory_of(64 * 16, 0);
    data = memory_of(64 * 16, 0);
    one_by_one();
    entries();
    threads();
    barrier();
    printf("process %u is done\n", me);
    free_memory(&data);
    free_memory(&descriptors);
    end();
    return 0;
}
