// Unaligned loads of the CUDA header on the host: every beginning, length and place, beside a loop over elements.
// The header's text stands where the marker is. Nothing is read behind the end; before the beginning only what shares
// an aligned word of 16 bytes with the first element. Of vectors that a mask cuts, nothing but what it leaves.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define ARGUS_FN
using i64 = long long;
struct uint4 {
    unsigned x, y, z, w;
};
uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// CUDA programming guide, integer intrinsics.
unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>(((static_cast<std::uint64_t>(high) << 32) | low) >> (shift & 31));
}

const char *first, *last;  // what there is to be read
bool exact;                // whether nothing before it may be

template <int N, class T> void load_global_if(bool p, const T* base, i64 offset, T* dst) {
    if (!p) return;
    const char* from = reinterpret_cast<const char*>(base + offset);
    const int bytes = N * static_cast<int>(sizeof(T));
    if (reinterpret_cast<std::uintptr_t>(from) % bytes || (exact ? from < first : from + bytes <= first) || from + bytes > last) {
        std::puts("a word is read that is not there");
        std::exit(1);
    }
    std::memcpy(dst, from, bytes);
}
template <int N, class T> void load_global_or(bool p, const T* base, i64 offset, T* dst, T other) {
    for (int i = 0; i < N; ++i) dst[i] = other;
    load_global_if<N>(p, base, offset, dst);
}
template <int N, class T> void store_global_if(bool p, T* base, i64 offset, const T* src) {
    if (!p) return;
    if (reinterpret_cast<std::uintptr_t>(base + offset) % (N * sizeof(T))) {
        std::puts("a store is not aligned");
        std::exit(1);
    }
    std::memcpy(base + offset, src, N * sizeof(T));
}
template <int N, class T> void store_global(T* base, i64 offset, const T* src) {
    store_global_if<N>(true, base, offset, src);
}
namespace target {
template <class T> std::uintptr_t global_address(const T* p) { return reinterpret_cast<std::uintptr_t>(p); }
template <int N, class T> uint4& at(T* p) { return *reinterpret_cast<uint4*>(p); }
}  // namespace target

// HEADER

template <class T, int N> void check() {
    alignas(64) static unsigned char raw[512];
    for (unsigned char& byte : raw) byte = static_cast<unsigned char>(std::rand());
    for (int begin = 0; begin < 32; begin += sizeof(T))
        for (int length = 0; length <= 3 * N; ++length)
            for (int place = 0; place < length + 3; ++place)
                for (int p = 0; p < 2; ++p) {
                    const T* base = reinterpret_cast<const T*>(raw + 64 + begin);
                    first = reinterpret_cast<const char*>(base);
                    last = reinterpret_cast<const char*>(base + length);
                    alignas(16) T found[N];
                    std::memset(found, 0xaa, sizeof found);
                    Words words;
                    if (is_amid<N>(p, place, length)) load_words_amid<N>(p, base, static_cast<i64>(place), words);
                    else load_words<N>(p, place, length, base, static_cast<i64>(place), words);
                    shift_into_place<N>(words, found);
                    for (int i = 0; i < N; ++i) {
                        T wanted = 0;
                        if (p && place + i < length) std::memcpy(&wanted, base + place + i, sizeof wanted);
                        if (std::memcmp(&wanted, &found[i], sizeof wanted)) {
                            std::printf("begin %d length %d place %d element %d\n", begin, length, place, i);
                            std::exit(1);
                        }
                    }
                }
}

template <class T, int N> void check_cut() {
    alignas(64) static unsigned char raw[512], made[512];
    const T other = static_cast<T>(0xa5);
    for (unsigned char& byte : raw) byte = static_cast<unsigned char>(std::rand());
    for (int begin = 0; begin < 32; begin += sizeof(T))
        for (int start = -1; start <= N; ++start)
            for (int end = start; end <= 3 * N; ++end)
                for (int place = -N; place < end + 3; ++place)
                    for (int p = 0; p < 2; ++p) {
                        const auto inside = [&](int i) { return p && start <= place + i && place + i < end; };
                        const T* base = reinterpret_cast<const T*>(raw + 128 + begin);
                        first = reinterpret_cast<const char*>(base + start);
                        last = reinterpret_cast<const char*>(base + end);
                        alignas(16) T found[N];
                        T ends[N];
                        std::memset(found, 0, sizeof found);
                        const i64 offset = place;
                        if (is_aligned<N>(base, offset)) {
                            load_global_whole<N>(p, place, start, end, base, offset, found, other);
                            if (has_ends<N>(p, place, start, end)) {
                                load_global_each<N>(p, place, start, end, base, offset, ends, other);
                                put<N>(ends, found);
                            }
                        } else {
                            load_global_each<N>(p, place, start, end, base, offset, found, other);
                        }
                        std::memset(made, 0x3c, sizeof made);
                        store_global_cut<N>(p, place, start, end, reinterpret_cast<T*>(made + 128 + begin), offset, found);
                        for (int i = -N; i < 2 * N; ++i) {
                            T wanted = other, written, kept;
                            const bool in = i >= 0 && i < N && inside(i);
                            if (in) std::memcpy(&wanted, base + place + i, sizeof wanted);
                            std::memset(&kept, 0x3c, sizeof kept);
                            std::memcpy(&written, made + 128 + begin + (place + i) * static_cast<int>(sizeof(T)), sizeof written);
                            if ((i >= 0 && i < N && wanted != found[i]) || written != (in ? wanted : kept)) {
                                std::printf("begin %d of %d to %d, place %d element %d\n", begin, start, end, place, i);
                                std::exit(1);
                            }
                        }
                    }
}

int main() {
    exact = true;
    check_cut<std::uint8_t, 16>();
    check_cut<std::uint16_t, 8>();
    check_cut<std::uint32_t, 4>();
    exact = false;
    check<std::uint8_t, 16>();
    check<std::uint16_t, 8>();
    check<std::uint32_t, 4>();
}
