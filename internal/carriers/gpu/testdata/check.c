/*
 * Compares the declarations of the packages cuda and nccl with NVIDIA's own headers. This file only has to compile.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define GV_REAL_HEADERS
#include <cuda.h>
#include <nccl.h>
#include <stddef.h>

#include "../nccl/nccl.h"

#define SAME(a, b) _Static_assert((long long)(a) == (long long)(b), #a " is not " #b)

/* Each function has the parameters and the result of the table. */
#define OF_CUDA(name, parameters) \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), CUresult(*) parameters), #name " has other parameters");
GV_CUDA_FUNCTIONS(OF_CUDA)
#define OF_NCCL(name, parameters, result) \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) parameters), #name " has other parameters");
GV_NCCL_FUNCTIONS(OF_NCCL)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
GV_NCCL_OPTIONAL(OF_NCCL)
#endif

/* Our types for NVIDIA's have the same sizes, so they are passed in the same way. */
#define INT(type) SAME(sizeof(type), sizeof(int))
#define POINTER(type) SAME(sizeof(type), sizeof(void *))
INT(CUresult);
INT(CUdevice);
INT(CUdevice_attribute);
INT(CUpointer_attribute);
INT(CUstreamCaptureStatus);
INT(CUstreamCaptureMode);
SAME(sizeof(CUdeviceptr), sizeof(unsigned long long));
SAME(sizeof(CUuuid), 16);
_Static_assert(__builtin_types_compatible_p(CUcontext, struct CUctx_st *), "CUcontext");
_Static_assert(__builtin_types_compatible_p(CUstream, struct CUstream_st *), "CUstream");
_Static_assert(__builtin_types_compatible_p(CUevent, struct CUevent_st *), "CUevent");
_Static_assert(__builtin_types_compatible_p(cudaStream_t, CUstream), "a stream of the runtime is one of the driver");
_Static_assert(__builtin_types_compatible_p(cudaEvent_t, CUevent), "an event of the runtime is one of the driver");
_Static_assert(__builtin_types_compatible_p(ncclComm_t, struct ncclComm *), "ncclComm_t");
INT(ncclResult_t);
INT(ncclDataType_t);
INT(ncclRedOp_t);
INT(ncclScalarResidence_t);
SAME(sizeof(ncclUniqueId), GV_NCCL_UNIQUE_ID);

/* The numbers. */
SAME(CUDA_SUCCESS, GV_CU_SUCCESS);
SAME(CUDA_ERROR_INVALID_VALUE, GV_CU_INVALID_VALUE);
SAME(CUDA_ERROR_OUT_OF_MEMORY, GV_CU_OUT_OF_MEMORY);
SAME(CUDA_ERROR_DEINITIALIZED, GV_CU_DEINITIALIZED);
SAME(CUDA_ERROR_NO_DEVICE, GV_CU_NO_DEVICE);
SAME(CUDA_ERROR_NOT_READY, GV_CU_NOT_READY);
SAME(CU_STREAM_NON_BLOCKING, GV_CU_STREAM_NON_BLOCKING);
SAME(CU_EVENT_DISABLE_TIMING, GV_CU_EVENT_DISABLE_TIMING);
SAME(CU_MEMHOSTALLOC_PORTABLE, GV_CU_MEMHOSTALLOC_PORTABLE);
SAME(CU_STREAM_CAPTURE_STATUS_NONE, GV_CU_CAPTURE_NONE);
SAME(CU_STREAM_CAPTURE_MODE_RELAXED, GV_CU_CAPTURE_RELAXED);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, GV_CU_ATTRIBUTE_CAPABILITY_MAJOR);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, GV_CU_ATTRIBUTE_CAPABILITY_MINOR);
SAME(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, GV_CU_POINTER_MEMORY_TYPE);
SAME(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, GV_CU_POINTER_DEVICE_ORDINAL);
SAME(CU_MEMORYTYPE_HOST, GV_CU_MEMORYTYPE_HOST);

SAME(ncclSuccess, GV_NCCL_SUCCESS);
SAME(ncclInProgress, GV_NCCL_IN_PROGRESS);
SAME(ncclScalarHostImmediate, GV_NCCL_SCALAR_HOST);
#ifdef NCCL_SPLIT_NOCOLOR
SAME(NCCL_SPLIT_NOCOLOR, GV_NCCL_NO_COLOR);
#endif
#ifdef NCCL_SHRINK_ABORT
SAME(NCCL_SHRINK_ABORT, GV_NCCL_SHRINK_ABORT);
#endif
#ifdef NCCL_API_MAGIC
SAME(NCCL_API_MAGIC, GV_NCCL_CONFIG_MAGIC);
#endif

/* NCCL's configuration begins with the fields of ours. */
#define FIELD(name)                                                       \
  SAME(offsetof(ncclConfig_t, name), offsetof(struct gv_nccl_config, name)); \
  SAME(sizeof(((ncclConfig_t *)0)->name), sizeof(((struct gv_nccl_config *)0)->name))
FIELD(size);
FIELD(magic);
FIELD(version);
FIELD(blocking);

/* The constants of Go: the test writes them. */
#include "constants.h"
