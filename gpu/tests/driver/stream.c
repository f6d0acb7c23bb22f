/* Streams and events. */
#include "mock.h"

struct Stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    Op *first, *last;
    int busy, stop, blocking;
    unsigned seed;
    Stream *next;
};

struct Event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t recorded, done;
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static Stream *all, *legacy, *per_thread;
static unsigned made;

int sticky(void) { return setting(VIOLATIONS) ? ILLEGAL_ADDRESS : OK; }

static void *work(void *argument) {
    Stream *s = argument;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->stop) pthread_cond_wait(&s->changed, &s->lock);
        if (!s->first) break;
        Op *op = s->first;
        s->first = op->next;
        if (!s->first) s->last = NULL;
        s->busy = 1;
        pthread_mutex_unlock(&s->lock);
        op->run(op, &s->seed);
        free(op->owned);
        free(op);
        pthread_mutex_lock(&s->lock);
        s->busy = 0;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static Stream *make(int blocking) {
    Stream *s = calloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->blocking = blocking;
    s->seed = ++made * 2654435761u;
    s->next = all;
    all = s;
    pthread_create(&s->thread, NULL, work, s);
    return s;
}

static void push(Stream *s, Op op) {
    Op *copy = malloc(sizeof op);
    *copy = op;
    copy->next = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->last) s->last->next = copy;
    else s->first = copy;
    s->last = copy;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void signal_event(Op *op, unsigned *seed) {
    (void)seed;
    Event *e = op->event;
    pthread_mutex_lock(&e->lock);
    if (op->generation > e->done) e->done = op->generation;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

static void wait_event(Op *op, unsigned *seed) {
    (void)seed;
    Event *e = op->event;
    pthread_mutex_lock(&e->lock);
    while (e->done < op->generation) pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

static Event *new_event(void) {
    Event *e = calloc(1, sizeof *e);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    return e;
}

static void record(Event *e, Stream *s) {
    pthread_mutex_lock(&e->lock);
    uint64_t generation = ++e->recorded;
    pthread_mutex_unlock(&e->lock);
    push(s, (Op){ .run = signal_event, .event = e, .generation = generation });
}

static void hold_back(Stream *s, Event *e) {
    pthread_mutex_lock(&e->lock);
    uint64_t generation = e->recorded;
    pthread_mutex_unlock(&e->lock);
    if (generation) push(s, (Op){ .run = wait_event, .event = e, .generation = generation });
}

/* Puts what `behind` is asked next behind what `s` was asked so far. These events are left to the end of the process. */
static void order(Stream *behind, Stream *s) {
    Event *e = new_event();
    record(e, s);
    hold_back(behind, e);
}

static Stream *resolve(void *stream) {
    if (!legacy) legacy = make(1);
    if (!per_thread) per_thread = make(1);
    if (stream == NULL || stream == (void *)1) return legacy;
    if (stream == (void *)2) return per_thread;
    return stream;
}

/* The legacy stream waits for all blocking streams, and they for it. */
static void implicit_order(Stream *s) {
    if (s == legacy) {
        for (Stream *other = all; other; other = other->next)
            if (other != s && other->blocking) order(s, other);
    } else if (s->blocking) {
        order(s, legacy);
    }
}

void ask(void *stream, Op op) {
    pthread_mutex_lock(&all_lock);
    Stream *s = resolve(stream);
    implicit_order(s);
    push(s, op);
    pthread_mutex_unlock(&all_lock);
}

static void drain(Stream *s) {
    pthread_mutex_lock(&s->lock);
    while (s->first || s->busy) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void finish_all(void) {
    pthread_mutex_lock(&all_lock);
    for (Stream *s = all; s; s = s->next) drain(s);
    pthread_mutex_unlock(&all_lock);
}

int cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) {
    (void)priority;
    pthread_mutex_lock(&all_lock);
    *stream = make(!(flags & 1));
    pthread_mutex_unlock(&all_lock);
    count(STREAMS, 1);
    return OK;
}

int cuStreamDestroy_v2(Stream *stream) {
    pthread_mutex_lock(&all_lock);
    for (Stream **at = &all; *at; at = &(*at)->next)
        if (*at == stream) { *at = stream->next; break; }
    pthread_mutex_unlock(&all_lock);
    pthread_mutex_lock(&stream->lock);
    stream->stop = 1;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    free(stream);
    count(STREAMS, -1);
    return OK;
}

int cuStreamSynchronize(void *stream) {
    pthread_mutex_lock(&all_lock);
    Stream *s = resolve(stream);
    pthread_mutex_unlock(&all_lock);
    drain(s);
    return sticky();
}

int cuStreamIsCapturing(void *stream, int *status) {
    *status = (long)stream == setting(CAPTURING) && stream != NULL;
    return OK;
}

int cuStreamWaitEvent(void *stream, Event *event, unsigned flags) {
    if (flags) return INVALID_VALUE;
    if (setting(FORGET_WAITS)) return OK;
    pthread_mutex_lock(&all_lock);
    Stream *s = resolve(stream);
    implicit_order(s);
    hold_back(s, event);
    pthread_mutex_unlock(&all_lock);
    return OK;
}

int cuEventCreate(Event **event, unsigned flags) {
    if (!(flags & 2)) return INVALID_VALUE;
    *event = new_event();
    count(EVENTS, 1);
    return OK;
}

/* Its memory stays: what waits for it may not have run yet. */
int cuEventDestroy_v2(Event *event) {
    (void)event;
    count(EVENTS, -1);
    return OK;
}

int cuEventRecord(Event *event, void *stream) {
    if (stream && (long)stream == setting(CAPTURING)) return CAPTURE_ISOLATION;
    pthread_mutex_lock(&all_lock);
    Stream *s = resolve(stream);
    implicit_order(s);
    record(event, s);
    pthread_mutex_unlock(&all_lock);
    return OK;
}

int cuEventQuery(Event *event) {
    pthread_mutex_lock(&event->lock);
    int ready = event->done >= event->recorded;
    pthread_mutex_unlock(&event->lock);
    return ready ? sticky() : NOT_READY;
}

int cuEventSynchronize(Event *event) {
    if (setting(FORGET_SYNCHRONIZE)) return OK;
    pthread_mutex_lock(&event->lock);
    uint64_t until = event->recorded;
    while (event->done < until) pthread_cond_wait(&event->changed, &event->lock);
    pthread_mutex_unlock(&event->lock);
    return sticky();
}
