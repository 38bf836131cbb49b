// Packages of proved kernels and programs, called from C, C++, and every language that calls C.
//
// Tensors are those of DLPack. Include dlpack.h before this file if you use it; otherwise its types are declared here.
// Every function returns ARGUS_OK, or another code and a text in `message`. A call that is refused (ARGUS_ARGUMENT)
// has launched nothing and written nothing.
#ifndef ARGUS_H
#define ARGUS_H

#include <stddef.h>
#include <stdint.h>

#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
typedef enum { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;
typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;
typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 } DLDataTypeCode;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;  // in elements; NULL: contiguous
    uint64_t byte_offset;
} DLTensor;
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ARGUS_OK = 0,
    ARGUS_ARGUMENT = 1,  // an argument breaks a precondition
    ARGUS_DEVICE = 2,    // the device or its driver refused
    ARGUS_KERNEL = 3,    // a kernel stopped, as by al.device_assert
    ARGUS_FILE = 4       // a file of the package is missing or broken
};

// An open package on one device. One thread at a time may call functions with it.
typedef struct argus_package argus_package;

// A function for the collectives of programs: it queues its work on `stream`, and returns 0.
typedef int (*argus_collective)(void *context, const char *name, const DLTensor *reads, int read_count,
                                const DLTensor *writes, int write_count, void *stream);

// Closes a package. Work that is queued must be complete.
void argus_close(argus_package *package);

#ifdef __cplusplus
}
#endif
#endif
