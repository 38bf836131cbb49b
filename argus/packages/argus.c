// The loader of packages: checks, launches on the host (shared libraries) and on NVIDIA GPUs (the driver, found when
// the package is opened; no header and no library of CUDA is needed to build this file).
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "argus_call.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__GNUC__)
#define ARGUS_PRINTF __attribute__((format(printf, 3, 4)))
#else
#define ARGUS_PRINTF
#endif

typedef int (*host_launch)(void **arguments, const int *grid, int threads, int shared_bytes, int workers, char *message,
                           int size);

// Names, numbers and layouts of the CUDA driver API.
typedef struct {
    unsigned grid[3], block[3], shared_bytes;
    void *stream, *attributes;
    unsigned attribute_count;
} launch_config;
typedef struct {
    unsigned id;
    char pad[4];
    int value;
    char room[60];
} launch_attribute;
enum {
    MAX_THREADS = 0, MAX_DYNAMIC_SHARED = 8, PROGRAMMATIC_SERIALIZATION = 6, MULTIPROCESSORS = 16, CAPABILITY_MAJOR = 75,
    SHARED_OPTIN = 97, ASSERTED = 710
};

typedef struct {
    void *library;
    int (*Init)(unsigned);
    int (*DeviceGet)(int *, int);
    int (*DeviceGetAttribute)(int *, int, int);
    int (*DevicePrimaryCtxRetain)(void **, int);
    int (*DevicePrimaryCtxRelease)(int);
    int (*CtxPushCurrent)(void *);
    int (*CtxPopCurrent)(void **);
    int (*ModuleLoadData)(void **, const void *);
    int (*ModuleUnload)(void *);
    int (*ModuleGetFunction)(void **, void *, const char *);
    int (*FuncSetAttribute)(void *, int, int);
    int (*FuncGetAttribute)(int *, int, void *);
    int (*LaunchKernelEx)(const launch_config *, void *, void **, void **);
    int (*TensorMapEncodeTiled)(void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const unsigned *,
                                const unsigned *, int, int, int, int);
    int (*TensorMapEncodeIm2col)(void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const int *,
                                 const int *, unsigned, unsigned, const unsigned *, int, int, int, int);
    int (*MaxActiveBlocks)(int *, void *, int, size_t);
    int (*MaxActiveClusters)(int *, void *, const launch_config *);
    int (*MemAlloc)(uint64_t *, size_t);
    int (*MemFree)(uint64_t);
    int (*MemsetD8)(uint64_t, unsigned char, size_t);
    int (*CtxSynchronize)(void);
    int (*GetErrorString)(int, const char **);
    int (*StreamCreate)(void **, unsigned);
    int (*StreamDestroy)(void *);
    int (*StreamWaitEvent)(void *, void *, unsigned);
    int (*EventCreate)(void **, unsigned);
    int (*EventDestroy)(void *);
    int (*EventRecord)(void *, void *);
} cuda_driver;

typedef struct {
    void *library, *function;  // of the host, or the module and the function of the GPU
    int resident;              // blocks that run at once, once it is known
    uint64_t zeros;            // memory that stands for empty tensors in tensor maps
} loaded;

struct argus_package {
    const argus_table *table;
    int device, overlaps, workers;
    cuda_driver cuda;
    void *context;
    loaded *kernels;
    void **streams, **events;
};

// ---------------------------------------------------------------------------- messages

argus_call argus_begin(argus_package *package, void *stream, char *message, size_t size)
{
    argus_call call = {package, stream, message, size, ARGUS_OK, 0, 0};
    if (size > 0) message[0] = '\0';
    return call;
}

ARGUS_PRINTF int argus_fail(argus_call *call, int status, const char *format, ...)
{
    if (call->status != ARGUS_OK) return call->status;
    call->status = status;
    if (call->size > 0) {
        va_list list;
        va_start(list, format);
        vsnprintf(call->message, call->size, format, list);
        va_end(list);
    }
    return status;
}

static int cuda_failed(argus_call *call, int status, const char *doing)
{
    const char *text = "unknown error";
    if (!status) return ARGUS_OK;
    call->package->cuda.GetErrorString(status, &text);
    return argus_fail(call, ARGUS_DEVICE, "driver-failed: the CUDA driver could not %s: %s (%d)", doing, text, status);
}

// ---------------------------------------------------------------------------- arithmetic

int64_t argus_add(argus_call *call, int64_t a, int64_t b)
{
    int64_t result = 0;
    if (__builtin_add_overflow(a, b, &result)) call->bad = 1;
    return result;
}

int64_t argus_sub(argus_call *call, int64_t a, int64_t b)
{
    int64_t result = 0;
    if (__builtin_sub_overflow(a, b, &result)) call->bad = 1;
    return result;
}

int64_t argus_mul(argus_call *call, int64_t a, int64_t b)
{
    int64_t result = 0;
    if (__builtin_mul_overflow(a, b, &result)) call->bad = 1;
    return result;
}

int64_t argus_floordiv(argus_call *call, int64_t a, int64_t b)
{
    if (b == 0 || (b == -1 && a == INT64_MIN)) {
        call->bad = 1;
        return 0;
    }
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

int64_t argus_mod(argus_call *call, int64_t a, int64_t b)
{
    if (b == 0 || b == -1) {
        call->bad |= b == 0;
        return 0;
    }
    return a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);
}

int64_t argus_shl(argus_call *call, int64_t a, int64_t b)
{
    if (b < 0 || b > 62) {
        call->bad = 1;
        return 0;
    }
    return argus_mul(call, a, INT64_C(1) << b);
}

int64_t argus_min(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t argus_max(int64_t a, int64_t b) { return a > b ? a : b; }

// ---------------------------------------------------------------------------- checks

static int empty(const argus_view *view)
{
    for (int axis = 0; axis < view->rank; axis++)
        if (view->shape[axis] == 0) return 1;
    return 0;
}

void argus_tensor(argus_call *call, argus_view *view, const DLTensor *tensor, const char *name, int code, int bits,
                  int rank)
{
    memset(view, 0, sizeof *view);
    if (call->status) return;
    if (tensor == NULL) {
        argus_fail(call, ARGUS_ARGUMENT, "argument-type: `%s` is NULL", name);
        return;
    }
    if (tensor->dtype.code != code || tensor->dtype.bits != bits || tensor->dtype.lanes != 1) {
        argus_fail(call, ARGUS_ARGUMENT, "dtype-mismatch: `%s` has type code %d of %d bits; the kernel takes code %d of %d bits",
                   name, tensor->dtype.code, tensor->dtype.bits, code, bits);
        return;
    }
    if (tensor->ndim != rank) {
        argus_fail(call, ARGUS_ARGUMENT, "shape-mismatch: `%s` has %d dimensions; the kernel takes %d", name,
                   (int)tensor->ndim, rank);
        return;
    }
    const int cuda = call->package->table->cuda;
    if ((tensor->device.device_type == kDLCUDA) != cuda || (!cuda && tensor->device.device_type != kDLCPU) ||
        (cuda && tensor->device.device_id != call->package->device)) {
        argus_fail(call, ARGUS_ARGUMENT, "device-mismatch: `%s` is on device %d of type %d; the package is open on %s %d", name,
                   (int)tensor->device.device_id, (int)tensor->device.device_type, cuda ? "CUDA device" : "the host,",
                   call->package->device);
        return;
    }
    view->rank = rank;
    int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
        view->shape[axis] = tensor->shape[axis];
        view->strides[axis] = tensor->strides != NULL ? tensor->strides[axis] : stride;
        stride = argus_mul(call, stride, tensor->shape[axis] > 0 ? tensor->shape[axis] : 1);
    }
    view->data = (char *)tensor->data + tensor->byte_offset;
    argus_extents(call, view, name);
    if (tensor->data == NULL && !empty(view))
        argus_fail(call, ARGUS_ARGUMENT, "argument-type: `%s` has elements and no memory", name);
}

void argus_extents(argus_call *call, const argus_view *view, const char *name)
{
    for (int axis = 0; axis < view->rank; axis++)
        if (view->shape[axis] < 0 || view->shape[axis] > ARGUS_MAX_EXTENT)
            argus_fail(call, ARGUS_ARGUMENT, "extent-too-large: dimension %d of `%s` has %lld elements; the most is %lld", axis,
                       name, (long long)view->shape[axis], (long long)ARGUS_MAX_EXTENT);
}

void argus_equal(argus_call *call, const char *what, const char *name, int axis, int64_t actual, int64_t wanted)
{
    if (actual != wanted)
        argus_fail(call, ARGUS_ARGUMENT, "shape-mismatch: `%s` is %lld in dimension %d of `%s`, and %lld before", what,
                   (long long)actual, axis, name, (long long)wanted);
}

void argus_fixed_stride(argus_call *call, const argus_view *view, const char *name, int axis, int64_t wanted)
{
    if (view->shape[axis] > 1 && view->strides[axis] != wanted && !empty(view))
        argus_fail(call, ARGUS_ARGUMENT, "stride-mismatch: dimension %d of `%s` has stride %lld; the kernel takes %lld", axis,
                   name, (long long)view->strides[axis], (long long)wanted);
}

void argus_aligned(argus_call *call, const argus_view *view, const char *name, int item, int alignment,
                   int contiguous_axes)
{
    int wrong = (uintptr_t)view->data % (uintptr_t)alignment != 0;
    for (int axis = 0; axis < view->rank; axis++) {
        const int64_t quantity = contiguous_axes >> axis & 1 ? view->shape[axis] : view->strides[axis];
        wrong |= quantity % (alignment / item > 0 ? alignment / item : 1) != 0;
    }
    if (wrong)
        argus_fail(call, ARGUS_ARGUMENT, "misaligned-argument: the address, the strides and the rows of `%s` must be multiples of %d bytes",
                   name, alignment);
}

void argus_injective(argus_call *call, const argus_view *view, const char *name)
{
    int used[ARGUS_MAX_RANK] = {0};
    int64_t reach = 0;
    if (call->status || empty(view)) return;
    for (int turn = 0; turn < view->rank; turn++) {
        int next = -1;
        for (int axis = 0; axis < view->rank; axis++)
            if (!used[axis] && view->shape[axis] > 1 &&
                (next < 0 || llabs(view->strides[axis]) < llabs(view->strides[next])))
                next = axis;
        if (next < 0) return;
        used[next] = 1;
        if (llabs(view->strides[next]) <= reach) {
            argus_fail(call, ARGUS_ARGUMENT, "output-overlaps-itself: the strides of `%s` give several elements one address", name);
            return;
        }
        reach = argus_add(call, reach, argus_mul(call, view->shape[next] - 1, llabs(view->strides[next])));
    }
}

static void range(argus_call *call, const argus_view *view, int item, int64_t *low, int64_t *high)
{
    *low = 0, *high = item;
    for (int axis = 0; axis < view->rank; axis++) {
        const int64_t reach = argus_mul(call, argus_mul(call, view->shape[axis] - 1, view->strides[axis]), item);
        *low = argus_add(call, *low, reach < 0 ? reach : 0);
        *high = argus_add(call, *high, reach > 0 ? reach : 0);
    }
}

void argus_apart(argus_call *call, const argus_view *a, int a_item, const char *a_name, const argus_view *b, int b_item,
                 const char *b_name)
{
    int64_t a_low, a_high, b_low, b_high;
    if (call->status || empty(a) || empty(b)) return;
    range(call, a, a_item, &a_low, &a_high);
    range(call, b, b_item, &b_low, &b_high);
    const int64_t apart = (int64_t)((uintptr_t)a->data - (uintptr_t)b->data);
    if (apart > b_low - a_high && apart < b_high - a_low)
        argus_fail(call, ARGUS_ARGUMENT, "overlapping-output: `%s` is written, and overlaps `%s` in memory", a_name, b_name);
}

void argus_require(argus_call *call, int holds, const char *what)
{
    if (!holds) argus_fail(call, ARGUS_ARGUMENT, "precondition-failed: requires `%s`", what);
}

void argus_number(argus_call *call, int64_t value, int64_t low, int64_t high, const char *name)
{
    if (value < low || value > high)
        argus_fail(call, ARGUS_ARGUMENT, "scalar-argument: `%s` is %lld, outside of its type", name, (long long)value);
}

// ---------------------------------------------------------------------------- parts, streams, events

argus_view argus_part(const argus_view *whole, int item, int rank, const int64_t *start, const int *axes,
                      const int64_t *extent)
{
    argus_view part = *whole;
    part.rank = rank;
    for (int axis = 0; axis < whole->rank; axis++) part.data += start[axis] * whole->strides[axis] * item;
    for (int axis = 0; axis < rank; axis++) {
        part.shape[axis] = extent[axis];
        part.strides[axis] = whole->strides[axes[axis]];
    }
    return part;
}

void *argus_stream(argus_call *call, int stream)
{
    return stream < 0 || !call->package->table->cuda ? call->stream : call->package->streams[stream];
}

void argus_record(argus_call *call, int event, int stream)
{
    argus_package *p = call->package;
    if (call->dry || call->status || !p->table->cuda) return;
    cuda_failed(call, p->cuda.EventRecord(p->events[event], argus_stream(call, stream)), "record an event");
}

void argus_wait(argus_call *call, int stream, int event)
{
    argus_package *p = call->package;
    if (call->dry || call->status || !p->table->cuda) return;
    cuda_failed(call, p->cuda.StreamWaitEvent(argus_stream(call, stream), p->events[event], 0), "wait for an event");
}

DLTensor argus_as_tensor(const argus_call *call, const argus_view *view, int code, int bits)
{
    DLTensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.data = view->data;
    tensor.device.device_type = call->package->table->cuda ? kDLCUDA : kDLCPU;
    tensor.device.device_id = call->package->device;
    tensor.ndim = view->rank;
    tensor.dtype.code = (uint8_t)code, tensor.dtype.bits = (uint8_t)bits, tensor.dtype.lanes = 1;
    tensor.shape = (int64_t *)view->shape;
    tensor.strides = (int64_t *)view->strides;
    return tensor;
}

// ---------------------------------------------------------------------------- launches

#define MAP_BYTES 128
#define MAP_ALIGNMENT 64

typedef struct {
    uint64_t base;
    int64_t strides[5];
    int extents[5], box[5], rank, item, swizzle, counts[3];
    short lower[3], steps[3];
    unsigned char unused[4];
} host_map;

static int encode(argus_call *call, loaded *kernel, const argus_map *map, char *place)
{
    argus_package *p = call->package;
    const argus_view *view = map->view;
    const int rank = view->rank, none = empty(view);
    if (!p->table->cuda) {
        host_map made;
        memset(&made, 0, sizeof made);
        made.base = (uint64_t)(uintptr_t)view->data;
        made.rank = rank, made.item = map->item, made.swizzle = map->swizzle_bytes;
        for (int i = 0; i < rank; i++) {
            const int axis = rank - 1 - i;
            made.strides[i] = view->strides[axis] * map->item;
            made.extents[i] = (int)view->shape[axis];
            made.box[i] = map->box[axis];
        }
        for (int i = 0; map->counts[0] && i < rank - 2; i++) {
            const int place = rank - 3 - i;
            made.counts[i] = map->counts[place];
            made.lower[i] = (short)map->lower[place], made.steps[i] = (short)map->strides[place];
        }
        memcpy(place, &made, MAP_BYTES);
        return ARGUS_OK;
    }
    uint64_t extents[5], strides[5];
    unsigned box[5], steps[5];
    int lower[3], upper[3];
    for (int i = 0; i < rank; i++) {
        const int axis = rank - 1 - i;
        const int64_t stride = view->strides[axis] * map->item;
        if (i > 0 && (stride % 16 != 0 || stride < 0 || stride >= INT64_C(1) << 40))
            return argus_fail(call, ARGUS_ARGUMENT,
                              "tensor-map-refused: a stride is %lld bytes; the copy engine takes multiples of 16 below 2**40",
                              (long long)stride);
        const int place = map->counts[0] && 0 < i && i < rank - 1;
        extents[i] = none && !place ? 1 : (uint64_t)view->shape[axis];
        if (i > 0) strides[i - 1] = !none ? (uint64_t)stride : map->counts[0] ? 0 : 16;
        box[i] = (unsigned)map->box[axis], steps[i] = 1;
    }
    void *address = view->data;
    if (none) {  // the driver describes no empty tensor: zeros of our own stand for it
        if (kernel->zeros == 0) {
            int status = p->cuda.MemAlloc(&kernel->zeros, 16 * ARGUS_MAX_MAPS);
            if (!status) status = p->cuda.MemsetD8(kernel->zeros, 0, 16 * ARGUS_MAX_MAPS);
            if (!status) status = p->cuda.CtxSynchronize();
            if (status) return cuda_failed(call, status, "allocate memory");
        }
        address = (void *)(uintptr_t)kernel->zeros;
    }
    const int swizzle = map->swizzle_bytes == 128 ? 3 : map->swizzle_bytes == 64 ? 2 : map->swizzle_bytes == 32 ? 1 : 0;
    for (int i = 0; map->counts[0] && i < rank - 2; i++) {
        const int axis = rank - 3 - i;
        steps[i + 1] = (unsigned)map->strides[axis], lower[i] = map->lower[axis];
        upper[i] = lower[i] + (map->counts[axis] - 1) * map->strides[axis] + 1 - (int)view->shape[axis + 1];
    }
    const int status =
        map->counts[0] ? p->cuda.TensorMapEncodeIm2col(place, map->arithmetic, (unsigned)rank, address, extents, strides,
                                                       lower, upper, box[0], box[rank - 1], steps, 0, swizzle, 2, 0)
                       : p->cuda.TensorMapEncodeTiled(place, map->arithmetic, (unsigned)rank, address, extents, strides,
                                                      box, steps, 0, swizzle, 2, 0);
    return cuda_failed(call, status, "describe a tensor to the copy engine");
}

static int resident(argus_call *call, loaded *kernel, const argus_binary *binary)
{
    argus_package *p = call->package;
    int count = 0, all = 1, status;
    if (kernel->resident) return kernel->resident;
    if (!p->table->cuda) return kernel->resident = 2;
    if (binary->cluster > 1) {
        launch_config config = {{(unsigned)binary->cluster, 1, 1}, {(unsigned)binary->threads, 1, 1},
                                (unsigned)binary->shared_bytes, NULL, NULL, 0};
        status = p->cuda.MaxActiveClusters(&count, kernel->function, &config);
        all = binary->cluster;
    } else {
        status = p->cuda.MaxActiveBlocks(&count, kernel->function, binary->threads, (size_t)binary->shared_bytes);
        if (!status) status = p->cuda.DeviceGetAttribute(&all, MULTIPROCESSORS, p->device);
    }
    if (cuda_failed(call, status, "count the blocks that run at once")) return 0;
    return kernel->resident = (count > 0 ? count : 1) * all;
}

static int start(argus_call *call, loaded *kernel, const argus_binary *binary, const int *grid, void **arguments)
{
    argus_package *p = call->package;
    if (!p->table->cuda) {
        char text[512] = "";
        host_launch launch;
        memcpy(&launch, &kernel->function, sizeof launch);
        const int status = launch(arguments, grid, binary->threads, binary->shared_bytes, p->workers, text, sizeof text);
        return status ? argus_fail(call, ARGUS_KERNEL, "kernel-failed: %s", text) : ARGUS_OK;
    }
    launch_attribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = PROGRAMMATIC_SERIALIZATION, attribute.value = 1;
    launch_config config = {{(unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2]}, {(unsigned)binary->threads, 1, 1},
                            (unsigned)binary->shared_bytes, call->stream, &attribute, (unsigned)p->overlaps};
    const int status = p->cuda.LaunchKernelEx(&config, kernel->function, arguments, NULL);
    if (status == ASSERTED) return argus_fail(call, ARGUS_KERNEL, "device-assert: a condition of an earlier launch failed");
    return cuda_failed(call, status, "launch a kernel");
}

static int three(argus_call *call, const int64_t *grid, int flat, int blocks[3])
{
    static const int64_t limits[3] = {0x7fffffff, 65535, 65535};
    int64_t programs = 1;
    for (int axis = 0; axis < 3; axis++) {
        programs = argus_mul(call, programs, grid[axis]);
        blocks[axis] = (int)grid[axis];
        if (grid[axis] < 0 || (!flat && grid[axis] > limits[axis]))
            return argus_fail(call, ARGUS_ARGUMENT, "grid-too-large: axis %d of the grid has %lld blocks", axis,
                              (long long)grid[axis]);
    }
    if (flat && programs > ARGUS_MAX_EXTENT)
        return argus_fail(call, ARGUS_ARGUMENT, "grid-too-large: the grid has %lld programs", (long long)programs);
    if (flat) blocks[0] = (int)programs, blocks[1] = blocks[2] = 1;
    return ARGUS_OK;
}

int argus_launch(argus_call *call, int number, const int64_t grid[3], int flat, void **arguments, int argument_count,
                 const argus_map *maps, int map_count)
{
    argus_package *p = call->package;
    loaded *kernel = &p->kernels[number];
    const argus_binary *binary = &p->table->binaries[number];
    char room[MAP_BYTES * ARGUS_MAX_MAPS + MAP_ALIGNMENT];
    char *first = room + (MAP_ALIGNMENT - (uintptr_t)room % MAP_ALIGNMENT) % MAP_ALIGNMENT;
    int blocks[3];
    if (call->bad) return argus_fail(call, ARGUS_ARGUMENT, "size-overflow: a size exceeds 64 bits, or divides by zero");
    if (call->status || three(call, grid, flat, blocks)) return call->status;
    if (blocks[0] == 0 || blocks[1] == 0 || blocks[2] == 0) return ARGUS_OK;
    void *previous = NULL;
    if (p->table->cuda && cuda_failed(call, p->cuda.CtxPushCurrent(p->context), "select the device")) return call->status;
    for (int i = 0; i < map_count && !call->status; i++) {
        arguments[argument_count - map_count + i] = first + MAP_BYTES * i;
        encode(call, kernel, &maps[i], first + MAP_BYTES * i);
    }
    if (!call->status && binary->persistent) {
        const int most = resident(call, kernel, binary);
        blocks[0] = blocks[0] < most ? blocks[0] : most;
    }
    if (!call->status && !call->dry) start(call, kernel, binary, blocks, arguments);
    if (p->table->cuda) p->cuda.CtxPopCurrent(&previous);
    return call->status;
}

// ---------------------------------------------------------------------------- opening and closing

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *data = NULL;
    if (file == NULL) return NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        const long end = ftell(file);
        if (end >= 0 && fseek(file, 0, SEEK_SET) == 0 && (data = (char *)malloc((size_t)end + 1)) != NULL) {
            *size = fread(data, 1, (size_t)end, file);
            data[*size] = '\0';
        }
    }
    fclose(file);
    return data;
}

static void load_symbol(cuda_driver *cuda, const char *name, void *place, int *missing)
{
    void *found = dlsym(cuda->library, name);
    if (found == NULL) *missing = 1;
    memcpy(place, &found, sizeof found);
}

static int open_driver(argus_call *call)
{
    cuda_driver *c = &call->package->cuda;
    int missing = 0;
    c->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (c->library == NULL) return argus_fail(call, ARGUS_DEVICE, "driver-missing: no CUDA driver was found (libcuda.so.1)");
#define SYMBOL(field, name) load_symbol(c, name, &c->field, &missing)
    SYMBOL(Init, "cuInit");
    SYMBOL(DeviceGet, "cuDeviceGet");
    SYMBOL(DeviceGetAttribute, "cuDeviceGetAttribute");
    SYMBOL(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    SYMBOL(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
    SYMBOL(CtxPushCurrent, "cuCtxPushCurrent_v2");
    SYMBOL(CtxPopCurrent, "cuCtxPopCurrent_v2");
    SYMBOL(ModuleLoadData, "cuModuleLoadData");
    SYMBOL(ModuleUnload, "cuModuleUnload");
    SYMBOL(ModuleGetFunction, "cuModuleGetFunction");
    SYMBOL(FuncSetAttribute, "cuFuncSetAttribute");
    SYMBOL(FuncGetAttribute, "cuFuncGetAttribute");
    SYMBOL(LaunchKernelEx, "cuLaunchKernelEx");
    SYMBOL(TensorMapEncodeTiled, "cuTensorMapEncodeTiled");
    SYMBOL(TensorMapEncodeIm2col, "cuTensorMapEncodeIm2col");
    SYMBOL(MaxActiveBlocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    SYMBOL(MaxActiveClusters, "cuOccupancyMaxActiveClusters");
    SYMBOL(MemAlloc, "cuMemAlloc_v2");
    SYMBOL(MemFree, "cuMemFree_v2");
    SYMBOL(MemsetD8, "cuMemsetD8_v2");
    SYMBOL(CtxSynchronize, "cuCtxSynchronize");
    SYMBOL(GetErrorString, "cuGetErrorString");
    SYMBOL(StreamCreate, "cuStreamCreate");
    SYMBOL(StreamDestroy, "cuStreamDestroy_v2");
    SYMBOL(StreamWaitEvent, "cuStreamWaitEvent");
    SYMBOL(EventCreate, "cuEventCreate");
    SYMBOL(EventDestroy, "cuEventDestroy_v2");
    SYMBOL(EventRecord, "cuEventRecord");
#undef SYMBOL
    if (missing) return argus_fail(call, ARGUS_DEVICE, "driver-missing: the CUDA driver is too old");
    return ARGUS_OK;
}

static int open_device(argus_call *call)
{
    argus_package *p = call->package;
    int major = 0, device = 0;
    if (open_driver(call)) return call->status;
    if (cuda_failed(call, p->cuda.Init(0), "start")) return call->status;
    if (cuda_failed(call, p->cuda.DeviceGet(&device, p->device), "find the device")) return call->status;
    if (cuda_failed(call, p->cuda.DevicePrimaryCtxRetain(&p->context, device), "use the device")) return call->status;
    if (cuda_failed(call, p->cuda.DeviceGetAttribute(&major, CAPABILITY_MAJOR, device), "ask the device")) return call->status;
    p->overlaps = major >= 9;
    return ARGUS_OK;
}

static int load_host(argus_call *call, loaded *kernel, const char *path)
{
    kernel->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    kernel->function = kernel->library != NULL ? dlsym(kernel->library, "argus_cpu_launch") : NULL;
    if (kernel->function == NULL) return argus_fail(call, ARGUS_FILE, "module-not-loaded: %s", dlerror());
    return ARGUS_OK;
}

static int load_device(argus_call *call, loaded *kernel, const argus_binary *binary, const char *path)
{
    argus_package *p = call->package;
    size_t size = 0;
    int threads = 0, limit = 0, status;
    char *code = read_file(path, &size);
    if (code == NULL) return argus_fail(call, ARGUS_FILE, "unreadable-file: cannot read %s", path);
    status = p->cuda.ModuleLoadData(&kernel->library, code);
    free(code);
    if (cuda_failed(call, status, "load a kernel")) return call->status;
    status = p->cuda.ModuleGetFunction(&kernel->function, kernel->library, binary->entry);
    if (cuda_failed(call, status, "find the entry point")) return call->status;
    status = p->cuda.DeviceGetAttribute(&limit, SHARED_OPTIN, p->device);
    if (!status && binary->shared_bytes > limit)
        return argus_fail(call, ARGUS_DEVICE, "too-much-memory: a block needs %d bytes of shared memory, and has %d",
                          binary->shared_bytes, limit);
    if (!status) status = p->cuda.FuncSetAttribute(kernel->function, MAX_DYNAMIC_SHARED, binary->shared_bytes);
    if (!status) status = p->cuda.FuncGetAttribute(&threads, MAX_THREADS, kernel->function);
    if (cuda_failed(call, status, "set aside shared memory")) return call->status;
    if (threads < binary->threads)
        return argus_fail(call, ARGUS_DEVICE, "too-many-threads: a block has %d threads, and %d fit", binary->threads, threads);
    return ARGUS_OK;
}

static int load_all(argus_call *call, const char *folder)
{
    argus_package *p = call->package;
    const argus_table *table = p->table;
    for (int i = 0; i < table->binary_count && !call->status; i++) {
        char path[4096];
        const int length = snprintf(path, sizeof path, "%s/%s", folder, table->binaries[i].file);
        if (length < 0 || (size_t)length >= sizeof path) return argus_fail(call, ARGUS_FILE, "unreadable-file: the path is too long");
        if (table->cuda)
            load_device(call, &p->kernels[i], &table->binaries[i], path);
        else
            load_host(call, &p->kernels[i], path);
    }
    if (!table->cuda) return call->status;
    for (int i = 0; i < table->stream_count && !call->status; i++)
        cuda_failed(call, p->cuda.StreamCreate(&p->streams[i], 1), "make a stream");  // 1: apart from the default stream
    for (int i = 0; i < table->event_count && !call->status; i++)
        cuda_failed(call, p->cuda.EventCreate(&p->events[i], 2), "make an event");  // 2: without times
    return call->status;
}

int argus_open(const char *folder, const argus_table *table, int device, argus_package **package, char *message,
               size_t size)
{
    argus_package *p = (argus_package *)calloc(1, sizeof *p);
    argus_call call = argus_begin(p, NULL, message, size);
    *package = NULL;
    if (p == NULL) return argus_fail(&call, ARGUS_DEVICE, "out of memory");
    p->table = table, p->device = table->cuda ? device : 0;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    p->workers = cores > 0 ? (int)cores : 1;
    p->kernels = (loaded *)calloc((size_t)table->binary_count + 1, sizeof *p->kernels);
    p->streams = (void **)calloc((size_t)table->stream_count + 1, sizeof *p->streams);
    p->events = (void **)calloc((size_t)table->event_count + 1, sizeof *p->events);
    if (p->kernels == NULL || p->streams == NULL || p->events == NULL) argus_fail(&call, ARGUS_DEVICE, "out of memory");
    if (table->cuda && !call.status) open_device(&call);
    if (!call.status) {
        void *previous = NULL;
        if (table->cuda) cuda_failed(&call, p->cuda.CtxPushCurrent(p->context), "select the device");
        load_all(&call, folder);
        if (table->cuda) p->cuda.CtxPopCurrent(&previous);
    }
    if (call.status)
        argus_close(p);
    else
        *package = p;
    return call.status;
}

void argus_close(argus_package *p)
{
    void *previous = NULL;
    if (p == NULL) return;
    const int cuda = p->table->cuda && p->context != NULL;
    if (cuda) p->cuda.CtxPushCurrent(p->context);
    for (int i = 0; p->kernels != NULL && i < p->table->binary_count; i++) {
        if (p->kernels[i].zeros != 0) p->cuda.MemFree(p->kernels[i].zeros);
        if (p->kernels[i].library == NULL) continue;
        if (p->table->cuda)
            p->cuda.ModuleUnload(p->kernels[i].library);
        else
            dlclose(p->kernels[i].library);
    }
    for (int i = 0; cuda && p->streams != NULL && i < p->table->stream_count; i++)
        if (p->streams[i] != NULL) p->cuda.StreamDestroy(p->streams[i]);
    for (int i = 0; cuda && p->events != NULL && i < p->table->event_count; i++)
        if (p->events[i] != NULL) p->cuda.EventDestroy(p->events[i]);
    if (cuda) p->cuda.CtxPopCurrent(&previous);
    if (cuda) p->cuda.DevicePrimaryCtxRelease(p->device);
    if (p->cuda.library != NULL) dlclose(p->cuda.library);
    free(p->kernels), free(p->streams), free(p->events), free(p);
}
