// Elementary functions for targets that lack them, or whose own are not good enough, from exp, fused multiply-add and
// arithmetic.
// Included after argus_numeric.h; the polynomials are minimax fits of this project, errors as tests measure them.
#pragma once

namespace argus::formula {

using target::fused;

template <int N> ARGUS_FN float polynomial(const float (&coefficients)[N], float x) {
    float sum = coefficients[N - 1];
    for (int i = N - 2; i >= 0; --i) sum = fused(sum, x, coefficients[i]);
    return sum;
}

ARGUS_FN float with_sign(float magnitude, float sign) {
    return target::float_of(target::bits_of(magnitude) | (target::bits_of(sign) & 0x80000000u));
}

// Within 2 ulp. Small: x + x^3 P(x^2). Large: 1 - 2 / (exp(2x) + 1), which is 1 once exp overflows.
ARGUS_FN float tanh(float x) {
    constexpr float near_zero[] = {-0.333332986f, 0.133319587f, -0.0537866764f, 0.0208053645f, -0.00590584660f};
    const float size = detail::magnitude(x), square = x * x;
    if (size < 0.6f) return with_sign(fused(polynomial(near_zero, square) * square, size, size), x);
    const float large = 1.0f - 2.0f / (target::exp(2.0f * size) + 1.0f);
    return x != x ? x : with_sign(large, x);
}

// Within 2 ulp. Small: x + x P(x^2). Large: 1 - exp(-Q(|x|)), Q a fit of -log(erfc) up to 4, where erf rounds to 1.
ARGUS_FN float erf(float x) {
    constexpr float near_zero[] = {0.128379166f,    -0.376126349f,  0.112837195f,    -0.0268607531f,
                                   0.00520443590f, -0.000818192610f, 0.0000853883466f};
    constexpr float tail[] = {0.000177471666f, 1.12774968f,     0.637059569f,     0.104037538f,
                              -0.0222771782f,  0.00305563235f, -0.000197184461f};
    const float size = detail::magnitude(x);
    if (size < 0.9f) return fused(polynomial(near_zero, x * x), x, x);
    const float large = 1.0f - target::exp(-polynomial(tail, size < 4.0f ? size : 4.0f));
    return x != x ? x : with_sign(large, x);
}

// An angle of at least 0 as quadrant * pi/2 + rest, where -pi/4 <= rest <= pi/4, nearly; 0 of infinity and NaN is NaN.
struct Angle { float rest; unsigned quadrant; };

// 32 bits of 2/pi from bit `at` on; bits 64 and later are those behind the point.
ARGUS_FN unsigned two_over_pi(int at) {
    constexpr unsigned words[] = {0u, 0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u};
    unsigned high = 0, low = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // no array that is indexed when it runs
        if (i == at / 32) high = words[i];
        if (i == at / 32 + 1) low = words[i];
    }
    return at % 32 ? high << at % 32 | low >> (32 - at % 32) : high;
}

// Payne and Hanek: the mantissa times those bits of 2/pi that are no multiple of a turn. Right to 2^-62 of a quadrant.
ARGUS_FN Angle reduce_exactly(float x) {
    const unsigned bits = target::bits_of(x);
    if (bits >= 0x7f800000u) return {target::float_of(0x7fc00000u), 0u};
    const int at = static_cast<int>(bits >> 23) - 127 - 33 + 64;
    const unsigned long long mantissa = (bits << 8) | 0x80000000u;
    const unsigned long long low = mantissa * two_over_pi(at + 64), middle = mantissa * two_over_pi(at + 32);
    const unsigned long long carried = middle + (low >> 32);
    const unsigned long long turns = (mantissa * two_over_pi(at) << 32) + carried;
    unsigned quadrant = static_cast<unsigned>(turns >> 62);
    const i64 fraction = static_cast<i64>(turns << 2 | (low & 0xffffffffu) >> 30);
    if (fraction < 0) ++quadrant;
    return {static_cast<float>(static_cast<double>(fraction) * 8.5153039502163872e-20), quadrant};  // pi/2 2^-64
}

// Cody and Waite with pi/2 as the sum of three numbers; beyond, all its digits count.
ARGUS_FN Angle reduce(float x) {
    if (!(x < 32768.0f)) return reduce_exactly(x);
    const float turns = fused(x, 0.636619747f, 12582912.0f);  // 1.5 2^23: rounds to an integer
    const float count = turns - 12582912.0f;
    const float rest = fused(-count, -1.71512451e-15f, fused(-count, -4.37113883e-8f, fused(-count, 1.57079637f, x)));
    return {rest, target::bits_of(turns)};
}

// The sine of an angle, or its cosine, a quadrant further.
ARGUS_FN float wave(Angle angle) {
    constexpr float sine[] = {-0.166666672f, 0.00833333191f, -0.000198400754f, 0.00000272483658f};
    constexpr float cosine[] = {0.0416666642f, -0.00138882967f, 0.0000245466563f};
    const float x = angle.rest, square = x * x;
    const float odd = fused(polynomial(sine, square) * square, x, x);
    const float even = fused(polynomial(cosine, square) * square, square, fused(-0.5f, square, 1.0f));
    const float size = angle.quadrant & 1u ? even : odd;
    return angle.quadrant & 2u ? -size : size;
}

// Within 2 ulp, for every number.
ARGUS_FN float sin(float x) {
    const float size = wave(reduce(detail::magnitude(x)));
    return target::bits_of(x) >> 31 ? -size : size;
}
ARGUS_FN float cos(float x) {
    const Angle angle = reduce(detail::magnitude(x));
    return wave({angle.rest, angle.quadrant + 1});
}

ARGUS_FN float sigmoid(float x) { return 1.0f / (1.0f + target::exp(-x)); }

// A positive number as mantissa in [2^23, 2^24) and exponent: its value is mantissa * 2^(exponent - 150).
ARGUS_FN void normalise(unsigned bits, unsigned& mantissa, int& exponent) {
    exponent = static_cast<int>(bits >> 23);
    mantissa = exponent ? (bits & 0x7fffffu) | 0x800000u : bits;
    if (!exponent) exponent = 1;
    for (; !(mantissa & 0x800000u); mantissa <<= 1) --exponent;
}

// C's fmod, exact: long division of the mantissas, one bit a step.
ARGUS_FN float modulo(float x, float y) {
    const unsigned dividend = target::bits_of(detail::magnitude(x)), divisor = target::bits_of(detail::magnitude(y));
    if (divisor == 0 || dividend >= 0x7f800000u || divisor > 0x7f800000u) return target::float_of(0x7fc00000u);
    if (dividend < divisor) return x;
    unsigned rest, step;
    int exponent, last;
    normalise(dividend, rest, exponent);
    normalise(divisor, step, last);
    for (; exponent > last; --exponent) rest = (rest >= step ? rest - step : rest) << 1;
    if (rest >= step) rest -= step;
    if (rest == 0) return with_sign(0.0f, x);
    for (; !(rest & 0x800000u); rest <<= 1) --last;
    const unsigned bits = last > 0 ? static_cast<unsigned>(last) << 23 | (rest & 0x7fffffu) : rest >> (1 - last);
    return with_sign(target::float_of(bits), x);
}

// Within 3 ulp: the logarithm of 1 + x as rounded, plus what rounding lost, over that sum. Where they cancel, both are small.
ARGUS_FN float log1p(float x) {
    const float sum = 1.0f + x, lost = x - (sum - 1.0f);
    if (sum == 1.0f) return x;
    const bool positive = sum > 0.0f && sum <= 3.40282347e38f;  // else -infinity, infinity or NaN
    return target::log(sum) + (positive ? lost * target::inverse_approx(sum) : 0.0f);
}

// Within 4 ulp: exp(x) - 1 as rounded, times what rounding changed x by (W. Kahan).
ARGUS_FN float expm1(float x) {
    const float power = target::exp(x);
    if (power == 1.0f) return x;
    if (!(power <= 3.40282347e38f)) return power;  // infinity, NaN
    const float rest = power - 1.0f;
    return rest == -1.0f ? rest : rest * (x / target::log(power));
}

}  // namespace argus::formula

namespace argus {

// Functions that are one formula on every target. A new one is a formula above, and a line here.
#define ARGUS_EVERYWHERE(NAME)                                                          \
    template <class T> ARGUS_FN T NAME(T x) {                                           \
        if constexpr (detail::same<T, float>) return formula::NAME(x);                  \
        else return cast<T>(formula::NAME(cast<float>(x)));                             \
    }
ARGUS_EVERYWHERE(log1p)
ARGUS_EVERYWHERE(expm1)
#undef ARGUS_EVERYWHERE

}  // namespace argus
