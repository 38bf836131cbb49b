// sm_90a: mbarriers, the copy engine (TMA), asynchronous products of warpgroups (wgmma), roles of warps.
// Functions and their meanings: argus/backend/device_api.py. Document: PTX ISA 9.0.
#pragma once

namespace argus {

using u64 = unsigned long long;

// Made by the host (cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col); read by the copy engine alone.
struct alignas(64) TensorMap { unsigned char bytes[128]; };

// ---- mbarriers

ARGUS_FN void mbarrier_init(shared_t smem, int offset, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(smem + offset), "r"(arrivals) : "memory");
}

ARGUS_FN void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}

ARGUS_FN void mbarrier_arrive(shared_t smem, int offset) {
    __syncwarp();
    if (thread_id() % 32 == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(smem + offset) : "memory");
}

ARGUS_FN void mbarrier_expect(shared_t smem, int offset, int bytes) {
    __syncwarp();
    if (thread_id() % 32 == 0)
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :: "r"(smem + offset), "r"(bytes) : "memory");
}

ARGUS_FN void mbarrier_wait(shared_t smem, int offset, int parity) {
    constexpr unsigned longest = 10000000;  // nanoseconds that the thread may sleep before it asks again
    asm volatile("{\n\t.reg .pred done;\n"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, %2;\n\t"
                 "@!done bra again;\n\t}"
                 :: "r"(smem + offset), "r"(parity), "r"(longest) : "memory");
}

// Of a cluster, the COUNT blocks whose numbers are that of this block but for the digit number / STRIDE % COUNT: a bit
// each.
template <int COUNT, int STRIDE> ARGUS_FN unsigned blocks_among() {
    constexpr unsigned together = ((1u << COUNT * STRIDE) - 1) / ((1u << STRIDE) - 1);
    unsigned number;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(number));
    return together << (number - number / STRIDE % COUNT * STRIDE);
}

// Arrives on the mbarriers at this place in all blocks of the cluster, or in some. Ordinary accesses are released to the
// own block alone: to do so for the cluster costs a fence of the whole device at every arrival (measured: a third of the
// speed).
template <int CLUSTER> ARGUS_FN void mbarrier_arrive_cluster(shared_t smem, int offset, unsigned to = (1u << CLUSTER) - 1) {
    __syncwarp();
    const int block = thread_id() % 32;
    if (block < CLUSTER && (to >> block & 1))
        asm volatile("{\n\t.reg .b32 remote;\n\t"
                     "mapa.shared::cluster.u32 remote, %0, %1;\n\t"
                     "mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t}"
                     :: "r"(smem + offset), "r"(block) : "memory");
}

// Waits for all threads of the cluster that are still there; orders their shared accesses.
ARGUS_FN void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

// ---- shared memory of another block of the cluster

namespace target {
ARGUS_FN unsigned peer_address(shared_t smem, int offset, int block) {
    unsigned remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(smem + offset), "r"(block));
    return remote;
}
}  // namespace target

template <int N, class T> ARGUS_FN void load_peer(shared_t smem, int offset, int block, T* dst) {
    target::load_peer<N>(target::peer_address(smem, offset, block), dst);
}

template <int N, class T> ARGUS_FN void store_peer(shared_t smem, int offset, int block, const T* src) {
    target::store_peer<N>(target::peer_address(smem, offset, block), src);
}

ARGUS_FN void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- bulk copies

ARGUS_FN void tma_prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
}

namespace target {
// For what is read once: the first that the L2 cache gives up.
ARGUS_FN u64 evict_first() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
}  // namespace target

// LOAD and STORE number the coordinates among the operands of the two; NEXT and AFTER are what follows those of loads.
#define ARGUS_TMA(RANK, PARAMETERS, LOAD, STORE, NEXT, AFTER, ...)                                                   \
    ARGUS_FN void tma_load(shared_t smem, int offset, int barrier, const TensorMap& map, PARAMETERS) {               \
        if (thread_id() % 32 == 0)                                                                                   \
            asm volatile("cp.async.bulk.tensor." RANK ".shared::cluster.global.tile.mbarrier::complete_tx::bytes "   \
                         "[%0], [%1, {" LOAD "}], [%2];"                                                             \
                         :: "r"(smem + offset), "l"(&map), "r"(smem + barrier), __VA_ARGS__ : "memory");             \
    }                                                                                                                \
    template <int COUNT, int STRIDE = 0>                                                                             \
    ARGUS_FN void tma_load_multicast(shared_t smem, int offset, int barrier, const TensorMap& map, PARAMETERS) {     \
        const unsigned short to = STRIDE == 0 ? (1u << COUNT) - 1 : blocks_among<COUNT, STRIDE ? STRIDE : 1>();      \
        if (thread_id() % 32 == 0)                                                                                   \
            asm volatile("cp.async.bulk.tensor." RANK ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"    \
                         ".multicast::cluster [%0], [%1, {" LOAD "}], [%2], " NEXT ";"                               \
                         :: "r"(smem + offset), "l"(&map), "r"(smem + barrier), __VA_ARGS__, "h"(to) : "memory");    \
    }                                                                                                                \
    ARGUS_FN void tma_load_once(shared_t smem, int offset, int barrier, const TensorMap& map, PARAMETERS) {          \
        if (thread_id() % 32 == 0)                                                                                   \
            asm volatile("cp.async.bulk.tensor." RANK ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"    \
                         ".L2::cache_hint [%0], [%1, {" LOAD "}], [%2], " NEXT ";"                                   \
                         :: "r"(smem + offset), "l"(&map), "r"(smem + barrier), __VA_ARGS__,                         \
                            "l"(target::evict_first()) : "memory");                                                  \
    }                                                                                                                \
    template <int COUNT, int STRIDE = 0>                                                                             \
    ARGUS_FN void tma_load_once_multicast(shared_t smem, int offset, int barrier, const TensorMap& map, PARAMETERS) {\
        const unsigned short to = STRIDE == 0 ? (1u << COUNT) - 1 : blocks_among<COUNT, STRIDE ? STRIDE : 1>();      \
        if (thread_id() % 32 == 0)                                                                                   \
            asm volatile("cp.async.bulk.tensor." RANK ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"    \
                         ".multicast::cluster.L2::cache_hint [%0], [%1, {" LOAD "}], [%2], " NEXT ", " AFTER ";"     \
                         :: "r"(smem + offset), "l"(&map), "r"(smem + barrier), __VA_ARGS__, "h"(to),                \
                            "l"(target::evict_first()) : "memory");                                                  \
    }                                                                                                                \
    ARGUS_FN void tma_store(shared_t smem, int offset, const TensorMap& map, PARAMETERS) {                           \
        asm volatile("cp.async.bulk.tensor." RANK ".global.shared::cta.tile.bulk_group [%1, {" STORE "}], [%0];"     \
                     :: "r"(smem + offset), "l"(&map), __VA_ARGS__ : "memory");                                      \
    }                                                                                                                \
    template <class T>                                                                                               \
    ARGUS_FN void tma_reduce_add(shared_t smem, int offset, const TensorMap& map, PARAMETERS) {                      \
        ARGUS_TMA_REDUCE("add", RANK, STORE, __VA_ARGS__);                                                           \
    }                                                                                                                \
    template <class T>                                                                                               \
    ARGUS_FN void tma_reduce_minimum(shared_t smem, int offset, const TensorMap& map, PARAMETERS) {                  \
        ARGUS_TMA_REDUCE("min", RANK, STORE, __VA_ARGS__);                                                           \
    }                                                                                                                \
    template <class T>                                                                                               \
    ARGUS_FN void tma_reduce_maximum(shared_t smem, int offset, const TensorMap& map, PARAMETERS) {                  \
        ARGUS_TMA_REDUCE("max", RANK, STORE, __VA_ARGS__);                                                           \
    }
// The type of the elements is the tensor map's.
#define ARGUS_TMA_REDUCE(OP, RANK, STORE, ...)                                                                       \
    asm volatile("cp.reduce.async.bulk.tensor." RANK ".global.shared::cta." OP ".tile.bulk_group "                   \
                 "[%1, {" STORE "}], [%0];" :: "r"(smem + offset), "l"(&map), __VA_ARGS__ : "memory")
#define ARGUS_COMMA ,
ARGUS_TMA("2d", int c0 ARGUS_COMMA int c1, "%3, %4", "%2, %3", "%5", "%6", "r"(c0), "r"(c1))
ARGUS_TMA("3d", int c0 ARGUS_COMMA int c1 ARGUS_COMMA int c2, "%3, %4, %5", "%2, %3, %4", "%6", "%7",
          "r"(c0), "r"(c1), "r"(c2))
ARGUS_TMA("4d", int c0 ARGUS_COMMA int c1 ARGUS_COMMA int c2 ARGUS_COMMA int c3, "%3, %4, %5, %6", "%2, %3, %4, %5", "%7", "%8",
          "r"(c0), "r"(c1), "r"(c2), "r"(c3))
ARGUS_TMA("5d", int c0 ARGUS_COMMA int c1 ARGUS_COMMA int c2 ARGUS_COMMA int c3 ARGUS_COMMA int c4, "%3, %4, %5, %6, %7", "%2, %3, %4, %5, %6", "%8", "%9",
          "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4))
#undef ARGUS_TMA_REDUCE
#undef ARGUS_TMA

// Columns of pixels: the coordinates of the first one, then the offsets of its place.
#define ARGUS_TMA_IM2COL(RANK, PARAMETERS, AT, OFFSETS, ...)                                                         \
    ARGUS_FN void tma_load_im2col(shared_t smem, int offset, int barrier, const TensorMap& map, PARAMETERS) {        \
        if (thread_id() % 32 == 0)                                                                                   \
            asm volatile("cp.async.bulk.tensor." RANK ".shared::cluster.global.im2col.mbarrier::complete_tx::bytes " \
                         "[%0], [%1, {" AT "}], [%2], {" OFFSETS "};"                                                \
                         :: "r"(smem + offset), "l"(&map), "r"(smem + barrier), __VA_ARGS__ : "memory");             \
    }
#define ARGUS_OFFSET(X) "h"(static_cast<unsigned short>(X))
ARGUS_TMA_IM2COL("3d", int c ARGUS_COMMA int w ARGUS_COMMA int n ARGUS_COMMA int s, "%3, %4, %5", "%6",
                 "r"(c), "r"(w), "r"(n), ARGUS_OFFSET(s))
ARGUS_TMA_IM2COL("4d", int c ARGUS_COMMA int w ARGUS_COMMA int h ARGUS_COMMA int n ARGUS_COMMA int s ARGUS_COMMA int r,
                 "%3, %4, %5, %6", "%7, %8", "r"(c), "r"(w), "r"(h), "r"(n), ARGUS_OFFSET(s), ARGUS_OFFSET(r))
ARGUS_TMA_IM2COL("5d", int c ARGUS_COMMA int w ARGUS_COMMA int h ARGUS_COMMA int d ARGUS_COMMA int n ARGUS_COMMA int s
                 ARGUS_COMMA int r ARGUS_COMMA int t, "%3, %4, %5, %6, %7", "%8, %9, %10",
                 "r"(c), "r"(w), "r"(h), "r"(d), "r"(n), ARGUS_OFFSET(s), ARGUS_OFFSET(r), ARGUS_OFFSET(t))
#undef ARGUS_COMMA
#undef ARGUS_OFFSET
#undef ARGUS_TMA_IM2COL

ARGUS_FN void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int PENDING> ARGUS_FN void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" :: "n"(PENDING) : "memory");
}
template <int PENDING> ARGUS_FN void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(PENDING) : "memory");
}

// ---- roles of warps

// The same in all lanes, and known to the compiler to be.
ARGUS_FN int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

template <int N> ARGUS_FN void raise_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }
template <int N> ARGUS_FN void lower_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }

template <int THREADS> ARGUS_FN void role_barrier(int id) {
    asm volatile("bar.sync %0, %1;" :: "r"(id), "n"(THREADS) : "memory");
}
template <int THREADS> ARGUS_FN void role_barrier_arrive(int id) {
    asm volatile("bar.arrive %0, %1;" :: "r"(id), "n"(THREADS) : "memory");
}

// ---- asynchronous products

// Matrix descriptor, in units of 16 bytes: start address; from one panel to the next (`leading` bytes; operands along k
// do not use it); 1024 bytes from 8 rows to the next; 128-byte swizzle.
ARGUS_FN u64 matrix_descriptor(shared_t smem, int offset, int leading) {
    const unsigned start = (smem + offset) & 0x3ffff;  // above: which block of the cluster; not a part of descriptors
    return u64(0x40000040u) << 32 | static_cast<unsigned>(leading >> 4) << 16 | start >> 4;
}

// The same of rows of 64 bytes: 512 bytes from 8 rows to the next; 64-byte swizzle.
ARGUS_FN u64 narrow_descriptor(shared_t smem, int offset) {
    return u64(0x80000020u) << 32 | 1u << 16 | ((smem + offset) & 0x3ffff) >> 4;
}

// Only the low word moves: nothing carries out of it.
ARGUS_FN u64 descriptor_at(u64 descriptor, int units) {
    return (descriptor >> 32 << 32) | static_cast<unsigned>(static_cast<unsigned>(descriptor) + units);
}

ARGUS_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ARGUS_FN void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// With ARGUS_WAITS_APART, ptxas moves nothing in front of a wait for all products (see wgmma_beside).
template <int PENDING> ARGUS_FN void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
#ifdef ARGUS_WAITS_APART
    if constexpr (PENDING == 0) asm volatile("pmevent 0;" ::: "memory");
#endif
}

// ptxas moves a wait for products in front of whatever arithmetic does not depend on it, which then runs behind them and
// not beside them. It moves nothing across this instruction, whose event nobody listens to.
ARGUS_FN void wgmma_beside() { asm volatile("pmevent 0;" ::: "memory"); }

// Lets the compiler use the registers for something else until they are written again; no instruction.
template <int N> ARGUS_FN void wgmma_forget(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "=f"(d[i]));
}

// Keeps the compiler from moving ordinary uses of the registers of products across; no instruction.
template <int N> ARGUS_FN void wgmma_hold(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i]) :: "memory");
}
template <class T, int N> ARGUS_FN void wgmma_hold(T (&a)[N]) {
#pragma unroll
    for (int i = 0; i < N * static_cast<int>(sizeof(T)) / 4; ++i)
        asm volatile("" : "+r"(target::words(a)[i]) :: "memory");
}

// Accumulator registers of the first 1, 2, ... 32 columns of 8: in the text, and as operands.
#define ARGUS_T1 "%0, %1, %2, %3"
#define ARGUS_T2 ARGUS_T1 ", %4, %5, %6, %7"
#define ARGUS_T3 ARGUS_T2 ", %8, %9, %10, %11"
#define ARGUS_T4 ARGUS_T3 ", %12, %13, %14, %15"
#define ARGUS_T5 ARGUS_T4 ", %16, %17, %18, %19"
#define ARGUS_T6 ARGUS_T5 ", %20, %21, %22, %23"
#define ARGUS_T7 ARGUS_T6 ", %24, %25, %26, %27"
#define ARGUS_T8 ARGUS_T7 ", %28, %29, %30, %31"
#define ARGUS_T9 ARGUS_T8 ", %32, %33, %34, %35"
#define ARGUS_T10 ARGUS_T9 ", %36, %37, %38, %39"
#define ARGUS_T11 ARGUS_T10 ", %40, %41, %42, %43"
#define ARGUS_T12 ARGUS_T11 ", %44, %45, %46, %47"
#define ARGUS_T13 ARGUS_T12 ", %48, %49, %50, %51"
#define ARGUS_T14 ARGUS_T13 ", %52, %53, %54, %55"
#define ARGUS_T15 ARGUS_T14 ", %56, %57, %58, %59"
#define ARGUS_T16 ARGUS_T15 ", %60, %61, %62, %63"
#define ARGUS_T17 ARGUS_T16 ", %64, %65, %66, %67"
#define ARGUS_T18 ARGUS_T17 ", %68, %69, %70, %71"
#define ARGUS_T19 ARGUS_T18 ", %72, %73, %74, %75"
#define ARGUS_T20 ARGUS_T19 ", %76, %77, %78, %79"
#define ARGUS_T21 ARGUS_T20 ", %80, %81, %82, %83"
#define ARGUS_T22 ARGUS_T21 ", %84, %85, %86, %87"
#define ARGUS_T23 ARGUS_T22 ", %88, %89, %90, %91"
#define ARGUS_T24 ARGUS_T23 ", %92, %93, %94, %95"
#define ARGUS_T25 ARGUS_T24 ", %96, %97, %98, %99"
#define ARGUS_T26 ARGUS_T25 ", %100, %101, %102, %103"
#define ARGUS_T27 ARGUS_T26 ", %104, %105, %106, %107"
#define ARGUS_T28 ARGUS_T27 ", %108, %109, %110, %111"
#define ARGUS_T29 ARGUS_T28 ", %112, %113, %114, %115"
#define ARGUS_T30 ARGUS_T29 ", %116, %117, %118, %119"
#define ARGUS_T31 ARGUS_T30 ", %120, %121, %122, %123"
#define ARGUS_T32 ARGUS_T31 ", %124, %125, %126, %127"
#define ARGUS_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ARGUS_D1 ARGUS_FOUR(0)
#define ARGUS_D2 ARGUS_D1, ARGUS_FOUR(4)
#define ARGUS_D3 ARGUS_D2, ARGUS_FOUR(8)
#define ARGUS_D4 ARGUS_D3, ARGUS_FOUR(12)
#define ARGUS_D5 ARGUS_D4, ARGUS_FOUR(16)
#define ARGUS_D6 ARGUS_D5, ARGUS_FOUR(20)
#define ARGUS_D7 ARGUS_D6, ARGUS_FOUR(24)
#define ARGUS_D8 ARGUS_D7, ARGUS_FOUR(28)
#define ARGUS_D9 ARGUS_D8, ARGUS_FOUR(32)
#define ARGUS_D10 ARGUS_D9, ARGUS_FOUR(36)
#define ARGUS_D11 ARGUS_D10, ARGUS_FOUR(40)
#define ARGUS_D12 ARGUS_D11, ARGUS_FOUR(44)
#define ARGUS_D13 ARGUS_D12, ARGUS_FOUR(48)
#define ARGUS_D14 ARGUS_D13, ARGUS_FOUR(52)
#define ARGUS_D15 ARGUS_D14, ARGUS_FOUR(56)
#define ARGUS_D16 ARGUS_D15, ARGUS_FOUR(60)
#define ARGUS_D17 ARGUS_D16, ARGUS_FOUR(64)
#define ARGUS_D18 ARGUS_D17, ARGUS_FOUR(68)
#define ARGUS_D19 ARGUS_D18, ARGUS_FOUR(72)
#define ARGUS_D20 ARGUS_D19, ARGUS_FOUR(76)
#define ARGUS_D21 ARGUS_D20, ARGUS_FOUR(80)
#define ARGUS_D22 ARGUS_D21, ARGUS_FOUR(84)
#define ARGUS_D23 ARGUS_D22, ARGUS_FOUR(88)
#define ARGUS_D24 ARGUS_D23, ARGUS_FOUR(92)
#define ARGUS_D25 ARGUS_D24, ARGUS_FOUR(96)
#define ARGUS_D26 ARGUS_D25, ARGUS_FOUR(100)
#define ARGUS_D27 ARGUS_D26, ARGUS_FOUR(104)
#define ARGUS_D28 ARGUS_D27, ARGUS_FOUR(108)
#define ARGUS_D29 ARGUS_D28, ARGUS_FOUR(112)
#define ARGUS_D30 ARGUS_D29, ARGUS_FOUR(116)
#define ARGUS_D31 ARGUS_D30, ARGUS_FOUR(120)
#define ARGUS_D32 ARGUS_D31, ARGUS_FOUR(124)

namespace target {

// What an instruction's text says of its operands' types, and of their majors (0: along k, 1: along m or n, 2: in
// registers), which only those of 16 bits have.
template <class A, class B> struct WgmmaTypes;
template <int BYTES, int A, int B> struct WgmmaMajors { static constexpr char text[] = ""; };
#define ARGUS_TYPES(A, B, TEXT) template <> struct WgmmaTypes<A, B> { static constexpr char text[] = TEXT; };
#define ARGUS_MAJORS(A, B, TEXT) template <> struct WgmmaMajors<2, A, B> { static constexpr char text[] = TEXT; };
ARGUS_TYPES(bf16, bf16, "k16.f32.bf16.bf16")
ARGUS_TYPES(f16, f16, "k16.f32.f16.f16")
ARGUS_TYPES(tf32, tf32, "k8.f32.tf32.tf32")
ARGUS_TYPES(e4m3fn, e4m3fn, "k32.f32.e4m3.e4m3")
ARGUS_TYPES(e4m3fn, e5m2, "k32.f32.e4m3.e5m2")
ARGUS_TYPES(e5m2, e4m3fn, "k32.f32.e5m2.e4m3")
ARGUS_TYPES(e5m2, e5m2, "k32.f32.e5m2.e5m2")
ARGUS_MAJORS(0, 0, ", 0, 0")
ARGUS_MAJORS(0, 1, ", 0, 1")
ARGUS_MAJORS(1, 0, ", 1, 0")
ARGUS_MAJORS(1, 1, ", 1, 1")
ARGUS_MAJORS(2, 0, ", 0")
ARGUS_MAJORS(2, 1, ", 1")
#undef ARGUS_TYPES
#undef ARGUS_MAJORS

}  // namespace target

// N columns in N / 8 units; A to H are the numbers of the operands after the accumulators.
#define ARGUS_WGMMA(N, UNITS, A, B, C, D, E, F, G, H)                                                                \
    namespace target {                                                                                               \
    template <class X, class Y, int MAJOR_A, int MAJOR_B>                                                            \
    ARGUS_FN void wgmma_n##N(float* d, u64 a, u64 b, bool add) {                                                     \
        asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %" #C ", 0;\n\t"                                      \
                     "wgmma.mma_async.sync.aligned.m64n" #N "%" #D " "                                               \
                     "{" ARGUS_T##UNITS "}, %" #A ", %" #B ", add, 1, 1%" #E ";\n\t}"                                \
                     : ARGUS_D##UNITS                                                                                \
                     : "l"(a), "l"(b), "r"(static_cast<int>(add)), "C"(WgmmaTypes<X, Y>::text),                      \
                       "C"(WgmmaMajors<sizeof(X), MAJOR_A, MAJOR_B>::text) : "memory");                              \
    }                                                                                                                \
    template <class X, class Y, int MAJOR_A, int MAJOR_B>                                                            \
    ARGUS_FN void wgmma_n##N(float* d, const X* x, u64 b, bool add) {                                                \
        const unsigned* a = words(x);                                                                                \
        asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %" #F ", 0;\n\t"                                      \
                     "wgmma.mma_async.sync.aligned.m64n" #N "%" #G " "                                               \
                     "{" ARGUS_T##UNITS "}, {%" #A ", %" #B ", %" #C ", %" #D "}, %" #E ", add, 1, 1%" #H ";\n\t}"   \
                     : ARGUS_D##UNITS                                                                                \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)),               \
                       "C"(WgmmaTypes<X, Y>::text), "C"(WgmmaMajors<sizeof(X), 2, MAJOR_B>::text) : "memory");       \
    }                                                                                                                \
    }                                                                                                                \
    ARGUS_WGMMA_K(N, 16)                                                                                             \
    ARGUS_WGMMA_K(N, 8)                                                                                              \
    ARGUS_WGMMA_K(N, 32)
#define ARGUS_WGMMA_K(N, K)                                                                                          \
    template <class A, class B, int MAJOR_A, int MAJOR_B, class From>                                                \
    ARGUS_FN void wgmma_m64n##N##k##K(float* d, From a, u64 b, bool add) {                                           \
        static_assert(sizeof(A) * K == 32 && sizeof(B) * K == 32, "operands of another width");                      \
        target::wgmma_n##N<A, B, MAJOR_A, MAJOR_B>(d, a, b, add);                                                    \
    }
ARGUS_WGMMA(8, 1, 4, 5, 6, 7, 8, 9, 10, 11)
ARGUS_WGMMA(16, 2, 8, 9, 10, 11, 12, 13, 14, 15)
ARGUS_WGMMA(24, 3, 12, 13, 14, 15, 16, 17, 18, 19)
ARGUS_WGMMA(32, 4, 16, 17, 18, 19, 20, 21, 22, 23)
ARGUS_WGMMA(40, 5, 20, 21, 22, 23, 24, 25, 26, 27)
ARGUS_WGMMA(48, 6, 24, 25, 26, 27, 28, 29, 30, 31)
ARGUS_WGMMA(56, 7, 28, 29, 30, 31, 32, 33, 34, 35)
ARGUS_WGMMA(64, 8, 32, 33, 34, 35, 36, 37, 38, 39)
ARGUS_WGMMA(72, 9, 36, 37, 38, 39, 40, 41, 42, 43)
ARGUS_WGMMA(80, 10, 40, 41, 42, 43, 44, 45, 46, 47)
ARGUS_WGMMA(88, 11, 44, 45, 46, 47, 48, 49, 50, 51)
ARGUS_WGMMA(96, 12, 48, 49, 50, 51, 52, 53, 54, 55)
ARGUS_WGMMA(104, 13, 52, 53, 54, 55, 56, 57, 58, 59)
ARGUS_WGMMA(112, 14, 56, 57, 58, 59, 60, 61, 62, 63)
ARGUS_WGMMA(120, 15, 60, 61, 62, 63, 64, 65, 66, 67)
ARGUS_WGMMA(128, 16, 64, 65, 66, 67, 68, 69, 70, 71)
ARGUS_WGMMA(136, 17, 68, 69, 70, 71, 72, 73, 74, 75)
ARGUS_WGMMA(144, 18, 72, 73, 74, 75, 76, 77, 78, 79)
ARGUS_WGMMA(152, 19, 76, 77, 78, 79, 80, 81, 82, 83)
ARGUS_WGMMA(160, 20, 80, 81, 82, 83, 84, 85, 86, 87)
ARGUS_WGMMA(168, 21, 84, 85, 86, 87, 88, 89, 90, 91)
ARGUS_WGMMA(176, 22, 88, 89, 90, 91, 92, 93, 94, 95)
ARGUS_WGMMA(184, 23, 92, 93, 94, 95, 96, 97, 98, 99)
ARGUS_WGMMA(192, 24, 96, 97, 98, 99, 100, 101, 102, 103)
ARGUS_WGMMA(200, 25, 100, 101, 102, 103, 104, 105, 106, 107)
ARGUS_WGMMA(208, 26, 104, 105, 106, 107, 108, 109, 110, 111)
ARGUS_WGMMA(216, 27, 108, 109, 110, 111, 112, 113, 114, 115)
ARGUS_WGMMA(224, 28, 112, 113, 114, 115, 116, 117, 118, 119)
ARGUS_WGMMA(232, 29, 116, 117, 118, 119, 120, 121, 122, 123)
ARGUS_WGMMA(240, 30, 120, 121, 122, 123, 124, 125, 126, 127)
ARGUS_WGMMA(248, 31, 124, 125, 126, 127, 128, 129, 130, 131)
ARGUS_WGMMA(256, 32, 128, 129, 130, 131, 132, 133, 134, 135)
#undef ARGUS_WGMMA
#undef ARGUS_WGMMA_K

}  // namespace argus
