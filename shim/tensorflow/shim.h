/*
 * shim.h: the parts of libgorovod_tensorflow.so.
 *
 * Loading the library (tf.load_op_library) registers Horovod's operations and their
 * kernels with TensorFlow. Call gorovod_tensorflow_bind, which finds the engine,
 * before one of them runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_TF_SHIM_H
#define GOROVOD_TF_SHIM_H

#include "gorovod.h"
#include "tf.h"

/* The functions of libgorovod.so that the kernels call. */
struct engine {
  int (*enqueue)(const gorovod_op *, int64_t *);
  int (*enqueue_group)(const char *, const gorovod_op *const *, int, int64_t *);
  int (*received_splits)(int64_t, int, int32_t *);
  int (*last_joined)(int64_t);
  int (*release)(int64_t);
  int (*on_done)(int64_t, void (*)(void *, int64_t, int, const char *), void *);
  int (*table_dim)(int64_t);
  int (*lookup)(int64_t, const int64_t *, int64_t, const int64_t *, int64_t *, int64_t *, int64_t *);
  int (*lookup_refuse)(int64_t, const char *);
  void (*lookup_release)(int64_t);
  int (*pull)(int, const int64_t *, float *const *, uint32_t, int64_t *);
  int (*push)(int, const int64_t *, const float *const *, float, uint32_t, int64_t *);
  const char *(*last_error)(void);
  int (*rank)(void);
  int (*size)(void);
  int (*local_rank)(void);
  int (*local_size)(void);
  int (*process_set_rank)(int);
  int (*process_set_size)(int);
  int (*process_set_included)(int);
};

extern struct engine engine;

/* Finds the engine in the library at path, which must be loaded already. Returns
 * NULL, or the name of what is missing. */
__attribute__((visibility("default"))) const char *gorovod_tensorflow_bind(const char *path);
/* NULL, or why the operations could not be registered when this library was loaded. */
__attribute__((visibility("default"))) const char *gorovod_tensorflow_error(void);
/* Sets the function that returns the learning rate of a table's next push, or writes a text that says why it has none,
 * of at most bytes bytes, and returns a NaN. Kernels call it, on any thread. */
__attribute__((visibility("default"))) void gorovod_tensorflow_rates(float (*of)(int64_t table, char *text, size_t bytes));

void register_collectives(TF_Status *status); /* collectives.c */
void register_facts(TF_Status *status);       /* facts.c */
void register_tables(TF_Status *status);      /* tables.c */

/* shapes.c: shape functions for operations. */
void shape_same(TF_ShapeInferenceContext *c, TF_Status *status);      /* output i as input i */
void shape_rows(TF_ShapeInferenceContext *c, TF_Status *status);      /* other first dimensions */
void shape_alltoall(TF_ShapeInferenceContext *c, TF_Status *status);  /* rows, and a vector */
void shape_scalar(TF_ShapeInferenceContext *c, TF_Status *status);
void shape_none(TF_ShapeInferenceContext *c, TF_Status *status);      /* no outputs */

/* An operation's definition: attrs, inputs and outputs are lists that end with NULL. */
void define(const char *name, const char *const *attrs, const char *const *inputs,
            const char *const *outputs, void (*shape)(TF_ShapeInferenceContext *, TF_Status *),
            TF_Status *status);

/* Sets a TF_Status from a format, unless it is an error already. */
void fail(TF_Status *status, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Says why the engine has not done an operation. If elastic training survives the
 * failure, "Horovod: " precedes the reason, because a node may have any name: by this
 * word horovod.tensorflow.elastic recognises the failure. */
void fail_as(TF_Status *to, int status, const char *name, const char *reason);

#endif
