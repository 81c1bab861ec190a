/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * MPI_Init and MPI_Finalize: the record is created, clocks are compared, the record is closed.
 */

/* Environment variable with the maximum number of events and the directory of records:
 * "EVENTS:DIRECTORY". */
static const char VARIABLE[] = "PORTOLAN_PROFILE";

/* Round trips for a clock comparison; the shortest counts. */
enum { ROUNDS = 16 };

/* Duration of the first estimate of the counter's rate. */
enum { CALIBRATION_NS = 200000 };

/* Returns rank 0's clock less this process's clock in ns. All processes call it together. */
static int64_t clock_ahead(MPI_Comm comm, int rank, int count)
{
    uint64_t best = UINT64_MAX;
    int64_t ahead = 0;
    for (int round = 0; rank > 0 && round < ROUNDS; round++) {
        uint64_t sent = monotonic_ns(), theirs = 0;
        MPI_Send(&sent, 1, MPI_UINT64_T, 0, 0, comm);
        MPI_Recv(&theirs, 1, MPI_UINT64_T, 0, 0, comm, MPI_STATUS_IGNORE);
        uint64_t took = monotonic_ns() - sent;
        if (took < best) {
            best = took;
            ahead = (int64_t)(theirs - (sent + took / 2));
        }
    }
    for (int peer = 1; rank == 0 && peer < count; peer++) {
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t theirs = 0;
            MPI_Recv(&theirs, 1, MPI_UINT64_T, peer, 0, comm, MPI_STATUS_IGNORE);
            uint64_t here = monotonic_ns();
            MPI_Send(&here, 1, MPI_UINT64_T, peer, 0, comm);
        }
    }
    return ahead;
}

static MPI_Comm clock_comm = MPI_COMM_NULL;

/* Returns true if the processes run on several hosts. Processes on one host share one clock. */
static int on_several_hosts(int count)
{
    MPI_Comm here = MPI_COMM_NULL;
    int beside = count;
    if (PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here) != MPI_SUCCESS)
        return 0;
    PMPI_Comm_size(here, &beside);
    MPI_Comm_free(&here);
    int several = beside < count, anywhere = 0;
    MPI_Allreduce(&several, &anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return anywhere;
}

/* Returns a number that identifies the job, from rank 0's time, process id and host. */
static uint64_t name_world(const char *host)
{
    struct timespec today;
    clock_gettime(CLOCK_REALTIME, &today);
    uint64_t name = (uint64_t)today.tv_sec * 1000000000u + (uint64_t)today.tv_nsec;
    name ^= (uint64_t)getpid() << 40;
    for (; *host; host++)
        name = (name ^ (uint64_t)(unsigned char)*host) * 1099511628211u;
    MPI_Bcast(&name, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    return name;
}

/* Maps a new file of `len` bytes and allocates disk space for the first `filled`. */
static void *map_file(const char *path, size_t len, size_t filled)
{
    record_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int failed = record_fd < 0 ? errno : posix_fallocate(record_fd, 0, (off_t)filled);
    if (!failed && ftruncate(record_fd, (off_t)len) != 0)
        failed = errno;
    void *memory = failed ? MAP_FAILED : mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, record_fd, 0);
    if (memory != MAP_FAILED)
        return memory;
    failed = failed ? failed : errno;
    fprintf(stderr, "portolan profile: %s cannot be written (%s): this process is not counted\n", path, strerror(failed));
    return NULL;
}

static uint64_t rounded(uint64_t len)
{
    return (len + HEADER_LEN - 1) / HEADER_LEN * HEADER_LEN;
}

/* Creates the record's file and its tables; returns null on failure. */
static struct header *make_record(const char *directory, uint64_t world, int rank, int count)
{
    uint64_t peers_len = rounded(((uint64_t)count + 1) * sizeof(struct peer));
    uint64_t events_off = HEADER_LEN + rounded(OPS_LEN) + peers_len;
    char path[4096];
    snprintf(path, sizeof path, "%s/%016llx-%d.record", directory, (unsigned long long)world, rank);
    size_t len = events_off + events_max * sizeof(struct event);
    char *memory = map_file(path, len, events_off);
    if (!memory)
        return NULL;
    struct header *made = (struct header *)memory;
    made->rank = (uint32_t)rank;
    made->rank_count = (uint32_t)count;
    made->pid = (uint32_t)getpid();
    made->world = world;
    made->ops_off = HEADER_LEN;
    made->peers_off = HEADER_LEN + rounded(OPS_LEN);
    made->events_off = events_off;
    ops = (struct op *)(memory + made->ops_off);
    peers = (struct peer *)(memory + made->peers_off);
    events = (struct event *)(memory + made->events_off);
    return made;
}

static uint64_t ticks_per_s(void)
{
    uint64_t ticks = now(), ns = monotonic_ns(), after;
    do {
        after = monotonic_ns();
    } while (after - ns < CALIBRATION_NS);
    return (uint64_t)((double)(now() - ticks) * 1e9 / (double)(after - ns));
}

static void describe(struct header *made, const char *host)
{
    snprintf(made->host, sizeof made->host, "%s", host);
    ssize_t len = readlink("/proc/self/exe", made->program, sizeof made->program - 1);
    made->program[len > 0 ? len : 0] = 0;
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int version_len = 0;
    PMPI_Get_library_version(version, &version_len);
    version[strcspn(version, "\n,")] = 0;
    snprintf(made->library, sizeof made->library, "%.127s", version);
}

static int prepare_tables(int count)
{
    table_len = 1024;
    table = calloc(table_len, sizeof *table);
    the_world = malloc(sizeof *the_world + (size_t)count * sizeof(int));
    if (!table || !the_world)
        return 0;
    for (int i = 0; i < count; i++)
        the_world->world[i] = i;
    the_world->size = count;
    the_world->users = 1;
    the_world->inter = 0;
    the_world->hash = hash_of(the_world->world, count);
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_comm_free, &comm_key, NULL);
    PMPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, on_win_free, &win_key, NULL);
    return 1;
}

/* Starts counting. Called in all processes of MPI_COMM_WORLD by MPI_Init. */
static void begin(void)
{
    const char *setting = getenv(VARIABLE);
    const char *directory = setting ? strchr(setting, ':') : NULL;
    if (!directory)
        return;
    char host[64] = "";
    int rank = 0, count = 1, level = MPI_THREAD_SINGLE;
    depth++;
    gethostname(host, sizeof host - 1);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &count);
    PMPI_Query_thread(&level);
    choose_clock();
    detect_length_field();
    events_max = strtoull(setting, NULL, 10);
    uint64_t world = name_world(host);
    int several = on_several_hosts(count);
    struct header *made = prepare_tables(count) ? make_record(directory + 1, world, rank, count) : NULL;
    int64_t ahead = 0;
    if (several && PMPI_Comm_dup(MPI_COMM_WORLD, &clock_comm) == MPI_SUCCESS)
        ahead = clock_ahead(clock_comm, rank, count);
    if (made) {
        the_world->rank = rank;
        threaded = level == MPI_THREAD_MULTIPLE;
        made->flags = (several ? SEVERAL_HOSTS : 0) | (threaded ? SEVERAL_THREADS : 0);
        describe(made, host);
        made->ticks_per_s = ticks_per_s();
        /* A replay needs the times of all calls. With threads, calls are not sequential. */
        if (events_max == 0 && !threaded)
            between_timed = made->ticks_per_s / 1000000 * BETWEEN_TIMED_NS / 1000;
        made->init_ahead_ns = made->end_ahead_ns = ahead;
        made->init_ns = monotonic_ns();
        made->init_ticks = made->last_ticks = now();
        memcpy(made->magic, MAGIC, sizeof MAGIC);
        header = made;
    }
    depth--;
}

/* Ends counting. Called in all processes by MPI_Finalize. */
static void end(void)
{
    struct header *made = header;
    uint64_t ticks = now(), ns = monotonic_ns();
    int64_t ahead = 0;
    depth++;
    header = NULL;
    if (clock_comm != MPI_COMM_NULL) {
        int rank = 0, count = 1;
        PMPI_Comm_rank(clock_comm, &rank);
        PMPI_Comm_size(clock_comm, &count);
        ahead = clock_ahead(clock_comm, rank, count);
        PMPI_Comm_free(&clock_comm);
    }
    if (made) {
        made->end_ticks = ticks;
        made->end_ns = ns;
        made->end_ahead_ns = ahead;
        made->flags |= FINALIZED;
    }
    depth--;
}

int MPI_Init(int *argc, char ***argv)
{
    PASS_ALWAYS(MPI_Init);
    depth++;
    int result = real(argc, argv);
    depth--;
    if (result == MPI_SUCCESS && depth == 0)
        begin();
    return result;
}
ALIAS(MPI_Init)

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    PASS_ALWAYS(MPI_Init_thread);
    depth++;
    int result = real(argc, argv, required, provided);
    depth--;
    if (result == MPI_SUCCESS && depth == 0)
        begin();
    return result;
}
ALIAS(MPI_Init_thread)

int MPI_Finalize(void)
{
    PASS_ALWAYS(MPI_Finalize);
    if (depth == 0)
        end();
    return real();
}
ALIAS(MPI_Finalize)

int MPI_Abort(MPI_Comm comm, int code)
{
    PASS_ALWAYS(MPI_Abort);
    if (header)
        header->flags |= ABORTED;
    return real(comm, code);
}
ALIAS(MPI_Abort)

/* Counts the loaded MPI libraries with incompatible binary interfaces. */
static int count_libraries(struct dl_phdr_info *info, size_t len, void *counted)
{
    (void)len;
    static const char *const known[] = {"libmpi.so.", "libmpich.so."};
    const char *base = strrchr(info->dlpi_name, '/');
    base = base ? base + 1 : info->dlpi_name;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        *(int *)counted += strncmp(base, known[i], strlen(known[i])) == 0;
    return 0;
}

/* Refuses a program of another MPI, which would call this MPI's functions with its own handles. */
__attribute__((constructor)) static void refuse_other_mpi(void)
{
    int counted = 0;
    dl_iterate_phdr(count_libraries, &counted);
    if (counted > 1 && getenv(VARIABLE)) {
        fprintf(stderr, "portolan profile: the program is linked with another MPI than its launcher's: "
                        "start it with the launcher of its own MPI\n");
        _exit(2);
    }
}
