// The kernels of forebay-gpu: `forebay_gather` brings rows together, `forebay_finish` makes tensors of them.
//
// The file is compiled twice: by nvcc into forebay.ptx, and as C by the tests' stand-in for the driver, which runs the
// kernels on the CPU (host.h says how). So it keeps to C, plain integers and floats. Multiplications and additions are not
// fused (-fmad=false), so that every result is, to the bit, what the host computes.

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#else
#include "host.h"
#endif

// ---- gather ----------------------------------------------------------------------------------------------------------

// Sixteen bytes, as two little-endian words.
typedef struct { u64 low, high; } Vector;

// What to gather: mirrored by `GatherLaunch` in src/cuda/kernels.rs.
typedef struct {
    const u64 *rows;      // the device address of each row
    const u64 *offsets;   // where each row goes in `out`, and where the last ends; null if all have `row_bytes`
    u8 *out;
    u64 row_bytes;        // of each row, or of the longest if there are offsets
    u32 count;            // rows
    u32 segments;         // parts of SEGMENT vectors that the longest row has
} Gather;

#define SEGMENT 128       // vectors of a row that one warp brings: four loads of each lane, all in flight at once
#define LANES 32
#define LINE 8            // vectors of a line

DEVICE Vector load(u64 address) {
#ifdef __CUDA_ARCH__
    Vector v;
    // Read once, past the first-level cache: host memory comes over the link in whole lines either way.
    asm volatile("ld.global.cv.v2.u64 {%0, %1}, [%2];" : "=l"(v.low), "=l"(v.high) : "l"(address));
    return v;
#else
    return *(const Vector *)address;
#endif
}

DEVICE void store(u64 address, Vector v) {
#ifdef __CUDA_ARCH__
    asm volatile("st.global.v2.u64 [%0], {%1, %2};" : : "l"(address), "l"(v.low), "l"(v.high) : "memory");
#else
    *(Vector *)address = v;
#endif
}

// The vector that starts `shift` bytes (1 to 15) into the 32 bytes `a`, `b`.
DEVICE Vector funnel(Vector a, Vector b, u32 shift) {
    u64 w0 = a.low, w1 = a.high, w2 = b.low;
    if (shift >= 8) { w0 = a.high; w1 = b.low; w2 = b.high; }
    u32 bits = (shift & 7) * 8;
    Vector v;
    // Shifted in two steps: a shift by 64 is not defined.
    v.low = (w0 >> bits) | (w1 << 1 << (63 - bits));
    v.high = (w1 >> bits) | (w2 << 1 << (63 - bits));
    return v;
}

// One warp brings one segment of one row. Loads and stores are 16 bytes wide and aligned whatever the row's alignment: what
// is aligned at the source is shifted into what is aligned at the destination. An aligned vector that holds a byte of the
// row lies in the row's pages, so reading all of it is in bounds.
KERNEL forebay_gather(Gather g) {
    u64 warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    u64 warps = (u64)gridDim.x * blockDim.x / LANES;
    u32 lane = threadIdx.x % LANES;
    u64 units = (u64)g.count * g.segments;
    for (u64 unit = warp; unit < units; unit += warps) {
        u32 row = (u32)(unit / g.segments), segment = (u32)(unit % g.segments);
        u64 at = g.offsets ? g.offsets[row] : row * g.row_bytes;
        u64 bytes = g.offsets ? g.offsets[row + 1] - at : g.row_bytes;
        u64 from = g.rows[row], to = (u64)g.out + at;
        u64 head = (16 - to % 16) % 16;
        if (head > bytes) head = bytes;
        u64 vectors = (bytes - head) / 16;
        if (segment == 0) {
            u64 tail = bytes - head - vectors * 16, done = bytes - tail;
            if (lane < head) *(u8 *)(to + lane) = *(const u8 *)(from + lane);
            if (lane < tail) *(u8 *)(to + done + lane) = *(const u8 *)(from + done + lane);
        }
        from += head;
        to += head;
        u32 shift = (u32)(from % 16);
        u64 base = from - shift;
        // Segments start where a line of the source does, so that a warp asks the link for whole lines.
        i64 first = (i64)segment * SEGMENT - (i64)(base / 16 % LINE), last = (i64)vectors;
        if (first >= last) continue;
        Vector v[SEGMENT / LANES];
        for (u32 k = 0; k < SEGMENT / LANES; k++) {
            i64 i = first + lane + k * LANES;
            // Shifted vectors are made of two, so of one more than there are.
            if (i >= 0 && i < last + (shift != 0)) v[k] = load(base + i * 16);
        }
        for (u32 k = 0; k < SEGMENT / LANES; k++) {
            i64 i = first + lane + k * LANES;
            if (shift == 0) {
                if (i >= 0 && i < last) store(to + i * 16, v[k]);
                continue;
            }
            Vector next;
#ifdef __CUDA_ARCH__
            // The vector after is the next lane's; after the last lane's comes the first lane's of the next round.
            u64 low = v[k].low, high = v[k].high;
            if (lane == 0 && k + 1 < SEGMENT / LANES) { low = v[k + 1].low; high = v[k + 1].high; }
            next.low = __shfl_sync(0xffffffffu, low, (lane + 1) % LANES);
            next.high = __shfl_sync(0xffffffffu, high, (lane + 1) % LANES);
            if (lane == LANES - 1 && k + 1 == SEGMENT / LANES && i < last) next = load(base + (i + 1) * 16);
#else
            if (i >= 0 && i < last) next = load(base + (i + 1) * 16);
#endif
            if (i >= 0 && i < last) store(to + i * 16, funnel(v[k], next, shift));
        }
    }
}

// ---- finish ----------------------------------------------------------------------------------------------------------

// An image, and the part of it that becomes its output: mirrored by `WindowLaunch` in src/cuda/kernels.rs. The first of each
// pair is of rows, the second of columns.
typedef struct {
    u64 start;            // of the image in `in`, in bytes
    u64 step[2];          // pixels of the part a pixel of the resized part, in 2^-32
    u32 size[2];          // of the image, in pixels
    u32 corner[2];        // of the part
    u32 part[2];          // size of the part
    u32 skip[2];          // pixels of the resized part that are cropped before the first
    u32 mirror;           // 1 to mirror left and right
    u32 pad;
} Window;

#define CHANNELS 8

// What to finish: mirrored by `FinishLaunch` in src/cuda/kernels.rs.
typedef struct {
    const u8 *in;         // the rows, one behind the other
    u8 *out;
    const Window *windows;   // one a row
    u64 in_bytes;         // of all rows
    u32 count;            // rows
    u32 channels;
    u32 out_height, out_width;
    u32 in_planar, out_planar;            // 1 for [channels, height, width], 0 for [height, width, channels]
    u32 nearest;          // 1 to take the nearest pixel, 0 to blend
    u32 type;             // of the output: 0 u8, 1 f16, 2 bf16, 3 f32
    float scale[CHANNELS];                // divided by 65536
    float bias[CHANNELS];
} Finish;

DEVICE u32 float_bits(float x) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(x);
#else
    u32 bits;
    memcpy(&bits, &x, 4);
    return bits;
#endif
}

// To nearest, ties to even. No input is a NaN: scale and bias are finite and values are small.
DEVICE u16 to_bf16(float x) {
    u32 bits = float_bits(x);
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// To nearest, ties to even.
DEVICE u16 to_f16(float x) {
#ifdef __CUDA_ARCH__
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
#else
    u32 bits = float_bits(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x47800000) return (u16)(sign | 0x7c00);
    if (magnitude < 0x38800000) {
        if (magnitude < 0x33000000) return (u16)sign;
        u32 shift = 126 - (magnitude >> 23), mantissa = (magnitude & 0x7fffff) | 0x800000;
        u32 half = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), tie = 1u << (shift - 1);
        if (rest > tie || (rest == tie && (half & 1))) half++;
        return (u16)(sign | half);
    }
    magnitude -= 0x38000000;
    return (u16)(sign | (magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13);
#endif
}

// Where pixel `x` of the resized part falls: the pixel before, and how far to the next in 1/256. Centres fall on centres. Or the
// pixel that its centre falls on.
DEVICE u32 place(u32 x, u64 step, u32 length, u32 nearest, u32 *weight) {
    i64 at = (i64)(x * step + step / 2) - (nearest ? 0 : 0x80000000ll);
    if (at < 0) at = 0;
    u32 before = (u32)(at >> 32);
    *weight = nearest ? 0 : (u32)(at >> 24) & 255;
    if (before >= length - 1) { before = length - 1; *weight = 0; }
    return before;
}

// One thread makes one pixel of the output, all channels of it.
KERNEL forebay_finish(Finish f) {
    u64 pixels = (u64)f.out_height * f.out_width, total = pixels * f.count;
    u64 in_step = f.in_planar ? 1 : f.channels;
    u64 out_step = f.out_planar ? 1 : f.channels, out_plane = f.out_planar ? pixels : 1;
    u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += stride) {
        u32 row = (u32)(i / pixels), pixel = (u32)(i % pixels);
        u32 y = pixel / f.out_width, x = pixel % f.out_width;
        Window w = f.windows[row];
        if (w.mirror) x = f.out_width - 1 - x;
        u32 down, across;
        u32 y0 = w.corner[0] + place(y + w.skip[0], w.step[0], w.part[0], f.nearest, &down);
        u32 x0 = w.corner[1] + place(x + w.skip[1], w.step[1], w.part[1], f.nearest, &across);
        const u8 *from = f.in + w.start + ((u64)y0 * w.size[1] + x0) * in_step;
        u64 below = down ? w.size[1] * in_step : 0, right = across ? in_step : 0;
        u64 in_plane = f.in_planar ? (u64)w.size[0] * w.size[1] : 1;
        u64 to = row * pixels * f.channels + pixel * out_step;
        for (u32 c = 0; c < f.channels; c++) {
            const u8 *p = from + c * in_plane;
            // In 1/65536, and exact: 255 * 65536 < 2^24.
            u32 value = (p[0] * (256 - across) + p[right] * across) * (256 - down)
                      + (p[below] * (256 - across) + p[below + right] * across) * down;
            u64 at = to + c * out_plane;
            if (f.type == 0) {
                f.out[at] = (u8)((value + 32768) >> 16);
                continue;
            }
            float product = (float)value * f.scale[c], result = product + f.bias[c];
            if (f.type == 1) ((u16 *)f.out)[at] = to_f16(result);
            else if (f.type == 2) ((u16 *)f.out)[at] = to_bf16(result);
            else ((float *)f.out)[at] = result;
        }
    }
}
