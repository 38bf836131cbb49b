// The device library on a host: the text for any target runs through it, with the target's warp size.
#pragma once

#include "scalar.h"

#include "fibers.h"

#include "matrix.h"

#define ARGUS_RESTRICT __restrict__
#define ARGUS_GRID_CONSTANT
#define ARGUS_KERNEL(name, threads) extern "C" void name
#define ARGUS_ROLES_KERNEL(name, threads) ARGUS_KERNEL(name, threads)
#define ARGUS_SHARED(smem, bytes) const argus::shared_t smem = argus::detail::self().block->shared

namespace argus {

using shared_t = char*;

template <class... A> void print(const char* format, A... values) {
    printf(format, values...);
    fflush(stdout);
}
template <class... A> [[noreturn]] void fail(const char* format, A... values) {
    detail::Block& block = *detail::self().block;
    block.asserted = true;
    detail::say(block, format, values...);
    detail::stop();
}
inline void launch_dependents() {}  // launches run one after the other
inline void begin() {}
inline int thread_id() { return detail::self().thread; }
template <int AXIS> int block_id() { return detail::self().block->index[AXIS]; }
inline void anew(int&) {}
inline int next_program(int program) {
    return detail::next_program(program, block_id<0>(), detail::self().block->blocks);
}
template <int GROUP> BlockIds grouped_block_ids(int rows, int columns) {
    return detail::grouped(GROUP, {block_id<0>(), block_id<1>()}, rows, columns);
}
inline int lane_id() { return thread_id() % ARGUS_WARP_SIZE; }

namespace detail {

template <int BYTES> void check_aligned(const void* address, const char* what) {
    if (reinterpret_cast<uintptr_t>(address) % BYTES == 0) return;
    Fiber& fiber = self();
    say(*fiber.block, "thread %d: %s: the address is no multiple of %d bytes", fiber.thread, what, BYTES);
    stop();
}

template <int BYTES> void check_shared(int offset, const char* what) {
    Fiber& fiber = self();
    const int size = fiber.block->shared_bytes;
    if (offset >= 0 && offset + BYTES <= size) return;
    say(*fiber.block, "thread %d: %s: byte %d is outside of the block's %d bytes of shared memory", fiber.thread, what,
        offset, size);
    stop();
}

template <int BYTES> void move(void* to, const void* from) { memcpy(to, from, BYTES); }

}  // namespace detail

template <int N, class T> void narrow(const float* from, T* to) {
    for (int i = 0; i < N; ++i) to[i] = cast<T>(from[i]);
}
template <int N, class T> void narrow_moderate(const float* from, T* to) { narrow<N>(from, to); }
template <int N, class From, class To> void widen(const From* from, To* to) {
    for (int i = 0; i < N; ++i) to[i] = cast<To>(from[i]);
}
template <int N, class From, class To> void halve(const From* from, To* to) {
    for (int i = 0; i < N; ++i) to[i] = cast<To>(cast<float>(from[i]) * 0.5f);
}
template <int MOST, class T> void fractions(unsigned word, int place, T less, T* to) {
    constexpr float unit = detail::same<T, f16> ? 1.0f / 512 : 1.0f / 64;
    for (int i = 0; i < 2; ++i)
        to[i] = cast<T>(static_cast<float>(word >> (place + i * 16) & MOST) * unit - cast<float>(less));
}
inline int place(int own, int same) { return own + same; }
template <int N> float maximum_of(float x, const float* values) {
    for (int i = 0; i < N; ++i) x = maximum(x, values[i]);
    return x;
}
template <int N> void add_products(float* sums, const float* left, const float* right) {
    for (int i = 0; i < N; ++i) sums[i] += left[i] * right[i];
}
template <int N> float minimum_of(float x, const float* values) {
    for (int i = 0; i < N; ++i) x = minimum(x, values[i]);
    return x;
}
template <int N> float sum_of(float x, const float* values) {
    for (int i = 0; i < N; ++i) x += values[i];
    return x;
}

// ---------------------------------------------------------------- memory

template <int N, class T> void load_global(const T* base, i64 offset, T* dst) {
    detail::check_aligned<N * sizeof(T)>(base + offset, "load_global");
    detail::move<N * sizeof(T)>(dst, base + offset);
}
template <int N, class T> void load_global_if(bool p, const T* base, i64 offset, T* dst) {
    if (p) load_global<N>(base, offset, dst);
}
template <int N, class T> void load_global_or(bool p, const T* base, i64 offset, T* dst, T other) {
    if (p) load_global<N>(base, offset, dst);
    else for (int i = 0; i < N; ++i) dst[i] = other;
}
template <int N> bool is_amid(bool p, int at, int end) { return !p || (at < end && i64(end) - at >= 2 * N); }
struct Words {
    unsigned char bytes[16];
};
template <int N, class T> void load_words(bool p, int at, int end, const T* base, i64 offset, Words& to) {
    memset(to.bytes, 0, 16);
    for (int i = 0; i < N; ++i)
        if (p && at + static_cast<i64>(i) < end) memcpy(&to.bytes[i * sizeof(T)], &base[offset + i], sizeof(T));
}
template <int N, class T> void load_words_amid(bool p, const T* base, i64 offset, Words& to) {
    load_words<N>(p, 0, N, base, offset, to);
}
template <int N, class T> void shift_into_place(const Words& from, T* dst) { memcpy(dst, from.bytes, 16); }
template <int N, class T> void store_global(T* base, i64 offset, const T* src) {
    detail::check_aligned<N * sizeof(T)>(base + offset, "store_global");
    detail::move<N * sizeof(T)>(base + offset, src);
}
template <int N, class T> void store_global_if(bool p, T* base, i64 offset, const T* src) {
    if (p) store_global<N>(base, offset, src);
}
template <int N, class T> bool is_aligned(const T* base, i64 offset) {
    return reinterpret_cast<unsigned long long>(base + offset) % (N * sizeof(T)) == 0;
}
namespace detail {
template <int N> bool is_whole(bool p, int at, int start, int end) { return p && start <= at && at + (N - 1) < end; }
}  // namespace detail
template <int N> bool has_ends(bool p, int at, int start, int end) {
    return p && at < end && start <= at + (N - 1) && !detail::is_whole<N>(p, at, start, end);
}
template <int N, class T>
void load_global_each(bool p, int at, int start, int end, const T* base, i64 offset, T* dst, T other) {
    for (int i = 0; i < N; ++i) dst[i] = detail::is_whole<1>(p, at + i, start, end) ? base[offset + i] : other;
}
template <int N, class T>
void load_global_whole(bool p, int at, int start, int end, const T* base, i64 offset, T* dst, T other) {
    load_global_or<N>(detail::is_whole<N>(p, at, start, end), base, offset, dst, other);
}
template <int N, class T> void put(const T* src, T* dst) { memcpy(dst, src, N * sizeof(T)); }
template <int N, class T>
void store_global_cut(bool p, int at, int start, int end, T* base, i64 offset, const T* src) {
    for (int i = 0; i < N; ++i)
        if (detail::is_whole<1>(p, at + i, start, end)) base[offset + i] = src[i];
}
template <int N, class T> void load_shared(shared_t smem, int offset, T* dst) {
    detail::check_shared<N * sizeof(T)>(offset, "load_shared");
    detail::check_aligned<N * sizeof(T)>(smem + offset, "load_shared");
    detail::move<N * sizeof(T)>(dst, smem + offset);
}
template <int N, class T> void store_shared(shared_t smem, int offset, const T* src) {
    detail::check_shared<N * sizeof(T)>(offset, "store_shared");
    detail::check_aligned<N * sizeof(T)>(smem + offset, "store_shared");
    detail::move<N * sizeof(T)>(smem + offset, src);
}

// ---------------------------------------------------------------- cp.async: as late as its wait allows

namespace detail {

inline void perform(const PendingCopy& copy) {
    if (copy.from) memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
    else memset(copy.to, 0, static_cast<size_t>(copy.bytes));
}

template <int BYTES> void start_copy(shared_t smem, int offset, const void* from) {
    check_shared<BYTES>(offset, "cp_async");
    check_aligned<BYTES>(smem + offset, "cp_async");
    check_aligned<BYTES>(from, "cp_async");
    const PendingCopy copy{smem + offset, static_cast<const char*>(from), BYTES, self().copies->group};
#ifdef ARGUS_CPU_EAGER_COPIES
    perform(copy);
#else
    self().copies->push(copy);
#endif
}

}  // namespace detail

template <int BYTES, class T> void cp_async(shared_t smem, int offset, const T* base, i64 source) {
    detail::start_copy<BYTES>(smem, offset, base + source);
}
template <int BYTES, class T> void cp_async_or_zero(shared_t smem, int offset, const T* base, i64 source, bool p) {
    detail::start_copy<BYTES>(smem, offset, p ? base + source : nullptr);
}
inline void cp_async_commit() { ++detail::self().copies->group; }
template <int PENDING> void cp_async_wait() {
    detail::CopyQueue& copies = *detail::self().copies;
    while (copies.first < copies.size && copies.items[copies.first].group + PENDING < copies.group)
        detail::perform(copies.items[copies.first++]);
    if (copies.first == copies.size) copies.first = copies.size = 0;
}

// ---------------------------------------------------------------- block and warp

inline void barrier() {
    detail::Block& block = *detail::self().block;
    detail::meet(block.barrier, 0, block.threads, "a barrier", nullptr, [](void**) {});
}

namespace detail {

template <class T> struct Exchange { const T* value; T* result; int lane; };

template <class T> T exchange(const char* kind, T value, int lane) {
    T result{};
    Exchange<T> mine{&value, &result, lane & (ARGUS_WARP_SIZE - 1)};
    meet_warp(kind, &mine, [](void** lanes) {
        for (int i = 0; i < ARGUS_WARP_SIZE; ++i) {
            auto* to = static_cast<Exchange<T>*>(lanes[i]);
            *to->result = *static_cast<Exchange<T>*>(lanes[to->lane])->value;
        }
    });
    return result;
}

struct MatrixRow { char* row; char* values; };

// Moves between rows of 16 bytes in shared memory and 4 bytes a lane and matrix. FUNCTION(cell, register, bytes).
template <int COUNT, bool TRANS, class Move>
void matrix_rows(const char* kind, shared_t smem, int offset, void* values, Move move_one) {
    check_shared<16>(offset, kind);
    check_aligned<16>(smem + offset, kind);
    MatrixRow mine{smem + offset, static_cast<char*>(values)};
    meet_warp(kind, &mine, [move_one](void** lanes) {
        for (int lane = 0; lane < 32; ++lane)
            for (int matrix = 0; matrix < COUNT; ++matrix) {
                auto row = [&](int r) { return static_cast<MatrixRow*>(lanes[8 * matrix + r])->row; };
                char* to = static_cast<MatrixRow*>(lanes[lane])->values + 4 * matrix;
                if (TRANS) {
                    move_one(row(2 * (lane % 4)) + 2 * (lane / 4), to, 2);
                    move_one(row(2 * (lane % 4) + 1) + 2 * (lane / 4), to + 2, 2);
                } else {
                    move_one(row(lane / 4) + 4 * (lane % 4), to, 4);
                }
            }
    });
}

template <int COUNT, bool TRANS, class T> void ldmatrix(const char* kind, shared_t smem, int offset, T* dst) {
    matrix_rows<COUNT, TRANS>(kind, smem, offset, dst, [](const char* cell, char* to, int bytes) {
        memcpy(to, cell, static_cast<size_t>(bytes));
    });
}
template <int COUNT, class T> void stmatrix(const char* kind, shared_t smem, int offset, const T* src) {
    matrix_rows<COUNT, false>(kind, smem, offset, const_cast<T*>(src), [](char* cell, const char* from, int bytes) {
        memcpy(cell, from, static_cast<size_t>(bytes));
    });
}

}  // namespace detail

template <class T> T shuffle(T value, int lane) { return detail::exchange("shuffle", value, lane); }
template <class T> T shuffle_xor(T value, int mask) {
    return detail::exchange("shuffle_xor", value, lane_id() ^ mask);
}

// ---------------------------------------------------------------- loads to LDS: as late as their wait allows

namespace detail {
// The hardware has one address for the wave, that of lane 0, and counts each load.
inline void load_to_lds(shared_t smem, int offset, const void* from) {
    start_copy<4>(smem, exchange("load_to_lds", offset, 0) + 4 * lane_id(), from);
    ++self().copies->group;
}
}  // namespace detail

template <class T> void load_to_lds(shared_t smem, int offset, const T* base, i64 source) {
    detail::load_to_lds(smem, offset, base + source);
}
template <class T> void load_to_lds_or_zero(shared_t smem, int offset, const T* base, i64 source, bool p) {
    detail::load_to_lds(smem, offset, p ? base + source : nullptr);
}
template <int VM, int LGKM> void wait_counts() {
    if constexpr (VM >= 0) cp_async_wait<VM>();
}
inline void wave_barrier() { barrier(); }
template <int FIRST> void wave_barrier_from() {
    if (thread_id() >= FIRST) wave_barrier();
}
template <int FIRST> void wave_barrier_below() {
    if (thread_id() < FIRST) wave_barrier();
}
template <int LEVEL> void wave_priority() {}
template <int MASK, int SIZE, int SYNC> void sched_group() {}
template <int MASK> void sched_kinds() {}

#define ARGUS_LDMATRIX(name, count, trans)                                                                       \
    template <class T> void name(shared_t smem, int offset, T* dst) {                                            \
        detail::ldmatrix<count, trans>(#name, smem, offset, dst);                                                \
    }
ARGUS_LDMATRIX(ldmatrix_x1, 1, false)
ARGUS_LDMATRIX(ldmatrix_x2, 2, false)
ARGUS_LDMATRIX(ldmatrix_x4, 4, false)
ARGUS_LDMATRIX(ldmatrix_x1_trans, 1, true)
ARGUS_LDMATRIX(ldmatrix_x2_trans, 2, true)
ARGUS_LDMATRIX(ldmatrix_x4_trans, 4, true)
#undef ARGUS_LDMATRIX
template <class T> void stmatrix_x1(shared_t smem, int offset, const T* src) {
    detail::stmatrix<1>("stmatrix_x1", smem, offset, src);
}
template <class T> void stmatrix_x2(shared_t smem, int offset, const T* src) {
    detail::stmatrix<2>("stmatrix_x2", smem, offset, src);
}
template <class T> void stmatrix_x4(shared_t smem, int offset, const T* src) {
    detail::stmatrix<4>("stmatrix_x4", smem, offset, src);
}

// ---------------------------------------------------------------- atomics

namespace detail {
template <class T, class F> void atomically(T* address, F change) {
    check_aligned<sizeof(T)>(address, "atomic");
    T old, changed;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    do changed = change(old);
    while (!__atomic_compare_exchange(address, &old, &changed, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
}  // namespace detail

template <class T> void atomic_add(T* base, i64 offset, T value) {
    detail::atomically(base + offset, [=](T old) { return T(old + value); });
}
template <class T> void atomic_maximum(T* base, i64 offset, T value) {
    detail::atomically(base + offset, [=](T old) { return maximum(old, value); });
}
template <class T> void atomic_minimum(T* base, i64 offset, T value) {
    detail::atomically(base + offset, [=](T old) { return minimum(old, value); });
}

}  // namespace argus

#include "hopper.h"

namespace argus {

// ---------------------------------------------------------------- entry

namespace detail {
template <int... I> struct Indices {};
template <int N, int... I> struct Counted : Counted<N - 1, N - 1, I...> {};
template <int... I> struct Counted<0, I...> { using type = Indices<I...>; };

template <class... A, int... I> void call(void (*kernel)(A...), void** arguments, Indices<I...>) {
    kernel(*static_cast<A*>(arguments[I])...);
}
template <class... A> void call(void (*kernel)(A...), void** arguments) {
    call(kernel, arguments, typename Counted<sizeof...(A)>::type());
}
}  // namespace detail

}  // namespace argus

// What the loader calls: the arguments are pointers to values, as a CUDA launch takes them.
#define ARGUS_CPU_EXPORT(name)                                                                                   \
    extern "C" int argus_cpu_launch(void** arguments, const int* grid, int threads, int shared_bytes,            \
                                    int workers, char* message, int message_bytes) {                             \
        return argus::detail::launch([](void** values) { argus::detail::call(name, values); }, arguments, grid,  \
                                     threads, shared_bytes, workers, message, message_bytes);                    \
    }
