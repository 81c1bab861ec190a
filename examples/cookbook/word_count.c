/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Counts the words of a text: portolan run -n 4 -- word_count FILE. Each process counts some lines,
 * and sends each word to the process that its hash selects. */
#include "../c/example.h"

#include <ctype.h>
#include <string.h>

enum { WORDS = 1, TOTALS = 2, LETTERS_MAX = 48, WORDS_MAX = 1 << 14 };

struct word {
    uint64_t count;
    char text[LETTERS_MAX];
};

static uint64_t hash(const char *text) { /* FNV-1a */
    uint64_t value = 0xcbf29ce484222325u;
    for (; *text; text++) value = (value ^ (unsigned char)*text) * 0x100000001b3u;
    return value;
}

/* Adds to a table with open addressing. */
static void add(struct word *table, const struct word *word) {
    size_t at = hash(word->text) % WORDS_MAX;
    for (int probe = 0; table[at].count && strcmp(table[at].text, word->text); probe++) {
        if (probe == WORDS_MAX) die("more than %d words", WORDS_MAX);
        at = (at + 1) % WORDS_MAX;
    }
    strcpy(table[at].text, word->text);
    table[at].count += word->count;
}

/* Sends the words of a table that belong to process `owner` of `size`. */
static void send_part(portolan_node_t *node, const struct word *table, unsigned owner, unsigned size,
                      unsigned port) {
    struct word *part = allocate(WORDS_MAX, sizeof *part);
    size_t count = 0;
    for (size_t at = 0; at < WORDS_MAX; at++)
        if (table[at].count && hash(table[at].text) % size == owner) part[count++] = table[at];
    MUST(portolan_isend_copy(node, size == 1 ? 0 : owner, port, part, count * sizeof *part, 0));
    free(part);
}

static struct word *receive(portolan_node_t *node, unsigned size, unsigned port) {
    struct word *table = allocate(WORDS_MAX, sizeof *table);
    for (unsigned i = 0; i < size; i++) {
        portolan_received_t got = PORTOLAN_SIZED(portolan_received_t);
        void *words;
        MUST(portolan_recv_alloc(node, port, PORTOLAN_ANY_SOURCE, &words, &got));
        for (size_t at = 0; at < got.len / sizeof *table; at++) add(table, (struct word *)words + at);
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
    if (!file) die("usage: word_count FILE");
    portolan_node_t *node;
    MUST(portolan_join(&node));
    unsigned rank = (unsigned)MUST(portolan_rank(node)), size = (unsigned)MUST(portolan_size(node));
    MUST(portolan_open(node, WORDS));
    MUST(portolan_open(node, TOTALS));
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
    for (unsigned owner = 0; owner < size; owner++) send_part(node, mine, owner, size, WORDS);
    struct word *own = receive(node, size, WORDS), *all;
    send_part(node, own, 0, 1, TOTALS);
    if (rank == 0) {
        uint64_t sum = 0, different = 0;
        all = receive(node, size, TOTALS);
        qsort(all, WORDS_MAX, sizeof *all, by_count);
        for (; different < WORDS_MAX && all[different].count; different++) sum += all[different].count;
        printf("%llu words, %llu different\n", (unsigned long long)sum, (unsigned long long)different);
        for (uint64_t i = 0; i < 5 && i < different; i++)
            printf("%llu %s\n", (unsigned long long)all[i].count, all[i].text);
        free(all);
    }
    MUST(portolan_close(node));
    free(mine);
    free(own);
    fclose(file);
    return 0;
}
