/* SPDX-License-Identifier: Apache-2.0 */
#include "made.h"

#include <string.h>

#include "gorovod.h"
#include "request.h"
#include "tensor.h"

enum { LARGE = 1 << 16 }; /* bytes, as horovod.common._operations has it */

static PyObject *new_empty, *template;

int read_splits(PyObject *list, int32_t *splits) {
  if (list->ob_type == &PyTuple_Type) return PyTuple_Size(list) == 0 ? 0 : -1;
  if (list->ob_type != &PyList_Type) return -1;
  Py_ssize_t n = PyList_Size(list);
  for (Py_ssize_t i = 0; i < n && i < MAX_SPLITS; i++) {
    if (!as_int32(PyList_GetItem(list, i), &splits[i])) return -1;
  }
  return n <= MAX_SPLITS ? (int)n : -1;
}

/* Whether the tensor has such memory: a mode of PyTorch's may have made another one. */
static bool is_such(PyObject *tensor, int dtype, int ndim, const int64_t *shape, void **data) {
  struct view view;
  if (tensor_look(tensor, &view) != PLAIN || view.dtype != dtype || view.ndim != ndim) return false;
  *data = view.data;
  return memcmp(view.shape, shape, (size_t)ndim * sizeof shape[0]) == 0;
}

/* A tensor like this one, of the engine's type dtype, of a shape: new. Points at its elements, if it has any. NULL,
 * perhaps with an exception, if there is none. */
static PyObject *empty(PyObject *like, int dtype, int ndim, const int64_t *shape, void **data) {
  bool elements = true;
  PyObject *lengths = PyTuple_New(ndim); /* new */
  for (int i = 0; i < ndim && lengths != NULL; i++) {
    elements = elements && shape[i] > 0;
    PyObject *length = PyLong_FromLongLong(shape[i]);
    if (length == NULL || PyTuple_SetItem(lengths, i, length) != 0) {
      Py_DecRef(lengths);
      lengths = NULL;
    }
  }
  PyObject *tensor = lengths == NULL ? NULL : PyObject_CallFunctionObjArgs(new_empty, like, lengths, NULL); /* new */
  Py_DecRef(lengths);
  if (tensor == NULL || !elements || is_such(tensor, dtype, ndim, shape, data)) return tensor;
  Py_DecRef(tensor);
  return NULL;
}

/* The tensor of an alltoall's rows: new, or NULL, perhaps with an exception. */
static PyObject *rows_received(int64_t handle) {
  int32_t rows[MAX_SPLITS];
  int n = engine.received_splits(handle, MAX_SPLITS, rows);
  if (n <= 0 || n > MAX_SPLITS) return NULL;
  void *data;
  PyObject *tensor = empty(template, GOROVOD_INT32, 1, (int64_t[]){n}, &data); /* new */
  if (tensor != NULL) memcpy(data, rows, (size_t)n * sizeof rows[0]);
  return tensor;
}

PyObject *made_result(const struct cell *cell, PyObject *tensor) {
  int64_t handle = cell->handle, shape[MAX_NDIM], bytes = dtype_bytes(cell->op.dtype);
  int ndim, wanted = cell->op.ndim;
  bool alltoall = cell->op.type == GOROVOD_ALLTOALL;
  void *from, *to;
  if (bytes == 0 || engine.output(handle, &from, MAX_NDIM, &ndim, shape) != GOROVOD_OK || ndim != wanted) return NULL;
  for (int i = 0; i < ndim; i++) bytes *= shape[i];
  if (bytes >= LARGE) return NULL;
  PyObject *received = alltoall ? rows_received(handle) : NULL; /* new */
  if (alltoall && received == NULL) return NULL;
  PyObject *result = empty(tensor, cell->op.dtype, ndim, shape, &to); /* new */
  /* Other code has run, and may have released the operation. From here on none runs before the copy. */
  if (result != NULL && engine.output(handle, &from, MAX_NDIM, &ndim, shape) == GOROVOD_OK) {
    if (bytes > 0) memcpy(to, from, (size_t)bytes);
    if (!alltoall) return result;
    PyObject *both = PyTuple_Pack(2, result, received);
    Py_DecRef(result);
    Py_DecRef(received);
    return both;
  }
  Py_DecRef(result);
  Py_DecRef(received);
  return NULL;
}

PyObject *setup_made(PyObject *module, PyObject *args) {
  (void)module;
  if (!PyArg_ParseTuple(args, "OO:setup_made", &new_empty, &template)) return NULL;
  Py_IncRef(new_empty); /* both for ever, as the module */
  Py_IncRef(template);
  return none();
}
