/*
 * calls.c: libgorovod_python.so, the short way from Python to the engine, an extension module of CPython; and its way
 * from horovod.torch.
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
 *  - The GIL. Everything holds it, except the waits in wait_a_little and run_cell. Between a look at the shared state (the list of
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
#include "arrays.h"
#include "attribute.h"
#include "cells.h"
#include "gorovod.h"
#include "groups.h"
#include "made.h"
#include "request.h"
#include "tensor.h"

static int64_t wait_ms; /* the longest wait without a look at signals */
static struct pool pool;
static PyObject *handle_map;      /* dict: the operation of a handle */
static PyObject *globals;         /* dict with "_handles": an iterator that makes handles, replaced now and then */
static PyObject *group_class;     /* the class of groups that this file submits */
static PyObject *plain_get;       /* the `get` of operations that this file submits, */
static PyObject *alltoall_get;    /* and of alltoalls */
static PyObject *taking;          /* the lock of threads that change handle_map or its operations, */
static struct method locked;      /* and its method */

static PyObject *zero, *one; /* numbers of threads that wait for an operation */
static struct attribute flags_slot, get_slot, keeps_slot, waiting_slot; /* of operations, */
static struct attribute group_waiting_slot, operations_slot;            /* and of groups */
static PyObject *str_handles;

/* Sets the operation's attribute flags. False with an exception if that fails. */
static bool set_flags(const struct slot *slot, uint32_t flags) {
  if (slot->flags == (int64_t)flags) return true;
  PyObject *number = PyLong_FromLong((long)flags); /* new */
  bool done = number != NULL && attribute_set(&flags_slot, slot->operation, number);
  Py_DecRef(number);
  return done;
}

/* Fills the operation's slots, as Python code does. False with an exception if that fails. */
static bool fill_slots(const struct slot *slot, const struct request *request, PyObject *storage, uint32_t flags) {
  PyObject *address = PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)request->input.data); /* new */
  PyObject *keeps = NULL;                                                                              /* new */
  if (address != NULL) keeps = PyTuple_Pack(5, request->tensor, request->output, Py_None, storage, address);
  bool done = keeps != NULL && set_flags(slot, flags) && attribute_set(&keeps_slot, slot->operation, keeps);
  Py_DecRef(address);
  Py_DecRef(keeps);
  return done;
}

/* Gives an operation that fill_slots has filled back to the pool, and what it kept: other code may run. get is the
 * value of its attribute, or NULL if that is not known. */
static void give_back(PyObject *operation, struct cell *cell, PyObject *get) {
  end_description(cell);
  if (!attribute_set(&keeps_slot, operation, Py_None)) PyErr_Clear();
  Py_IncRef(operation);
  give_slot(&pool, (struct slot){operation, cell, get, cell->op.flags});
}

/* Puts an operation, or a group, into the table of handles. Returns the handle, new; or NULL with an exception. */
static PyObject *put_into_table(PyObject *operation) {
  PyObject *counter = PyDict_GetItemWithError(globals, str_handles);
  PyObject *handle = counter == NULL ? NULL : PyIter_Next(counter); /* new */
  if (handle != NULL && PyDict_SetItem(handle_map, handle, operation) == 0) return handle;
  Py_DecRef(handle);
  if (PyErr_Occurred() == NULL) PyErr_SetString(PyExc_ValueError, "horovod.torch._submission has no _handles");
  return NULL;
}

/* Makes an operation one of the Python code: its slots, and an entry in the table. Returns as put_into_table. */
static PyObject *hand_over(struct slot slot, const struct request *request, PyObject *storage, uint32_t flags) {
  PyObject *get = request->type == GOROVOD_ALLTOALL ? alltoall_get : plain_get;
  if (slot.get != get && !attribute_set(&get_slot, slot.operation, get)) return NULL;
  return fill_slots(&slot, request, storage, flags) ? put_into_table(slot.operation) : NULL;
}

/* ---- the functions ------------------------------------------------------- */

#define RELEASE_IF_OK GOROVOD_RELEASE_IF_OK

/* run(kind, tensor, output, name, process_set, reduce_op, prescale, postscale, root_rank, wire)
 *
 * The operation, from its submission to its end. Returns output; or a handle, for synchronize, if it has failed or has
 * not ended soon; or None if nothing has been done. */
static PyObject *run(PyObject *module, PyObject *const *args, Py_ssize_t n) {
  (void)module;
  struct request request;
  if (!enabled || pool.free == NULL || n != ARGUMENTS) return none();
  enum look look = read_request(args, &request);
  if (look != PLAIN) return look == RAISED ? NULL : none();
  PyObject *storage = tensor_storage(request.tensor); /* new */
  if (storage == NULL) return NULL;
  struct slot slot; /* new */
  if (!take_slot(&pool, &slot)) {
    Py_DecRef(storage);
    return NULL;
  }
  uint32_t flags = GOROVOD_WILL_WAIT | RELEASE_IF_OK;
  fill_cell(slot.cell, &request, flags);
  int status = run_cell(slot.cell, wait_ms);
  if (status != GOROVOD_OK && slot.cell->handle == 0) {
    PyObject *nothing = refused(status); /* first: giving back may run other code */
    give_slot(&pool, slot);
    Py_DecRef(storage);
    return nothing;
  }
  if (status == GOROVOD_OK && tensor_is_at(request.tensor, request.input.data)) {
    give_slot(&pool, slot);
    Py_DecRef(storage);
    Py_IncRef(request.output);
    return request.output;
  }
  PyObject *handle = hand_over(slot, &request, storage, flags);
  if (handle == NULL) { /* the engine may still use all of this: it stays for ever */
    Py_IncRef(request.tensor);
    Py_IncRef(request.output);
    return NULL;
  }
  Py_DecRef(storage);
  Py_DecRef(slot.operation);
  return handle;
}

/* submit(kind, tensor, output, name, process_set, reduce_op, prescale, postscale, root_rank, wire,
 *        wait)
 *
 * Submits the operation; wait says that the caller will wait at once. Returns a handle, or None if nothing has been
 * done. */
static PyObject *submit(PyObject *module, PyObject *const *args, Py_ssize_t n) {
  (void)module;
  struct request request;
  if (!enabled || pool.free == NULL || n != ARGUMENTS + 1) return none();
  enum look look = read_request(args, &request);
  if (look != PLAIN) return look == RAISED ? NULL : none();
  PyObject *storage = tensor_storage(request.tensor); /* new */
  if (storage == NULL) return NULL;
  struct slot slot; /* new */
  if (!take_slot(&pool, &slot)) {
    Py_DecRef(storage);
    return NULL;
  }
  uint32_t flags = RELEASE_IF_OK | (args[ARGUMENTS] == Py_True ? GOROVOD_WILL_WAIT : 0);
  fill_cell(slot.cell, &request, flags);
  PyObject *handle = hand_over(slot, &request, storage, flags); /* new */
  Py_DecRef(storage);
  if (handle == NULL) {
    Py_DecRef(slot.operation); /* there is no memory: the cell is lost */
    return NULL;
  }
  int status = enqueue_cell(slot.cell);
  if (status != GOROVOD_OK) {
    if (PyDict_DelItem(handle_map, handle) != 0) PyErr_Clear(); /* another thread has shut down */
    Py_DecRef(handle);
    give_back(slot.operation, slot.cell, NULL);
    Py_DecRef(slot.operation);
    return refused(status);
  }
  Py_DecRef(slot.operation);
  return handle;
}

enum { M_KIND, M_TENSOR, M_NAME, M_SET, M_SPLITS, M_ARGUMENTS };

/* Reads the arguments of run_made and submit_made, and enqueues the operation. PLAIN: it is submitted, or refused with
 * status. The slot and the storage are new then. */
static enum look enqueue_made(PyObject *const *args, uint32_t flags, struct request *request, struct slot *slot,
                              PyObject **storage, int *status) {
  int32_t splits[MAX_SPLITS];
  *request = (struct request){.tensor = args[M_TENSOR], .output = Py_None, .prescale = 1.0, .postscale = 1.0};
  if (!read_kind(args[M_KIND], &request->type)) return NOT_PLAIN;
  if (request->type != GOROVOD_ALLGATHER && request->type != GOROVOD_ALLTOALL) return NOT_PLAIN;
  int n = read_splits(args[M_SPLITS], splits);
  if (n < 0 || !read_name(args[M_KIND], args[M_NAME], request) || in_mode()) return NOT_PLAIN;
  enum look look = read_set(args[M_SET], &request->process_set);
  if (look == PLAIN) look = tensor_look(request->tensor, &request->input);
  if (look != PLAIN) return look;
  *storage = tensor_storage(request->tensor); /* new */
  if (*storage == NULL) return RAISED;
  if (!take_slot(&pool, slot)) { /* new */
    Py_DecRef(*storage);
    return RAISED;
  }
  fill_cell(slot->cell, request, flags);
  slot->cell->op.splits = n > 0 ? splits : NULL; /* copied */
  slot->cell->op.nsplits = n;
  *status = enqueue_cell(slot->cell);
  slot->cell->op.splits = NULL;
  slot->cell->op.nsplits = 0;
  return PLAIN;
}

/* run_made(kind, tensor, name, process_set, splits)
 *
 * As run, for an allgather or an alltoall. */
static PyObject *run_made(PyObject *module, PyObject *const *args, Py_ssize_t n) {
  (void)module;
  struct request request;
  struct slot slot;
  PyObject *storage;
  int status;
  if (!enabled || pool.free == NULL || n != M_ARGUMENTS) return none();
  enum look look = enqueue_made(args, GOROVOD_WILL_WAIT, &request, &slot, &storage, &status);
  if (look != PLAIN) return look == RAISED ? NULL : none();
  PyObject *result = NULL; /* new */
  if (status == GOROVOD_OK) {
    wait_a_little(slot.cell, wait_ms);
    if (status_of(slot.cell) == GOROVOD_OK && tensor_is_at(request.tensor, request.input.data))
      result = made_result(slot.cell, request.tensor);
    if (result == NULL && (PyErr_Occurred() == NULL || PyErr_ExceptionMatches(PyExc_Exception))) {
      PyErr_Clear(); /* Python code meets it again */
      result = hand_over(slot, &request, storage, GOROVOD_WILL_WAIT);
      if (result == NULL) { /* the engine may still use all of this: it stays for ever */
        Py_IncRef(request.tensor);
        return NULL;
      }
      Py_DecRef(storage);
      Py_DecRef(slot.operation);
      return result;
    }
    engine.release(slot.cell->handle);
  } else {
    result = refused(status);
  }
  give_slot(&pool, slot);
  Py_DecRef(storage);
  return result;
}

/* submit_made(kind, tensor, name, process_set, splits, wait)
 *
 * As submit, for an allgather or an alltoall. */
static PyObject *submit_made(PyObject *module, PyObject *const *args, Py_ssize_t n) {
  (void)module;
  struct request request;
  struct slot slot;
  PyObject *storage;
  int status;
  if (!enabled || pool.free == NULL || n != M_ARGUMENTS + 1) return none();
  uint32_t flags = args[M_ARGUMENTS] == Py_True ? GOROVOD_WILL_WAIT : 0;
  enum look look = enqueue_made(args, flags, &request, &slot, &storage, &status);
  if (look != PLAIN) return look == RAISED ? NULL : none();
  if (status != GOROVOD_OK) {
    give_slot(&pool, slot);
    Py_DecRef(storage);
    return refused(status);
  }
  PyObject *handle = hand_over(slot, &request, storage, flags); /* new */
  if (handle == NULL) { /* the engine may still use all of this: it stays for ever */
    Py_IncRef(request.tensor);
    return NULL;
  }
  Py_DecRef(storage);
  Py_DecRef(slot.operation);
  return handle;
}

/* Operations that are being submitted together. */
struct batch {
  int n; /* how many have been described */
  PyObject *operations; /* list, new */
  const gorovod_op **ops;
  int64_t *handles;
};

/* Describes an operation of the batch. */
static enum look describe(struct batch *batch, struct request *request, uint32_t flags) {
  PyObject *storage = tensor_storage(request->tensor); /* new */
  if (storage == NULL) return RAISED;
  struct slot slot; /* new */
  if (!take_slot(&pool, &slot)) {
    Py_DecRef(storage);
    return RAISED;
  }
  request->named = false;
  fill_cell(slot.cell, request, flags);
  bool done = fill_slots(&slot, request, storage, flags) &&
              PyList_Append(batch->operations, slot.operation) == 0;
  if (done) batch->ops[batch->n++] = &slot.cell->op;
  Py_DecRef(storage);
  Py_DecRef(slot.operation);
  return done ? PLAIN : RAISED;
}

/* Gives the batch's memory back; and its cells, if it has not been submitted. An exception that is set stays. */
static void end_batch(struct batch *batch, bool submitted) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  for (int i = 0; i < batch->n && !submitted; i++) {
    give_back(PyList_GetItem(batch->operations, i), cell_around(batch->ops[i]), NULL);
  }
  Py_DecRef(batch->operations);
  PyMem_Free(batch->ops);
  PyMem_Free(batch->handles);
  PyErr_Restore(type, value, traceback);
}

enum {
  G_KIND, G_TENSORS, G_OUTPUTS, G_NAME, G_PROCESS_SET, G_REDUCE_OP, G_PRESCALE, G_POSTSCALE, G_WAIT, G_NAMES,
  G_WIRES, G_ARGUMENTS
};

/* submit_group(kind, tensors, outputs, name, process_set, reduce_op, prescale, postscale, wait, names,
 *              wires)
 *
 * As submit, for lists of tensors and outputs, which are submitted together. name, of bytes or None, is the engine's
 * for the group; names is for the Group. wires is None, or a
 * list. */
static PyObject *submit_group(PyObject *module, PyObject *const *args, Py_ssize_t n) {
  (void)module;
  struct request request = {.root_rank = 0, .wire = 0};
  if (!enabled || pool.free == NULL || n != G_ARGUMENTS) return none();
  PyObject *tensors = args[G_TENSORS], *outputs = args[G_OUTPUTS], *name = args[G_NAME];
  if (tensors->ob_type != &PyList_Type || outputs->ob_type != &PyList_Type ||
      (name != Py_None && name->ob_type != &PyBytes_Type))
    return none();
  Py_ssize_t count = PyList_Size(tensors);
  if (count == 0 || count > INT32_MAX || PyList_Size(outputs) != count) return none();
  PyObject *wires = args[G_WIRES];
  if (wires != Py_None && (wires->ob_type != &PyList_Type || PyList_Size(wires) != count)) return none();
  enum look look = read_common(args[G_KIND], args[G_PROCESS_SET], args[G_REDUCE_OP], args[G_PRESCALE],
                               args[G_POSTSCALE], &request);
  if (look != PLAIN) return look == RAISED ? NULL : none();
  uint32_t flags = RELEASE_IF_OK | (args[G_WAIT] == Py_True ? GOROVOD_WILL_WAIT : 0);
  struct batch batch = {
      .operations = PyList_New(0),
      .ops = PyMem_Malloc((size_t)count * sizeof batch.ops[0]),
      .handles = PyMem_Malloc((size_t)count * sizeof batch.handles[0]),
  };
  if (batch.operations == NULL || batch.ops == NULL || batch.handles == NULL) {
    end_batch(&batch, false);
    return PyErr_NoMemory();
  }
  for (Py_ssize_t i = 0; i < count && look == PLAIN; i++) {
    PyObject *tensor = PyList_GetItem(tensors, i), *output = PyList_GetItem(outputs, i);
    if (tensor == NULL || output == NULL) { /* other code has made the list shorter */
      look = RAISED;
      break;
    }
    if (wires != Py_None) {
      PyObject *wire = PyList_GetItem(wires, i);
      if (wire == NULL || !as_int32(wire, &request.wire)) {
        look = wire == NULL ? RAISED : NOT_PLAIN;
        break;
      }
    }
    Py_IncRef(tensor); /* new, both: other code may change the lists */
    Py_IncRef(output);
    look = read_tensors(tensor, output, &request);
    if (look == PLAIN) look = describe(&batch, &request, flags);
    Py_DecRef(tensor);
    Py_DecRef(output);
  }
  PyObject *group = NULL, *handle = NULL; /* new, both */
  if (look == PLAIN) group = PyObject_CallFunctionObjArgs(group_class, batch.operations, args[G_NAMES], NULL);
  if (group != NULL) handle = put_into_table(group);
  Py_DecRef(group);
  if (handle == NULL) {
    end_batch(&batch, false);
    return look == NOT_PLAIN ? none() : NULL;
  }
  int status = engine.enqueue_group(name == Py_None ? NULL : PyBytes_AsString(name), batch.ops, batch.n, batch.handles);
  if (status != GOROVOD_OK) {
    if (PyDict_DelItem(handle_map, handle) != 0) PyErr_Clear(); /* another thread has shut down */
    Py_DecRef(handle);
    end_batch(&batch, false);
    return refused(status);
  }
  for (int i = 0; i < batch.n; i++) {
    cell_around(batch.ops[i])->handle = batch.handles[i];
    end_description(cell_around(batch.ops[i]));
  }
  end_batch(&batch, true);
  return handle;
}

/* Whether value, a new reference to what others hold, too, or NULL, is this object, without an exception. */
static bool same(PyObject *value, PyObject *expected) {
  if (value == NULL) {
    PyErr_Clear();
    return false;
  }
  Py_DecRef(value); /* nothing runs: others hold it */
  return value == expected;
}

/* What an operation keeps, new, if it was submitted here, has succeeded, and its tensor has the same memory as then.
 * Otherwise NULL, perhaps with an exception. */
static PyObject *kept_by(PyObject *operation) {
  struct cell *cell = cell_of(operation);
  if (cell == NULL || status_of(cell) != GOROVOD_OK) return NULL;
  PyObject *keeps = attribute_get(&keeps_slot, operation); /* new */
  if (keeps == NULL) return NULL;
  if (keeps->ob_type == &PyTuple_Type && PyTuple_Size(keeps) == 5 && PyTuple_GetItem(keeps, 2) == Py_None &&
      tensor_is_at(PyTuple_GetItem(keeps, 0), cell->op.input))
    return keeps;
  Py_DecRef(keeps);
  return NULL;
}

/* Takes the entry out of the table if no other thread uses it. From the first line on, no other thread runs. */
static bool take_entry(PyObject *handle, PyObject *entry, const struct attribute *waiting, bool waits) {
  PyObject *held = method_call(&locked, taking); /* new: True or False */
  Py_DecRef(held);
  return held != NULL && held != Py_True && PyDict_GetItemWithError(handle_map, handle) == entry &&
         same(attribute_get(waiting, entry), waits ? one : zero) && (!waits || attribute_set(waiting, entry, zero)) &&
         PyDict_DelItem(handle_map, handle) == 0;
}

/* The result of an operation that submit or submit_made has submitted: new, or NULL. */
static PyObject *take_one(PyObject *handle, PyObject *operation, bool waits) {
  PyObject *keeps = kept_by(operation); /* new */
  if (keeps == NULL) return NULL;
  struct cell *cell = cell_of(operation);
  PyObject *result = PyTuple_GetItem(keeps, 1);
  bool made = result == Py_None && (cell->op.flags & RELEASE_IF_OK) == 0;
  if (made)
    result = made_result(cell, PyTuple_GetItem(keeps, 0)); /* new */
  else
    Py_IncRef(result);
  int64_t number = cell->handle;
  /* keeps is still the same if no other code has taken the operation, and used it anew, during the questions above. */
  if (result != NULL && same(attribute_get(&keeps_slot, operation), keeps) && take_entry(handle, operation, &waiting_slot, waits)) {
    if (made) engine.release(number);
    give_back(operation, cell, made ? NULL : plain_get); /* keeps still holds everything */
  } else {
    Py_DecRef(result);
    result = NULL;
  }
  Py_DecRef(keeps); /* last: other code may run */
  return result;
}

/* The results of a group: a list, new, or NULL. */
static PyObject *take_many(PyObject *handle, PyObject *group, bool waits) {
  PyObject *operations = attribute_get(&operations_slot, group); /* new */
  if (operations == NULL || operations->ob_type != &PyList_Type) {
    Py_DecRef(operations);
    return NULL;
  }
  Py_ssize_t n = PyList_Size(operations);
  PyObject *results = PyList_New(0), *all = PyList_New(0); /* new; all that the operations keep */
  bool good = results != NULL && all != NULL;
  for (Py_ssize_t i = 0; i < n && good; i++) {
    PyObject *keeps = kept_by(PyList_GetItem(operations, i)); /* new */
    good = keeps != NULL && PyTuple_GetItem(keeps, 1) != Py_None &&
           PyList_Append(results, PyTuple_GetItem(keeps, 1)) == 0 && PyList_Append(all, keeps) == 0;
    Py_DecRef(keeps);
  }
  for (Py_ssize_t i = 0; i < n && good; i++)
    good = same(attribute_get(&keeps_slot, PyList_GetItem(operations, i)), PyList_GetItem(all, i));
  good = good && take_entry(handle, group, &group_waiting_slot, waits);
  for (Py_ssize_t i = 0; i < n && good; i++) {
    PyObject *operation = PyList_GetItem(operations, i);
    struct cell *cell = cell_of(operation);
    if (cell != NULL)
      give_back(operation, cell, NULL); /* all still holds everything */
    else
      PyErr_Clear(); /* there is no memory: the operation is lost */
  }
  Py_DecRef(operations);
  Py_DecRef(all); /* other code may run */
  if (good) return results;
  Py_DecRef(results);
  return NULL;
}

/* take(handle, waits)
 *
 * The result of an operation or of a group that was submitted here and has succeeded: the handle becomes invalid. waits
 * says that the caller is counted among the threads that wait for it. None in all other cases, also if another thread
 * waits for it. */
static PyObject *take(PyObject *module, PyObject *const *args, Py_ssize_t n) {
  (void)module;
  if (!enabled || pool.free == NULL || n != 2 || args[0]->ob_type != &PyLong_Type) return none();
  PyObject *handle = args[0], *entry = PyDict_GetItemWithError(handle_map, handle);
  if (entry == NULL) return PyErr_Occurred() ? NULL : none();
  bool waits = args[1] == Py_True;
  PyObject *result = NULL;
  Py_IncRef(entry); /* new */
  if ((PyObject *)entry->ob_type == group_class)
    result = take_many(handle, entry, waits);
  else if (same(attribute_get(&get_slot, entry), plain_get) || same(attribute_get(&get_slot, entry), alltoall_get))
    result = take_one(handle, entry, waits);
  Py_DecRef(entry);
  if (result != NULL) return result;
  if (PyErr_Occurred() != NULL && !PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
  PyErr_Clear();
  return none();
}

static PyObject *enable(PyObject *module, PyObject *value) {
  (void)module;
  enabled = value == Py_True && engine.enqueue != NULL;
  return none();
}

/* setup_engine(functions, layout, error): see cells_setup. All else is to be set up after it. */
static PyObject *setup_engine(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *functions, *layout, *error;
  if (!PyArg_ParseTuple(args, "OOO:setup_engine", &functions, &layout, &error) ||
      cells_setup(functions, layout, error) != 0)
    return NULL;
  enabled = true;
  return none();
}

/* setup(wait_ms, class, free, grow, kinds, globals, handle_map, group, get, alltoall_get, taking, types, sample, storage,
 *       api, dtypes, modes)
 *
 * The objects are described above, and at tensor_setup. */
static PyObject *setup(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *class, *objects[7], *kinds, *types, *sample, *api, *dtypes, *modes, *lock;
  const char *storage;
  unsigned long long slice;
  if (!PyArg_ParseTuple(args, "KOOOOOOOOOOOOsOOO:setup", &slice, &class, &objects[0], &objects[1], &kinds, &objects[2],
                        &objects[3], &objects[4], &objects[5], &objects[6], &lock, &types, &sample, &storage, &api,
                        &dtypes, &modes))
    return NULL;
  str_handles = PyUnicode_InternFromString("_handles");
  zero = PyLong_FromLong(0);
  one = PyLong_FromLong(1);
  if (str_handles == NULL || zero == NULL || one == NULL ||
      tensor_setup(types, sample, storage, api, dtypes, modes) != 0 || request_setup(kinds) != 0 ||
      !attribute_find(&flags_slot, class, "flags") || !attribute_find(&get_slot, class, "get") ||
      !attribute_find(&keeps_slot, class, "keeps") || !attribute_find(&waiting_slot, class, "waiting") ||
      !attribute_find(&group_waiting_slot, objects[4], "waiting") ||
      !attribute_find(&operations_slot, objects[4], "operations") || !method_find(&locked, lock, "locked"))
    return NULL;
  PyObject **kept[] = {&pool.free, &pool.grow, &globals, &handle_map, &group_class, &plain_get, &alltoall_get};
  for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
    *kept[i] = objects[i];
    Py_IncRef(objects[i]); /* for ever, as the module */
  }
  taking = lock;
  Py_IncRef(taking);
  wait_ms = (int64_t)slice;
  return none();
}

static PyMethodDef functions[] = {
    {"setup_engine", setup_engine, METH_VARARGS, NULL},
    {"setup", setup, METH_VARARGS, NULL},
    {"setup_arrays", setup_arrays, METH_VARARGS, NULL},
    {"run_on_array", (PyCFunction)(void (*)(void))run_on_array, METH_FASTCALL, NULL},
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, NULL},
    {"submit", (PyCFunction)(void (*)(void))submit, METH_FASTCALL, NULL},
    {"submit_group", (PyCFunction)(void (*)(void))submit_group, METH_FASTCALL, NULL},
    {"setup_made", setup_made, METH_VARARGS, NULL},
    {"run_made", (PyCFunction)(void (*)(void))run_made, METH_FASTCALL, NULL},
    {"submit_made", (PyCFunction)(void (*)(void))submit_made, METH_FASTCALL, NULL},
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, NULL},
    {"setup_groups", setup_groups, METH_VARARGS, NULL},
    {"run_in_group", (PyCFunction)(void (*)(void))run_in_group, METH_FASTCALL, NULL},
    {"enable", enable, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
    .m_base = {.ob_base = {.ob_refcnt = 1}},
    .m_name = "horovod.common._calls",
    .m_size = -1,
    .m_methods = functions,
};

__attribute__((visibility("default"))) PyObject *PyInit__calls(void);
PyObject *PyInit__calls(void) { return PyModule_Create2(&definition, 3); }
