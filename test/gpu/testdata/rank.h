/*
 * The common part of the programs of ranks: a rank, its device and its stream, and tensors there. A program includes
 * this once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <gorovod.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../standin/abi.h"

static int rank, size, device;
static CUstream stream;

#define EXPECT(condition)                                                                                          \
  do {                                                                                                             \
    if (!(condition)) {                                                                                            \
      fprintf(stderr, "rank %d line %d: not so: %s (%s)\n", rank, __LINE__, #condition, gorovod_last_error());     \
      exit(1);                                                                                                     \
    }                                                                                                              \
  } while (0)
#define OK(call) EXPECT((call) == 0)

enum { N = 5000, LATE = 3000 /* microseconds */ };

static void begin(void) {
  EXPECT(horovod_init(NULL, 0, NULL, NULL, 0));
  rank = horovod_rank(), size = horovod_size(), device = horovod_local_rank();
  if (getenv("LIBRARY_DEVICE") != NULL) device = atoi(getenv("LIBRARY_DEVICE"));
  CUdevice d;
  CUcontext context;
  OK(cuInit(0));
  OK(cuDeviceGet(&d, device));
  OK(cuDevicePrimaryCtxRetain(&context, d));
  OK(cuCtxSetCurrent(context));
  OK(cuStreamCreateWithPriority(&stream, 1, 0));
}

static CUdeviceptr memory(size_t bytes) {
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, bytes));
  return p;
}

/* Host memory that the stand-in's streams can use. */
static float *pinned(size_t n) {
  void *p;
  OK(cuMemHostAlloc(&p, n * sizeof(float), 0));
  return p;
}

/* A tensor that a kernel is still making: element i is i % 7 + add. */
static CUdeviceptr numbers(int n, int add) {
  float *host = pinned((size_t)n + 1);
  for (int i = 0; i < n; i++) host[i] = (float)(i % 7 + add);
  size_t bytes = sizeof(float) * (size_t)n;
  CUdeviceptr source = memory(bytes + 4), made = memory(bytes + 4);
  if (n > 0) {
    OK(cuMemcpyHtoDAsync_v2(source, host, bytes, stream));
    OK(standinLaunch(STANDIN_COPY, made, source, bytes, 0, LATE, stream));
  }
  return made;
}

/* The sum over the ranks of i % 7 + rank. */
static float sum(int i) { return (float)(size * (i % 7) + size * (size - 1) / 2); }
