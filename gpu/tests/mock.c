/* A stand-in for the CUDA driver's library: as many functions as discovery calls. */
#include <stddef.h>
#include <string.h>

#ifndef DEVICES
#define DEVICES 2
#endif
#ifndef INIT
#define INIT 0
#endif

static int initialised;

int cuInit(unsigned flags) {
    initialised = flags == 0 && INIT == 0;
    return INIT;
}
int cuDriverGetVersion(int *version) {
    *version = 12080;
    return 0;
}
int cuDeviceGetCount(int *count) {
    if (!initialised) return 3;
    *count = DEVICES;
    return 0;
}
int cuDeviceGet(int *device, int ordinal) {
    *device = 40 + ordinal;
    return 0;
}
int cuDeviceGetName(char *name, int length, int device) {
    strncpy(name, device == 40 ? "Mock One" : "Mock Two", length);
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
#ifdef BROKEN_SECOND
    if (device == 41) return 46;
#endif
    *value = attribute == 75 ? 9 : attribute == 76 ? device - 40 : -1;
    return 0;
}
#ifndef NO_MEMORY
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = (size_t)(device - 39) << 36;
    return 0;
}
#endif
int cuGetErrorString(int code, const char **text) {
    *text = code == 100 ? "no CUDA-capable device is detected" : code == 46 ? "device unavailable" : NULL;
    return *text ? 0 : 1;
}
