/*
 * tables.c: pulls and pushes of sparse tables.
 *
 *   HorovodTablePull   keys of N columns ──▶ the rows of each column's distinct keys, and the place of each key's row
 *   HorovodTablePush   the same keys, and gradients of these rows ──▶ nothing
 *
 * The distinct keys of a column are numbered in the order of their first appearance. The table knows only one lookup,
 * that of all columns together, in an order of its own. A key that stands in several columns has one row, and its
 * gradients are added in the order of the columns.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "shim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "async.h"
#include "done.h"

/* One operation's description in the graph. */
struct kernel {
  bool push;
  int64_t table;
  unsigned char looks;  /* a pull that makes no rows */
  unsigned char padded; /* the key padding has no row: it reads as the zeros that follow a column's other rows */
  int64_t padding;
  char *name;
};

struct column {
  TF_Tensor *keys;
  TF_Tensor *rows;  /* the output of a pull; the gradients of a push */
  int64_t distinct; /* without the padding */
  int64_t *places;  /* of the distinct keys, in the lookup of all columns; in call.places */
};

/* One execution of a kernel. */
struct call {
  const struct kernel *kernel;
  TF_OpKernelContext *context;
  struct done done;
  TF_Status *status; /* the first failure */
  int64_t lookup;    /* 0 if there is none */
  int64_t total, distinct;
  int dim;
  int64_t *keys;   /* of all columns; NULL if there is only one */
  int64_t *index;  /* for each key, its place in the lookup */
  int64_t *places;
  float *rows;     /* of the lookup */
  int n;
  struct column columns[];
};

static float (*rate_of)(int64_t, char *, size_t);

void gorovod_tensorflow_rates(float (*of)(int64_t, char *, size_t)) { rate_of = of; }

static bool ok(const struct call *c) { return tf.TF_GetCode(c->status) == TF_OK; }

/* Memory for n things of bytes bytes, zeros if cleared is set, or NULL and a failure. */
static void *room(struct call *c, bool cleared, int64_t n, size_t bytes) {
  size_t all = ((size_t)n + 1) * bytes;
  void *p = !ok(c) ? NULL : cleared ? calloc(1, all) : malloc(all);
  if (p == NULL) fail(c->status, TF_RESOURCE_EXHAUSTED, "%s: no memory for %zu bytes", c->kernel->name, all);
  return p;
}

/* Ends the execution. Do not use it afterwards. */
static void finish(struct call *c) {
  if (!ok(c)) tf.TF_OpKernelContext_Failure(c->context, c->status);
  for (int i = 0; i < c->n; i++) {
    if (c->columns[i].keys != NULL) tf.TF_DeleteTensor(c->columns[i].keys);
    if (c->columns[i].rows != NULL) tf.TF_DeleteTensor(c->columns[i].rows);
  }
  if (c->lookup != 0) engine.lookup_release(c->lookup);
  free(c->keys);
  free(c->index);
  free(c->places);
  free(c->rows);
  tf.TF_DeleteStatus(c->status);
  struct done done = c->done;
  free(c);
  done_run(&done);
}

static int64_t elements(const TF_Tensor *t) {
  int64_t n = 1;
  for (int d = 0; d < tf.TF_NumDims(t); d++) n *= tf.TF_Dim(t, d);
  return n;
}

/* Asks the table for the distinct keys of all columns, whose keys are the inputs from first on. */
static void look_up(struct call *c, int first) {
  const struct kernel *k = c->kernel;
  c->dim = engine.table_dim(k->table);
  if (c->dim < 0) {
    fail_as(c->status, GOROVOD_PRECONDITION_ERROR, k->name, engine.last_error());
    return;
  }
  for (int i = 0; i < c->n; i++) {
    tf.TF_GetInput(c->context, first + i, &c->columns[i].keys, c->status);
    if (!ok(c)) return;
    c->total += elements(c->columns[i].keys);
  }
  const int64_t *all = tf.TF_TensorData(c->columns[0].keys);
  if (c->n > 1) {
    c->keys = room(c, false, c->total, sizeof *c->keys);
    if (!ok(c)) return;
    int64_t *to = c->keys;
    for (int i = 0; i < c->n; i++) {
      int64_t n = elements(c->columns[i].keys);
      if (n > 0) memcpy(to, tf.TF_TensorData(c->columns[i].keys), (size_t)n * sizeof *to);
      to += n;
    }
    all = c->keys;
  }
  c->index = room(c, false, c->total, sizeof *c->index);
  if (!ok(c)) return;
  int status = engine.lookup(k->table, c->total > 0 ? all : c->index, c->total, k->padded ? &k->padding : NULL, c->index,
                             &c->distinct, &c->lookup);
  if (status != GOROVOD_OK) fail_as(c->status, status, k->name, engine.last_error());
}

/* Numbers each column's distinct keys in the order of their first appearance, and sets its places. Then index has these
 * numbers. */
static void number(struct call *c) {
  int64_t *numbers = room(c, true, c->distinct, sizeof *numbers); /* 1 + the number in the column; 0 for none yet */
  c->places = room(c, false, c->total, sizeof *c->places);
  int64_t *index = c->index, *places = c->places;
  for (int i = 0; i < c->n && ok(c); i++) {
    struct column *column = &c->columns[i];
    int64_t n = elements(column->keys);
    column->places = places;
    for (int64_t j = 0; j < n; j++) {
      int64_t place = index[j];
      if (place >= c->distinct) { /* the padding */
        index[j] = -1;
        continue;
      }
      if (numbers[place] == 0) {
        column->places[column->distinct++] = place;
        numbers[place] = column->distinct;
      }
      index[j] = numbers[place] - 1;
    }
    for (int64_t j = 0; j < n; j++) {
      if (index[j] < 0) index[j] = column->distinct;
    }
    for (int64_t j = 0; j < column->distinct; j++) numbers[column->places[j]] = 0;
    index += n;
    places += n;
  }
  free(numbers);
}

static int64_t rows_of(const struct call *c, int i) { return c->columns[i].distinct + (c->kernel->padded ? 1 : 0); }

/* Has the operation fail on all ranks. */
static void refuse(struct call *c, int column, const char *format, long long a, long long b) {
  char reason[256];
  int n = snprintf(reason, sizeof reason, "column %d has ", column);
  snprintf(reason + n, sizeof reason - (size_t)n, format, a, b);
  engine.lookup_refuse(c->lookup, reason);
}

static void set_index(struct call *c, int output, int i, const int64_t *index) {
  int64_t shape[MAX_DIMS];
  TF_Tensor *keys = c->columns[i].keys;
  int ndim = tf.TF_NumDims(keys);
  for (int d = 0; d < ndim; d++) shape[d] = tf.TF_Dim(keys, d);
  size_t bytes = (size_t)elements(keys) * sizeof *index;
  TF_Tensor *out = tf.TF_AllocateOutput(c->context, output, TF_INT64, shape, ndim, bytes, c->status);
  if (ok(c) && bytes > 0) memcpy(tf.TF_TensorData(out), index, bytes);
  if (out != NULL) tf.TF_DeleteTensor(out);
}

/* Has a pull fail if the variable of column i, whose shape is the input limit, has no room for the rows. An empty limit
 * says that there is no variable. */
static void check_room(struct call *c, int i) {
  TF_Tensor *limit = NULL;
  tf.TF_GetInput(c->context, 1 + c->n + i, &limit, c->status);
  if (!ok(c)) return;
  const int64_t *shape = tf.TF_TensorData(limit);
  int64_t ndim = elements(limit);
  if (ndim != 0 && ndim != 2)
    refuse(c, i, "a variable of %lld dimensions; %lld are expected", ndim, 2);
  else if (ndim == 2 && shape[1] != c->dim)
    refuse(c, i, "a variable of %lld columns, and the table's rows have %lld numbers", shape[1], c->dim);
  else if (ndim == 2 && rows_of(c, i) > shape[0])
    refuse(c, i, "%lld distinct keys, but its variable has %lld rows", rows_of(c, i), shape[0]);
  tf.TF_DeleteTensor(limit);
}

/* Makes the outputs of a pull. Its inputs are an anchor, the keys, and the shapes of variables for the rows. */
static void make_outputs(struct call *c) {
  const int64_t *index = c->index;
  for (int i = 0; i < c->n && ok(c); i++) {
    struct column *column = &c->columns[i];
    check_room(c, i);
    int64_t shape[2] = {rows_of(c, i), c->dim};
    size_t row = (size_t)c->dim * sizeof(float);
    if (ok(c))
      column->rows = tf.TF_AllocateOutput(c->context, i, TF_FLOAT, shape, 2, (size_t)shape[0] * row, c->status);
    if (ok(c) && c->kernel->padded)
      memset((char *)tf.TF_TensorData(column->rows) + (size_t)column->distinct * row, 0, row);
    if (ok(c)) set_index(c, c->n + i, i, index);
    index += elements(column->keys);
  }
}

/* Adds the gradients of all columns, the inputs after the keys. */
static void add_gradients(struct call *c) {
  char *seen = room(c, true, c->distinct, 1);
  for (int i = 0; i < c->n && ok(c); i++) {
    struct column *column = &c->columns[i];
    tf.TF_GetInput(c->context, c->n + i, &column->rows, c->status);
    if (!ok(c)) break;
    if (tf.TF_NumDims(column->rows) != 2) {
      refuse(c, i, "gradients of %lld dimensions; %lld are expected", tf.TF_NumDims(column->rows), 2);
      break;
    }
    if (tf.TF_Dim(column->rows, 1) != c->dim) {
      refuse(c, i, "gradients of %lld numbers a row, and the table's rows have %lld", tf.TF_Dim(column->rows, 1), c->dim);
      break;
    }
    if (tf.TF_Dim(column->rows, 0) != rows_of(c, i)) {
      refuse(c, i, "gradients of %lld rows for %lld distinct keys", tf.TF_Dim(column->rows, 0), rows_of(c, i));
      break;
    }
    const float *from = tf.TF_TensorData(column->rows);
    for (int64_t j = 0; j < column->distinct; j++, from += c->dim) {
      int64_t place = column->places[j];
      float *to = c->rows + place * c->dim;
      if (!seen[place]) {
        memcpy(to, from, (size_t)c->dim * sizeof *to);
        seen[place] = 1;
        continue;
      }
      for (int d = 0; d < c->dim; d++) to[d] += from[d];
    }
  }
  free(seen);
}

/* The end of the engine's operation. */
static void on_done(void *context, int64_t handle, int status, const char *reason) {
  struct call *c = context;
  if (status != GOROVOD_OK) fail_as(c->status, status, c->kernel->name, reason);
  for (int i = 0; i < c->n && ok(c) && !c->kernel->push; i++) {
    struct column *column = &c->columns[i];
    float *to = tf.TF_TensorData(column->rows);
    for (int64_t j = 0; j < column->distinct; j++, to += c->dim)
      memcpy(to, c->rows + column->places[j] * c->dim, (size_t)c->dim * sizeof *to);
  }
  engine.release(handle);
  finish(c);
}

static int submit(struct call *c, int64_t *handle) {
  float *rows = c->rows;
  if (!c->kernel->push) return engine.pull(1, &c->lookup, &rows, c->kernel->looks ? GOROVOD_LOOKS : 0, handle);
  char text[256] = "";
  float rate = rate_of == NULL ? 0.0f : rate_of(c->kernel->table, text, sizeof text);
  if (isnan(rate)) engine.lookup_refuse(c->lookup, text[0] ? text : "the learning rate is not a number");
  const float *gradients = rows;
  return engine.push(1, &c->lookup, &gradients, rate, 0, handle);
}

static void compute(void *data, TF_OpKernelContext *context, TF_AsyncOpKernelDoneCallback *callback) {
  const struct kernel *k = data;
  int n = k->push ? tf.TF_NumInputs(context) / 2 : (tf.TF_NumInputs(context) - 1) / 2;
  struct call *c = calloc(1, sizeof *c + (size_t)n * sizeof *c->columns);
  if (c == NULL) abort();
  c->kernel = k;
  c->context = context;
  c->done = done_copy(callback);
  c->n = n;
  c->status = tf.TF_NewStatus();
  if (engine.pull == NULL)
    fail(c->status, TF_FAILED_PRECONDITION, "%s: Horovod has not been initialized; use hvd.init().", k->name);
  if (ok(c)) look_up(c, k->push ? 0 : 1);
  if (ok(c)) number(c);
  if (ok(c)) c->rows = room(c, false, c->distinct * c->dim, sizeof *c->rows);
  if (ok(c)) (k->push ? add_gradients : make_outputs)(c);
  int64_t handle = 0;
  if (ok(c)) {
    int status = submit(c, &handle);
    if (status != GOROVOD_OK) fail_as(c->status, status, k->name, engine.last_error());
  }
  if (!ok(c)) {
    finish(c);
    return;
  }
  engine.on_done(handle, on_done, c); /* which owns c from now on */
}

static void destroy(void *data) {
  struct kernel *k = data;
  if (k != NULL) free(k->name);
  free(k);
}

static struct kernel *new_kernel(TF_OpKernelConstruction *construction, bool push) {
  TF_Status *status = tf.TF_NewStatus();
  struct kernel *k = calloc(1, sizeof *k);
  if (k == NULL) abort();
  TF_StringView node = tf.TF_OpKernelConstruction_GetName(construction);
  k->name = strndup(node.data, node.len);
  k->push = push;
#define GET(kind, attr, field) \
  if (tf.TF_GetCode(status) == TF_OK) tf.TF_OpKernelConstruction_GetAttr##kind(construction, attr, &k->field, status)
  GET(Int64, "table", table);
  GET(Int64, "padding", padding);
  GET(Bool, "padded", padded);
  if (!push) {
    GET(Bool, "looks", looks);
  }
#undef GET
  if (tf.TF_GetCode(status) != TF_OK) {
    tf.TF_OpKernelConstruction_Failure(construction, status);
    destroy(k);
    k = NULL;
  }
  tf.TF_DeleteStatus(status);
  return k;
}

static void *create_pull(TF_OpKernelConstruction *c) { return new_kernel(c, false); }
static void *create_push(TF_OpKernelConstruction *c) { return new_kernel(c, true); }

/* Of a pull: the place of a key has the shape of the keys. What is not set is unknown, as the number of rows is. */
static void shape_pull(TF_ShapeInferenceContext *c, TF_Status *status) {
  TF_ShapeHandle *shape = tf.TF_NewShapeHandle();
  TF_ShapeHandle *unknown = tf.TF_NewShapeHandle();
  int n = (int)(tf.TF_ShapeInferenceContextNumInputs(c) - 1) / 2;
  for (int i = 0; i < n && tf.TF_GetCode(status) == TF_OK; i++) {
    tf.TF_ShapeInferenceContextSetOutput(c, i, unknown, status);
    if (tf.TF_GetCode(status) == TF_OK) tf.TF_ShapeInferenceContextGetInput(c, 1 + i, shape, status);
    if (tf.TF_GetCode(status) == TF_OK) tf.TF_ShapeInferenceContextSetOutput(c, n + i, shape, status);
  }
  tf.TF_DeleteShapeHandle(shape);
  tf.TF_DeleteShapeHandle(unknown);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(,) NULL})
#define TABLE "table: int", "N: int >= 1", "padded: bool = False", "padding: int = 0"

void register_tables(TF_Status *status) {
  /* average and process_set are for the gradient: it divides by the number of ranks of the set. */
  define("HorovodTablePull", LIST(TABLE, "looks: bool = False", "average: bool = False", "process_set: int = 0"),
         LIST("anchor: float", "keys: N * int64", "limits: N * int64"), LIST("rows: N * float", "index: N * int64"),
         shape_pull, status);
  define("HorovodTablePush", LIST(TABLE), LIST("keys: N * int64", "gradients: N * float"), LIST(), shape_none, status);
  if (tf.TF_GetCode(status) != TF_OK) return;
  async_register("HorovodTablePull", (struct async_kernel){create_pull, compute, destroy}, status);
  async_register("HorovodTablePush", (struct async_kernel){create_push, compute, destroy}, status);
}
