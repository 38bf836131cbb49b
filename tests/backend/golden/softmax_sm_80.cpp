ARGUS_KERNEL(argus_softmax, 128)(
    const float* ARGUS_RESTRICT x,
    float* ARGUS_RESTRICT out,
    int M,
    int N,
    argus::i64 x_stride0,
    argus::i64 out_stride0
) {
    ARGUS_SHARED(smem, 144);
    // smem + 0: top_scratch, float32 1x4, (1,4):(4,1)
    // smem + 128: total_scratch, float32 1x4, (1,4):(4,1)
    const int thread = argus::thread_id();
    const int block0 = argus::block_id<0>();
    const int t0 = thread * 4;
    const argus::i64 p0 = t0;
    const int t1 = thread / 32;
    const int p1 = t1 * 4;
    alignas(16) float xt[8];  // [1x1024 | t 128@1*4 | v 4@1 2@1*512]
    alignas(16) float et[8];  // [1x1024 | t 128@1*4 | v 4@1 2@1*512]
    alignas(16) float yt[8];  // [1x1024 | t 128@1*4 | v 4@1 2@1*512]
    alignas(16) float top[1];  // [1 | t 128@_ | v]
    alignas(16) float total_[1];  // [1 | t 128@_ | v]
    alignas(16) float top_partial[1];  // [1x4x32 | t 32@2 4@1 | v]
    alignas(16) float top_warp[1];  // [1x4 | t 32@_ 4@1 | v]
    alignas(16) float top_warps[4];  // [1x4 | t 128@_ | v 4@1]
    alignas(16) float total_partial[1];  // [1x4x32 | t 32@2 4@1 | v]
    alignas(16) float total_warp[1];  // [1x4 | t 32@_ 4@1 | v]
    alignas(16) float total_warps[4];  // [1x4 | t 128@_ | v 4@1]

    #pragma unroll
    for (int v0 = 0; v0 < 2; ++v0) {
        argus::load_global_or<4>(block0 + 0 < M && t0 + v0 * 512 < N, x + (argus::i64(block0) * x_stride0), p0 + v0 * 512, &xt[4 * v0], (-argus::infinity<float>()));
    }
    top[0] = (-argus::infinity<float>());
    top_partial[0] = (-argus::infinity<float>());
    #pragma unroll
    for (int v1 = 0; v1 < 2; ++v1) {
        #pragma unroll
        for (int v0 = 0; v0 < 4; ++v0) {
            top_partial[0] = argus::maximum(top_partial[0], xt[4 * v1 + v0]);
        }
    }
    top_warp[0] = (-argus::infinity<float>());
    {
        float total[1];
        total[0] = (-argus::infinity<float>());
        total[0] = argus::maximum(total[0], top_partial[0]);
        total[0] = argus::maximum(total[0], argus::shuffle_xor(total[0], 1));
        total[0] = argus::maximum(total[0], argus::shuffle_xor(total[0], 2));
        total[0] = argus::maximum(total[0], argus::shuffle_xor(total[0], 4));
        total[0] = argus::maximum(total[0], argus::shuffle_xor(total[0], 8));
        total[0] = argus::maximum(total[0], argus::shuffle_xor(total[0], 16));
        top_warp[0] = argus::maximum(top_warp[0], total[0]);
    }
    if (thread % 32 == 0) {
        argus::store_shared<1>(smem, p1, &top_warp[0]);
    }
    argus::barrier();
    argus::load_shared<4>(smem, 0, &top_warps[0]);
    #pragma unroll
    for (int v0 = 0; v0 < 4; ++v0) {
        top[0] = argus::maximum(top[0], top_warps[v0]);
    }
    #pragma unroll
    for (int v1 = 0; v1 < 2; ++v1) {
        #pragma unroll
        for (int v0 = 0; v0 < 4; ++v0) {
            et[4 * v1 + v0] = argus::exp(xt[4 * v1 + v0] - top[0]);
        }
    }
    total_[0] = 0.0f;
    total_partial[0] = 0.0f;
    #pragma unroll
    for (int v1 = 0; v1 < 2; ++v1) {
        #pragma unroll
        for (int v0 = 0; v0 < 4; ++v0) {
            total_partial[0] = total_partial[0] + et[4 * v1 + v0];
        }
    }
    total_warp[0] = 0.0f;
    {
        float total[1];
        total[0] = 0.0f;
        total[0] = total[0] + total_partial[0];
        total[0] = total[0] + argus::shuffle_xor(total[0], 1);
        total[0] = total[0] + argus::shuffle_xor(total[0], 2);
        total[0] = total[0] + argus::shuffle_xor(total[0], 4);
        total[0] = total[0] + argus::shuffle_xor(total[0], 8);
        total[0] = total[0] + argus::shuffle_xor(total[0], 16);
        total_warp[0] = total_warp[0] + total[0];
    }
    if (thread % 32 == 0) {
        argus::store_shared<1>(smem, p1 + 128, &total_warp[0]);
    }
    argus::barrier();
    argus::load_shared<4>(smem, 128, &total_warps[0]);
    #pragma unroll
    for (int v0 = 0; v0 < 4; ++v0) {
        total_[0] = total_[0] + total_warps[v0];
    }
    #pragma unroll
    for (int v1 = 0; v1 < 2; ++v1) {
        #pragma unroll
        for (int v0 = 0; v0 < 4; ++v0) {
            yt[4 * v1 + v0] = et[4 * v1 + v0] / total_[0];
        }
    }
    #pragma unroll
    for (int v0 = 0; v0 < 2; ++v0) {
        argus::store_global_if<4>(block0 + 0 < M && t0 + v0 * 512 < N, out + (argus::i64(block0) * out_stride0), p0 + v0 * 512, &yt[4 * v0]);
    }
}
