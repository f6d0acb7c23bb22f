/* A stand-in for the CUDA driver: device memory is host memory, a stream is a thread, kernels run on the CPU.
 *
 * It is as unkind as the real one may be: work is done late and in pieces, what was never ordered runs in any order, and
 * memory that is given back is gone. Every access is checked against what is allocated and registered at the time the
 * work is *done*; a wrong one counts as a violation, and is a sticky error as on a device. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_READY = 600, ILLEGAL_ADDRESS = 700, ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713, NOT_SUPPORTED = 801, NO_DEVICE = 100, CAPTURE_ISOLATION = 905,
};

typedef struct Stream Stream;
typedef struct Event Event;
typedef struct Op Op;

/* Work of a stream: `run` does it with what follows. */
struct Op {
    void (*run)(Op *, unsigned *seed);
    Op *next;
    Event *event;
    uint64_t generation;
    uint64_t to, from;
    size_t bytes;
    void *owned;          /* freed after the op */
    size_t count;
};

/* What the tests set and read: `mock_set`, `mock_get`. */
enum Setting {
    DELAY_US, REFUSE_REGISTRATION, FAIL_ALLOCATION, FORGET_WAITS, FORGET_SYNCHRONIZE, CAPTURING, VIOLATIONS, DEVICE_BYTES,
    PINNED_BYTES, REGISTRATIONS, STREAMS, EVENTS, LAUNCHES, BATCH_COPIES, COPIES, CONTEXTS, SETTINGS
};
extern long settings[SETTINGS];
static inline long setting(enum Setting which) { return __atomic_load_n(&settings[which], __ATOMIC_SEQ_CST); }
static inline long count(enum Setting which, long by) { return __atomic_add_fetch(&settings[which], by, __ATOMIC_SEQ_CST); }

/* memory.c */
enum Kind { DEVICE, PINNED, REGISTERED };
int is_host(uint64_t start, size_t bytes);               /* pinned or registered */
void check_access(uint64_t start, size_t bytes, int write);
void nap(unsigned *seed);

/* stream.c */
void ask(void *stream, Op op);
void finish_all(void);
int sticky(void);

/* kernels.c */
void *kernel(const char *name);
void launch(void *function, const unsigned grid[3], const unsigned block[3], void *argument, void *stream);
