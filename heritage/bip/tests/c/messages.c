/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls every function of BIP between two nodes or more. Each node sends to the next and receives
 * from the previous one. Long messages use non-blocking sends, because a ring of blocking ones
 * would deadlock. */

#include "check.h"

#include <unistd.h>

enum { ROUNDS = 300, LONG = 40000, SHORT = BIPSMALLSIZE, ORDERED = 500 };
enum { PLAIN = 1, SOURCED = 2, ITS = 3, NOW = 4, READ = 5, FIRST = 6, SECOND = 7, ORDER = 8 };

static int me, next, previous;
static int out[LONG], in[LONG];

/* Blocking sends of short messages, which wait at the receiver. */

static void blocking(void) {
    for (int round = 0; round < ROUNDS; round++) {
        int len = round % (SHORT + 1), from = -7;
        fill(out, len, me, round);
        bip_send(next, out, len);
        bip_tsend(next, PLAIN, out, len);
        bip_tsend(next, SOURCED, out, len);
        memset(out, 0xa5, sizeof *out * (size_t)len);
        memset(in, 0xa5, sizeof *in * (SHORT + 1));
        CHECK(bip_trecvx(SOURCED, in, SHORT, &from) == len && from == previous);
        CHECK(is_filled(in, len, previous, round));
        memset(in, 0xa5, sizeof *in * (SHORT + 1));
        CHECK(bip_recv(in, SHORT) == len && is_filled(in, len, previous, round));
        memset(in, 0xa5, sizeof *in * (SHORT + 1));
        CHECK(bip_trecv(PLAIN, in, len) == len && is_filled(in, len, previous, round));
        CHECK(in[len] == (int)0xa5a5a5a5);
    }
    /* Empty messages need no buffer. */
    bip_send(next, NULL, 0);
    CHECK(bip_recv(NULL, 0) == 0);
}

/* Non-blocking sends and receives of any length. */

static void beginning(void) {
    static const int lens[] = {0, 1, SHORT, SHORT + 1, 1000, 5000, LONG};
    for (int round = 0; round < 40; round++) {
        int len = lens[round % 7], from = -7, untagged = round % 2;
        fill(out, len, me, round);
        int receive = untagged ? bip_irecv(in, LONG) : bip_tirecv(ITS, in, LONG);
        int send = untagged ? bip_isend(next, out, len) : bip_tisend(next, ITS, out, len);
        CHECK(receive > 0 && send > 0);
        int got = -1;
        switch (round % 4) {
        case 0: got = bip_rwait(receive); break;
        case 1:
            while ((got = bip_rtest(receive)) < 0) {}
            break;
        case 2: got = bip_rwaitx(receive, &from); break;
        default:
            while ((got = bip_rtestx(receive, &from)) < 0) CHECK(from == -7);
        }
        CHECK(got == len && is_filled(in, len, previous, round));
        CHECK(round % 4 < 2 || from == previous);
        /* Completed operations can be tested again. */
        CHECK(bip_rwait(receive) == len && bip_rtest(receive) == len);
        if (round % 3) while (!bip_stest(send)) {}
        bip_swait(send);
        CHECK(bip_stest(send) == 1);
    }
}

/* Each tag may have a receive in progress; they complete in any order. */
static void many_receives(void) {
    enum { COUNT = 50, BASE = 1000 };
    int ids[COUNT], words[COUNT];
    for (int i = 0; i < COUNT; i++) ids[i] = bip_tirecv(BASE + i, &words[i], 1);
    bip_tsend(next, 0, NULL, 0);
    CHECK(bip_trecv(0, NULL, 0) == 0);
    for (int i = COUNT - 1; i >= 0; i--) bip_tsend(next, BASE + i, &i, 1);
    for (int i = 0; i < COUNT; i++) CHECK(bip_rwait(ids[i]) == 1 && words[i] == i);
    bip_tsend(next, BIPMAXTAG, &me, 1);
    CHECK(bip_trecv(BIPMAXTAG, in, 1) == 1 && in[0] == previous);
}

/* Functions that receive a short message if it has arrived. They never receive a long one. */

static void at_once(void) {
    int from = -7, len = -7;
    CHECK(bip_tnrecv(NOW, in, SHORT) == -1);
    CHECK(bip_tnrecvx(NOW, in, SHORT, &from) == -1 && from == -7);
    CHECK(bip_tngetmsg(NOW, &len, &from) == NULL && from == -7 && len == -7);
    fill(out, LONG, me, 1);
    int send = bip_tisend(next, NOW, out, LONG);
    /* This holds before and after the message has arrived here; after 50 ms it has. */
    usleep(50000);
    for (int i = 0; i < 50; i++) {
        CHECK(bip_tnrecv(NOW, in, SHORT) == -1);
        CHECK(bip_tngetmsg(NOW, &len, &from) == NULL);
    }
    CHECK(bip_trecv(NOW, in, LONG) == LONG && is_filled(in, LONG, previous, 1));
    bip_swait(send);
    for (int round = 0; round < 100; round++) {
        int got;
        fill(out, SHORT, me, round);
        bip_tsend(next, NOW, out, SHORT);
        while ((got = round % 2 ? bip_tnrecv(NOW, in, LONG) : bip_tnrecvx(NOW, in, LONG, &from)) < 0) {}
        CHECK(got == SHORT && is_filled(in, SHORT, previous, round));
        CHECK(round % 2 || from == previous);
        from = -7;
    }
}

/* Messages in the library's memory. */

static void in_place(void) {
    for (int round = 0; round < 100; round++) {
        int len = round % (SHORT + 1), got = -7, from = -7;
        fill(out, len, me, round);
        bip_tsend(next, READ, out, len);
        bip_tsend(next, READ, out, len);
        int *at = bip_tgetmsg(READ, &got, &from);
        CHECK(at && got == len && from == previous && is_filled(at, len, previous, round));
        /* Messages with other tags do not affect the message in memory. */
        bip_tsend(next, PLAIN, &round, 1);
        CHECK(bip_trecv(PLAIN, in, 1) == 1 && in[0] == round);
        CHECK(is_filled(at, len, previous, round));
        bip_tfreemsg(READ);
        got = from = -7;
        while (!(at = bip_tngetmsg(READ, &got, &from))) {}
        CHECK(got == len && from == previous && is_filled(at, len, previous, round));
        bip_tfreemsg(READ);
    }
}

/* Receives select by tag. Messages with one sender and tag stay in order. */

static void choosing(void) {
    int a = 10 * me, b = 10 * me + 1;
    bip_tsend(next, FIRST, &a, 1);
    bip_tsend(next, SECOND, &b, 1);
    CHECK(bip_trecv(SECOND, in, 1) == 1 && in[0] == 10 * previous + 1);
    CHECK(bip_trecv(FIRST, in, 1) == 1 && in[0] == 10 * previous);
}

static void order(void) {
    if (me != 0) {
        for (int i = 0; i < ORDERED; i++) {
            int len = i % 50 == 0 ? 3000 : 1 + i % SHORT;
            fill(out, len, me, i);
            out[0] = i;
            bip_tsend(0, ORDER, out, len);
        }
        return;
    }
    static int seen[64];
    CHECK(bip_numnodes <= 64);
    for (int i = 0; i < ORDERED * (bip_numnodes - 1); i++) {
        int from = -1, len = bip_trecvx(ORDER, in, LONG, &from);
        CHECK(from > 0 && from < bip_numnodes && in[0] == seen[from]);
        CHECK(len == (seen[from] % 50 == 0 ? 3000 : 1 + seen[from] % SHORT));
        seen[from]++;
    }
}

int main(void) {
    CHECK(bip_mynode == -1 && bip_numnodes == 0);
    bip_taginit(READ, SHORT, 8);
    bip_taginit(0, 0, 0);
    bip_init();
    me = bip_mynode;
    CHECK(me >= 0 && me < bip_numnodes && bip_numnodes >= 2);
    next = (me + 1) % bip_numnodes;
    previous = (me + bip_numnodes - 1) % bip_numnodes;
    blocking();
    beginning();
    many_receives();
    at_once();
    in_place();
    choosing();
    order();
    printf("node %d of %d is done\n", me, bip_numnodes);
    return 0;
}
