ARGUS_ROLES_KERNEL(argus_hopper_gemm, 384)(
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
    ARGUS_GRID_CONSTANT argus::TensorMap b_map1
) {
    ARGUS_SHARED(smem, 196672);
    // smem + 0: at, bfloat16 4x128x64, Sw<3,3,3> o 0 o (4,128,64):(8192,64,1)
    // smem + 65536: bt, bfloat16 4x256x64, Sw<3,3,3> o 0 o (4,256,64):(16384,64,1)
    // smem + 0: scratch, bfloat16 128x256, Sw<3,3,5> o 0 o (128,256):(256,1)
    // smem + 196608: full, mbarriers: 4, arrivals: 1
    // smem + 196640: empty, mbarriers: 4, arrivals: 8
    if (argus::thread_id() == 0) {
        argus::tma_prefetch(a_map0);
        argus::tma_prefetch(b_map1);
    }
    if (argus::thread_id() == 0) for (int i = 0; i < 4; ++i) argus::mbarrier_init(smem, 196608 + i * 8, 1);
    if (argus::thread_id() == 0) for (int i = 0; i < 4; ++i) argus::mbarrier_init(smem, 196640 + i * 8, 8);
    if (argus::thread_id() == 0) argus::mbarrier_init_fence();
    argus::barrier();
    argus::launch_dependents();
    argus::begin();
    const int warp = argus::uniform(argus::thread_id() / 32);
    if (warp < 8) {
        argus::raise_registers<232>();
        // compute
        const int thread = argus::thread_id();
        const argus::u64 p0 = argus::matrix_descriptor(smem, 0, 16);
        const argus::u64 p1 = argus::descriptor_at(p0, argus::uniform(thread / 128 % 2 * 512));
        const argus::u64 p2 = argus::matrix_descriptor(smem, 65536, 16);
        const int t0 = thread / 4 % 8 + thread / 32 % 4 * 16 + thread / 128 * 64;
        const int t1 = thread % 4 * 2;
        const int p3 = t0 * 256 + t1;
        const int p4 = (p3 ^ ((p3 & 1792) >> 5)) * 2;
        const int t2 = thread / 32;
        const int t3 = thread % 32 * 8;
        const int p5 = t2 * 256 + t3;
        const int p6 = (p5 ^ ((p5 & 1792) >> 5)) * 2;
        const int block0 = argus::block_id<0>();
        const int block1 = argus::block_id<1>();
        const argus::i64 p7 = argus::i64(t2) * c_stride0 + t3;
        alignas(16) float acc[128];  // [128x256 | t 4@1*2 8@0 4@0*16 2@0*64 | v 2@1 2@0*8 32@1*8]
        alignas(16) argus::bf16 out[128];  // [128x256 | t 4@1*2 8@0 4@0*16 2@0*64 | v 2@1 2@0*8 32@1*8]
        alignas(16) argus::bf16 out_rows[128];  // [128x256 | t 32@1*8 8@0 | v 8@1 16@0*8]

        #pragma unroll
        for (int v2 = 0; v2 < 32; ++v2) {
            #pragma unroll
            for (int v1 = 0; v1 < 2; ++v1) {
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    acc[4 * v2 + 2 * v1 + v0] = 0.0f;
                }
            }
        }
        argus::wgmma_hold(acc);
        for (int k0 = 0; k0 < K; k0 += 64) {
            argus::mbarrier_wait(smem, k0 / 64 % 4 * 8 + 196608, k0 / 64 / 4 % 2);
            argus::wgmma_fence();
            #pragma unroll
            for (int v0 = 0; v0 < 4; ++v0) {
                argus::wgmma_m64n256k16<argus::bf16, argus::bf16, 0, 0>(&acc[0], argus::descriptor_at(argus::descriptor_at(p1, k0 / 64 % 4 * 1024), 2 * v0), argus::descriptor_at(argus::descriptor_at(p2, k0 / 64 % 4 * 2048), 2 * v0), true);
            }
            argus::wgmma_commit();
            argus::wgmma_wait<1>();
            if (k0 >= 64) {
                argus::mbarrier_arrive(smem, (k0 / 64 + 3) % 4 * 8 + 196640);
            }
        }
        argus::wgmma_wait<0>();
        argus::wgmma_hold(acc);
        #pragma unroll
        for (int v2 = 0; v2 < 32; ++v2) {
            #pragma unroll
            for (int v1 = 0; v1 < 2; ++v1) {
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    out[4 * v2 + 2 * v1 + v0] = argus::cast<argus::bf16>(acc[4 * v2 + 2 * v1 + v0]);
                }
            }
        }
        argus::role_barrier<256>(1);
        #pragma unroll
        for (int v1 = 0; v1 < 32; ++v1) {
            #pragma unroll
            for (int v0 = 0; v0 < 2; ++v0) {
                argus::store_shared<2>(smem, (p4 ^ v1 * 16) + v0 * 4096, &out[4 * v1 + 2 * v0]);
            }
        }
        argus::role_barrier<256>(1);
        #pragma unroll
        for (int v0 = 0; v0 < 16; ++v0) {
            argus::load_shared<8>(smem, p6 + v0 * 4096, &out_rows[8 * v0]);
        }
        #pragma unroll
        for (int v0 = 0; v0 < 16; ++v0) {
            argus::store_global_if<8>(block0 * 128 + t2 + v0 * 8 < M && block1 * 256 + t3 < N, c + (argus::i64(block0 * 128) * c_stride0 + block1 * 256), p7 + argus::i64(v0 * 8) * c_stride0, &out_rows[8 * v0]);
        }
    }
    else if (warp >= 8) {
        argus::lower_registers<40>();
        if (warp < 9) {
            // producer
            const int thread = argus::thread_id() - 256;
            const int block0 = argus::block_id<0>();
            const int block1 = argus::block_id<1>();

            for (int k0 = 0; k0 < K; k0 += 64) {
                argus::mbarrier_wait(smem, k0 / 64 % 4 * 8 + 196640, (k0 / 64 / 4 + 1) % 2);
                argus::mbarrier_expect(smem, k0 / 64 % 4 * 8 + 196608, 49152);
                argus::tma_load(smem, k0 / 64 % 4 * 16384, k0 / 64 % 4 * 8 + 196608, a_map0, k0, block0 * 128);
                argus::tma_load(smem, k0 / 64 % 4 * 32768 + 65536, k0 / 64 % 4 * 8 + 196608, b_map1, k0, block1 * 256);
            }
        }
    }
}
