/*
 * Work on memory: copies, fills, and the kernels of tests.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* The address at which the simulated GPU finds memory of the host. */
static void *inside(const void *p) {
  void *pinned = alias((CUdeviceptr)(uintptr_t)p);
  return pinned != NULL ? pinned : (void *)(uintptr_t)p;
}

static void run_copy(struct work *w) {
  lock();
  void *to = w->host_to != NULL ? inside(w->host_to) : alias(w->to);
  const void *from = w->host_from != NULL ? inside(w->host_from) : alias(w->from);
  unlock();
  memmove(to, from, w->size);
}

static void run_kernel(struct work *w) {
  lock();
  uint8_t *to = alias(w->to), *from = w->from != 0 ? alias(w->from) : NULL;
  unlock();
  switch (w->kind) {
    case STANDIN_FILL: memset(to, w->value, w->size); break;
    case STANDIN_COPY: memmove(to, from, w->size); break;
    case STANDIN_ADD:
      for (size_t i = 0; i < w->size; i++) to[i] += from[i];
  }
}

static struct work *copy(struct stream *s, size_t size) {
  struct work *w = enqueue(s, run_copy);
  w->size = size;
  return w;
}

#define STREAM_OR_LEAVE(call)                                    \
  struct stream *s = stream_of(#call, stream);                   \
  if (s == NULL) LEAVE(CUDA_ERROR_INVALID_CONTEXT);              \
  if (s->capturing) LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); \
  begin(s)

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  ENTER(cuMemcpyDtoDAsync_v2);
  STREAM_OR_LEAVE(cuMemcpyDtoDAsync);
  access_device(s, from, size, false, "cuMemcpyDtoDAsync", s->device);
  access_device(s, to, size, true, "cuMemcpyDtoDAsync", s->device);
  struct work *w = copy(s, size);
  w->to = to;
  w->from = from;
  LEAVE(0);
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
  ENTER(cuMemcpyHtoDAsync_v2);
  STREAM_OR_LEAVE(cuMemcpyHtoDAsync);
  access_host(s, from, size, false, "cuMemcpyHtoDAsync");
  access_device(s, to, size, true, "cuMemcpyHtoDAsync", s->device);
  struct work *w = copy(s, size);
  w->to = to;
  w->host_from = from;
  if (!is_pinned(from, size)) host_waits(s, s->issued); /* the caller may touch pageable memory after the call */
  LEAVE(0);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
  ENTER(cuMemcpyDtoHAsync_v2);
  STREAM_OR_LEAVE(cuMemcpyDtoHAsync);
  access_device(s, from, size, false, "cuMemcpyDtoHAsync", s->device);
  access_host(s, to, size, true, "cuMemcpyDtoHAsync");
  struct work *w = copy(s, size);
  w->host_to = to;
  w->from = from;
  if (!is_pinned(to, size)) host_waits(s, s->issued);
  LEAVE(0);
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
  CUresult code = cuMemcpyHtoDAsync_v2(to, from, size, NULL);
  return code != 0 ? code : cuStreamSynchronize(NULL);
}

API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
  CUresult code = cuMemcpyDtoHAsync_v2(to, from, size, NULL);
  return code != 0 ? code : cuStreamSynchronize(NULL);
}

API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size, CUstream stream) {
  ENTER(cuMemsetD8Async);
  STREAM_OR_LEAVE(cuMemsetD8Async);
  access_device(s, to, size, true, "cuMemsetD8Async", s->device);
  struct work *w = enqueue(s, run_kernel);
  w->kind = STANDIN_FILL;
  w->to = to;
  w->value = value;
  w->size = size;
  LEAVE(0);
}

API CUresult standinLaunch(int kind, CUdeviceptr to, CUdeviceptr from, size_t size, int value, unsigned delay,
                           CUstream stream) {
  ENTER(standinLaunch);
  STREAM_OR_LEAVE(a kernel);
  if (kind != STANDIN_FILL) access_device(s, from, size, false, "a kernel", s->device);
  access_device(s, to, size, true, "a kernel", s->device);
  struct work *w = enqueue(s, run_kernel);
  w->kind = kind;
  w->to = to;
  w->from = from;
  w->size = size;
  w->value = value;
  w->delay = delay;
  LEAVE(0);
}
