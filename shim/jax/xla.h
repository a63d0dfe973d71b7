/*
 * xla.h: the part of XLA's foreign function interface that this shim needs. JAX's
 * compiled programs call C functions through it. The declarations restate version 0.3
 * of the interface (xla/ffi/api/c_api.h, which jaxlib has since 0.9). XLA passes its
 * functions at run time, so building and linking need nothing of XLA.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_JAX_XLA_H
#define GOROVOD_JAX_XLA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { XLA_MAJOR = 0, XLA_MINOR = 3 };

typedef struct xla_error xla_error;     /* NULL is success; the receiver owns it */
typedef struct xla_context xla_context; /* of one call */
typedef struct xla_future xla_future;   /* the end of a call that has returned earlier */

/* Element types. */
enum {
  XLA_PRED = 1, XLA_S8 = 2, XLA_S16 = 3, XLA_S32 = 4, XLA_S64 = 5, XLA_U8 = 6, XLA_U16 = 7,
  XLA_F16 = 10, XLA_F32 = 11, XLA_F64 = 12, XLA_BF16 = 16, XLA_F8E5M2 = 19, XLA_F8E4M3FN = 20
};

enum { XLA_CODE_INVALID_ARGUMENT = 3, XLA_CODE_INTERNAL = 13 };

/* Each structure begins with its size, which XLA checks, and a list of extensions. */
struct xla_base {
  size_t size;
  struct xla_extension *extensions;
};

enum { XLA_EXTENSION_METADATA = 1 };

struct xla_extension {
  size_t size;
  int type;
  struct xla_extension *next;
};

struct xla_version {
  struct xla_base base;
  int major, minor;
};

struct xla_type_id {
  int64_t id; /* 0: none */
};

/* XLA's question to a handler that is registered. */
struct xla_metadata {
  size_t size;
  struct xla_version version; /* the handler was written for it */
  uint32_t traits;
  struct xla_type_id state; /* the type that an instantiating handler makes */
};

struct xla_metadata_extension {
  struct xla_extension extension;
  struct xla_metadata *metadata;
};

struct xla_text {
  const char *start;
  size_t length;
};

struct xla_scalar {
  int type;
  void *value;
};

struct xla_buffer {
  struct xla_base base;
  int type;
  void *data;
  int64_t ndim;
  int64_t *shape;
};

/* Arguments, or results. All are buffers. */
struct xla_buffers {
  struct xla_base base;
  int64_t n;
  int *kinds;
  struct xla_buffer **buffers;
};

enum { XLA_ATTRIBUTE_SCALAR = 3, XLA_ATTRIBUTE_STRING = 4 };

struct xla_attributes {
  struct xla_base base;
  int64_t n;
  int *kinds;
  struct xla_text **names;
  void **values; /* xla_scalar, xla_text, … */
};

enum { XLA_INSTANTIATE = 0, XLA_EXECUTE = 3 };

struct xla_call {
  struct xla_base base;
  const struct xla_api *api;
  xla_context *context;
  int stage;
  struct xla_buffers arguments, results;
  struct xla_attributes attributes;
  /* Set by a handler that returns before its end: buffers stay as they are until the end. */
  xla_future *future;
};

struct xla_type_info {
  struct xla_base base;
  void (*destroy)(void *);
};

/* Arguments of XLA's functions. */
struct xla_error_create {
  struct xla_base base;
  const char *message;
  int code;
};

struct xla_type_register {
  struct xla_base base;
  struct xla_text name;
  struct xla_type_id *id; /* in and out */
  const struct xla_type_info *info;
};

struct xla_state { /* of State_Set and State_Get */
  struct xla_base base;
  xla_context *context;
  int stage;
  struct xla_type_id *type;
  void *state;
};

struct xla_future_create {
  struct xla_base base;
  xla_future *future; /* out */
};

struct xla_future_end { /* of Future_SetAvailable, which ignores error, and of Future_SetError */
  struct xla_base base;
  xla_future *future;
  xla_error *error;
};

struct xla_stream {
  struct xla_base base;
  xla_context *context;
  void *stream; /* out: CUDA's CUstream */
};

struct xla_device_ordinal {
  struct xla_base base;
  xla_context *context;
  int32_t ordinal; /* out */
};

typedef void (*xla_unused)(void);

/* XLA's functions. Later versions append to these. */
struct xla_api {
  struct xla_base base;
  struct xla_version version;
  const void *internal;
  xla_error *(*error_create)(struct xla_error_create *);
  xla_unused error_message, error_destroy, handler_register;
  xla_error *(*stream_get)(struct xla_stream *);
  xla_error *(*type_register)(struct xla_type_register *);
  xla_unused context_get;
  xla_error *(*state_set)(struct xla_state *);
  xla_error *(*state_get)(struct xla_state *);
  xla_unused memory_allocate, memory_free, schedule, threads;
  xla_error *(*future_create)(struct xla_future_create *);
  xla_error *(*future_set_available)(struct xla_future_end *);
  xla_error *(*future_set_error)(struct xla_future_end *);
  xla_unused run_id;
  xla_error *(*device_ordinal)(struct xla_device_ordinal *);
};

#endif
