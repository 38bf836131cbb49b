ARGUS_ROLES_KERNEL(argus_attention_packed, 384)(
    const argus::bf16* ARGUS_RESTRICT q,
    const argus::bf16* ARGUS_RESTRICT k,
    const argus::bf16* ARGUS_RESTRICT v,
    const int* ARGUS_RESTRICT first,
    const int* ARGUS_RESTRICT begin,
    const int* ARGUS_RESTRICT end,
    argus::bf16* ARGUS_RESTRICT o,
    float* ARGUS_RESTRICT lse,
    int T,
    int H,
    int S,
    int HK,
    int L1,
    argus::i64 q_stride0,
    argus::i64 q_stride1,
    argus::i64 k_stride0,
    argus::i64 k_stride1,
    argus::i64 v_stride0,
    argus::i64 v_stride1,
    argus::i64 o_stride0,
    argus::i64 o_stride1,
    argus::i64 lse_stride0,
    float scale,
    ARGUS_GRID_CONSTANT argus::TensorMap q_map0,
    ARGUS_GRID_CONSTANT argus::TensorMap k_map1,
    ARGUS_GRID_CONSTANT argus::TensorMap v_map2
) {
    ARGUS_SHARED(smem, 196720);
    // smem + 0: qt, bfloat16 64x128, Sw<3,3,3> o 0 o (64,(64,2)):(64,(1,4096))
    // smem + 16384: kt, bfloat16 2x128x128, Sw<3,3,3> o 0 o (2,128,(64,2)):(16384,64,(1,8192))
    // smem + 81920: vt, bfloat16 2x128x128, Sw<3,3,3> o 0 o (2,128,(64,2)):(16384,64,(1,8192))
    // smem + 147456: vt_1, bfloat16 128x128, Sw<3,3,3> o 0 o (128,(64,2)):(64,(1,8192))
    // smem + 180224: qt1, bfloat16 64x128, Sw<3,3,3> o 0 o (64,(64,2)):(64,(1,4096))
    // smem + 196608: full, mbarriers: 1, arrivals: 1
    // smem + 196616: empty, mbarriers: 1, arrivals: 4
    // smem + 196624: full1, mbarriers: 1, arrivals: 1
    // smem + 196632: empty1, mbarriers: 1, arrivals: 4
    // smem + 196640: full2, mbarriers: 2, arrivals: 1
    // smem + 196656: empty2, mbarriers: 2, arrivals: 8
    // smem + 196672: full3, mbarriers: 2, arrivals: 1
    // smem + 196688: empty3, mbarriers: 2, arrivals: 8
    // smem + 196704: full4, mbarriers: 1, arrivals: 1
    // smem + 196712: empty4, mbarriers: 1, arrivals: 8
    if (argus::thread_id() == 0) {
        argus::tma_prefetch(q_map0);
        argus::tma_prefetch(k_map1);
        argus::tma_prefetch(v_map2);
    }
    if (argus::thread_id() == 0) for (int i = 0; i < 1; ++i) argus::mbarrier_init(smem, 196608 + i * 8, 1);
    if (argus::thread_id() == 0) for (int i = 0; i < 1; ++i) argus::mbarrier_init(smem, 196616 + i * 8, 4);
    if (argus::thread_id() == 0) for (int i = 0; i < 1; ++i) argus::mbarrier_init(smem, 196624 + i * 8, 1);
    if (argus::thread_id() == 0) for (int i = 0; i < 1; ++i) argus::mbarrier_init(smem, 196632 + i * 8, 4);
    if (argus::thread_id() == 0) for (int i = 0; i < 2; ++i) argus::mbarrier_init(smem, 196640 + i * 8, 1);
    if (argus::thread_id() == 0) for (int i = 0; i < 2; ++i) argus::mbarrier_init(smem, 196656 + i * 8, 8);
    if (argus::thread_id() == 0) for (int i = 0; i < 2; ++i) argus::mbarrier_init(smem, 196672 + i * 8, 1);
    if (argus::thread_id() == 0) for (int i = 0; i < 2; ++i) argus::mbarrier_init(smem, 196688 + i * 8, 8);
    if (argus::thread_id() == 0) for (int i = 0; i < 1; ++i) argus::mbarrier_init(smem, 196704 + i * 8, 1);
    if (argus::thread_id() == 0) for (int i = 0; i < 1; ++i) argus::mbarrier_init(smem, 196712 + i * 8, 8);
    if (argus::thread_id() == 0) argus::mbarrier_init_fence();
    argus::barrier();
    argus::launch_dependents();
    argus::begin();
    const int warp = argus::uniform(argus::thread_id() / 32);
    if (warp >= 8) {
        argus::lower_registers<24>();
        if (warp < 9) {
            // producer
            int thread = argus::thread_id() - 256;
            alignas(16) int first_tile2[1];  // [() | t 32@_ | v]
            alignas(16) int begin_tile2[1];  // [() | t 32@_ | v]
            alignas(16) int end_tile2[1];  // [() | t 32@_ | v]
            alignas(16) int blocks2[1];  // [() | t 32@_ | v]
            alignas(16) int first_tile11[1];  // [() | t 32@_ | v]
            alignas(16) int begin_tile11[1];  // [() | t 32@_ | v]
            alignas(16) int end_tile11[1];  // [() | t 32@_ | v]
            alignas(16) int blocks11[1];  // [() | t 32@_ | v]
            alignas(16) int j011[1];  // [() | t 32@_ | v]
            alignas(16) int last11[1];  // [() | t 32@_ | v]

            unsigned program_ = 0;
            unsigned turn = 0;
            for (int program = argus::block_id<0>(); program < H * (L1 - 1); program = argus::next_program(program)) {
                const auto [block0, block1] = argus::grouped_program<33>(program, H, (L1 - 1));
                for (int once = 0; once < 1; once += 1) {
                    argus::load_global<1>(first + (L1 + block1 * -1 + -2), 0, &first_tile2[0]);
                    argus::load_global<1>(first + (L1 + block1 * -1 + -2), 0, &first_tile11[0]);
                    argus::load_global<1>(begin + (L1 + block1 * -1 + -2), 0, &begin_tile2[0]);
                    argus::load_global<1>(begin + (L1 + block1 * -1 + -2), 0, &begin_tile11[0]);
                    argus::load_global<1>(end + (L1 + block1 * -1 + -2), 0, &end_tile2[0]);
                    argus::load_global<1>(end + (L1 + block1 * -1 + -2), 0, &end_tile11[0]);
                    blocks2[0] = argus::maximum(argus::floordiv(argus::add_wrap(argus::sub_wrap(end_tile2[0], begin_tile2[0]), 127), 128), 1);
                    blocks11[0] = argus::maximum(argus::floordiv(argus::add_wrap(argus::sub_wrap(end_tile11[0], begin_tile11[0]), 127), 128), 1);
                    argus::mbarrier_wait(smem, program_ % 1 * 8 + 196616, (program_ / 1 + 1) % 2);
                    argus::mbarrier_expect(smem, program_ % 1 * 8 + 196608, 16384);
                    argus::tma_load(smem, 0, program_ % 1 * 8 + 196608, q_map0, 0, block0, first_tile2[0]);
                    argus::tma_load(smem, 8192, program_ % 1 * 8 + 196608, q_map0, 64, block0, first_tile2[0]);
                    argus::mbarrier_wait(smem, program_ % 1 * 8 + 196632, (program_ / 1 + 1) % 2);
                    argus::mbarrier_expect(smem, program_ % 1 * 8 + 196624, 16384);
                    argus::tma_load(smem, 180224, program_ % 1 * 8 + 196624, q_map0, 0, block0, first_tile11[0] + 64);
                    argus::tma_load(smem, 188416, program_ % 1 * 8 + 196624, q_map0, 64, block0, first_tile11[0] + 64);
                    for (int t = 0, _t_stop = argus::uniform(blocks2[0]); t < _t_stop; t += 1) {
                        j011[0] = argus::add_wrap(begin_tile11[0], t * 128);
                        argus::mbarrier_wait(smem, turn % 2 * 8 + 196656, (turn / 2 + 1) % 2);
                        argus::mbarrier_expect(smem, turn % 2 * 8 + 196640, 32768);
                        argus::tma_load(smem, turn % 2 * 32768 + 16384, turn % 2 * 8 + 196640, k_map1, 0, block0 / 4, j011[0]);
                        argus::tma_load(smem, turn % 2 * 32768 + 32768, turn % 2 * 8 + 196640, k_map1, 64, block0 / 4, j011[0]);
                        argus::mbarrier_wait(smem, turn % 2 * 8 + 196688, (turn / 2 + 1) % 2);
                        argus::mbarrier_expect(smem, turn % 2 * 8 + 196672, 32768);
                        argus::tma_load(smem, turn % 2 * 32768 + 81920, turn % 2 * 8 + 196672, v_map2, 0, block0 / 4, j011[0] + -128);
                        argus::tma_load(smem, turn % 2 * 32768 + 98304, turn % 2 * 8 + 196672, v_map2, 64, block0 / 4, j011[0] + -128);
                        turn = turn + 1 == 4 ? 0 : turn + 1;
                    }
                    last11[0] = argus::add_wrap(begin_tile11[0], argus::mul_wrap(argus::sub_wrap(blocks11[0], 1), 128));
                    argus::mbarrier_wait(smem, program_ % 1 * 8 + 196712, (program_ / 1 + 1) % 2);
                    argus::mbarrier_expect(smem, program_ % 1 * 8 + 196704, 32768);
                    argus::tma_load(smem, 147456, program_ % 1 * 8 + 196704, v_map2, 0, block0 / 4, last11[0]);
                    argus::tma_load(smem, 163840, program_ % 1 * 8 + 196704, v_map2, 64, block0 / 4, last11[0]);
                    program_ = program_ + 1 == 2 ? 0 : program_ + 1;
                }
            }
        }
    }
    else if (warp < 4) {
        argus::raise_registers<240>();
        // compute
        int thread = argus::thread_id();
        alignas(16) int first_tile[1];  // [() | t 128@_ | v]
        alignas(16) int first_tile_1[1];  // [() | t 128@_ | v]
        alignas(16) int begin_tile[1];  // [() | t 128@_ | v]
        alignas(16) int end_tile[1];  // [() | t 128@_ | v]
        alignas(16) int p[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) int seen[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) int blocks[1];  // [() | t 128@_ | v]
        alignas(16) int hidden[1];  // [() | t 128@_ | v]
        alignas(16) float top[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float total_[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) argus::bf16 w[64];  // [64x128 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 16@1*8]
        alignas(16) float acc[64];  // [64x128 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 16@1*8]
        alignas(16) int j0[1];  // [() | t 128@_ | v]
        alignas(16) float s[64];  // [64x128 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 16@1*8]
        alignas(16) float max[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float new_[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float shift[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float shrink[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float x[64];  // [64x128 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 16@1*8]
        alignas(16) int last[1];  // [() | t 128@_ | v]
        alignas(16) float y[64];  // [64x128 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 16@1*8]
        alignas(16) argus::bf16 o_tile[64];  // [64x128 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 16@1*8]
        alignas(16) float level[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float lse_tile[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float max_partial[2];  // [64x4 | t 4@1 8@0 4@0*16 | v 2@0*8]
        alignas(16) float sum_partial[2];  // [64x4 | t 4@1 8@0 4@0*16 | v 2@0*8]

        unsigned program_ = 0;
        unsigned turn = 0;
        for (int program = argus::block_id<0>(); program < H * (L1 - 1); program = argus::next_program(program)) {
            const auto [block0, block1] = argus::grouped_program<33>(program, H, (L1 - 1));
            argus::anew(thread);
            const int t0 = thread / 4 % 8 + thread / 32 * 16;
            const argus::u64 p0 = argus::matrix_descriptor(smem, 0, 16);
            const argus::u64 p1 = argus::matrix_descriptor(smem, 16384, 16);
            const argus::u64 p2 = argus::matrix_descriptor(smem, 81920, 16384);
            const int t1 = thread % 4 * 2;
            const argus::u64 p3 = argus::matrix_descriptor(smem, 147456, 16384);
            const argus::i64 p4 = t1;
            argus::wgmma_hold(w);
            for (int once = 0; once < 1; once += 1) {
                argus::load_global<1>(first + (L1 + block1 * -1 + -2), 0, &first_tile[0]);
                argus::load_global<1>(first + (L1 + block1 * -1 + -1), 0, &first_tile_1[0]);
                argus::load_global<1>(begin + (L1 + block1 * -1 + -2), 0, &begin_tile[0]);
                argus::load_global<1>(end + (L1 + block1 * -1 + -2), 0, &end_tile[0]);
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    p[v0] = argus::add_wrap(first_tile[0], t0 + v0 * 8);
                }
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    seen[v0] = argus::add_wrap(argus::sub_wrap(end_tile[0], argus::sub_wrap(first_tile_1[0], 1)), p[v0]);
                }
                blocks[0] = argus::maximum(argus::floordiv(argus::add_wrap(argus::sub_wrap(end_tile[0], begin_tile[0]), 127), 128), 1);
                hidden[0] = argus::sub_wrap(argus::sub_wrap(first_tile_1[0], 1), first_tile[0]);
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    top[v0] = (-argus::infinity<float>());
                }
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    sum_partial[v0] = 0.0f;
                }
                argus::wgmma_hold(w);
                #pragma unroll
                for (int v2 = 0; v2 < 16; ++v2) {
                    #pragma unroll
                    for (int v1 = 0; v1 < 2; ++v1) {
                        #pragma unroll
                        for (int v0 = 0; v0 < 2; ++v0) {
                            w[4 * v2 + 2 * v1 + v0] = argus::cast<argus::bf16>(0.0f);
                        }
                    }
                }
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
                argus::mbarrier_wait(smem, program_ % 1 * 8 + 196608, program_ / 1 % 2);
                argus::wgmma_hold(w);
                argus::wgmma_hold(acc);
                for (int t = 0, _t_stop = argus::uniform(blocks[0]); t < _t_stop; t += 1) {
                    j0[0] = argus::add_wrap(begin_tile[0], t * 128);
                    argus::wgmma_forget(s);
                    argus::mbarrier_wait(smem, turn % 2 * 8 + 196640, turn / 2 % 2);
                    argus::role_barrier<256>(4);
                    argus::wgmma_hold(w);
                    argus::wgmma_hold(acc);
                    argus::wgmma_fence();
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        #pragma unroll
                        for (int v1 = 0; v1 < 4; ++v1) {
                            argus::wgmma_m64n128k16<argus::bf16, argus::bf16, 0, 0>(&s[0], argus::descriptor_at(p0, 512 * v0 + 2 * v1), argus::descriptor_at(argus::descriptor_at(p1, turn % 2 * 2048), 1024 * v0 + 2 * v1), v0 + v1 != 0);
                        }
                    }
                    argus::wgmma_commit();
                    argus::mbarrier_wait(smem, turn % 2 * 8 + 196672, turn / 2 % 2);
                    if (t > 0) {
                        argus::wgmma_fence();
                        #pragma unroll
                        for (int v0 = 0; v0 < 2; ++v0) {
                            #pragma unroll
                            for (int v1 = 0; v1 < 4; ++v1) {
                                argus::wgmma_m64n128k16<argus::bf16, argus::bf16, 0, 1>(&acc[0], &w[32 * v0 + 8 * v1], argus::descriptor_at(argus::descriptor_at(p2, turn % 2 * 2048), 512 * v0 + 128 * v1), true);
                            }
                        }
                        argus::wgmma_commit();
                    }
                    else {
                        argus::wgmma_commit();
                    }
                    argus::wgmma_wait<1>();
                    if (t + 1 >= blocks[0]) {
                        argus::mbarrier_arrive(smem, program_ % 1 * 8 + 196616);
                    }
                    argus::mbarrier_arrive(smem, turn % 2 * 8 + 196656);
                    if (argus::sub_wrap(end_tile[0], hidden[0]) < argus::add_wrap(j0[0], 128)) {
                        argus::wgmma_hold(s);
                        #pragma unroll
                        for (int v2 = 0; v2 < 16; ++v2) {
                            #pragma unroll
                            for (int v1 = 0; v1 < 2; ++v1) {
                                #pragma unroll
                                for (int v0 = 0; v0 < 2; ++v0) {
                                    s[4 * v2 + 2 * v1 + v0] = argus::add_wrap(j0[0], t1 + v2 * 8 + v0) < seen[v1] ? s[4 * v2 + 2 * v1 + v0] : (-argus::infinity<float>());
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        max[v0] = (-argus::infinity<float>());
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        max_partial[v0] = (-argus::infinity<float>());
                    }
                    argus::wgmma_hold(s);
                    #pragma unroll
                    for (int v2 = 0; v2 < 16; ++v2) {
                        #pragma unroll
                        for (int v1 = 0; v1 < 2; ++v1) {
                            #pragma unroll
                            for (int v0 = 0; v0 < 2; ++v0) {
                                max_partial[v1] = argus::maximum(max_partial[v1], s[4 * v2 + 2 * v1 + v0]);
                            }
                        }
                    }
                    {
                        float total[2];
                        #pragma unroll
                        for (int r = 0; r < 2; ++r) total[r] = (-argus::infinity<float>());
                        #pragma unroll
                        for (int v0 = 0; v0 < 2; ++v0) {
                            total[v0] = argus::maximum(total[v0], max_partial[v0]);
                        }
                        #pragma unroll
                        for (int r = 0; r < 2; ++r) total[r] = argus::maximum(total[r], argus::shuffle_xor(total[r], 1));
                        #pragma unroll
                        for (int r = 0; r < 2; ++r) total[r] = argus::maximum(total[r], argus::shuffle_xor(total[r], 2));
                        #pragma unroll
                        for (int r = 0; r < 2; ++r) max[r] = argus::maximum(max[r], total[r]);
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        new_[v0] = argus::maximum(top[v0], max[v0]);
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        shift[v0] = new_[v0] == (-argus::infinity<float>()) ? 0.0f : -new_[v0] * scale;
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        shrink[v0] = argus::exp2(top[v0] * scale + shift[v0]);
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        top[v0] = new_[v0];
                    }
                    argus::role_barrier_arrive<256>(5);
                    argus::wgmma_hold(s);
                    argus::wgmma_hold(shift);
                    argus::wgmma_hold(shrink);
                    argus::wgmma_beside();
                    argus::wgmma_wait<0>();
                    argus::mbarrier_arrive(smem, turn % 2 * 8 + 196688);
                    argus::wgmma_hold(acc);
                    #pragma unroll
                    for (int v2 = 0; v2 < 16; ++v2) {
                        #pragma unroll
                        for (int v1 = 0; v1 < 2; ++v1) {
                            #pragma unroll
                            for (int v0 = 0; v0 < 2; ++v0) {
                                acc[4 * v2 + 2 * v1 + v0] = acc[4 * v2 + 2 * v1 + v0] * shrink[v1];
                            }
                        }
                    }
                    #pragma unroll
                    for (int v2 = 0; v2 < 16; ++v2) {
                        #pragma unroll
                        for (int v1 = 0; v1 < 2; ++v1) {
                            #pragma unroll
                            for (int v0 = 0; v0 < 2; ++v0) {
                                x[4 * v2 + 2 * v1 + v0] = argus::exp2(s[4 * v2 + 2 * v1 + v0] * scale + shift[v1]);
                            }
                        }
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        sum_partial[v0] = sum_partial[v0] * shrink[v0];
                    }
                    #pragma unroll
                    for (int v2 = 0; v2 < 16; ++v2) {
                        #pragma unroll
                        for (int v1 = 0; v1 < 2; ++v1) {
                            #pragma unroll
                            for (int v0 = 0; v0 < 2; ++v0) {
                                sum_partial[v1] = sum_partial[v1] + x[4 * v2 + 2 * v1 + v0];
                            }
                        }
                    }
                    argus::wgmma_hold(w);
                    #pragma unroll
                    for (int v2 = 0; v2 < 16; ++v2) {
                        #pragma unroll
                        for (int v1 = 0; v1 < 2; ++v1) {
                            #pragma unroll
                            for (int v0 = 0; v0 < 2; ++v0) {
                                w[4 * v2 + 2 * v1 + v0] = argus::cast<argus::bf16>(x[4 * v2 + 2 * v1 + v0]);
                            }
                        }
                    }
                    turn = turn + 1 == 4 ? 0 : turn + 1;
                }
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    total_[v0] = 0.0f;
                }
                {
                    float total[2];
                    #pragma unroll
                    for (int r = 0; r < 2; ++r) total[r] = 0.0f;
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        total[v0] = total[v0] + sum_partial[v0];
                    }
                    #pragma unroll
                    for (int r = 0; r < 2; ++r) total[r] = total[r] + argus::shuffle_xor(total[r], 1);
                    #pragma unroll
                    for (int r = 0; r < 2; ++r) total[r] = total[r] + argus::shuffle_xor(total[r], 2);
                    #pragma unroll
                    for (int r = 0; r < 2; ++r) total_[r] = total_[r] + total[r];
                }
                if (blocks[0] <= 0) {
                    argus::mbarrier_arrive(smem, program_ % 1 * 8 + 196616);
                }
                last[0] = argus::add_wrap(begin_tile[0], argus::mul_wrap(argus::sub_wrap(blocks[0], 1), 128));
                argus::mbarrier_wait(smem, program_ % 1 * 8 + 196704, program_ / 1 % 2);
                argus::wgmma_hold(w);
                argus::wgmma_hold(acc);
                argus::wgmma_fence();
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    #pragma unroll
                    for (int v1 = 0; v1 < 4; ++v1) {
                        argus::wgmma_m64n128k16<argus::bf16, argus::bf16, 0, 1>(&acc[0], &w[32 * v0 + 8 * v1], argus::descriptor_at(p3, 512 * v0 + 128 * v1), true);
                    }
                }
                argus::wgmma_commit();
                argus::wgmma_wait<0>();
                argus::mbarrier_arrive(smem, program_ % 1 * 8 + 196712);
                argus::wgmma_hold(acc);
                #pragma unroll
                for (int v2 = 0; v2 < 16; ++v2) {
                    #pragma unroll
                    for (int v1 = 0; v1 < 2; ++v1) {
                        #pragma unroll
                        for (int v0 = 0; v0 < 2; ++v0) {
                            y[4 * v2 + 2 * v1 + v0] = acc[4 * v2 + 2 * v1 + v0] * (1.0f / (total_[v1] == 0.0f ? 1.0f : total_[v1]));
                        }
                    }
                }
                #pragma unroll
                for (int v2 = 0; v2 < 16; ++v2) {
                    #pragma unroll
                    for (int v1 = 0; v1 < 2; ++v1) {
                        #pragma unroll
                        for (int v0 = 0; v0 < 2; ++v0) {
                            o_tile[4 * v2 + 2 * v1 + v0] = argus::cast<argus::bf16>(y[4 * v2 + 2 * v1 + v0]);
                        }
                    }
                }
                #pragma unroll
                for (int v1 = 0; v1 < 16; ++v1) {
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        argus::store_global_if<2>(p[v0] < first_tile_1[0], o + (argus::i64(block0) * o_stride1), p4 + argus::i64(p[v0]) * o_stride0 + v1 * 8, &o_tile[4 * v1 + 2 * v0]);
                    }
                }
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    level[v0] = (top[v0] == (-argus::infinity<float>()) ? 0.0f : top[v0] * scale) + argus::log2(total_[v0]);
                }
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    lse_tile[v0] = level[v0] * 0.6931472f;
                }
                if (thread % 4 == 0) {
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        argus::store_global_if<1>(p[v0] < first_tile_1[0], lse + (argus::i64(block0) * lse_stride0), p[v0], &lse_tile[v0]);
                    }
                }
                program_ = program_ + 1 == 2 ? 0 : program_ + 1;
            }
        }
    }
    else if (warp >= 4 && warp < 8) {
        argus::raise_registers<240>();
        // compute1
        int thread = argus::thread_id() - 128;
        alignas(16) int first_tile1[1];  // [() | t 128@_ | v]
        alignas(16) int first_tile_11[1];  // [() | t 128@_ | v]
        alignas(16) int begin_tile1[1];  // [() | t 128@_ | v]
        alignas(16) int end_tile1[1];  // [() | t 128@_ | v]
        alignas(16) int xp1[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) int seen1[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) int blocks1[1];  // [() | t 128@_ | v]
        alignas(16) int hidden1[1];  // [() | t 128@_ | v]
        alignas(16) float top1[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float total1[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) argus::bf16 w1[64];  // [64x128 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 16@1*8]
        alignas(16) float acc1[64];  // [64x128 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 16@1*8]
        alignas(16) int j01[1];  // [() | t 128@_ | v]
        alignas(16) float s1[64];  // [64x128 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 16@1*8]
        alignas(16) float max1[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float new1[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float shift1[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float shrink1[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float x1[64];  // [64x128 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 16@1*8]
        alignas(16) int last1[1];  // [() | t 128@_ | v]
        alignas(16) float y1[64];  // [64x128 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 16@1*8]
        alignas(16) argus::bf16 o_tile1[64];  // [64x128 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 16@1*8]
        alignas(16) float level1[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float lse_tile1[2];  // [64 | t 4@_ 8@0 4@0*16 | v 2@0*8]
        alignas(16) float max1_partial[2];  // [64x4 | t 4@1 8@0 4@0*16 | v 2@0*8]
        alignas(16) float sum1_partial[2];  // [64x4 | t 4@1 8@0 4@0*16 | v 2@0*8]

        unsigned program_ = 0;
        unsigned turn = 0;
        argus::role_barrier_arrive<256>(4);
        for (int program = argus::block_id<0>(); program < H * (L1 - 1); program = argus::next_program(program)) {
            const auto [block0, block1] = argus::grouped_program<33>(program, H, (L1 - 1));
            argus::anew(thread);
            const int t0 = thread / 4 % 8 + thread / 32 * 16;
            const argus::u64 p0 = argus::matrix_descriptor(smem, 180224, 16);
            const argus::u64 p1 = argus::matrix_descriptor(smem, 16384, 16);
            const argus::u64 p2 = argus::matrix_descriptor(smem, 81920, 16384);
            const int t1 = thread % 4 * 2;
            const argus::u64 p3 = argus::matrix_descriptor(smem, 147456, 16384);
            const argus::i64 p4 = t1;
            argus::wgmma_hold(w1);
            for (int once = 0; once < 1; once += 1) {
                argus::load_global<1>(first + (L1 + block1 * -1 + -2), 0, &first_tile1[0]);
                argus::load_global<1>(first + (L1 + block1 * -1 + -1), 0, &first_tile_11[0]);
                argus::load_global<1>(begin + (L1 + block1 * -1 + -2), 0, &begin_tile1[0]);
                argus::load_global<1>(end + (L1 + block1 * -1 + -2), 0, &end_tile1[0]);
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    xp1[v0] = argus::add_wrap(argus::add_wrap(first_tile1[0], 64), t0 + v0 * 8);
                }
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    seen1[v0] = argus::add_wrap(argus::sub_wrap(end_tile1[0], argus::sub_wrap(first_tile_11[0], 1)), xp1[v0]);
                }
                blocks1[0] = argus::maximum(argus::floordiv(argus::add_wrap(argus::sub_wrap(end_tile1[0], begin_tile1[0]), 127), 128), 1);
                hidden1[0] = argus::sub_wrap(argus::sub_wrap(first_tile_11[0], 1), first_tile1[0]);
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    top1[v0] = (-argus::infinity<float>());
                }
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    sum1_partial[v0] = 0.0f;
                }
                argus::wgmma_hold(w1);
                #pragma unroll
                for (int v2 = 0; v2 < 16; ++v2) {
                    #pragma unroll
                    for (int v1 = 0; v1 < 2; ++v1) {
                        #pragma unroll
                        for (int v0 = 0; v0 < 2; ++v0) {
                            w1[4 * v2 + 2 * v1 + v0] = argus::cast<argus::bf16>(0.0f);
                        }
                    }
                }
                #pragma unroll
                for (int v2 = 0; v2 < 16; ++v2) {
                    #pragma unroll
                    for (int v1 = 0; v1 < 2; ++v1) {
                        #pragma unroll
                        for (int v0 = 0; v0 < 2; ++v0) {
                            acc1[4 * v2 + 2 * v1 + v0] = 0.0f;
                        }
                    }
                }
                argus::mbarrier_wait(smem, program_ % 1 * 8 + 196624, program_ / 1 % 2);
                argus::wgmma_hold(w1);
                argus::wgmma_hold(acc1);
                for (int t = 0, _t_stop = argus::uniform(blocks1[0]); t < _t_stop; t += 1) {
                    j01[0] = argus::add_wrap(begin_tile1[0], t * 128);
                    argus::wgmma_forget(s1);
                    argus::mbarrier_wait(smem, turn % 2 * 8 + 196640, turn / 2 % 2);
                    argus::role_barrier<256>(5);
                    argus::wgmma_hold(w1);
                    argus::wgmma_hold(acc1);
                    argus::wgmma_fence();
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        #pragma unroll
                        for (int v1 = 0; v1 < 4; ++v1) {
                            argus::wgmma_m64n128k16<argus::bf16, argus::bf16, 0, 0>(&s1[0], argus::descriptor_at(p0, 512 * v0 + 2 * v1), argus::descriptor_at(argus::descriptor_at(p1, turn % 2 * 2048), 1024 * v0 + 2 * v1), v0 + v1 != 0);
                        }
                    }
                    argus::wgmma_commit();
                    argus::mbarrier_wait(smem, turn % 2 * 8 + 196672, turn / 2 % 2);
                    if (t > 0) {
                        argus::wgmma_fence();
                        #pragma unroll
                        for (int v0 = 0; v0 < 2; ++v0) {
                            #pragma unroll
                            for (int v1 = 0; v1 < 4; ++v1) {
                                argus::wgmma_m64n128k16<argus::bf16, argus::bf16, 0, 1>(&acc1[0], &w1[32 * v0 + 8 * v1], argus::descriptor_at(argus::descriptor_at(p2, turn % 2 * 2048), 512 * v0 + 128 * v1), true);
                            }
                        }
                        argus::wgmma_commit();
                    }
                    else {
                        argus::wgmma_commit();
                    }
                    argus::wgmma_wait<1>();
                    if (t + 1 >= blocks1[0]) {
                        argus::mbarrier_arrive(smem, program_ % 1 * 8 + 196632);
                    }
                    argus::mbarrier_arrive(smem, turn % 2 * 8 + 196656);
                    if (argus::sub_wrap(end_tile1[0], hidden1[0]) < argus::add_wrap(j01[0], 128)) {
                        argus::wgmma_hold(s1);
                        #pragma unroll
                        for (int v2 = 0; v2 < 16; ++v2) {
                            #pragma unroll
                            for (int v1 = 0; v1 < 2; ++v1) {
                                #pragma unroll
                                for (int v0 = 0; v0 < 2; ++v0) {
                                    s1[4 * v2 + 2 * v1 + v0] = argus::add_wrap(j01[0], t1 + v2 * 8 + v0) < seen1[v1] ? s1[4 * v2 + 2 * v1 + v0] : (-argus::infinity<float>());
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        max1[v0] = (-argus::infinity<float>());
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        max1_partial[v0] = (-argus::infinity<float>());
                    }
                    argus::wgmma_hold(s1);
                    #pragma unroll
                    for (int v2 = 0; v2 < 16; ++v2) {
                        #pragma unroll
                        for (int v1 = 0; v1 < 2; ++v1) {
                            #pragma unroll
                            for (int v0 = 0; v0 < 2; ++v0) {
                                max1_partial[v1] = argus::maximum(max1_partial[v1], s1[4 * v2 + 2 * v1 + v0]);
                            }
                        }
                    }
                    {
                        float total[2];
                        #pragma unroll
                        for (int r = 0; r < 2; ++r) total[r] = (-argus::infinity<float>());
                        #pragma unroll
                        for (int v0 = 0; v0 < 2; ++v0) {
                            total[v0] = argus::maximum(total[v0], max1_partial[v0]);
                        }
                        #pragma unroll
                        for (int r = 0; r < 2; ++r) total[r] = argus::maximum(total[r], argus::shuffle_xor(total[r], 1));
                        #pragma unroll
                        for (int r = 0; r < 2; ++r) total[r] = argus::maximum(total[r], argus::shuffle_xor(total[r], 2));
                        #pragma unroll
                        for (int r = 0; r < 2; ++r) max1[r] = argus::maximum(max1[r], total[r]);
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        new1[v0] = argus::maximum(top1[v0], max1[v0]);
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        shift1[v0] = new1[v0] == (-argus::infinity<float>()) ? 0.0f : -new1[v0] * scale;
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        shrink1[v0] = argus::exp2(top1[v0] * scale + shift1[v0]);
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        top1[v0] = new1[v0];
                    }
                    argus::role_barrier_arrive<256>(4);
                    argus::wgmma_hold(s1);
                    argus::wgmma_hold(shift1);
                    argus::wgmma_hold(shrink1);
                    argus::wgmma_beside();
                    argus::wgmma_wait<0>();
                    argus::mbarrier_arrive(smem, turn % 2 * 8 + 196688);
                    argus::wgmma_hold(acc1);
                    #pragma unroll
                    for (int v2 = 0; v2 < 16; ++v2) {
                        #pragma unroll
                        for (int v1 = 0; v1 < 2; ++v1) {
                            #pragma unroll
                            for (int v0 = 0; v0 < 2; ++v0) {
                                acc1[4 * v2 + 2 * v1 + v0] = acc1[4 * v2 + 2 * v1 + v0] * shrink1[v1];
                            }
                        }
                    }
                    #pragma unroll
                    for (int v2 = 0; v2 < 16; ++v2) {
                        #pragma unroll
                        for (int v1 = 0; v1 < 2; ++v1) {
                            #pragma unroll
                            for (int v0 = 0; v0 < 2; ++v0) {
                                x1[4 * v2 + 2 * v1 + v0] = argus::exp2(s1[4 * v2 + 2 * v1 + v0] * scale + shift1[v1]);
                            }
                        }
                    }
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        sum1_partial[v0] = sum1_partial[v0] * shrink1[v0];
                    }
                    #pragma unroll
                    for (int v2 = 0; v2 < 16; ++v2) {
                        #pragma unroll
                        for (int v1 = 0; v1 < 2; ++v1) {
                            #pragma unroll
                            for (int v0 = 0; v0 < 2; ++v0) {
                                sum1_partial[v1] = sum1_partial[v1] + x1[4 * v2 + 2 * v1 + v0];
                            }
                        }
                    }
                    argus::wgmma_hold(w1);
                    #pragma unroll
                    for (int v2 = 0; v2 < 16; ++v2) {
                        #pragma unroll
                        for (int v1 = 0; v1 < 2; ++v1) {
                            #pragma unroll
                            for (int v0 = 0; v0 < 2; ++v0) {
                                w1[4 * v2 + 2 * v1 + v0] = argus::cast<argus::bf16>(x1[4 * v2 + 2 * v1 + v0]);
                            }
                        }
                    }
                    turn = turn + 1 == 4 ? 0 : turn + 1;
                }
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    total1[v0] = 0.0f;
                }
                {
                    float total[2];
                    #pragma unroll
                    for (int r = 0; r < 2; ++r) total[r] = 0.0f;
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        total[v0] = total[v0] + sum1_partial[v0];
                    }
                    #pragma unroll
                    for (int r = 0; r < 2; ++r) total[r] = total[r] + argus::shuffle_xor(total[r], 1);
                    #pragma unroll
                    for (int r = 0; r < 2; ++r) total[r] = total[r] + argus::shuffle_xor(total[r], 2);
                    #pragma unroll
                    for (int r = 0; r < 2; ++r) total1[r] = total1[r] + total[r];
                }
                if (blocks1[0] <= 0) {
                    argus::mbarrier_arrive(smem, program_ % 1 * 8 + 196632);
                }
                last1[0] = argus::add_wrap(begin_tile1[0], argus::mul_wrap(argus::sub_wrap(blocks1[0], 1), 128));
                argus::mbarrier_wait(smem, program_ % 1 * 8 + 196704, program_ / 1 % 2);
                argus::wgmma_hold(w1);
                argus::wgmma_hold(acc1);
                argus::wgmma_fence();
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    #pragma unroll
                    for (int v1 = 0; v1 < 4; ++v1) {
                        argus::wgmma_m64n128k16<argus::bf16, argus::bf16, 0, 1>(&acc1[0], &w1[32 * v0 + 8 * v1], argus::descriptor_at(p3, 512 * v0 + 128 * v1), true);
                    }
                }
                argus::wgmma_commit();
                argus::wgmma_wait<0>();
                argus::mbarrier_arrive(smem, program_ % 1 * 8 + 196712);
                argus::wgmma_hold(acc1);
                #pragma unroll
                for (int v2 = 0; v2 < 16; ++v2) {
                    #pragma unroll
                    for (int v1 = 0; v1 < 2; ++v1) {
                        #pragma unroll
                        for (int v0 = 0; v0 < 2; ++v0) {
                            y1[4 * v2 + 2 * v1 + v0] = acc1[4 * v2 + 2 * v1 + v0] * (1.0f / (total1[v1] == 0.0f ? 1.0f : total1[v1]));
                        }
                    }
                }
                #pragma unroll
                for (int v2 = 0; v2 < 16; ++v2) {
                    #pragma unroll
                    for (int v1 = 0; v1 < 2; ++v1) {
                        #pragma unroll
                        for (int v0 = 0; v0 < 2; ++v0) {
                            o_tile1[4 * v2 + 2 * v1 + v0] = argus::cast<argus::bf16>(y1[4 * v2 + 2 * v1 + v0]);
                        }
                    }
                }
                #pragma unroll
                for (int v1 = 0; v1 < 16; ++v1) {
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        argus::store_global_if<2>(xp1[v0] < first_tile_11[0], o + (argus::i64(block0) * o_stride1), p4 + argus::i64(xp1[v0]) * o_stride0 + v1 * 8, &o_tile1[4 * v1 + 2 * v0]);
                    }
                }
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    level1[v0] = (top1[v0] == (-argus::infinity<float>()) ? 0.0f : top1[v0] * scale) + argus::log2(total1[v0]);
                }
                #pragma unroll
                for (int v0 = 0; v0 < 2; ++v0) {
                    lse_tile1[v0] = level1[v0] * 0.6931472f;
                }
                if (thread % 4 == 0) {
                    #pragma unroll
                    for (int v0 = 0; v0 < 2; ++v0) {
                        argus::store_global_if<1>(xp1[v0] < first_tile_11[0], lse + (argus::i64(block0) * lse_stride0), xp1[v0], &lse_tile1[v0]);
                    }
                }
                program_ = program_ + 1 == 2 ? 0 : program_ + 1;
            }
        }
    }
}
