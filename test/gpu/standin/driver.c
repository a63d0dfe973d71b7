/*
 * A stand-in for libcuda.so.1: devices and contexts.
 *
 *   STANDIN_DEVICES       devices of this machine; 8 if unset
 *   CUDA_VISIBLE_DEVICES  the devices that this process sees, as numbers
 *   STANDIN_MEMORY        bytes of each device; 1 GiB if unset
 *   STANDIN_LEAKS         1: report whatever is left when the process ends
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

static bool initialized;
static _Atomic bool unloaded; /* the process ends; like the real driver, this one refuses all calls */
static int device_count;
static struct context contexts[MAX_DEVICES];
static _Thread_local CUcontext stack[16];
static _Thread_local int depth;

static void (*checks[4])(void);

void at_leak_check(void (*check)(void)) {
  for (int i = 0; i < 4; i++) {
    if (checks[i] == check) return;
    if (checks[i] == NULL) {
      checks[i] = check;
      return;
    }
  }
}

API void standinExpectNothing(void) {
  lock();
  for (int i = 0; i < 4; i++)
    if (checks[i] != NULL) checks[i]();
  expect_no_streams();
  expect_no_memory();
  unlock();
}

__attribute__((destructor)) static void at_end(void) {
  atomic_store(&unloaded, true);
  const char *wanted = getenv("STANDIN_LEAKS");
  if (initialized && wanted != NULL && *wanted == '1') standinExpectNothing();
}

int enter_call(const char *function) {
  int what = fault(function);
  if (what == FAULT_HANG)
    for (;;) sleep(1);
  if (what != 0) return what;
  if (atomic_load(&unloaded)) return CUDA_ERROR_DEINITIALIZED;
  return initialized ? 0 : CUDA_ERROR_NOT_INITIALIZED;
}

struct device *current_device(void) { return depth == 0 || stack[depth - 1] == NULL ? NULL : &stack[depth - 1]->device; }

static void see_devices(void) {
  const char *text = getenv("STANDIN_DEVICES"), *visible = getenv("CUDA_VISIBLE_DEVICES");
  int all = text != NULL ? atoi(text) : 8;
  if (all > MAX_DEVICES) all = MAX_DEVICES;
  if (visible == NULL) {
    for (; device_count < all; device_count++) contexts[device_count].device.number = device_count;
  }
  while (visible != NULL && *visible && device_count < MAX_DEVICES) {
    char *end;
    long n = strtol(visible, &end, 10);
    if (end == visible || n < 0 || n >= all) break; /* like the real driver, ignore the rest */
    contexts[device_count++].device.number = (int)n;
    visible = *end == ',' ? end + 1 : end;
  }
  for (int i = 0; i < device_count; i++) contexts[i].device.ordinal = i;
}

API CUresult cuInit(unsigned int flags) {
  int what = fault("cuInit");
  if (what != 0) return what;
  lock();
  if (!initialized) {
    see_devices();
    catch_faults();
    initialized = true;
  }
  LEAVE(flags != 0 ? CUDA_ERROR_INVALID_VALUE : device_count == 0 ? CUDA_ERROR_NO_DEVICE : 0);
}

API CUresult cuDriverGetVersion(int *version) {
  int what = fault("cuDriverGetVersion");
  const char *text = getenv("STANDIN_CUDA_VERSION");
  *version = text != NULL ? atoi(text) : 12080;
  return what;
}

static const struct {
  CUresult code;
  const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult text_of(CUresult code, bool name, const char **text) {
  *text = NULL;
  for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
    if (errors[i].code == code) *text = name ? errors[i].name : errors[i].text;
  return *text == NULL ? CUDA_ERROR_INVALID_VALUE : 0;
}

API CUresult cuGetErrorName(CUresult code, const char **text) { return text_of(code, true, text); }
API CUresult cuGetErrorString(CUresult code, const char **text) { return text_of(code, false, text); }

API CUresult cuDeviceGetCount(int *count) {
  ENTER(cuDeviceGetCount);
  *count = device_count;
  LEAVE(0);
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER(cuDeviceGet);
  if (ordinal < 0 || ordinal >= device_count) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  *device = ordinal;
  LEAVE(0);
}

API CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
  ENTER(cuDeviceGetName);
  if (device < 0 || device >= device_count) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  snprintf(name, size, "Stand-in GPU");
  LEAVE(0);
}

API CUresult cuDeviceGetUuid_v2(char *uuid, CUdevice device) {
  ENTER(cuDeviceGetUuid_v2);
  if (device < 0 || device >= device_count) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  memcpy(uuid, "stand-in device\0", 16);
  uuid[15] = (char)contexts[device].device.number;
  LEAVE(0);
}

API CUresult cuDeviceGetPCIBusId(char *bus, int size, CUdevice device) {
  ENTER(cuDeviceGetPCIBusId);
  if (device < 0 || device >= device_count) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  snprintf(bus, size, "0000:%02X:00.0", contexts[device].device.number + 1);
  LEAVE(0);
}

API CUresult cuDeviceTotalMem_v2(size_t *size, CUdevice device) {
  ENTER(cuDeviceTotalMem_v2);
  if (device < 0 || device >= device_count) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  const char *text = getenv("STANDIN_MEMORY");
  *size = text != NULL ? strtoull(text, NULL, 10) : (size_t)1 << 30;
  LEAVE(0);
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  enum { MAJOR = 75, MINOR = 76 };
  ENTER(cuDeviceGetAttribute);
  if (device < 0 || device >= device_count) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  *value = attribute == MAJOR ? 9 : 0;
  LEAVE(0);
}

/* Contexts. */

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  ENTER(cuDevicePrimaryCtxRetain);
  if (device < 0 || device >= device_count) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  contexts[device].device.made = true;
  *context = &contexts[device];
  LEAVE(0);
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER(cuDevicePrimaryCtxRelease_v2);
  LEAVE(device < 0 || device >= device_count || !contexts[device].device.made ? CUDA_ERROR_INVALID_CONTEXT : 0);
}

static bool is_context(CUcontext c) { return c >= contexts && c < contexts + device_count && c->device.made; }

API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ENTER(cuCtxPushCurrent_v2);
  if (!is_context(context)) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  if (depth == 16) report("cuCtxPushCurrent: 16 contexts are on this thread's stack: pops are missing");
  stack[depth++] = context;
  LEAVE(0);
}

API CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  ENTER(cuCtxPopCurrent_v2);
  if (depth == 0) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  depth--;
  if (context != NULL) *context = stack[depth];
  LEAVE(0);
}

API CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER(cuCtxSetCurrent);
  if (context != NULL && !is_context(context)) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  if (depth == 0) depth++;
  stack[depth - 1] = context;
  LEAVE(0);
}

API CUresult cuCtxGetCurrent(CUcontext *context) {
  ENTER(cuCtxGetCurrent);
  *context = depth == 0 ? NULL : stack[depth - 1];
  LEAVE(0);
}

API CUresult cuCtxGetDevice(CUdevice *device) {
  ENTER(cuCtxGetDevice);
  struct device *d = current_device();
  if (d == NULL) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  *device = d->ordinal;
  LEAVE(0);
}

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  ENTER(cuCtxGetStreamPriorityRange);
  if (current_device() == NULL) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  if (least != NULL) *least = 0;
  if (greatest != NULL) *greatest = -5;
  LEAVE(0);
}

API CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
  ENTER(cuThreadExchangeStreamCaptureMode);
  if (*mode < 0 || *mode > 2) LEAVE(CUDA_ERROR_INVALID_VALUE);
  int old = capture_mode;
  capture_mode = *mode;
  *mode = old;
  LEAVE(0);
}
