// Element types, conversions and elementwise functions of the device library, on the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace argus {

using i64 = long long;
using i8 = signed char;
using u8 = unsigned char;

struct tf32 { unsigned bits; };
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct e4m3fn { unsigned char bits; };
struct e5m2 { unsigned char bits; };
struct e4m3fnuz { unsigned char bits; };
struct e5m2fnuz { unsigned char bits; };

namespace detail {

inline unsigned float_bits(float x) { unsigned b; std::memcpy(&b, &x, 4); return b; }
inline float bits_float(unsigned b) { float x; std::memcpy(&x, &b, 4); return x; }

// IEEE: infinities and NaNs. FN: the largest code is NaN, no infinity. FNUZ: "minus zero" is the only NaN.
enum class Special { IEEE, FN, FNUZ };

template <int EXPONENT, int MANTISSA, int BIAS, Special SPECIAL> struct Format {
    static constexpr unsigned sign = 1u << (EXPONENT + MANTISSA);
    static constexpr unsigned top = ((1u << EXPONENT) - 1) << MANTISSA;  // all exponent bits
    static constexpr unsigned nan = SPECIAL == Special::IEEE ? top | (1u << (MANTISSA - 1))
                                    : SPECIAL == Special::FN ? sign - 1 : sign;
    static constexpr unsigned overflow = SPECIAL == Special::IEEE ? top : nan;
    static constexpr unsigned largest = SPECIAL == Special::IEEE ? top - 1
                                        : SPECIAL == Special::FN ? sign - 2 : sign - 1;

    static float decode(unsigned code) {
        const unsigned magnitude = code & (sign - 1);
        if (SPECIAL == Special::FNUZ ? code == nan : magnitude > (SPECIAL == Special::IEEE ? top : largest))
            return std::numeric_limits<float>::quiet_NaN();
        float value;
        if (SPECIAL == Special::IEEE && magnitude == top)
            value = std::numeric_limits<float>::infinity();
        else if (magnitude >> MANTISSA)
            value = bits_float(((magnitude >> MANTISSA) + 127 - BIAS) << 23 |
                               (magnitude & ((1u << MANTISSA) - 1)) << (23 - MANTISSA));
        else
            value = std::ldexp(static_cast<float>(magnitude), 1 - BIAS - MANTISSA);
        return code & sign ? -value : value;
    }

    // Round to nearest, ties to even: the magnitude in units of the last place, an exact quotient, is rounded once.
    static unsigned encode(float x) {
        if (x != x) return nan;
        const unsigned negative = std::signbit(x) ? sign : 0;
        const float magnitude = std::fabs(x);
        if (std::isinf(magnitude)) return overflow | (overflow == sign ? 0 : negative);
        int exponent = static_cast<int>(float_bits(magnitude) >> 23) - 127;
        const bool normal = exponent >= 1 - BIAS;
        if (!normal) exponent = 1 - BIAS;
        const double units = std::nearbyint(std::ldexp(static_cast<double>(magnitude), MANTISSA - exponent));
        unsigned code = static_cast<unsigned>(units);
        if (normal) code += static_cast<unsigned>(exponent + BIAS - 1) << MANTISSA;
        if (code > largest) return overflow | (overflow == sign ? 0 : negative);
        return SPECIAL == Special::FNUZ && code == 0 ? 0 : code | negative;
    }
};

template <class T> struct Traits { static constexpr bool small = false; };
template <class F> struct Small {
    static constexpr bool small = true;
    using format = F;
};
template <> struct Traits<f16> : Small<Format<5, 10, 15, Special::IEEE>> {};
template <> struct Traits<e4m3fn> : Small<Format<4, 3, 7, Special::FN>> {};
template <> struct Traits<e5m2> : Small<Format<5, 2, 15, Special::IEEE>> {};
template <> struct Traits<e4m3fnuz> : Small<Format<4, 3, 8, Special::FNUZ>> {};
template <> struct Traits<e5m2fnuz> : Small<Format<5, 2, 16, Special::FNUZ>> {};

template <class T> constexpr bool is_element =
    Traits<T>::small || std::is_same_v<T, bf16> || std::is_same_v<T, tf32>;

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) { return bits_float(static_cast<unsigned>(x.bits) << 16); }
inline float to_float(tf32 x) { return bits_float(x.bits); }
template <class T, class F = typename Traits<T>::format> float to_float(T x) {
    if constexpr (sizeof(T) == 1) {
        struct Table {
            float value[256];
            Table() { for (unsigned i = 0; i < 256; ++i) value[i] = F::decode(i); }
        };
        static const Table table;
        return table.value[x.bits];
    } else {
        return F::decode(x.bits);
    }
}

template <class T> T from_float(float x) {
    T result;
    if constexpr (std::is_same_v<T, float>) {
        result = x;
    } else if constexpr (std::is_same_v<T, bf16>) {
        const unsigned b = float_bits(x);
        result.bits = static_cast<unsigned short>(x != x ? 0x7fc0u : (b + 0x7fffu + (b >> 16 & 1)) >> 16);
    } else if constexpr (std::is_same_v<T, tf32>) {
        const unsigned b = float_bits(x);  // ties away from zero, as cvt.rna
        result.bits = x != x || std::isinf(x) ? b : (b + 0x1000u) & ~0x1fffu;
    } else {
        result.bits = static_cast<decltype(result.bits)>(Traits<T>::format::encode(x));
    }
    return result;
}

template <class To> To saturate(float x) {
    constexpr double low = static_cast<double>(std::numeric_limits<To>::min());
    constexpr double high = static_cast<double>(std::numeric_limits<To>::max());
    if (x != x) return 0;
    if (static_cast<double>(x) <= low) return std::numeric_limits<To>::min();
    if (static_cast<double>(x) >= high) return std::numeric_limits<To>::max();
    return static_cast<To>(x);
}

}  // namespace detail

template <class To, class From> To cast(From x) {
    constexpr bool from_float_type = detail::is_element<From> || std::is_same_v<From, float>;
    if constexpr (std::is_same_v<To, From>) {
        return x;
    } else if constexpr (from_float_type) {
        const float value = detail::to_float(x);
        if constexpr (std::is_same_v<To, bool>) return value != 0.0f;
        else if constexpr (std::is_integral_v<To>) return detail::saturate<To>(value);
        else return detail::from_float<To>(value);
    } else {
        if constexpr (std::is_same_v<To, bool>) return x != 0;
        else if constexpr (std::is_integral_v<To>) return static_cast<To>(x);
        else return detail::from_float<To>(static_cast<float>(x));
    }
}

#define ARGUS_SMALL_FLOAT(T)                                                                                     \
    inline T operator+(T a, T b) { return cast<T>(cast<float>(a) + cast<float>(b)); }                            \
    inline T operator-(T a, T b) { return cast<T>(cast<float>(a) - cast<float>(b)); }                            \
    inline T operator*(T a, T b) { return cast<T>(cast<float>(a) * cast<float>(b)); }                            \
    inline T operator/(T a, T b) { return cast<T>(cast<float>(a) / cast<float>(b)); }                            \
    inline T operator-(T a) { return cast<T>(-cast<float>(a)); }                                                 \
    inline bool operator==(T a, T b) { return cast<float>(a) == cast<float>(b); }                                \
    inline bool operator!=(T a, T b) { return cast<float>(a) != cast<float>(b); }                                \
    inline bool operator<(T a, T b) { return cast<float>(a) < cast<float>(b); }                                  \
    inline bool operator<=(T a, T b) { return cast<float>(a) <= cast<float>(b); }                                \
    inline bool operator>(T a, T b) { return cast<float>(a) > cast<float>(b); }                                  \
    inline bool operator>=(T a, T b) { return cast<float>(a) >= cast<float>(b); }
ARGUS_SMALL_FLOAT(f16)
ARGUS_SMALL_FLOAT(bf16)
#undef ARGUS_SMALL_FLOAT

template <class T> T where(bool c, T x, T y) { return c ? x : y; }

namespace detail {
template <class T> bool is_nan(T x) {
    if constexpr (std::is_integral_v<T>) return false;
    else return to_float(x) != to_float(x);
}
template <class T, class F> T through_float(T x, F f) { return cast<T>(f(cast<float>(x))); }
}  // namespace detail

template <class T> T minimum(T x, T y) { return detail::is_nan(x) || x < y ? x : y; }
template <class T> T maximum(T x, T y) { return detail::is_nan(x) || x > y ? x : y; }

template <class T> T absolute(T x) {
    if constexpr (std::is_same_v<T, bool>) return x;
    else if constexpr (std::is_integral_v<T>)
        return x < 0 ? static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(x)) : x;
    else return detail::through_float(x, [](float v) { return std::fabs(v); });
}

template <class T> T floordiv(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
        const T q = static_cast<T>(x / y);
        return static_cast<T>(q - (x % y != 0 && (x < 0) != (y < 0)));
    } else {
        return cast<T>(std::floor(cast<float>(x) / cast<float>(y)));
    }
}

template <class T> T floormod(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
        const T r = static_cast<T>(x % y);
        return static_cast<T>(r != 0 && (r < 0) != (y < 0) ? r + y : r);
    } else {
        const float a = cast<float>(x), b = cast<float>(y), r = std::fmod(a, b);
        return cast<T>(r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r);
    }
}

namespace detail {
// At least as wide as int, so that no operation on narrow types is promoted to a signed one.
template <class T> using wide = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
}  // namespace detail

template <class T> T add_wrap(T x, T y) { return T(detail::wide<T>(x) + detail::wide<T>(y)); }
template <class T> T sub_wrap(T x, T y) { return T(detail::wide<T>(x) - detail::wide<T>(y)); }
template <class T> T mul_wrap(T x, T y) { return T(detail::wide<T>(x) * detail::wide<T>(y)); }
template <class T> T neg_wrap(T x) { return T(detail::wide<T>(0) - detail::wide<T>(x)); }
template <class T> T shl(T x, T y) { return T(detail::wide<T>(x) << y); }
template <class T> T shr(T x, T y) { return T(x >> y); }

#define ARGUS_UNARY(name, expression)                                                                            \
    template <class T> T name(T value) {                                                                         \
        return detail::through_float(value, [](float x) -> float { return expression; });                        \
    }
ARGUS_UNARY(exp, std::exp(x))
ARGUS_UNARY(exp2, std::exp2(x))
ARGUS_UNARY(log, std::log(x))
ARGUS_UNARY(log2, std::log2(x))
ARGUS_UNARY(sqrt, std::sqrt(x))
ARGUS_UNARY(rsqrt, 1.0f / std::sqrt(x))
ARGUS_UNARY(tanh, std::tanh(x))
ARGUS_UNARY(erf, std::erf(x))
ARGUS_UNARY(sigmoid, 1.0f / (1.0f + std::exp(-x)))
ARGUS_UNARY(floor, std::floor(x))
ARGUS_UNARY(ceil, std::ceil(x))
#undef ARGUS_UNARY

template <class T> T infinity() { return cast<T>(std::numeric_limits<float>::infinity()); }
template <class T> T not_a_number() { return cast<T>(std::numeric_limits<float>::quiet_NaN()); }

}  // namespace argus
