/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor.h"

#include "attribute.h"
#include "dlpack.h"
#include "gorovod.h"

static bool is_contiguous(const struct dl_tensor *t) {
  if (t->strides == NULL) return true;
  int64_t step = 1;
  for (int i = t->ndim - 1; i >= 0; i--) {
    if (t->shape[i] != 1 && t->strides[i] != step) return false;
    step *= t->shape[i];
  }
  return true;
}

/* ---- what setup has found ------------------------------------------------ */

static PyTypeObject *plain_types[2];                    /* torch.Tensor and torch.nn.Parameter */
static int (*view_of)(void *object, struct dl_tensor *); /* NULL: ask by methods */
static PyObject *dtype_numbers;
/* Of torch.Tensor. */
static struct method data_ptr, is_neg, is_contiguous_method, numel, storage_method;
static struct method modes; /* no method: see in_mode */
static struct attribute dtype, shape, is_cpu;

int tensor_setup(PyObject *types, PyObject *sample, const char *storage, PyObject *api, PyObject *dtypes,
                 PyObject *modes_of) {
  if (!PyArg_ParseTuple(types, "OO:types", &plain_types[0], &plain_types[1])) return -1;
  PyObject *class = (PyObject *)plain_types[0];
  if (!attribute_find(&dtype, class, "dtype") || !attribute_find(&shape, class, "shape") ||
      !attribute_find(&is_cpu, class, "is_cpu") || !method_find(&data_ptr, sample, "data_ptr") ||
      !method_find(&is_neg, sample, "is_neg") || !method_find(&is_contiguous_method, sample, "is_contiguous") ||
      !method_find(&numel, sample, "numel") || !method_find(&storage_method, sample, storage) ||
      (modes_of != Py_None && !function_find(&modes, modes_of)))
    return -1;
  view_of = NULL;
  if (api != Py_None) {
    struct dl_api *dl = PyCapsule_GetPointer(api, "dlpack_exchange_api");
    if (dl == NULL) return -1;
    while (dl != NULL && dl->major != 1) dl = dl->previous;
    if (dl != NULL) view_of = dl->view;
  }
  dtype_numbers = dtypes;
  Py_IncRef(types); /* they live as long as the process */
  Py_IncRef(dtypes);
  return 0;
}

/* Takes back an exception, because the caller's Python code finds what is wrong, and says so. */
static enum look not_plain(void) {
  if (PyErr_Occurred() == NULL) return NOT_PLAIN;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return RAISED; /* KeyboardInterrupt, from Python code of a mode */
  PyErr_Clear();
  return NOT_PLAIN;
}

/* Compares a new reference, which may be NULL, with an object, and gives it back. */
static bool is(PyObject *value, PyObject *expected) {
  if (value == NULL) return false;
  Py_DecRef(value);
  return value == expected;
}

static bool ask(const struct method *method, PyObject *tensor, PyObject *expected) {
  return is(method_call(method, tensor), expected);
}

static void *address_of(PyObject *tensor) {
  PyObject *number = method_call(&data_ptr, tensor);
  if (number == NULL) return NULL;
  unsigned long long address = PyLong_AsUnsignedLongLong(number);
  Py_DecRef(number);
  return PyErr_Occurred() ? NULL : (void *)(uintptr_t)address;
}

bool in_mode(void) {
  if (modes.function == NULL) return false;
  PyObject *number = method_call(&modes, NULL); /* new */
  bool none = number != NULL && PyLong_AsLongLong(number) == 0;
  Py_DecRef(number);
  if (PyErr_Occurred()) PyErr_Clear();
  return !none;
}

/* Whether torch.jit.trace records what is done with the tensor: then its number of elements is a tensor, too. */
static bool is_traced(PyObject *tensor) {
  PyObject *number = method_call(&numel, tensor); /* new */
  bool plain = number != NULL && number->ob_type == &PyLong_Type;
  Py_DecRef(number);
  return !plain;
}

/* As tensor_look, by DLPack. */
static bool view_by_dlpack(PyObject *tensor, struct view *view) {
  struct dl_tensor t;
  if (is_traced(tensor) || view_of(tensor, &t) != 0) return false;
  int number = dl_dtype_of(&t);
  if (t.device_type != DL_CPU || number < 0 || t.ndim < 0 || t.ndim > MAX_NDIM || t.data == NULL || !is_contiguous(&t))
    return false;
  view->data = (char *)t.data + t.byte_offset;
  view->dtype = number;
  view->ndim = t.ndim;
  for (int i = 0; i < t.ndim; i++) view->shape[i] = t.shape[i];
  return true;
}

/* The engine's number of a torch.dtype, which is new or NULL; -1, perhaps with an exception, if there is none. */
static int number_of(PyObject *type) {
  static PyObject *last; /* dtype_numbers holds it */
  static int its;
  if (type != NULL && type != last) {
    PyObject *number = PyDict_GetItemWithError(dtype_numbers, type);
    last = number == NULL ? NULL : type;
    its = number == NULL ? -1 : (int)PyLong_AsLongLong(number);
  }
  Py_DecRef(type);
  return type == NULL ? -1 : its;
}

/* As tensor_look, by methods and properties. Tensors of another layout than strided have no address. */
static bool view_by_methods(PyObject *tensor, struct view *view) {
  if (!is(attribute_get(&is_cpu, tensor), Py_True)) return false;
  view->dtype = number_of(attribute_get(&dtype, tensor));
  if (view->dtype < 0) return false;
  PyObject *lengths = attribute_get(&shape, tensor); /* new */
  if (lengths == NULL) return false;
  Py_ssize_t ndim = PyTuple_Size(lengths);
  bool one = true; /* element, which is contiguous */
  bool traced = ndim == 0 && is_traced(tensor); /* otherwise the lengths are tensors */
  for (int i = 0; i < ndim && i < MAX_NDIM; i++) {
    PyObject *length = PyTuple_GetItem(lengths, i);
    traced = length->ob_type != &PyLong_Type;
    if (traced) break;
    view->shape[i] = PyLong_AsLongLong(length);
    one = one && view->shape[i] == 1;
  }
  Py_DecRef(lengths);
  if (traced || ndim < 0 || ndim > MAX_NDIM || PyErr_Occurred()) return false;
  if (!one && !ask(&is_contiguous_method, tensor, Py_True)) return false;
  view->ndim = (int)ndim;
  view->data = address_of(tensor);
  return view->data != NULL;
}

enum look tensor_look(PyObject *tensor, struct view *view) {
  PyTypeObject *type = tensor->ob_type;
  if (type != plain_types[0] && type != plain_types[1]) return NOT_PLAIN;
  PyObject *negated = method_call(&is_neg, tensor); /* new */
  if (negated == NULL) return not_plain();
  bool negative = negated == Py_True; /* the memory holds the negative of the values */
  Py_DecRef(negated);
  if (negative || !(view_of != NULL ? view_by_dlpack : view_by_methods)(tensor, view)) return not_plain();
  for (int i = 0; i < view->ndim; i++) {
    if (view->shape[i] == 0) return NOT_PLAIN;
  }
  return PLAIN;
}

bool tensor_is_at(PyObject *tensor, const void *address) {
  struct dl_tensor t;
  bool same;
  if (view_of != NULL)
    same = view_of(tensor, &t) == 0 && (char *)t.data + t.byte_offset == address;
  else
    same = address_of(tensor) == address;
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  return same;
}

PyObject *tensor_storage(PyObject *tensor) { return method_call(&storage_method, tensor); }

int dtype_bytes(int dtype) {
  switch (dtype) {
    case GOROVOD_UINT8: case GOROVOD_INT8: case GOROVOD_BOOL: return 1;
    case GOROVOD_UINT16: case GOROVOD_INT16: case GOROVOD_FLOAT16: case GOROVOD_BFLOAT16: return 2;
    case GOROVOD_INT32: case GOROVOD_FLOAT32: return 4;
    case GOROVOD_INT64: case GOROVOD_FLOAT64: return 8;
    default: return 0;
  }
}
