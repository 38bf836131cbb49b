// mbarriers, bulk copies and asynchronous products of sm_90a on the host. Documents: PTX ISA 9.0, sections mbarrier,
// cp.async.bulk.tensor, and asynchronous warpgroup level matrix instructions (swizzling modes, matrix descriptor).
//
// What is asynchronous happens as late as it may: boxes come when nobody can go on without them, products are computed
// at the wait that covers them. With ARGUS_CPU_EAGER_COPIES both happen at once.
#pragma once

namespace argus {

using u64 = unsigned long long;

// ---------------------------------------------------------------- mbarriers

namespace detail {

inline Mbarrier& mbarrier_at(int offset, const char* what) {
    Fiber& fiber = self();
    Block& block = *fiber.block;
    for (int i = 0; i < block.mbarrier_count; ++i)
        if (block.mbarriers[i].offset == offset) return block.mbarriers[i];
    say(block, "thread %d: %s: there is no mbarrier at byte %d of shared memory", fiber.thread, what, offset);
    stop();
}

inline void arrive(Mbarrier& barrier) {
    if (barrier.pending == 0) {
        say(*self().block, "thread %d: more than %d arrivals in one phase of the mbarrier at byte %d", self().thread,
            barrier.arrivals, barrier.offset);
        stop();
    }
    --barrier.pending;
    settle(barrier);
}

inline void arrive(RoleBarrier& barrier, int number, int expected) {
    if (barrier.arrived != 0 && barrier.expected != expected) {
        say(*self().block, "thread %d arrives at barrier %d for %d threads, others for %d", self().thread, number, expected,
            barrier.expected);
        stop();
    }
    barrier.expected = expected;
    if (++barrier.arrived < expected) return;
    barrier.arrived = 0;
    ++barrier.generation;
}

}  // namespace detail

inline void mbarrier_init(shared_t smem, int offset, int arrivals) {
    detail::check_shared<8>(offset, "mbarrier_init");
    detail::check_aligned<8>(smem + offset, "mbarrier_init");
    detail::Block& block = *detail::self().block;
    if (block.mbarrier_count == detail::MAX_MBARRIERS) {
        detail::say(block, "a block has more than %d mbarriers", detail::MAX_MBARRIERS);
        detail::stop();
    }
    detail::Mbarrier& barrier = block.mbarriers[block.mbarrier_count++];
    barrier.copies.clear();
    barrier.offset = offset;
    barrier.arrivals = barrier.pending = arrivals;
    barrier.phases = 0;
    barrier.bytes = 0;
}
inline void mbarrier_init_fence() {}
inline void mbarrier_arrive(shared_t, int offset) {
    detail::meet_warp("mbarrier_arrive", nullptr, [](void**) {});
    if (lane_id() == 0) detail::arrive(detail::mbarrier_at(offset, "mbarrier_arrive"));
}
inline void mbarrier_expect(shared_t, int offset, int bytes) {
    detail::meet_warp("mbarrier_expect", nullptr, [](void**) {});
    if (lane_id() != 0) return;
    detail::Mbarrier& barrier = detail::mbarrier_at(offset, "mbarrier_expect");
    barrier.bytes += bytes;
    detail::arrive(barrier);
}
inline void mbarrier_wait(shared_t, int offset, int parity) {
    detail::Mbarrier& barrier = detail::mbarrier_at(offset, "mbarrier_wait");
    while (barrier.phases % 2 == parity) detail::wait_at(barrier);
}
inline void async_fence() {}

// ---------------------------------------------------------------- bulk copies

namespace detail {

// Bits 4 to 6 of an address in shared memory change by the bits three above them, in as many as the mode has.
inline int swizzled(int address, int bits) { return address ^ (address >> 3 & ((1 << bits) - 1) << 4); }

inline int swizzle_bits(int bytes) { return bytes == 128 ? 3 : bytes == 64 ? 2 : bytes == 32 ? 1 : 0; }

// Goes on to the next of the places of windows, innermost dimension first, and behind them to the next image.
inline void next_pixel(const TensorMap& map, int* at) {
    for (int d = 0; d < map.rank - 2; at[1 + d] = map.lower[d], ++d)
        if ((at[1 + d] += map.steps[d]) <= map.lower[d] + (map.counts[d] - 1) * map.steps[d]) return;
    ++at[map.rank - 1];
}

// CELL(outside, inside) gets the addresses of each element of a column of pixels, as below. The offsets of the places
// follow the coordinates of the first pixel.
template <class Cell> void for_pixels(const BulkCopy& copy, Cell cell) {
    const TensorMap& map = copy.map;
    int at[5];
    memcpy(at, copy.at, sizeof at);
    for (int i = 0; i * map.item < copy.bytes; ++i) {
        if (i > 0 && i % map.box[0] == 0) next_pixel(map, at);
        char* outside = reinterpret_cast<char*>(map.base);
        bool inside = true;
        for (int d = 0; d < map.rank; ++d) {
            const bool place = 0 < d && d < map.rank - 1;
            const i64 x = i64(at[d]) + (d == 0 ? i % map.box[0] : place ? copy.at[map.rank + d - 1] : 0);
            inside = inside && x >= 0 && x < map.extents[d];
            outside += x * map.strides[d];
        }
        cell(inside ? outside : nullptr, copy.shared + swizzled(copy.offset + i * map.item, swizzle_bits(map.swizzle)));
    }
}

// CELL(outside, inside) gets the addresses of each element of the box, in the tensor (null: there is none) and in shared
// memory.
template <class Cell> void for_box(const BulkCopy& copy, Cell cell) {
    const TensorMap& map = copy.map;
    if (map.counts[0]) return for_pixels(copy, cell);
    for (int i = 0; i * map.item < copy.bytes; ++i) {
        char* outside = reinterpret_cast<char*>(map.base);
        bool inside = true;
        for (int d = 0, rest = i; d < map.rank; rest /= map.box[d++]) {
            const i64 x = i64(copy.at[d]) + rest % map.box[d];
            inside = inside && x >= 0 && x < map.extents[d];
            outside += x * map.strides[d];
        }
        cell(inside ? outside : nullptr, copy.shared + swizzled(copy.offset + i * map.item, swizzle_bits(map.swizzle)));
    }
}

inline void BulkCopy::load() const {
    const auto size = static_cast<size_t>(map.item);
    for_box(*this, [size](const char* from, char* to) {
        if (from) memcpy(to, from, size);
        else memset(to, 0, size);
    });
}

inline void store_box(const BulkCopy& copy) {
    const auto size = static_cast<size_t>(copy.map.item);
    for_box(copy, [size](char* to, const char* from) {
        if (to) memcpy(to, from, size);
    });
}

// UPDATE(address, value) for each element inside of the tensor.
template <class T, void (*UPDATE)(T*, i64, T)> void reduce_box(const BulkCopy& copy) {
    for_box(copy, [](char* to, const char* from) {
        T value;
        memcpy(&value, from, sizeof(T));
        if (to) UPDATE(reinterpret_cast<T*>(to), 0, value);
    });
}

inline void check_box(const char* what, const BulkCopy& copy, int rank) {
    const TensorMap& map = copy.map;
    const char* wrong = nullptr;
    const int places = map.counts[0] ? map.rank - 2 : 0;
    if (map.rank + places != rank) wrong = "the tensor map has another rank";
    else if (map.swizzle && map.box[0] * map.item != map.swizzle) wrong = "rows of the box are not as long as the swizzle";
    else if (copy.at[0] * map.item % 16) wrong = "the box begins at no multiple of 16 bytes of a row";
    else if (copy.offset % 128) wrong = "the address is no multiple of 128 bytes";
    else if (copy.offset < 0 || copy.offset + copy.bytes > self().block->shared_bytes)
        wrong = "the box is outside of the block's shared memory";
    if (!wrong) return;
    say(*self().block, "thread %d: %s: %s", self().thread, what, wrong);
    stop();
}

template <class... At> BulkCopy box(const char* what, shared_t smem, int offset, const TensorMap& map, At... at) {
    BulkCopy copy{map, {at...}, smem, offset, map.item};
    for (int d = 0; d < map.rank; ++d) copy.bytes *= map.box[d];
    check_box(what, copy, static_cast<int>(sizeof...(At)));
    return copy;
}

template <class T, class... At>
BulkCopy typed_box(const char* what, shared_t smem, int offset, const TensorMap& map, At... at) {
    const BulkCopy copy = box(what, smem, offset, map, at...);
    if (map.item == int(sizeof(T))) return copy;
    say(*self().block, "thread %d: %s: the tensor map's elements have another size", self().thread, what);
    stop();
}

inline void send(const BulkStore& store) { store.perform(store.copy); }

inline void issue(const BulkCopy& copy, void (*perform)(const BulkCopy&)) {
    const BulkStore store{copy, self().stores->group, perform};
#ifdef ARGUS_CPU_EAGER_COPIES
    send(store);
#else
    self().stores->push(store);
#endif
}

// Stores read shared memory as late as they may: at the wait that covers their group.
inline void finish_stores(unsigned pending) {
    Queue<BulkStore>& stores = *self().stores;
    while (stores.first < stores.size && stores.items[stores.first].group + pending < stores.group)
        send(stores.items[stores.first++]);
    if (stores.first == stores.size) stores.clear();
}

}  // namespace detail

inline void tma_prefetch(const TensorMap&) {}

template <class... At> void tma_load(shared_t smem, int offset, int barrier, const TensorMap& map, At... at) {
    if (lane_id() != 0) return;
    const detail::BulkCopy copy = detail::box("tma_load", smem, offset, map, at...);
    detail::Mbarrier& signal = detail::mbarrier_at(barrier, "tma_load");
#ifdef ARGUS_CPU_EAGER_COPIES
    copy.load();
    signal.bytes -= copy.bytes;
    detail::settle(signal);
#else
    signal.copies.push(copy);
#endif
}

template <class... At> void tma_load_im2col(shared_t smem, int offset, int barrier, const TensorMap& map, At... at) {
    tma_load(smem, offset, barrier, map, at...);
}

template <class... At> void tma_store(shared_t smem, int offset, const TensorMap& map, At... at) {
    detail::issue(detail::box("tma_store", smem, offset, map, at...), detail::store_box);
}
template <class T, class... At> void tma_reduce_add(shared_t smem, int offset, const TensorMap& map, At... at) {
    detail::issue(detail::typed_box<T>("tma_reduce_add", smem, offset, map, at...), detail::reduce_box<T, atomic_add<T>>);
}
template <class T, class... At> void tma_reduce_minimum(shared_t smem, int offset, const TensorMap& map, At... at) {
    detail::issue(detail::typed_box<T>("tma_reduce_minimum", smem, offset, map, at...),
                  detail::reduce_box<T, atomic_minimum<T>>);
}
template <class T, class... At> void tma_reduce_maximum(shared_t smem, int offset, const TensorMap& map, At... at) {
    detail::issue(detail::typed_box<T>("tma_reduce_maximum", smem, offset, map, at...),
                  detail::reduce_box<T, atomic_maximum<T>>);
}
inline void bulk_commit() { ++detail::self().stores->group; }
template <int PENDING> void bulk_wait() { detail::finish_stores(PENDING); }
template <int PENDING> void bulk_wait_read() { detail::finish_stores(PENDING); }

// ---------------------------------------------------------------- roles of warps

inline int uniform(int x) { return shuffle(x, 0); }
template <int N> void raise_registers() {}
template <int N> void lower_registers() {}
template <int THREADS> void role_barrier(int id) {
    detail::RoleBarrier& barrier = detail::self().block->role_barriers[id];
    const unsigned generation = barrier.generation;
    detail::arrive(barrier, id, THREADS);
    if (barrier.generation == generation) detail::wait_at(barrier);
}
template <int THREADS> void role_barrier_arrive(int id) {
    detail::arrive(detail::self().block->role_barriers[id], id, THREADS);
}

// ---------------------------------------------------------------- asynchronous products

// Start address / 16 in bits 0 to 13, bytes from one panel to the next / 16 from bit 16, bytes from 8 rows to the next
// / 16 from bit 32, swizzling mode from bit 62.
inline u64 matrix_descriptor(shared_t, int offset, int leading) {
    return u64(1) << 62 | u64(1024 / 16) << 32 | u64(leading >> 4) << 16 | static_cast<u64>(offset >> 4);
}
inline u64 narrow_descriptor(shared_t, int offset) {
    return u64(2) << 62 | u64(512 / 16) << 32 | u64(1) << 16 | static_cast<u64>(offset >> 4);
}
inline u64 descriptor_at(u64 descriptor, int units) {
    return (descriptor >> 32 << 32) | (static_cast<unsigned>(descriptor) + static_cast<unsigned>(units));
}

namespace detail {

// The operand that a descriptor describes, in rows as long as the swizzle is wide: along them goes k, or, if MAJOR is 1,
// m or n, from one panel of rows to the next.
struct Operand {
    int start, leading, stride, bits;

    explicit Operand(u64 descriptor)
        : start(static_cast<int>(descriptor & 0x3fff) << 4), leading(static_cast<int>(descriptor >> 16 & 0x3fff) << 4),
          stride(static_cast<int>(descriptor >> 32 & 0x3fff) << 4), bits(static_cast<int>(4 - (descriptor >> 62)) % 4) {
        if (bits != 0 && (descriptor >> 49 & 7) == 0) return;
        say(*self().block, "thread %d: wgmma: only swizzled operands without base offset are known here", self().thread);
        stop();
    }
    template <class T, int MAJOR> float at(int outer, int k) const {
        const int size = static_cast<int>(sizeof(T)), width = 16 << bits;
        const int row = MAJOR ? k : outer, column = MAJOR ? outer * size % width : k * size;
        const int panel = MAJOR ? outer * size / width * leading : 0;
        const int place = swizzled(start + panel + row / 8 * stride + row % 8 * width + column, bits);
        check_shared<size>(place, "wgmma");
        T x;
        memcpy(&x, self().block->shared + place, sizeof(T));
        return to_float(x);
    }
};

// MAJOR_A 2: each thread holds its part of the operand, as a lane of mma does, warp by warp along m.
template <class A, class B, int N, int MAJOR_A, int MAJOR_B> void warpgroup_product(const Product* const* threads) {
    constexpr int K = 32 / sizeof(A);
    const Operand b(threads[0]->b);
    float left[64][K], right[K][N];
    for (int k = 0; k < K; ++k)
        for (int n = 0; n < N; ++n) right[k][n] = b.at<B, MAJOR_B>(n, k);
    if constexpr (MAJOR_A == 2) {
        for (int t = 0; t < 128; ++t)
            for (int v = 0; v < K / 2; ++v) {
                const At p = Nvidia<4 / sizeof(A)>::a(t % 32, v);
                left[t / 32 * 16 + p.row][p.column] = to_float(static_cast<const A*>(threads[t]->registers)[v]);
            }
    } else {
        const Operand a(threads[0]->a);
        for (int m = 0; m < 64; ++m)
            for (int k = 0; k < K; ++k) left[m][k] = a.at<A, MAJOR_A>(m, k);
    }
    for (int m = 0; m < 64; ++m) {
        float sum[N] = {};
        for (int k = 0; k < K; ++k)
            for (int n = 0; n < N; ++n) sum[n] += left[m][k] * right[k][n];
        for (int n = 0; n < N; ++n) {
            // Row m is of warp m / 16, of its lanes from 4 * (m % 8) on; eight columns are two values of four lanes.
            const Product& mine = *threads[m / 16 * 32 + m % 8 * 4 + n % 8 / 2];
            float& d = mine.d[n / 8 * 4 + m % 16 / 8 * 2 + n % 2];
            d = mine.add ? d + sum[n] : sum[n];
        }
    }
}

// Computes the products of all groups of the warpgroup but the latest `pending`.
inline void warpgroup_products(const char* kind, unsigned pending) {
    Queue<Product>& own = *self().products;
    const unsigned end = own.group < pending ? 0 : own.group - pending;
    meet_warpgroup(kind, &own, [end](void** threads) {
        const auto of = [threads](int t) -> Queue<Product>& { return *static_cast<Queue<Product>*>(threads[t]); };
        for (; of(0).first < of(0).size && of(0).items[of(0).first].group < end; ++of(0).first) {
            const Product* all[128];
            for (int t = 127; t >= 0; --t) {
                Queue<Product>& queue = of(t);
                all[t] = &queue.items[queue.first];
                const bool same = queue.first < queue.size && all[t]->a == all[127]->a && all[t]->b == all[127]->b &&
                                  all[t]->add == all[127]->add && all[t]->perform == all[127]->perform &&
                                  all[t]->group == all[127]->group;
                if (!same) {
                    say(*self().block, "the threads of a warpgroup start different products");
                    stop();
                }
                if (t > 0) ++queue.first;
            }
            all[0]->perform(all);
        }
        for (int t = 0; t < 128; ++t)
            if (of(t).first == of(t).size) of(t).clear();
    });
}

inline void start_product(const Product& product) {
    Queue<Product>& own = *self().products;
    own.push(product);
    own.items[own.size - 1].group = own.group;
#ifdef ARGUS_CPU_EAGER_COPIES
    ++own.group;
    warpgroup_products("a product", 0);
#endif
}
template <class A, class B, int N, int MAJOR_A, int MAJOR_B> void start_product(float* d, u64 a, u64 b, bool add) {
    start_product({a, b, nullptr, d, add, warpgroup_product<A, B, N, MAJOR_A, MAJOR_B>, 0});
}
template <class A, class B, int N, int MAJOR_A, int MAJOR_B>
void start_product(float* d, const A* registers, u64 b, bool add) {
    start_product({0, b, registers, d, add, warpgroup_product<A, B, N, 2, MAJOR_B>, 0});
}

}  // namespace detail

inline void wgmma_fence() {}
inline void wgmma_commit() { ++detail::self().products->group; }
template <int PENDING> void wgmma_wait() { detail::warpgroup_products("wgmma_wait", PENDING); }
inline void wgmma_beside() {}
template <int N> void wgmma_forget(float (&d)[N]) {
    for (float& x : d) x = not_a_number<float>();
}
template <class T, int N> void wgmma_hold(T (&)[N]) {}

#define ARGUS_WGMMA_K(N, K)                                                                                      \
    template <class A, class B, int MAJOR_A, int MAJOR_B, class From>                                            \
    void wgmma_m64n##N##k##K(float* d, From a, u64 b, bool add) {                                                \
        static_assert(sizeof(A) * K == 32 && sizeof(B) * K == 32, "operands of another width");                  \
        detail::start_product<A, B, N, MAJOR_A, MAJOR_B>(d, a, b, add);                                          \
    }
#define ARGUS_WGMMA(N) ARGUS_WGMMA_K(N, 8) ARGUS_WGMMA_K(N, 16) ARGUS_WGMMA_K(N, 32)
#define ARGUS_WGMMAS(N0, N1, N2, N3) ARGUS_WGMMA(N0) ARGUS_WGMMA(N1) ARGUS_WGMMA(N2) ARGUS_WGMMA(N3)
ARGUS_WGMMAS(8, 16, 24, 32)
ARGUS_WGMMAS(40, 48, 56, 64)
ARGUS_WGMMAS(72, 80, 88, 96)
ARGUS_WGMMAS(104, 112, 120, 128)
ARGUS_WGMMAS(136, 144, 152, 160)
ARGUS_WGMMAS(168, 176, 184, 192)
ARGUS_WGMMAS(200, 208, 216, 224)
ARGUS_WGMMAS(232, 240, 248, 256)
#undef ARGUS_WGMMAS
#undef ARGUS_WGMMA
#undef ARGUS_WGMMA_K

}  // namespace argus
