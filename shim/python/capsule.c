/* SPDX-License-Identifier: Apache-2.0 */
#include "capsule.h"

#include <stdlib.h>

#include "dlpack.h"
#include "gorovod.h"

enum { ALIGNMENT = 64 }; /* TensorFlow's kernels ask for it */

/* A tensor, its shape, and its elements behind them. */
struct made {
  struct dl_managed managed;
  int64_t shape[MAX_NDIM];
};

enum { HEAD = (sizeof(struct made) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT };

/* Any thread calls it, perhaps without the GIL. */
static void end(struct dl_managed *managed) { free(managed); }

/* Whoever adopts the memory renames the capsule. */
static void drop(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, DL_NAME)) free(PyCapsule_GetPointer(capsule, DL_NAME));
}

PyObject *capsule_like(const struct view *view, size_t bytes, void **memory) {
  struct made *made = aligned_alloc(ALIGNMENT, HEAD + (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  if (made == NULL) return PyErr_NoMemory();
  *memory = (char *)made + HEAD;
  made->managed = (struct dl_managed){
      .tensor = {.data = *memory, .device_type = DL_CPU, .ndim = view->ndim, .shape = made->shape}, .end = end};
  for (int i = 0; i < view->ndim; i++) made->shape[i] = view->shape[i];
  PyObject *capsule = NULL;
  if (dl_type_of(view->dtype, &made->managed.tensor))
    capsule = PyCapsule_New(made, DL_NAME, drop);
  else
    PyErr_SetString(PyExc_ValueError, "DLPack has no such type");
  if (capsule == NULL) free(made);
  return capsule;
}
