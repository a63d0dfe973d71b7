/*
 * collectives.c: the operations that end when the other ranks have done their part.
 * Their kernels are asynchronous: they submit and return, and the engine's
 * completion ends them. So no thread of TensorFlow ever waits, and ranks may run
 * their operations in any order.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "shim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "async.h"
#include "done.h"

/* One operation's description in the graph. */
struct kernel {
  int32_t type; /* GOROVOD_ALLREDUCE, … */
  bool grouped;
  bool in_variable; /* the input is a resource variable, whose memory is overwritten; there is no output */
  int32_t reduce_op, root_rank, process_set;
  int32_t wire; /* GOROVOD_WIRE_NONE, … */
  uint32_t flags; /* GOROVOD_ADDS_UP */
  float prescale, postscale;
  char *name; /* the name by which ranks match it */
};

/* One execution of a kernel. Its functions run on any thread, done() for several tensors at once. */
struct call;

struct operand {
  struct call *call;
  int index; /* of the input and of the output */
  TF_Tensor *in, *out; /* in is NULL if out has taken over its memory */
  char *name;
};

struct call {
  const struct kernel *kernel;
  TF_OpKernelContext *context;
  struct done done;
  TF_Tensor *splits;
  pthread_mutex_t lock; /* guards left and status */
  int left;             /* operands under way */
  TF_Status *status;    /* the first failure */
  int n;
  struct operand operands[];
};

static int dtype_of(int tf_type) {
  switch (tf_type) {
    case TF_FLOAT: return GOROVOD_FLOAT32;
    case TF_DOUBLE: return GOROVOD_FLOAT64;
    case TF_INT32: return GOROVOD_INT32;
    case TF_UINT8: return GOROVOD_UINT8;
    case TF_INT16: return GOROVOD_INT16;
    case TF_INT8: return GOROVOD_INT8;
    case TF_INT64: return GOROVOD_INT64;
    case TF_BOOL: return GOROVOD_BOOL;
    case TF_BFLOAT16: return GOROVOD_BFLOAT16;
    case TF_UINT16: return GOROVOD_UINT16;
    case TF_HALF: return GOROVOD_FLOAT16;
  }
  return -1;
}

/* Ends the execution. Do not use it afterwards. */
static void finish(struct call *c) {
  if (tf.TF_GetCode(c->status) != TF_OK) tf.TF_OpKernelContext_Failure(c->context, c->status);
  for (int i = 0; i < c->n; i++) {
    struct operand *o = &c->operands[i];
    if (o->in != NULL) tf.TF_DeleteTensor(o->in);
    if (o->out != NULL) tf.TF_DeleteTensor(o->out);
    if (o->name != c->kernel->name) free(o->name);
  }
  if (c->splits != NULL) tf.TF_DeleteTensor(c->splits);
  tf.TF_DeleteStatus(c->status);
  pthread_mutex_destroy(&c->lock);
  struct done done = c->done;
  free(c);
  done_run(&done);
}

/* An alltoall's second output: how many rows came from each member. */
static void set_received(struct call *c, int64_t handle) {
  int32_t none;
  int n = engine.received_splits(handle, 0, &none);
  if (n < 0) {
    fail_as(c->status, GOROVOD_UNKNOWN_ERROR, c->kernel->name, engine.last_error());
    return;
  }
  int64_t length = n;
  TF_Tensor *out = tf.TF_AllocateOutput(c->context, 1, TF_INT32, &length, 1, 4 * (size_t)n, c->status);
  if (tf.TF_GetCode(c->status) == TF_OK) engine.received_splits(handle, n, tf.TF_TensorData(out));
  if (out != NULL) tf.TF_DeleteTensor(out);
}

/* A join's output: the rank that joined last. */
static void set_last_joined(struct call *c, int64_t handle) {
  TF_Tensor *out = tf.TF_AllocateOutput(c->context, 0, TF_INT32, NULL, 0, 4, c->status);
  if (tf.TF_GetCode(c->status) == TF_OK) *(int32_t *)tf.TF_TensorData(out) = engine.last_joined(handle);
  if (out != NULL) tf.TF_DeleteTensor(out);
}

static void on_done(void *context, int64_t handle, int status, const char *reason) {
  struct operand *o = context;
  struct call *c = o->call;
  pthread_mutex_lock(&c->lock);
  if (status != GOROVOD_OK)
    fail_as(c->status, status, o->name, reason);
  else if (c->kernel->type == GOROVOD_ALLTOALL)
    set_received(c, handle);
  else if (c->kernel->type == GOROVOD_JOIN)
    set_last_joined(c, handle);
  bool last = --c->left == 0;
  pthread_mutex_unlock(&c->lock);
  engine.release(handle);
  if (last) finish(c);
}

/* Makes an output whose shape is known only at the end. */
static void *allocate(void *context, size_t bytes, int ndim, const int64_t *shape) {
  static char empty[64]; /* TensorFlow may give no memory for an empty tensor */
  struct operand *o = context;
  struct call *c = o->call;
  pthread_mutex_lock(&c->lock);
  o->out = tf.TF_AllocateOutput(c->context, o->index, tf.TF_TensorType(o->in), shape, ndim, bytes, c->status);
  bool ok = tf.TF_GetCode(c->status) == TF_OK;
  pthread_mutex_unlock(&c->lock);
  if (!ok || o->out == NULL) return NULL;
  return bytes == 0 ? empty : tf.TF_TensorData(o->out);
}

/* Whether the output has the input's shape, so that it can be made at once. */
static bool keeps_shape(int32_t type) { return type == GOROVOD_ALLREDUCE || type == GOROVOD_BROADCAST; }

static void copy(TF_OpKernelContext *context, TF_Tensor *from, TF_Tensor *to) {
  (void)context;
  if (tf.TF_TensorByteSize(from) > 0) memcpy(tf.TF_TensorData(to), tf.TF_TensorData(from), tf.TF_TensorByteSize(from));
  tf.TF_DeleteTensor(from);
  tf.TF_DeleteTensor(to);
}

/* The memory of input i, a variable, without other readers: TensorFlow copies it first if others hold it. */
static TF_Tensor *variable_of(struct call *c, int i) {
  TF_Tensor *value = NULL;
  tf.TF_GetInputTensorFromVariable(c->context, i, false, false, false, copy, &value, c->status);
  if (value == NULL) fail(c->status, TF_FAILED_PRECONDITION, "%s: the variable has no value", c->kernel->name);
  return value;
}

/* Takes input i, and its memory for output i if nothing else needs it. shape has room for MAX_DIMS. */
static void take(struct call *c, int i, gorovod_op *op, int64_t *shape) {
  struct operand *o = &c->operands[i];
  if (c->kernel->in_variable)
    o->in = variable_of(c, i);
  else
    tf.TF_GetInput(c->context, i, &o->in, c->status);
  if (tf.TF_GetCode(c->status) != TF_OK) return;
  op->ndim = tf.TF_NumDims(o->in);
  op->dtype = dtype_of(tf.TF_TensorType(o->in));
  for (int d = 0; d < op->ndim; d++) shape[d] = tf.TF_Dim(o->in, d);
  op->shape = shape;
  if (op->dtype < 0) {
    fail(c->status, TF_INVALID_ARGUMENT, "%s: tensors of type %d are not supported", o->name, tf.TF_TensorType(o->in));
    return;
  }
  if (op->ndim == 0 && c->kernel->type == GOROVOD_REDUCESCATTER) {
    fail(c->status, TF_INVALID_ARGUMENT, "%s: reducescatter of a scalar, which has no rows", o->name);
    return;
  }
  if (c->kernel->in_variable) {
    op->output = tf.TF_TensorData(o->in);
  } else if (keeps_shape(c->kernel->type)) {
    /* Our own reference would keep the memory from being taken over. */
    tf.TF_DeleteTensor(o->in);
    o->in = NULL;
    int from = -1;
    o->out = tf.TF_ForwardInputOrAllocateOutput(c->context, &i, 1, i, shape, op->ndim, &from, c->status);
    if (tf.TF_GetCode(c->status) != TF_OK) return;
    op->output = tf.TF_TensorData(o->out);
    if (from != i) tf.TF_GetInput(c->context, i, &o->in, c->status);
    if (tf.TF_GetCode(c->status) != TF_OK) return;
  } else {
    op->alloc = allocate;
  }
  op->input = o->in != NULL ? tf.TF_TensorData(o->in) : op->output;
}

static void take_splits(struct call *c, gorovod_op *op) {
  tf.TF_GetInput(c->context, 1, &c->splits, c->status);
  if (tf.TF_GetCode(c->status) != TF_OK) return;
  if (tf.TF_TensorType(c->splits) != TF_INT32 || tf.TF_NumDims(c->splits) != 1) {
    fail(c->status, TF_INVALID_ARGUMENT, "%s: alltoall expects a vector of int32 as splits", c->kernel->name);
    return;
  }
  op->nsplits = (int32_t)tf.TF_Dim(c->splits, 0);
  op->splits = tf.TF_TensorData(c->splits);
}

static void compute(void *data, TF_OpKernelContext *context, TF_AsyncOpKernelDoneCallback *callback) {
  const struct kernel *k = data;
  int n = k->grouped ? tf.TF_NumInputs(context) : 1;
  struct call *c = calloc(1, sizeof *c + (size_t)n * sizeof *c->operands);
  gorovod_op *ops = calloc((size_t)n + 1, sizeof *ops);
  const gorovod_op **list = calloc((size_t)n + 1, sizeof *list);
  int64_t *handles = calloc((size_t)n + 1, sizeof *handles);
  int64_t *shapes = malloc(((size_t)n + 1) * MAX_DIMS * sizeof *shapes);
  if (c == NULL || ops == NULL || list == NULL || handles == NULL || shapes == NULL) abort();
  c->kernel = k;
  c->context = context;
  c->done = done_copy(callback);
  c->n = c->left = n;
  c->status = tf.TF_NewStatus();
  pthread_mutex_init(&c->lock, NULL);
  if (engine.enqueue == NULL)
    fail(c->status, TF_FAILED_PRECONDITION, "%s: Horovod has not been initialized; use hvd.init().", k->name);
  for (int i = 0; i < n; i++) {
    struct operand *o = &c->operands[i];
    o->call = c;
    o->index = i;
    o->name = k->name;
    if (k->grouped && asprintf(&o->name, "%s_%dof%d", k->name, i + 1, n) < 0) abort();
    gorovod_op *p = &ops[i];
    list[i] = p;
    p->size = sizeof *p;
    p->type = k->type;
    p->reduce_op = k->reduce_op;
    p->root_rank = k->root_rank;
    p->process_set = k->process_set;
    p->wire = k->wire;
    p->flags = k->flags;
    p->device = -1;
    p->prescale = k->prescale;
    p->postscale = k->postscale;
    p->name = o->name;
    p->done = on_done;
    p->context = o;
    if (tf.TF_GetCode(c->status) == TF_OK && k->type != GOROVOD_JOIN && k->type != GOROVOD_BARRIER)
      take(c, i, p, shapes + (size_t)i * MAX_DIMS);
  }
  if (tf.TF_GetCode(c->status) == TF_OK && k->type == GOROVOD_ALLTOALL) take_splits(c, &ops[0]);
  bool submitted = false;
  if (tf.TF_GetCode(c->status) == TF_OK) {
    /* From a successful submission on, the last on_done owns c. */
    int status = k->grouped ? engine.enqueue_group(k->name, list, n, handles) : engine.enqueue(&ops[0], handles);
    submitted = status == GOROVOD_OK && n > 0;
    if (status != GOROVOD_OK) fail_as(c->status, status, k->name, engine.last_error());
  }
  if (!submitted) finish(c);
  free(ops);
  free(list);
  free(handles);
  free(shapes);
}

static void destroy(void *data) {
  struct kernel *k = data;
  if (k != NULL) free(k->name);
  free(k);
}

/* The name by which ranks match an operation: that of its node; if the node has no
 * name of its own, the attribute tensor_name. */
static char *name_of(TF_OpKernelConstruction *c, TF_Status *status) {
  int32_t list, length = 0;
  tf.TF_OpKernelConstruction_GetAttrSize(c, "tensor_name", &list, &length, status);
  if (tf.TF_GetCode(status) == TF_OK && length > 0) {
    char *name = calloc(1, (size_t)length + 1);
    tf.TF_OpKernelConstruction_GetAttrString(c, "tensor_name", name, (size_t)length, status);
    return name;
  }
  TF_StringView node = tf.TF_OpKernelConstruction_GetName(c);
  unsigned char ignore = 0;
  tf.TF_OpKernelConstruction_GetAttrBool(c, "ignore_name_scope", &ignore, status);
  const char *slash = ignore ? memrchr(node.data, '/', node.len) : NULL;
  if (slash != NULL) {
    node.len -= (size_t)(slash + 1 - node.data);
    node.data = slash + 1;
  }
  return strndup(node.data, node.len);
}

static struct kernel *new_kernel(TF_OpKernelConstruction *c, int32_t type, bool grouped, bool reduces, bool rooted) {
  TF_Status *status = tf.TF_NewStatus();
  struct kernel *k = calloc(1, sizeof *k);
  if (k == NULL) abort();
  k->type = type;
  k->grouped = grouped;
  k->reduce_op = GOROVOD_SUM;
  k->prescale = k->postscale = 1;
  k->name = name_of(c, status);
#define GET(kind, attr, field) \
  if (tf.TF_GetCode(status) == TF_OK) tf.TF_OpKernelConstruction_GetAttr##kind(c, attr, &k->field, status)
  if (type != GOROVOD_JOIN) GET(Int32, "process_set_id", process_set);
  if (rooted) GET(Int32, "root_rank", root_rank);
  if (reduces) {
    GET(Int32, "reduce_op", reduce_op);
    GET(Float, "prescale_factor", prescale);
    GET(Float, "postscale_factor", postscale);
  }
  if (type == GOROVOD_ALLREDUCE) GET(Int32, "wire", wire);
  unsigned char adds_up = 0;
  if (type == GOROVOD_ALLGATHER && !grouped && tf.TF_GetCode(status) == TF_OK)
    tf.TF_OpKernelConstruction_GetAttrBool(c, "adds_up", &adds_up, status);
  if (adds_up) k->flags |= GOROVOD_ADDS_UP;
#undef GET
  if (tf.TF_GetCode(status) != TF_OK) {
    tf.TF_OpKernelConstruction_Failure(c, status);
    destroy(k);
    k = NULL;
  }
  tf.TF_DeleteStatus(status);
  return k;
}

#define NAMED "tensor_name: string = ''", "ignore_name_scope: bool = False"
#define SET "process_set_id: int = 0"
#define REDUCING "reduce_op: int = 1", "prescale_factor: float = 1.0", "postscale_factor: float = 1.0"
#define WIRE "wire: int = 0"
#define ADDS_UP "adds_up: bool = False"
#define NUMBERS "T: {uint8, int8, int32, int64, float16, bfloat16, float32, float64}"
#define PARTS "T: {int32, int64, float16, bfloat16, float32, float64}"
#define ANY "T: {uint8, int8, uint16, int16, int32, int64, float16, bfloat16, float32, float64, bool}"
#define COUNT "num_tensors: int >= 0"
#define LIST(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(,) NULL})

/* name, type, grouped, reduces, has a root, attributes, inputs, outputs, shapes */
#define COLLECTIVES(C)                                                                            \
  C(Allreduce, GOROVOD_ALLREDUCE, false, true, false, LIST(NUMBERS, REDUCING, WIRE, SET, NAMED),   \
    LIST("tensor: T"), LIST("sum: T"), shape_same)                                                \
  C(GroupedAllreduce, GOROVOD_ALLREDUCE, true, true, false,                                       \
    LIST(NUMBERS, COUNT, REDUCING, WIRE, SET, NAMED), LIST("tensors: num_tensors*T"),             \
    LIST("sum: num_tensors*T"), shape_same)                                                       \
  C(Allgather, GOROVOD_ALLGATHER, false, false, false, LIST(ANY, ADDS_UP, SET, NAMED),            \
    LIST("tensor: T"), LIST("output: T"), shape_rows)                                             \
  C(GroupedAllgather, GOROVOD_ALLGATHER, true, false, false, LIST(ANY, COUNT, SET, NAMED),        \
    LIST("tensors: num_tensors*T"), LIST("outputs: num_tensors*T"), shape_rows)                   \
  C(Broadcast, GOROVOD_BROADCAST, false, false, true, LIST(ANY, "root_rank: int", SET, NAMED),    \
    LIST("tensor: T"), LIST("output: T"), shape_same)                                             \
  C(Alltoall, GOROVOD_ALLTOALL, false, false, false, LIST(ANY, SET, NAMED),                       \
    LIST("tensor: T", "splits: int32"), LIST("output: T", "received_splits: int32"),              \
    shape_alltoall)                                                                               \
  C(Reducescatter, GOROVOD_REDUCESCATTER, false, true, false, LIST(PARTS, REDUCING, SET, NAMED),   \
    LIST("tensor: T"), LIST("output: T"), shape_rows)                                             \
  C(GroupedReducescatter, GOROVOD_REDUCESCATTER, true, true, false,                               \
    LIST(PARTS, COUNT, REDUCING, SET, NAMED), LIST("tensors: num_tensors*T"),                     \
    LIST("outputs: num_tensors*T"), shape_rows)                                                   \
  C(Join, GOROVOD_JOIN, false, false, false, LIST(NAMED), LIST(), LIST("last_joined: int32"),     \
    shape_scalar)                                                                                 \
  C(Barrier, GOROVOD_BARRIER, false, false, false, LIST(SET, NAMED), LIST(), LIST(), shape_none)

#define CREATE(op, type, grouped, reduces, rooted, attrs, inputs, outputs, shapes) \
  static void *create##op(TF_OpKernelConstruction *c) { return new_kernel(c, type, grouped, reduces, rooted); }
COLLECTIVES(CREATE)

/* Broadcasts of variables in their own memory, if TensorFlow gives it to a kernel. */
static void *createBroadcastInplace(TF_OpKernelConstruction *c) {
  struct kernel *k = new_kernel(c, GOROVOD_BROADCAST, false, false, true);
  if (k != NULL) k->in_variable = true;
  return k;
}

static void register_inplace(TF_Status *status) {
  static const char name[] = "HorovodBroadcastInplace";
  if (tf.TF_GetInputTensorFromVariable == NULL) return;
  define(name, LIST("root_rank: int", SET, NAMED), LIST("variable: resource"), LIST(), shape_none, status);
  if (tf.TF_GetCode(status) == TF_OK)
    async_register(name, (struct async_kernel){createBroadcastInplace, compute, destroy}, status);
}

void register_collectives(TF_Status *status) {
#define REGISTER(op, type, grouped, reduces, rooted, attrs, inputs, outputs, shapes)                  \
  define("Horovod" #op, attrs, inputs, outputs, shapes, status);                                     \
  if (tf.TF_GetCode(status) == TF_OK)                                                                \
    async_register("Horovod" #op, (struct async_kernel){create##op, compute, destroy}, status);
  COLLECTIVES(REGISTER)
  register_inplace(status);
}
