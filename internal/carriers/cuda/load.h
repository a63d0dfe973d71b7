/*
 * Loading the libcuda of this process.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_CUDA_LOAD_H
#define GOROVOD_CUDA_LOAD_H

#include "driver.h"

enum { GV_TEXT = 1024 };

/* Opens a library, and writes its path to file. With only_loaded it opens the library only if the process has loaded it
 * already. On failure it returns NULL, and writes the reason to why. */
void *gv_open(const char *name, int only_loaded, char file[GV_TEXT], char why[GV_TEXT]);

/* Fills the table from an open library. Returns NULL, or the name of the first function that the library lacks. */
const char *gv_cuda_fill(struct gv_cuda *f, void *library);

/* The newest CUDA that an open driver can run, such as 12080, or 0 if it does not tell. The driver need not be started. */
int gv_cuda_version(void *library);

/* A device, as the functions cuDeviceGet* describe it. */
struct gv_device {
  int ordinal;
  CUdevice handle;
  uintptr_t context;
  char name[256], bus[32];
  unsigned char uuid[16];
  size_t memory;
  int major, minor;
};

struct gv_cuda_facts {
  int version, devices;
  struct gv_device device;
};

/* The calls that start the driver, and that describe it and its devices. */
enum gv_cuda_question {
  GV_INIT,
  GV_DRIVER_VERSION,
  GV_DEVICE_COUNT,
  GV_DEVICE, /* of facts->device.ordinal. The next ones are about facts->device.handle. */
  GV_DEVICE_NAME,
  GV_DEVICE_BUS,
  GV_DEVICE_UUID,
  GV_DEVICE_MEMORY,
  GV_DEVICE_MAJOR,
  GV_DEVICE_MINOR,
  GV_DEVICE_CONTEXT, /* retains it */
};

/* Makes one of these calls. The answer is a fact. */
CUresult gv_cuda_ask(const struct gv_cuda *f, int what, struct gv_cuda_facts *facts);
const char *gv_cuda_text(const struct gv_cuda *f, CUresult code, int name);

/* The calls. Handles are passed as uintptr_t, because Go would take pointers for its own. */
CUresult gv_cuda_stream_create(const struct gv_cuda *f, uintptr_t context, uintptr_t *stream);
CUresult gv_cuda_event_create(const struct gv_cuda *f, uintptr_t context, uintptr_t *event);

enum gv_cuda_what {
  GV_STREAM_DESTROY,
  GV_STREAM_QUERY,
  GV_STREAM_SYNCHRONIZE,
  GV_STREAM_WAIT,
  GV_EVENT_DESTROY,
  GV_EVENT_RECORD,
  GV_EVENT_QUERY,
  GV_FREE,
  GV_FREE_HOST,
  GV_COPY,
  GV_COPY_FROM_HOST,
  GV_COPY_TO_HOST,
  GV_ZERO,
};

/* A call whose only result is its code. a and b are its handles or addresses. */
CUresult gv_cuda_call(const struct gv_cuda *f, uintptr_t context, int what, uintptr_t a, uintptr_t b, size_t size, uintptr_t stream);

CUresult gv_cuda_alloc(const struct gv_cuda *f, uintptr_t context, size_t size, int host, uintptr_t *address);
CUresult gv_cuda_memory(const struct gv_cuda *f, uintptr_t context, size_t *left, size_t *total);
CUresult gv_cuda_capturing(const struct gv_cuda *f, uintptr_t context, uintptr_t stream, int *status);

/* Sets ordinal to the device of an address, or to -1 if the address is no device's. */
CUresult gv_cuda_device_of(const struct gv_cuda *f, uintptr_t address, int *ordinal);

#endif
