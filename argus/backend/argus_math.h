// Elementary functions for targets without a mathematics library, from exp, fused multiply-add and arithmetic.
// Included after argus_numeric.h; the polynomials are minimax fits of this project, errors as tests measure them.
#pragma once

namespace argus::formula {

// One rounding of x * y + z.
ARGUS_FN float fused(float x, float y, float z) { return __builtin_fmaf(x, y, z); }

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

}  // namespace argus::formula
