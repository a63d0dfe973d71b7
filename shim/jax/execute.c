/*
 * execute.c: runs a collective of a compiled program.
 *
 * On the CPU, XLA calls the handler on one of its threads. The handler waits for the engine for WAIT_MS: most operations end
 * within that time, and a waiting thread drives the engine. An operation that takes longer goes on without the
 * thread, and the engine's callback ends the call. So XLA can go on with steps that do not need the result: ranks
 * may run their operations in any order, and operations never use up XLA's threads.
 *
 * XLA runs a small program on the thread that calls it, which continues once the program has ended. So if this is the
 * main thread, it waits for the operation. The engine is told so: see GOROVOD_HOLDS_CALLER.
 *
 * For CUDA, XLA calls the handler while it gives a stream its work. XLA owns the buffers until the stream has come to
 * the steps after the call:
 *
 * 1. The handler submits the addresses on the device with the stream. The operation begins after the stream's work.
 * 2. It waits for the engine until the operation has ended: its result is there, or, with
 *    HOROVOD_ENABLE_ASYNC_COMPLETION=1, its call of NCCL is in a stream of the engine's.
 * 3. It has XLA's stream wait for the result. From then on the stream orders all use of the buffers.
 *
 * The engine decides how the data travels. Where NCCL cannot carry it, the engine copies it through host memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "shim.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long XLA's thread waits, unless other operations are under way without one. */
enum { WAIT_MS = 1 };

static atomic_int absent; /* executions that continue without a thread of XLA */

struct operand {
  struct run *run;
  gorovod_op op;
  int64_t handle;
  int32_t status;
  void *result;
  int64_t rows, given_rows; /* the result's: as the program expects, and as received if that differs */
  size_t bytes;
};

/* One execution of a site. */
struct run {
  struct site *site;
  const struct xla_api *api;
  xla_future *future;
  char *names[2]; /* if the site's do not fit: a group's, and a single array's */
  atomic_int left; /* operands under way, and the handler until it returns */
  char *_Atomic reason; /* why the first one failed */
  int n, room;
  const gorovod_op **list;
  int64_t *handles;
  struct operand *operands;
};

void run_free(struct run *r) {
  if (r == NULL) return;
  free(r->list);
  free(r->handles);
  free(r->operands);
  free(r);
}

static struct run *run_begin(struct site *s, const struct xla_api *api, int n) {
  struct run *r = atomic_exchange(&s->spare, NULL);
  if (r == NULL || r->room < n) {
    run_free(r);
    r = calloc(1, sizeof *r);
    if (r == NULL) abort();
    r->list = calloc((size_t)n, sizeof *r->list);
    r->handles = calloc((size_t)n, sizeof *r->handles);
    r->operands = calloc((size_t)n, sizeof *r->operands);
    if (r->list == NULL || r->handles == NULL || r->operands == NULL) abort();
    r->room = n;
  }
  r->site = s;
  r->api = api;
  r->n = n;
  return r;
}

/* Frees the memory, and returns the noted error. */
static xla_error *run_end(struct run *r) {
  xla_error *error = NULL;
  char *reason = atomic_exchange(&r->reason, NULL);
  if (reason != NULL) error = fail(r->api, XLA_CODE_INTERNAL, "%s", reason);
  free(reason);
  for (int i = 0; i < 2; i++) {
    free(r->names[i]);
    r->names[i] = NULL;
  }
  run_free(atomic_exchange(&r->site->spare, r));
  return error;
}

/* Notes a failure, with the name of Python's exception, by which programs recognise it. */
static void note(struct run *r, const struct operand *o, int status, const char *reason) {
  char *text;
  int n;
  if (o != NULL && o->given_rows >= 0) {
    n = asprintf(&text, "ValueError: %s: the result has %lld rows; inside of jax.jit all ranks must have the same number of "
                 "rows, which gives %lld", r->site->given, (long long)o->given_rows, (long long)o->rows);
  } else {
    const char *type = status == GOROVOD_INVALID_ARGUMENT ? "ValueError" : "HorovodInternalError";
    n = asprintf(&text, "%s: %s", type, reason);
  }
  if (n < 0) abort();
  char *none = NULL;
  if (!atomic_compare_exchange_strong(&r->reason, &none, text)) free(text);
}

static int dtype_of(int type) {
  switch (type) {
    case XLA_PRED: return GOROVOD_BOOL;
    case XLA_S8: return GOROVOD_INT8;
    case XLA_S16: return GOROVOD_INT16;
    case XLA_S32: return GOROVOD_INT32;
    case XLA_S64: return GOROVOD_INT64;
    case XLA_U8: return GOROVOD_UINT8;
    case XLA_U16: return GOROVOD_UINT16;
    case XLA_F16: return GOROVOD_FLOAT16;
    case XLA_F32: return GOROVOD_FLOAT32;
    case XLA_F64: return GOROVOD_FLOAT64;
    case XLA_BF16: return GOROVOD_BFLOAT16;
    case XLA_F8E4M3FN: return GOROVOD_FLOAT8_E4M3FN;
    case XLA_F8E5M2: return GOROVOD_FLOAT8_E5M2;
  }
  return -1; /* the engine refuses it */
}

static size_t size_of(int dtype) {
  switch (dtype) {
    case GOROVOD_INT64: case GOROVOD_FLOAT64: return 8;
    case GOROVOD_INT32: case GOROVOD_FLOAT32: return 4;
    case GOROVOD_INT16: case GOROVOD_UINT16: case GOROVOD_FLOAT16: case GOROVOD_BFLOAT16: return 2;
  }
  return 1;
}

/* The memory of a result that has the rows that the program expects. */
static void *give(void *context, size_t bytes, int ndim, const int64_t *shape) {
  static char empty[64]; /* XLA may give no memory for an empty result */
  struct operand *o = context;
  int64_t rows = ndim > 0 ? shape[0] : 1;
  if (rows != o->rows || bytes != o->bytes) {
    o->given_rows = rows;
    return NULL;
  }
  return bytes == 0 ? empty : o->result;
}

static void describe(struct operand *o, const struct site *s, const struct xla_buffer *in, const struct xla_buffer *out) {
  int dtype = dtype_of(in->type);
  bool same_shape = s->type == GOROVOD_ALLREDUCE || s->type == GOROVOD_BROADCAST;
  o->result = out->data;
  o->rows = out->ndim > 0 ? out->shape[0] : 1;
  o->given_rows = -1;
  o->bytes = size_of(dtype);
  for (int64_t d = 0; d < out->ndim; d++) o->bytes *= (size_t)out->shape[d];
  o->op = (gorovod_op){
    .size = sizeof o->op, .flags = GOROVOD_RELEASE_IF_OK | GOROVOD_HOLDS_CALLER, .type = s->type, .dtype = dtype,
    .reduce_op = s->reduce_op, .root_rank = s->root_rank, .process_set = s->process_set, .device = -1,
    .ndim = (int32_t)in->ndim, .prescale = s->prescale, .postscale = s->postscale, .shape = in->shape,
    .input = in->data, .output = same_shape ? out->data : NULL, .alloc = same_shape ? NULL : give, .context = o,
    .wire = s->wire, .status = &o->status,
  };
}

/* Names that distinguish the devices of a process, each of which runs the program. */
static void name_for_device(struct run *r, xla_context *context) {
  struct xla_device_ordinal device = {{sizeof device, NULL}, context, 0};
  if (r->site->name == NULL || r->api->device_ordinal(&device) != NULL || device.ordinal <= 0) return;
  if (asprintf(&r->names[0], "%s@%d", r->site->name, device.ordinal) < 0 ||
      asprintf(&r->names[1], "%s.0", r->names[0]) < 0)
    abort();
}

/* Submits the operations, and reports whether that succeeded. stay: this thread waits for them. */
static bool submit(struct run *r, bool stay) {
  int status;
  for (int i = 0; stay && i < r->n; i++) r->operands[i].op.flags |= GOROVOD_WILL_WAIT;
  if (r->n == 1) {
    r->operands[0].op.name = r->names[1] != NULL ? r->names[1] : r->site->single;
    status = engine.enqueue(&r->operands[0].op, &r->operands[0].handle);
  } else {
    for (int i = 0; i < r->n; i++) r->list[i] = &r->operands[i].op;
    status = engine.enqueue_group(r->names[0] != NULL ? r->names[0] : r->site->name, r->list, r->n, r->handles);
    for (int i = 0; i < r->n; i++) r->operands[i].handle = r->handles[i];
  }
  if (status != GOROVOD_OK) note(r, NULL, status, engine.last_error());
  return status == GOROVOD_OK;
}

static int32_t status_of(struct operand *o) { return __atomic_load_n(&o->status, __ATOMIC_ACQUIRE); }

/* Waits a little while. Reports whether all operations have ended. */
static bool wait(struct run *r) {
  for (int i = 0; i < r->n; i++) {
    struct operand *o = &r->operands[i];
    if (status_of(o) == GOROVOD_IN_PROGRESS) engine.wait(o->handle, WAIT_MS);
    if (status_of(o) == GOROVOD_IN_PROGRESS) return false;
  }
  return true;
}

/* Notes the failure of an ended operation, if it failed. */
static void close_operand(struct run *r, struct operand *o) {
  int32_t status = status_of(o);
  if (status == GOROVOD_OK) return;
  engine.wait(o->handle, 0); /* sets the reason */
  note(r, o, status, engine.last_error());
  engine.release(o->handle);
}

/* One of the things that left counts has ended; the last one ends the call. */
static void drop(struct run *r) {
  if (atomic_fetch_sub(&r->left, 1) != 1) return;
  const struct xla_api *api = r->api;
  struct xla_future_end end = {{sizeof end, NULL}, r->future, NULL};
  end.error = run_end(r);
  atomic_fetch_sub(&absent, 1);
  /* From here on the site may be gone. This may run the program's next steps, on this thread. */
  xla_error *refused = end.error == NULL ? api->future_set_available(&end) : api->future_set_error(&end);
  if (refused != NULL) abort(); /* otherwise XLA would wait for ever */
}

static void on_done(void *context, int64_t handle, int status, const char *reason) {
  struct operand *o = context;
  struct run *r = o->run;
  if (status != GOROVOD_OK) {
    note(r, o, status, reason);
    engine.release(handle);
  }
  drop(r);
}

/* Lets the operations continue without this thread. */
static xla_error *leave(struct run *r, struct xla_call *call) {
  struct xla_future_create create = {{sizeof create, NULL}, NULL};
  xla_error *error = r->api->future_create(&create);
  if (error != NULL) { /* the engine uses the buffers until the end */
    for (int i = 0; i < r->n; i++)
      while (status_of(&r->operands[i]) == GOROVOD_IN_PROGRESS) engine.wait(r->operands[i].handle, -1);
    return error;
  }
  call->future = r->future = create.future;
  atomic_fetch_add(&absent, 1);
  int n = r->n;
  atomic_store(&r->left, n + 1);
  for (int i = 0; i < n; i++) {
    struct operand *o = &r->operands[i];
    o->run = r;
    if (status_of(o) == GOROVOD_IN_PROGRESS && engine.on_done(o->handle, on_done, o) == GOROVOD_OK) continue;
    close_operand(r, o); /* it has ended meanwhile, so its handle may be invalid */
    drop(r);
  }
  drop(r);
  return NULL;
}

xla_error *gorovod_jax_execute(struct xla_call *call) {
  xla_error *error;
  if (asked(call, (struct xla_type_id){0}, &error)) return error;
  struct site *s = site_of(call, &site_type, &error);
  if (s == NULL) return error;
  int n = (int)call->arguments.n;
  struct run *r = run_begin(s, call->api, n);
  for (int i = 0; i < n; i++) describe(&r->operands[i], s, call->arguments.buffers[i], call->results.buffers[i]);
  name_for_device(r, call->context);
  bool stay = atomic_load(&absent) == 0;
  if (!submit(r, stay)) return run_end(r);
  if (!stay || !wait(r)) return leave(r, call);
  for (int i = 0; i < n; i++) close_operand(r, &r->operands[i]);
  return run_end(r);
}

/* Waits for all operations, and has a stream wait for their results. */
static void follow(struct run *r, uintptr_t stream) {
  for (int i = 0; i < r->n; i++) {
    struct operand *o = &r->operands[i];
    while (status_of(o) == GOROVOD_IN_PROGRESS) engine.wait(o->handle, -1);
    if (status_of(o) != GOROVOD_OK) {
      close_operand(r, o);
      continue;
    }
    int status = engine.await_on_stream(o->handle, stream);
    if (status != GOROVOD_OK) note(r, NULL, status, engine.last_error());
    engine.release(o->handle);
  }
}

xla_error *gorovod_jax_cuda_execute(struct xla_call *call) {
  xla_error *error;
  if (asked(call, (struct xla_type_id){0}, &error)) return error;
  struct site *s = site_of(call, &cuda_site_type, &error);
  if (s == NULL) return error;
  struct xla_stream stream = {{sizeof stream, NULL}, call->context, NULL};
  struct xla_device_ordinal device = {{sizeof device, NULL}, call->context, 0};
  if ((error = call->api->stream_get(&stream)) != NULL || (error = call->api->device_ordinal(&device)) != NULL) return error;
  int n = (int)call->results.n - 1; /* the last one, and an argument after these, order the calls: see _collective.py */
  struct run *r = run_begin(s, call->api, n);
  for (int i = 0; i < n; i++) {
    gorovod_op *op = &r->operands[i].op;
    describe(&r->operands[i], s, call->arguments.buffers[i], call->results.buffers[i]);
    op->flags &= ~GOROVOD_RELEASE_IF_OK; /* follow needs the handle */
    op->device = device.ordinal;
    op->device_stream = (uintptr_t)stream.stream;
  }
  if (submit(r, true)) follow(r, (uintptr_t)stream.stream);
  return run_end(r);
}
