/* Stands in for libamdhip64, with the signatures of hip_runtime_api.h: notes what a launch gets. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int hipError_t;
typedef struct Module* hipModule_t;
typedef struct Function* hipFunction_t;
typedef struct Stream* hipStream_t;

static const hipModule_t module_handle = (hipModule_t)0x7777777777777777;
static const hipFunction_t function_handle = (hipFunction_t)0x9999999999999999;

char calls[4096]; /* the names of calls, in order */
char asked_entry[256];
const void* image;
unsigned last_grid[3], last_block[3], last_shared;
uint64_t last_stream, last_values[16];
long launches;
int arguments = 4; /* of the kernel */
int widths[16] = {8, 8, 8, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
int current, launched_on, devices = 2, fail_next_launch, max_threads = 1024;

static void note(const char* name) {
    if (strlen(calls) + strlen(name) + 2 < sizeof calls) strcat(strcat(calls, name), " ");
}

hipError_t hipGetDevice(int* device) { *device = current; return 0; }
hipError_t hipSetDevice(int device) {
    if (device < 0 || device >= devices) return 101;
    current = device;
    return 0;
}
hipError_t hipDeviceGetAttribute(int* value, int attribute, int device) {
    if (device >= devices || (attribute != 63 && attribute != 74)) return 1;
    *value = attribute == 63 ? 304 : 65536;
    return 0;
}
hipError_t hipModuleLoadData(hipModule_t* module, const void* data) {
    note("load");
    image = data;
    *module = module_handle;
    return memcmp(data, "\177ELF", 4) ? 209 : 0;
}
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
    note("find");
    strncpy(asked_entry, name, sizeof asked_entry - 1);
    *function = function_handle;
    return module == module_handle && strcmp(name, "absent") ? 0 : 500;
}
hipError_t hipFuncGetAttribute(int* value, int attribute, hipFunction_t function) {
    *value = max_threads;
    return function == function_handle && attribute == 0 ? 0 : 1;
}
hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, hipFunction_t function, int threads,
                                                              size_t dynamic_shared) {
    *blocks = threads > 512 ? 1 : 2;
    return function == function_handle && dynamic_shared == 0 ? 0 : 1;
}
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                 hipStream_t stream, void** values, void** extra) {
    const int status = fail_next_launch;
    fail_next_launch = 0;
    if (status) return status;
    note("launch");
    if (function != function_handle || !values || extra) return 1;
    last_grid[0] = grid_x, last_grid[1] = grid_y, last_grid[2] = grid_z;
    last_block[0] = block_x, last_block[1] = block_y, last_block[2] = block_z;
    last_shared = shared, last_stream = (uintptr_t)stream;
    for (int i = 0; i < arguments; ++i) {
        if (!values[i]) return 1;
        last_values[i] = 0;
        memcpy(&last_values[i], values[i], widths[i]);
    }
    launched_on = current;
    ++launches;
    return 0;
}
const char* hipGetErrorName(hipError_t status) { return status == 700 ? "hipErrorIllegalAddress" : "hipError"; }
const char* hipGetErrorString(hipError_t status) { return status == 700 ? "an illegal memory access" : "an error"; }
