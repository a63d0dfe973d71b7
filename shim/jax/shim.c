/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

struct engine engine;

const char *gorovod_jax_bind(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == NULL) return "libgorovod.so, which has not been loaded";
#define BIND(field, symbol)                         \
  *(void **)&engine.field = dlsym(library, symbol); \
  if (engine.field == NULL) return symbol;
  BIND(enqueue, "gorovod_enqueue")
  BIND(enqueue_group, "gorovod_enqueue_group")
  BIND(wait, "gorovod_wait")
  BIND(on_done, "gorovod_on_done")
  BIND(await_on_stream, "gorovod_await_on_stream")
  BIND(release, "gorovod_release")
  BIND(last_error, "gorovod_last_error")
#undef BIND
  return NULL; /* the library stays open, because programs may run until the end */
}

xla_error *fail(const struct xla_api *api, int code, const char *format, ...) {
  char text[4096];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  struct xla_error_create create = {{sizeof create, NULL}, text, code};
  return api->error_create(&create);
}

bool asked(struct xla_call *call, struct xla_type_id state, xla_error **error) {
  struct xla_extension *extension = call->base.extensions;
  if (extension == NULL || extension->type != XLA_EXTENSION_METADATA) return false;
  struct xla_metadata *metadata = ((struct xla_metadata_extension *)extension)->metadata;
  metadata->version = (struct xla_version){{sizeof(struct xla_version), NULL}, XLA_MAJOR, XLA_MINOR};
  metadata->traits = 0;
  *error = NULL;
  const struct xla_api *api = call->api;
  if (api == NULL) return true; /* 0.1 and older refuse the version by themselves */
  if (api->version.major != XLA_MAJOR || api->version.minor < XLA_MINOR || api->base.size < sizeof *api) {
    *error = fail(api, XLA_CODE_INVALID_ARGUMENT, "XLA's foreign function interface is %d.%d; %d.%d or a later %d.x is needed",
                  api->version.major, api->version.minor, XLA_MAJOR, XLA_MINOR, XLA_MAJOR);
    return true;
  }
  metadata->state = state; /* since 0.3 */
  return true;
}

xla_error *gorovod_jax_pad(struct xla_call *call) {
  xla_error *error = NULL;
  asked(call, (struct xla_type_id){0}, &error);
  return error;
}
