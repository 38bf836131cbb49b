// Scalar arithmetic of the host, for the element types and functions that all targets share. No header of the
// standard library: a kernel compiles in half the time.
#pragma once

#define ARGUS_FN inline
#include "argus_numeric.h"

namespace argus::target {

ARGUS_FN unsigned bits_of(float x) {
    unsigned bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}
ARGUS_FN float float_of(unsigned bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

ARGUS_FN float f16_to_float(unsigned short bits) {
    const unsigned code = bits & 0x7fffu, sign = static_cast<unsigned>(bits & 0x8000u) << 16;
    // Above the largest number the exponent of a float must be all ones as well.
    const unsigned magnitude = code >= 0x7c00u ? 0x7f800000u | code << 13 : bits_of(detail::scaled<10, 15>(code));
    return float_of(magnitude | sign);
}
ARGUS_FN float bf16_to_float(unsigned short bits) { return float_of(static_cast<unsigned>(bits) << 16); }
ARGUS_FN unsigned short float_to_f16(float x) {
    const unsigned magnitude = bits_of(x) & 0x7fffffffu, sign = bits_of(x) >> 16 & 0x8000u;
    if (magnitude > 0x7f800000u) return 0x7fffu;
    const unsigned code = detail::nearest<10, 15>(magnitude);
    return static_cast<unsigned short>(sign | (code > 0x7c00u ? 0x7c00u : code));
}
ARGUS_FN unsigned short float_to_bf16(float x) { return detail::encode_bf16(x); }
ARGUS_FN float e4m3fn_to_float(unsigned char bits) { return detail::decode_e4m3fn(bits); }
ARGUS_FN unsigned char float_to_e4m3fn(float x) { return detail::encode_e4m3fn(x); }
ARGUS_FN unsigned char float_to_e5m2(float x) { return detail::encode_e5m2(x); }

// The bound 2^31 or 2^63 is exact as a float, and so is its negative, the smallest integer.
template <class To> ARGUS_FN To saturated(float x, float bound) {
    constexpr To smallest = static_cast<To>(1ull << (8 * sizeof(To) - 1)), largest = static_cast<To>(~smallest);
    if (x != x) return 0;
    return x < -bound ? smallest : x >= bound ? largest : static_cast<To>(x);
}
ARGUS_FN int float_to_int(float x) { return saturated<int>(x, 0x1p31f); }
ARGUS_FN i64 float_to_i64(float x) { return saturated<i64>(x, 0x1p63f); }

ARGUS_FN float minimum(float x, float y) { return x != x || x < y ? x : y; }
ARGUS_FN float maximum(float x, float y) { return x != x || x > y ? x : y; }
ARGUS_FN float modulo(float x, float y) { return __builtin_fmodf(x, y); }
ARGUS_FN float fused(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
ARGUS_FN float exp(float x) { return __builtin_expf(x); }
ARGUS_FN float exp2(float x) { return __builtin_exp2f(x); }
ARGUS_FN float log(float x) { return __builtin_logf(x); }
ARGUS_FN float log2(float x) { return __builtin_log2f(x); }
ARGUS_FN float sqrt(float x) { return __builtin_sqrtf(x); }
ARGUS_FN float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
ARGUS_FN float inverse_approx(float x) { return 1.0f / x; }
ARGUS_FN float tanh(float x) { return __builtin_tanhf(x); }
ARGUS_FN float tanh_approx(float x) { return __builtin_tanhf(x); }
ARGUS_FN float erf(float x) { return __builtin_erff(x); }
ARGUS_FN float sin(float x) { return __builtin_sinf(x); }
ARGUS_FN float cos(float x) { return __builtin_cosf(x); }
ARGUS_FN float sigmoid(float x) { return 1.0f / (1.0f + __builtin_expf(-x)); }
ARGUS_FN float floor(float x) { return __builtin_floorf(x); }
ARGUS_FN float ceil(float x) { return __builtin_ceilf(x); }

}  // namespace argus::target

#include "argus_math.h"
