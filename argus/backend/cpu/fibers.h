// One block of threads on one host thread: lanes are fibers, barriers and warp operations are rendezvous.
//
// A fiber runs until it has to wait for others. When nobody can go on, the kernel has a divergent barrier or
// warp operation: the launch ends with a message that says who waits where.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#ifndef ARGUS_WARP_SIZE
#define ARGUS_WARP_SIZE 32
#endif

namespace argus::detail {

// A fiber's stack, its record at the low end: a power of two, so that the record is found from any local address.
constexpr std::size_t STACK_BYTES = std::size_t(256) << 10;
constexpr std::size_t GUARD_BYTES = 4096;

#if defined(__x86_64__)
using Context = void*;
// Saves the callee-saved registers on the stack it leaves and takes them from the stack it enters. Outside of C++,
// so that no optimisation across functions believes that it keeps the other registers.
asm(".text\n.p2align 4\n.type argus_switch_context, @function\nargus_switch_context:\n\t"
    "pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
    "movq %rsp, (%rdi)\n\tmovq %rsi, %rsp\n\t"
    "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret\n"
    ".size argus_switch_context, . - argus_switch_context");
extern "C" __attribute__((visibility("hidden"))) void argus_switch_context(Context* from, Context to);
inline void switch_context(Context* from, Context to) { argus_switch_context(from, to); }
inline Context new_context(char* stack_end, void (*entry)()) {
    auto* top = reinterpret_cast<std::uint64_t*>(stack_end) - 1;  // the entry finds the stack as after a call
    *top = 0;
    *--top = reinterpret_cast<std::uint64_t>(entry);
    return top - 6;
}
#else
using Context = ucontext_t*;
inline void switch_context(Context* from, Context to) {
    ucontext_t here;
    *from = &here;
    swapcontext(&here, to);
}
#endif

struct Block;

// A place where threads meet. `kind` names the operation; threads of different kinds cannot meet.
struct Meeting {
    unsigned arrived = 0;
    unsigned generation = 0;
    const char* kind = nullptr;
    void* arguments[64] = {};
};

struct PendingCopy {
    char* to;
    const char* from;  // null: zeros
    int bytes;
    unsigned group;
};

struct Fiber {
    Context context;
    Block* block;
    Meeting* waits_at;
    unsigned waits_generation;
    int thread;
    bool finished;
    std::vector<PendingCopy>* copies;
    std::size_t first_copy;
    unsigned group;
#if !defined(__x86_64__)
    ucontext_t initial;
#endif
};

struct Block {
    void (*kernel)(void**);
    void** arguments;
    int index[3];
    int threads;
    char* shared;
    int shared_bytes;
    Context scheduler;
    char* stacks;
    Meeting barrier;
    std::vector<Meeting> warps;
    std::vector<std::vector<PendingCopy>> copies;
    std::string failure;

    Fiber& fiber(int thread) { return *reinterpret_cast<Fiber*>(stacks + STACK_BYTES * thread + GUARD_BYTES); }
};

inline Fiber& self() {
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    return *reinterpret_cast<Fiber*>((here & ~(STACK_BYTES - 1)) + GUARD_BYTES);
}

// Ends the block's run. The fibers are left where they stand; what they own belongs to the block.
[[noreturn]] inline void fail(const std::string& message) {
    Fiber& fiber = self();
    if (fiber.block->failure.empty())
        fiber.block->failure = "thread " + std::to_string(fiber.thread) + ": " + message;
    switch_context(&fiber.context, fiber.block->scheduler);
    std::abort();  // a failed block is never resumed
}

// Waits for `expected` threads. The last one to arrive runs `act` for all.
template <class Act> void meet(Meeting& place, unsigned slot, unsigned expected, const char* kind, void* argument, Act act) {
    Fiber& fiber = self();
    if (place.arrived != 0 && place.kind != kind)
        fail(std::string("arrives at ") + kind + " while others of its group wait at " + place.kind);
    place.kind = kind;
    if (slot < 64) place.arguments[slot] = argument;
    if (++place.arrived == expected) {
        act(place.arguments);
        place.arrived = 0;
        ++place.generation;
        return;
    }
    fiber.waits_at = &place;
    fiber.waits_generation = place.generation;
    switch_context(&fiber.context, fiber.block->scheduler);
}

template <class Act> void meet_warp(const char* kind, void* argument, Act act) {
    Fiber& fiber = self();
    const unsigned lane = static_cast<unsigned>(fiber.thread) % ARGUS_WARP_SIZE;
    meet(fiber.block->warps[static_cast<unsigned>(fiber.thread) / ARGUS_WARP_SIZE], lane, ARGUS_WARP_SIZE, kind,
         argument, act);
}

inline void fiber_main() {
    Fiber& fiber = self();
    fiber.block->kernel(fiber.block->arguments);
    fiber.finished = true;
    switch_context(&fiber.context, fiber.block->scheduler);
    std::abort();  // a finished fiber is never resumed
}

inline void start_fiber(Block& block, int thread) {
    Fiber& fiber = block.fiber(thread);
    char* base = block.stacks + STACK_BYTES * thread;
    fiber.block = &block;
    fiber.waits_at = nullptr;
    fiber.thread = thread;
    fiber.finished = false;
    block.copies[thread].clear();
    fiber.copies = &block.copies[thread];
    fiber.first_copy = 0;
    fiber.group = 0;
#if defined(__x86_64__)
    fiber.context = new_context(base + STACK_BYTES, fiber_main);
#else
    getcontext(&fiber.initial);
    fiber.initial.uc_stack.ss_sp = base + GUARD_BYTES + sizeof(Fiber);
    fiber.initial.uc_stack.ss_size = STACK_BYTES - GUARD_BYTES - sizeof(Fiber);
    fiber.initial.uc_link = nullptr;
    makecontext(&fiber.initial, fiber_main, 0);
    fiber.context = &fiber.initial;
#endif
}

inline std::string describe_deadlock(Block& block) {
    std::string text = "threads wait for one another for ever:";
    int finished = 0;
    for (int t = 0; t < block.threads; ++t) finished += block.fiber(t).finished;
    if (block.barrier.arrived)
        text += " " + std::to_string(block.barrier.arrived) + " of " + std::to_string(block.threads) +
                " threads wait at a barrier;";
    for (std::size_t w = 0; w < block.warps.size(); ++w)
        if (block.warps[w].arrived)
            text += " " + std::to_string(block.warps[w].arrived) + " lanes of warp " + std::to_string(w) +
                    " wait at " + block.warps[w].kind + ";";
    return text + " " + std::to_string(finished) + " threads have finished";
}

// Runs one block to its end. Warp by warp, each as far as it comes, until all fibers have finished.
inline void run_block(Block& block) {
    std::memset(block.shared, 0xff, static_cast<std::size_t>(block.shared_bytes));  // NaNs: nobody wrote them
    block.barrier = Meeting();
    for (Meeting& warp : block.warps) warp = Meeting();
    for (int t = 0; t < block.threads; ++t) start_fiber(block, t);
    int left = block.threads;
    while (left > 0) {
        bool progress = false;
        for (int begin = 0; begin < block.threads; begin += ARGUS_WARP_SIZE) {
            const int end = begin + ARGUS_WARP_SIZE < block.threads ? begin + ARGUS_WARP_SIZE : block.threads;
            for (bool again = true; again;) {
                again = false;
                for (int t = begin; t < end; ++t) {
                    Fiber& fiber = block.fiber(t);
                    if (fiber.finished) continue;
                    if (fiber.waits_at && fiber.waits_at->generation == fiber.waits_generation) continue;
                    fiber.waits_at = nullptr;
                    switch_context(&block.scheduler, fiber.context);
                    if (!block.failure.empty()) return;
                    left -= fiber.finished;
                    again = progress = true;
                }
            }
        }
        if (!progress) {
            block.failure = describe_deadlock(block);
            return;
        }
    }
}

// What one host thread needs to run blocks, kept from block to block.
struct Worker {
    Block block;
    void* mapping = MAP_FAILED;
    std::size_t mapped = 0;
    std::vector<char> shared;

    bool prepare(void (*kernel)(void**), void** arguments, int threads, int shared_bytes) {
        mapped = STACK_BYTES * (static_cast<std::size_t>(threads) + 1);
        mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapping == MAP_FAILED) return false;
        const auto start = reinterpret_cast<std::uintptr_t>(mapping);
        block.stacks = reinterpret_cast<char*>((start + STACK_BYTES - 1) & ~(STACK_BYTES - 1));
        for (int t = 0; t < threads; ++t)
            if (mprotect(block.stacks + STACK_BYTES * t, GUARD_BYTES, PROT_NONE) != 0) return false;
        shared.resize(static_cast<std::size_t>(shared_bytes) + 1024);
        const auto base = reinterpret_cast<std::uintptr_t>(shared.data());
        block.shared = reinterpret_cast<char*>((base + 1023) & ~std::uintptr_t(1023));
        block.shared_bytes = shared_bytes;
        block.kernel = kernel;
        block.arguments = arguments;
        block.threads = threads;
        block.warps.resize((threads + ARGUS_WARP_SIZE - 1) / ARGUS_WARP_SIZE);
        block.copies.resize(threads);
        return true;
    }
    ~Worker() {
        if (mapping != MAP_FAILED) munmap(mapping, mapped);
    }
};

// Runs the grid on `workers` host threads. Returns 0, or 1 with the first failure in `message`.
inline int launch(void (*kernel)(void**), void** arguments, const int* grid, int threads, int shared_bytes,
                  int workers, char* message, int message_bytes) {
    const long long blocks = static_cast<long long>(grid[0]) * grid[1] * grid[2];
    std::atomic<long long> next{0};
    std::atomic<bool> failed{false};
    auto report = [&](const std::string& text) {
        if (!failed.exchange(true)) std::snprintf(message, static_cast<std::size_t>(message_bytes), "%s", text.c_str());
    };
    auto work = [&] {
        Worker worker;
        if (!worker.prepare(kernel, arguments, threads, shared_bytes)) return report("no memory for the threads' stacks");
        Block& block = worker.block;
        for (long long i; !failed && (i = next++) < blocks;) {
            block.index[0] = static_cast<int>(i % grid[0]);
            block.index[1] = static_cast<int>(i / grid[0] % grid[1]);
            block.index[2] = static_cast<int>(i / grid[0] / grid[1]);
            run_block(block);
            if (!block.failure.empty()) {
                const std::string where = std::to_string(block.index[0]) + ", " + std::to_string(block.index[1]) +
                                          ", " + std::to_string(block.index[2]);
                return report("block (" + where + "): " + block.failure);
            }
        }
    };
    std::vector<std::thread> team;
    for (int w = 1; w < workers && w < blocks; ++w) team.emplace_back(work);
    work();
    for (std::thread& thread : team) thread.join();
    return failed ? 1 : 0;
}

}  // namespace argus::detail
