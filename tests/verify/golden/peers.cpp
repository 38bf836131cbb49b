ARGUS_CLUSTER_KERNEL(argus_swap, 32, 2)(
    const float* ARGUS_RESTRICT x,
    float* ARGUS_RESTRICT out,
    int M,
    int N,
    argus::i64 x_stride0,
    argus::i64 out_stride0
) {
    ARGUS_SHARED(smem, 128);
    // smem + 0: held, float32 32, (32):(1)
    const int thread = argus::thread_id();
    const int block0 = argus::block_id<0>();
    const int t0 = thread;
    const argus::i64 p0 = t0;
    const int p1 = t0 * 4;
    alignas(16) float held_in[1];  // [32 | t 32@0 | v]
    alignas(16) float out_in[1];  // [32 | t 32@0 | v]

    argus::launch_dependents();
    argus::begin();
    argus::cluster_barrier();
    argus::load_global<1>(x + (argus::i64(block0 / 2) * x_stride0 + block0 % 2 * 32), p0, &held_in[0]);
    argus::store_peer<1>(smem, p1, 1 - block0 % 2, &held_in[0]);
    argus::cluster_barrier();
    argus::load_shared<1>(smem, p1, &out_in[0]);
    argus::store_global<1>(out + (argus::i64(block0 / 2) * out_stride0 + block0 % 2 * 32), p0, &out_in[0]);
}
