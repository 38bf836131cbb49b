ARGUS_KERNEL(argus_gemm, 256)(
    const argus::bf16* ARGUS_RESTRICT a,
    const argus::bf16* ARGUS_RESTRICT b,
    argus::bf16* ARGUS_RESTRICT c,
    int M,
    int K,
    int N,
    argus::i64 a_stride0,
    argus::i64 b_stride0,
    argus::i64 c_stride0
) {
    ARGUS_SHARED(smem, 16384);
    // smem + 0: at, bfloat16 2x64x32, Sw<2,3,3> o 0 o (2,64,32):(2048,32,1)
    // smem + 8192: bt, bfloat16 2x64x32, Sw<2,3,3> o 0 o (2,64,32):(2048,32,1)
    const int thread = argus::thread_id();
    const int block0 = argus::block_id<0>();
    const int t0 = thread / 4;
    const int t1 = thread % 4 * 8;
    const argus::i64 p0 = argus::i64(t0) * a_stride0 + t1;
    const int p1 = t0 * 32 + t1;
    const int p2 = (p1 ^ ((p1 & 192) >> 3)) * 2;
    const int block1 = argus::block_id<1>();
    const argus::i64 p3 = argus::i64(t0) * b_stride0 + t1;
    const int t2 = thread % 32 + thread / 128 * 32;
    const int t3 = thread / 32 % 2 * 4;
    const int p4 = t2 * 32 + t3;
    const int p5 = (p4 ^ ((p4 & 192) >> 3)) * 2;
    const int t4 = thread % 32 + thread / 64 % 2 * 32;
    const int p6 = t4 * 32 + t3;
    const int p7 = (p6 ^ ((p6 & 192) >> 3)) * 2;
    const int t5 = thread / 32 % 2 * 4 + thread / 128 * 32;
    const argus::i64 p8 = argus::i64(t5) * c_stride0 + t4;
    alignas(16) float acc[16];  // [64x64 | t 32@1 2@0*4 2@1*32 2@0*32 | v 4@0 4@0*8]
    alignas(16) argus::bf16 ct[16];  // [64x64 | t 32@1 2@0*4 2@1*32 2@0*32 | v 4@0 4@0*8]
    alignas(16) argus::bf16 at_next[8];  // [64x32 | t 4@1*8 64@0 | v 8@1]
    alignas(16) argus::bf16 bt_next[8];  // [64x32 | t 4@1*8 64@0 | v 8@1]
    alignas(16) argus::bf16 at_a[4];  // [64x8 | t 32@0 2@1*4 2@_ 2@0*32 | v 4@1]
    alignas(16) argus::bf16 bt_b[4];  // [64x8 | t 32@0 2@1*4 2@0*32 2@_ | v 4@1]

    #pragma unroll
    for (int v1 = 0; v1 < 4; ++v1) {
        #pragma unroll
        for (int v0 = 0; v0 < 4; ++v0) {
            acc[4 * v1 + v0] = 0.0f;
        }
    }
    if (0 < K) {
        argus::load_global_or<8>(block0 * 64 + t0 < M && t1 < K, a + (argus::i64(block0 * 64) * a_stride0), p0, &at_next[0], argus::cast<argus::bf16>(0.0f));
        argus::store_shared<8>(smem, p2, &at_next[0]);
        argus::load_global_or<8>(block1 * 64 + t0 < N && t1 < K, b + (argus::i64(block1 * 64) * b_stride0), p3, &bt_next[0], argus::cast<argus::bf16>(0.0f));
        argus::store_shared<8>(smem, p2 + 8192, &bt_next[0]);
    }
    for (int k0 = 0; k0 < K; k0 += 32) {
        argus::barrier();
        if (k0 + 32 < K) {
            argus::load_global_or<8>(block0 * 64 + t0 < M && k0 + 32 + t1 < K, a + (argus::i64(block0 * 64) * a_stride0 + k0 + 32), p0, &at_next[0], argus::cast<argus::bf16>(0.0f));
            argus::load_global_or<8>(block1 * 64 + t0 < N && k0 + 32 + t1 < K, b + (argus::i64(block1 * 64) * b_stride0 + k0 + 32), p3, &bt_next[0], argus::cast<argus::bf16>(0.0f));
        }
        argus::load_shared<4>(smem, p5 + k0 / 32 % 2 * 4096, &at_a[0]);
        argus::load_shared<4>(smem, p7 + k0 / 32 % 2 * 4096 + 8192, &bt_b[0]);
        argus::mfma_f32_32x32x8(&acc[0], &at_a[0], &bt_b[0]);
        argus::load_shared<4>(smem, (p5 ^ 16) + k0 / 32 % 2 * 4096, &at_a[0]);
        argus::load_shared<4>(smem, (p7 ^ 16) + k0 / 32 % 2 * 4096 + 8192, &bt_b[0]);
        argus::mfma_f32_32x32x8(&acc[0], &at_a[0], &bt_b[0]);
        argus::load_shared<4>(smem, (p5 ^ 32) + k0 / 32 % 2 * 4096, &at_a[0]);
        argus::load_shared<4>(smem, (p7 ^ 32) + k0 / 32 % 2 * 4096 + 8192, &bt_b[0]);
        argus::mfma_f32_32x32x8(&acc[0], &at_a[0], &bt_b[0]);
        argus::load_shared<4>(smem, (p5 ^ 48) + k0 / 32 % 2 * 4096, &at_a[0]);
        argus::load_shared<4>(smem, (p7 ^ 48) + k0 / 32 % 2 * 4096 + 8192, &bt_b[0]);
        argus::mfma_f32_32x32x8(&acc[0], &at_a[0], &bt_b[0]);
        if (k0 + 32 < K) {
            argus::store_shared<8>(smem, p2 + (k0 / 32 + 1) % 2 * 4096, &at_next[0]);
            argus::store_shared<8>(smem, p2 + (k0 / 32 + 1) % 2 * 4096 + 8192, &bt_next[0]);
        }
    }
    #pragma unroll
    for (int v1 = 0; v1 < 4; ++v1) {
        #pragma unroll
        for (int v0 = 0; v0 < 4; ++v0) {
            ct[4 * v1 + v0] = argus::cast<argus::bf16>(acc[4 * v1 + v0]);
        }
    }
    #pragma unroll
    for (int v1 = 0; v1 < 4; ++v1) {
        #pragma unroll
        for (int v0 = 0; v0 < 4; ++v0) {
            argus::store_global_if<1>(block0 * 64 + t5 + v1 * 8 + v0 < M && block1 * 64 + t4 < N, c + (argus::i64(block0 * 64) * c_stride0 + block1 * 64), p8 + argus::i64(v1 * 8 + v0) * c_stride0, &ct[4 * v1 + v0]);
        }
    }
}
