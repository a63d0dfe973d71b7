/*
 * Loading libcuda, and calling it in the right context.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "load.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

void *gv_open(const char *name, int only_loaded, char file[GV_TEXT], char why[GV_TEXT]) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | (only_loaded ? RTLD_NOLOAD : 0));
  if (library == NULL) {
    const char *error = dlerror();
    snprintf(why, GV_TEXT, "%s", error != NULL ? error : "it is not in this process");
    return NULL;
  }
  struct link_map *map = NULL;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != NULL && map->l_name[0] != 0) name = map->l_name;
  snprintf(file, GV_TEXT, "%s", name);
  return library;
}

const char *gv_cuda_fill(struct gv_cuda *f, void *library) {
#define FILL(name, parameters) \
  if ((*(void **)&f->name = dlsym(library, #name)) == NULL) return #name;
  GV_CUDA_FUNCTIONS(FILL)
#undef FILL
  return NULL;
}

int gv_cuda_version(void *library) {
  CUresult (*get)(int *) = NULL;
  int version = 0;
  if ((*(void **)&get = dlsym(library, "cuDriverGetVersion")) == NULL || get(&version) != 0) return 0;
  return version;
}

CUresult gv_cuda_ask(const struct gv_cuda *f, int what, struct gv_cuda_facts *facts) {
  struct gv_device *d = &facts->device;
  switch (what) {
    case GV_INIT: return f->cuInit(0);
    case GV_DRIVER_VERSION: return f->cuDriverGetVersion(&facts->version);
    case GV_DEVICE_COUNT: return f->cuDeviceGetCount(&facts->devices);
    case GV_DEVICE: return f->cuDeviceGet(&d->handle, d->ordinal);
    case GV_DEVICE_NAME: return f->cuDeviceGetName(d->name, sizeof d->name, d->handle);
    case GV_DEVICE_BUS: return f->cuDeviceGetPCIBusId(d->bus, sizeof d->bus, d->handle);
    case GV_DEVICE_UUID: return f->cuDeviceGetUuid_v2((CUuuid *)d->uuid, d->handle);
    case GV_DEVICE_MEMORY: return f->cuDeviceTotalMem_v2(&d->memory, d->handle);
    case GV_DEVICE_MAJOR: return f->cuDeviceGetAttribute(&d->major, GV_CU_ATTRIBUTE_CAPABILITY_MAJOR, d->handle);
    case GV_DEVICE_MINOR: return f->cuDeviceGetAttribute(&d->minor, GV_CU_ATTRIBUTE_CAPABILITY_MINOR, d->handle);
    case GV_DEVICE_CONTEXT: return f->cuDevicePrimaryCtxRetain((CUcontext *)&d->context, d->handle);
  }
  return -1;
}

const char *gv_cuda_text(const struct gv_cuda *f, CUresult code, int name) {
  const char *text = NULL;
  CUresult found = name ? f->cuGetErrorName(code, &text) : f->cuGetErrorString(code, &text);
  return found == 0 ? text : NULL;
}

CUresult gv_cuda_stream_create(const struct gv_cuda *f, uintptr_t context, uintptr_t *stream) {
  struct gv_cuda_thread thread;
  CUresult code = gv_cuda_enter(f, (CUcontext)context, &thread);
  if (code != 0) return code;
  int least = 0, greatest = 0;
  code = f->cuCtxGetStreamPriorityRange(&least, &greatest);
  if (code == 0) code = f->cuStreamCreateWithPriority((CUstream *)stream, GV_CU_STREAM_NON_BLOCKING, greatest);
  gv_cuda_leave(f, &thread);
  return code;
}

CUresult gv_cuda_event_create(const struct gv_cuda *f, uintptr_t context, uintptr_t *event) {
  struct gv_cuda_thread thread;
  CUresult code = gv_cuda_enter(f, (CUcontext)context, &thread);
  if (code != 0) return code;
  code = f->cuEventCreate((CUevent *)event, GV_CU_EVENT_DISABLE_TIMING);
  gv_cuda_leave(f, &thread);
  return code;
}

static CUresult call(const struct gv_cuda *f, int what, uintptr_t a, uintptr_t b, size_t size, CUstream stream) {
  switch (what) {
    case GV_STREAM_DESTROY: return f->cuStreamDestroy_v2(stream);
    case GV_STREAM_QUERY: return f->cuStreamQuery(stream);
    case GV_STREAM_SYNCHRONIZE: return f->cuStreamSynchronize(stream);
    case GV_STREAM_WAIT: return f->cuStreamWaitEvent(stream, (CUevent)a, 0);
    case GV_EVENT_DESTROY: return f->cuEventDestroy_v2((CUevent)a);
    case GV_EVENT_RECORD: return f->cuEventRecord((CUevent)a, stream);
    case GV_EVENT_QUERY: return f->cuEventQuery((CUevent)a);
    case GV_FREE: return f->cuMemFree_v2(a);
    case GV_FREE_HOST: return f->cuMemFreeHost((void *)a);
    case GV_COPY: return f->cuMemcpyDtoDAsync_v2(a, b, size, stream);
    case GV_COPY_FROM_HOST: return f->cuMemcpyHtoDAsync_v2(a, (const void *)b, size, stream);
    case GV_COPY_TO_HOST: return f->cuMemcpyDtoHAsync_v2((void *)a, b, size, stream);
    case GV_ZERO: return f->cuMemsetD8Async(a, 0, size, stream);
  }
  return -1;
}

CUresult gv_cuda_call(const struct gv_cuda *f, uintptr_t context, int what, uintptr_t a, uintptr_t b, size_t size, uintptr_t stream) {
  struct gv_cuda_thread thread;
  CUresult code = gv_cuda_enter(f, (CUcontext)context, &thread);
  if (code != 0) return code;
  code = call(f, what, a, b, size, (CUstream)stream);
  gv_cuda_leave(f, &thread);
  return code;
}

CUresult gv_cuda_alloc(const struct gv_cuda *f, uintptr_t context, size_t size, int host, uintptr_t *address) {
  struct gv_cuda_thread thread;
  CUresult code = gv_cuda_enter(f, (CUcontext)context, &thread);
  if (code != 0) return code;
  CUdeviceptr device = 0;
  void *pinned = NULL;
  code = host ? f->cuMemHostAlloc(&pinned, size, GV_CU_MEMHOSTALLOC_PORTABLE) : f->cuMemAlloc_v2(&device, size);
  *address = host ? (uintptr_t)pinned : (uintptr_t)device;
  gv_cuda_leave(f, &thread);
  return code;
}

CUresult gv_cuda_memory(const struct gv_cuda *f, uintptr_t context, size_t *left, size_t *total) {
  struct gv_cuda_thread thread;
  CUresult code = gv_cuda_enter(f, (CUcontext)context, &thread);
  if (code != 0) return code;
  code = f->cuMemGetInfo_v2(left, total);
  gv_cuda_leave(f, &thread);
  return code;
}

CUresult gv_cuda_capturing(const struct gv_cuda *f, uintptr_t context, uintptr_t stream, int *status) {
  struct gv_cuda_thread thread;
  CUresult code = gv_cuda_enter(f, (CUcontext)context, &thread);
  if (code != 0) return code;
  code = f->cuStreamIsCapturing((CUstream)stream, status);
  gv_cuda_leave(f, &thread);
  return code;
}

CUresult gv_cuda_device_of(const struct gv_cuda *f, uintptr_t address, int *ordinal) {
  unsigned int type = 0;
  *ordinal = -1;
  CUresult code = f->cuPointerGetAttribute(&type, GV_CU_POINTER_MEMORY_TYPE, address);
  if (code == GV_CU_INVALID_VALUE) return 0; /* no memory that CUDA knows of */
  if (code != 0 || type == GV_CU_MEMORYTYPE_HOST) return code;
  return f->cuPointerGetAttribute(ordinal, GV_CU_POINTER_DEVICE_ORDINAL, address);
}
