/*
 * request.c: the arguments of one operation, or of a group. calls.c has the rules.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "request.h"

#include <string.h>

#include "gorovod.h"

static PyObject *kinds; /* dict: the engine's number of a kind, by name */
static PyObject *str_set_id;

int request_setup(PyObject *numbers) {
  str_set_id = PyUnicode_InternFromString("process_set_id");
  if (str_set_id == NULL) return -1;
  kinds = numbers;
  Py_IncRef(kinds); /* for ever, as the module */
  return 0;
}

bool as_int32(PyObject *value, int32_t *number) {
  if (value->ob_type != &PyLong_Type) return false;
  long long n = PyLong_AsLongLong(value);
  if (n == -1 && PyErr_Occurred()) {
    PyErr_Clear(); /* it does not fit */
    return false;
  }
  *number = (int32_t)n;
  return n >= INT32_MIN && n <= INT32_MAX;
}

bool as_double(PyObject *value, double *number) {
  if (value->ob_type != &PyFloat_Type) return false;
  *number = PyFloat_AsDouble(value);
  return true;
}

/* The reduce operations that need no further check in Python. None is the average. */
static bool as_reduce_op(PyObject *value, int32_t *op) {
  if (value == Py_None) {
    *op = GOROVOD_AVERAGE;
    return true;
  }
  return as_int32(value, op) && *op >= GOROVOD_AVERAGE && *op <= GOROVOD_PRODUCT && *op != GOROVOD_ADASUM;
}

bool read_name(PyObject *kind, PyObject *name, struct request *request) {
  request->named = name != Py_None;
  if (!request->named) return true;
  if (name->ob_type != &PyUnicode_Type) return false;
  Py_ssize_t prefix = 0, size = 0;
  const char *text = PyUnicode_AsUTF8AndSize(kind, &prefix);
  const char *given = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, &size);
  if (given == NULL) {
    PyErr_Clear(); /* half of a surrogate pair */
    return false;
  }
  if (prefix + 1 + size >= NAME_BYTES) return false;
  memcpy(request->name, text, (size_t)prefix);
  request->name[prefix] = '.';
  char *to = request->name + prefix + 1;
  for (Py_ssize_t i = 0; i < size; i++) {
    if (given[i] <= 0) return false; /* NUL, or not ASCII */
    to[i] = given[i];
  }
  to[size] = '\0';
  return true;
}

bool read_kind(PyObject *kind, int32_t *number) {
  if (kind->ob_type != &PyUnicode_Type) return false;
  PyObject *found = PyDict_GetItemWithError(kinds, kind);
  if (found != NULL && as_int32(found, number)) return true;
  PyErr_Clear();
  return false;
}

enum look read_set(PyObject *process_set, int32_t *number) {
  PyObject *set = PyObject_GetAttr(process_set, str_set_id); /* new */
  if (set == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return RAISED;
    PyErr_Clear();
    return NOT_PLAIN;
  }
  bool fits = as_int32(set, number);
  Py_DecRef(set);
  return fits ? PLAIN : NOT_PLAIN;
}

enum look read_common(PyObject *kind, PyObject *process_set, PyObject *reduce_op, PyObject *prescale,
                      PyObject *postscale, struct request *request) {
  if (!as_reduce_op(reduce_op, &request->reduce_op) || !as_double(prescale, &request->prescale) ||
      !as_double(postscale, &request->postscale) || !read_kind(kind, &request->type) || in_mode())
    return NOT_PLAIN;
  return read_set(process_set, &request->process_set);
}

enum look read_tensors(PyObject *tensor, PyObject *output, struct request *request) {
  request->tensor = tensor;
  request->output = output;
  struct view view;
  enum look look = output == tensor ? PLAIN : tensor_look(output, &view);
  if (look != PLAIN) return look;
  look = tensor_look(tensor, &request->input); /* last, so that the caller gets its storage at once */
  if (look == PLAIN) request->target = output == tensor ? request->input.data : view.data;
  return look;
}

enum look read_request(PyObject *const *args, struct request *request) {
  enum look look = read_common(args[KIND], args[PROCESS_SET], args[REDUCE_OP], args[PRESCALE], args[POSTSCALE],
                               request);
  if (look != PLAIN) return look;
  if (!as_int32(args[ROOT_RANK], &request->root_rank) || !as_int32(args[WIRE], &request->wire) ||
      !read_name(args[KIND], args[NAME], request))
    return NOT_PLAIN;
  return read_tensors(args[TENSOR], args[OUTPUT], request);
}
