// The target-independent part of the GPU headers, compiled for the host: the tests call it through C functions.
#define ARGUS_FN static inline
#include "argus_numeric.h"

namespace argus::target {
unsigned bits_of(float x) {
    unsigned bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
}
float float_of(unsigned bits) {
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}
}  // namespace argus::target

#include "argus_math.h"

namespace argus::target {
float f16_to_float(unsigned short bits) {
    const unsigned code = bits & 0x7fffu;
    const float value = code < 0x7c00u    ? detail::scaled<10, 15>(code)
                        : code == 0x7c00u ? float_of(0x7f800000u)
                                          : float_of(0x7fc00000u);
    return bits & 0x8000u ? -value : value;
}
float bf16_to_float(unsigned short bits) { return float_of(static_cast<unsigned>(bits) << 16); }
unsigned short float_to_f16(float) { return 0; }
unsigned short float_to_bf16(float x) { return detail::encode_bf16(x); }
float e4m3fn_to_float(unsigned char bits) { return detail::decode_e4m3fn(bits); }
unsigned char float_to_e4m3fn(float x) { return detail::encode_e4m3fn(x); }
unsigned char float_to_e5m2(float x) { return detail::encode_e5m2(x); }
int float_to_int(float x) {
    return x != x ? 0 : x >= 0x1p31f ? 0x7fffffff : x < -0x1p31f ? -0x7fffffff - 1 : static_cast<int>(x);
}
i64 float_to_i64(float) { return 0; }
float minimum(float x, float y) { return x != x || x < y ? x : y; }
float maximum(float x, float y) { return x != x || x > y ? x : y; }
float modulo(float x, float y) { return formula::modulo(x, y); }
float fused(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
float exp(float x) { return __builtin_expf(x); }
float exp2(float x) { return __builtin_exp2f(x); }
float log(float x) { return __builtin_logf(x); }
float log2(float x) { return __builtin_log2f(x); }
float sqrt(float x) { return __builtin_sqrtf(x); }
float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
float inverse_approx(float x) { return (1.0f + 0x1p-23f) / x; }  // as wrong as it may be
float tanh(float x) { return formula::tanh(x); }
float tanh_approx(float x) { return formula::tanh(x); }
float erf(float x) { return formula::erf(x); }
float sin(float x) { return formula::sin(x); }
float cos(float x) { return formula::cos(x); }
float sigmoid(float x) { return formula::sigmoid(x); }
float floor(float x) { return __builtin_floorf(x); }
float ceil(float x) { return __builtin_ceilf(x); }
}  // namespace argus::target

#define UNARY(NAME) \
    extern "C" void f_##NAME(const float* x, float* y, int n) { for (int i = 0; i < n; ++i) y[i] = argus::NAME(x[i]); }
FUNCTIONS  // UNARY of each, as the compiler is told

#define CAST(NAME, TYPE)                                                                                       \
    extern "C" void encode_##NAME(const float* x, float* y, int n) {                                           \
        for (int i = 0; i < n; ++i) y[i] = static_cast<float>(argus::cast<argus::TYPE>(x[i]).bits);            \
    }                                                                                                          \
    extern "C" void decode_##NAME(const float* x, float* y, int n) {                                           \
        for (int i = 0; i < n; ++i) {                                                                          \
            argus::TYPE narrow;                                                                                \
            narrow.bits = static_cast<decltype(narrow.bits)>(x[i]);                                            \
            y[i] = argus::cast<float>(narrow);                                                                 \
        }                                                                                                      \
    }
CAST(bfloat16, bf16)
CAST(float8_e4m3fn, e4m3fn)
CAST(float8_e5m2, e5m2)
CAST(float8_e4m3fnuz, e4m3fnuz)
CAST(float8_e5m2fnuz, e5m2fnuz)

extern "C" void round_tf32(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = argus::cast<float>(argus::cast<argus::tf32>(x[i]));
}
extern "C" void to_int8(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = argus::cast<argus::i8>(x[i]);
}
extern "C" void to_uint8(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = argus::cast<argus::u8>(x[i]);
}

// Row and column of every block of a grid, blocks counted with their first index first.
extern "C" void grouped(int group, int rows, int columns, int* ids) {
    for (int y = 0; y < columns; ++y)
        for (int x = 0; x < rows; ++x) {
            const argus::BlockIds found = argus::detail::grouped(group, {x, y}, rows, columns);
            *ids++ = found.x;
            *ids++ = found.y;
        }
}
extern "C" void grouped_one(int group, int rows, int columns, int x, int y, int* ids) {
    const argus::BlockIds found = argus::detail::grouped(group, {x, y}, rows, columns);
    ids[0] = found.x;
    ids[1] = found.y;
}

extern "C" void of_die(int blocks, int dies, int* numbers) {
    for (int n = 0; n < blocks; ++n) *numbers++ = static_cast<int>(argus::detail::of_die(n, blocks, dies));
}

#define BINARY(NAME)                                                                                           \
    extern "C" void i_##NAME(const int* x, const int* y, int* z, int n) {                                      \
        for (int i = 0; i < n; ++i) z[i] = argus::NAME(x[i], y[i]);                                            \
    }
BINARY(floordiv)
BINARY(floormod)
BINARY(add_wrap)
BINARY(sub_wrap)
BINARY(mul_wrap)
BINARY(minimum)
BINARY(maximum)
extern "C" void f_floormod(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = argus::floormod(x[i], y[i]);
}
extern "C" void f_modulo(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = argus::target::modulo(x[i], y[i]);
}

extern "C" void below(const int* bound, const int* first, int* z, int n) {
    for (int i = 0; i < n; ++i) {
        const int values[4] = {first[i], first[(i + 1) % n], first[(i + 2) % n], first[(i + 3) % n]};
        z[i] = argus::largest_below<4>(-2147483647 - 1, bound[i], values);
    }
}
extern "C" void order(const float* x, int* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = argus::sortable<int>(x[i]);
}
