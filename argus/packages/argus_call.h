// What the generated functions of a package call. Programs that use a package need argus.h alone.
#ifndef ARGUS_CALL_H
#define ARGUS_CALL_H

#include "argus.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ARGUS_MAX_RANK 8
#define ARGUS_MAX_EXTENT (INT64_C(0x80000000) - INT64_C(0x100000))
#define ARGUS_MAX_MAPS 16
#define ARGUS_POOL_ALIGNMENT 256

// A kernel's machine code: its file and symbol, and how it is launched.
typedef struct {
    const char *file, *entry;
    int threads, shared_bytes, cluster, persistent;
} argus_binary;

// What a package needs: binaries, streams beside the caller's, and events.
typedef struct {
    int cuda;
    const argus_binary *binaries;
    int binary_count, stream_count, event_count;
} argus_table;

// A part of a tensor. Strides are in elements.
typedef struct {
    char *data;
    int rank;
    int64_t shape[ARGUS_MAX_RANK], strides[ARGUS_MAX_RANK];
} argus_view;

// How a call runs: it launches; it checks everything and launches nothing; it only asks for the workspace's size.
enum { ARGUS_RUNNING = 0, ARGUS_CHECKING = 1, ARGUS_ASKING = 2 };

// One call: where its messages go, what went wrong first, and how it runs (`dry`).
typedef struct {
    argus_package *package;
    void *stream;
    char *message;
    size_t size;
    int status, dry, bad;
} argus_call;

// A tensor map for the copy engine, 128 bytes; all sequences are in the tensor's own order of dimensions.
typedef struct {
    const argus_view *view;
    int item, arithmetic;  // bytes of an element; CUtensorMapDataType
    int box[5], swizzle_bytes;
    int counts[3], strides[3], lower[3];  // places of windows, for columns of pixels; counts of 0 for boxes
} argus_map;

int argus_open(const char *folder, const argus_table *table, int device, argus_package **package, char *message,
               size_t size);
argus_call argus_begin(argus_package *package, void *stream, char *message, size_t size);
int argus_fail(argus_call *call, int status, const char *format, ...);

// Arithmetic of sizes. Overflow and division by zero are noted in the call.
int64_t argus_add(argus_call *call, int64_t a, int64_t b);
int64_t argus_sub(argus_call *call, int64_t a, int64_t b);
int64_t argus_mul(argus_call *call, int64_t a, int64_t b);
int64_t argus_floordiv(argus_call *call, int64_t a, int64_t b);
int64_t argus_mod(argus_call *call, int64_t a, int64_t b);
int64_t argus_shl(argus_call *call, int64_t a, int64_t b);
int64_t argus_min(int64_t a, int64_t b);
int64_t argus_max(int64_t a, int64_t b);

// Checks. Each notes the first failure of the call; later ones do nothing then.
void argus_tensor(argus_call *call, argus_view *view, const DLTensor *tensor, const char *name, int code, int bits,
                  int rank);
void argus_extents(argus_call *call, const argus_view *view, const char *name);
void argus_equal(argus_call *call, const char *what, const char *name, int axis, int64_t actual, int64_t wanted);
void argus_fixed_stride(argus_call *call, const argus_view *view, const char *name, int axis, int64_t wanted);
void argus_aligned(argus_call *call, const argus_view *view, const char *name, int item, int alignment,
                   int contiguous_axes);
void argus_injective(argus_call *call, const argus_view *view, const char *name);
void argus_apart(argus_call *call, const argus_view *a, int a_item, const char *a_name, const argus_view *b, int b_item,
                 const char *b_name);
void argus_require(argus_call *call, int holds, const char *what);
void argus_number(argus_call *call, int64_t value, int64_t low, int64_t high, const char *name);

// Launches binary number `kernel`. A grid of a persistent or flat kernel counts programs along axis 0.
int argus_launch(argus_call *call, int kernel, const int64_t grid[3], int flat, void **arguments, int argument_count,
                 const argus_map *maps, int map_count);

argus_view argus_part(const argus_view *whole, int item, int rank, const int64_t *start, const int *axes,
                      const int64_t *extent);
void argus_record(argus_call *call, int event, int stream);
void argus_wait(argus_call *call, int stream, int event);
void *argus_stream(argus_call *call, int stream);
DLTensor argus_as_tensor(const argus_call *call, const argus_view *view, int code, int bits);

#ifdef __cplusplus
}
#endif
#endif
