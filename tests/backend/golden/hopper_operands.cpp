ARGUS_ROLES_KERNEL(argus_hopper_operands, 384)(
    const argus::bf16* ARGUS_RESTRICT a,
    const argus::bf16* ARGUS_RESTRICT b,
    float* ARGUS_RESTRICT c,
    int S,
    int T,
    int M,
    int N,
    int K,
    argus::i64 a_stride0,
    argus::i64 a_stride1,
    argus::i64 a_stride2,
    argus::i64 b_stride0,
    argus::i64 b_stride1,
    argus::i64 b_stride2,
    argus::i64 c_stride0,
    argus::i64 c_stride1,
    argus::i64 c_stride2,
    ARGUS_GRID_CONSTANT argus::TensorMap a_map0,
    ARGUS_GRID_CONSTANT argus::TensorMap b_map1
) {
    ARGUS_SHARED(smem, 131152);
    // smem + 0: at, bfloat16 2x128x128, Sw<3,3,3> o 0 o (2,128,(64,2)):(16384,64,(1,8192))
    // smem + 65536: bt, bfloat16 2x128x128, Sw<3,3,3> o 0 o (2,128,(64,2)):(16384,64,(1,8192))
    // smem + 131072: full, mbarriers: 2, arrivals: 1
    // smem + 131136: empty, mbarriers: 2, arrivals: 8
    if (argus::thread_id() == 0) {
        argus::tma_prefetch(a_map0);
        argus::tma_prefetch(b_map1);
    }
    if (argus::thread_id() == 0) for (int i = 0; i < 2; ++i) argus::mbarrier_init(smem, 131072 + i * 8, 1);
    if (argus::thread_id() == 0) for (int i = 0; i < 2; ++i) argus::mbarrier_init(smem, 131136 + i * 8, 8);
    if (argus::thread_id() == 0) argus::mbarrier_init_fence();
    argus::barrier();
    argus::launch_dependents();
    argus::begin();
    const int warp = argus::uniform(argus::thread_id() / 32);
    if (warp < 8) {
        argus::raise_registers<232>();
        // compute
        const int thread = argus::thread_id();
        const int t0 = thread / 4 % 8 + thread / 32 % 4 * 16 + thread / 128 * 64;
        const int t1 = thread % 4 * 2;
        const int p0 = t0 * 64 + t1;
        const int p1 = (p0 ^ ((p0 & 448) >> 3)) * 2;
        const argus::u64 p2 = argus::matrix_descriptor(smem, 65536, 16384);
        const int block0 = argus::block_id<0>();
        const int block1 = argus::block_id<1>();
        const int block2 = argus::block_id<2>();
        const argus::i64 p3 = argus::i64(t0) * c_stride2 + t1;
        alignas(16) float acc[64];  // [128x128 | t 4@1*2 8@0 4@0*16 2@0*64 | v 2@1 2@0*8 16@1*8]
        alignas(16) float part[64];  // [128x128 | t 4@1*2 8@0 4@0*16 2@0*64 | v 2@1 2@0*8 16@1*8]
        alignas(16) argus::bf16 ar[64];  // [128x128 | t 4@1*2 8@0 4@0*16 2@0*64 | v 2@1 2@0*8 2@1*8 8@1*16]

        #pragma unroll
        for (int v2 = 0; v2 < 16; ++v2) {
            #pragma unroll
            for (int v1 = 0; v1 < 2; ++v1) {
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    acc[4 * v2 + 2 * v1 + v0] = 0.0f;
                }
            }
        }
        for (int k0 = 0; k0 < K; k0 += 128) {
            argus::mbarrier_wait(smem, k0 / 128 % 2 * 8 + 131072, k0 / 128 / 2 % 2);
            argus::wgmma_hold(ar);
            #pragma unroll
            for (int v1 = 0; v1 < 16; ++v1) {
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    argus::load_shared<2>(smem, (p1 ^ v1 % 8 * 16) + v0 * 1024 + v1 / 8 * 16384 + k0 / 128 % 2 * 32768, &ar[4 * v1 + 2 * v0]);
                }
            }
            argus::async_fence();
            argus::wgmma_forget(part);
            argus::wgmma_hold(ar);
            argus::wgmma_fence();
            #pragma unroll
            for (int v0 = 0; v0 < 2; ++v0) {
                #pragma unroll
                for (int v1 = 0; v1 < 4; ++v1) {
                    argus::wgmma_m64n128k16<argus::bf16, argus::bf16, 0, 1>(&part[0], &ar[32 * v0 + 8 * v1], argus::descriptor_at(argus::descriptor_at(p2, k0 / 128 % 2 * 2048), 512 * v0 + 128 * v1), v0 + v1 != 0);
                }
            }
            argus::wgmma_commit();
            argus::wgmma_wait<0>();
            argus::mbarrier_arrive(smem, k0 / 128 % 2 * 8 + 131136);
            argus::wgmma_hold(part);
            #pragma unroll
            for (int v2 = 0; v2 < 16; ++v2) {
                #pragma unroll
                for (int v1 = 0; v1 < 2; ++v1) {
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        acc[4 * v2 + 2 * v1 + v0] = acc[4 * v2 + 2 * v1 + v0] + part[4 * v2 + 2 * v1 + v0];
                    }
                }
            }
        }
        #pragma unroll
        for (int v1 = 0; v1 < 16; ++v1) {
            #pragma unroll
            for (int v0 = 0; v0 < 2; ++v0) {
                argus::store_global_if<2>(block0 * 128 + t0 + v0 * 8 < M && block1 * 128 + t1 + v1 * 8 < N, c + (argus::i64(argus::floordiv(block2, T)) * c_stride0 + argus::i64(argus::floormod(block2, T)) * c_stride1 + argus::i64(block0 * 128) * c_stride2 + block1 * 128), p3 + argus::i64(v0 * 8) * c_stride2 + v1 * 8, &acc[4 * v1 + 2 * v0]);
            }
        }
    }
    else if (warp >= 8) {
        argus::lower_registers<40>();
        if (warp < 9) {
            // producer
            const int thread = argus::thread_id() - 256;
            const int block0 = argus::block_id<0>();
            const int block2 = argus::block_id<2>();
            const int block1 = argus::block_id<1>();

            for (int k0 = 0; k0 < K; k0 += 128) {
                argus::mbarrier_wait(smem, k0 / 128 % 2 * 8 + 131136, (k0 / 128 / 2 + 1) % 2);
                argus::mbarrier_expect(smem, k0 / 128 % 2 * 8 + 131072, 65536);
                argus::tma_load(smem, k0 / 128 % 2 * 32768, k0 / 128 % 2 * 8 + 131072, a_map0, k0, block0 * 128, argus::floormod(block2, T), argus::floordiv(block2, T));
                argus::tma_load(smem, k0 / 128 % 2 * 32768 + 16384, k0 / 128 % 2 * 8 + 131072, a_map0, k0 + 64, block0 * 128, argus::floormod(block2, T), argus::floordiv(block2, T));
                argus::tma_load(smem, k0 / 128 % 2 * 32768 + 65536, k0 / 128 % 2 * 8 + 131072, b_map1, block1 * 128, k0, argus::floormod(block2, T), argus::floordiv(block2, T));
                argus::tma_load(smem, k0 / 128 % 2 * 32768 + 81920, k0 / 128 % 2 * 8 + 131072, b_map1, block1 * 128 + 64, k0, argus::floormod(block2, T), argus::floordiv(block2, T));
            }
        }
    }
}
