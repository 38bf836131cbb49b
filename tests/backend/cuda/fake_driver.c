/* Stands in for libcuda: the structures are laid out by the C compiler, and what a launch gets is kept. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    unsigned grid[3], block[3], shared;
    void* stream;
    const struct Attribute* attributes;
    unsigned number;
} CUlaunchConfig;

typedef struct Attribute {
    int id;
    union { char pad[64]; int value; uint64_t aligned; };
} CUlaunchAttribute;

CUlaunchConfig last;
uint64_t last_pointer, last_maps[2][16];
int map_slots[2] = {-1, -1}; /* which arguments are tensor maps */
int32_t last_size;
long launches, encodings, depth, current;
CUlaunchAttribute last_attribute;
int capability = 9;
int fail_next_launch, max_threads = 1024, shared_limit = 232448, shared_claimed = -1;

int cuInit(unsigned flags) { return flags != 0; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return ordinal > 1 ? 101 : 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    *value = attribute == 16 ? 3 : attribute == 75 ? capability : shared_limit;
    return (attribute == 97 || attribute == 16 || attribute == 75) && device < 2 ? 0 : 1;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* value, void* function, int threads, size_t shared) {
    *value = shared > 100000 ? 1 : 2;
    return function == (void*)9 && threads > 0 ? 0 : 1;
}
int cuDevicePrimaryCtxRetain(void** context, int device) { *context = (void*)(intptr_t)(100 + device); return 0; }
int cuCtxSetCurrent(void* context) { current = (intptr_t)context; return 0; }
int cuCtxPushCurrent_v2(void* context) { ++depth; current = (intptr_t)context; return 0; }
int cuCtxPopCurrent_v2(void** context) { *context = (void*)current; --depth; current = 0; return 0; }
int cuModuleLoadData(void** module, const char* image) { *module = (void*)7; return memcmp(image, "ELF", 3) ? 200 : 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
    *function = (void*)9;
    return module == (void*)7 && !strcmp(name, "gemm") ? 0 : 500;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
    shared_claimed = value;
    return function == (void*)9 && attribute == 8 ? 0 : 1;
}
int cuFuncGetAttribute(int* value, int attribute, void* function) {
    *value = max_threads;
    return function == (void*)9 && attribute == 0 ? 0 : 1;
}
int cuLaunchKernelEx(const CUlaunchConfig* config, void* function, void** arguments, void** extra) {
    const int status = fail_next_launch;
    fail_next_launch = 0;
    if (status) return status;
    last = *config;
    if (config->number) last_attribute = *config->attributes;
    last_pointer = *(uint64_t*)arguments[0];
    last_size = *(int32_t*)arguments[3];
    for (int i = 0; i < 2; ++i)
        if (map_slots[i] >= 0) {
            if ((uintptr_t)arguments[map_slots[i]] % 64) return 1;
            memcpy(last_maps[i], arguments[map_slots[i]], 128);
        }
    ++launches;
    return function == (void*)9 && !extra ? 0 : 1;
}
int cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* address, const uint64_t* extents,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                           int swizzle, int promotion, int fill) {
    uint64_t* words = map;
    ++encodings;
    if ((uintptr_t)map % 64 || (uintptr_t)address % 16 || interleave || fill || promotion != 2) return 1;
    *words++ = type, *words++ = rank, *words++ = (uintptr_t)address, *words++ = swizzle;
    for (uint32_t i = 0; i < rank; ++i) *words++ = extents[i], *words++ = box[i], *words++ = steps[i];
    for (uint32_t i = 1; i < rank; ++i) *words++ = strides[i - 1];
    return 0;
}
_Alignas(16) uint64_t zeros[8] = {1, 1, 1, 1, 1, 1, 1, 1};
unsigned long allocations;
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
    *address = depth && bytes == 16 ? (uintptr_t)(zeros + allocations++ % 4 * 2) : 0;
    return depth ? 0 : 201;
}
int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t bytes) { memset((void*)address, value, bytes); return 0; }
int cuCtxSynchronize(void) { return depth ? 0 : 201; }
int cuGetErrorName(int status, const char** text) { *text = status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR"; return 0; }
int cuGetErrorString(int status, const char** text) { *text = status == 700 ? "an illegal memory access" : "an error"; return 0; }
