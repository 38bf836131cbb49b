// Matrix instructions of all targets on the host. Lane maps: PTX ISA 9.0, "Matrix fragments for mma"; AMD CDNA3
// ISA guide, section 7.1. They are written out here, not taken from the compiler's tables: the second source.
#pragma once

#include "fibers.h"
#include "scalar.h"

namespace argus {
namespace detail {

struct At { int row, column; };  // operands: (m or n, k); result: (m, n)

template <class A, class B, class D> struct MatrixLane { const A* a; const B* b; D* d; };

template <class D, class T> D widen(T x) {
    if constexpr (same<D, int>) return static_cast<int>(x);
    else return to_float(x);
}

// MAP gives the coordinates of (lane, value): MAP::a and MAP::b of operands, MAP::d of the result.
template <int M, int N, int K, class MAP, class A, class B, class D>
void matrix(const char* kind, D* d, const A* a, const B* b) {
    MatrixLane<A, B, D> mine{a, b, d};
    meet_warp(kind, &mine, [](void** lanes) {
        constexpr int W = ARGUS_WARP_SIZE;
        D left[M][K], right[K][N], sum[M][N];
        for (int lane = 0; lane < W; ++lane) {
            const auto& at = *static_cast<MatrixLane<A, B, D>*>(lanes[lane]);
            for (int v = 0; v < M * K / W; ++v) {
                const At p = MAP::a(lane, v);
                left[p.row][p.column] = widen<D>(at.a[v]);
            }
            for (int v = 0; v < N * K / W; ++v) {
                const At p = MAP::b(lane, v);
                right[p.column][p.row] = widen<D>(at.b[v]);
            }
            for (int v = 0; v < M * N / W; ++v) {
                const At p = MAP::d(lane, v);
                sum[p.row][p.column] = at.d[v];
            }
        }
        for (int m = 0; m < M; ++m)
            for (int k = 0; k < K; ++k)
                for (int n = 0; n < N; ++n) sum[m][n] += left[m][k] * right[k][n];
        for (int lane = 0; lane < W; ++lane) {
            const auto& at = *static_cast<MatrixLane<A, B, D>*>(lanes[lane]);
            for (int v = 0; v < M * N / W; ++v) {
                const At p = MAP::d(lane, v);
                at.d[v] = sum[p.row][p.column];
            }
        }
    });
}

// A lane holds runs of RUN consecutive k of one row: the group number is lane / 4, the run number lane % 4.
template <int RUN> struct Nvidia {
    static constexpr int HALF = 4 * RUN;
    static At a(int lane, int v) {
        const int run = v / RUN;
        return {lane / 4 + (run & 1 ? 8 : 0), lane % 4 * RUN + v % RUN + (run & 2 ? HALF : 0)};
    }
    static At b(int lane, int v) { return {lane / 4, lane % 4 * RUN + v % RUN + v / RUN * HALF}; }
    static At d(int lane, int v) { return {lane / 4 + (v < 2 ? 0 : 8), lane % 4 * 2 + (v & 1)}; }
};

// A lane holds RUN consecutive k of row lane % SIDE; results come in groups of 4 consecutive m.
template <int SIDE, int RUN> struct Amd {
    static At a(int lane, int v) { return {lane % SIDE, lane / SIDE * RUN + v}; }
    static At b(int lane, int v) { return a(lane, v); }
    static At d(int lane, int v) {
        return {v / 4 * (4 * 64 / SIDE) + lane / SIDE * 4 + v % 4, lane % SIDE};
    }
};

// The same for the transposed product: groups of 4 consecutive n.
template <int SIDE, int RUN> struct AmdTransposed : Amd<SIDE, RUN> {
    static At d(int lane, int v) {
        return {lane % SIDE, v / 4 * (4 * 64 / SIDE) + lane / SIDE * 4 + v % 4};
    }
};

}  // namespace detail

#define ARGUS_MATRIX(name, D, M, N, K, ...)                                                                      \
    template <class A, class B> void name(D* d, const A* a, const B* b) {                                        \
        detail::matrix<M, N, K, detail::__VA_ARGS__>(#name, d, a, b);                                            \
    }
#if ARGUS_WARP_SIZE == 32
ARGUS_MATRIX(mma_m16n8k16, float, 16, 8, 16, Nvidia<2>)
ARGUS_MATRIX(mma_m16n8k8, float, 16, 8, 8, Nvidia<1>)
ARGUS_MATRIX(mma_m16n8k32, int, 16, 8, 32, Nvidia<4>)
ARGUS_MATRIX(mma_m16n8k32_fp8, float, 16, 8, 32, Nvidia<4>)
#else
ARGUS_MATRIX(mfma_f32_32x32x8, float, 32, 32, 8, Amd<32, 4>)
ARGUS_MATRIX(mfma_f32_16x16x16, float, 16, 16, 16, Amd<16, 4>)
ARGUS_MATRIX(mfma_f32_32x32x16_fp8, float, 32, 32, 16, Amd<32, 8>)
ARGUS_MATRIX(mfma_f32_16x16x32_fp8, float, 16, 16, 32, Amd<16, 8>)
ARGUS_MATRIX(mfma_i32_32x32x16, int, 32, 32, 16, Amd<32, 8>)
ARGUS_MATRIX(mfma_i32_16x16x32, int, 16, 16, 32, Amd<16, 8>)
ARGUS_MATRIX(mfma_f32_32x32x8_t, float, 32, 32, 8, AmdTransposed<32, 4>)
ARGUS_MATRIX(mfma_f32_16x16x16_t, float, 16, 16, 16, AmdTransposed<16, 4>)
ARGUS_MATRIX(mfma_f32_32x32x16_fp8_t, float, 32, 32, 16, AmdTransposed<32, 8>)
ARGUS_MATRIX(mfma_f32_16x16x32_fp8_t, float, 16, 16, 32, AmdTransposed<16, 8>)
ARGUS_MATRIX(mfma_i32_32x32x16_t, int, 32, 32, 16, AmdTransposed<32, 8>)
ARGUS_MATRIX(mfma_i32_16x16x32_t, int, 16, 16, 32, AmdTransposed<16, 8>)
ARGUS_MATRIX(mfma_f32_32x32x2, float, 32, 32, 2, Amd<32, 1>)
ARGUS_MATRIX(mfma_f32_16x16x4, float, 16, 16, 4, Amd<16, 1>)
ARGUS_MATRIX(mfma_f32_32x32x4_xf32, float, 32, 32, 4, Amd<32, 2>)
ARGUS_MATRIX(mfma_f32_16x16x8_xf32, float, 16, 16, 8, Amd<16, 2>)
ARGUS_MATRIX(mfma_f32_32x32x2_t, float, 32, 32, 2, AmdTransposed<32, 1>)
ARGUS_MATRIX(mfma_f32_16x16x4_t, float, 16, 16, 4, AmdTransposed<16, 1>)
ARGUS_MATRIX(mfma_f32_32x32x4_xf32_t, float, 32, 32, 4, AmdTransposed<32, 2>)
ARGUS_MATRIX(mfma_f32_16x16x8_xf32_t, float, 16, 16, 8, AmdTransposed<16, 2>)
#endif
#undef ARGUS_MATRIX

}  // namespace argus
