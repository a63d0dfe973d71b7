/*
 * The part of CUDA's driver that this package uses: functions, as libcuda.so.1 exports them, and their types. It is
 * written by hand, because NVIDIA's headers may not be passed on. A test makes the compiler compare both.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_CUDA_DRIVER_H
#define GOROVOD_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifndef GV_REAL_HEADERS
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUuuid_st {
  char bytes[16];
} CUuuid;
typedef int CUdevice_attribute;
typedef int CUpointer_attribute;
typedef int CUstreamCaptureStatus;
typedef int CUstreamCaptureMode;
#endif

enum {
  GV_CU_SUCCESS = 0,
  GV_CU_INVALID_VALUE = 1,
  GV_CU_OUT_OF_MEMORY = 2,
  GV_CU_DEINITIALIZED = 4,
  GV_CU_NO_DEVICE = 100,
  GV_CU_NOT_READY = 600,
  GV_CU_STREAM_NON_BLOCKING = 1,
  GV_CU_EVENT_DISABLE_TIMING = 2,
  GV_CU_MEMHOSTALLOC_PORTABLE = 1,
  GV_CU_CAPTURE_NONE = 0,
  GV_CU_CAPTURE_RELAXED = 2,
  GV_CU_ATTRIBUTE_CAPABILITY_MAJOR = 75,
  GV_CU_ATTRIBUTE_CAPABILITY_MINOR = 76,
  GV_CU_POINTER_MEMORY_TYPE = 2,
  GV_CU_POINTER_DEVICE_ORDINAL = 9,
  GV_CU_MEMORYTYPE_HOST = 1,
};

#define GV_CUDA_FUNCTIONS(X)                                                                                  \
  X(cuInit, (unsigned int))                                                                                   \
  X(cuDriverGetVersion, (int *))                                                                              \
  X(cuGetErrorName, (CUresult, const char **))                                                                \
  X(cuGetErrorString, (CUresult, const char **))                                                              \
  X(cuDeviceGetCount, (int *))                                                                                \
  X(cuDeviceGet, (CUdevice *, int))                                                                           \
  X(cuDeviceGetName, (char *, int, CUdevice))                                                                 \
  X(cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                                                                 \
  X(cuDeviceGetPCIBusId, (char *, int, CUdevice))                                                             \
  X(cuDeviceTotalMem_v2, (size_t *, CUdevice))                                                                \
  X(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                                              \
  X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                        \
  X(cuCtxPushCurrent_v2, (CUcontext))                                                                         \
  X(cuCtxPopCurrent_v2, (CUcontext *))                                                                        \
  X(cuCtxGetStreamPriorityRange, (int *, int *))                                                              \
  X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *))                                               \
  X(cuStreamCreateWithPriority, (CUstream *, unsigned int, int))                                              \
  X(cuStreamDestroy_v2, (CUstream))                                                                           \
  X(cuStreamQuery, (CUstream))                                                                                \
  X(cuStreamSynchronize, (CUstream))                                                                          \
  X(cuStreamWaitEvent, (CUstream, CUevent, unsigned int))                                                     \
  X(cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus *))                                                 \
  X(cuEventCreate, (CUevent *, unsigned int))                                                                 \
  X(cuEventDestroy_v2, (CUevent))                                                                             \
  X(cuEventRecord, (CUevent, CUstream))                                                                       \
  X(cuEventQuery, (CUevent))                                                                                  \
  X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                   \
  X(cuMemFree_v2, (CUdeviceptr))                                                                              \
  X(cuMemHostAlloc, (void **, size_t, unsigned int))                                                          \
  X(cuMemFreeHost, (void *))                                                                                  \
  X(cuMemGetInfo_v2, (size_t *, size_t *))                                                                    \
  X(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                       \
  X(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                                      \
  X(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                                            \
  X(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                                          \
  X(cuPointerGetAttribute, (void *, CUpointer_attribute, CUdeviceptr))

/* The functions of the libcuda that is loaded. */
struct gv_cuda {
#define GV_POINTER(name, parameters) CUresult(*name) parameters;
  GV_CUDA_FUNCTIONS(GV_POINTER)
#undef GV_POINTER
};

/*
 * The state of a thread that a call changes and restores. Go's calls come from any thread, also from a thread of the
 * program that uses another device. So a call pushes its context, and pops it at the end. Some functions (allocation,
 * the query of an event) would break a graph that another thread captures. In relaxed mode they do not.
 */
struct gv_cuda_thread {
  CUstreamCaptureMode mode;
};

static inline CUresult gv_cuda_enter(const struct gv_cuda *f, CUcontext context, struct gv_cuda_thread *thread) {
  CUresult code = f->cuCtxPushCurrent_v2(context);
  if (code != 0) return code;
  thread->mode = (CUstreamCaptureMode)GV_CU_CAPTURE_RELAXED;
  code = f->cuThreadExchangeStreamCaptureMode(&thread->mode);
  if (code != 0) f->cuCtxPopCurrent_v2(&context);
  return code;
}

static inline void gv_cuda_leave(const struct gv_cuda *f, struct gv_cuda_thread *thread) {
  CUcontext popped;
  f->cuThreadExchangeStreamCaptureMode(&thread->mode);
  f->cuCtxPopCurrent_v2(&popped);
}

#endif
