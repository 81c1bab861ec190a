/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The form of ../word_count.c in MPI, for comparison. */
#include <ctype.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 1, TOTALS = 2, LETTERS_MAX = 48, WORDS_MAX = 1 << 14 };

struct word {
    uint64_t count;
    char text[LETTERS_MAX];
};

static void *allocate(size_t count, size_t len) {
    void *memory = calloc(count + 1, len);
    if (!memory) MPI_Abort(MPI_COMM_WORLD, 1);
    return memory;
}

static uint64_t hash(const char *text) { /* FNV-1a */
    uint64_t value = 0xcbf29ce484222325u;
    for (; *text; text++) value = (value ^ (unsigned char)*text) * 0x100000001b3u;
    return value;
}

/* Adds to a table with open addressing. */
static void add(struct word *table, const struct word *word) {
    size_t at = hash(word->text) % WORDS_MAX;
    for (int probe = 0; table[at].count && strcmp(table[at].text, word->text); probe++) {
        if (probe == WORDS_MAX) MPI_Abort(MPI_COMM_WORLD, 1);
        at = (at + 1) % WORDS_MAX;
    }
    strcpy(table[at].text, word->text);
    table[at].count += word->count;
}

/* Sends the words of a table that belong to process `owner` of `size`. */
static struct word *send_part(const struct word *table, unsigned owner, unsigned size, int port,
                              MPI_Request *request) {
    struct word *part = allocate(WORDS_MAX, sizeof *part);
    size_t count = 0;
    for (size_t at = 0; at < WORDS_MAX; at++)
        if (table[at].count && hash(table[at].text) % size == owner) part[count++] = table[at];
    int to = size == 1 ? 0 : (int)owner, len = (int)(count * sizeof *part);
    MPI_Isend(part, len, MPI_BYTE, to, port, MPI_COMM_WORLD, request);
    return part;
}

static struct word *receive(int size, int port) {
    struct word *table = allocate(WORDS_MAX, sizeof *table);
    for (int i = 0; i < size; i++) {
        MPI_Status got;
        int len;
        MPI_Probe(MPI_ANY_SOURCE, port, MPI_COMM_WORLD, &got);
        MPI_Get_count(&got, MPI_BYTE, &len);
        struct word *words = allocate((size_t)len, 1);
        MPI_Recv(words, len, MPI_BYTE, got.MPI_SOURCE, port, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (size_t at = 0; at < (size_t)len / sizeof *table; at++) add(table, words + at);
        free(words);
    }
    return table;
}

static int by_count(const void *left, const void *right) {
    const struct word *a = left, *b = right;
    if (a->count != b->count) return a->count < b->count ? 1 : -1;
    return strcmp(a->text, b->text);
}

int main(int argc, char **argv) {
    FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
    int own_rank, count;
    MPI_Init(&argc, &argv);
    if (!file) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    unsigned rank = (unsigned)own_rank, size = (unsigned)count;
    MPI_Request *requests = allocate(size + 1, sizeof *requests);
    struct word **parts = allocate(size + 1, sizeof *parts);
    struct word *mine = allocate(WORDS_MAX, sizeof *mine), word = {.count = 1};
    unsigned line = 0, letters = 0;
    for (int c = ' '; c != EOF;) {
        c = tolower(fgetc(file));
        if (c >= 'a' && c <= 'z' && letters + 1 < LETTERS_MAX) word.text[letters++] = (char)c;
        else if (letters > 0) {
            word.text[letters] = '\0';
            if (line % size == rank) add(mine, &word);
            letters = 0;
        }
        line += c == '\n';
    }
    for (unsigned owner = 0; owner < size; owner++)
        parts[owner] = send_part(mine, owner, size, WORDS, &requests[owner]);
    struct word *own = receive(count, WORDS), *all;
    parts[size] = send_part(own, 0, 1, TOTALS, &requests[size]);
    if (rank == 0) {
        uint64_t sum = 0, different = 0;
        all = receive(count, TOTALS);
        qsort(all, WORDS_MAX, sizeof *all, by_count);
        for (; different < WORDS_MAX && all[different].count; different++) sum += all[different].count;
        printf("%llu words, %llu different\n", (unsigned long long)sum, (unsigned long long)different);
        for (uint64_t i = 0; i < 5 && i < different; i++)
            printf("%llu %s\n", (unsigned long long)all[i].count, all[i].text);
        free(all);
    }
    MPI_Waitall(count + 1, requests, MPI_STATUSES_IGNORE);
    MPI_Finalize();
    for (unsigned owner = 0; owner <= size; owner++) free(parts[owner]);
    free(parts);
    free(requests);
    free(mine);
    free(own);
    fclose(file);
    return 0;
}
