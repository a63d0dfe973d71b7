/*
 * calls.c: libgorovod_python.so, the short way from horovod.torch to the engine. It is an extension module of CPython.
 *
 * It knows the plain case: a plain tensor (tensor.h) and arguments of exactly the expected types. In all other cases,
 * and wherever something has gone wrong, a function says so, and the caller's Python code does the whole work. That
 * code has all checks, all error messages, and the waits that Ctrl-C interrupts; this file has none of these. Only the
 * engine's refusal of an operation raises here, because submitting it again could do something else.
 *
 * The memory of an operation is a Cell of horovod.common._cells. Its object comes from the pool that the Python code
 * uses, too. Python code can therefore wait for an operation that was submitted here, and the other way round.
 *
 * Rules:
 *
 *  - References. A function's arguments are borrowed for the length of the call. `new` in a comment marks a reference
 *    that the function must give back or pass on; what a getter of a tuple, list or dict returns is borrowed, and used
 *    before anything else runs. What an operation may still use is never given back: if it has not ended, its tensors
 *    go into the table of handles, or stay alive for ever if there is no memory for that.
 *  - The GIL. Everything holds it, except the wait in wait_a_little. Between a look at the shared state (the list of
 *    free cells, the table of handles) and its change, nothing runs that could let another thread in: no call of
 *    Python code, nothing that the garbage collector counts, no reference given back. `locked` tells whether another
 *    thread is inside such a section in Python code.
 *  - Exceptions. A function returns NULL if and only if it has set one. Calls that may fail are checked before the next
 *    call. KeyboardInterrupt is never taken back.
 *  - Forks. The child's Python code calls enable(False), and no function here does anything afterwards.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "abi.h"
#include "gorovod.h"
#include "tensor.h"

enum { NAME_BYTES = 256, HOST_MEMORY = -1 };

/* A cell, as horovod.common._cells lays it out. */
struct cell {
  int64_t handle;
  int32_t status;
  char name[NAME_BYTES];
  int64_t shape[MAX_NDIM];
  gorovod_op op;
};

static int (*enqueue)(const gorovod_op *, int64_t *);
static int (*wait_for)(int64_t, int64_t);
static int64_t wait_ms; /* the longest wait without a look at signals */
static PyObject *free_operations; /* list: the pool's */
static PyObject *kinds;           /* dict: the engine's number of a kind, by name */
static PyObject *handle_map;      /* dict: the operation of a handle */
static PyObject *globals;         /* dict with "_handles", an iterator that makes handles, and is replaced now and then */
static PyObject *plain_get;       /* the `get` of operations that this file submits */
static PyObject *locked;          /* whether another thread is changing handle_map or its operations */
static PyObject *error_of;        /* makes the exception of a refusal from its status */
static bool enabled;

static PyObject *str_address, *str_flags, *str_get, *str_keeps, *str_waiting, *str_handles, *str_set_id;

static PyObject *none(void) {
  Py_IncRef(Py_None);
  return Py_None;
}

/* ---- arguments ----------------------------------------------------------- */

static bool as_int32(PyObject *value, int32_t *number) {
  if (value->ob_type != &PyLong_Type) return false;
  long long n = PyLong_AsLongLong(value);
  if (n == -1 && PyErr_Occurred()) {
    PyErr_Clear(); /* it does not fit */
    return false;
  }
  *number = (int32_t)n;
  return n >= INT32_MIN && n <= INT32_MAX;
}

static bool as_double(PyObject *value, double *number) {
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

/* What the caller has given; everything but the tensors has been copied. */
struct request {
  PyObject *tensor, *output;
  struct view input;
  void *target;
  int32_t type, reduce_op, root_rank, process_set;
  double prescale, postscale;
  bool named;
  char name[NAME_BYTES]; /* KIND.NAME */
};

/* Reads the name; false unless it is None, or a str of ASCII for which there is room. */
static bool read_name(PyObject *kind, PyObject *name, struct request *request) {
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

enum { KIND, TENSOR, OUTPUT, NAME, PROCESS_SET, REDUCE_OP, PRESCALE, POSTSCALE, ROOT_RANK, ARGUMENTS };

static enum look read_request(PyObject *const *args, struct request *request) {
  request->tensor = args[TENSOR];
  request->output = args[OUTPUT];
  if (args[KIND]->ob_type != &PyUnicode_Type || !as_reduce_op(args[REDUCE_OP], &request->reduce_op) ||
      !as_double(args[PRESCALE], &request->prescale) || !as_double(args[POSTSCALE], &request->postscale) ||
      !as_int32(args[ROOT_RANK], &request->root_rank) || !read_name(args[KIND], args[NAME], request))
    return NOT_PLAIN;
  PyObject *number = PyDict_GetItemWithError(kinds, args[KIND]);
  if (number == NULL || !as_int32(number, &request->type)) {
    PyErr_Clear();
    return NOT_PLAIN;
  }
  PyObject *set = PyObject_GetAttr(args[PROCESS_SET], str_set_id); /* new */
  if (set == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return RAISED;
    PyErr_Clear();
    return NOT_PLAIN;
  }
  bool fits = as_int32(set, &request->process_set);
  Py_DecRef(set);
  if (!fits) return NOT_PLAIN;
  struct view output;
  bool in_place = request->output == request->tensor;
  enum look look = in_place ? PLAIN : tensor_look(request->output, &output);
  if (look != PLAIN) return look;
  look = tensor_look(request->tensor, &request->input); /* last, so that the caller gets its storage at once */
  if (look == PLAIN) request->target = in_place ? request->input.data : output.data;
  return look;
}

/* ---- cells --------------------------------------------------------------- */

/* An operation of the pool, and its memory. */
struct slot {
  PyObject *operation;
  struct cell *cell;
};

/* Takes the operation out of the pool: a new reference. False, perhaps without an exception, if there is none. */
static bool take_slot(struct slot *slot) {
  Py_ssize_t n = PyList_Size(free_operations);
  if (n <= 0) return false;
  slot->operation = PyList_GetItem(free_operations, n - 1);
  Py_IncRef(slot->operation);
  PyObject *address = PyObject_GetAttr(slot->operation, str_address); /* new */
  unsigned long long at = address == NULL ? 0 : PyLong_AsUnsignedLongLong(address);
  Py_DecRef(address);
  if (address == NULL || PyErr_Occurred() || PyList_SetSlice(free_operations, n - 1, n, NULL) != 0) {
    Py_DecRef(slot->operation);
    return false;
  }
  slot->cell = (struct cell *)((char *)(uintptr_t)at - offsetof(struct cell, op));
  return true;
}

/* Gives the operation back to the pool. If there is no memory for that, it is lost. */
static void give_slot(struct slot slot) {
  if (PyList_Append(free_operations, slot.operation) != 0) PyErr_Clear();
  Py_DecRef(slot.operation);
}

static void fill(struct cell *cell, const struct request *request, uint32_t flags) {
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
}

static int status_of(const struct cell *cell) { return __atomic_load_n(&cell->status, __ATOMIC_ACQUIRE); }

/* Returns NULL, with the exception of a refusal. */
static PyObject *refused(int status) {
  PyObject *number = PyLong_FromLong(status);                                                       /* new */
  PyObject *error = number == NULL ? NULL : PyObject_CallFunctionObjArgs(error_of, number, NULL); /* new */
  Py_DecRef(number);
  if (error != NULL) PyErr_SetObject((PyObject *)error->ob_type, error);
  Py_DecRef(error);
  return NULL;
}

/* Makes a submitted operation, or one that is about to be, one of the Python code: its slots, and an entry in the table
 * of handles. Returns the handle, new; or NULL with an exception. */
static PyObject *put_into_table(struct slot slot, const struct request *request, PyObject *storage, uint32_t flags) {
  PyObject *counter = PyDict_GetItemWithError(globals, str_handles);
  PyObject *handle = counter == NULL ? NULL : PyIter_Next(counter);                                            /* new */
  PyObject *address = PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)request->input.data);         /* new */
  PyObject *number = PyLong_FromLong((long)flags);                                                             /* new */
  PyObject *keeps = address == NULL ? NULL : PyTuple_Pack(5, request->tensor, request->output, Py_None, storage, address);
  bool done = handle != NULL && number != NULL && keeps != NULL &&
              PyObject_SetAttr(slot.operation, str_flags, number) == 0 &&
              PyObject_SetAttr(slot.operation, str_get, plain_get) == 0 &&
              PyObject_SetAttr(slot.operation, str_keeps, keeps) == 0 &&
              PyDict_SetItem(handle_map, handle, slot.operation) == 0;
  Py_DecRef(address);
  Py_DecRef(number);
  Py_DecRef(keeps);
  if (done) return handle;
  Py_DecRef(handle);
  if (PyErr_Occurred() == NULL) PyErr_SetString(PyExc_ValueError, "horovod.torch._submission has no _handles");
  return NULL;
}

/* ---- the functions ------------------------------------------------------- */

#define RELEASE_IF_OK GOROVOD_RELEASE_IF_OK

/* Waits for the operation, but not for long: the caller's Python code can be interrupted, and waits for the rest. */
static void wait_a_little(const struct cell *cell) {
  if (status_of(cell) != GOROVOD_IN_PROGRESS) return;
  int64_t handle = cell->handle;
  PyThreadState *thread = PyEval_SaveThread();
  wait_for(handle, wait_ms);
  PyEval_RestoreThread(thread);
}

/* run(kind, tensor, output, name, process_set, reduce_op, prescale, postscale, root_rank)
 *
 * The operation, from its submission to its end. Returns output; or a handle, for synchronize, if it has failed or has
 * not ended soon; or None if nothing has been done. */
static PyObject *run(PyObject *module, PyObject *const *args, Py_ssize_t n) {
  (void)module;
  struct request request;
  if (!enabled || n != ARGUMENTS) return none();
  enum look look = read_request(args, &request);
  if (look != PLAIN) return look == RAISED ? NULL : none();
  PyObject *storage = tensor_storage(request.tensor); /* new */
  if (storage == NULL) return NULL;
  struct slot slot; /* new */
  if (!take_slot(&slot)) {
    Py_DecRef(storage);
    return PyErr_Occurred() ? NULL : none();
  }
  uint32_t flags = GOROVOD_WILL_WAIT | RELEASE_IF_OK;
  fill(slot.cell, &request, flags);
  int status = enqueue(&slot.cell->op, &slot.cell->handle);
  if (status != GOROVOD_OK) {
    give_slot(slot);
    Py_DecRef(storage);
    return refused(status);
  }
  wait_a_little(slot.cell);
  if (status_of(slot.cell) == GOROVOD_OK && tensor_is_at(request.tensor, request.input.data)) {
    give_slot(slot);
    Py_DecRef(storage);
    Py_IncRef(request.output);
    return request.output;
  }
  PyObject *handle = put_into_table(slot, &request, storage, flags);
  if (handle == NULL) { /* the engine may still use all of this: it stays for ever */
    Py_IncRef(request.tensor);
    Py_IncRef(request.output);
    return NULL;
  }
  Py_DecRef(storage);
  Py_DecRef(slot.operation);
  return handle;
}

/* submit(kind, tensor, output, name, process_set, reduce_op, prescale, postscale, root_rank, wait)
 *
 * Submits the operation; wait says that the caller will wait at once. Returns a handle, or None if nothing has been
 * done. */
static PyObject *submit(PyObject *module, PyObject *const *args, Py_ssize_t n) {
  (void)module;
  struct request request;
  if (!enabled || n != ARGUMENTS + 1) return none();
  enum look look = read_request(args, &request);
  if (look != PLAIN) return look == RAISED ? NULL : none();
  PyObject *storage = tensor_storage(request.tensor); /* new */
  if (storage == NULL) return NULL;
  struct slot slot; /* new */
  if (!take_slot(&slot)) {
    Py_DecRef(storage);
    return PyErr_Occurred() ? NULL : none();
  }
  uint32_t flags = RELEASE_IF_OK | (args[ARGUMENTS] == Py_True ? GOROVOD_WILL_WAIT : 0);
  fill(slot.cell, &request, flags);
  PyObject *handle = put_into_table(slot, &request, storage, flags); /* new */
  Py_DecRef(storage);
  if (handle == NULL) {
    Py_DecRef(slot.operation);
    return NULL;
  }
  int status = enqueue(&slot.cell->op, &slot.cell->handle);
  if (status != GOROVOD_OK) {
    if (PyDict_DelItem(handle_map, handle) != 0) PyErr_Clear(); /* another thread has shut down */
    Py_DecRef(handle);
    if (PyObject_SetAttr(slot.operation, str_keeps, Py_None) != 0) PyErr_Clear();
    give_slot(slot);
    return refused(status);
  }
  Py_DecRef(slot.operation);
  return handle;
}

/* Whether an attribute of an operation is this object, without an exception. */
static bool has(PyObject *operation, PyObject *name, PyObject *expected) {
  PyObject *value = PyObject_GetAttr(operation, name); /* new */
  if (value == NULL) {
    PyErr_Clear();
    return false;
  }
  bool same = value == expected;
  Py_DecRef(value); /* others hold it, too, or it is a number: nothing runs */
  return same;
}

static PyObject *zero; /* the number of threads that wait for an operation for which none waits */

/* take(handle)
 *
 * The result of an operation that was submitted here and has succeeded, if no thread waits for it: the handle becomes
 * invalid. None in all other cases. */
static PyObject *take(PyObject *module, PyObject *handle) {
  (void)module;
  if (!enabled || handle->ob_type != &PyLong_Type) return none();
  PyObject *operation = PyDict_GetItemWithError(handle_map, handle);
  if (operation == NULL) return PyErr_Occurred() ? NULL : none();
  if (!has(operation, str_get, plain_get)) return none(); /* a group, or submitted by Python code */
  struct slot slot = {operation, NULL};
  Py_IncRef(operation);                                         /* new */
  PyObject *address = PyObject_GetAttr(operation, str_address); /* new */
  PyObject *keeps = PyObject_GetAttr(operation, str_keeps);     /* new */
  PyObject *held = NULL, *result = NULL;
  if (address != NULL && keeps != NULL && keeps->ob_type == &PyTuple_Type) {
    slot.cell = (struct cell *)((char *)(uintptr_t)PyLong_AsUnsignedLongLong(address) - offsetof(struct cell, op));
    PyObject *tensor = PyTuple_GetItem(keeps, 0), *output = PyTuple_GetItem(keeps, 1);
    if (status_of(slot.cell) == GOROVOD_OK && tensor_is_at(tensor, slot.cell->op.input)) {
      held = PyObject_CallNoArgs(locked); /* new; from here on no other thread runs */
      if (held != NULL && held != Py_True && has(operation, str_keeps, keeps) && has(operation, str_waiting, zero) &&
          PyDict_GetItemWithError(handle_map, handle) == operation && PyDict_DelItem(handle_map, handle) == 0) {
        result = output;
        Py_IncRef(result); /* new, for the caller */
        /* The local keeps still holds everything, so nothing is freed here. */
        if (PyObject_SetAttr(operation, str_keeps, Py_None) != 0) PyErr_Clear();
      }
    }
  }
  Py_DecRef(address);
  Py_DecRef(held);
  if (result != NULL)
    give_slot(slot);
  else
    Py_DecRef(operation);
  Py_DecRef(keeps); /* last: this may free tensors, and run Python code */
  if (result != NULL) return result;
  PyErr_Clear();
  return none();
}

static PyObject *enable(PyObject *module, PyObject *value) {
  (void)module;
  enabled = value == Py_True && enqueue != NULL;
  return none();
}

/* setup((enqueue, wait, wait_ms), layout, free, kinds, globals, handle_map, get, locked, error,
 *       types, methods, api, dtypes, strided)
 *
 * The objects are described above, and at tensor_setup. layout has the numbers that both sides must agree on. Raises
 * ValueError if they do not. */
static PyObject *setup(PyObject *module, PyObject *args) {
  (void)module;
  unsigned long long functions[3], size, at_status, at_name, at_shape, at_op, op_size;
  PyObject *objects[7], *types, *methods, *api, *dtypes, *strided;
  if (!PyArg_ParseTuple(args, "(KKK)(KKKKKK)OOOOOOOOOOOO:setup", &functions[0], &functions[1], &functions[2], &size,
                        &at_status, &at_name, &at_shape, &at_op, &op_size, &objects[0], &objects[1], &objects[2],
                        &objects[3], &objects[4], &objects[5], &objects[6], &types, &methods, &api, &dtypes, &strided))
    return NULL;
  if (size < sizeof(struct cell) || at_status != offsetof(struct cell, status) || at_name != offsetof(struct cell, name) ||
      at_shape != offsetof(struct cell, shape) || at_op != offsetof(struct cell, op) || op_size != sizeof(gorovod_op)) {
    PyErr_SetString(PyExc_ValueError, "libgorovod_python.so is of another version: it lays operations out otherwise");
    return NULL;
  }
  PyObject **strings[] = {&str_address, &str_flags, &str_get, &str_keeps, &str_waiting, &str_handles, &str_set_id};
  const char *texts[] = {"address", "flags", "get", "keeps", "waiting", "_handles", "process_set_id"};
  for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
    *strings[i] = PyUnicode_InternFromString(texts[i]);
    if (*strings[i] == NULL) return NULL;
  }
  zero = PyLong_FromLong(0);
  if (zero == NULL || tensor_setup(types, methods, api, dtypes, strided) != 0) return NULL;
  PyObject **kept[] = {&free_operations, &kinds, &globals, &handle_map, &plain_get, &locked, &error_of};
  for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
    *kept[i] = objects[i];
    Py_IncRef(objects[i]); /* for ever, as the module */
  }
  enqueue = (int (*)(const gorovod_op *, int64_t *))(uintptr_t)functions[0];
  wait_for = (int (*)(int64_t, int64_t))(uintptr_t)functions[1];
  wait_ms = (int64_t)functions[2];
  enabled = true;
  return none();
}

static PyMethodDef functions[] = {
    {"setup", setup, METH_VARARGS, NULL},
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, NULL},
    {"submit", (PyCFunction)(void (*)(void))submit, METH_FASTCALL, NULL},
    {"take", take, METH_O, NULL},
    {"enable", enable, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
    .m_base = {.ob_base = {.ob_refcnt = 1}},
    .m_name = "horovod.torch._calls",
    .m_size = -1,
    .m_methods = functions,
};

__attribute__((visibility("default"))) PyObject *PyInit__calls(void);
PyObject *PyInit__calls(void) { return PyModule_Create2(&definition, 3); }
