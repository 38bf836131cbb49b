ARGUS_KERNEL(argus_histogram, 64)(
    const int* ARGUS_RESTRICT x,
    int* ARGUS_RESTRICT count,
    int* ARGUS_RESTRICT top,
    int N,
    int C,
    int One
) {
    const int thread = argus::thread_id();
    const int block0 = argus::block_id<0>();
    const int t0 = thread % 32;
    const argus::i64 p0 = t0;
    alignas(16) int xf[2];  // [64 | t 32@0 2@_ | v 2@0*32]

    argus::launch_dependents();
    argus::begin();
    #pragma unroll
    for (int v0 = 0; v0 < 2; ++v0) {
        argus::load_global_or<1>(block0 * 64 + t0 + v0 * 32 < N, x + (block0 * 64), p0 + v0 * 32, &xf[v0], -1);
    }
    if (thread / 32 == 0) {
        #pragma unroll
        for (int v0 = 0; v0 < 2; ++v0) {
            if (xf[v0] >= 0) argus::atomic_add(count, xf[v0], 1);
        }
    }
    if (thread / 32 == 0) {
        #pragma unroll
        for (int v0 = 0; v0 < 2; ++v0) {
            argus::atomic_maximum(top, 0, xf[v0]);
        }
    }
}
