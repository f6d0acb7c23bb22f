/* The kernels themselves, compiled as C and run a thread at a time, and the driver's calls for them. */
#include "mock.h"
#include "../../kernels/forebay.cu"

typedef struct {
    enum { GATHER, FINISH } which;
    unsigned grid[3], block[3];
    union { Gather gather; Finish finish; } argument;
} Launch;

static void check_gather(const Gather *g) {
    check_access((uint64_t)g->rows, g->count * 8, 0);
    if (g->offsets) check_access((uint64_t)g->offsets, (g->count + 1) * 8, 0);
    for (u32 i = 0; i < g->count; i++) {
        u64 at = g->offsets ? g->offsets[i] : i * g->row_bytes;
        u64 bytes = g->offsets ? g->offsets[i + 1] - at : g->row_bytes;
        check_access(g->rows[i], bytes, 0);
        check_access((uint64_t)g->out + at, bytes, 1);
    }
}

static void check_finish(const Finish *f) {
    static const u64 sizes[] = { 1, 2, 2, 4 };
    u64 out = (u64)f->count * f->out_height * f->out_width * f->channels * sizes[f->type];
    check_access((uint64_t)f->in, f->in_bytes, 0);
    check_access((uint64_t)f->windows, f->count * sizeof(Window), 0);
    check_access((uint64_t)f->out, out, 1);
    if (sticky()) return;
    /* Windows are where a kernel that runs before its plan is there would read wild. */
    for (u32 i = 0; i < f->count; i++) {
        Window w = f->windows[i];
        if (w.start + (u64)w.size[0] * w.size[1] * f->channels > f->in_bytes) count(VIOLATIONS, 1);
        for (int axis = 0; axis < 2; axis++)
            if (w.corner[axis] + (u64)w.part[axis] > w.size[axis] || !w.part[axis]) count(VIOLATIONS, 1);
    }
}

static void run(Op *op, unsigned *seed) {
    Launch *l = op->owned;
    nap(seed);
    if (l->which == GATHER) check_gather(&l->argument.gather);
    else check_finish(&l->argument.finish);
    if (sticky()) return;
    blockDim = (Index){ l->block[0], l->block[1], l->block[2] };
    gridDim = (Index){ l->grid[0], l->grid[1], l->grid[2] };
    for (u32 block = 0; block < l->grid[0]; block++) {
        blockIdx.x = block;
        if (block == l->grid[0] / 2) nap(seed);
        for (u32 thread = 0; thread < l->block[0]; thread++) {
            threadIdx.x = thread;
            if (l->which == GATHER) forebay_gather(l->argument.gather);
            else forebay_finish(l->argument.finish);
        }
    }
}

int cuModuleLoadDataEx(void **module, const char *image, unsigned options, void *names, void *values) {
    (void)names, (void)values, (void)options;
    *module = strdup(image);
    return strstr(image, ".target sm_75") ? OK : 218;
}
int cuModuleUnload(void *module) { free(module); return OK; }
int cuModuleGetFunction(void **function, const char *module, const char *name) {
    if (!strstr(module, name)) return 500;
    *function = (void *)(uintptr_t)(1 + (strcmp(name, "forebay_finish") == 0));
    return OK;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    if (gy != 1 || gz != 1 || by != 1 || bz != 1 || shared || extra) return INVALID_VALUE;
    Launch *l = calloc(1, sizeof *l);
    *l = (Launch){ .which = (uintptr_t)function - 1, .grid = { gx, gy, gz }, .block = { bx, by, bz } };
    memcpy(&l->argument, arguments[0], l->which == GATHER ? sizeof(Gather) : sizeof(Finish));
    count(LAUNCHES, 1);
    ask(stream, (Op){ .run = run, .owned = l });
    return sticky();
}
