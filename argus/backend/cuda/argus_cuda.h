// The device library for NVIDIA GPUs (sm_80 and later): inline PTX, no headers of the CUDA toolkit.
// Functions and their meanings: argus/backend/device_api.py. Document: PTX ISA 9.0.
//
// Order. What touches shared memory is volatile assembly, which no compiler reorders; what also touches global
// memory says so ("memory"), so no access comes before `begin`.
#pragma once

#define ARGUS_FN __device__ __forceinline__
#define ARGUS_WARP_SIZE 32
#define ARGUS_RESTRICT __restrict__
#define ARGUS_GRID_CONSTANT const __grid_constant__
#define ARGUS_KERNEL(name, threads) extern "C" __global__ void __launch_bounds__(threads) name
#define ARGUS_ROLES_KERNEL(name, threads) extern "C" __global__ void __launch_bounds__(threads, 1) name
#define ARGUS_CLUSTER_KERNEL(name, threads, blocks) \
    extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(threads, 1) name
#define ARGUS_SHARED(smem, bytes)                                       \
    extern __shared__ __align__(1024) unsigned char argus_dynamic[];    \
    const argus::shared_t smem = argus::target::shared_address(argus_dynamic)

#include "argus_numeric.h"

namespace argus::target {
ARGUS_FN unsigned bits_of(float x) { return __float_as_uint(x); }
ARGUS_FN float float_of(unsigned bits) { return __uint_as_float(bits); }
}  // namespace argus::target

#include "argus_math.h"

namespace argus {

using shared_t = unsigned;  // an address in the shared window

namespace target {

ARGUS_FN float f16_to_float(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
ARGUS_FN float bf16_to_float(unsigned short bits) {
    float x;
    // Not a shift: halves that come out of one register go to the next in one instruction each.
    asm("mov.b32 %0, {%1, %2};" : "=f"(x) : "h"(static_cast<unsigned short>(0)), "h"(bits));
    return x;
}
ARGUS_FN unsigned short float_to_f16(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
ARGUS_FN unsigned short float_to_bf16(float x) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

#if __CUDA_ARCH__ >= 890
ARGUS_FN float e4m3fn_to_float(unsigned char bits) {
    unsigned halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(bits)));
    return f16_to_float(static_cast<unsigned short>(halves));
}
ARGUS_FN unsigned char float_to_e4m3fn(float x) {
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return static_cast<unsigned char>(pair);
}
ARGUS_FN unsigned char float_to_e5m2(float x) {
    unsigned short pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    // The instruction stays finite; 61440 is half way between the largest number and what follows it.
    const bool infinite = detail::magnitude(x) >= 61440.0f;
    return static_cast<unsigned char>(infinite ? (bits_of(x) >> 24 & 0x80u) | 0x7cu : pair);
}
#else
ARGUS_FN float e4m3fn_to_float(unsigned char bits) { return detail::decode_e4m3fn(bits); }
ARGUS_FN unsigned char float_to_e4m3fn(float x) { return detail::encode_e4m3fn(x); }
ARGUS_FN unsigned char float_to_e5m2(float x) { return detail::encode_e5m2(x); }
#endif

ARGUS_FN int float_to_int(float x) {
    int whole;
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(whole) : "f"(x));
    return whole;
}
ARGUS_FN i64 float_to_i64(float x) {
    i64 whole;
    asm("cvt.rzi.s64.f32 %0, %1;" : "=l"(whole) : "f"(x));
    return x != x ? 0 : whole;  // unlike the 32-bit conversion, this one turns NaN into the smallest number
}

ARGUS_FN float minimum(float x, float y) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
}
ARGUS_FN float maximum(float x, float y) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
}

// The compilers' own functions, within 2 ulp; only exp2 and rsqrt are the bare instructions (2 ulp as well). Keeping
// subnormal results of exp2 would take three instructions more.
ARGUS_FN float fused(float x, float y, float z) { return __fmaf_rn(x, y, z); }
ARGUS_FN float modulo(float x, float y) { return ::fmodf(x, y); }
ARGUS_FN float exp(float x) { return ::expf(x); }
ARGUS_FN float exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
ARGUS_FN float log(float x) { return ::logf(x); }
ARGUS_FN float log2(float x) { return ::log2f(x); }
ARGUS_FN float sqrt(float x) { return ::sqrtf(x); }
ARGUS_FN float rsqrt(float x) {
    float result;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
ARGUS_FN float inverse_approx(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
ARGUS_FN float tanh(float x) { return ::tanhf(x); }
ARGUS_FN float tanh_approx(float x) {
    float result;
    asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
ARGUS_FN float erf(float x) { return ::erff(x); }
// The compilers' own reduce large angles by an array in memory.
ARGUS_FN float sin(float x) { return formula::sin(x); }
ARGUS_FN float cos(float x) { return formula::cos(x); }
ARGUS_FN float sigmoid(float x) { return 1.0f / (1.0f + ::expf(-x)); }
ARGUS_FN float floor(float x) { return ::floorf(x); }
ARGUS_FN float ceil(float x) { return ::ceilf(x); }

ARGUS_FN shared_t shared_address(const void* pointer) {
    return static_cast<shared_t>(__cvta_generic_to_shared(pointer));
}
ARGUS_FN unsigned long long global_address(const void* pointer) {
    return static_cast<unsigned long long>(__cvta_generic_to_global(pointer));
}

// What moves BYTES at once.
template <int BYTES> struct Word;
template <> struct Word<1> { using type = unsigned char; };
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

template <int N, class T> using word = typename Word<N * static_cast<int>(sizeof(T))>::type;
template <int N, class T> ARGUS_FN word<N, T>& at(T* p) { return *reinterpret_cast<word<N, T>*>(p); }
template <int N, class T> ARGUS_FN const word<N, T>& at(const T* p) {
    return *reinterpret_cast<const word<N, T>*>(p);
}
template <class T> ARGUS_FN unsigned* words(T* p) { return reinterpret_cast<unsigned*>(p); }
template <class T> ARGUS_FN const unsigned* words(const T* p) { return reinterpret_cast<const unsigned*>(p); }

// A tensor of tf32 is one of float32, whose last 13 bits the products drop: rounded before, they lose half as much and
// towards no side.
ARGUS_FN unsigned nearest_tf32(unsigned bits) {
    unsigned result;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(float_of(bits)));
    return result;
}

}  // namespace target

// ---- launches and ids

// Blocks of the next launch may come once all of this one's have said so or ended (the driver is told so at every
// launch). They wait in `begin`, with the indices of their first accesses computed.
template <class... A> ARGUS_FN void print(const char* format, A... values) { printf(format, values...); }
template <class... A> ARGUS_FN void fail(const char* format, A... values) {
    printf(format, values...);
    printf("\n");
    __assertfail("al.device_assert", "see the line before", 0, "kernel", 1);
}

ARGUS_FN void launch_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
ARGUS_FN void begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
ARGUS_FN int thread_id() { return static_cast<int>(threadIdx.x); }
template <int AXIS> ARGUS_FN int block_id() {
    return static_cast<int>(AXIS == 0 ? blockIdx.x : AXIS == 1 ? blockIdx.y : blockIdx.z);
}
ARGUS_FN void anew(int& x) { asm volatile("" : "+r"(x)); }
template <int CLUSTER = 1> ARGUS_FN int next_program(int program) {
    return detail::next_program(program, block_id<0>() / CLUSTER, static_cast<int>(gridDim.x) / CLUSTER);
}
template <int GROUP, int CLUSTER = 1> ARGUS_FN BlockIds grouped_block_ids(int rows, int columns) {
    const BlockIds at = detail::grouped(GROUP, {block_id<0>() / CLUSTER, block_id<1>()}, rows, columns);
    return {at.x * CLUSTER + block_id<0>() % CLUSTER, at.y};
}

// ---- conversions of several numbers

template <int N, class T> ARGUS_FN void narrow(const float* from, T* to) {
#if __CUDA_ARCH__ >= 890
    if constexpr (detail::same<T, e4m3fn> && N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 2)
            asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
                : "=h"(target::at<2>(to + i)) : "f"(from[i + 1]), "f"(from[i]));
        return;
    }
#endif
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = cast<T>(from[i]);
}

namespace target {
// The halves `word` as 16-bit floats of the other format or the same.
template <class T> ARGUS_FN unsigned from_f16x2(unsigned halves) {
    if constexpr (detail::same<T, f16>) return halves;
    float first, second;
    unsigned both;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
        : "=f"(first), "=f"(second) : "r"(halves));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}
// Two bytes of `word`, plus 128, as floats: the last bits of an f16 from 1024 on, or as many times the least bf16.
template <class T> ARGUS_FN unsigned from_bytes(unsigned word, bool upper) {
    unsigned both;
    if constexpr (detail::same<T, f16>) {
        const unsigned bits = __byte_perm(word, 0x64646464u, upper ? 0x4342 : 0x4140);
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(both) : "r"(bits), "r"(0x64806480u));
    } else {
        const unsigned bits = __byte_perm(word, 0u, upper ? 0x4342 : 0x4140);
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(both) : "r"(bits), "r"(0x7f007f00u), "r"(0xc000c000u));
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(both) : "r"(both), "r"(0x42804280u), "r"(0x80008000u));
    }
    return both;
}
}  // namespace target

template <int N, class From, class To> ARGUS_FN void widen(const From* from, To* to) {
    constexpr bool bytes = detail::same<From, i8>;
#if __CUDA_ARCH__ >= 890
    constexpr bool floats = detail::same<From, e4m3fn> || detail::same<From, e5m2>;
#else
    constexpr bool floats = false;
#endif
    if constexpr ((bytes || floats) && N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const unsigned word = target::at<4>(from + i);
            unsigned &low = target::at<2>(to + i), &high = target::at<2>(to + i + 2);
            if constexpr (bytes) {
                low = target::from_bytes<To>(word ^ 0x80808080u, false);
                high = target::from_bytes<To>(word ^ 0x80808080u, true);
            } else {
                unsigned first, second;
                if constexpr (detail::same<From, e5m2>)
                    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e5m2x2 %0, l; cvt.rn.f16x2.e5m2x2 %1, h;}"
                        : "=r"(first), "=r"(second) : "r"(word));
                else
                    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
                        : "=r"(first), "=r"(second) : "r"(word));
                low = target::from_f16x2<To>(first);
                high = target::from_f16x2<To>(second);
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) to[i] = cast<To>(from[i]);
    }
}

// The bits of a number below 256 are, in either format, as many times the least subnormal number. So a product with a
// power of 2 makes two numbers of the bits where they stand, if they begin in the lower byte of each half.
template <int MOST, class T> ARGUS_FN void fractions(unsigned word, int place, T less, T* to) {
    const int left = (MOST << place % 8) < 256 ? place % 8 : 0;
    const unsigned bits = word >> (place - left) & (unsigned(MOST) << left) * 65537u;
    const unsigned minus = *reinterpret_cast<const unsigned short*>(&less) * 65537u ^ 0x80008000u;
    if constexpr (detail::same<T, f16>) {
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(target::at<2>(to))
            : "r"(bits), "r"(unsigned(30 - left) * 0x04000400u), "r"(minus));
    } else {
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(target::at<2>(to))
            : "r"(bits), "r"(unsigned(254 - left) * 0x00800080u), "r"(minus));
    }
}

// ---- global memory

// Whole vectors are the last to leave the caches: kernels that write as much as they read are 3 % faster then. Words
// around vectors that begin anywhere are not.
template <int N, class T> ARGUS_FN void load_global_if(bool p, const T* base, i64 offset, T* dst) {
    constexpr int bytes = N * static_cast<int>(sizeof(T));
    const auto address = target::global_address(base + offset);
    const int on = p;
    if constexpr (bytes == 16) {
        uint4& to = target::at<N>(dst);
#if __CUDA_ARCH__ >= 900
        if constexpr (!detail::same<T, uint4>) {
            unsigned long long policy;
            asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
            asm volatile("{.reg .pred p; setp.ne.b32 p, %4, 0;"
                         " @p ld.global.L1::evict_last.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%5], %6;}"
                         : "+r"(to.x), "+r"(to.y), "+r"(to.z), "+r"(to.w)
                         : "r"(on), "l"(address), "l"(policy) : "memory");
            return;
        }
#endif
        asm volatile("{.reg .pred p; setp.ne.b32 p, %4, 0; @p ld.global.v4.u32 {%0, %1, %2, %3}, [%5];}"
                     : "+r"(to.x), "+r"(to.y), "+r"(to.z), "+r"(to.w) : "r"(on), "l"(address) : "memory");
    } else if constexpr (bytes == 8) {
        uint2& to = target::at<N>(dst);
        asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.v2.u32 {%0, %1}, [%3];}"
                     : "+r"(to.x), "+r"(to.y) : "r"(on), "l"(address) : "memory");
    } else if constexpr (bytes == 4) {
        asm volatile("{.reg .pred p; setp.ne.b32 p, %1, 0; @p ld.global.u32 %0, [%2];}"
                     : "+r"(target::at<N>(dst)) : "r"(on), "l"(address) : "memory");
    } else if constexpr (bytes == 2) {
        asm volatile("{.reg .pred p; setp.ne.b32 p, %1, 0; @p ld.global.u16 %0, [%2];}"
                     : "+h"(target::at<N>(dst)) : "r"(on), "l"(address) : "memory");
    } else {
        unsigned to = target::at<N>(dst);
        asm volatile("{.reg .pred p; setp.ne.b32 p, %1, 0; @p ld.global.u8 %0, [%2];}"
                     : "+r"(to) : "r"(on), "l"(address) : "memory");
        target::at<N>(dst) = static_cast<unsigned char>(to);
    }
}

template <int N, class T> ARGUS_FN void load_global(const T* base, i64 offset, T* dst) {
    load_global_if<N>(true, base, offset, dst);
}

template <int N, class T> ARGUS_FN void load_global_or(bool p, const T* base, i64 offset, T* dst, T other) {
#pragma unroll
    for (int i = 0; i < N; ++i) dst[i] = other;
    load_global_if<N>(p, base, offset, dst);
}

// Whether two aligned words of 16 bytes that a vector of N elements lies in are inside, or nothing is read at all.
template <int N> ARGUS_FN bool is_amid(bool p, int at, int end) {
    return !p || (at < end && static_cast<unsigned>(end) - static_cast<unsigned>(at) >= 2u * N);
}

// What a vector of 16 bytes is made of: bytes `skip` to `skip` + 15 of two words.
struct Words {
    uint4 low, high;
    unsigned skip;
};

// Two aligned words around the vector, zeros where not p.
template <int N, class T> ARGUS_FN void load_words_amid(bool p, const T* base, i64 offset, Words& to) {
    static_assert(N * sizeof(T) == 16, "vectors of 16 bytes");
    const auto address = reinterpret_cast<unsigned long long>(base + offset);
    to.skip = static_cast<unsigned>(address) & 15u;
    to.low = to.high = make_uint4(0, 0, 0, 0);
    const uint4* words = reinterpret_cast<const uint4*>(address - to.skip);
    load_global_if<1>(p, words, 0, &to.low);
    load_global_if<1>(p && to.skip > 0, words, 1, &to.high);
}

// The vector itself, element by element, so that nothing is read behind the end.
template <int N, class T>
ARGUS_FN void load_words(bool p, int at, int end, const T* base, i64 offset, Words& to) {
    static_assert(N * sizeof(T) == 16, "vectors of 16 bytes");
    const unsigned left = p && at < end ? static_cast<unsigned>(end) - static_cast<unsigned>(at) : 0u;
    alignas(16) T each[N];
    target::at<N>(each) = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < N; ++i) load_global_if<1>(static_cast<unsigned>(i) < left, base, offset + i, each + i);
    to.low = target::at<N>(each);
    to.high = make_uint4(0, 0, 0, 0);
    to.skip = 0;
}

// Apart from the loads, so that those of other vectors are on their way meanwhile.
template <int N, class T> ARGUS_FN void shift_into_place(const Words& from, T* dst) {
    const uint4 low = from.low, high = from.high;
    const bool two = from.skip & 8, one = from.skip & 4;
    const unsigned a[6] = {two ? low.z : low.x, two ? low.w : low.y, two ? high.x : low.z,
                           two ? high.y : low.w, two ? high.z : high.x, two ? high.w : high.y};
    const unsigned b[5] = {one ? a[1] : a[0], one ? a[2] : a[1], one ? a[3] : a[2], one ? a[4] : a[3],
                           one ? a[5] : a[4]};
    unsigned out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = __funnelshift_r(b[i], b[i + 1], (from.skip & 3) * 8);
    target::at<N>(dst) = make_uint4(out[0], out[1], out[2], out[3]);
}

// A predicate, not a branch: lanes of a warp differ where rows are not aligned. Before sm_90, where nothing keeps stores
// behind `begin`, they are left to the compiler, which needs fewer registers then.
template <int N, class T> ARGUS_FN void store_global_if(bool p, T* base, i64 offset, const T* src) {
#if __CUDA_ARCH__ < 900
    if (p) target::at<N>(base + offset) = target::at<N>(src);
#else
    constexpr int bytes = N * static_cast<int>(sizeof(T));
    const auto address = target::global_address(base + offset);
    const auto from = target::at<N>(src);
    const int on = p;
    if constexpr (bytes == 16) {
        asm volatile("{.reg .pred p; setp.ne.b32 p, %0, 0; @p st.global.v4.u32 [%1], {%2, %3, %4, %5};}"
                     :: "r"(on), "l"(address), "r"(from.x), "r"(from.y), "r"(from.z), "r"(from.w) : "memory");
    } else if constexpr (bytes == 8) {
        asm volatile("{.reg .pred p; setp.ne.b32 p, %0, 0; @p st.global.v2.u32 [%1], {%2, %3};}"
                     :: "r"(on), "l"(address), "r"(from.x), "r"(from.y) : "memory");
    } else if constexpr (bytes == 4) {
        asm volatile("{.reg .pred p; setp.ne.b32 p, %0, 0; @p st.global.u32 [%1], %2;}"
                     :: "r"(on), "l"(address), "r"(from) : "memory");
    } else if constexpr (bytes == 2) {
        asm volatile("{.reg .pred p; setp.ne.b32 p, %0, 0; @p st.global.u16 [%1], %2;}"
                     :: "r"(on), "l"(address), "h"(from) : "memory");
    } else if (p) {  // bytes of one word, which the compiler takes out of it where it stores them
        target::at<N>(base + offset) = from;
    }
#endif
}

template <int N, class T> ARGUS_FN void store_global(T* base, i64 offset, const T* src) {
    store_global_if<N>(true, base, offset, src);
}

// ---- vectors of which a mask leaves elements start <= at + i < end, where p

template <int N, class T> ARGUS_FN bool is_aligned(const T* base, i64 offset) {
    return target::global_address(base + offset) % (N * sizeof(T)) == 0;
}

namespace detail {
template <int N> ARGUS_FN bool is_whole(bool p, int at, int start, int end) {
    return p & (start <= at) & (at + (N - 1) < end);
}
}  // namespace detail

template <int N> ARGUS_FN bool has_ends(bool p, int at, int start, int end) {
    return p & (at < end) & (start <= at + (N - 1)) & !detail::is_whole<N>(p, at, start, end);
}

template <int N, class T>
ARGUS_FN void load_global_whole(bool p, int at, int start, int end, const T* base, i64 offset, T* dst, T other) {
    load_global_or<N>(detail::is_whole<N>(p, at, start, end), base, offset, dst, other);
}

template <int N, class T>
ARGUS_FN void load_global_each(bool p, int at, int start, int end, const T* base, i64 offset, T* dst, T other) {
#pragma unroll
    for (int i = 0; i < N; ++i)
        load_global_or<1>(detail::is_whole<1>(p, at + i, start, end), base, offset + i, dst + i, other);
}

// Element by element, so that no two are put together, which waits for them, before all are on their way.
template <int N, class T> ARGUS_FN void put(const T* src, T* dst) {
#pragma unroll
    for (int i = 0; i < N; ++i) dst[i] = src[i];
}

template <int N, class T>
ARGUS_FN void store_global_cut(bool p, int at, int start, int end, T* base, i64 offset, const T* src) {
    if (detail::is_whole<N>(p, at, start, end) && is_aligned<N>(base, offset)) {
        store_global<N>(base, offset, src);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) store_global_if<1>(detail::is_whole<1>(p, at + i, start, end), base, offset + i, src + i);
}

// ---- shared memory

namespace target {
// The block's own, or that of its cluster: N elements at `address`, by the instructions of SPACE.
#define ARGUS_SHARED_SPACE(NAME, SPACE)                                                                              \
    template <int N, class T> ARGUS_FN void load_##NAME(unsigned address, T* dst) {                                  \
        constexpr int bytes = N * static_cast<int>(sizeof(T));                                                       \
        if constexpr (bytes == 16) {                                                                                 \
            uint4 to;                                                                                                \
            asm volatile("ld." SPACE ".v4.u32 {%0, %1, %2, %3}, [%4];"                                               \
                         : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w) : "r"(address));                           \
            at<N>(dst) = to;                                                                                         \
        } else if constexpr (bytes == 8) {                                                                           \
            uint2 to;                                                                                                \
            asm volatile("ld." SPACE ".v2.u32 {%0, %1}, [%2];" : "=r"(to.x), "=r"(to.y) : "r"(address));             \
            at<N>(dst) = to;                                                                                         \
        } else if constexpr (bytes == 4) {                                                                           \
            asm volatile("ld." SPACE ".u32 %0, [%1];" : "=r"(at<N>(dst)) : "r"(address));                            \
        } else if constexpr (bytes == 2) {                                                                           \
            asm volatile("ld." SPACE ".u16 %0, [%1];" : "=h"(at<N>(dst)) : "r"(address));                            \
        } else {                                                                                                     \
            unsigned to;                                                                                             \
            asm volatile("ld." SPACE ".u8 %0, [%1];" : "=r"(to) : "r"(address));                                     \
            at<N>(dst) = static_cast<unsigned char>(to);                                                             \
        }                                                                                                            \
    }                                                                                                                \
    template <int N, class T> ARGUS_FN void store_##NAME(unsigned address, const T* src) {                           \
        constexpr int bytes = N * static_cast<int>(sizeof(T));                                                       \
        const auto from = at<N>(src);                                                                                \
        if constexpr (bytes == 16)                                                                                   \
            asm volatile("st." SPACE ".v4.u32 [%0], {%1, %2, %3, %4};"                                               \
                         :: "r"(address), "r"(from.x), "r"(from.y), "r"(from.z), "r"(from.w));                       \
        else if constexpr (bytes == 8)                                                                               \
            asm volatile("st." SPACE ".v2.u32 [%0], {%1, %2};" :: "r"(address), "r"(from.x), "r"(from.y));           \
        else if constexpr (bytes == 4)                                                                               \
            asm volatile("st." SPACE ".u32 [%0], %1;" :: "r"(address), "r"(from));                                   \
        else if constexpr (bytes == 2)                                                                               \
            asm volatile("st." SPACE ".u16 [%0], %1;" :: "r"(address), "h"(from));                                   \
        else                                                                                                         \
            asm volatile("st." SPACE ".u8 [%0], %1;" :: "r"(address), "r"(static_cast<unsigned>(from)));             \
    }
ARGUS_SHARED_SPACE(own, "shared")
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
ARGUS_SHARED_SPACE(peer, "shared::cluster")
#endif
#undef ARGUS_SHARED_SPACE
}  // namespace target

template <int N, class T> ARGUS_FN void load_shared(shared_t smem, int offset, T* dst) {
    target::load_own<N>(smem + offset, dst);
}

template <int N, class T> ARGUS_FN void store_shared(shared_t smem, int offset, const T* src) {
    if constexpr (detail::same<T, tf32>) {
        alignas(16) unsigned rounded[N];
#pragma unroll
        for (int i = 0; i < N; ++i) rounded[i] = target::nearest_tf32(src[i].bits);
        target::store_own<N>(smem + offset, rounded);
    } else {
        target::store_own<N>(smem + offset, src);
    }
}

// ---- asynchronous copies; 16 bytes bypass L1 (.cg), fewer cannot

template <int BYTES, class T> ARGUS_FN void cp_async(shared_t smem, int offset, const T* base, i64 source) {
    const auto from = target::global_address(base + source);
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" :: "r"(smem + offset), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2;"
                     :: "r"(smem + offset), "l"(from), "n"(BYTES) : "memory");
}

// The last operand is how many bytes are read; the rest of BYTES is filled with zeros.
template <int BYTES, class T>
ARGUS_FN void cp_async_or_zero(shared_t smem, int offset, const T* base, i64 source, bool p) {
    const auto from = target::global_address(base + source);
    const int size = p ? BYTES : 0;
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                     :: "r"(smem + offset), "l"(from), "r"(size) : "memory");
    else
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;"
                     :: "r"(smem + offset), "l"(from), "n"(BYTES), "r"(size) : "memory");
}

ARGUS_FN void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int PENDING> ARGUS_FN void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}

// ---- 8x8 matrices between shared memory and registers

#define ARGUS_LDMATRIX(NAME, MODE)                                                                               \
    template <class T> ARGUS_FN void ldmatrix_x1##NAME(shared_t smem, int offset, T* dst) {                      \
        unsigned r0;                                                                                             \
        asm volatile("ldmatrix.sync.aligned.m8n8.x1" MODE ".shared.b16 {%0}, [%1];" : "=r"(r0) : "r"(smem + offset)); \
        target::words(dst)[0] = r0;                                                                              \
    }                                                                                                            \
    template <class T> ARGUS_FN void ldmatrix_x2##NAME(shared_t smem, int offset, T* dst) {                      \
        unsigned r0, r1;                                                                                         \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2" MODE ".shared.b16 {%0, %1}, [%2];"                          \
                     : "=r"(r0), "=r"(r1) : "r"(smem + offset));                                                 \
        target::words(dst)[0] = r0, target::words(dst)[1] = r1;                                                  \
    }                                                                                                            \
    template <class T> ARGUS_FN void ldmatrix_x4##NAME(shared_t smem, int offset, T* dst) {                      \
        unsigned r0, r1, r2, r3;                                                                                 \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" MODE ".shared.b16 {%0, %1, %2, %3}, [%4];"                  \
                     : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(smem + offset));                             \
        target::words(dst)[0] = r0, target::words(dst)[1] = r1;                                                  \
        target::words(dst)[2] = r2, target::words(dst)[3] = r3;                                                  \
    }
ARGUS_LDMATRIX(, "")
ARGUS_LDMATRIX(_trans, ".trans")
#undef ARGUS_LDMATRIX

#if __CUDA_ARCH__ >= 900
template <class T> ARGUS_FN void stmatrix_x1(shared_t smem, int offset, const T* src) {
    const unsigned* r = target::words(src);
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" :: "r"(smem + offset), "r"(r[0]));
}
template <class T> ARGUS_FN void stmatrix_x2(shared_t smem, int offset, const T* src) {
    const unsigned* r = target::words(src);
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                 :: "r"(smem + offset), "r"(r[0]), "r"(r[1]));
}
template <class T> ARGUS_FN void stmatrix_x4(shared_t smem, int offset, const T* src) {
    const unsigned* r = target::words(src);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(smem + offset), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]));
}
#endif

// ---- matrix products: d += a * b

namespace target {
// A: 4 registers, B: 2, D: 4 floats.
#define ARGUS_MMA(NAME, SHAPE, A, B)                                                                          \
    ARGUS_FN void NAME(float* d, const unsigned* a, const unsigned* b) {                                      \
        asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." A "." B ".f32 "                                \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                        \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                         \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                     \
    }
ARGUS_MMA(mma_bf16, "m16n8k16", "bf16", "bf16")
ARGUS_MMA(mma_f16, "m16n8k16", "f16", "f16")
ARGUS_MMA(mma_tf32, "m16n8k8", "tf32", "tf32")
#if __CUDA_ARCH__ >= 890
ARGUS_MMA(mma_e4m3_e4m3, "m16n8k32", "e4m3", "e4m3")
ARGUS_MMA(mma_e4m3_e5m2, "m16n8k32", "e4m3", "e5m2")
ARGUS_MMA(mma_e5m2_e4m3, "m16n8k32", "e5m2", "e4m3")
ARGUS_MMA(mma_e5m2_e5m2, "m16n8k32", "e5m2", "e5m2")
#endif
#undef ARGUS_MMA
}  // namespace target

template <class A, class B> ARGUS_FN void mma_m16n8k16(float* d, const A* a, const B* b) {
    static_assert(detail::same<A, B> && (detail::same<A, bf16> || detail::same<A, f16>), "operands: bf16 or f16");
    if constexpr (detail::same<A, bf16>) target::mma_bf16(d, target::words(a), target::words(b));
    else target::mma_f16(d, target::words(a), target::words(b));
}

template <class A, class B> ARGUS_FN void mma_m16n8k8(float* d, const A* a, const B* b) {
    static_assert(detail::same<A, tf32> && detail::same<B, tf32>, "operands: tf32");
    unsigned ra[4], rb[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) ra[i] = target::nearest_tf32(target::words(a)[i]);
#pragma unroll
    for (int i = 0; i < 2; ++i) rb[i] = target::nearest_tf32(target::words(b)[i]);
    target::mma_tf32(d, ra, rb);
}

template <class A, class B> ARGUS_FN void mma_m16n8k32(int* d, const A* a, const B* b) {
    static_assert(detail::same<A, i8> && detail::same<B, i8>, "operands: i8");
    const unsigned *ra = target::words(a), *rb = target::words(b);
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
}

#if __CUDA_ARCH__ >= 890
template <class A, class B> ARGUS_FN void mma_m16n8k32_fp8(float* d, const A* a, const B* b) {
    constexpr bool a4 = detail::same<A, e4m3fn>, b4 = detail::same<B, e4m3fn>;
    static_assert((a4 || detail::same<A, e5m2>) && (b4 || detail::same<B, e5m2>), "operands: e4m3fn or e5m2");
    const unsigned *ra = target::words(a), *rb = target::words(b);
    if constexpr (a4 && b4) target::mma_e4m3_e4m3(d, ra, rb);
    else if constexpr (a4) target::mma_e4m3_e5m2(d, ra, rb);
    else if constexpr (b4) target::mma_e5m2_e4m3(d, ra, rb);
    else target::mma_e5m2_e5m2(d, ra, rb);
}
#endif

// ---- threads of a block

ARGUS_FN void barrier() { asm volatile("bar.sync 0;" ::: "memory"); }

namespace target {
// Reads `value` of lane `source(own lane)`; values of up to 4 bytes in one step, of 8 in two.
template <class T, class F> ARGUS_FN T exchanged(T value, F step) {
    if constexpr (sizeof(T) == 8) {
        const auto bits = static_cast<unsigned long long>(value);
        const unsigned low = step(static_cast<unsigned>(bits)), high = step(static_cast<unsigned>(bits >> 32));
        return static_cast<T>(static_cast<unsigned long long>(high) << 32 | low);
    } else if constexpr (detail::same<T, float>) {
        return float_of(step(bits_of(value)));
    } else if constexpr (detail::is_float<T>) {
        return T{static_cast<decltype(value.bits)>(step(value.bits))};
    } else {
        return static_cast<T>(step(static_cast<unsigned>(value)));
    }
}
}  // namespace target

template <class T> ARGUS_FN T shuffle(T value, int lane) {
    return target::exchanged(value, [lane](unsigned v) { return __shfl_sync(0xffffffffu, v, lane); });
}
template <class T> ARGUS_FN T shuffle_xor(T value, int mask) {
    return target::exchanged(value, [mask](unsigned v) { return __shfl_xor_sync(0xffffffffu, v, mask); });
}

// ---- atomics: relaxed, device scope

template <class T> ARGUS_FN void atomic_add(T* base, i64 offset, T value) {
    const auto address = target::global_address(base + offset);
    if constexpr (detail::same<T, float>)
        asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" :: "l"(address), "f"(value) : "memory");
    else if constexpr (sizeof(T) == 8)
        asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" :: "l"(address), "l"(value) : "memory");
    else
        asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" :: "l"(address), "r"(value) : "memory");
}

namespace target {
// No instruction compares floats atomically: exchange until memory holds the result, which it mostly does at once.
template <class F> ARGUS_FN void atomic_float(float* address, float value, F combine) {
    auto* memory = reinterpret_cast<unsigned*>(address);
    unsigned seen = *static_cast<volatile unsigned*>(memory);
    for (;;) {
        const unsigned wanted = bits_of(combine(float_of(seen), value));
        if (wanted == seen) return;
        const unsigned found = atomicCAS(memory, seen, wanted);
        if (found == seen) return;
        seen = found;
    }
}
}  // namespace target

#define ARGUS_ATOMIC(NAME, OP)                                                                                     \
    template <class T> ARGUS_FN void atomic_##NAME(T* base, i64 offset, T value) {                                 \
        const auto address = target::global_address(base + offset);                                                \
        if constexpr (detail::same<T, float>)                                                                      \
            target::atomic_float(base + offset, value, [](float x, float y) { return target::NAME(x, y); });       \
        else if constexpr (sizeof(T) == 8)                                                                         \
            asm volatile("red.relaxed.gpu.global." OP ".s64 [%0], %1;" :: "l"(address), "l"(value) : "memory");    \
        else                                                                                                       \
            asm volatile("red.relaxed.gpu.global." OP ".s32 [%0], %1;" :: "l"(address), "r"(value) : "memory");    \
    }
ARGUS_ATOMIC(maximum, "max")
ARGUS_ATOMIC(minimum, "min")
#undef ARGUS_ATOMIC

}  // namespace argus

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "hopper.h"
#endif
