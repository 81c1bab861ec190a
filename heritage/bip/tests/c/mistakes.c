/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Node 1 makes the mistake whose name is the argument; programs.rs has the expected error message.
 * The other node waits for a message that is never sent, and is ended with the job. */

#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TAG = 5, LEN = 100 };

static int words[1000];
static const char *which;

static int is(const char *name) { return strcmp(which, name) == 0; }

static void before(void) {
    if (is("send too early")) bip_send(0, words, 1);
    if (is("receive too early")) bip_trecv(TAG, words, 1);
    if (is("negative tag")) bip_taginit(-1, 1, 1);
    if (is("long buffers")) bip_taginit(TAG, BIPSMALLSIZE + 1, 1);
    if (is("no buffers")) bip_taginit(TAG, 1, -1);
}

static void sends(void) {
    if (is("to itself")) bip_send(bip_mynode, words, 1);
    if (is("to a missing node")) bip_tsend(bip_numnodes, TAG, words, 1);
    if (is("to a negative node")) bip_tisend(-1, TAG, words, 1);
    if (is("tag too high")) bip_tsend(0, BIPMAXTAG + 1, words, 1);
    if (is("negative length")) bip_send(0, words, -1);
    if (is("nowhere")) bip_isend(0, NULL, 1);
    if (is("two sends")) bip_isend(0, words, 1000), bip_tisend(0, TAG, words, 1);
    if (is("a send beside one")) bip_tisend(0, TAG, words, 1000), bip_send(0, words, 1);
    if (is("no such send")) bip_swait(3);
    if (is("no send")) bip_stest(0);
}

static void receives(void) {
    int number, id;
    if (is("into nowhere")) bip_recv(NULL, 1);
    if (is("into less")) bip_trecv(TAG, words, -1);
    if (is("from tag -1")) bip_trecv(-1, words, 1);
    if (is("no pointer for the source")) bip_trecvx(TAG, words, 1, NULL);
    if (is("no pointer for the host")) bip_rtestx(bip_irecv(words, 1), NULL);
    if (is("no pointer for the sender")) bip_tnrecvx(TAG, words, 1, NULL);
    if (is("no pointer for the length")) bip_tgetmsg(TAG, NULL, &number);
    if (is("two receives")) bip_tirecv(TAG, words, 1), bip_tirecv(TAG, words, 1);
    if (is("a receive beside one")) bip_tirecv(TAG, words, 1), bip_trecv(TAG, words, 1);
    if (is("no such receive")) bip_rwait(77);
    if (is("no receive")) bip_rtest(-1);
    if (is("an old receive")) {
        bip_trecv(TAG, words, LEN);
        id = bip_irecv(words, LEN);
        bip_rwait(id);
        bip_irecv(words, LEN);
        bip_rtest(id);
    }
    if (is("too short")) bip_trecv(TAG, words, LEN - 1);
    if (is("too short, begun")) bip_rwait(bip_tirecv(TAG, words, LEN - 1));
    if (is("long in place")) {
        int *at = bip_tgetmsg(TAG, &number, &id);
        CHECK(!at);
    }
    if (is("read twice") || is("received while it is read")) {
        while (!bip_tngetmsg(TAG + 1, &number, &id)) {}
        if (is("read twice")) bip_tgetmsg(TAG + 1, &number, &id);
        bip_trecv(TAG + 1, words, 1);
    }
    if (is("released twice")) bip_tfreemsg(TAG);
}

static void *in_another_thread(void *nothing) {
    (void)nothing;
    usleep(200000);
    bip_send(0, words, 1);
    return NULL;
}

static void others(void) {
    if (is("begun twice")) bip_init();
    if (is("reserved too late")) bip_taginit(TAG, 1, 1);
    if (is("two threads")) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, in_another_thread, NULL) == 0);
        bip_trecv(TAG + 2, words, 1);
    }
    if (is("in a child")) {
        pid_t child = fork();
        if (child == 0) bip_send(0, words, 1), _exit(0);
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        /* The child ended because of its mistake; the parent continues. */
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        bip_send(0, words, 1);
        bip_tfreemsg(TAG);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    which = argv[1];
    before();
    bip_init();
    if (bip_mynode == 0) {
        bip_tsend(1, TAG, words, LEN);
        bip_send(1, words, LEN);
        bip_tsend(1, TAG + 1, words, 1);
    } else {
        sends();
        receives();
        others();
        fprintf(stderr, "%s was no mistake\n", which);
        return 0;
    }
    bip_trecv(TAG + 9, words, 1);
    bip_trecv(TAG + 9, words, 1);
    return 0;
}
