// What forebay.cu needs to compile as C and run on a CPU: the tests' stand-in for the driver sets the indices and calls each
// kernel once a thread. The kernels have no barriers, and where the GPU shares a load between lanes the C form repeats it.
#include <stdint.h>
#include <string.h>

#define KERNEL static void
#define DEVICE static inline
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;

typedef struct { u32 x, y, z; } Index;
static _Thread_local Index blockIdx, threadIdx, blockDim, gridDim;
