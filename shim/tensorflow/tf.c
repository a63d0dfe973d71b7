/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tf.h"

#include <dlfcn.h>

struct tf_functions tf;

static const char *const libraries[] = {
  "libtensorflow_framework.so.2", "libtensorflow_cc.so.2", "libtensorflow.so.2",
  "_pywrap_tensorflow_internal.so", "libtensorflow_framework.2.dylib", "libtensorflow_cc.2.dylib",
};

/* Looks a symbol up in TensorFlow's libraries, which are loaded already, but perhaps
 * without global visibility. */
static void *lookup(const char *name) {
  void *p = dlsym(RTLD_DEFAULT, name);
  for (size_t i = 0; p == NULL && i < sizeof libraries / sizeof *libraries; i++) {
    void *library = dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD);
    if (library != NULL) {
      p = dlsym(library, name);
      dlclose(library); /* it stays loaded, because TensorFlow uses it */
    }
  }
  return p;
}

const char *tf_find(void) {
#define FIND(result, name, parameters)                     \
  tf.name = (result(*) parameters)lookup(#name);           \
  if (tf.name == NULL) return #name;
  TF_FUNCTIONS(FIND)
#undef FIND
#define FIND(result, name, parameters) tf.name = (result(*) parameters)lookup(#name);
  TF_OPTIONAL_FUNCTIONS(FIND)
#undef FIND
  return NULL;
}
