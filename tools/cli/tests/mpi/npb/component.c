/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Scenes for Open MPI's component btl/portolan. Each checks the received contents; rank 0 prints one
 * line with the number of wrong elements. Usage: component SCENE [HOST]. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void *room(size_t len)
{
    void *memory = malloc(len);
    if (NULL == memory) {
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    return memset(memory, 0xa5, len);
}

/* Returns element `at` of the data that `from` sends in round `round`. */
static int element(int from, int round, int at)
{
    return from * 1000003 + round * 7919 + at;
}

static long wrong_in(const int *got, int from, int round, int first, int count)
{
    long wrong = 0;
    for (int at = 0; at < count; ++at) {
        wrong += element(from, round, first + at) != got[at];
    }
    return wrong;
}

/* Returns a type for a contiguous part of an array, not at its beginning. */
static MPI_Datatype part_of(int whole, int len, int start)
{
    MPI_Datatype type;
    MPI_Type_create_subarray(1, &whole, &len, &start, MPI_ORDER_C, MPI_INT, &type);
    MPI_Type_commit(&type);
    return type;
}

/* Tests persistent sends of types that begin at an offset. */
static long offsets(void)
{
    static const int wholes[] = {8, 100, 5000, 50000, 1000000};
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    long wrong = 0;
    for (int with = 0; with < 5; ++with) {
        int whole = wholes[with], half = whole / 2;
        int *out = room(sizeof(int) * (size_t) whole), *in = room(sizeof(int) * (size_t) whole);
        MPI_Datatype type = part_of(whole, half, half);
        MPI_Request requests[2];
        MPI_Send_init(out, 1, type, right, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Recv_init(in, half, MPI_INT, left, 1, MPI_COMM_WORLD, &requests[1]);
        for (int round = 0; round < 3; ++round) {
            for (int at = 0; at < whole; ++at) {
                out[at] = element(rank, round, at);
            }
            MPI_Startall(2, requests);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            wrong += wrong_in(in, left, round, half, half);
        }
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
        MPI_Type_free(&type);
        free(out);
        free(in);
    }
    return wrong;
}

/* Tests Alltoallw of such types, as used by Fourier transforms of several dimensions. */
static long alltoallw(void)
{
    int len = 3000, whole = len * size;
    int *out = room(sizeof(int) * (size_t) whole), *in = room(sizeof(int) * (size_t) whole);
    MPI_Datatype *types = room(sizeof(*types) * (size_t) size);
    int *ones = room(sizeof(int) * (size_t) size), *zeros = room(sizeof(int) * (size_t) size);
    long wrong = 0;
    for (int other = 0; other < size; ++other) {
        types[other] = part_of(whole, len, other * len);
        ones[other] = 1;
        zeros[other] = 0;
    }
    for (int round = 0; round < 3; ++round) {
        for (int at = 0; at < whole; ++at) {
            out[at] = element(rank, round, at);
        }
        MPI_Alltoallw(out, ones, zeros, types, in, ones, zeros, types, MPI_COMM_WORLD);
        for (int other = 0; other < size; ++other) {
            wrong += wrong_in(in + other * len, other, round, rank * len, len);
        }
    }
    for (int other = 0; other < size; ++other) {
        MPI_Type_free(&types[other]);
    }
    return wrong;
}

/* Tests messages of all lengths, in one piece and with gaps. */
static long lengths(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    long wrong = 0;
    for (int len = 0; len <= 1 << 20; len = len * 3 + 1) {
        for (int gap = 1; gap <= 2; ++gap) {
            int *out = room(sizeof(int) * (size_t) (len * gap + 1));
            int *in = room(sizeof(int) * (size_t) (len + 1));
            MPI_Datatype type;
            MPI_Type_vector(len, 1, gap, MPI_INT, &type);
            MPI_Type_commit(&type);
            for (int at = 0; at < len; ++at) {
                out[at * gap] = element(rank, gap, at);
            }
            MPI_Sendrecv(out, 1, type, right, 2, in, len, MPI_INT, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            wrong += wrong_in(in, left, gap, 0, len);
            MPI_Type_free(&type);
            free(out);
            free(in);
        }
    }
    return wrong;
}

/* Passes a text around, alone and often in one message, for a test that searches a capture for it. */
static long text(void)
{
    static const char words[] = "in plain text, ";
    enum { LEN = sizeof(words) - 1, COUNT = 20000 };
    static char out[LEN * COUNT], in[LEN * COUNT];
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    long wrong = 0;
    for (int at = 0; at < COUNT; ++at) {
        memcpy(out + at * LEN, words, LEN);
    }
    for (int count = 1; count <= COUNT; count *= 2) {
        memset(in, 0xa5, sizeof(in));
        MPI_Sendrecv(out, count * LEN, MPI_CHAR, right, 3, in, count * LEN, MPI_CHAR, left, 3, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        wrong += 0 != memcmp(in, out, (size_t) (count * LEN));
    }
    return wrong;
}

/* Tests many unexpected messages, received in reverse order. */
static long unexpected(void)
{
    enum { COUNT = 5000 };
    static int words[COUNT];
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    long wrong = 0;
    MPI_Request *requests = room(sizeof(*requests) * COUNT);
    for (int at = 0; at < COUNT; ++at) {
        words[at] = element(rank, 0, at);
        MPI_Isend(&words[at], 1, MPI_INT, right, at, MPI_COMM_WORLD, &requests[at]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int at = COUNT; at-- > 0;) {
        int word;
        MPI_Recv(&word, 1, MPI_INT, left, at, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wrong += element(left, 0, at) != word;
    }
    MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
    return wrong;
}

/* Tests matched probes with synchronous sends, which hang in Open MPI 4.1 over libfabric. */
static long probes(void)
{
    long wrong = 0;
    for (int round = 0; round < 50; ++round) {
        int len = 1 + round * round * 20, from = round % size, to = (from + 1) % size;
        int *words = room(sizeof(int) * (size_t) len);
        if (rank == from) {
            for (int at = 0; at < len; ++at) {
                words[at] = element(rank, round, at);
            }
            MPI_Ssend(words, len, MPI_INT, to, round, MPI_COMM_WORLD);
        }
        if (rank == to) {
            MPI_Message message;
            MPI_Status status;
            int flag = 0, count;
            while (!flag) {
                MPI_Improbe(MPI_ANY_SOURCE, round, MPI_COMM_WORLD, &flag, &message, &status);
            }
            MPI_Get_count(&status, MPI_INT, &count);
            wrong += count != len;
            MPI_Mrecv(words, count, MPI_INT, &message, &status);
            wrong += wrong_in(words, from, round, 0, len);
        }
        free(words);
    }
    return wrong;
}

enum { WINDOW_LEN = 20000 };

static void fill(int *words, int round)
{
    for (int at = 0; at < WINDOW_LEN; ++at) {
        words[at] = element(rank, round, at);
    }
}

/* Tests puts, gets, sums and compare-and-swap under each kind of synchronisation. */
static long windows(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int *window, *out = room(sizeof(int) * WINDOW_LEN), *in = room(sizeof(int) * WINDOW_LEN);
    long wrong = 0;
    MPI_Win win;
    MPI_Win_allocate(sizeof(int) * WINDOW_LEN, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);

    fill(out, 1);
    MPI_Win_fence(0, win);
    MPI_Put(out, WINDOW_LEN, MPI_INT, right, 0, WINDOW_LEN, MPI_INT, win);
    MPI_Win_fence(0, win);
    wrong += wrong_in(window, left, 1, 0, WINDOW_LEN);
    MPI_Get(in, WINDOW_LEN, MPI_INT, right, 0, WINDOW_LEN, MPI_INT, win);
    MPI_Win_fence(0, win);
    wrong += wrong_in(in, rank, 1, 0, WINDOW_LEN);

    fill(out, 2);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, win);
    MPI_Put(out, WINDOW_LEN, MPI_INT, right, 0, WINDOW_LEN, MPI_INT, win);
    MPI_Win_flush(right, win);
    MPI_Get(in, WINDOW_LEN, MPI_INT, right, 0, WINDOW_LEN, MPI_INT, win);
    MPI_Win_unlock(right, win);
    wrong += wrong_in(in, rank, 2, 0, WINDOW_LEN);
    MPI_Barrier(MPI_COMM_WORLD);

    fill(out, 3);
    MPI_Group all, to, from;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &right, &to);
    MPI_Group_incl(all, 1, &left, &from);
    MPI_Win_post(from, 0, win);
    MPI_Win_start(to, 0, win);
    MPI_Put(out, WINDOW_LEN, MPI_INT, right, 0, WINDOW_LEN, MPI_INT, win);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    wrong += wrong_in(window, left, 3, 0, WINDOW_LEN);

    /* Each rank adds to the first word of rank 0, and takes a number from the second. */
    if (0 == rank) {
        window[0] = window[1] = window[2] = 0;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    int one = 1, before, number = -1;
    for (int round = 0; round < 100; ++round) {
        MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win);
        MPI_Fetch_and_op(&one, &number, MPI_INT, 0, 1, MPI_SUM, win);
        MPI_Win_flush(0, win);
        wrong += number < 0 || number >= 100 * size;
        int compare = 0, own = rank + 1;
        MPI_Compare_and_swap(&own, &compare, &before, MPI_INT, 0, 2, win);
        MPI_Win_flush(0, win);
        wrong += before < 0 || before > size;
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (0 == rank) {
        wrong += window[0] != 100 * size || window[1] != 100 * size || window[2] < 1 || window[2] > size;
    }
    MPI_Win_free(&win);

    return wrong;
}

/* Tests a window whose memory is attached later. */
static long dynamic(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int *out = room(sizeof(int) * WINDOW_LEN), *in = room(sizeof(int) * WINDOW_LEN);
    long wrong = 0;
    MPI_Win win;
    MPI_Aint address, theirs;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_attach(win, in, sizeof(int) * WINDOW_LEN);
    MPI_Get_address(in, &address);
    MPI_Sendrecv(&address, 1, MPI_AINT, left, 9, &theirs, 1, MPI_AINT, right, 9, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    fill(out, 4);
    MPI_Win_fence(0, win);
    MPI_Put(out, WINDOW_LEN, MPI_INT, right, theirs, WINDOW_LEN, MPI_INT, win);
    MPI_Win_fence(0, win);
    wrong += wrong_in(in, left, 4, 0, WINDOW_LEN);
    MPI_Win_detach(win, in);
    MPI_Win_free(&win);
    return wrong;
}

enum { THREADS = 4, THREAD_ROUNDS = 200 };

static void *one_thread(void *number)
{
    int tag = *(int *) number;
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    long *wrong = room(sizeof(*wrong));
    int *out = room(sizeof(int) * 30000), *in = room(sizeof(int) * 30000);
    *wrong = 0;
    for (int round = 0; round < THREAD_ROUNDS; ++round) {
        int len = 0 == round % 20 ? 30000 : 1 + round;
        for (int at = 0; at < len; ++at) {
            out[at] = element(rank, round * THREADS + tag, at);
        }
        MPI_Sendrecv(out, len, MPI_INT, right, tag, in, len, MPI_INT, left, tag, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        *wrong += wrong_in(in, left, round * THREADS + tag, 0, len);
    }
    free(out);
    free(in);
    return wrong;
}

static long threads(void)
{
    pthread_t made[THREADS];
    int numbers[THREADS];
    long wrong = 0;
    for (int at = 0; at < THREADS; ++at) {
        numbers[at] = at;
        pthread_create(&made[at], NULL, one_thread, &numbers[at]);
    }
    for (int at = 0; at < THREADS; ++at) {
        void *result;
        pthread_join(made[at], &result);
        wrong += *(long *) result;
        free(result);
    }
    return wrong;
}

/* Kills rank 1 while rank 0 exchanges messages with it and the other ranks wait for it. */
static long killed(void)
{
    int word = 0;
    for (int round = 0; round < 1000000; ++round) {
        if (1 == rank) {
            MPI_Recv(&word, 1, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&word, 1, MPI_INT, 0, 6, MPI_COMM_WORLD);
            if (100 == round) {
                raise(SIGKILL);
            }
        } else if (0 == rank) {
            MPI_Send(&word, 1, MPI_INT, 1, 6, MPI_COMM_WORLD);
            MPI_Recv(&word, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&word, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    return 1;
}

/* Starts one child per rank, on one host if it is named; each child sends its data back to a parent. */
static long spawn(char *self, const char *host)
{
    MPI_Comm children;
    char *args[] = {"child", NULL};
    int failed[16];
    long wrong = 0;
    MPI_Info info = MPI_INFO_NULL;
    if (NULL != host) {
        MPI_Info_create(&info);
        MPI_Info_set(info, "host", host);
    }
    MPI_Comm_spawn(self, args, size, info, 0, MPI_COMM_WORLD, &children, failed);
    for (int len = 1; len <= 100000; len *= 100) {
        int *words = room(sizeof(int) * (size_t) len);
        for (int at = 0; at < len; ++at) {
            words[at] = element(rank, len, at);
        }
        MPI_Send(words, len, MPI_INT, rank, 5, children);
        memset(words, 0, sizeof(int) * (size_t) len);
        MPI_Recv(words, len, MPI_INT, (rank + 1) % size, 5, children, MPI_STATUS_IGNORE);
        wrong += wrong_in(words, (rank + 1) % size, len, 0, len);
    }
    MPI_Comm_disconnect(&children);
    return wrong;
}

static void child(MPI_Comm parents)
{
    for (int len = 1; len <= 100000; len *= 100) {
        int *words = room(sizeof(int) * (size_t) len);
        MPI_Recv(words, len, MPI_INT, rank, 5, parents, MPI_STATUS_IGNORE);
        MPI_Send(words, len, MPI_INT, (rank + size - 1) % size, 5, parents);
        free(words);
    }
    MPI_Comm_disconnect(&parents);
}

int main(int argc, char **argv)
{
    const char *scene = argc > 1 ? argv[1] : "lengths";
    int wanted = 0 == strcmp(scene, "threads") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, got;
    long wrong = 0, total = 0;
    MPI_Comm parents;
    MPI_Init_thread(&argc, &argv, wanted, &got);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_parent(&parents);
    if (MPI_COMM_NULL != parents) {
        child(parents);
    } else if (got < wanted) {
        wrong = 1;
    } else if (0 == strcmp(scene, "offsets")) {
        wrong = offsets();
    } else if (0 == strcmp(scene, "alltoallw")) {
        wrong = alltoallw();
    } else if (0 == strcmp(scene, "lengths")) {
        wrong = lengths();
    } else if (0 == strcmp(scene, "text")) {
        wrong = text();
    } else if (0 == strcmp(scene, "unexpected")) {
        wrong = unexpected();
    } else if (0 == strcmp(scene, "probes")) {
        wrong = probes();
    } else if (0 == strcmp(scene, "windows")) {
        wrong = windows();
    } else if (0 == strcmp(scene, "dynamic")) {
        wrong = dynamic();
    } else if (0 == strcmp(scene, "threads")) {
        wrong = threads();
    } else if (0 == strcmp(scene, "killed")) {
        wrong = killed();
    } else if (0 == strcmp(scene, "spawn")) {
        wrong = spawn(argv[0], argc > 2 ? argv[2] : NULL);
    } else {
        wrong = 1;
    }
    if (MPI_COMM_NULL == parents) {
        MPI_Reduce(&wrong, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
        if (0 == rank) {
            printf("%s ranks=%d wrong=%ld\n", scene, size, total);
        }
    }
    MPI_Finalize();
    return 0;
}
