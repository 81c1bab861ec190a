/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Counts the words of a text with active messages: portolan run -n 4 -- wordcount FILE
  * The C version of core/portolan/examples/wordcount.rs.
  *
  * Every process reads its part of the text. It sends each word to the process selected by the
  * word's hash, many words per message. The handler of that process counts them. An empty message
  * marks the end of a sender's words. A word is a run of ASCII letters; capitals count as small
  * letters. */

#include "example.h"

#include <ctype.h>
#include <string.h>

enum { WORDS = 1, BEST = 2, BATCH_LEN = 1000, WORD_LEN_MAX = 63, BEST_COUNT = 5 };

struct word {
    uint64_t count;
    char text[WORD_LEN_MAX + 1];
};

/* Words by hash, with open addressing; at most half full. */
struct table {
    struct word *words;
    size_t room, used;
    unsigned done; /* senders that have sent all */
    unsigned size;
};

static uint64_t hash(const char *word) { /* FNV-1a, 64 bits */
    uint64_t value = 0xcbf29ce484222325u;
    for (; *word; word++) value = (value ^ (unsigned char)*word) * 0x100000001b3u;
    return value;
}

static struct word *find(struct table *table, const char *text) {
    size_t place = hash(text) % table->room;
    while (table->words[place].count && strcmp(table->words[place].text, text) != 0)
        place = (place + 1) % table->room;
    return &table->words[place];
}

static void grow(struct table *table) {
    struct table bigger = *table;
    bigger.room = table->room ? 2 * table->room : 1024;
    bigger.words = allocate(bigger.room, sizeof *bigger.words);
    for (size_t i = 0; i < table->room; i++)
        if (table->words[i].count) *find(&bigger, table->words[i].text) = table->words[i];
    free(table->words);
    *table = bigger;
}

static void count(struct table *table, const char *text) {
    if (2 * table->used >= table->room) grow(table);
    struct word *word = find(table, text);
    if (word->count++ == 0) {
        table->used++;
        strcpy(word->text, text);
    }
}

/* Handles a message of words, each with a zero byte behind it. */
static void on_words(portolan_node_t *node, const portolan_message_t *message, void *user) {
    struct table *table = user;
    const char *text = message->bytes, *end = text + message->len;
    (void)node;
    if (message->len == 0) table->done++;
    for (; text < end; text += strlen(text) + 1) count(table, text);
}

static int all_done(void *user) {
    struct table *table = user;
    return table->done == table->size;
}

struct batch {
    size_t len;
    char bytes[BATCH_LEN];
};

static void send_batch(portolan_node_t *node, unsigned rank, struct batch *batch) {
    MUST(portolan_isend_copy(node, rank, WORDS, batch->bytes, batch->len, 0));
    batch->len = 0;
}

static void send_word(portolan_node_t *node, struct batch *batches, unsigned size, const char *word) {
    unsigned owner = (unsigned)(hash(word) % size);
    struct batch *batch = &batches[owner];
    size_t len = strlen(word) + 1;
    if (batch->len + len > BATCH_LEN) {
        send_batch(node, owner, batch);
        MUST(portolan_progress(node)); /* counts the words of other processes meanwhile */
    }
    memcpy(batch->bytes + batch->len, word, len);
    batch->len += len;
}

/* Sends the words that begin in this process's part of the text. */
static void send_words(portolan_node_t *node, const char *text, size_t len, unsigned rank,
                       unsigned size) {
    struct batch *batches = allocate(size, sizeof *batches);
    size_t at = len * rank / size, end = len * (rank + 1) / size;
    while (at > 0 && at < len && isalpha((unsigned char)text[at - 1]) &&
           isalpha((unsigned char)text[at]))
        at++; /* began in the part before */
    while (at < end) {
        char word[WORD_LEN_MAX + 1];
        size_t letters = 0;
        for (; at < len && isalpha((unsigned char)text[at]); at++)
            if (letters < WORD_LEN_MAX) word[letters++] = (char)tolower((unsigned char)text[at]);
        word[letters] = '\0';
        if (letters > 0) send_word(node, batches, size, word);
        else at++;
    }
    for (unsigned owner = 0; owner < size; owner++) {
        if (batches[owner].len > 0) send_batch(node, owner, &batches[owner]);
        MUST(portolan_isend_copy(node, owner, WORDS, NULL, 0, 0));
    }
    free(batches);
}

static int by_count(const void *left, const void *right) {
    const struct word *a = left, *b = right;
    if (a->count != b->count) return a->count < b->count ? 1 : -1;
    return strcmp(a->text, b->text);
}

static void report(portolan_node_t *node, struct table *table, unsigned rank) {
    uint64_t sums[2] = {0, table->used};
    size_t own = table->room < BEST_COUNT ? table->room : BEST_COUNT;
    if (table->room) qsort(table->words, table->room, sizeof *table->words, by_count);
    for (size_t i = 0; i < table->used; i++) sums[0] += table->words[i].count;
    MUST(portolan_reduce(node, NULL, 0, PORTOLAN_SUM, PORTOLAN_UINT64, sums, 2));
    MUST(portolan_send(node, 0, BEST, table->words, own * sizeof *table->words, 0));
    if (rank != 0) return;
    struct word *best = allocate((size_t)table->size * BEST_COUNT, sizeof *best);
    for (unsigned i = 0; i < table->size; i++)
        MUST(portolan_recv(node, BEST, i, best + i * BEST_COUNT, BEST_COUNT * sizeof *best, NULL));
    qsort(best, (size_t)table->size * BEST_COUNT, sizeof *best, by_count);
    printf("%llu words, %llu different\n", (unsigned long long)sums[0],
           (unsigned long long)sums[1]);
    for (size_t i = 0; i < BEST_COUNT && best[i].count; i++)
        printf("%llu %s\n", (unsigned long long)best[i].count, best[i].text);
    free(best);
}

static char *read_text(const char *path, size_t *len) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) die("wordcount: %s cannot be read", path);
    *len = (size_t)ftell(file);
    char *text = allocate(*len, 1);
    rewind(file);
    if (fread(text, 1, *len, file) != *len) die("wordcount: %s cannot be read", path);
    fclose(file);
    return text;
}

int main(int argc, char **argv) {
    if (argc != 2) die("usage: portolan run -n N -- wordcount FILE");
    size_t len;
    char *text = read_text(argv[1], &len);
    portolan_node_t *node;
    MUST(portolan_join(&node));
    unsigned rank = (unsigned)MUST(portolan_rank(node));
    struct table table = {.size = (unsigned)MUST(portolan_size(node))};
    MUST(portolan_open(node, BEST));
    MUST(portolan_open_active(node, WORDS, PORTOLAN_IN_PLACE, on_words, &table));
    send_words(node, text, len, rank, table.size);
    MUST(portolan_wait_until(node, all_done, &table));
    report(node, &table, rank);
    MUST(portolan_close(node));
    free(table.words);
    free(text);
    return 0;
}
