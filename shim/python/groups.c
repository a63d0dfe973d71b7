/*
 * groups.c: an operation of a process group of torch.distributed. calls.c has the rules.
 *
 * If its caller waits for it at once there is no handle and no Work: the operation begins and ends within one call. If
 * it does not end well, or not soon, or if the caller does not wait, the call hands it to the caller's Python code,
 * which makes a Work of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "groups.h"

#include <string.h>

#include "cells.h"
#include "request.h"
#include "tensor.h"

enum { MAX_MEMBERS = 64 }; /* of an alltoall */

static struct pool pool;
static PyObject *adrift; /* dict: its keys are operations that nobody else holds */
static PyObject *str_flags, *str_keeps;

/* The caller's arguments, and what follows from them. */
struct call {
  PyObject *source, *target; /* both None, or plain tensors, perhaps the same one */
  struct view input, output;
  int32_t kind, number, process_set, stream, reduce_op, root_rank, members, wait_ms;
  int64_t shape[MAX_NDIM]; /* as the engine sees the input */
  int ndim;
  bool given; /* the engine asks for the output's memory by gorovod_given_output */
};

static int64_t elements(const struct view *view) {
  int64_t n = 1;
  for (int i = 0; i < view->ndim; i++) n *= view->shape[i];
  return n;
}

static int64_t bytes(const struct view *view) {
  switch (view->dtype) {
    case GOROVOD_UINT8: case GOROVOD_INT8: case GOROVOD_BOOL: return elements(view);
    case GOROVOD_UINT16: case GOROVOD_INT16: case GOROVOD_FLOAT16: case GOROVOD_BFLOAT16: return 2 * elements(view);
    case GOROVOD_INT32: case GOROVOD_FLOAT32: return 4 * elements(view);
    case GOROVOD_INT64: case GOROVOD_FLOAT64: return 8 * elements(view);
    default: return -1;
  }
}

static void set_shape(struct call *call, int ndim, const int64_t *shape) {
  call->ndim = ndim;
  for (int i = 0; i < ndim; i++) call->shape[i] = shape[i];
}

/* Describes the input as horovod.torch.distributed does for the same operation. False: Python code is to say what is
 * wrong, or this is no plain case. */
static bool describe(struct call *call) {
  const struct view *in = &call->input, *out = &call->output;
  int64_t n = call->members;
  call->given = call->kind == GOROVOD_ALLGATHER || call->kind == GOROVOD_ALLTOALL;
  if (call->given && bytes(out) < 0) return false;
  switch (call->kind) {
    case GOROVOD_ALLREDUCE:
    case GOROVOD_BROADCAST:
      set_shape(call, in->ndim, in->shape);
      return call->source == call->target;
    case GOROVOD_ALLGATHER:
      set_shape(call, 2, (int64_t[]){1, elements(in)});
      return in->dtype == out->dtype && elements(out) == n * elements(in);
    case GOROVOD_REDUCESCATTER:
      set_shape(call, 2, (int64_t[]){n, elements(out)});
      return in->dtype == out->dtype && elements(in) == n * elements(out);
    case GOROVOD_ALLTOALL: /* equal parts, of tensors of one shape */
      if (in->dtype != out->dtype || in->ndim != out->ndim || in->ndim == 0 || n > MAX_MEMBERS || in->shape[0] % n != 0)
        return false;
      for (int i = 0; i < in->ndim; i++) {
        if (in->shape[i] != out->shape[i]) return false;
      }
      set_shape(call, 2, (int64_t[]){in->shape[0], elements(in) / in->shape[0]});
      return true;
    default: return false;
  }
}

/* Looks at the tensors. A barrier has none. */
static enum look look_at(struct call *call) {
  if (call->kind == GOROVOD_NAMED_BARRIER) {
    call->input = call->output = (struct view){.dtype = GOROVOD_UINT8};
    set_shape(call, 1, (int64_t[]){0});
    call->given = false;
    return call->source == Py_None && call->target == Py_None ? PLAIN : NOT_PLAIN;
  }
  enum look look = call->source == call->target ? PLAIN : tensor_look(call->target, &call->output);
  if (look != PLAIN) return look;
  look = tensor_look(call->source, &call->input); /* last, so that the caller gets its storage at once */
  if (look != PLAIN) return look;
  if (call->source == call->target) call->output = call->input;
  return describe(call) ? PLAIN : NOT_PLAIN;
}

/* Writes the operation's name: the group's, and the number. False if there is no room. */
static bool write_name(char *to, const char *group, int32_t number) {
  char digits[12];
  size_t length = strlen(group), n = 0;
  if (number < 0 || length + sizeof digits >= NAME_BYTES) return false;
  memcpy(to, group, length);
  do digits[n++] = (char)('0' + number % 10);
  while ((number /= 10) != 0);
  while (n > 0) to[length++] = digits[--n];
  to[length] = '\0';
  return true;
}

/* Fills the cell. False if the name is too long. */
static bool fill(struct cell *cell, const struct call *call, const char *group) {
  if (!write_name(cell->name, group, call->number)) return false;
  bool alltoall = call->kind == GOROVOD_ALLTOALL; /* whose handle tells the rows that came */
  for (int i = 0; i < call->ndim; i++) cell->shape[i] = call->shape[i];
  cell->given = (gorovod_memory){.data = call->output.data, .bytes = call->given ? (size_t)bytes(&call->output) : 0};
  int32_t *status = cell->op.status;
  cell->op = (gorovod_op){
      .size = sizeof cell->op,
      .flags = (call->wait_ms < 0 ? 0 : GOROVOD_WILL_WAIT) | (alltoall ? 0 : GOROVOD_RELEASE_IF_OK),
      .type = call->kind,
      .dtype = call->input.dtype,
      .reduce_op = call->reduce_op,
      .root_rank = call->root_rank,
      .process_set = call->process_set,
      .device = HOST_MEMORY,
      .ndim = call->ndim,
      .prescale = 1.0,
      .postscale = 1.0,
      .shape = cell->shape,
      .name = cell->name,
      .input = call->input.data,
      .output = call->given ? NULL : call->output.data,
      .alloc = call->given ? engine.given_output : NULL,
      .context = call->given ? &cell->given : NULL,
      .status = status,
      .stream = call->stream,
  };
  return true;
}

/* Makes the cell one that any operation can use. */
static void clear(struct cell *cell) {
  cell->op.alloc = NULL;
  cell->op.context = NULL;
  cell->op.stream = 0;
}

/* Submits the operation, and waits for its end for a while if the caller waits. The cell's handle is 0 if it was refused
 * or needs none any more. */
static int submit(struct cell *cell, const struct call *call) {
  if (call->wait_ms >= 0 && call->kind != GOROVOD_ALLTOALL) return run_cell(cell, call->wait_ms);
  cell->handle = 0;
  int status = engine.enqueue(&cell->op, &cell->handle);
  if (status == GOROVOD_OK && call->wait_ms >= 0) wait_a_little(cell, call->wait_ms);
  return status;
}

/* Whether an alltoall, which has succeeded, has brought as many rows from each member as the output is to take; then
 * its handle is released. True for all other operations. */
static bool rows_came(const struct cell *cell, const struct call *call) {
  if (call->kind != GOROVOD_ALLTOALL) return true;
  int32_t rows[MAX_MEMBERS];
  if (engine.received_splits(cell->handle, MAX_MEMBERS, rows) != call->members) return false;
  for (int i = 0; i < call->members; i++) {
    if (rows[i] != call->shape[0] / call->members) return false;
  }
  engine.release(cell->handle);
  return true;
}

/* The storage of a tensor, or None for None: a new reference, or NULL with an exception. */
static PyObject *storage_of(PyObject *tensor) {
  if (tensor != Py_None) return tensor_storage(tensor);
  Py_IncRef(Py_None);
  return Py_None;
}

/* Hands the operation to Python code, which finds it among those that are adrift if it is interrupted: new. It
 * keeps tensors, addresses and storages. If there is no memory for that, everything that the engine may still use stays for ever, and an exception is set. */
static PyObject *hand_over(struct slot slot, const struct call *call, PyObject *storage, PyObject *other) {
  unsigned long long from = (uintptr_t)call->input.data, to = (uintptr_t)call->output.data;
  PyObject *keeps = call->source == Py_None ? Py_BuildValue("()")
                                            : Py_BuildValue("((OKO)(OKO))", call->source, from, storage, call->target,
                                                            to, other);                          /* new */
  PyObject *flags = keeps == NULL ? NULL : PyLong_FromLong((long)slot.cell->op.flags); /* new */
  bool done = flags != NULL && PyObject_SetAttr(slot.operation, str_flags, flags) == 0 &&
              PyObject_SetAttr(slot.operation, str_keeps, keeps) == 0 &&
              PyDict_SetItem(adrift, slot.operation, Py_None) == 0;
  Py_DecRef(flags);
  Py_DecRef(keeps);
  if (!done) {
    Py_IncRef(call->source);
    Py_IncRef(call->target);
    return NULL; /* these, the storages and the operation stay */
  }
  Py_DecRef(storage);
  if (other != storage) Py_DecRef(other);
  return slot.operation;
}

enum { KIND_, SOURCE, TARGET, GROUP, NUMBER, SET, STREAM, OP, ROOT, MEMBERS, WAIT_MS, GIVEN };

PyObject *run_in_group(PyObject *module, PyObject *const *args, Py_ssize_t n) {
  (void)module;
  struct call call = {.source = args[SOURCE], .target = args[TARGET]};
  if (!enabled || n != GIVEN || args[GROUP]->ob_type != &PyBytes_Type || !as_int32(args[KIND_], &call.kind) ||
      !as_int32(args[NUMBER], &call.number) || !as_int32(args[SET], &call.process_set) ||
      !as_int32(args[STREAM], &call.stream) || !as_int32(args[OP], &call.reduce_op) ||
      !as_int32(args[ROOT], &call.root_rank) || !as_int32(args[MEMBERS], &call.members) ||
      !as_int32(args[WAIT_MS], &call.wait_ms) || call.members <= 0)
    return none();
  enum look look = look_at(&call);
  if (look != PLAIN) return look == RAISED ? NULL : none();
  PyObject *storage = storage_of(call.source); /* new */
  if (storage == NULL) return NULL;
  PyObject *other = call.target == call.source ? storage : storage_of(call.target); /* new */
  struct slot slot;                                                                 /* new */
  if (other == NULL || !take_slot(&pool, &slot)) {
    if (other != storage) Py_DecRef(other);
    Py_DecRef(storage);
    return NULL;
  }
  PyObject *result;
  if (!fill(slot.cell, &call, PyBytes_AsString(args[GROUP]))) {
    result = none();
  } else {
    int status = submit(slot.cell, &call);
    if (status == GOROVOD_OK && call.wait_ms < 0) {
      return hand_over(slot, &call, storage, other);
    } else if (status == GOROVOD_OK || slot.cell->handle != 0) {
      bool ended = status_of(slot.cell) == GOROVOD_OK &&
                   (call.source == Py_None || tensor_is_at(call.source, call.input.data)) &&
                   (call.source == call.target || tensor_is_at(call.target, call.output.data)) &&
                   rows_came(slot.cell, &call);
      if (!ended) return hand_over(slot, &call, storage, other);
      Py_IncRef(Py_True);
      result = Py_True;
    } else {
      result = refused(status);
    }
  }
  clear(slot.cell);
  give_slot(&pool, slot);
  if (other != storage) Py_DecRef(other);
  Py_DecRef(storage); /* last: other code may run */
  return result;
}

PyObject *setup_groups(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *free, *grow, *operations;
  if (!PyArg_ParseTuple(args, "OOO:setup_groups", &free, &grow, &operations)) return NULL;
  str_flags = PyUnicode_InternFromString("flags");
  str_keeps = PyUnicode_InternFromString("keeps");
  if (str_flags == NULL || str_keeps == NULL) return NULL;
  pool.free = free;
  pool.grow = grow;
  adrift = operations;
  Py_IncRef(free); /* all for ever, as the module */
  Py_IncRef(grow);
  Py_IncRef(operations);
  return none();
}
