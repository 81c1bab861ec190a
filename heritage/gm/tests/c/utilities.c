/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tests of the modules that are not about messages. */

#include "check.h"

#include <pthread.h>

static long compare(void *a, void *b) { return strcmp(a, b); }
static unsigned long hash(void *key) { return strlen(key) % 3; }

static void hashes(void) {
    CHECK(!gm_create_hash(NULL, NULL, 4, 4, 0, 1));
    struct gm_hash *table = gm_create_hash(NULL, NULL, sizeof(int), sizeof(int), 10, 0);
    CHECK(table);
    for (int i = 0; i < 1000; i++) OK(gm_hash_insert(table, &i, &(int){i * i}));
    int key = 7, no_key = 5000;
    CHECK(gm_hash_insert(table, &key, &key) == GM_BUSY);
    for (int i = 0; i < 1000; i++) CHECK(*(int *)gm_hash_find(table, &i) == i * i);
    CHECK(!gm_hash_find(table, &no_key) && !gm_hash_remove(table, &no_key));
    gm_hash_rekey(table, &key, &no_key);
    CHECK(!gm_hash_find(table, &key) && *(int *)gm_hash_find(table, &no_key) == 49);
    gm_hash_rekey(table, &key, &no_key);
    gm_hash_rekey(table, &no_key, &(int){8});
    CHECK(*(int *)gm_hash_remove(table, &no_key) == 49 && !gm_hash_find(table, &no_key));
    gm_destroy_hash(table);
    /* Addresses, with functions of the program. */
    table = gm_create_hash(compare, hash, 0, 0, 0, 0);
    char one[] = "one", two[] = "two", again[] = "one";
    OK(gm_hash_insert(table, one, two));
    OK(gm_hash_insert(table, two, one));
    CHECK(gm_hash_find(table, again) == two && gm_hash_remove(table, two) == one);
    gm_destroy_hash(table);
    table = gm_create_hash(NULL, NULL, 0, 0, 0, 0);
    OK(gm_hash_insert(table, one, two));
    CHECK(gm_hash_find(table, one) == two && !gm_hash_find(table, again));
    gm_destroy_hash(table);
    gm_destroy_hash(NULL);
    CHECK(gm_hash_insert(NULL, one, two) == GM_INVALID_PARAMETER);
    CHECK(!gm_hash_find(NULL, one) && !gm_hash_remove(NULL, one));
    gm_hash_rekey(NULL, one, two);
}

/* Keys of the types for which the library has functions. */
static void keys(void) {
    int ints[] = {-1, 5};
    long longs[] = {-1, 1L << 40};
    char one[] = "one", two[] = "two", again[] = "one";
    CHECK(gm_hash_compare_ints(&ints[0], &ints[1]) < 0 && gm_hash_compare_ints(ints, ints) == 0);
    CHECK(gm_hash_compare_longs(&longs[1], &longs[0]) > 0 && gm_hash_compare_longs(longs, longs) == 0);
    CHECK(gm_hash_compare_ptrs(&ints[0], &ints[1]) < 0 && gm_hash_compare_ptrs(one, one) == 0);
    CHECK(gm_hash_compare_strings(one, two) < 0 && gm_hash_compare_strings(one, again) == 0);
    CHECK(gm_hash_hash_int(&ints[0]) == gm_hash_hash_int(&(int){-1}));
    CHECK(gm_hash_hash_long(&longs[1]) == gm_hash_hash_long(&(long){1L << 40}));
    CHECK(gm_hash_hash_ptr(one) == gm_hash_hash_ptr(one));
    CHECK(gm_hash_hash_string(one) == gm_hash_hash_string(again));
    struct gm_hash *table = gm_create_hash(gm_hash_compare_strings, gm_hash_hash_string, 0, 0, 0, 0);
    OK(gm_hash_insert(table, one, two));
    CHECK(gm_hash_find(table, again) == two && !gm_hash_find(table, two));
    gm_destroy_hash(table);
    table = gm_create_hash(gm_hash_compare_longs, gm_hash_hash_long, sizeof(long), sizeof(int), 0, 0);
    for (long i = 0; i < 100; i++) OK(gm_hash_insert(table, &i, &(int){(int)i}));
    for (long i = 0; i < 100; i++) CHECK(*(int *)gm_hash_find(table, &i) == i);
    gm_destroy_hash(table);
}

static void numbers(void) {
    unsigned char bytes[8];
    gm_u64_n_t network = gm_hton_u64(0x0102030405060708u);
    memcpy(bytes, &network, 8);
    for (int i = 0; i < 8; i++) CHECK(bytes[i] == i + 1);
    CHECK(gm_ntoh_u64(network) == 0x0102030405060708u);
    CHECK(gm_ntoh_u8(gm_hton_u8(7)) == 7 && gm_ntoh_s8(gm_hton_s8(-7)) == -7);
    CHECK(gm_ntoh_u16(gm_hton_u16(700)) == 700 && gm_ntoh_s16(gm_hton_s16(-700)) == -700);
    CHECK(gm_ntoh_u32(gm_hton_u32(70000)) == 70000 && gm_ntoh_s32(gm_hton_s32(-70000)) == -70000);
    CHECK(gm_ntoh_s64(gm_hton_s64(-7000000000)) == -7000000000);
    CHECK(gm_ntohc(gm_htonc(1)) == 1 && gm_ntohs(gm_htons(2)) == 2);
    CHECK(gm_ntohl(gm_htonl(3)) == 3 && gm_ntohll(gm_htonll(4)) == 4);
    CHECK(gm_ntohp(gm_htonp(bytes)) == bytes && GM_STRONG_TYPES == 0);
}

static gm_inline void bytes_and_pages(void) {
    char *pages = gm_alloc_pages(3 * GM_PAGE_LEN);
    CHECK(pages && (gm_up_t)pages % GM_PAGE_LEN == 0 && pages[3 * GM_PAGE_LEN - 1] == 0);
    gm_bcopy("ahoy", pages, 5);
    gm_bcopy(pages, pages + 1, 5);
    CHECK(strcmp(pages, "aahoy") == 0);
    gm_bzero(pages + 1, 2);
    CHECK(strcmp(pages, "a") == 0 && pages[3] == 'o');
    gm_bcopy(NULL, NULL, 0);
    gm_bzero(NULL, 0);
    gm_free_pages(pages, 3 * GM_PAGE_LEN);
    gm_free_pages(NULL, 1);
    CHECK(!gm_alloc_pages(-1UL));
}

static void lookasides(void) {
    struct gm_lookaside *list = gm_create_lookaside(100, 4);
    char *entries[50];
    for (int lap = 0; lap < 3; lap++) {
        for (int i = 0; i < 50; i++) {
            CHECK((entries[i] = i % 2 ? gm_lookaside_alloc(list) : gm_lookaside_zalloc(list)));
            for (int at = 0; at < 100 && i % 2 == 0; at++) CHECK(entries[i][at] == 0);
            memset(entries[i], i, 100);
        }
        for (int i = 0; i < 50; i++) {
            CHECK(entries[i][0] == i && entries[i][99] == i);
            if (lap < 2 || i > 0) gm_lookaside_free(entries[i]);
        }
    }
    /* The last entry frees the list. */
    gm_destroy_lookaside(list);
    gm_lookaside_free(entries[0]);
    gm_destroy_lookaside(gm_create_lookaside(0, 0));
    CHECK(!gm_create_lookaside(-1UL, 1) && !gm_lookaside_alloc(NULL) && !gm_lookaside_zalloc(NULL));
    gm_lookaside_free(NULL);
    gm_destroy_lookaside(NULL);
}

static struct gm_mutex *mutex;
static long counter;

static void *count(void *nothing) {
    for (int i = 0; i < 20000; i++) {
        gm_mutex_enter(mutex);
        counter++;
        gm_mutex_exit(mutex);
    }
    return nothing;
}

static void mutexes(void) {
    pthread_t threads[3];
    CHECK((mutex = gm_create_mutex()));
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, count, NULL) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(counter == 60000);
    gm_mutex_exit(mutex);
    gm_destroy_mutex(mutex);
    gm_destroy_mutex(NULL);
}

static void marks(void) {
    struct gm_mark_set *set = NULL;
    gm_mark_t all[20] = {0}, stranger;
    memset(&stranger, 1, sizeof stranger);
    CHECK(gm_create_mark_set(NULL, 1) == GM_INVALID_PARAMETER);
    OK(gm_create_mark_set(&set, 4));
    for (int i = 0; i < 20; i++) OK(gm_mark(set, &all[i]));
    for (int i = 0; i < 20; i++) CHECK(gm_mark_is_valid(set, &all[i]));
    CHECK(!gm_mark_is_valid(set, &stranger) && !gm_mark_is_valid(NULL, &all[0]));
    gm_mark_t moved = all[3];
    CHECK(!gm_mark_is_valid(set, &moved));
    gm_unmark(set, &all[3]);
    CHECK(!gm_mark_is_valid(set, &all[3]));
    all[4] = stranger;
    CHECK(!gm_mark_is_valid(set, &all[4]));
    CHECK(gm_mark(set, NULL) == GM_INVALID_PARAMETER && gm_mark(NULL, &moved) == GM_INVALID_PARAMETER);
    gm_unmark_all(set);
    for (int i = 0; i < 20; i++) CHECK(!gm_mark_is_valid(set, &all[i]));
    gm_destroy_mark_set(set);
    gm_destroy_mark_set(NULL);
}

int main(void) {
    hashes();
    keys();
    numbers();
    bytes_and_pages();
    lookasides();
    mutexes();
    marks();
    CHECK(gm_crc("123456789", 9) == 0xcbf43926 && gm_crc_str("123456789") == 0xcbf43926);
    CHECK(gm_crc(NULL, 0) == 0 && gm_crc_str(NULL) == 0);
    puts("all modules work");
    return 0;
}
