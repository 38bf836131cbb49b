ARGUS_KERNEL(argus_gemm, 128)(
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
    // smem + 0: as, bfloat16 2x64x32, Sw<2,3,3> o 0 o (2,64,32):(2048,32,1)
    // smem + 8192: bs, bfloat16 2x64x32, Sw<2,3,3> o 0 o (2,64,32):(2048,32,1)
    const int thread = argus::thread_id();
    const int block0 = argus::block_id<0>();
    const int t0 = thread / 4;
    const int t1 = thread % 4 * 8;
    const int p0 = t0 * 32 + t1;
    const int p1 = (p0 ^ ((p0 & 192) >> 3)) * 2;
    const argus::i64 p2 = argus::i64(t0) * a_stride0 + t1;
    const int block1 = argus::block_id<1>();
    const argus::i64 p3 = argus::i64(t0) * b_stride0 + t1;
    const int t2 = thread % 8 + thread / 8 % 2 * 8 + thread / 64 * 16;
    const int t3 = thread / 16 % 2 * 8;
    const int p4 = t2 * 32 + t3;
    const int p5 = (p4 ^ ((p4 & 192) >> 3)) * 2;
    const int t4 = thread % 8 + thread / 32 % 2 * 8;
    const int t5 = thread / 8 % 2 * 8;
    const int p6 = t4 * 32 + t5;
    const int p7 = (p6 ^ ((p6 & 192) >> 3)) * 2;
    const int t6 = thread / 4 % 8 + thread / 64 * 16;
    const int t7 = thread % 4 * 2 + thread / 32 % 2 * 8;
    const argus::i64 p8 = argus::i64(t6) * c_stride0 + t7;
    alignas(16) float acc[32];  // [64x64 | t 4@1*2 8@0 2@1*8 2@0*16 | v 2@1 2@0*8 4@1*16 2@0*32]
    alignas(16) argus::bf16 af[16];  // [64x16 | t 4@1*2 8@0 2@_ 2@0*16 | v 2@1 2@0*8 2@1*8 2@0*32]
    alignas(16) argus::bf16 bf[16];  // [64x16 | t 4@1*2 8@0 2@0*8 2@_ | v 2@1 2@1*8 4@0*16]
    alignas(16) argus::bf16 out[32];  // [64x64 | t 4@1*2 8@0 2@1*8 2@0*16 | v 2@1 2@0*8 4@1*16 2@0*32]

    argus::launch_dependents();
    argus::begin();
    #pragma unroll
    for (int v3 = 0; v3 < 2; ++v3) {
        #pragma unroll
        for (int v2 = 0; v2 < 4; ++v2) {
            #pragma unroll
            for (int v1 = 0; v1 < 2; ++v1) {
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    acc[16 * v3 + 4 * v2 + 2 * v1 + v0] = 0.0f;
                }
            }
        }
    }
    #pragma unroll
    for (int v0 = 0; v0 < 2; ++v0) {
        argus::cp_async_or_zero<16>(smem, p1 + v0 * 2048, a + (argus::i64(block0 * 64) * a_stride0), p2 + argus::i64(v0 * 32) * a_stride0, block0 * 64 + t0 + v0 * 32 < M && t1 < K);
    }
    #pragma unroll
    for (int v0 = 0; v0 < 2; ++v0) {
        argus::cp_async_or_zero<16>(smem, p1 + v0 * 2048 + 8192, b + (argus::i64(block1 * 64) * b_stride0), p3 + argus::i64(v0 * 32) * b_stride0, block1 * 64 + t0 + v0 * 32 < N && t1 < K);
    }
    argus::cp_async_commit();
    for (int k = 0; k < K; k += 32) {
        argus::cp_async_wait<0>();
        argus::barrier();
        #pragma unroll
        for (int v0 = 0; v0 < 2; ++v0) {
            argus::cp_async_or_zero<16>(smem, p1 + v0 * 2048 + (k + 32) / 32 % 2 * 4096, a + (argus::i64(block0 * 64) * a_stride0 + k + 32), p2 + argus::i64(v0 * 32) * a_stride0, block0 * 64 + t0 + v0 * 32 < M && k + 32 + t1 < K);
        }
        #pragma unroll
        for (int v0 = 0; v0 < 2; ++v0) {
            argus::cp_async_or_zero<16>(smem, p1 + v0 * 2048 + (k + 32) / 32 % 2 * 4096 + 8192, b + (argus::i64(block1 * 64) * b_stride0 + k + 32), p3 + argus::i64(v0 * 32) * b_stride0, block1 * 64 + t0 + v0 * 32 < N && k + 32 + t1 < K);
        }
        argus::cp_async_commit();
        #pragma unroll
        for (int v0 = 0; v0 < 2; ++v0) {
            argus::ldmatrix_x4(smem, p5 + v0 * 2048 + k / 32 % 2 * 4096, &af[8 * v0]);
        }
        #pragma unroll
        for (int v0 = 0; v0 < 4; ++v0) {
            argus::ldmatrix_x2(smem, p7 + v0 * 1024 + k / 32 % 2 * 4096 + 8192, &bf[4 * v0]);
        }
        #pragma unroll
        for (int v1 = 0; v1 < 2; ++v1) {
            #pragma unroll
            for (int v0 = 0; v0 < 4; ++v0) {
                argus::mma_m16n8k16(&acc[16 * v1 + 4 * v0], &af[8 * v1], &bf[4 * v0]);
            }
        }
        #pragma unroll
        for (int v0 = 0; v0 < 2; ++v0) {
            argus::ldmatrix_x4(smem, (p5 ^ 32) + v0 * 2048 + k / 32 % 2 * 4096, &af[8 * v0]);
        }
        #pragma unroll
        for (int v0 = 0; v0 < 4; ++v0) {
            argus::ldmatrix_x2(smem, (p7 ^ 32) + v0 * 1024 + k / 32 % 2 * 4096 + 8192, &bf[4 * v0]);
        }
        #pragma unroll
        for (int v1 = 0; v1 < 2; ++v1) {
            #pragma unroll
            for (int v0 = 0; v0 < 4; ++v0) {
                argus::mma_m16n8k16(&acc[16 * v1 + 4 * v0], &af[8 * v1], &bf[4 * v0]);
            }
        }
    }
    #pragma unroll
    for (int v3 = 0; v3 < 2; ++v3) {
        #pragma unroll
        for (int v2 = 0; v2 < 4; ++v2) {
            #pragma unroll
            for (int v1 = 0; v1 < 2; ++v1) {
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    out[16 * v3 + 4 * v2 + 2 * v1 + v0] = argus::cast<argus::bf16>(acc[16 * v3 + 4 * v2 + 2 * v1 + v0]);
                }
            }
        }
    }
    #pragma unroll
    for (int v2 = 0; v2 < 2; ++v2) {
        #pragma unroll
        for (int v1 = 0; v1 < 4; ++v1) {
            #pragma unroll
            for (int v0 = 0; v0 < 2; ++v0) {
                argus::store_global_if<2>(block0 * 64 + t6 + v2 * 32 + v0 * 8 < M && block1 * 64 + t7 + v1 * 16 < N, c + (argus::i64(block0 * 64) * c_stride0 + block1 * 64), p8 + argus::i64(v2 * 32 + v0 * 8) * c_stride0 + v1 * 16, &out[16 * v2 + 4 * v1 + 2 * v0]);
            }
        }
    }
}
