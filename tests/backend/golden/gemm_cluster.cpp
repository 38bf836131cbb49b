ARGUS_CLUSTER_KERNEL(argus_gemm, 256, 2)(
    const argus::bf16* ARGUS_RESTRICT a,
    const argus::bf16* ARGUS_RESTRICT b,
    argus::bf16* ARGUS_RESTRICT c,
    int M,
    int K,
    int N,
    argus::i64 a_stride0,
    argus::i64 b_stride0,
    argus::i64 c_stride0,
    ARGUS_GRID_CONSTANT argus::TensorMap a_map0,
    ARGUS_GRID_CONSTANT argus::TensorMap b_map1,
    ARGUS_GRID_CONSTANT argus::TensorMap c_map2
) {
    ARGUS_SHARED(smem, 90160);
    // smem + 0: at, bfloat16 3x128x64, Sw<3,3,3> o 0 o (3,128,64):(8192,64,1)
    // smem + 49152: bt, bfloat16 3x64x64, Sw<3,3,3> o 0 o (3,64,64):(4096,64,1)
    // smem + 73728: ct_panels, bfloat16 1x128x64, Sw<3,3,3> o 0 o (1,128,64):(8192,64,1)
    // smem + 90112: full, mbarriers: 3, arrivals: 1
    // smem + 90136: empty, mbarriers: 3, arrivals: 8
    if (argus::thread_id() == 0) {
        argus::tma_prefetch(a_map0);
        argus::tma_prefetch(b_map1);
        argus::tma_prefetch(c_map2);
    }
    if (argus::thread_id() == 0) for (int i = 0; i < 3; ++i) argus::mbarrier_init(smem, 90112 + i * 8, 1);
    if (argus::thread_id() == 0) for (int i = 0; i < 3; ++i) argus::mbarrier_init(smem, 90136 + i * 8, 8);
    if (argus::thread_id() == 0) argus::mbarrier_init_fence();
    argus::cluster_barrier();
    argus::launch_dependents();
    argus::begin();
    const int warp = argus::uniform(argus::thread_id() / 32);
    if (warp >= 4) {
        if (warp < 5) {
            // producer
            const int thread = argus::thread_id() - 128;
            const int block0 = argus::block_id<0>();
            const int block1 = argus::block_id<1>();

            unsigned turn = 0;
            for (int k0 = 0; k0 < K; k0 += 64) {
                argus::mbarrier_wait(smem, turn % 3 * 8 + 90136, (turn / 3 + 1) % 2);
                argus::mbarrier_expect(smem, turn % 3 * 8 + 90112, 24576);
                argus::tma_load(smem, turn % 3 * 16384, turn % 3 * 8 + 90112, a_map0, k0, block0 * 128);
                argus::tma_load_multicast<2>(smem, turn % 3 * 8192 + block0 % 2 * 4096 + 49152, turn % 3 * 8 + 90112, b_map1, k0, block1 * 64 + block0 % 2 * 32);
                turn = turn + 1 == 6 ? 0 : turn + 1;
            }
        }
    }
    else if (warp < 4) {
        // compute
        const int thread = argus::thread_id();
        const argus::u64 p0 = argus::matrix_descriptor(smem, 0, 16);
        const argus::u64 p1 = argus::matrix_descriptor(smem, 49152, 16);
        const int t0 = thread % 8 + thread / 8 % 2 * 8 + thread / 32 * 16;
        const int t1 = thread / 16 % 2 * 8;
        const int p2 = t0 * 64 + t1;
        const int p3 = (p2 ^ ((p2 & 448) >> 3)) * 2;
        const int block1 = argus::block_id<1>();
        const int block0 = argus::block_id<0>();
        alignas(16) float acc[64];  // [128x64 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 8@1*8 2@0*64]
        alignas(16) argus::bf16 ct[64];  // [128x64 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 8@1*8 2@0*64]

        unsigned turn = 0;
        #pragma unroll
        for (int v3 = 0; v3 < 2; ++v3) {
            #pragma unroll
            for (int v2 = 0; v2 < 8; ++v2) {
                #pragma unroll
                for (int v1 = 0; v1 < 2; ++v1) {
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        acc[32 * v3 + 4 * v2 + 2 * v1 + v0] = 0.0f;
                    }
                }
            }
        }
        argus::wgmma_hold(acc);
        for (int k0 = 0; k0 < K; k0 += 64) {
            argus::mbarrier_wait(smem, turn % 3 * 8 + 90112, turn / 3 % 2);
            argus::wgmma_fence();
            #pragma unroll
            for (int v0 = 0; v0 < 4; ++v0) {
                #pragma unroll
                for (int v1 = 0; v1 < 2; ++v1) {
                    argus::wgmma_m64n64k16<argus::bf16, argus::bf16, 0, 0>(&acc[32 * v1], argus::descriptor_at(argus::descriptor_at(p0, turn % 3 * 1024), 2 * v0 + 512 * v1), argus::descriptor_at(argus::descriptor_at(p1, turn % 3 * 512), 2 * v0), true);
                }
            }
            argus::wgmma_commit();
            argus::wgmma_wait<1>();
            if (k0 >= 64) {
                argus::mbarrier_arrive_cluster<2>(smem, (turn + 2) % 3 * 8 + 90136);
            }
            if (k0 + 64 >= K) {
                argus::wgmma_wait<0>();
                argus::mbarrier_arrive_cluster<2>(smem, turn % 3 * 8 + 90136);
            }
            turn = turn + 1 == 6 ? 0 : turn + 1;
        }
        argus::wgmma_wait<0>();
        argus::wgmma_hold(acc);
        #pragma unroll
        for (int v3 = 0; v3 < 2; ++v3) {
            #pragma unroll
            for (int v2 = 0; v2 < 8; ++v2) {
                #pragma unroll
                for (int v1 = 0; v1 < 2; ++v1) {
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        ct[32 * v3 + 4 * v2 + 2 * v1 + v0] = argus::cast<argus::bf16>(acc[32 * v3 + 4 * v2 + 2 * v1 + v0]);
                    }
                }
            }
        }
        #pragma unroll
        for (int v1 = 0; v1 < 2; ++v1) {
            #pragma unroll
            for (int v0 = 0; v0 < 4; ++v0) {
                argus::stmatrix_x4(smem, (p3 ^ v0 * 32) + v1 * 8192 + 73728, &ct[32 * v1 + 8 * v0]);
            }
        }
        argus::async_fence();
        argus::role_barrier<128>(2);
        if (thread == 0) argus::tma_store(smem, 73728, c_map2, block1 * 64, block0 * 128);
        if (thread == 0) argus::bulk_commit();
        if (thread == 0) argus::bulk_wait<0>();
    }
    argus::cluster_barrier();
}
