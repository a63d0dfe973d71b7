/* SPDX-License-Identifier: Apache-2.0 */
#include "dlpack.h"

#include <stddef.h>

#include "gorovod.h"

enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };

static const struct {
  int dtype;
  uint8_t code, bits;
} types[] = {
    {GOROVOD_FLOAT32, DL_FLOAT, 32}, {GOROVOD_FLOAT64, DL_FLOAT, 64}, {GOROVOD_FLOAT16, DL_FLOAT, 16},
    {GOROVOD_BFLOAT16, DL_BFLOAT, 16}, {GOROVOD_INT8, DL_INT, 8},     {GOROVOD_INT16, DL_INT, 16},
    {GOROVOD_INT32, DL_INT, 32},     {GOROVOD_INT64, DL_INT, 64},     {GOROVOD_UINT8, DL_UINT, 8},
    {GOROVOD_UINT16, DL_UINT, 16},   {GOROVOD_BOOL, DL_BOOL, 8},
};

int dl_dtype_of(const struct dl_tensor *t) {
  for (size_t i = 0; t->lanes == 1 && i < sizeof types / sizeof types[0]; i++) {
    if (types[i].code == t->code && types[i].bits == t->bits) return types[i].dtype;
  }
  return -1;
}

bool dl_type_of(int dtype, struct dl_tensor *t) {
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    if (types[i].dtype != dtype) continue;
    t->code = types[i].code;
    t->bits = types[i].bits;
    t->lanes = 1;
    return true;
  }
  return false;
}
