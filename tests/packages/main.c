/* Calls a package from C: right arguments, then wrong ones. Results go to standard output as they are in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demo.h"

#define N 96
#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, message); \
            return 1;                                                           \
        }                                                                       \
    } while (0)

static char message[256];

static DLTensor tensor(void *data, int code, int bits, int rank, int64_t *shape)
{
    DLTensor t;
    memset(&t, 0, sizeof t);
    t.data = data, t.device.device_type = kDLCPU, t.ndim = rank, t.shape = shape;
    t.dtype.code = (uint8_t)code, t.dtype.bits = (uint8_t)bits, t.dtype.lanes = 1;
    return t;
}

static int doubled(void *context, const char *name, const DLTensor *reads, int read_count, const DLTensor *writes,
                   int write_count, void *stream)
{
    (void)stream;
    if (strcmp(name, "all_reduce") != 0 || read_count != 1 || write_count != 1) return 1;
    const float *from = (const float *)reads[0].data;
    float *to = (float *)writes[0].data;
    for (int64_t i = 0; i < reads[0].shape[0]; i++) to[i] = 2 * from[i];
    ++*(int *)context;
    return 0;
}

static int wrong(argus_package *package, float *x, float *y)
{
    int64_t shape[1] = {N}, less[1] = {N - 4}, two[2] = {8, N / 8}, stride[1] = {2};
    DLTensor a = tensor(x, kDLFloat, 32, 1, shape), b = tensor(y, kDLFloat, 32, 1, shape), c;
    for (int i = 0; i < N; i++) y[i] = -1;
#define REFUSED(call, word)                                              \
    do {                                                                 \
        CHECK((call) == ARGUS_ARGUMENT && strstr(message, word) != NULL); \
        for (int i = 0; i < N; i++) CHECK(y[i] == -1);                   \
    } while (0)
    c = b, c.shape = less;
    REFUSED(demo_scale(package, &a, &c, 2.0f, NULL, message, sizeof message), "shape-mismatch");
    c = b, c.dtype.code = kDLInt;
    REFUSED(demo_scale(package, &a, &c, 2.0f, NULL, message, sizeof message), "dtype-mismatch: `y`");
    c = b, c.ndim = 2, c.shape = two;
    REFUSED(demo_scale(package, &a, &c, 2.0f, NULL, message, sizeof message), "shape-mismatch: `y` has 2 dimensions");
    c = b, c.device.device_type = kDLCUDA;
    REFUSED(demo_scale(package, &a, &c, 2.0f, NULL, message, sizeof message), "device-mismatch");
    c = b, c.strides = stride;
    REFUSED(demo_scale(package, &a, &c, 2.0f, NULL, message, sizeof message), "stride-mismatch");
    c = b, c.byte_offset = 4, c.shape = less;
    a.shape = less;
    REFUSED(demo_scale(package, &a, &c, 2.0f, NULL, message, sizeof message), "misaligned-argument: the address");
    a.shape = shape;
    REFUSED(demo_scale(package, &b, &b, 2.0f, NULL, message, sizeof message), "overlapping-output");
    REFUSED(demo_scale(package, NULL, &b, 2.0f, NULL, message, sizeof message), "argument-type: `x` is NULL");
    c = b, c.data = NULL;
    REFUSED(demo_scale(package, &a, &c, 2.0f, NULL, message, sizeof message), "no memory");
    REFUSED(demo_twice(package, &a, &b, NULL, 0, NULL, message, sizeof message), "workspace-too-small: 512 bytes");
    REFUSED(demo_twice(package, &a, &b, x, 1 << 20, NULL, message, sizeof message), "overlapping-output: `workspace`");
    REFUSED(demo_chunks(package, &a, &b, x, 0, NULL, message, sizeof message), "workspace-too-small");
    a.shape = less, c = b, c.shape = less;
    REFUSED(demo_chunks(package, &a, &c, NULL, 0, NULL, message, sizeof message), "requires `(N % 32) == 0`");
    CHECK(demo_scale(package, NULL, &b, 2.0f, NULL, NULL, 0) == ARGUS_ARGUMENT);
    return 0;
}

int main(int count, char **arguments)
{
    int64_t shape[1] = {N}, matrix[2] = {8, N / 8}, few[1] = {12};
    argus_package *package;
    float *x = aligned_alloc(256, 4096), *y = aligned_alloc(256, 4096);
    int32_t *index = aligned_alloc(256, 4096);
    char *workspace = aligned_alloc(256, 65536);
    size_t bytes;
    int calls = 0;
    if (count < 2 || x == NULL || y == NULL || index == NULL || workspace == NULL) return 2;
    for (int i = 0; i < N; i++) x[i] = (float)(i % 7) * 0.3f - 1;
    for (int i = 0; i < 12; i++) index[i] = (i * 5) % N;
    CHECK(demo_open("/nowhere", 0, &package, message, sizeof message) == ARGUS_FILE && package == NULL);
    CHECK(demo_open(arguments[1], 0, &package, message, sizeof message) == ARGUS_OK);
    DLTensor a = tensor(x, kDLFloat, 32, 1, shape), b = tensor(y, kDLFloat, 32, 1, shape);
    DLTensor at = tensor(index, kDLInt, 32, 1, few), picked = tensor(y, kDLFloat, 32, 1, few);
    if (wrong(package, x, y)) return 1;
    CHECK(demo_scale(package, &a, &b, 0.7f, NULL, message, sizeof message) == ARGUS_OK);
    fwrite(y, 4, N, stdout);
    CHECK(demo_twice_workspace(package, &a, &b, &bytes, message, sizeof message) == ARGUS_OK && bytes == 512);
    CHECK(demo_twice(package, &a, &b, workspace, bytes, NULL, message, sizeof message) == ARGUS_OK);
    fwrite(y, 4, N, stdout);
    CHECK(demo_chunks(package, &a, &b, workspace, 65536, NULL, message, sizeof message) == ARGUS_OK);
    fwrite(y, 4, N, stdout);
    CHECK(demo_picked(package, &a, &at, &picked, 0.5f, 1, workspace, 65536, NULL, message, sizeof message) == ARGUS_OK);
    fwrite(y, 4, 12, stdout);
    CHECK(demo_picked(package, &a, &at, &picked, 0.5f, -1, workspace, 65536, NULL, message, sizeof message) == ARGUS_OK);
    fwrite(y, 4, 12, stdout);
    CHECK(demo_reduced(package, &a, &b, workspace, 65536, NULL, NULL, NULL, message, sizeof message) == ARGUS_ARGUMENT);
    CHECK(demo_reduced(package, &a, &b, workspace, 65536, NULL, doubled, &calls, message, sizeof message) == ARGUS_OK);
    CHECK(calls == 1);
    fwrite(y, 4, N, stdout);
    a = tensor(x, kDLFloat, 32, 2, matrix), b = tensor(y, kDLFloat, 32, 2, matrix);
    CHECK(demo_ring(package, &a, &b, workspace, 65536, NULL, message, sizeof message) == ARGUS_OK);
    fwrite(y, 4, N, stdout);
    argus_close(package);
    free(x), free(y), free(index), free(workspace);
    return 0;
}
