ARGUS_KERNEL(argus_row_sums, 64)(
    const float* ARGUS_RESTRICT x,
    float* ARGUS_RESTRICT out,
    int M,
    int N,
    int L,
    argus::i64 x_stride0
) {
    const int thread = argus::thread_id();
    const int t0 = thread / 8 % 4 * 2 + thread / 32 * 8;
    const int t1 = thread % 2 * 4 + thread / 4 % 2 * 8;
    const argus::i64 p0 = argus::i64(t0) * x_stride0 + t1;
    const argus::i64 p1 = t0;
    alignas(16) float xf[8];  // [16x16 | t 2@1*4 2@_ 2@1*8 4@0*2 2@0*8 | v 4@1 2@0]
    alignas(16) float yf[2];  // [16 | t 2@_ 2@_ 2@_ 4@0*2 2@0*8 | v 2@0]

    argus::begin();
    #pragma unroll
    for (int v1 = 0; v1 < 2; ++v1) {
        #pragma unroll
        for (int v0 = 0; v0 < 4; ++v0) {
            argus::load_global<1>(x, p0 + argus::i64(v1) * x_stride0 + v0, &xf[4 * v1 + v0]);
        }
    }
    #pragma unroll
    for (int v0 = 0; v0 < 2; ++v0) {
        argus::load_global<1>(out, p1 + v0, &yf[v0]);
    }
    {
        float total[2];
        #pragma unroll
        for (int r = 0; r < 2; ++r) total[r] = (-argus::infinity<float>());
        #pragma unroll
        for (int v1 = 0; v1 < 2; ++v1) {
            #pragma unroll
            for (int v0 = 0; v0 < 4; ++v0) {
                if (t1 + v0 < L) total[v1] = argus::maximum(total[v1], xf[4 * v1 + v0]);
            }
        }
        #pragma unroll
        for (int r = 0; r < 2; ++r) total[r] = argus::maximum(total[r], argus::shuffle_xor(total[r], 1));
        #pragma unroll
        for (int r = 0; r < 2; ++r) total[r] = argus::maximum(total[r], argus::shuffle_xor(total[r], 4));
        #pragma unroll
        for (int r = 0; r < 2; ++r) yf[r] = argus::maximum(yf[r], total[r]);
    }
    if (thread % 8 == 0) {
        #pragma unroll
        for (int v0 = 0; v0 < 2; ++v0) {
            argus::store_global<1>(out, p1 + v0, &yf[v0]);
        }
    }
    argus::launch_dependents();
}
