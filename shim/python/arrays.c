/*
 * arrays.c: a blocking call on a NumPy array. calls.c has the rules.
 *
 * JAX and TensorFlow show a tensor in host memory as an array without a copy. The array keeps the memory, and says where
 * it is. There is no handle: the operation begins and ends within one call. If it does not end well, or not soon, the
 * call hands it to the caller's Python code.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "arrays.h"

#include <string.h>

#include "attribute.h"
#include "capsule.h"
#include "cells.h"
#include "gorovod.h"
#include "request.h"
#include "tensor.h"

enum { SMALL = 1 << 16 }; /* bytes; for larger arrays the frameworks' own memory counts more than the call */

static struct pool pool;
static struct attribute flags_slot, keeps_slot;
static PyObject *adrift;    /* dict: its keys are operations that nobody else holds */
static PyObject *dtypes;    /* dict: from numpy.dtype to (the engine's number, bytes) */
static PyObject *str_interface, *str_dtype, *str_data, *str_shape, *str_strides;
static int64_t wait_ms;

/* An array, and what the engine needs to know of it. */
struct array {
  struct view view;
  size_t bytes;
};

/* Takes back an exception, because the caller's Python code finds what is wrong, and says so; but no KeyboardInterrupt. */
static bool refuse(void) {
  if (PyErr_Occurred() != NULL && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
  return false;
}

static PyObject *not_plain(void) { return PyErr_Occurred() != NULL ? NULL : none(); }

static bool read_type(PyObject *object, struct array *array) {
  PyObject *type = PyObject_GetAttr(object, str_dtype);                                   /* new */
  PyObject *numbers = type == NULL ? NULL : PyDict_GetItemWithError(dtypes, type);
  Py_DecRef(type);
  int size;
  if (numbers == NULL || !PyArg_ParseTuple(numbers, "ii", &array->view.dtype, &size)) return false;
  array->bytes = (size_t)size;
  return true;
}

/* Reads an array's interface, which is borrowed. */
static bool read_place(PyObject *interface, struct array *array) {
  if (interface->ob_type != &PyDict_Type) return false;
  PyObject *data = PyDict_GetItemWithError(interface, str_data);
  PyObject *shape = data == NULL ? NULL : PyDict_GetItemWithError(interface, str_shape);
  PyObject *strides = shape == NULL ? NULL : PyDict_GetItemWithError(interface, str_strides);
  if (PyErr_Occurred() != NULL || shape == NULL || (strides != NULL && strides != Py_None)) return false;
  Py_ssize_t ndim = PyTuple_Size(shape);
  PyObject *address = PyTuple_GetItem(data, 0);
  if (ndim < 0 || ndim > MAX_NDIM || address == NULL) return false;
  array->view.ndim = (int)ndim;
  array->view.data = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(address);
  for (int i = 0; i < ndim; i++) {
    int64_t length = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    if (length <= 0 || length > SMALL) return false;
    array->view.shape[i] = length;
    array->bytes *= (size_t)length;
    if (array->bytes > SMALL) return false;
  }
  return array->view.data != NULL && PyErr_Occurred() == NULL;
}

/* Looks at an object; false unless it is a contiguous array of a known type, small, and not empty. The only exception is
 * then KeyboardInterrupt. */
static bool look(PyObject *object, struct array *array) {
  if (!read_type(object, array)) return refuse();
  PyObject *interface = PyObject_GetAttr(object, str_interface); /* new */
  if (interface == NULL) return refuse();
  bool good = read_place(interface, array);
  Py_DecRef(interface);
  return good || refuse();
}

static bool alike(const struct array *a, const struct array *b) {
  return a->view.dtype == b->view.dtype && a->view.ndim == b->view.ndim &&
         memcmp(a->view.shape, b->view.shape, (size_t)a->view.ndim * sizeof a->view.shape[0]) == 0;
}

/* Hands the operation to Python code, which finds it among those that are adrift if it is interrupted: new. If there is
 * no memory for that, everything that the engine may still use stays for ever, and an exception is set. */
static PyObject *hand_over(struct slot slot, PyObject *source, PyObject *target) {
  PyObject *keeps = PyTuple_Pack(2, source, target);                                           /* new */
  PyObject *flags = keeps == NULL ? NULL : PyLong_FromLong((long)slot.cell->op.flags); /* new */
  bool done = flags != NULL && attribute_set(&flags_slot, slot.operation, flags) &&
              attribute_set(&keeps_slot, slot.operation, keeps) && PyDict_SetItem(adrift, slot.operation, Py_None) == 0;
  Py_DecRef(flags);
  Py_DecRef(keeps);
  if (done) return slot.operation;
  Py_IncRef(source);
  Py_IncRef(target);
  return NULL;
}

enum { SOURCE = 1, WHERE, CALL_NAME, SET, OP, PRE, POST, ROOT, CALL_WIRE, GIVEN }; /* after KIND */

/* Reads all arguments but the arrays. */
static bool read_arguments(PyObject *const *args, struct request *request) {
  if (!as_int32(args[KIND], &request->type) || !as_int32(args[SET], &request->process_set) ||
      !as_int32(args[OP], &request->reduce_op) || !as_int32(args[ROOT], &request->root_rank) ||
      !as_double(args[PRE], &request->prescale) || !as_double(args[POST], &request->postscale) ||
      !as_int32(args[CALL_WIRE], &request->wire))
    return false;
  if (request->type != GOROVOD_ALLREDUCE && request->type != GOROVOD_BROADCAST) return false;
  request->named = args[CALL_NAME] != Py_None;
  if (!request->named) return true;
  if (args[CALL_NAME]->ob_type != &PyBytes_Type) return false;
  const char *name = PyBytes_AsString(args[CALL_NAME]);
  size_t length = strlen(name);
  if (length == 0 || length >= NAME_BYTES) return false;
  memcpy(request->name, name, length + 1);
  return true;
}

PyObject *run_on_array(PyObject *module, PyObject *const *args, Py_ssize_t n) {
  (void)module;
  struct request request;
  struct array source, target;
  if (!enabled || pool.free == NULL || n != GIVEN || !read_arguments(args, &request)) return none();
  if (!look(args[SOURCE], &source)) return not_plain();
  PyObject *result = args[WHERE]; /* new, from here on */
  if (result == Py_None) {
    target = source;
    result = capsule_like(&source.view, source.bytes, &target.view.data);
    if (result == NULL) return NULL;
  } else if (look(result, &target) && alike(&source, &target)) {
    Py_IncRef(result);
  } else {
    return not_plain();
  }
  struct slot slot; /* new */
  if (!take_slot(&pool, &slot)) {
    Py_DecRef(result);
    return NULL;
  }
  request.input = source.view;
  request.target = target.view.data;
  fill_cell(slot.cell, &request, GOROVOD_WILL_WAIT | GOROVOD_RELEASE_IF_OK);
  int status = run_cell(slot.cell, wait_ms);
  if (status != GOROVOD_OK && slot.cell->handle != 0) {
    PyObject *operation = hand_over(slot, args[SOURCE], result); /* new */
    Py_DecRef(result);
    return operation;
  }
  if (status != GOROVOD_OK) {
    Py_DecRef(result);
    result = PyLong_FromLong(status);
  }
  give_slot(&pool, slot);
  return result;
}

PyObject *setup_arrays(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *class, *free, *grow, *operations, *types;
  unsigned long long slice;
  if (!PyArg_ParseTuple(args, "OOOOOK:setup_arrays", &class, &free, &grow, &operations, &types, &slice)) return NULL;
  PyObject **strings[] = {&str_interface, &str_dtype, &str_data, &str_shape, &str_strides};
  const char *texts[] = {"__array_interface__", "dtype", "data", "shape", "strides"};
  for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
    *strings[i] = PyUnicode_InternFromString(texts[i]);
    if (*strings[i] == NULL) return NULL;
  }
  if (!attribute_find(&flags_slot, class, "flags") || !attribute_find(&keeps_slot, class, "keeps")) return NULL;
  Py_IncRef(free); /* all for ever, as the module */
  Py_IncRef(grow);
  Py_IncRef(operations);
  Py_IncRef(types);
  pool.free = free;
  pool.grow = grow;
  adrift = operations;
  dtypes = types;
  wait_ms = (int64_t)slice;
  return none();
}
