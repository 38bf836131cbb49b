ARGUS_KERNEL(argus_int, 64)(
    const float* ARGUS_RESTRICT x,
    const int* ARGUS_RESTRICT rows,
    float* ARGUS_RESTRICT out,
    int K,
    int N,
    int M,
    argus::i64 x_stride0,
    argus::i64 out_stride0
) {
    const int thread = argus::thread_id();
    const int block0 = argus::block_id<0>();
    const int t0 = thread / 8;
    const argus::i64 p0 = t0;
    const int t1 = thread % 8;
    const argus::i64 p1 = t1;
    const argus::i64 p2 = argus::i64(t0) * out_stride0 + t1;
    alignas(16) int rf[1];  // [8 | t 8@_ 8@0 | v]
    alignas(16) float vf[1];  // [8x8 | t 8@1 8@0 | v]

    argus::launch_dependents();
    argus::begin();
    argus::load_global_or<1>(block0 * 8 + t0 < M, rows + (block0 * 8), p0, &rf[0], 0);
    for (int register_ = 0; register_ < N; register_ += 8) {
        argus::load_global_or<1>(block0 * 8 + t0 < M && register_ + t1 < N, x + (register_), p1 + argus::i64(rf[0]) * x_stride0, &vf[0], 0.0f);
        vf[0] = vf[0] * 2.0f;
        if (block0 % 2 == 1) {
            vf[0] = -vf[0];
        }
        else {
            vf[0] = vf[0] * 1.0f;
        }
        argus::store_global_if<1>(block0 * 8 + t0 < M && register_ + t1 < N, out + (argus::i64(block0 * 8) * out_stride0 + register_), p2, &vf[0]);
    }
    if (!(thread < 64)) {
        argus::barrier();
    }
    else {
        argus::barrier();
    }
}
