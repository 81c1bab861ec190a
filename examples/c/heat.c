/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The two-dimensional heat equation, with halo exchange: portolan run -n 4 -- heat INPUT.pgm STEPS
 *
  * A small version of examples/heat. The field is cut into strips of rows. In each step a process
  * sends its first and last row to its neighbours, and meanwhile computes the rows that need no
  * other strip. At the end rank 0 compares the result with the sequential solution, bit for bit. */

#include "example.h"

#include <string.h>

enum { FROM_NORTH = 1, FROM_SOUTH = 2, WHOLE = 3 };

static const double ALPHA = 0.2;

struct field {
    size_t width, height;
    double *cells; /* row by row */
};

/* Rows `first` to `first + height` of the field, with one more row above and one below. */
struct strip {
    size_t width, height, first;
    double *now, *next;
};

/* Reads a number of a PGM header; skips comments. */
static size_t header_number(FILE *file) {
    size_t number;
    int byte;
    while ((byte = fgetc(file)) == '#' || byte == ' ' || byte == '\n')
        if (byte == '#')
            while ((byte = fgetc(file)) != '\n' && byte != EOF) continue;
    ungetc(byte, file);
    if (fscanf(file, "%zu", &number) != 1) die("heat: the header of the image is damaged");
    return number;
}

static struct field read_pgm(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) die("heat: %s cannot be opened", path);
    if (fgetc(file) != 'P' || fgetc(file) != '5') die("heat: %s is no raw grey map (P5)", path);
    struct field field = {0};
    field.width = header_number(file);
    field.height = header_number(file);
    size_t white = header_number(file);
    if (field.width < 3 || field.height < 3 || field.width > 32768 || field.height > 32768 ||
        white < 1 || white > 65535)
        die("heat: an image has 3 to 32768 cells a side, and 2 to 65536 shades");
    fgetc(file);
    field.cells = allocate(field.width * field.height, sizeof(double));
    for (size_t i = 0; i < field.width * field.height; i++) {
        int value = fgetc(file);
        if (white > 255) value = value << 8 | fgetc(file);
        if (feof(file)) die("heat: %s is too short", path);
        field.cells[i] = (double)value / (double)white;
    }
    fclose(file);
    return field;
}

static double *row(double *cells, size_t width, size_t y) { return cells + y * width; }

/* Computes row `y` of `next` from the rows around it in `now`; the rim keeps its temperature. */
static void relax_row(const double *now, double *next, size_t width, size_t y) {
    const double *north = now + (y - 1) * width, *here = now + y * width, *south = here + width;
    for (size_t x = 1; x + 1 < width; x++)
        next[y * width + x] = here[x] + ALPHA * ((here[x - 1] + here[x + 1]) +
                                                 (north[x] + south[x]) - 4.0 * here[x]);
}

static void swap(double **a, double **b) {
    double *other = *a;
    *a = *b;
    *b = other;
}

static void solve_alone(struct field *field, long steps) {
    size_t bytes = field->width * field->height * sizeof(double);
    double *next = allocate(1, bytes);
    memcpy(next, field->cells, bytes);
    for (long step = 0; step < steps; step++) {
        for (size_t y = 1; y + 1 < field->height; y++)
            relax_row(field->cells, next, field->width, y);
        swap(&field->cells, &next);
    }
    free(next);
}

/* Cuts out the strip of `rank`: an equal share of the inner rows, and their neighbours. */
static struct strip cut(const struct field *field, size_t rank, size_t size) {
    size_t inner = field->height - 2;
    struct strip strip = {.width = field->width, .first = 1 + inner * rank / size};
    strip.height = 1 + inner * (rank + 1) / size - strip.first;
    size_t bytes = (strip.height + 2) * strip.width * sizeof(double);
    strip.now = allocate(1, bytes);
    strip.next = allocate(1, bytes);
    memcpy(strip.now, field->cells + (strip.first - 1) * field->width, bytes);
    memcpy(strip.next, strip.now, bytes);
    return strip;
}

/* Computes one step; the edge rows are in flight while the inner rows are computed. */
static void step_strip(portolan_node_t *node, struct strip *strip, unsigned rank, unsigned size) {
    size_t w = strip->width, h = strip->height, bytes = w * sizeof(double);
    portolan_request_t requests[4] = {0};
    double *now = strip->now;
    if (rank > 0) {
        MUST(portolan_post_recv(node, FROM_NORTH, rank - 1, now, bytes, &requests[0]));
        MUST(portolan_isend(node, rank - 1, FROM_SOUTH, row(now, w, 1), bytes, 0, &requests[1]));
    }
    if (rank + 1 < size) {
        MUST(portolan_post_recv(node, FROM_SOUTH, rank + 1, row(now, w, h + 1), bytes, &requests[2]));
        MUST(portolan_isend(node, rank + 1, FROM_NORTH, row(now, w, h), bytes, 0, &requests[3]));
    }
    MUST(portolan_flush(node));
    for (size_t y = 2; y < h; y++) relax_row(now, strip->next, w, y);
    MUST(portolan_wait_all(node, requests, 4));
    relax_row(now, strip->next, w, 1);
    if (h > 1) relax_row(now, strip->next, w, h);
    /* Copy the neighbours' rows and the rim of the field, which the next step needs. */
    memcpy(strip->next, now, bytes);
    memcpy(row(strip->next, w, h + 1), row(now, w, h + 1), bytes);
    swap(&strip->now, &strip->next);
}

static void collect(portolan_node_t *node, struct field *field, const struct strip *own,
                    unsigned rank, unsigned size) {
    size_t bytes = own->width * own->height * sizeof(double);
    if (rank != 0) {
        MUST(portolan_send(node, 0, WHOLE, own->now + own->width, bytes, 0));
        return;
    }
    memcpy(row(field->cells, own->width, own->first), own->now + own->width, bytes);
    for (unsigned other = 1; other < size; other++) {
        struct strip theirs = cut(field, other, size);
        MUST(portolan_recv(node, WHOLE, other, row(field->cells, theirs.width, theirs.first),
                           theirs.width * theirs.height * sizeof(double), NULL));
        free(theirs.now);
        free(theirs.next);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) die("usage: portolan run -n N -- heat INPUT.pgm STEPS");
    long steps = strtol(argv[2], NULL, 10);
    struct field field = read_pgm(argv[1]);
    portolan_node_t *node;
    MUST(portolan_join(&node));
    unsigned rank = (unsigned)MUST(portolan_rank(node)), size = (unsigned)MUST(portolan_size(node));
    if (size > field.height - 2) die("heat: %u processes, but only %zu rows", size, field.height - 2);
    for (unsigned port = FROM_NORTH; port <= WHOLE; port++) MUST(portolan_open(node, port));
    struct strip strip = cut(&field, rank, size);
    MUST(portolan_barrier(node, NULL)); /* the halo ports of all neighbours are open */
    for (long step = 0; step < steps; step++) step_strip(node, &strip, rank, size);
    struct field result = field;
    result.cells = allocate(field.width * field.height, sizeof(double));
    memcpy(result.cells, field.cells, field.width * field.height * sizeof(double));
    collect(node, &result, &strip, rank, size);
    int equal = 1;
    if (rank == 0) {
        solve_alone(&field, steps);
        equal = !memcmp(result.cells, field.cells, field.width * field.height * sizeof(double));
        printf("%ld steps by %u processes %s the sequential solution\n", steps, size,
               equal ? "equal" : "DIFFER FROM");
    }
    MUST(portolan_close(node));
    free(strip.now);
    free(strip.next);
    free(result.cells);
    free(field.cells);
    return equal ? 0 : 1;
}
