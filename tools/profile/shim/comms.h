/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Ranks of communicators and windows in MPI_COMM_WORLD. They are stored as an attribute of each, so
 * they are freed together, and a reused handle has the ranks of its new object.
 */

static int comm_key = MPI_KEYVAL_INVALID;
static int win_key = MPI_KEYVAL_INVALID;

/* Last communicator that was looked up. It is per thread, so no lock is needed. */
static __thread MPI_Comm last_comm;
static __thread struct comm *last_ranks;
/* Number of freed communicators. A change invalidates the last one of each thread. */
static unsigned freed_count;
static __thread unsigned freed_seen;

static void release(struct comm *ranks)
{
    if (ranks && --ranks->users == 0 && ranks != the_world)
        free(ranks);
}

static int on_comm_free(MPI_Comm comm, int key, void *ranks, void *extra)
{
    (void)comm, (void)key, (void)extra;
    __atomic_add_fetch(&freed_count, 1, __ATOMIC_RELEASE);
    release(ranks);
    return MPI_SUCCESS;
}

static int on_win_free(MPI_Win win, int key, void *ranks, void *extra)
{
    (void)win, (void)key, (void)extra;
    release(ranks);
    return MPI_SUCCESS;
}

/* Returns the FNV-1a hash of the members' ranks. */
static uint32_t hash_of(const int *world, int size)
{
    uint32_t hash = 2166136261u;
    for (int i = 0; i < size; i++)
        hash = (hash ^ (uint32_t)world[i]) * 16777619u;
    return hash;
}

static struct comm *ranks_of_group(MPI_Group group, int rank, int inter)
{
    int size = 0;
    PMPI_Group_size(group, &size);
    struct comm *ranks = malloc(sizeof *ranks + (size_t)size * sizeof(int));
    int *own = malloc((size_t)size * sizeof(int) + 1);
    MPI_Group all = MPI_GROUP_NULL;
    if (!ranks || !own || PMPI_Comm_group(MPI_COMM_WORLD, &all) != MPI_SUCCESS) {
        free(ranks);
        free(own);
        return NULL;
    }
    for (int i = 0; i < size; i++)
        own[i] = i;
    PMPI_Group_translate_ranks(group, size, own, all, ranks->world);
    for (int i = 0; i < size; i++)
        ranks->world[i] = ranks->world[i] == MPI_UNDEFINED ? -1 : ranks->world[i];
    PMPI_Group_free(&all);
    free(own);
    ranks->size = size;
    ranks->rank = rank;
    ranks->inter = inter;
    ranks->users = 1;
    ranks->hash = hash_of(ranks->world, size);
    return ranks;
}

static struct comm *new_ranks(MPI_Comm comm)
{
    int inter = 0, rank = 0;
    MPI_Group group = MPI_GROUP_NULL;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_rank(comm, &rank);
    int got = inter ? PMPI_Comm_remote_group(comm, &group) : PMPI_Comm_group(comm, &group);
    if (got != MPI_SUCCESS)
        return NULL;
    struct comm *ranks = ranks_of_group(group, rank, inter);
    PMPI_Group_free(&group);
    if (ranks)
        PMPI_Comm_set_attr(comm, comm_key, ranks);
    return ranks;
}

static struct comm *look_up_ranks(MPI_Comm comm)
{
    unsigned freed_now = __atomic_load_n(&freed_count, __ATOMIC_ACQUIRE);
    if (last_ranks && comm == last_comm && freed_seen == freed_now)
        return last_ranks;
    struct comm *ranks = NULL;
    int known = 0;
    PMPI_Comm_get_attr(comm, comm_key, &ranks, &known);
    if (!known)
        ranks = new_ranks(comm);
    if (!ranks)
        return the_world;
    last_comm = comm;
    last_ranks = ranks;
    freed_seen = freed_now;
    return ranks;
}

/* Returns the ranks of `comm`, or those of MPI_COMM_WORLD if the lookup fails. */
static inline struct comm *ranks_of(MPI_Comm comm)
{
    return comm == MPI_COMM_WORLD ? the_world : look_up_ranks(comm);
}

static struct comm *ranks_of_window(MPI_Win win)
{
    struct comm *ranks = NULL;
    int known = 0;
    PMPI_Win_get_attr(win, win_key, &ranks, &known);
    if (known)
        return ranks;
    MPI_Group group = MPI_GROUP_NULL;
    int rank = 0;
    if (PMPI_Win_get_group(win, &group) != MPI_SUCCESS)
        return the_world;
    PMPI_Group_rank(group, &rank);
    ranks = ranks_of_group(group, rank, 0);
    PMPI_Group_free(&group);
    if (!ranks)
        return the_world;
    PMPI_Win_set_attr(win, win_key, ranks);
    return ranks;
}

static inline int world_rank(const struct comm *ranks, int rank)
{
    return rank >= 0 && rank < ranks->size ? ranks->world[rank] : -1;
}
