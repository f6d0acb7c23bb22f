/* Devices and contexts: two devices, each with a primary context. */
#include "mock.h"

static __thread void *stack[16];
static __thread int depth;

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }
int cuDriverGetVersion(int *version) { *version = 13000; return OK; }
int cuDeviceGetCount(int *count) { *count = 2; return OK; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal >= 0 && ordinal < 2 ? OK : 101; }
int cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "Mock %d", device); return OK; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = (size_t)1 << 34; return OK; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 2 : attribute == 113;
    return OK;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = (void *)(uintptr_t)(0x100 + device);
    count(CONTEXTS, 1);
    return OK;
}
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; count(CONTEXTS, -1); return OK; }
int cuCtxSetCurrent(void *context) {
    if (context) { if (!depth) depth = 1; stack[depth - 1] = context; }
    else if (depth) depth--;
    return OK;
}
int cuCtxGetCurrent(void **context) { *context = depth ? stack[depth - 1] : NULL; return OK; }
int cuCtxPushCurrent_v2(void *context) { stack[depth++] = context; return OK; }
int cuCtxPopCurrent_v2(void **context) {
    if (!depth) return 201;
    *context = stack[--depth];
    return OK;
}
int cuCtxSynchronize(void) { finish_all(); return sticky(); }
/* How deep this thread's stack of contexts is: calls that leave it otherwise meddle with their caller's. */
int mock_depth(void) { return depth; }
int cuThreadExchangeStreamCaptureMode(int *mode) {
    static __thread int current;
    int before = current;
    current = *mode;
    *mode = before;
    return OK;
}
int cuGetErrorString(int code, const char **text) {
    *text = code == OUT_OF_MEMORY ? "out of memory" : code == NOT_SUPPORTED ? "operation not supported"
          : code == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : NULL;
    return *text ? OK : INVALID_VALUE;
}
