// A machine for device headers on the host: memory of which each byte is there or not, and the instructions on memory of
// their assembly, whose statements are calls of `ptx` here. Documents: PTX ISA 9.0; CDNA3 ISA reference guide.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#define __device__
#define __forceinline__ inline
#define __restrict__
#define __grid_constant__

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
struct Index { unsigned x, y, z; };
inline Index threadIdx, blockIdx, gridDim;

inline unsigned __float_as_uint(float x) { unsigned bits; std::memcpy(&bits, &x, 4); return bits; }
inline float __uint_as_float(unsigned bits) { float x; std::memcpy(&x, &bits, 4); return x; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
// CUDA programming guide, integer intrinsics.
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>(((static_cast<std::uint64_t>(high) << 32) | low) >> (shift & 31));
}
// PTX ISA, prmt: each nibble of `chosen` is the number of a byte of the pair {b, a}.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned chosen) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= static_cast<unsigned>(bytes >> 8 * (chosen >> 4 * i & 7) & 255) << 8 * i;
    return result;
}
inline void __syncwarp() {}
inline void __assertfail(const char*, const char*, unsigned, const char*, std::size_t) { std::abort(); }
template <class T> T __shfl_sync(unsigned, T value, int) { return value; }
template <class T> T __shfl_xor_sync(unsigned, T value, int) { return value; }

namespace model {

inline const char* checking = "";  // what is being checked

[[noreturn]] inline void fail(const std::string& what) {
    std::printf("%s: %s\n", checking, what.c_str());
    std::exit(1);
}

// ---- memory: a tensor's, and the shared one of each block of a cluster

constexpr int SIZE = 1024, BLOCKS = 4;
struct Memory {
    alignas(64) unsigned char bytes[SIZE];
    bool readable[SIZE], writable[SIZE], written[SIZE];

    void hide() {
        for (int i = 0; i < SIZE; ++i) readable[i] = writable[i] = written[i] = false;
    }
    void fill() {
        for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(std::rand());
        hide();
    }
    void show(const void* from, int count, bool (Memory::*what)[SIZE]) {
        const auto at = static_cast<const unsigned char*>(from) - bytes;
        for (int i = 0; i < count; ++i) (this->*what)[at + i] = true;
    }
};
inline Memory global, shared[BLOCKS];
constexpr unsigned SHARED = 256;  // where the block's own shared memory begins in its window
constexpr int WINDOW = 24;        // address bits of one block's window
inline unsigned rank;             // of the block in its cluster

inline Memory& place(const std::string& space, std::uint64_t address, int count, std::uint64_t& at) {
    if (address % count) fail("an address is no multiple of " + std::to_string(count) + " bytes");
    Memory& memory = space == "global" ? global : shared[space == "shared" ? rank : address >> WINDOW];
    at = space == "global" ? address - reinterpret_cast<std::uintptr_t>(global.bytes)
                           : (address & ((1u << WINDOW) - 1)) - SHARED;
    if (at > static_cast<std::uint64_t>(SIZE - count)) fail("an address is nowhere near the " + space + " memory");
    return memory;
}
inline void read(const std::string& space, std::uint64_t address, int count, void* to) {
    std::uint64_t at;
    Memory& memory = place(space, address, count, at);
    for (int i = 0; i < count; ++i)
        if (!memory.readable[at + i]) fail("a byte is read that is not there");
    std::memcpy(to, memory.bytes + at, count);
}
inline void write(const std::string& space, std::uint64_t address, int count, const void* from) {
    std::uint64_t at;
    Memory& memory = place(space, address, count, at);
    for (int i = 0; i < count; ++i) {
        if (!memory.writable[at + i]) fail("a byte is written that is not there");
        memory.written[at + i] = true;
    }
    std::memcpy(memory.bytes + at, from, count);
}

// ---- instructions

struct Operand {
    void* out;
    std::uint64_t in;
    int bytes;
    std::uint64_t more = 0; // of an operand of 16 bytes: the last 8
};
template <class T> Operand out(T& x) {
    Operand operand{&x, 0, sizeof(T)};
    std::memcpy(&operand.in, &x, sizeof(T));
    return operand;
}
template <class T> Operand in(T x) {
    Operand operand{nullptr, 0, sizeof(T)};
    std::memcpy(&operand.in, &x, std::min<std::size_t>(sizeof(T), 8));
    if (sizeof(T) > 8) std::memcpy(&operand.more, reinterpret_cast<const char*>(&x) + 8, sizeof(T) - 8);
    return operand;
}
using Operands = std::vector<Operand>;

struct Instruction {
    std::vector<std::string> name;       // parts of the opcode
    std::vector<std::string> arguments;  // as written, without blanks

    bool has(const char* part) const {
        for (const std::string& p : name)
            if (p == part) return true;
        return false;
    }
};

inline Instruction parse(const std::string& text) {
    Instruction found;
    const std::size_t blank = text.find(' ');
    std::string part;
    for (const char c : text.substr(0, blank) + ".")
        if (c == '.') { found.name.push_back(part); part.clear(); }
        else part += c;
    int depth = 0;
    for (const char c : (blank == std::string::npos ? "" : text.substr(blank)) + ",") {
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (c == ',' && depth == 0) { found.arguments.push_back(part); part.clear(); }
        else if (c != ' ') part += c;
    }
    return found;
}

// The numbers of the operands in an argument, or none if it has none.
inline std::vector<int> numbers(const std::string& argument) {
    std::vector<int> found;
    for (std::size_t i = argument.find('%'); i != std::string::npos; i = argument.find('%', i + 1))
        found.push_back(std::atoi(argument.c_str() + i + 1));
    return found;
}
inline std::uint64_t value(const std::string& argument, const Operands& operands) {
    const std::vector<int> at = numbers(argument);
    return at.empty() ? std::strtoull(argument.c_str(), nullptr, 10) : operands.at(at[0]).in;
}
inline int element(const Instruction& i) {
    const std::string& type = i.name.back();
    return std::atoi(type.c_str() + 1) / 8;
}
inline const char* space(const Instruction& i) {
    return i.has("global") ? "global" : i.has("shared::cluster") ? "shared::cluster" : "shared";
}

inline void move(const Instruction& i, const Operands& operands, bool load) {
    const std::vector<int> registers = numbers(i.arguments[load ? 0 : 1]);
    const int size = element(i), count = i.has("v4") ? 4 : i.has("v2") ? 2 : 1;
    if (static_cast<int>(registers.size()) != count) fail("a vector has other registers than it says");
    const std::uint64_t address = value(i.arguments[load ? 1 : 0], operands);
    unsigned char buffer[16];
    if (load) read(space(i), address, size * count, buffer);
    for (int n = 0; n < count; ++n) {
        const Operand& operand = operands.at(registers[n]);
        if (operand.bytes < size) fail("a register is too small");
        if (load) {
            std::memset(operand.out, 0, operand.bytes);
            std::memcpy(operand.out, buffer + n * size, size);
        } else {
            std::memcpy(buffer + n * size, &operand.in, size);
        }
    }
    if (!load) write(space(i), address, size * count, buffer);
}

// Complete at once; what a wait is for is tested with whole kernels.
inline void copy(const Instruction& i, const Operands& operands) {
    const int count = static_cast<int>(value(i.arguments[2], operands));
    const int size = i.arguments.size() > 3 ? static_cast<int>(value(i.arguments[3], operands)) : count;
    if (i.has("cg") && count != 16) fail("cp.async.cg copies 16 bytes");
    if (size > count) fail("more is read than copied");
    unsigned char buffer[16] = {};
    const std::uint64_t from = value(i.arguments[1], operands);
    if (from % count) fail("an address is not aligned");
    if (size) read("global", from, size, buffer);
    write("shared", value(i.arguments[0], operands), count, buffer);
}

// Matrices of 8 rows of 16 bytes: what the lanes address is gathered in a first pass over them.
inline int lane;
inline bool gathering;
inline std::uint64_t rows[32];
inline void matrix(const Instruction& i, const Operands& operands, bool load) {
    const std::vector<int> registers = numbers(i.arguments[load ? 0 : 1]);
    if (registers.size() != (i.has("x4") ? 4u : i.has("x2") ? 2u : 1u)) fail("matrices have other registers than they say");
    if (gathering) {
        rows[lane] = value(i.arguments[load ? 1 : 0], operands);
        return;
    }
    for (std::size_t m = 0; m < registers.size(); ++m)
        for (int half = 0; half < 2; ++half) {
            const int row = i.has("trans") ? 2 * (lane % 4) + half : lane / 4;
            const int column = i.has("trans") ? lane / 4 : 2 * (lane % 4) + half;
            const std::uint64_t address = rows[8 * m + row];
            if (address % 16) fail("a row is not aligned");
            const Operand& operand = operands.at(registers[m]);
            if (load) read("shared", address + 2 * column, 2, static_cast<unsigned char*>(operand.out) + 2 * half);
            else write("shared", address + 2 * column, 2, reinterpret_cast<const unsigned char*>(&operand.in) + 2 * half);
        }
}

template <class T> void reduce(const Instruction& i, std::uint64_t address, T value) {
    T old;
    read("global", address, sizeof(T), &old);
    const T result = i.has("add") ? static_cast<T>(old + value)
                     : i.has("max") ? (old > value ? old : value) : (old < value ? old : value);
    write("global", address, sizeof(T), &result);
}

// The copy engine's orders, as they were given.
struct Bulk {
    std::string name;
    std::uint64_t tile, map, barrier;
    std::vector<int> at;
    std::vector<std::uint64_t> rest;
};
inline std::vector<Bulk> bulk;
inline void order(const std::string& name, const Instruction& i, const Operands& operands) {
    const bool load = i.has("mbarrier::complete_tx::bytes");
    const std::vector<int> box = numbers(i.arguments[load ? 1 : 0]);
    Bulk found{name, value(i.arguments[load ? 0 : 1], operands), operands.at(box[0]).in,
               load ? value(i.arguments[2], operands) : 0, {}, {}};
    for (std::size_t n = 1; n < box.size(); ++n) found.at.push_back(static_cast<int>(operands.at(box[n]).in));
    for (std::size_t n = load ? 3 : 2; n < i.arguments.size(); ++n)
        if (i.arguments[n][0] == '{') for (int k : numbers(i.arguments[n])) found.rest.push_back(operands.at(k).in);
        else found.rest.push_back(value(i.arguments[n], operands));
    bulk.push_back(found);
}

inline int committed, waited = -1;
inline void execute(const std::string& text, const Operands& operands) {
    const Instruction i = parse(text);
    const std::string& name = i.name[0];
    const auto set = [&](std::uint64_t x) { std::memcpy(operands.at(0).out, &x, operands.at(0).bytes); };
    if (name == "ld" || name == "st") move(i, operands, name == "ld");
    else if (i.has("bulk")) order(text.substr(0, text.find(' ')), i, operands);
    else if (i.has("commit_group")) ++committed;
    else if (i.has("wait_group")) waited = static_cast<int>(value(i.arguments[0], operands));
    else if (name == "cp") copy(i, operands);
    else if (name == "ldmatrix" || name == "stmatrix") matrix(i, operands, name == "ldmatrix");
    else if (name == "mapa") set((operands.at(1).in & ((1u << WINDOW) - 1)) | operands.at(2).in << WINDOW);
    else if (name == "createpolicy") set(1);
    else if (name == "cvt" && i.has("rna")) set((operands.at(1).in + 0x1000) & ~std::uint64_t(0x1fff));
    else if (name == "mov" && text.find("cluster_ctarank") != std::string::npos) set(rank);
    else if (name == "red" && i.has("f32")) {
        float x;
        std::memcpy(&x, &operands.at(1).in, 4);
        reduce<float>(i, operands.at(0).in, x);
    }
    else if (name == "red" && element(i) == 8) reduce<std::int64_t>(i, operands.at(0).in, static_cast<std::int64_t>(operands.at(1).in));
    else if (name == "red") reduce<int>(i, operands.at(0).in, static_cast<int>(operands.at(1).in));
    else if ((name == "min" || name == "max") && i.has("f32")) {
        const float x = __uint_as_float(operands.at(1).in), y = __uint_as_float(operands.at(2).in);
        set(__float_as_uint(name == "min" ? std::fmin(x, y) : std::fmax(x, y)));
    }
    else fail("the model has no " + text);
}

// AMD's: lane i's word goes 4 * i bytes after where the first lane points, by M0; what a masked lane reads is no tensor's.
inline std::uint64_t zero_word;
inline int first_lane(int x) {
    static int first;
    return lane == 0 ? first = x : first;
}
inline void load_to_lds(const Operands& operands) {
    unsigned char word[4] = {};
    if (operands.size() > 2) { // an offset, and a descriptor: its base, and its bytes
        const Operand& from = operands.at(2);
        if (operands.at(1).in < static_cast<unsigned>(from.more)) read("global", from.in + operands.at(1).in, 4, word);
    } else if (operands.at(1).in != zero_word) {
        read("global", operands.at(1).in, 4, word);
    }
    write("shared", operands.at(0).in + 4 * lane, 4, word);
}

// The memory behind a base. A lane whose offset is not below its bytes loads zeros.
struct Buffer {
    std::uint64_t base;
    unsigned bytes;
};
inline Buffer buffer(const void* base, int, unsigned bytes, unsigned) {
    return {reinterpret_cast<std::uintptr_t>(base), bytes};
}
template <class W> W buffer_load(Buffer from, unsigned at, int, int) {
    W x{};
    if (at < from.bytes) read("global", from.base + at, sizeof(W), &x);
    return x;
}

// A pointer to words of one address space, by which they are read and written.
template <class W> struct Word {
    std::uint64_t address;
    bool shared;
    operator W() const {
        W x;
        read(shared ? "shared" : "global", address, sizeof(W), &x);
        return x;
    }
    void operator=(const W& x) const { write(shared ? "shared" : "global", address, sizeof(W), &x); }
};
template <class W, bool SHARED_SPACE> struct Pointer {
    std::uint64_t address;
    explicit Pointer(const void* p) : address(reinterpret_cast<std::uintptr_t>(p)) {}
    explicit Pointer(unsigned p) : address(p) {}
    auto operator*() const { return Word<std::remove_const_t<W>>{address, SHARED_SPACE}; }
};

// One text: an instruction, or a predicate and one under it.
inline void ptx(std::string text, const Operands& operands) {
    if (text.rfind("s_mov_b32 m0", 0) == 0) return load_to_lds(operands);
    if (text.rfind("s_waitcnt", 0) == 0) {
        waited = static_cast<int>(operands.at(0).in);
        return;
    }
    if (text[0] == '{') text = text.substr(1, text.rfind('}') - 1);
    bool on = true;
    for (std::size_t from = 0; from <= text.size();) {
        const std::size_t end = std::min(text.find(';', from), text.size());
        std::string one = text.substr(from, end - from);
        from = end + 1;
        one.erase(0, std::min(one.find_first_not_of(" \n\t"), one.size()));
        if (one.empty()) continue;
        if (one.rfind(".reg", 0) == 0) continue;
        if (one.rfind("setp.ne.b32", 0) == 0) { on = value(parse(one).arguments[1], operands) != 0; continue; }
        if (one.rfind("@p ", 0) == 0) {
            if (on) execute(one.substr(3), operands);
            continue;
        }
        execute(one, operands);
    }
}

}  // namespace model

inline unsigned long long __cvta_generic_to_global(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
inline unsigned long long __cvta_generic_to_shared(const void*) { return model::SHARED; }
inline unsigned atomicCAS(unsigned* address, unsigned compare, unsigned wanted) {
    unsigned seen;
    model::read("global", reinterpret_cast<std::uintptr_t>(address), 4, &seen);
    if (seen == compare) model::write("global", reinterpret_cast<std::uintptr_t>(address), 4, &wanted);
    return seen;
}

// HIP's atomic operations, of one thread.
#define __HIP_MEMORY_SCOPE_AGENT 4
template <class T> T __hip_atomic_load(model::Pointer<T, false> p, int, int) { return *p; }
template <class T, class F> void updated(model::Pointer<T, false> p, F change) {
    const T old = *p;
    *p = change(old);
}
template <class T> void __hip_atomic_fetch_add(model::Pointer<T, false> p, T x, int, int) {
    updated(p, [x](T old) { return static_cast<T>(old + x); });
}
template <class T> void __hip_atomic_fetch_max(model::Pointer<T, false> p, T x, int, int) {
    updated(p, [x](T old) { return old > x ? old : x; });
}
template <class T> void __hip_atomic_fetch_min(model::Pointer<T, false> p, T x, int, int) {
    updated(p, [x](T old) { return old < x ? old : x; });
}
template <class T>
bool __hip_atomic_compare_exchange_strong(model::Pointer<T, false> p, T* seen, T wanted, int, int, int) {
    const T found = *p;
    const bool same = found == *seen;
    if (same) *p = wanted;
    else *seen = found;
    return same;
}
