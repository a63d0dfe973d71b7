/* SPDX-License-Identifier: Apache-2.0 */
#include "cells.h"

#include <string.h>

#include "attribute.h"
#include "request.h"

struct engine engine;
bool enabled;

static PyObject *error_of;
static struct attribute address_slot; /* of all cells */

int cells_setup(PyObject *functions, PyObject *layout, PyObject *error) {
  unsigned long long f[8], size, at_status, at_name, at_shape, at_op, op_size, at_given;
  if (!PyArg_ParseTuple(functions, "KKKKKKKK:functions", &f[0], &f[1], &f[2], &f[3], &f[4], &f[5], &f[6], &f[7]) ||
      !PyArg_ParseTuple(layout, "KKKKKKK:layout", &size, &at_status, &at_name, &at_shape, &at_op, &op_size, &at_given))
    return -1;
  if (size < sizeof(struct cell) || at_status != offsetof(struct cell, status) ||
      at_name != offsetof(struct cell, name) || at_shape != offsetof(struct cell, shape) ||
      at_op != offsetof(struct cell, op) || op_size != sizeof(gorovod_op) || at_given != offsetof(struct cell, given)) {
    PyErr_SetString(PyExc_ValueError, "libgorovod_python.so is of another version: it lays operations out otherwise");
    return -1;
  }
  error_of = error;
  Py_IncRef(error_of); /* for ever, as the module */
  engine.enqueue = (int (*)(const gorovod_op *, int64_t *))(uintptr_t)f[0];
  engine.enqueue_group = (int (*)(const char *, const gorovod_op *const *, int, int64_t *))(uintptr_t)f[1];
  engine.run = (int (*)(const gorovod_op *, int64_t, int64_t *))(uintptr_t)f[2];
  engine.wait = (int (*)(int64_t, int64_t))(uintptr_t)f[3];
  engine.received_splits = (int (*)(int64_t, int, int32_t *))(uintptr_t)f[4];
  engine.release = (int (*)(int64_t))(uintptr_t)f[5];
  engine.output = (int (*)(int64_t, void **, int, int *, int64_t *))(uintptr_t)f[6];
  engine.given_output = (void *(*)(void *, size_t, int, const int64_t *))(uintptr_t)f[7];
  return 0;
}

PyObject *none(void) {
  Py_IncRef(Py_None);
  return Py_None;
}

struct cell *cell_around(const void *op) {
  return (struct cell *)((char *)(uintptr_t)op - offsetof(struct cell, op));
}

struct cell *cell_of(PyObject *operation) {
  if (address_slot.get == NULL && !attribute_find(&address_slot, (PyObject *)operation->ob_type, "address")) return NULL;
  PyObject *address = attribute_get(&address_slot, operation); /* new */
  if (address == NULL) return NULL;
  unsigned long long op = PyLong_AsUnsignedLongLong(address);
  Py_DecRef(address);
  return PyErr_Occurred() ? NULL : cell_around((const void *)(uintptr_t)op);
}

/* As take_slot, from the list. */
static bool take_free(const struct pool *pool, struct slot *slot) {
  Py_ssize_t n = PyList_Size(pool->free);
  if (n == 0) {
    PyObject *nothing = PyObject_CallNoArgs(pool->grow); /* new */
    Py_DecRef(nothing);
    if (nothing == NULL) return false;
    n = PyList_Size(pool->free);
  }
  if (n <= 0) {
    PyErr_SetString(PyExc_ValueError, "the pool of operations is empty");
    return false;
  }
  *slot = (struct slot){.operation = PyList_GetItem(pool->free, n - 1), .flags = -1};
  Py_IncRef(slot->operation);
  slot->cell = cell_of(slot->operation);
  if (slot->cell != NULL && PyList_SetSlice(pool->free, n - 1, n, NULL) == 0) return true;
  Py_DecRef(slot->operation);
  return false;
}

bool take_slot(struct pool *pool, struct slot *slot) {
  if (pool->n == 0) return take_free(pool, slot);
  *slot = pool->ready[--pool->n];
  return true;
}

void give_slot(struct pool *pool, struct slot slot) {
  if (pool->n < MOST_READY) {
    pool->ready[pool->n++] = slot;
    return;
  }
  if (PyList_Append(pool->free, slot.operation) != 0) PyErr_Clear();
  Py_DecRef(slot.operation);
}

void fill_cell(struct cell *cell, const struct request *request, uint32_t flags) {
  gorovod_op *op = &cell->op;
  op->size = sizeof *op;
  op->flags = flags;
  op->type = request->type;
  op->dtype = request->input.dtype;
  op->reduce_op = request->reduce_op;
  op->root_rank = request->root_rank;
  op->process_set = request->process_set;
  op->device = HOST_MEMORY;
  op->priority = 0;
  op->ndim = request->input.ndim;
  op->prescale = request->prescale;
  op->postscale = request->postscale;
  for (int i = 0; i < op->ndim; i++) cell->shape[i] = request->input.shape[i];
  op->shape = cell->shape;
  op->name = NULL;
  if (request->named) {
    memcpy(cell->name, request->name, strlen(request->name) + 1);
    op->name = cell->name;
  }
  op->input = request->input.data;
  op->output = request->target;
  op->wire = request->wire;
}

int enqueue_cell(struct cell *cell) {
  int status = engine.enqueue(&cell->op, &cell->handle);
  end_description(cell);
  return status;
}

int run_cell(struct cell *cell, int64_t wait_ms) {
  cell->handle = 0;
  PyThreadState *thread = PyEval_SaveThread();
  int status = engine.run(&cell->op, wait_ms, &cell->handle);
  PyEval_RestoreThread(thread);
  end_description(cell);
  return status;
}

int status_of(const struct cell *cell) { return __atomic_load_n(&cell->status, __ATOMIC_ACQUIRE); }

void wait_a_little(const struct cell *cell, int64_t wait_ms) {
  if (status_of(cell) != GOROVOD_IN_PROGRESS) return;
  int64_t handle = cell->handle;
  PyThreadState *thread = PyEval_SaveThread();
  engine.wait(handle, wait_ms);
  PyEval_RestoreThread(thread);
}

PyObject *refused(int status) {
  PyObject *number = PyLong_FromLong(status);                                                       /* new */
  PyObject *error = number == NULL ? NULL : PyObject_CallFunctionObjArgs(error_of, number, NULL); /* new */
  Py_DecRef(number);
  if (error != NULL) PyErr_SetObject((PyObject *)error->ob_type, error);
  Py_DecRef(error);
  return NULL;
}
