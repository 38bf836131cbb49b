ARGUS_KERNEL(argus_product, 64)(
    const argus::bf16* ARGUS_RESTRICT a,
    const argus::bf16* ARGUS_RESTRICT b,
    float* ARGUS_RESTRICT c,
    int M,
    int K,
    int N,
    argus::i64 a_stride0,
    argus::i64 b_stride0,
    argus::i64 c_stride0
) {
    const int thread = argus::thread_id();
    const int t0 = thread % 32;
    const int t1 = thread / 32 * 4;
    const argus::i64 p0 = argus::i64(t0) * a_stride0 + t1;
    const argus::i64 p1 = argus::i64(t0) * b_stride0 + t1;
    const argus::i64 p2 = argus::i64(t1) * c_stride0 + t0;
    alignas(16) float acc[16];  // [32x32 | t 32@1 2@0*4 | v 4@0 4@0*8]
    alignas(16) argus::bf16 af[4];  // [32x8 | t 32@0 2@1*4 | v 4@1]
    alignas(16) argus::bf16 bf[4];  // [32x8 | t 32@0 2@1*4 | v 4@1]

    argus::launch_dependents();
    argus::begin();
    #pragma unroll
    for (int v1 = 0; v1 < 4; ++v1) {
        #pragma unroll
        for (int v0 = 0; v0 < 4; ++v0) {
            acc[4 * v1 + v0] = 0.0f;
        }
    }
    #pragma unroll
    for (int v0 = 0; v0 < 4; ++v0) {
        argus::load_global<1>(a, p0 + v0, &af[v0]);
    }
    #pragma unroll
    for (int v0 = 0; v0 < 4; ++v0) {
        argus::load_global<1>(b, p1 + v0, &bf[v0]);
    }
    argus::mfma_f32_32x32x8(&acc[0], &af[0], &bf[0]);
    #pragma unroll
    for (int v1 = 0; v1 < 4; ++v1) {
        #pragma unroll
        for (int v0 = 0; v0 < 4; ++v0) {
            argus::store_global<1>(c, p2 + argus::i64(v1 * 8 + v0) * c_stride0, &acc[4 * v1 + v0]);
        }
    }
}
