/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shim.h"

#include "async.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

struct engine engine;

static char error[512];

const char *gorovod_tensorflow_error(void) { return error[0] ? error : NULL; }

const char *gorovod_tensorflow_bind(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == NULL) return "libgorovod.so, which has not been loaded";
#define BIND(field, symbol)                          \
  *(void **)&engine.field = dlsym(library, symbol);  \
  if (engine.field == NULL) return symbol;
  BIND(enqueue, "gorovod_enqueue")
  BIND(enqueue_group, "gorovod_enqueue_group")
  BIND(received_splits, "gorovod_received_splits")
  BIND(last_joined, "gorovod_last_joined")
  BIND(release, "gorovod_release")
  BIND(on_done, "gorovod_on_done")
  BIND(table_dim, "gorovod_table_dim")
  BIND(lookup, "gorovod_lookup")
  BIND(lookup_refuse, "gorovod_lookup_refuse")
  BIND(lookup_release, "gorovod_lookup_release")
  BIND(pull, "gorovod_pull")
  BIND(push, "gorovod_push")
  BIND(last_error, "gorovod_last_error")
  BIND(rank, "horovod_rank")
  BIND(size, "horovod_size")
  BIND(local_rank, "horovod_local_rank")
  BIND(local_size, "horovod_local_size")
  BIND(process_set_rank, "horovod_process_set_rank")
  BIND(process_set_size, "horovod_process_set_size")
  BIND(process_set_included, "horovod_process_set_included")
#undef BIND
  return NULL; /* the library stays open, because kernels may run until the end */
}

void fail(TF_Status *status, int code, const char *format, ...) {
  if (tf.TF_GetCode(status) != TF_OK) return;
  char text[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  tf.TF_SetStatus(status, code, text);
}

static int code_of(int status) {
  switch (status) {
    case GOROVOD_PRECONDITION_ERROR: return TF_FAILED_PRECONDITION;
    case GOROVOD_ABORTED: return TF_ABORTED;
    case GOROVOD_INVALID_ARGUMENT: return TF_INVALID_ARGUMENT;
  }
  return TF_UNKNOWN;
}

void fail_as(TF_Status *to, int status, const char *name, const char *reason) {
  int code = code_of(status);
  bool survivable = code == TF_UNKNOWN || code == TF_ABORTED;
  fail(to, code, "%s: %s%s", name, survivable ? "Horovod: " : "", reason);
}

void define(const char *name, const char *const *attrs, const char *const *inputs,
            const char *const *outputs, void (*shape)(TF_ShapeInferenceContext *, TF_Status *),
            TF_Status *status) {
  if (tf.TF_GetCode(status) != TF_OK) return;
  TF_OpDefinitionBuilder *b = tf.TF_NewOpDefinitionBuilder(name);
  for (; *attrs; attrs++) tf.TF_OpDefinitionBuilderAddAttr(b, *attrs);
  for (; *inputs; inputs++) tf.TF_OpDefinitionBuilderAddInput(b, *inputs);
  for (; *outputs; outputs++) tf.TF_OpDefinitionBuilderAddOutput(b, *outputs);
  /* TensorFlow must neither merge two equal collectives, nor remove one whose result is not used. */
  tf.TF_OpDefinitionBuilderSetIsStateful(b, true);
  tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(b, shape);
  tf.TF_RegisterOpDefinition(b, status);
}

__attribute__((constructor)) static void load(void) {
  const char *missing = tf_find();
  if (missing == NULL) missing = async_find();
  if (missing != NULL) {
    snprintf(error, sizeof error, "it has no %s; 2.12 is the first that has all that is needed", missing);
    return;
  }
  TF_Status *status = tf.TF_NewStatus();
  register_collectives(status);
  register_facts(status);
  register_tables(status);
  if (tf.TF_GetCode(status) != TF_OK)
    snprintf(error, sizeof error, "%s", tf.TF_Message(status));
  tf.TF_DeleteStatus(status);
}
