// One block of threads on one host thread: lanes are fibers, barriers and warp operations are rendezvous.
//
// A fiber runs until it has to wait for others. When nobody can go on, the kernel has a divergent barrier or
// warp operation: the launch ends with a message that says who waits where.
//
// C headers only: those of the C++ library would take longer to compile than most kernels.
#pragma once

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#ifndef ARGUS_WARP_SIZE
#define ARGUS_WARP_SIZE 32
#endif

namespace argus {

// What the copy engine knows about a tensor, as `argus/backend/cpu/tensormap.py` packs it: the innermost dimension
// first, strides in bytes.
struct TensorMap {
    unsigned long long base;
    long long strides[5];
    int extents[5], box[5];
    int rank, item, swizzle;
    int counts[3];  // places of windows of a column of pixels, of the dimensions between the first and the last; or 0
    short lower[3], steps[3];
    unsigned char unused[4];
};
static_assert(sizeof(TensorMap) == 128, "as on the device");

}  // namespace argus

namespace argus::detail {

constexpr int MAX_THREADS = 1024;
constexpr int MAX_MBARRIERS = 128;
constexpr int ROLE_BARRIERS = 256;  // of all blocks of a cluster that runs as one
constexpr int MESSAGE_BYTES = 1024;
constexpr int FAILED = 1, ASSERTED = 2;  // of a launch
// A fiber's stack, its record at the low end: a power of two, so that the record is found from any local address.
constexpr size_t STACK_BYTES = size_t(256) << 10;
constexpr size_t GUARD_BYTES = 4096;

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
    auto* top = reinterpret_cast<uint64_t*>(stack_end) - 1;  // the entry finds the stack as after a call
    *top = 0;
    *--top = reinterpret_cast<uint64_t>(entry);
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

// What a fiber waits for: that `generation` changes.
struct Place {
    unsigned generation;
};

// A place where threads meet. `kind` names the operation; threads of different kinds cannot meet.
struct Meeting : Place {
    int arrived, expected;
    const char* kind;
    void* arguments[128];
};

// Where threads of roles meet, or pass by: those that have arrived of those that a phase takes.
struct RoleBarrier : Place {
    int arrived, expected;
};

struct PendingCopy {
    char* to;
    const char* from;  // null: zeros
    int bytes;
    unsigned group;
};

// Asynchronous operations in order of issue; those before `first` are done. `group` is the present one of their thread.
template <class T> struct Queue {
    T* items;
    int first, size, capacity;
    unsigned group;

    void push(const T& item) {
        if (size == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            items = static_cast<T*>(realloc(items, sizeof(T) * static_cast<size_t>(capacity)));
            if (!items) abort();
        }
        items[size++] = item;
    }
    void clear() { first = size = 0; }
};
using CopyQueue = Queue<PendingCopy>;

// A box on its way to shared memory, or a column of pixels.
struct BulkCopy {
    TensorMap map;
    int at[8];  // its corner, innermost coordinate first; the offsets of pixels
    char* shared;
    int offset, bytes;

    void load() const;  // hopper.h
};

// The mbarrier at byte `offset`: phases completed so far; of the present one, arrivals still to come, bytes announced
// less bytes brought, and copies under way.
struct Mbarrier : Place {
    int offset, arrivals;
    int phases, pending;
    long long bytes;
    Queue<BulkCopy> copies;
};

// A box on its way from shared memory, in a group of its thread's stores; `perform` writes or updates the tensor.
struct BulkStore {
    BulkCopy copy;
    unsigned group;
    void (*perform)(const BulkCopy&);
};

// One thread's part of an asynchronous product of its warpgroup.
struct Product {
    unsigned long long a, b;
    const void* registers;  // of a, if it is there
    float* d;
    bool add;
    void (*perform)(const Product* const* threads);  // for all 128 of them
    unsigned group;
};

struct Fiber {
    Context context;
    Block* block;
    Place* waits_at;
    unsigned waits_generation;
    int thread;
    bool finished;
    CopyQueue* copies;
    Queue<Product>* products;
    Queue<BulkStore>* stores;
#if !defined(__x86_64__)
    ucontext_t initial;
#endif
};

struct Block {
    void (*kernel)(void**);
    void** arguments;
    int index[3];
    int blocks;  // along the grid's first axis
    int threads;
    char* shared;
    int shared_bytes;
    Context scheduler;
    char* stacks;
    Meeting barrier;
    RoleBarrier role_barriers[ROLE_BARRIERS];
    Meeting warps[MAX_THREADS / ARGUS_WARP_SIZE];
    Meeting warpgroups[MAX_THREADS / 128];
    Mbarrier mbarriers[MAX_MBARRIERS];
    int mbarrier_count;
    CopyQueue copies[MAX_THREADS];
    Queue<Product> products[MAX_THREADS];
    Queue<BulkStore> stores[MAX_THREADS];
    char failure[MESSAGE_BYTES];
    bool asserted;  // the failure is an assertion of the kernel's author

    Fiber& fiber(int thread) {
        return *reinterpret_cast<Fiber*>(stacks + STACK_BYTES * static_cast<size_t>(thread) + GUARD_BYTES);
    }
};

inline Fiber& self() {
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    return *reinterpret_cast<Fiber*>((here & ~(STACK_BYTES - 1)) + GUARD_BYTES);
}

// Adds to the block's message.
__attribute__((format(printf, 2, 3))) inline void say(Block& block, const char* format, ...) {
    const size_t used = strlen(block.failure);
    va_list values;
    va_start(values, format);
    vsnprintf(block.failure + used, MESSAGE_BYTES - used, format, values);
    va_end(values);
}

// Ends the block's run, its message being said. The fibers are left where they stand; they own nothing.
[[noreturn]] inline void stop() {
    Fiber& fiber = self();
    switch_context(&fiber.context, fiber.block->scheduler);
    abort();  // a failed block is never resumed
}

// Goes on when `place` has moved on.
inline void wait_at(Place& place) {
    Fiber& fiber = self();
    fiber.waits_at = &place;
    fiber.waits_generation = place.generation;
    switch_context(&fiber.context, fiber.block->scheduler);
}

// Waits for `expected` threads. The last one to arrive runs `act` for all.
template <class Act> void meet(Meeting& place, int slot, int expected, const char* kind, void* argument, Act act) {
    Fiber& fiber = self();
    if (place.arrived != 0 && place.kind != kind) {
        say(*fiber.block, "thread %d arrives at %s while others of its warp wait at %s", fiber.thread, kind, place.kind);
        stop();
    }
    place.kind = kind;
    place.expected = expected;
    place.arguments[slot] = argument;
    if (++place.arrived == expected) {
        act(place.arguments);
        place.arrived = 0;
        ++place.generation;
        return;
    }
    wait_at(place);
}

template <class Act> void meet_warp(const char* kind, void* argument, Act act) {
    Fiber& fiber = self();
    const int warp = fiber.thread / ARGUS_WARP_SIZE, lane = fiber.thread % ARGUS_WARP_SIZE;
    meet(fiber.block->warps[warp], lane, ARGUS_WARP_SIZE, kind, argument, act);
}

template <class Act> void meet_warpgroup(const char* kind, void* argument, Act act) {
    Fiber& fiber = self();
    meet(fiber.block->warpgroups[fiber.thread / 128], fiber.thread % 128, 128, kind, argument, act);
}

// What has just happened on an mbarrier may have been the last thing that its phase lacked.
inline void settle(Mbarrier& barrier) {
    if (barrier.pending != 0 || barrier.bytes != 0) return;
    barrier.pending = barrier.arrivals;
    ++barrier.phases;
    ++barrier.generation;
}

inline bool waits(const Fiber& fiber, const Place& place) {
    return !fiber.finished && fiber.waits_at == &place && fiber.waits_generation == place.generation;
}

// The copy engine takes all the time it may: boxes come when nobody can go on without them. False: none would help.
inline bool bring_late(Block& block) {
    for (int i = 0; i < block.mbarrier_count; ++i) {
        Mbarrier& barrier = block.mbarriers[i];
        bool wanted = false;
        for (int t = 0; t < block.threads && barrier.copies.size; ++t) wanted = wanted || waits(block.fiber(t), barrier);
        if (!wanted) continue;
        for (int c = 0; c < barrier.copies.size; ++c) {
            barrier.copies.items[c].load();
            barrier.bytes -= barrier.copies.items[c].bytes;
        }
        barrier.copies.clear();
        settle(barrier);
        return true;
    }
    return false;
}

inline void fiber_main() {
    Fiber& fiber = self();
    fiber.block->kernel(fiber.block->arguments);
    fiber.finished = true;
    switch_context(&fiber.context, fiber.block->scheduler);
    abort();  // a finished fiber is never resumed
}

inline void start_fiber(Block& block, int thread) {
    Fiber& fiber = block.fiber(thread);
    char* base = block.stacks + STACK_BYTES * static_cast<size_t>(thread);
    CopyQueue& copies = block.copies[thread];
    Queue<Product>& products = block.products[thread];
    Queue<BulkStore>& stores = block.stores[thread];
    copies.clear();
    products.clear();
    stores.clear();
    copies.group = products.group = stores.group = 0;
    fiber.block = &block;
    fiber.waits_at = nullptr;
    fiber.thread = thread;
    fiber.finished = false;
    fiber.copies = &copies;
    fiber.products = &products;
    fiber.stores = &stores;
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

inline void describe_deadlock(Block& block) {
    int finished = 0;
    for (int t = 0; t < block.threads; ++t) finished += block.fiber(t).finished;
    say(block, "threads wait for one another for ever:");
    if (block.barrier.arrived) say(block, " %d of %d threads wait at a barrier;", block.barrier.arrived, block.threads);
    for (int i = 0; i < 16; ++i) {
        const RoleBarrier& barrier = block.role_barriers[i];
        int waiting = 0;
        for (int t = 0; t < block.threads; ++t) waiting += waits(block.fiber(t), barrier);
        if (waiting)
            say(block, " %d threads wait at barrier %d, where %d of %d are;", waiting, i, barrier.arrived, barrier.expected);
    }
    for (int i = 0; i < block.mbarrier_count; ++i) {
        const Mbarrier& barrier = block.mbarriers[i];
        int waiting = 0;
        for (int t = 0; t < block.threads; ++t) waiting += waits(block.fiber(t), barrier);
        if (waiting)
            say(block, " %d threads wait at the mbarrier at byte %d, whose phase %d lacks %d of %d arrivals and %lld bytes;",
                waiting, barrier.offset, barrier.phases, barrier.pending, barrier.arrivals, barrier.bytes);
    }
    for (int g = 0; g * 128 < block.threads; ++g) {
        const Meeting& group = block.warpgroups[g];
        if (group.arrived) say(block, " %d threads of warpgroup %d wait at %s;", group.arrived, g, group.kind);
    }
    for (int w = 0; w * ARGUS_WARP_SIZE < block.threads; ++w) {
        const Meeting& warp = block.warps[w];
        if (warp.arrived) say(block, " %d lanes of warp %d wait at %s;", warp.arrived, w, warp.kind);
    }
    say(block, " %d threads have finished", finished);
}

// Runs one block to its end. Warp by warp, each as far as it comes, until all fibers have finished.
inline void run_block(Block& block) {
    memset(block.shared, 0xff, static_cast<size_t>(block.shared_bytes));  // NaNs: nobody wrote them
    block.barrier = Meeting();
    for (RoleBarrier& barrier : block.role_barriers) barrier = RoleBarrier();
    for (Meeting& warp : block.warps) warp = Meeting();
    for (Meeting& group : block.warpgroups) group = Meeting();
    block.mbarrier_count = 0;
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
                    if (block.failure[0]) return;
                    left -= fiber.finished;
                    again = progress = true;
                }
            }
        }
        if (!progress && !bring_late(block)) return describe_deadlock(block);
    }
}

// A launch: what its host threads share.
struct Launch {
    void (*kernel)(void**);
    void** arguments;
    const int* grid;
    int threads;
    int shared_bytes;
    char* message;
    int message_bytes;
    long long next;
    int failed;

    void report(const char* text, int status = FAILED) {
        int none = 0;
        if (__atomic_compare_exchange_n(&failed, &none, status, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            snprintf(message, static_cast<size_t>(message_bytes), "%s", text);
    }
};

// Runs blocks until none is left: what one host thread does.
inline void run_blocks(Launch& launch, Block& block) {
    const int* grid = launch.grid;
    const long long blocks = static_cast<long long>(grid[0]) * grid[1] * grid[2];
    while (!__atomic_load_n(&launch.failed, __ATOMIC_ACQUIRE)) {
        const long long i = __atomic_fetch_add(&launch.next, 1, __ATOMIC_RELAXED);
        if (i >= blocks) return;
        block.index[0] = static_cast<int>(i % grid[0]);
        block.index[1] = static_cast<int>(i / grid[0] % grid[1]);
        block.index[2] = static_cast<int>(i / grid[0] / grid[1]);
        run_block(block);
        if (block.asserted) return launch.report(block.failure, ASSERTED);
        if (block.failure[0]) {
            char text[MESSAGE_BYTES + 64];
            const int* at = block.index;
            snprintf(text, sizeof text, "block (%d, %d, %d): %s", at[0], at[1], at[2], block.failure);
            return launch.report(text);
        }
    }
}

// Gives one host thread its stacks and shared memory.
inline void* work(void* argument) {
    Launch& launch = *static_cast<Launch*>(argument);
    const size_t stacks = STACK_BYTES * (static_cast<size_t>(launch.threads) + 1);
    const size_t bytes = stacks + static_cast<size_t>(launch.shared_bytes) + 1024;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    auto* block = static_cast<Block*>(calloc(1, sizeof(Block)));
    if (mapping == MAP_FAILED || !block) {
        launch.report("no memory for the threads' stacks");
    } else {
        const auto start = reinterpret_cast<uintptr_t>(mapping);
        block->stacks = reinterpret_cast<char*>((start + STACK_BYTES - 1) & ~(STACK_BYTES - 1));
        block->shared = reinterpret_cast<char*>((start + stacks + 1023) & ~uintptr_t(1023));
        block->shared_bytes = launch.shared_bytes;
        block->kernel = launch.kernel;
        block->arguments = launch.arguments;
        block->blocks = launch.grid[0];
        block->threads = launch.threads;
        // A stack that overflows ends the process instead of reaching into its neighbour.
        for (int t = 0; t < launch.threads; ++t)
            mprotect(block->stacks + STACK_BYTES * static_cast<size_t>(t), GUARD_BYTES, PROT_NONE);
        run_blocks(launch, *block);
        for (CopyQueue& copies : block->copies) free(copies.items);
        for (Queue<Product>& products : block->products) free(products.items);
        for (Queue<BulkStore>& stores : block->stores) free(stores.items);
        for (Mbarrier& barrier : block->mbarriers) free(barrier.copies.items);
    }
    if (mapping != MAP_FAILED) munmap(mapping, bytes);
    free(block);
    return nullptr;
}

// Runs the grid on `workers` host threads. Returns 0, or FAILED or ASSERTED with the first failure in `message`.
inline int launch(void (*kernel)(void**), void** arguments, const int* grid, int threads, int shared_bytes, int workers,
                  char* message, int message_bytes) {
    Launch all{kernel, arguments, grid, threads, shared_bytes, message, message_bytes, 0, 0};
    if (threads > MAX_THREADS || threads % ARGUS_WARP_SIZE) {
        all.report("the number of threads is above 1024 or no multiple of the warp size");
        return FAILED;
    }
    const long long blocks = static_cast<long long>(grid[0]) * grid[1] * grid[2];
    constexpr int MAX_HELPERS = 63;
    pthread_t helpers[MAX_HELPERS];
    int started = 0;
    while (started < MAX_HELPERS && started + 1 < workers && started + 1 < blocks) {
        if (pthread_create(&helpers[started], nullptr, work, &all)) break;  // then fewer threads share the blocks
        ++started;
    }
    work(&all);
    for (int i = 0; i < started; ++i) pthread_join(helpers[i], nullptr);
    return all.failed;
}

}  // namespace argus::detail
