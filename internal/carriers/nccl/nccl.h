/*
 * The part of NCCL that this package uses: functions, as libnccl.so.2 exports them, and their types. It is written by
 * hand, because NVIDIA's headers may not be passed on. A test makes the compiler compare both.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_NCCL_H
#define GOROVOD_NCCL_H

#include <stddef.h>
#include <stdint.h>

#include "../cuda/driver.h"

/* The layout of NCCL 2.14. The struct has its size and version, so a later library accepts it, and fills in its own
 * defaults for further fields. */
struct gv_nccl_config {
  size_t size;
  unsigned int magic, version;
  int blocking;
};

#ifndef GV_REAL_HEADERS
typedef int ncclResult_t;
typedef int ncclDataType_t;
typedef int ncclRedOp_t;
typedef int ncclScalarResidence_t;
typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
  char internal[128];
} ncclUniqueId;
typedef struct gv_nccl_config ncclConfig_t;
#endif

enum {
  GV_NCCL_SUCCESS = 0,
  GV_NCCL_IN_PROGRESS = 7,
  GV_NCCL_UNIQUE_ID = 128,
  GV_NCCL_CONFIG_VERSION = 21400,
  GV_NCCL_NO_COLOR = -1,
  GV_NCCL_SHRINK_ABORT = 1,
  GV_NCCL_SCALAR_HOST = 1,
};
#define GV_NCCL_CONFIG_MAGIC 0xcafebeefu

/* The functions that every library must have (2.14). */
#define GV_NCCL_FUNCTIONS(X)                                                                                         \
  X(ncclGetVersion, (int *), ncclResult_t)                                                                           \
  X(ncclGetUniqueId, (ncclUniqueId *), ncclResult_t)                                                                 \
  X(ncclCommInitRankConfig, (ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *), ncclResult_t)                    \
  X(ncclCommFinalize, (ncclComm_t), ncclResult_t)                                                                    \
  X(ncclCommDestroy, (ncclComm_t), ncclResult_t)                                                                     \
  X(ncclCommAbort, (ncclComm_t), ncclResult_t)                                                                       \
  X(ncclCommGetAsyncError, (ncclComm_t, ncclResult_t *), ncclResult_t)                                               \
  X(ncclGetErrorString, (ncclResult_t), const char *)                                                                \
  X(ncclGetLastError, (ncclComm_t), const char *)                                                                    \
  X(ncclRedOpCreatePreMulSum, (ncclRedOp_t *, void *, ncclDataType_t, ncclScalarResidence_t, ncclComm_t),            \
    ncclResult_t)                                                                                                    \
  X(ncclRedOpDestroy, (ncclRedOp_t, ncclComm_t), ncclResult_t)                                                       \
  X(ncclGroupStart, (void), ncclResult_t)                                                                            \
  X(ncclGroupEnd, (void), ncclResult_t)                                                                              \
  X(ncclAllReduce, (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t),            \
    ncclResult_t)                                                                                                    \
  X(ncclBroadcast, (const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t), ncclResult_t)      \
  X(ncclReduce, (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t),          \
    ncclResult_t)                                                                                                    \
  X(ncclAllGather, (const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t), ncclResult_t)           \
  X(ncclReduceScatter, (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t),        \
    ncclResult_t)                                                                                                    \
  X(ncclSend, (const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t), ncclResult_t)                   \
  X(ncclRecv, (void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t), ncclResult_t)

/* The functions that only later libraries have (2.18, 2.27). */
#define GV_NCCL_OPTIONAL(X)                                                                                          \
  X(ncclCommSplit, (ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *), ncclResult_t)                               \
  X(ncclCommShrink, (ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int), ncclResult_t)

/* The functions of the libnccl that is loaded. */
struct gv_nccl {
#define GV_POINTER(name, parameters, result) result(*name) parameters;
  GV_NCCL_FUNCTIONS(GV_POINTER)
  GV_NCCL_OPTIONAL(GV_POINTER)
#undef GV_POINTER
};

#endif
