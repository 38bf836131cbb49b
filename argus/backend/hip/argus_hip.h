// The device library for AMD GPUs (gfx942): clang builtins, no headers and no libraries of ROCm.
// Functions and their meanings: argus/backend/device_api.py. Document: CDNA3 ISA reference guide.
//
// Order. Accesses are plain C++ through pointers that say their address space, from which the compiler derives the
// waits for registers; barriers are fences, with a wait of their own. `may_alias`: a fragment is an array of elements, and moves as words.
#pragma once

#define ARGUS_FN inline __attribute__((device, always_inline))
#define ARGUS_WARP_SIZE 64
#define ARGUS_RESTRICT __restrict__
// Waves that a SIMD shall hold, at least. The compiler has 512 registers for one, half of which only matrix products
// take directly, and 256 for two, all alike: more than those cost moves from one half to the other.
#ifndef ARGUS_WAVES
#define ARGUS_WAVES 2
#endif
#define ARGUS_KERNEL(name, threads)                                                                     \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads), \
                              amdgpu_waves_per_eu(ARGUS_WAVES))) void name
#define ARGUS_SHARED(smem, bytes)                                                   \
    __attribute__((shared, aligned(1024))) static unsigned char argus_block[bytes]; \
    const argus::shared_t smem = (argus::shared_t)argus_block

#include "argus_numeric.h"

namespace argus::target {
ARGUS_FN unsigned bits_of(float x) { return __builtin_bit_cast(unsigned, x); }
// clang (19.1) negates only the second of two numbers whose bits an integer selection chose (performFNegCombine takes
// them for the halves of a double). So it does not see how the bits came about.
ARGUS_FN float float_of(unsigned bits) {
    if (!__builtin_constant_p(bits)) asm("" : "+v"(bits));
    return __builtin_bit_cast(float, bits);
}
}  // namespace argus::target

#include "argus_math.h"

namespace argus {

using shared_t = __attribute__((address_space(3))) unsigned char*;

namespace target {

ARGUS_FN float f16_to_float(unsigned short bits) {
    return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}
ARGUS_FN float bf16_to_float(unsigned short bits) { return float_of(static_cast<unsigned>(bits) << 16); }
ARGUS_FN unsigned short float_to_f16(float x) {
    return __builtin_bit_cast(unsigned short, static_cast<_Float16>(x));
}
// gfx942 has no instruction for bfloat16, and those for float8 are of the "fnuz" formats and saturate.
ARGUS_FN unsigned short float_to_bf16(float x) { return detail::encode_bf16(x); }
ARGUS_FN float e4m3fn_to_float(unsigned char bits) { return detail::decode_e4m3fn(bits); }
ARGUS_FN unsigned char float_to_e4m3fn(float x) { return detail::encode_e4m3fn(x); }
ARGUS_FN unsigned char float_to_e5m2(float x) { return detail::encode_e5m2(x); }

ARGUS_FN int float_to_int(float x) {
    int whole;
    asm("v_cvt_i32_f32 %0, %1" : "=v"(whole) : "v"(x));
    return whole;
}
ARGUS_FN i64 float_to_i64(float x) {
    if (x != x) return 0;
    constexpr i64 largest = 0x7fffffffffffffff;
    return x >= 0x1p63f ? largest : x < -0x1p63f ? -largest - 1 : static_cast<i64>(x);
}

// Selected, not branched: the instructions alone return the number where one operand is NaN.
ARGUS_FN float minimum(float x, float y) {
    const float smaller = __builtin_fminf(x, y);
    return __builtin_isunordered(x, y) ? float_of(0x7fc00000u) : smaller;
}
ARGUS_FN float maximum(float x, float y) {
    const float larger = __builtin_fmaxf(x, y);
    return __builtin_isunordered(x, y) ? float_of(0x7fc00000u) : larger;
}

// clang expands these in place, with subnormal numbers.
ARGUS_FN float fused(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
ARGUS_FN float exp(float x) { return __builtin_expf(x); }
ARGUS_FN float exp2(float x) { return __builtin_amdgcn_exp2f(x); }  // 0 below 2^-126
ARGUS_FN float log(float x) { return __builtin_logf(x); }
ARGUS_FN float log2(float x) { return __builtin_log2f(x); }
ARGUS_FN float sqrt(float x) { return __builtin_sqrtf(x); }
ARGUS_FN float rsqrt(float x) {
    const bool tiny = x < 0x1p-100f;  // the instruction takes subnormal numbers for zero
    return __builtin_amdgcn_rsqf(tiny ? x * 0x1p100f : x) * (tiny ? 0x1p50f : 1.0f);
}
ARGUS_FN float inverse_approx(float x) { return __builtin_amdgcn_rcpf(x); }
ARGUS_FN float modulo(float x, float y) { return formula::modulo(x, y); }
ARGUS_FN float tanh(float x) { return formula::tanh(x); }
ARGUS_FN float tanh_approx(float x) { return formula::tanh(x); }
ARGUS_FN float erf(float x) { return formula::erf(x); }
ARGUS_FN float sin(float x) { return formula::sin(x); }
ARGUS_FN float cos(float x) { return formula::cos(x); }
ARGUS_FN float sigmoid(float x) { return formula::sigmoid(x); }
ARGUS_FN float floor(float x) { return __builtin_floorf(x); }
ARGUS_FN float ceil(float x) { return __builtin_ceilf(x); }

// What moves BYTES at once.
template <int BYTES> struct Word;
template <> struct Word<1> { typedef unsigned char __attribute__((may_alias)) type; };
template <> struct Word<2> { typedef unsigned short __attribute__((may_alias)) type; };
template <> struct Word<4> { typedef unsigned __attribute__((may_alias)) type; };
template <> struct Word<8> { typedef unsigned __attribute__((ext_vector_type(2), may_alias)) type; };
template <> struct Word<16> { typedef unsigned __attribute__((ext_vector_type(4), may_alias)) type; };

template <int N, class T> using word = typename Word<N * static_cast<int>(sizeof(T))>::type;
template <class W> using global = __attribute__((address_space(1))) W*;
template <class W> using lds = __attribute__((address_space(3))) W*;

}  // namespace target

// ---- ids

template <class... A> ARGUS_FN void fail(const char*, A...) { __builtin_trap(); }
ARGUS_FN void launch_dependents() {}  // the hardware orders launches
ARGUS_FN void begin() {}
ARGUS_FN int thread_id() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
template <int AXIS> ARGUS_FN int block_id() {
    if constexpr (AXIS == 0) return static_cast<int>(__builtin_amdgcn_workgroup_id_x());
    else if constexpr (AXIS == 1) return static_cast<int>(__builtin_amdgcn_workgroup_id_y());
    else return static_cast<int>(__builtin_amdgcn_workgroup_id_z());
}
template <int GROUP> ARGUS_FN BlockIds grouped_block_ids(int rows, int columns) {
    const BlockIds at = {block_id<0>(), block_id<1>()};
    const i64 blocks = static_cast<i64>(rows) * columns;
    if (blocks > 0x7fffffff) return at;
    const unsigned number = static_cast<unsigned>(at.x + at.y * rows);
    constexpr unsigned dies = 8;  // of an MI300X, each with an L2 cache
    return detail::grouped(GROUP, detail::of_die(number, static_cast<unsigned>(blocks), dies), rows, columns);
}

namespace target {
// The bfloat16 nearest to x, in the upper half.
template <bool NAN> ARGUS_FN unsigned rounded_bf16(float x) {
    const unsigned bits = bits_of(x), nearest = bits + 0x7fffu + (bits >> 16 & 1u);
    if constexpr (NAN) return x != x ? 0x7fc00000u : nearest;
    return nearest;
}
template <bool NAN, int N, class T> ARGUS_FN void narrow(const float* from, T* to) {
    if constexpr (detail::same<T, bf16> && N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 2) {  // one instruction packs the upper halves of two
            const unsigned first = rounded_bf16<NAN>(from[i]), second = rounded_bf16<NAN>(from[i + 1]);
            *(word<2, T>*)(to + i) = __builtin_amdgcn_perm(second, first, 0x07060302u);
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) to[i] = cast<T>(from[i]);
    }
}
}  // namespace target

template <int N, class T> ARGUS_FN void narrow(const float* from, T* to) { target::narrow<true, N>(from, to); }
template <int N, class T> ARGUS_FN void narrow_numbers(const float* from, T* to) { target::narrow<false, N>(from, to); }

namespace target {
typedef float f32x2 __attribute__((ext_vector_type(2)));
}
// Rounded by arithmetic, two at a time. Let x be X units in its last place, X an integer of 24 bits. Then 65535 * x is
// 2^16 (X - X / 2^16) units, and rounding it to 24 bits rounds X / 2^16 to the nearest integer: between two it takes the
// even one, because X is even there. The rest, 65536 * x less that, is exact, and x to 8 bits. (Where X - X / 2^16 is
// less than 2^23, 2^23 <= X < 2^23 + 2^7: halves of units remain, and the integer is 2^7 as it should be.)
template <int N, class T> ARGUS_FN void narrow_moderate(const float* from, T* to) {
    if constexpr (detail::same<T, bf16> && N % 2 == 0) {
        using target::f32x2;
        constexpr f32x2 scale = {0x1p16f, 0x1p16f};
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const f32x2 x = {from[i], from[i + 1]};
            const f32x2 less = x * (scale - 1.0f);
            const f32x2 rounded = __builtin_elementwise_fma(x, scale, -less);
            *(target::word<2, T>*)(to + i) =
                __builtin_amdgcn_perm(target::bits_of(rounded.y), target::bits_of(rounded.x), 0x07060302u);
        }
    } else {
        narrow_numbers<N>(from, to);
    }
}

template <int N, class From, class To> ARGUS_FN void widen(const From* from, To* to) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = cast<To>(from[i]);
}
namespace target {
// Four numbers of e4m3fn, halved, as e4m3fnuz: its exponents are one less, so most bits stay. But 0x80 is -0 of the one
// and NaN of the other, and 0x7f and 0xff are NaN of the one and 240 and -240 of the other. No sum below passes the end
// of its byte: 0x7f + 1 is 0x80, as wanted.
ARGUS_FN unsigned halved(unsigned word) {
    constexpr unsigned ones = 0x01010101u, signs = 0x80808080u;
    const unsigned magnitudes = word & ~signs;
    const unsigned nans = (magnitudes + ones) >> 7 & ones, others = magnitudes + (signs - ones);  // its sign: not 0
    return (magnitudes + nans) | (word & others & signs);
}
}  // namespace target
template <int N, class From, class To> ARGUS_FN void halve(const From* from, To* to) {
    static_assert(detail::same<From, e4m3fn> && detail::same<To, e4m3fnuz>, "of e4m3fn, e4m3fnuz");
    if constexpr (N % 4 == 0) {
        using W = target::word<4, From>;
#pragma unroll
        for (int i = 0; i < N; i += 4) *(W*)(to + i) = target::halved(*(const W*)(from + i));
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) to[i] = To{static_cast<unsigned char>(target::halved(from[i].bits))};
    }
}

template <int MOST, class T> ARGUS_FN void fractions(unsigned word, int place, T less, T* to) {
    constexpr float unit = detail::same<T, f16> ? 1.0f / 512 : 1.0f / 64;
    for (int i = 0; i < 2; ++i)
        to[i] = cast<T>(static_cast<float>(word >> (place + i * 16) & MOST) * unit - cast<float>(less));
}

// `med3` with an infinity is the larger (smaller) number, of any bits; what is no number is looked for apart.
#define ARGUS_FOLDED(NAME, INFINITE)                                                                               \
    template <int N> ARGUS_FN float NAME(float x, const float* values) {                                           \
        float result = x;                                                                                          \
        bool unordered = x != x;                                                                                   \
        _Pragma("unroll") for (int i = 0; i < N; ++i) {                                                            \
            result = __builtin_amdgcn_fmed3f(result, values[i], INFINITE);                                         \
            if (i % 2) unordered |= __builtin_isunordered(values[i - 1], values[i]);                               \
        }                                                                                                          \
        if constexpr (N % 2) unordered |= values[N - 1] != values[N - 1];                                          \
        return unordered ? target::float_of(0x7fc00000u) : result;                                                 \
    }
ARGUS_FOLDED(maximum_of, __builtin_inff())
ARGUS_FOLDED(minimum_of, -__builtin_inff())
#undef ARGUS_FOLDED
// Of three numbers one instruction finds the largest (smallest); NaN is passed over.
#define ARGUS_FOLDED(NAME, MORE)                                                                                   \
    template <int N> ARGUS_FN float NAME(float x, const float* values) {                                           \
        _Pragma("unroll") for (int i = 0; i < N; ++i) x = MORE(x, values[i]);                                      \
        return x;                                                                                                  \
    }
ARGUS_FOLDED(maximum_of_numbers, __builtin_fmaxf)
ARGUS_FOLDED(minimum_of_numbers, __builtin_fminf)
#undef ARGUS_FOLDED

// `med3` with an infinity again, because the compiler quiets the operands of `fmaxf` first. Nothing is left of the
// maximum of x and a constant minus infinity.
#define ARGUS_OF_TWO(NAME, INFINITE)                                                                               \
    ARGUS_FN float NAME(float x, float y) {                                                                        \
        if (__builtin_constant_p(x) && x == -(INFINITE)) return y;                                                 \
        if (__builtin_constant_p(y) && y == -(INFINITE)) return x;                                                 \
        return __builtin_amdgcn_fmed3f(x, y, INFINITE);                                                            \
    }
ARGUS_OF_TWO(maximum_of_two, __builtin_inff())
ARGUS_OF_TWO(minimum_of_two, -__builtin_inff())
#undef ARGUS_OF_TWO

// Two at a time, in neighbouring registers: the compiler by itself leaves most of them apart.
template <int N> ARGUS_FN float sum_of(float x, const float* values) {
    target::f32x2 sums = {x, N % 2 ? values[N - 1] : 0.0f};
#pragma unroll
    for (int i = 0; i + 1 < N; i += 2) sums += target::f32x2{values[i], values[i + 1]};
    return sums.x + sums.y;
}
template <int N> ARGUS_FN void add_products(float* sums, const float* left, const float* right) {
    using target::f32x2;
#pragma unroll
    for (int i = 0; i + 1 < N; i += 2) {
        const f32x2 a = {left[i], left[i + 1]}, b = {right[i], right[i + 1]}, c = {sums[i], sums[i + 1]};
        const f32x2 sum = __builtin_elementwise_fma(a, b, c);
        sums[i] = sum.x;
        sums[i + 1] = sum.y;
    }
    if constexpr (N % 2) sums[N - 1] = __builtin_fmaf(left[N - 1], right[N - 1], sums[N - 1]);
}

// ---- global memory

template <int N, class T> ARGUS_FN void load_global(const T* base, i64 offset, T* dst) {
    using W = target::word<N, T>;
    *(W*)dst = *(target::global<const W>)(base + offset);
}
template <int N, class T> ARGUS_FN void load_global_if(bool p, const T* base, i64 offset, T* dst) {
    if (p) load_global<N>(base, offset, dst);
}
// Zeros for masked lanes are loaded too: a branch around each load would keep others from being moved past it.
namespace target {
__attribute__((device)) const word<16, unsigned char> zeros = {};
template <class T> ARGUS_FN bool is_zero(T x) {  // known to be
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &x, sizeof(T));
    return __builtin_constant_p(bits) && bits == 0;
}
}  // namespace target
template <int N, class T> ARGUS_FN void load_global_or(bool p, const T* base, i64 offset, T* dst, T other) {
    using W = target::word<N, T>;
    if (target::is_zero(other)) {
        asm("" : "+s"(base));  // the same in all lanes: kept in scalar registers, and moved on there
        const auto from = (target::global<const W>)(base + offset);
        const void* zeros = &target::zeros;
        asm("" : "+v"(zeros));  // its address is not computed again in loops
        *(W*)dst = *(p ? from : (target::global<const W>)zeros);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) dst[i] = other;
    load_global_if<N>(p, base, offset, dst);
}
// Loads of elements that lie less than 2^31 bytes behind `base`, by a descriptor of the memory behind it: an offset of 32
// bits instead of an address, and for masked lanes one out of range, for which the machine loads zeros.
namespace target {
constexpr unsigned near_bytes = 1u << 31;
template <class T> ARGUS_FN __amdgpu_buffer_rsrc_t behind(const T* base) {
    asm("" : "+s"(base));  // the same in all lanes: kept in scalar registers, and moved on there
    return __builtin_amdgcn_make_buffer_rsrc(const_cast<T*>(base), 0, near_bytes, 0x00027000);
}
template <int N, class T> ARGUS_FN void load_at(__amdgpu_buffer_rsrc_t from, unsigned at, T* dst) {
    constexpr int bytes = N * static_cast<int>(sizeof(T));
    using W = word<N, T>;
    if constexpr (bytes == 16) *(W*)dst = __builtin_bit_cast(W, __builtin_amdgcn_raw_buffer_load_b128(from, at, 0, 0));
    else if constexpr (bytes == 8) *(W*)dst = __builtin_bit_cast(W, __builtin_amdgcn_raw_buffer_load_b64(from, at, 0, 0));
    else if constexpr (bytes == 4) *(W*)dst = __builtin_amdgcn_raw_buffer_load_b32(from, at, 0, 0);
    else if constexpr (bytes == 2) *(W*)dst = __builtin_amdgcn_raw_buffer_load_b16(from, at, 0, 0);
    else *(W*)dst = __builtin_amdgcn_raw_buffer_load_b8(from, at, 0, 0);
}
}  // namespace target
template <int N, class T> ARGUS_FN void load_near(const T* base, i64 offset, T* dst) {
    const auto from = target::behind(base);
    target::load_at<N>(from, static_cast<unsigned>(offset * sizeof(T)), dst);
}
template <int N, class T> ARGUS_FN void load_near_if(bool p, const T* base, i64 offset, T* dst) {
    if (p) load_near<N>(base, offset, dst);
}
template <int N, class T> ARGUS_FN void load_near_or(bool p, const T* base, i64 offset, T* dst, T other) {
    if (target::is_zero(other)) {
        const auto from = target::behind(base);
        const auto at = static_cast<unsigned>(offset * sizeof(T));
        return target::load_at<N>(from, p ? at : target::near_bytes, dst);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) dst[i] = other;
    load_near_if<N>(p, base, offset, dst);
}
template <int N, class T> ARGUS_FN void store_global(T* base, i64 offset, const T* src) {
    using W = target::word<N, T>;
    *(target::global<W>)(base + offset) = *(const W*)src;
}
template <int N, class T> ARGUS_FN void store_global_if(bool p, T* base, i64 offset, const T* src) {
    if (p) store_global<N>(base, offset, src);
}

// ---- shared memory (LDS)

ARGUS_FN int place(int own, int same) {
    int x = own + __builtin_amdgcn_readfirstlane(same);
    asm("" : "+v"(x));  // the compiler does not look behind it, and adds constants in the accesses
    return x;
}

template <int N, class T> ARGUS_FN void load_shared(shared_t smem, int offset, T* dst) {
    using W = target::word<N, T>;
    *(W*)dst = *(target::lds<const W>)(smem + offset);
}
template <int N, class T> ARGUS_FN void store_shared(shared_t smem, int offset, const T* src) {
    using W = target::word<N, T>;
    *(target::lds<W>)(smem + offset) = *(const W*)src;
}

// ---- matrix products: d += a * b

namespace target {
typedef short __attribute__((ext_vector_type(4), may_alias)) bf16x4;
typedef _Float16 __attribute__((ext_vector_type(4), may_alias)) f16x4;
typedef long __attribute__((may_alias)) bytes8;
typedef float __attribute__((ext_vector_type(4), may_alias)) f32x4;
typedef float __attribute__((ext_vector_type(16), may_alias, aligned(16))) f32x16;
typedef int __attribute__((ext_vector_type(4), may_alias)) i32x4;
typedef int __attribute__((ext_vector_type(16), may_alias, aligned(16))) i32x16;

template <class V, class T> ARGUS_FN V as(const T* p) { return *(const V*)p; }
}  // namespace target

#define ARGUS_MFMA_16BIT(NAME, BF16, F16, D)                                                                       \
    template <class A, class B> ARGUS_FN void NAME(float* d, const A* a, const B* b) {                             \
        using namespace target;                                                                                    \
        static_assert(detail::same<A, B> && (detail::same<A, bf16> || detail::same<A, f16>), "bf16 or f16");       \
        if constexpr (detail::same<A, bf16>) *(D*)d = BF16(as<bf16x4>(a), as<bf16x4>(b), as<D>(d), 0, 0, 0);       \
        else *(D*)d = F16(as<f16x4>(a), as<f16x4>(b), as<D>(d), 0, 0, 0);                                          \
    }
ARGUS_MFMA_16BIT(mfma_f32_32x32x8, __builtin_amdgcn_mfma_f32_32x32x8bf16_1k, __builtin_amdgcn_mfma_f32_32x32x8f16,
                 f32x16)
ARGUS_MFMA_16BIT(mfma_f32_16x16x16, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k, __builtin_amdgcn_mfma_f32_16x16x16f16,
                 f32x4)
#undef ARGUS_MFMA_16BIT

// "fp8" is e4m3fnuz and "bf8" e5m2fnuz on this architecture.
#define ARGUS_MFMA_FP8(NAME, BUILTIN, D)                                                                           \
    template <class A, class B> ARGUS_FN void NAME(float* d, const A* a, const B* b) {                             \
        using namespace target;                                                                                    \
        constexpr bool a4 = detail::same<A, e4m3fnuz>, b4 = detail::same<B, e4m3fnuz>;                             \
        static_assert((a4 || detail::same<A, e5m2fnuz>) && (b4 || detail::same<B, e5m2fnuz>), "fnuz types");       \
        const long x = as<bytes8>(a), y = as<bytes8>(b);                                                           \
        if constexpr (a4 && b4) *(D*)d = BUILTIN##_fp8_fp8(x, y, as<D>(d), 0, 0, 0);                               \
        else if constexpr (a4) *(D*)d = BUILTIN##_fp8_bf8(x, y, as<D>(d), 0, 0, 0);                                \
        else if constexpr (b4) *(D*)d = BUILTIN##_bf8_fp8(x, y, as<D>(d), 0, 0, 0);                                \
        else *(D*)d = BUILTIN##_bf8_bf8(x, y, as<D>(d), 0, 0, 0);                                                  \
    }
ARGUS_MFMA_FP8(mfma_f32_32x32x16_fp8, __builtin_amdgcn_mfma_f32_32x32x16, f32x16)
ARGUS_MFMA_FP8(mfma_f32_16x16x32_fp8, __builtin_amdgcn_mfma_f32_16x16x32, f32x4)
#undef ARGUS_MFMA_FP8

#define ARGUS_MFMA_I8(NAME, BUILTIN, D)                                                                            \
    template <class A, class B> ARGUS_FN void NAME(int* d, const A* a, const B* b) {                               \
        using namespace target;                                                                                    \
        static_assert(detail::same<A, i8> && detail::same<B, i8>, "operands: i8");                                 \
        *(D*)d = BUILTIN(as<bytes8>(a), as<bytes8>(b), as<D>(d), 0, 0, 0);                                         \
    }
ARGUS_MFMA_I8(mfma_i32_32x32x16, __builtin_amdgcn_mfma_i32_32x32x16_i8, i32x16)
ARGUS_MFMA_I8(mfma_i32_16x16x32, __builtin_amdgcn_mfma_i32_16x16x32_i8, i32x4)
#undef ARGUS_MFMA_I8

#define ARGUS_MFMA_F32(NAME, BUILTIN, D)                                                                           \
    template <class A, class B> ARGUS_FN void NAME(float* d, const A* a, const B* b) {                             \
        using namespace target;                                                                                    \
        static_assert(detail::same<A, float> && detail::same<B, float>, "operands: float");                        \
        *(D*)d = BUILTIN(*a, *b, as<D>(d), 0, 0, 0);                                                               \
    }
ARGUS_MFMA_F32(mfma_f32_32x32x2, __builtin_amdgcn_mfma_f32_32x32x2f32, f32x16)
ARGUS_MFMA_F32(mfma_f32_16x16x4, __builtin_amdgcn_mfma_f32_16x16x4f32, f32x4)
#undef ARGUS_MFMA_F32

namespace target {
// The machine drops the last 13 bits of operands, of which NaN may have no others. So half a unit of the last bit that
// remains is added before: 2^-11 of the number's power of two, which is the number without its fraction. Where the sum
// is not exact, it has just passed the next power of two, and what it lost is dropped anyway. NaN stays NaN, infinity
// infinity; a subnormal number is cut off.
ARGUS_FN f32x2 nearest_tf32(const tf32* x) {
    constexpr unsigned power = 0xff800000u;
    constexpr f32x2 half = {0x1p-11f, 0x1p-11f};
    const f32x2 powers = {float_of(x[0].bits & power), float_of(x[1].bits & power)};
    return __builtin_elementwise_fma(powers, half, f32x2{float_of(x[0].bits), float_of(x[1].bits)});
}
}  // namespace target

#define ARGUS_MFMA_XF32(NAME, BUILTIN, D)                                                                          \
    template <class A, class B> ARGUS_FN void NAME(float* d, const A* a, const B* b) {                             \
        using namespace target;                                                                                    \
        static_assert(detail::same<A, tf32> && detail::same<B, tf32>, "operands: tf32");                           \
        *(D*)d = BUILTIN(nearest_tf32(a), nearest_tf32(b), as<D>(d), 0, 0, 0);                                     \
    }
ARGUS_MFMA_XF32(mfma_f32_32x32x4_xf32, __builtin_amdgcn_mfma_f32_32x32x4_xf32, f32x16)
ARGUS_MFMA_XF32(mfma_f32_16x16x8_xf32, __builtin_amdgcn_mfma_f32_16x16x8_xf32, f32x4)
#undef ARGUS_MFMA_XF32

// The transposed product, of exchanged operands: a lane holds consecutive columns of a row.
#define ARGUS_MFMA_T(NAME, D)                                                                                      \
    template <class A, class B> ARGUS_FN void NAME##_t(D* d, const A* a, const B* b) { NAME(d, b, a); }
ARGUS_MFMA_T(mfma_f32_32x32x8, float)
ARGUS_MFMA_T(mfma_f32_16x16x16, float)
ARGUS_MFMA_T(mfma_f32_32x32x16_fp8, float)
ARGUS_MFMA_T(mfma_f32_16x16x32_fp8, float)
ARGUS_MFMA_T(mfma_i32_32x32x16, int)
ARGUS_MFMA_T(mfma_i32_16x16x32, int)
ARGUS_MFMA_T(mfma_f32_32x32x2, float)
ARGUS_MFMA_T(mfma_f32_16x16x4, float)
ARGUS_MFMA_T(mfma_f32_32x32x4_xf32, float)
ARGUS_MFMA_T(mfma_f32_16x16x8_xf32, float)
#undef ARGUS_MFMA_T

// ---- loads to LDS
//
// As text: the compiler adds no wait of its own for them, and moves no access to memory across them or a wait. It may
// need more of vmcnt for itself, which only makes a wait longer. M0 holds the place of lane 0, and lane i writes 4 * i
// bytes on; one wait state lies between writing M0 and its use (CDNA3 ISA, manually inserted wait states).

namespace target {
__attribute__((device)) const unsigned zero_word = 0;

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winline-asm"  // M0 is nobody's: who needs it writes it first
ARGUS_FN int first_place(shared_t place) {
    return __builtin_amdgcn_readfirstlane(static_cast<int>(reinterpret_cast<__UINTPTR_TYPE__>(
        (__attribute__((address_space(3))) void*)place)));
}
ARGUS_FN void load_to_lds(shared_t place, global<const void> from) {
    const int first = first_place(place);
    asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\tglobal_load_lds_dword %1, off" ::"s"(first), "v"(from) : "m0", "memory");
}
// The descriptor as words: the base, whose upper half has the stride, 0; the bytes; and the format of words.
template <class T> ARGUS_FN void load_near_to_lds(shared_t place, const T* base, unsigned at) {
    typedef unsigned __attribute__((ext_vector_type(4))) u32x4;
    asm("" : "+s"(base));
    const auto bits = reinterpret_cast<unsigned long long>(base);
    const u32x4 from = {static_cast<unsigned>(bits), static_cast<unsigned>(bits >> 32) & 0xffff, near_bytes, 0x00027000};
    const int first = first_place(place);
    asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\tbuffer_load_dword %1, %2, 0 offen lds" ::"s"(first), "v"(at), "s"(from)
                 : "m0", "memory");
}
#pragma clang diagnostic pop
}  // namespace target

template <class T> ARGUS_FN void load_to_lds(shared_t smem, int offset, const T* base, i64 source) {
    target::load_to_lds(smem + offset, (target::global<const void>)(base + source));
}
template <class T> ARGUS_FN void load_to_lds_or_zero(shared_t smem, int offset, const T* base, i64 source, bool p) {
    const auto zero = (target::global<const void>)&target::zero_word;  // every lane loads, so that waves count alike
    target::load_to_lds(smem + offset, p ? (target::global<const void>)(base + source) : zero);
}
template <class T> ARGUS_FN void load_near_to_lds(shared_t smem, int offset, const T* base, i64 source) {
    target::load_near_to_lds(smem + offset, base, static_cast<unsigned>(source * sizeof(T)));
}
template <class T> ARGUS_FN void load_near_to_lds_or_zero(shared_t smem, int offset, const T* base, i64 source, bool p) {
    const auto at = static_cast<unsigned>(source * sizeof(T));
    target::load_near_to_lds(smem + offset, base, p ? at : target::near_bytes);
}
template <int VM, int LGKM> ARGUS_FN void wait_counts() {
    if constexpr (VM >= 0 && LGKM >= 0) asm volatile("s_waitcnt vmcnt(%0) lgkmcnt(%1)" ::"n"(VM), "n"(LGKM) : "memory");
    else if constexpr (VM >= 0) asm volatile("s_waitcnt vmcnt(%0)" ::"n"(VM) : "memory");
    else asm volatile("s_waitcnt lgkmcnt(%0)" ::"n"(LGKM) : "memory");
}
ARGUS_FN void wave_barrier() { asm volatile("s_barrier" ::: "memory"); }
// The branch is a scalar one: a barrier acts even if no lane is active.
template <int FIRST> ARGUS_FN void wave_barrier_from() {
    if (__builtin_amdgcn_readfirstlane(thread_id()) >= FIRST) wave_barrier();
}
template <int FIRST> ARGUS_FN void wave_barrier_below() {
    if (__builtin_amdgcn_readfirstlane(thread_id()) < FIRST) wave_barrier();
}
// As text: unlike the builtin, it lets the compiler move arithmetic past it.
template <int LEVEL> ARGUS_FN void wave_priority() { asm volatile("s_setprio %0" ::"n"(LEVEL)); }
template <int MASK, int SIZE, int SYNC> ARGUS_FN void sched_group() {
    __builtin_amdgcn_sched_group_barrier(MASK, SIZE, SYNC);
}
template <int MASK> ARGUS_FN void sched_kinds() { __builtin_amdgcn_sched_barrier(MASK); }

// ---- threads of a block

// The release fence asks for a wait for LDS that clang 19 leaves out at the head of some loops: of those where nothing is
// under way when the loop is entered, although the end of its body writes. So the wait is an instruction of its own:
// lgkmcnt(0), and nothing of the other counters (CDNA3 ISA, s_waitcnt).
ARGUS_FN void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_waitcnt(0xc07f);
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

namespace target {
// `step` exchanges 32 bits between lanes; values of 8 bytes take two steps.
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

ARGUS_FN int lane_id() { return static_cast<int>(__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u))); }

ARGUS_FN unsigned gathered(unsigned value, int lane) {
    return static_cast<unsigned>(__builtin_amdgcn_ds_bpermute(lane * 4, static_cast<int>(value)));
}

// Within 16 lanes data-parallel primitives move registers without LDS's crossbar; `ds_swizzle` needs no address.
ARGUS_FN unsigned exchanged_xor(unsigned value, int mask) {
    const int v = static_cast<int>(value);
    int result;
    if (__builtin_constant_p(mask) && mask == 1) result = __builtin_amdgcn_mov_dpp(v, 0xb1, 0xf, 0xf, true);
    else if (__builtin_constant_p(mask) && mask == 2) result = __builtin_amdgcn_mov_dpp(v, 0x4e, 0xf, 0xf, true);
    else if (__builtin_constant_p(mask) && mask == 4) result = __builtin_amdgcn_ds_swizzle(v, 4 << 10 | 0x1f);
    else if (__builtin_constant_p(mask) && mask == 8) result = __builtin_amdgcn_mov_dpp(v, 0x128, 0xf, 0xf, true);
    else if (__builtin_constant_p(mask) && mask == 16) result = __builtin_amdgcn_ds_swizzle(v, 16 << 10 | 0x1f);
    else return gathered(value, lane_id() ^ mask);
    return static_cast<unsigned>(result);
}
}  // namespace target

template <class T> ARGUS_FN T shuffle(T value, int lane) {
    return target::exchanged(value, [lane](unsigned v) __attribute__((always_inline)) { return target::gathered(v, lane); });
}
template <class T> ARGUS_FN T shuffle_xor(T value, int mask) {
    return target::exchanged(
        value, [mask](unsigned v) __attribute__((always_inline)) { return target::exchanged_xor(v, mask); });
}

// ---- atomics: relaxed, device scope

template <class T> ARGUS_FN void atomic_add(T* base, i64 offset, T value) {
    __hip_atomic_fetch_add((target::global<T>)(base + offset), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

namespace target {
// No instruction keeps NaN: exchange until memory holds the result, which it mostly does at once.
template <class F> ARGUS_FN void atomic_float(float* address, float value, F combine) {
    typedef unsigned __attribute__((may_alias)) bits32;
    const auto memory = (global<bits32>)address;
    unsigned seen = __hip_atomic_load(memory, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    for (;;) {
        const unsigned wanted = bits_of(combine(float_of(seen), value));
        if (wanted == seen || __hip_atomic_compare_exchange_strong(memory, &seen, wanted, __ATOMIC_RELAXED,
                                                                   __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT))
            return;
    }
}
}  // namespace target

#define ARGUS_ATOMIC(NAME, BUILTIN)                                                                                \
    template <class T> ARGUS_FN void atomic_##NAME(T* base, i64 offset, T value) {                                 \
        if constexpr (detail::same<T, float>)                                                                      \
            target::atomic_float(base + offset, value, [](float x, float y) { return target::NAME(x, y); });       \
        else                                                                                                       \
            BUILTIN((target::global<T>)(base + offset), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);        \
    }
ARGUS_ATOMIC(maximum, __hip_atomic_fetch_max)
ARGUS_ATOMIC(minimum, __hip_atomic_fetch_min)
#undef ARGUS_ATOMIC

}  // namespace argus
