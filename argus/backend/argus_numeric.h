// The part of the device library that is the same on every GPU: element types, conversions, elementwise functions, and
// the order of blocks.
//
// Before including this a target's header defines the macro ARGUS_FN (function specifiers); afterwards it defines
// the functions of `argus::target` declared below. No standard header is used: NVRTC and a bare clang have none.
#pragma once

namespace argus {

using i8 = signed char;
using u8 = unsigned char;
using u16 = unsigned short;
using i64 = long long;

struct tf32 { unsigned bits; };
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct e4m3fn { unsigned char bits; };
struct e5m2 { unsigned char bits; };
struct e4m3fnuz { unsigned char bits; };
struct e5m2fnuz { unsigned char bits; };

// What each target defines for float. Every conversion to a narrower float rounds to nearest, ties to even.
namespace target {
ARGUS_FN unsigned bits_of(float x);
ARGUS_FN float float_of(unsigned bits);
ARGUS_FN float f16_to_float(unsigned short bits);
ARGUS_FN float bf16_to_float(unsigned short bits);
ARGUS_FN unsigned short float_to_f16(float x);
ARGUS_FN unsigned short float_to_bf16(float x);
ARGUS_FN float e4m3fn_to_float(unsigned char bits);
ARGUS_FN unsigned char float_to_e4m3fn(float x);
ARGUS_FN unsigned char float_to_e5m2(float x);
ARGUS_FN int float_to_int(float x);   // truncates and saturates; NaN gives 0
ARGUS_FN i64 float_to_i64(float x);   // truncates and saturates; NaN gives 0
ARGUS_FN float fused(float x, float y, float z);  // x * y + z, rounded once
ARGUS_FN float minimum(float x, float y);  // NaN if either is
ARGUS_FN float maximum(float x, float y);
ARGUS_FN float modulo(float x, float y);  // C's fmod
ARGUS_FN float exp(float x);
ARGUS_FN float exp2(float x);
ARGUS_FN float log(float x);
ARGUS_FN float log2(float x);
ARGUS_FN float sqrt(float x);
ARGUS_FN float rsqrt(float x);
ARGUS_FN float inverse_approx(float x);  // within 2^-23 of 1 / x, relative to it; 0 is allowed beyond 2^100
ARGUS_FN float tanh(float x);
ARGUS_FN float tanh_approx(float x);  // within 2^-11 of tanh, relative to it
ARGUS_FN float erf(float x);
ARGUS_FN float sin(float x);
ARGUS_FN float cos(float x);
ARGUS_FN float sigmoid(float x);
ARGUS_FN float floor(float x);
ARGUS_FN float ceil(float x);
}  // namespace target

namespace detail {

template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };
template <class A, class B> constexpr bool same = Same<A, B>::value;

template <class T> constexpr bool is_float = same<T, float> || same<T, tf32> || same<T, f16> || same<T, bf16> ||
                                             same<T, e4m3fn> || same<T, e5m2> || same<T, e4m3fnuz> || same<T, e5m2fnuz>;

template <int BYTES> struct Unsigned { using type = unsigned; };
template <> struct Unsigned<8> { using type = unsigned long long; };
// At least as wide as int, so that no operation on a narrow type is promoted to a signed one.
template <class T> using wide = typename Unsigned<sizeof(T)>::type;

ARGUS_FN float magnitude(float x) { return target::float_of(target::bits_of(x) & 0x7fffffffu); }

// ---- narrow floats in integer arithmetic, for targets without an instruction
// (OCP 8-bit floating point specification; "fnuz": one zero, and 0x80 is the one NaN)

// `code` is a magnitude of a format with M mantissa bits: its bits are those of a float whose exponent is too small.
template <int M, int BIAS> ARGUS_FN float scaled(unsigned code) {
    return target::float_of(code << (23 - M)) * target::float_of(static_cast<unsigned>(254 - BIAS) << 23);
}

// The magnitude code nearest to `magnitude` (bits of a float), as if the format had no largest exponent.
template <int M, int BIAS> ARGUS_FN unsigned nearest(unsigned magnitude) {
    constexpr unsigned smallest_normal = static_cast<unsigned>(128 - BIAS) << 23;
    constexpr unsigned unit = static_cast<unsigned>(151 - BIAS - M) << 23;  // a float whose last place is the first code
    constexpr int dropped = 23 - M;
    if (magnitude < smallest_normal)
        return target::bits_of(target::float_of(magnitude) + target::float_of(unit)) - unit;
    const unsigned odd = magnitude >> dropped & 1u;
    return ((magnitude + ((1u << (dropped - 1)) - 1u) + odd) >> dropped) - (static_cast<unsigned>(127 - BIAS) << M);
}

// Codes above `LARGEST` become `OVERFLOW`.
template <int M, int BIAS, unsigned LARGEST, unsigned OVERFLOW, unsigned NOT_A_NUMBER>
ARGUS_FN unsigned char encode(float x) {
    const unsigned bits = target::bits_of(x), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    if (magnitude > 0x7f800000u) return static_cast<unsigned char>(NOT_A_NUMBER);
    const unsigned code = nearest<M, BIAS>(magnitude);
    if (code > LARGEST) return static_cast<unsigned char>(OVERFLOW | sign);
    constexpr bool unsigned_zero = NOT_A_NUMBER == 0x80u;
    return static_cast<unsigned char>(unsigned_zero && code == 0 ? 0u : code | sign);
}

ARGUS_FN unsigned short encode_bf16(float x) {
    const unsigned bits = target::bits_of(x);
    return static_cast<unsigned short>(x != x ? 0x7fc0u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
ARGUS_FN unsigned char encode_e4m3fn(float x) { return encode<3, 7, 0x7e, 0x7e, 0x7f>(x); }
ARGUS_FN unsigned char encode_e5m2(float x) { return encode<2, 15, 0x7b, 0x7c, 0x7f>(x); }

ARGUS_FN float decode_e4m3fn(unsigned char bits) {
    const unsigned code = bits & 0x7fu;
    const float value = code == 0x7fu ? target::float_of(0x7fc00000u) : scaled<3, 7>(code);
    return bits & 0x80u ? -value : value;
}

template <int M, int BIAS> ARGUS_FN float decode_fnuz(unsigned char bits) {
    const float value = scaled<M, BIAS>(bits & 0x7fu);
    return bits == 0x80u ? target::float_of(0x7fc00000u) : bits & 0x80u ? -value : value;
}

// ---- every type through float

template <class T> ARGUS_FN float to_float(T x) {
    if constexpr (same<T, tf32>) return target::float_of(x.bits);
    else if constexpr (same<T, bf16>) return target::bf16_to_float(x.bits);
    else if constexpr (same<T, f16>) return target::f16_to_float(x.bits);
    else if constexpr (same<T, e4m3fn>) return target::e4m3fn_to_float(x.bits);
    else if constexpr (same<T, e5m2>) return target::f16_to_float(static_cast<unsigned short>(x.bits << 8));
    else if constexpr (same<T, e4m3fnuz>) return decode_fnuz<3, 8>(x.bits);
    else if constexpr (same<T, e5m2fnuz>) return decode_fnuz<2, 16>(x.bits);
    else return static_cast<float>(x);
}

// tf32 keeps 10 mantissa bits; ties away from zero, as cvt.rna. A NaN keeps a bit that says so.
ARGUS_FN unsigned float_to_tf32(float x) {
    const unsigned bits = target::bits_of(x);
    return (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x00400000u : (bits + 0x1000u) & 0xffffe000u;
}

template <class T> ARGUS_FN T from_float(float x) {
    if constexpr (same<T, tf32>) return T{float_to_tf32(x)};
    else if constexpr (same<T, bf16>) return T{target::float_to_bf16(x)};
    else if constexpr (same<T, f16>) return T{target::float_to_f16(x)};
    else if constexpr (same<T, e4m3fn>) return T{target::float_to_e4m3fn(x)};
    else if constexpr (same<T, e5m2>) return T{target::float_to_e5m2(x)};
    else if constexpr (same<T, e4m3fnuz>) return T{encode<3, 8, 0x7f, 0x80, 0x80>(x)};
    else if constexpr (same<T, e5m2fnuz>) return T{encode<2, 16, 0x7f, 0x80, 0x80>(x)};
    else return static_cast<T>(x);
}

template <class To> ARGUS_FN To truncated(float x) {
    if constexpr (same<To, i64>) {
        return target::float_to_i64(x);
    } else if constexpr (same<To, unsigned>) {
        const i64 whole = target::float_to_i64(x);
        return static_cast<unsigned>(whole < 0 ? 0 : whole > 0xffffffffll ? 0xffffffffll : whole);
    } else {
        const int whole = target::float_to_int(x);
        if constexpr (sizeof(To) == 4) {
            return whole;
        } else {
            constexpr int low = same<To, u8> || same<To, u16> ? 0 : -128, high = same<To, u16> ? 65535 : low + 255;
            return static_cast<To>(whole < low ? low : whole > high ? high : whole);
        }
    }
}

template <class T> ARGUS_FN bool is_nan(T x) {
    if constexpr (is_float<T>) {
        const float value = to_float(x);
        return value != value;
    } else {
        return false;
    }
}

}  // namespace detail

// ---- truth values

template <int N> ARGUS_FN void truths(bool* x) {
    auto bytes = reinterpret_cast<unsigned char*>(x);
    for (int i = 0; i < N; ++i) bytes[i] = bytes[i] != 0;
}

template <class To, class From> ARGUS_FN To cast(From x) {
    if constexpr (detail::same<To, From>) {
        return x;
    } else if constexpr (detail::is_float<From>) {
        const float value = detail::to_float(x);
        if constexpr (detail::same<To, bool>) return value != 0.0f;
        else if constexpr (detail::is_float<To>) return detail::from_float<To>(value);
        else return detail::truncated<To>(value);
    } else {
        if constexpr (detail::same<To, bool>) return x != 0;
        else if constexpr (detail::is_float<To>) return detail::from_float<To>(static_cast<float>(x));
        else return static_cast<To>(x);
    }
}

// Computed in float and rounded once: float has more than twice the digits of either type, so that is exact rounding.
#define ARGUS_ARITHMETIC(T)                                                                                   \
    ARGUS_FN T operator+(T x, T y) { return cast<T>(cast<float>(x) + cast<float>(y)); }                       \
    ARGUS_FN T operator-(T x, T y) { return cast<T>(cast<float>(x) - cast<float>(y)); }                       \
    ARGUS_FN T operator*(T x, T y) { return cast<T>(cast<float>(x) * cast<float>(y)); }                       \
    ARGUS_FN T operator/(T x, T y) { return cast<T>(cast<float>(x) / cast<float>(y)); }                       \
    ARGUS_FN T operator-(T x) { return T{static_cast<unsigned short>(x.bits ^ 0x8000u)}; }                    \
    ARGUS_FN bool operator==(T x, T y) { return cast<float>(x) == cast<float>(y); }                           \
    ARGUS_FN bool operator!=(T x, T y) { return cast<float>(x) != cast<float>(y); }                           \
    ARGUS_FN bool operator<(T x, T y) { return cast<float>(x) < cast<float>(y); }                             \
    ARGUS_FN bool operator<=(T x, T y) { return cast<float>(x) <= cast<float>(y); }                           \
    ARGUS_FN bool operator>(T x, T y) { return cast<float>(x) > cast<float>(y); }                             \
    ARGUS_FN bool operator>=(T x, T y) { return cast<float>(x) >= cast<float>(y); }
ARGUS_ARITHMETIC(f16)
ARGUS_ARITHMETIC(bf16)
#undef ARGUS_ARITHMETIC

// Negative floats are negative integers: minus the bits of their absolute value.
template <class To, class From> ARGUS_FN To sortable(From x) {
    if constexpr (detail::same<From, float>) {
        const unsigned bits = target::bits_of(x);
        const int magnitude = static_cast<int>(bits & 0x7fffffffu);
        return bits - 0x80000001u <= 0x7f7fffffu ? -magnitude : magnitude;  // below zero, and no NaN
    } else {
        const unsigned bits = static_cast<unsigned>(x);
        return target::float_of(x < 0 ? 0x80000000u | (0u - bits) : bits);
    }
}

template <class T> ARGUS_FN T where(bool c, T x, T y) { return c ? x : y; }

// How far a value is below the bound, as an unsigned number: of these values the largest is the nearest, and values that
// are not below are farther than all of them. NVIDIA's GPUs subtract and take the minimum in one instruction.
template <int N> ARGUS_FN int largest_below(int x, int bound, const int* values) {
    const unsigned last = static_cast<unsigned>(bound) - 1u;
    unsigned nearest = 0xffffffffu;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const unsigned far = last - static_cast<unsigned>(values[i]);
        nearest = far < nearest ? far : nearest;
    }
    const int found = static_cast<int>(last - nearest);
    return bound != -2147483647 - 1 && nearest <= last + 0x80000000u && found > x ? found : x;
}

template <class T> ARGUS_FN T minimum(T x, T y) {
    if constexpr (detail::same<T, float>) return target::minimum(x, y);
    else if constexpr (detail::is_float<T>) return cast<T>(target::minimum(cast<float>(x), cast<float>(y)));
    else return y < x ? y : x;
}

template <class T> ARGUS_FN T maximum(T x, T y) {
    if constexpr (detail::same<T, float>) return target::maximum(x, y);
    else if constexpr (detail::is_float<T>) return cast<T>(target::maximum(cast<float>(x), cast<float>(y)));
    else return x < y ? y : x;
}

template <class T> ARGUS_FN T absolute(T x) {
    using detail::wide;
    if constexpr (detail::same<T, float>) return detail::magnitude(x);
    else if constexpr (detail::is_float<T>) return cast<T>(detail::magnitude(cast<float>(x)));
    else if constexpr (static_cast<T>(-1) > 0) return x;
    else return x < 0 ? static_cast<T>(wide<T>(0) - static_cast<wide<T>>(x)) : x;
}

template <class T> ARGUS_FN T floordiv(T x, T y) {
    if constexpr (detail::is_float<T>) {
        return cast<T>(target::floor(cast<float>(x) / cast<float>(y)));
    } else {
        if constexpr (static_cast<T>(-1) < 0) // the machine may stop at the least x divided by -1
            if (y == -1) return static_cast<T>(detail::wide<T>(0) - static_cast<detail::wide<T>>(x));
        const T quotient = static_cast<T>(x / y);
        return static_cast<T>(quotient - ((x ^ y) < 0 && quotient * y != x ? 1 : 0));
    }
}

template <class T> ARGUS_FN T floormod(T x, T y) {
    if constexpr (detail::is_float<T>) {
        const float divisor = cast<float>(y), rest = target::modulo(cast<float>(x), divisor);
        return cast<T>(rest != 0.0f && (rest < 0.0f) != (divisor < 0.0f) ? rest + divisor : rest);
    } else {
        if constexpr (static_cast<T>(-1) < 0)
            if (y == -1) return 0;
        const T rest = static_cast<T>(x % y);
        return static_cast<T>(rest != 0 && (rest ^ y) < 0 ? rest + y : rest);
    }
}

template <class T> ARGUS_FN T add_wrap(T x, T y) {
    return static_cast<T>(static_cast<detail::wide<T>>(x) + static_cast<detail::wide<T>>(y));
}
template <class T> ARGUS_FN T sub_wrap(T x, T y) {
    return static_cast<T>(static_cast<detail::wide<T>>(x) - static_cast<detail::wide<T>>(y));
}
template <class T> ARGUS_FN T mul_wrap(T x, T y) {
    return static_cast<T>(static_cast<detail::wide<T>>(x) * static_cast<detail::wide<T>>(y));
}
ARGUS_FN unsigned umulhi(unsigned x, unsigned y) {
    return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
template <class T> ARGUS_FN T neg_wrap(T x) { return sub_wrap(static_cast<T>(0), x); }
template <class T> ARGUS_FN T shl(T x, T y) { return static_cast<T>(static_cast<detail::wide<T>>(x) << y); }
template <class T> ARGUS_FN T shr(T x, T y) { return static_cast<T>(x >> y); }

#define ARGUS_UNARY(NAME)                                                                                     \
    template <class T> ARGUS_FN T NAME(T x) {                                                                 \
        if constexpr (detail::same<T, float>) return target::NAME(x);                                         \
        else return cast<T>(target::NAME(cast<float>(x)));                                                    \
    }
ARGUS_UNARY(exp)
ARGUS_UNARY(exp2)
ARGUS_UNARY(log)
ARGUS_UNARY(log2)
ARGUS_UNARY(sqrt)
ARGUS_UNARY(rsqrt)
ARGUS_UNARY(tanh)
ARGUS_UNARY(tanh_approx)
ARGUS_UNARY(erf)
ARGUS_UNARY(sin)
ARGUS_UNARY(cos)
ARGUS_UNARY(sigmoid)
ARGUS_UNARY(floor)
ARGUS_UNARY(ceil)
#undef ARGUS_UNARY

template <class T> ARGUS_FN T infinity() { return cast<T>(target::float_of(0x7f800000u)); }
template <class T> ARGUS_FN T not_a_number() { return cast<T>(target::float_of(0x7fc00000u)); }

// ---- the order of blocks

struct BlockIds { int x, y; };

namespace detail {

// Block `number` of a grid (rows, columns) is mapped to a cell of that grid: `group` rows at a time, fewer in the last
// group, column by column. A whole group takes no division by a number that the compiler does not know: a persistent
// kernel's programs begin with this.
ARGUS_FN BlockIds grouped(int group, unsigned number, int rows, int columns) {
    const unsigned height = static_cast<unsigned>(group < rows ? group : rows), whole = static_cast<unsigned>(group);
    const unsigned size = height * static_cast<unsigned>(columns);
    const unsigned first = number / size * height, rest = number % size, left = static_cast<unsigned>(rows) - first;
    if (left >= whole) return {static_cast<int>(first + rest % whole), static_cast<int>(rest / whole)};
    const unsigned here = left < height ? left : height;
    return {static_cast<int>(first + rest % here), static_cast<int>(rest / here)};
}

// Dies take blocks in turns: block n of a grid runs on die n % dies. Numbered anew, each die has consecutive ones, so that
// the cache of a die holds what neighbours share.
ARGUS_FN unsigned of_die(unsigned number, unsigned blocks, unsigned dies) {
    const unsigned die = number % dies, more = blocks % dies;
    return die * (blocks / dies) + (die < more ? die : more) + number / dies;
}

// Blocks are counted with x first. Grids of more blocks than an int counts keep their order.
ARGUS_FN BlockIds grouped(int group, BlockIds at, int rows, int columns) {
    if (static_cast<i64>(rows) * columns > 0x7fffffff) return at;
    return grouped(group, static_cast<unsigned>(at.x + at.y * rows), rows, columns);
}

// The programs of a persistent kernel are shared out in rounds, one to each block, from the first block to the last and
// back: where programs get shorter one by one, no block has the longer one of every round.
ARGUS_FN int next_program(int program, int block, int blocks) {
    return program + (program / blocks % 2 == 0 ? 2 * (blocks - block) - 1 : 2 * block + 1);
}

}  // namespace detail

template <int GROUP> ARGUS_FN BlockIds grouped_program(int program, int rows, int columns) {
    return detail::grouped(GROUP, static_cast<unsigned>(program), rows, columns);
}

}  // namespace argus
