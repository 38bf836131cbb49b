// What a device header's functions on memory touch: of each row of the instruction table its own bytes, where the mask
// leaves them, and no others. `check_NAME` is the check of function NAME; their calls stand where the marker is.
#include "model.h"

#include "header.h"

using namespace argus;
using model::global;
using model::Memory;

namespace {

constexpr int MIDDLE = 256;

void expect(bool right, const char* what) {
    if (!right) model::fail(what);
}
template <class T> T* tensor(int begin) { return reinterpret_cast<T*>(global.bytes + MIDDLE + begin); }
template <class T> T made(int seed) {
    unsigned char bytes[sizeof(T)];
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(detail::same<T, bool> ? seed & 1 : seed += 37);
    // tf32 is rounded where it comes to shared memory: the low bits are not a part of it.
    if (detail::same<T, tf32>) bytes[0] = bytes[1] = 0;
    T x;
    std::memcpy(&x, bytes, sizeof(T));
    return x;
}
template <class T> T zeros() {
    T x;
    std::memset(static_cast<void*>(&x), 0, sizeof x);
    return x;
}
template <int N, class T> struct Vector {
    alignas(16) T at[N];
    explicit Vector(int seed) {
        for (int i = 0; i < N; ++i) at[i] = made<T>(seed + i);
    }
    bool holds(const void* other) const { return std::memcmp(at, other, sizeof at) == 0; }
};

template <class F> void for_places(int step, F f) {
    for (int begin : {0, step, 16})
        for (int offset : {-2, 0, 3}) f(begin, static_cast<i64>(offset));
}

template <class F> void for_places_behind(int step, F f) {
    for_places(step, [&](int begin, i64 offset) {
        if (offset >= 0) f(begin, offset);
    });
}

// Runs F with memory as it is, and holds it against what it was: `count` bytes at `at` are those of `now`, all else stays.
template <class F> void changes(Memory& memory, const void* at, int count, const void* now, F f) {
    static unsigned char before[model::SIZE];
    std::memcpy(before, memory.bytes, model::SIZE);
    if (count) {
        std::memcpy(before + (static_cast<const unsigned char*>(at) - memory.bytes), now, count);
        memory.show(at, count, &Memory::writable);
    }
    f();
    expect(std::memcmp(before, memory.bytes, model::SIZE) == 0, "memory is not what it should be");
}

// ---- global memory

template <int N, class T> void check_load_global() {
    for_places(N * sizeof(T), [](int begin, i64 offset) {
        const T* base = tensor<T>(begin);
        global.fill();
        global.show(base + offset * N, N * sizeof(T), &Memory::readable);
        Vector<N, T> found(1);
        load_global<N>(base, offset * N, found.at);
        expect(found.holds(base + offset * N), "load_global");
    });
}
template <int N, class T> void check_load_global_if() {
    for_places(N * sizeof(T), [](int begin, i64 offset) {
        for (bool p : {false, true}) {
            const T* base = tensor<T>(begin);
            global.fill();
            if (p) global.show(base + offset * N, N * sizeof(T), &Memory::readable);
            Vector<N, T> found(1), kept(1);
            load_global_if<N>(p, base, offset * N, found.at);
            expect(found.holds(p ? static_cast<const void*>(base + offset * N) : kept.at), "load_global_if");
        }
    });
}
template <int N, class T> void check_load_global_or() {
    for_places(N * sizeof(T), [](int begin, i64 offset) {
        for (bool p : {false, true}) {
            const T* base = tensor<T>(begin);
            global.fill();
            if (p) global.show(base + offset * N, N * sizeof(T), &Memory::readable);
            Vector<N, T> found(1), other(0);
            for (T& x : other.at) x = made<T>(99);
            load_global_or<N>(p, base, offset * N, found.at, made<T>(99));
            expect(found.holds(p ? static_cast<const void*>(base + offset * N) : other.at), "load_global_or");
        }
    });
}
template <int N, class T> void check_store_global() {
    for_places(N * sizeof(T), [](int begin, i64 offset) {
        T* base = tensor<T>(begin);
        const Vector<N, T> from(7);
        global.fill();
        changes(global, base + offset * N, N * sizeof(T), from.at, [&] { store_global<N>(base, offset * N, from.at); });
    });
}
template <int N, class T> void check_store_global_if() {
    for_places(N * sizeof(T), [](int begin, i64 offset) {
        for (bool p : {false, true}) {
            T* base = tensor<T>(begin);
            const Vector<N, T> from(7);
            global.fill();
            changes(global, base + offset * N, p ? N * sizeof(T) : 0, from.at,
                    [&] { store_global_if<N>(p, base, offset * N, from.at); });
        }
    });
}

#ifdef __CUDA_ARCH__
// ---- vectors that a mask cuts, and those that begin anywhere

struct Cut {
    bool p;
    int place, start, end;
    bool has(int i) const { return p && start <= place + i && place + i < end; }
    bool whole(int n) const { return has(0) && has(n - 1); }
};
template <int N, class T, class F> void for_cuts(F f) {
    for (int begin : {0, static_cast<int>(sizeof(T)), 16 - static_cast<int>(sizeof(T))})
        for (int start : {-1, 0, 1, N - 1})
            for (int end : {start, start + 1, N - 1, N, N + 1, 2 * N + 1})
                for (int place : {-N, -1, 0, 1, N - 1, N})
                    for (bool p : {false, true}) {
                        const Cut cut{p, place, start, end};
                        global.fill();
                        for (int i = 0; i < N; ++i)
                            if (cut.has(i)) global.show(tensor<T>(begin) + place + i, sizeof(T), &Memory::readable);
                        f(cut, tensor<T>(begin), reinterpret_cast<std::uintptr_t>(tensor<T>(begin) + place) % (N * sizeof(T)) == 0);
                    }
}
// What is wanted of a load of all that the mask leaves; `other` elsewhere.
template <int N, class T> Vector<N, T> left(const Cut& cut, const T* base, T other) {
    Vector<N, T> wanted(0);
    for (int i = 0; i < N; ++i)
        if (cut.has(i)) std::memcpy(&wanted.at[i], base + cut.place + i, sizeof(T));
        else wanted.at[i] = other;
    return wanted;
}
template <int N, class T> void check_load_global_whole() {
    for_cuts<N, T>([](const Cut& cut, const T* base, bool aligned) {
        if (!aligned) return;
        Vector<N, T> found(1), ends(1);
        const T other = made<T>(99);
        const i64 offset = cut.place;
        load_global_whole<N>(cut.p, cut.place, cut.start, cut.end, base, offset, found.at, other);
        const auto none = left<N>(Cut{}, base, other);
        expect(found.holds(cut.whole(N) ? static_cast<const void*>(base + cut.place) : none.at), "load_global_whole");
        if (has_ends<N>(cut.p, cut.place, cut.start, cut.end)) {
            load_global_each<N>(cut.p, cut.place, cut.start, cut.end, base, offset, ends.at, other);
            put<N>(ends.at, found.at);
        }
        expect(found.holds(left<N>(cut, base, other).at), "has_ends, put");
    });
}
template <int N, class T> void check_load_global_each() {
    for_cuts<N, T>([](const Cut& cut, const T* base, bool) {
        Vector<N, T> found(1);
        load_global_each<N>(cut.p, cut.place, cut.start, cut.end, base, static_cast<i64>(cut.place), found.at, made<T>(99));
        expect(found.holds(left<N>(cut, base, made<T>(99)).at), "load_global_each");
    });
}
template <int N, class T> void check_store_global_cut() {
    for_cuts<N, T>([](const Cut& cut, T* base, bool) {
        const Vector<N, T> from(7);
        int first = 0, count = 0;
        for (int i = N - 1; i >= 0; --i)
            if (cut.has(i)) first = i, ++count;
        changes(global, base + cut.place + first, count * sizeof(T), from.at + first, [&] {
            store_global_cut<N>(cut.p, cut.place, cut.start, cut.end, base, static_cast<i64>(cut.place), from.at);
        });
    });
}
// Before the tensor, what shares a word of 16 bytes with the vector's first element may be read.
template <int N, class T> void check_load_words_amid() {
    for_cuts<N, T>([](Cut cut, const T* base, bool) {
        cut.start = cut.place;
        if (!is_amid<N>(cut.p, cut.place, cut.end)) return;
        global.hide();
        const T* from = base + cut.place;
        const int skip = static_cast<int>(reinterpret_cast<std::uintptr_t>(from) % 16);
        if (cut.p) global.show(reinterpret_cast<const char*>(from) - skip, skip + (cut.end - cut.place) * sizeof(T), &Memory::readable);
        Words words;
        Vector<N, T> found(1);
        load_words_amid<N>(cut.p, base, static_cast<i64>(cut.place), words);
        shift_into_place<N>(words, found.at);
        expect(found.holds(left<N>(cut, base, zeros<T>()).at), "load_words_amid");
    });
}
template <int N, class T> void check_load_words() {
    for_cuts<N, T>([](Cut cut, const T* base, bool) {
        cut.start = cut.place;
        global.hide();
        for (int i = 0; i < N; ++i)
            if (cut.has(i)) global.show(base + cut.place + i, sizeof(T), &Memory::readable);
        Words words;
        Vector<N, T> found(1);
        load_words<N>(cut.p, cut.place, cut.end, base, static_cast<i64>(cut.place), words);
        shift_into_place<N>(words, found.at);
        expect(found.holds(left<N>(cut, base, zeros<T>()).at), "load_words");
    });
}
#endif

// ---- shared memory, the block's own and a peer's

template <class F> void for_shared(int step, F f) {
    for (model::rank = 0; model::rank < 2; ++model::rank)
        for (int offset : {0, step, 16, model::SIZE - step}) {
            for (Memory& memory : model::shared) memory.fill();
            f(offset);
        }
    model::rank = 0;
}
template <int N, class T> void check_load_shared() {
    for_shared(N * sizeof(T), [](int offset) {
        Memory& own = model::shared[model::rank];
        own.show(own.bytes + offset, N * sizeof(T), &Memory::readable);
        Vector<N, T> found(1);
        load_shared<N>(model::SHARED, offset, found.at);
        expect(found.holds(own.bytes + offset), "load_shared");
    });
}
template <int N, class T> void check_store_shared() {
    for_shared(N * sizeof(T), [](int offset) {
        Memory& own = model::shared[model::rank];
        const Vector<N, T> from(7);
        changes(own, own.bytes + offset, N * sizeof(T), from.at, [&] { store_shared<N>(model::SHARED, offset, from.at); });
    });
}
#if __CUDA_ARCH__ >= 900
template <int N, class T> void check_load_peer() {
    for_shared(N * sizeof(T), [](int offset) {
        for (int block = 0; block < model::BLOCKS; ++block) {
            Memory& peer = model::shared[block];
            peer.hide();
            peer.show(peer.bytes + offset, N * sizeof(T), &Memory::readable);
            Vector<N, T> found(1);
            load_peer<N>(model::SHARED, offset, block, found.at);
            expect(found.holds(peer.bytes + offset), "load_peer");
            peer.hide();
        }
    });
}
template <int N, class T> void check_store_peer() {
    for_shared(N * sizeof(T), [](int offset) {
        for (int block = 0; block < model::BLOCKS; ++block) {
            Memory& peer = model::shared[block];
            const Vector<N, T> from(7 + block);
            changes(peer, peer.bytes + offset, N * sizeof(T), from.at,
                    [&] { store_peer<N>(model::SHARED, offset, block, from.at); });
            peer.hide();
        }
    });
}
#endif

#ifdef __CUDA_ARCH__
// ---- asynchronous copies

template <int BYTES, class T, class F> void copies(bool p, F f) {
    for (int from : {0, BYTES, 5 * BYTES})
        for_shared(BYTES, [&](int offset) {
            const T* base = tensor<T>(0);
            const i64 source = from / static_cast<int>(sizeof(T));
            Memory& own = model::shared[model::rank];
            global.fill();
            if (p) global.show(base + source, BYTES, &Memory::readable);
            const unsigned char zeros[BYTES] = {};
            changes(own, own.bytes + offset, BYTES, p ? static_cast<const void*>(base + source) : zeros,
                    [&] { f(offset, base, source); });
        });
}
template <int BYTES, class T> void check_cp_async() {
    copies<BYTES, T>(true, [](int offset, const T* base, i64 source) { cp_async<BYTES>(model::SHARED, offset, base, source); });
}
template <int BYTES, class T> void check_cp_async_or_zero() {
    for (bool p : {false, true})
        copies<BYTES, T>(p, [p](int offset, const T* base, i64 source) {
            cp_async_or_zero<BYTES>(model::SHARED, offset, base, source, p);
        });
}
void check_cp_async_commit() {
    const int before = model::committed;
    cp_async_commit();
    expect(model::committed == before + 1, "cp_async_commit");
}
void check_cp_async_wait() {
    cp_async_wait<0>();
    expect(model::waited == 0, "cp_async_wait");
    cp_async_wait<3>();
    expect(model::waited == 3, "cp_async_wait");
}

// ---- matrices: lane 8 * i + r addresses row r of matrix i, and other lanes' addresses do not matter

template <class T, class F> void matrices(int count, bool trans, bool load, F run) {
    Memory& own = model::shared[0];
    own.fill();
    alignas(16) unsigned char values[32][16], tile[4][8][16];
    for (auto& lane : values)
        for (unsigned char& byte : lane) byte = static_cast<unsigned char>(std::rand());
    const auto place = [](int row) { return row * 11 % 32 * 16; };
    for (int row = 0; row < 8 * count; ++row) {
        own.show(own.bytes + place(row), 16, load ? &Memory::readable : &Memory::writable);
        std::memcpy(tile[row / 8][row % 8], own.bytes + place(row), 16);
    }
    for (bool first : {true, false})
        for (model::lane = 0; model::lane < 32; ++model::lane) {
            model::gathering = first;
            run(model::lane < 8 * count ? place(model::lane) : 1 << 20, reinterpret_cast<T*>(values[model::lane]));
        }
    for (int lane = 0; lane < 32; ++lane)
        for (int m = 0; m < count; ++m)
            for (int half = 0; half < 2; ++half) {
                const int row = trans ? lane % 4 * 2 + half : lane / 4, column = trans ? lane / 4 : lane % 4 * 2 + half;
                const unsigned char* cell = load ? tile[m][row] + 2 * column : own.bytes + place(8 * m + row) + 2 * column;
                expect(std::memcmp(values[lane] + 4 * m + 2 * half, cell, 2) == 0, "a matrix");
            }
}
#define MATRIX(NAME, COUNT, TRANS, LOAD)                                                                         \
    template <class T> void check_##NAME() {                                                                     \
        matrices<T>(COUNT, TRANS, LOAD, [](int offset, T* values) { NAME(model::SHARED, offset, values); });     \
    }
MATRIX(ldmatrix_x1, 1, false, true)
MATRIX(ldmatrix_x2, 2, false, true)
MATRIX(ldmatrix_x4, 4, false, true)
MATRIX(ldmatrix_x1_trans, 1, true, true)
MATRIX(ldmatrix_x2_trans, 2, true, true)
MATRIX(ldmatrix_x4_trans, 4, true, true)
#if __CUDA_ARCH__ >= 900
MATRIX(stmatrix_x1, 1, false, false)
MATRIX(stmatrix_x2, 2, false, false)
MATRIX(stmatrix_x4, 4, false, false)
#endif
#else

// ---- loads to LDS of a wave: lane i's 4 bytes come 4 * i bytes after where lane 0 points

template <class T, class F> void waves(F run) {
    constexpr int each = 4 / sizeof(T);
    for (int offset : {0, 256, model::SIZE - 256}) {
        Memory& own = model::shared[0];
        own.fill();
        global.fill();
        for (model::lane = 0; model::lane < 64; ++model::lane) {
            const bool p = model::lane % 3 > 0;
            const T* base = tensor<T>(0);
            const i64 source = static_cast<i64>(model::lane * 7 % 64 * each);
            const unsigned char zero[4] = {};
            const bool reads = run(-1, base, source, p);
            if (reads) global.show(base + source, 4, &Memory::readable);
            changes(own, own.bytes + offset + 4 * model::lane, 4, reads ? static_cast<const void*>(base + source) : zero,
                    [&] { run(model::lane ? 12 : offset, base, source, p); });
            global.hide();
        }
        model::lane = 0;
    }
}
template <class T> void check_load_to_lds() {
    waves<T>([](int offset, const T* base, i64 source, bool) {
        if (offset >= 0) load_to_lds(model::SHARED, offset, base, source);
        return true;
    });
}
template <class T> void check_load_to_lds_or_zero() {
    waves<T>([](int offset, const T* base, i64 source, bool p) {
        if (offset >= 0) load_to_lds_or_zero(model::SHARED, offset, base, source, p);
        return p;
    });
}
template <class T> void check_load_near_to_lds() {
    waves<T>([](int offset, const T* base, i64 source, bool) {
        if (offset >= 0) load_near_to_lds(model::SHARED, offset, base, source);
        return true;
    });
}
template <class T> void check_load_near_to_lds_or_zero() {
    waves<T>([](int offset, const T* base, i64 source, bool p) {
        if (offset >= 0) load_near_to_lds_or_zero(model::SHARED, offset, base, source, p);
        return p;
    });
}
void check_wait_counts() {
    wait_counts<3, -1>();
    expect(model::waited == 3, "wait_counts");
    wait_counts<0, 0>();
    expect(model::waited == 0, "wait_counts");
}
#endif

// ---- updates

template <class T, class F> void updates(T (*wanted)(T, T), F run) {
    for (int begin : {0, 8, 24})
        for (T old : {T(-3), T(0), T(5)})
            for (T value : {T(-4), T(5), T(7)}) {
                T* base = tensor<T>(begin);
                global.fill();
                std::memcpy(base + 2, &old, sizeof old);
                global.show(base + 2, sizeof(T), &Memory::readable);
                const T now = wanted(old, value);
                changes(global, base + 2, sizeof(T), &now, [&] { run(base, static_cast<i64>(2), value); });
            }
}
#define UPDATE(NAME, WANTED)                                                                                     \
    template <class T> void check_##NAME() {                                                                     \
        updates<T>([](T x, T y) { return WANTED; }, [](T* base, i64 offset, T value) { NAME(base, offset, value); }); \
    }
UPDATE(atomic_add, T(x + y))
UPDATE(atomic_maximum, x > y ? x : y)
UPDATE(atomic_minimum, x < y ? x : y)

// ---- the copy engine: one lane gives the order, of the map, the tile, the mbarrier and the coordinates that it was given

#if __CUDA_ARCH__ >= 900
/// Expect that `give(rank, map)`, called by each lane, gives one order of `kind`, which ends with the words `rest(rank)`.
template <class Rest, class Give>
void orders_of_ranks(int first, const std::string& kind, bool one_lane, bool barrier, Rest rest, Give give) {
    static const TensorMap map{};
    const std::vector<int> at{7, -1, 5, 3, 2};
    for (int rank = first; rank <= 5; ++rank)
        for (threadIdx.x = 32; threadIdx.x < 64; ++threadIdx.x) {
            model::bulk.clear();
            give(rank, map);
            if (one_lane && threadIdx.x % 32) {
                expect(model::bulk.empty(), "more than one lane gives an order");
                continue;
            }
            expect(model::bulk.size() == 1, "no order is given");
            const model::Bulk& found = model::bulk[0];
            expect(found.name == std::string(kind).replace(kind.find("RANK"), 4, std::to_string(rank) + "d"), found.name.c_str());
            expect(found.tile == model::SHARED + 128 && found.map == reinterpret_cast<std::uintptr_t>(&map), "tile or map");
            expect(found.barrier == (barrier ? model::SHARED + 512 : 0), "mbarrier");
            expect(found.at == std::vector<int>(at.begin(), at.begin() + rank), "coordinates");
            expect(found.rest == rest(rank), "offsets, blocks or policy");
        }
    threadIdx.x = 0;
}
template <class F> void orders(const std::string& kind, bool one_lane, bool barrier, std::vector<std::uint64_t> rest, F run) {
    orders_of_ranks(2, kind, one_lane, barrier, [&](int) { return rest; }, [&](int rank, const TensorMap& map) {
        switch (rank) {
            case 2: return run(map, 7, -1);
            case 3: return run(map, 7, -1, 5);
            case 4: return run(map, 7, -1, 5, 3);
            default: return run(map, 7, -1, 5, 3, 2);
        }
    });
}
const std::string LOAD = "cp.async.bulk.tensor.RANK.shared::cluster.global.tile.mbarrier::complete_tx::bytes";
#define GIVES(...) [](const TensorMap& map, auto... at) { __VA_ARGS__(model::SHARED, 128, 512, map, at...); }
void check_tma_load() { orders(LOAD, true, true, {}, GIVES(tma_load)); }
void check_tma_load_im2col() {  // The coordinates of a column are followed by the offsets of its place.
    const std::vector<std::uint64_t> offsets{1, 2, 4};
    const auto rest = [&](int rank) { return std::vector<std::uint64_t>(offsets.begin(), offsets.begin() + rank - 2); };
    orders_of_ranks(3, "cp.async.bulk.tensor.RANK.shared::cluster.global.im2col.mbarrier::complete_tx::bytes", true, true, rest,
                    [](int rank, const TensorMap& map) {
        switch (rank) {
            case 3: return tma_load_im2col(model::SHARED, 128, 512, map, 7, -1, 5, 1);
            case 4: return tma_load_im2col(model::SHARED, 128, 512, map, 7, -1, 5, 3, 1, 2);
            default: return tma_load_im2col(model::SHARED, 128, 512, map, 7, -1, 5, 3, 2, 1, 2, 4);
        }
    });
}
void check_tma_load_once() { orders(LOAD + ".L2::cache_hint", true, true, {1}, GIVES(tma_load_once)); }
void check_tma_load_multicast() {
    orders(LOAD + ".multicast::cluster", true, true, {15}, GIVES(tma_load_multicast<4>));
    model::rank = 1;  // of 2 x 2 blocks the two that have the number's lowest digit
    orders(LOAD + ".multicast::cluster", true, true, {10}, GIVES(tma_load_multicast<2, 2>));
    model::rank = 0;
}
void check_tma_load_once_multicast() {
    orders(LOAD + ".multicast::cluster.L2::cache_hint", true, true, {3, 1}, GIVES(tma_load_once_multicast<2>));
}
#define STORES(...) [](const TensorMap& map, auto... at) { __VA_ARGS__(model::SHARED, 128, map, at...); }
void check_tma_store() {
    orders("cp.async.bulk.tensor.RANK.global.shared::cta.tile.bulk_group", false, false, {}, STORES(tma_store));
}
#define REDUCTION(NAME, OP)                                                                                      \
    template <class T> void check_tma_reduce_##NAME() {                                                          \
        orders("cp.reduce.async.bulk.tensor.RANK.global.shared::cta." OP ".tile.bulk_group", false, false, {},   \
               STORES(tma_reduce_##NAME<T>));                                                                    \
    }
REDUCTION(add, "add")
REDUCTION(minimum, "min")
REDUCTION(maximum, "max")
#endif

}  // namespace

int main() {
// CALLS
}
