/*
 * dlpack.h: the parts of DLPack that are used here.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_DLPACK_H
#define GOROVOD_DLPACK_H

#include <stdbool.h>
#include <stdint.h>

#define DL_NAME "dltensor"

struct dl_tensor {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};

/* What a capsule of that name has. */
struct dl_managed {
  struct dl_tensor tensor;
  void *context;
  void (*end)(struct dl_managed *);
};

/* The C exchange interface, of DLPack 1. */
struct dl_api {
  uint32_t major, minor;
  struct dl_api *previous;
  void *allocate, *managed_from_object, *managed_to_object;
  int (*view)(void *object, struct dl_tensor *); /* may be NULL */
  void *current_stream;
};

enum { DL_CPU = 1 };

/* Returns the engine's number of a tensor's element type, or -1. */
int dl_dtype_of(const struct dl_tensor *t);

/* Sets a tensor's element type to the engine's; false if DLPack has none. */
bool dl_type_of(int dtype, struct dl_tensor *t);

#endif
