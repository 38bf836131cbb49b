// Scalar arithmetic of the host, for the element types and functions that all targets share.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#define ARGUS_FN inline
#include "argus_numeric.h"

namespace argus::target {

ARGUS_FN unsigned bits_of(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
ARGUS_FN float float_of(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

ARGUS_FN float f16_to_float(unsigned short bits) {
    const unsigned code = bits & 0x7fffu, sign = static_cast<unsigned>(bits & 0x8000u) << 16;
    // Above the largest number the exponent of a float must be all ones as well.
    const unsigned magnitude = code >= 0x7c00u ? 0x7f800000u | code << 13 : bits_of(detail::scaled<10, 15>(code));
    return float_of(magnitude | sign);
}
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

template <class To> To saturated(float x) {
    if (x != x) return 0;
    // Both bounds are exact as float, the upper one being one more than the largest integer.
    if (x < static_cast<float>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (x >= -static_cast<float>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::max();
    return static_cast<To>(x);
}
ARGUS_FN int float_to_int(float x) { return saturated<int>(x); }
ARGUS_FN i64 float_to_i64(float x) { return saturated<i64>(x); }

ARGUS_FN float minimum(float x, float y) { return x != x || x < y ? x : y; }
ARGUS_FN float maximum(float x, float y) { return x != x || x > y ? x : y; }
ARGUS_FN float modulo(float x, float y) { return std::fmod(x, y); }
ARGUS_FN float exp(float x) { return std::exp(x); }
ARGUS_FN float exp2(float x) { return std::exp2(x); }
ARGUS_FN float log(float x) { return std::log(x); }
ARGUS_FN float log2(float x) { return std::log2(x); }
ARGUS_FN float sqrt(float x) { return std::sqrt(x); }
ARGUS_FN float rsqrt(float x) { return 1.0f / std::sqrt(x); }
ARGUS_FN float tanh(float x) { return std::tanh(x); }
ARGUS_FN float erf(float x) { return std::erf(x); }
ARGUS_FN float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
ARGUS_FN float floor(float x) { return std::floor(x); }
ARGUS_FN float ceil(float x) { return std::ceil(x); }

}  // namespace argus::target
