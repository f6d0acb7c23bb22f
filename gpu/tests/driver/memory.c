/* Memory and copies. */
#include "mock.h"

typedef struct Range { uint64_t start; size_t bytes; enum Kind kind; struct Range *next; } Range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Range *ranges;
long settings[SETTINGS];

void mock_set(int which, long value) { __atomic_store_n(&settings[which], value, __ATOMIC_SEQ_CST); }
long mock_get(int which) { return setting(which); }
/* All work that was asked of any stream is done once this returns. */
void mock_finish(void) { finish_all(); }

void nap(unsigned *seed) {
    long most = setting(DELAY_US);
    if (most) usleep(rand_r(seed) % (most + 1));
}

static void add(uint64_t start, size_t bytes, enum Kind kind) {
    Range *r = malloc(sizeof *r);
    pthread_mutex_lock(&lock);
    *r = (Range){ start, bytes, kind, ranges };
    ranges = r;
    pthread_mutex_unlock(&lock);
}

static size_t take(uint64_t start, enum Kind kind) {
    size_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (Range **at = &ranges; *at; at = &(*at)->next)
        if ((*at)->start == start && (*at)->kind == kind) {
            Range *gone = *at;
            bytes = gone->bytes;
            *at = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
    return bytes;
}

static int inside(uint64_t start, size_t bytes, enum Kind kind) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (Range *r = ranges; r && !found; r = r->next)
        found = r->kind == kind && start >= r->start && bytes <= r->bytes && start - r->start <= r->bytes - bytes;
    pthread_mutex_unlock(&lock);
    return found;
}

int is_host(uint64_t start, size_t bytes) { return inside(start, bytes, PINNED) || inside(start, bytes, REGISTERED); }

void check_access(uint64_t start, size_t bytes, int write) {
    if (bytes == 0 || inside(start, bytes, DEVICE) || (!write && is_host(start, bytes))) return;
    if (count(VIOLATIONS, 1) == 1)
        fprintf(stderr, "mock: %s of %zu bytes at %#lx\n", write ? "write" : "read", bytes, (unsigned long)start);
}

static int allocate(uint64_t *to, size_t bytes, enum Kind kind, enum Setting counter) {
    if (bytes == 0) return INVALID_VALUE;
    if (setting(FAIL_ALLOCATION) > 0 && count(FAIL_ALLOCATION, -1) == 0) return OUT_OF_MEMORY;
    void *memory;
    if (posix_memalign(&memory, kind == DEVICE ? 256 : 4096, bytes)) return OUT_OF_MEMORY;
    memset(memory, 0xa5, bytes);
    *to = (uint64_t)memory;
    add(*to, bytes, kind);
    count(counter, bytes);
    return OK;
}

static int release(uint64_t start, enum Kind kind, enum Setting counter) {
    size_t bytes = take(start, kind);
    if (!bytes) return INVALID_VALUE;
    memset((void *)start, 0x5a, bytes);
    free((void *)start);
    count(counter, -(long)bytes);
    return OK;
}

int cuMemAlloc_v2(uint64_t *to, size_t bytes) { return allocate(to, bytes, DEVICE, DEVICE_BYTES); }
/* The one call here that waits for the device. */
int cuMemFree_v2(uint64_t start) { finish_all(); return release(start, DEVICE, DEVICE_BYTES); }
int cuMemHostAlloc(uint64_t *to, size_t bytes, unsigned flags) {
    return flags == 1 ? allocate(to, bytes, PINNED, PINNED_BYTES) : INVALID_VALUE;
}
int cuMemFreeHost(uint64_t start) { return release(start, PINNED, PINNED_BYTES); }

int cuMemHostRegister_v2(uint64_t start, size_t bytes, unsigned flags) {
    if (setting(REFUSE_REGISTRATION)) return NOT_SUPPORTED;
    if (flags != (1 | 2 | 8) || start % 4096 || bytes % 4096 || !bytes) return INVALID_VALUE;
    if (inside(start, 1, REGISTERED)) return ALREADY_REGISTERED;
    add(start, bytes, REGISTERED);
    count(REGISTRATIONS, 1);
    return OK;
}

int cuMemHostUnregister(uint64_t start) {
    if (!take(start, REGISTERED)) return NOT_REGISTERED;
    count(REGISTRATIONS, -1);
    return OK;
}

int cuMemHostGetDevicePointer_v2(uint64_t *device, uint64_t host, unsigned flags) {
    if (flags || !is_host(host, 1)) return INVALID_VALUE;
    *device = host;
    return OK;
}

/* In two halves, each after a nap: what changes a source or reads a target too early tears it. */
static void copy_late(uint64_t to, uint64_t from, size_t bytes, unsigned *seed) {
    if (sticky()) return;
    size_t half = bytes / 2;
    nap(seed);
    memcpy((void *)to, (void *)from, half);
    nap(seed);
    memcpy((void *)(to + half), (void *)(from + half), bytes - half);
}

static void to_device(Op *op, unsigned *seed) {
    nap(seed);
    check_access(op->from, op->owned ? 0 : op->bytes, 0);
    check_access(op->to, op->bytes, 1);
    copy_late(op->to, op->owned ? (uint64_t)op->owned : op->from, op->bytes, seed);
}

static void to_host(Op *op, unsigned *seed) {
    nap(seed);
    check_access(op->from, op->bytes, 0);
    copy_late(op->to, op->from, op->bytes, seed);
}

int cuMemcpyHtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    Op op = { .run = to_device, .to = to, .from = from, .bytes = bytes };
    if (!is_host(from, bytes)) {
        /* Pageable memory is staged before the call returns. */
        op.owned = malloc(bytes);
        memcpy(op.owned, (void *)from, bytes);
    }
    count(COPIES, 1);
    ask(stream, op);
    return sticky();
}

int cuMemcpyDtoHAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    count(COPIES, 1);
    ask(stream, (Op){ .run = to_host, .to = to, .from = from, .bytes = bytes });
    return sticky();
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    count(COPIES, 1);
    ask(stream, (Op){ .run = to_device, .to = to, .from = from, .bytes = bytes });
    return sticky();
}

typedef struct { uint64_t to, from; size_t bytes; } Piece;

/* The pieces in any order. */
static void batch(Op *op, unsigned *seed) {
    Piece *pieces = op->owned;
    for (size_t left = op->count; left; left--) {
        size_t pick = rand_r(seed) % left;
        Piece p = pieces[pick];
        pieces[pick] = pieces[left - 1];
        check_access(p.from, p.bytes, 0);
        check_access(p.to, p.bytes, 1);
        if (left % 16 == 1) nap(seed);
        if (sticky()) return;
        memcpy((void *)p.to, (void *)p.from, p.bytes);
    }
}

typedef struct { int order; int source[2], destination[2]; unsigned flags; } Attributes;

static int ask_batch(const uint64_t *to, const uint64_t *from, const size_t *bytes, size_t pieces, const Attributes *a,
                     const size_t *first, size_t attributes, void *stream) {
    if (!pieces || attributes != 1 || first[0] || a->order != 1 || stream <= (void *)2) return INVALID_VALUE;
    Piece *copy = malloc(pieces * sizeof *copy);
    for (size_t i = 0; i < pieces; i++) copy[i] = (Piece){ to[i], from[i], bytes[i] };
    count(BATCH_COPIES, 1);
    ask(stream, (Op){ .run = batch, .owned = copy, .count = pieces });
    return sticky();
}

#ifndef NO_BATCH_COPY
int cuMemcpyBatchAsync(const uint64_t *to, const uint64_t *from, const size_t *bytes, size_t pieces, const Attributes *a,
                       const size_t *first, size_t attributes, size_t *failed, void *stream) {
    *failed = SIZE_MAX;
    return ask_batch(to, from, bytes, pieces, a, first, attributes, stream);
}
#ifndef NO_BATCH_COPY_V2
int cuMemcpyBatchAsync_v2(const uint64_t *to, const uint64_t *from, const size_t *bytes, size_t pieces,
                          const Attributes *a, const size_t *first, size_t attributes, void *stream) {
    return ask_batch(to, from, bytes, pieces, a, first, attributes, stream);
}
#endif
#endif
