/*
 * attribute.h: attributes and methods of all instances of a class, without looking their names up each time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_ATTRIBUTE_H
#define GOROVOD_ATTRIBUTE_H

#include <stdbool.h>

#include "abi.h"

/* The class's descriptor of the attribute: a slot, or a property of C. It checks that an object is of the class. */
struct attribute {
  PyObject *descriptor;
  descrgetfunc get;
  descrsetfunc set;
};

/* Finds the attribute, for the life of the process. False with an exception if instances of the class have none. */
bool attribute_find(struct attribute *attribute, PyObject *class, const char *name);

/* A new reference, or NULL with an exception. */
static inline PyObject *attribute_get(const struct attribute *attribute, PyObject *object) {
  return attribute->get(attribute->descriptor, object, (PyObject *)object->ob_type);
}

/* False with an exception if that fails. The old value is released, so other code may run. */
static inline bool attribute_set(const struct attribute *attribute, PyObject *object, PyObject *value) {
  return attribute->set(attribute->descriptor, object, value) == 0;
}

/* A method without arguments. */
struct method {
  PyObject *function;  /* of the class: takes the instance */
  PyCFunction call;      /* the same, of C: takes the instance and the arguments. NULL for a function of Python */
  PyObject *arguments; /* for call: NULL, or an empty tuple */
  bool keywords;       /* call takes names of arguments, too: PyCFunctionWithKeywords */
  PyObject *self;      /* of a function, for call */
};

/* Finds the method of the class of an instance, for the life of the process. False with an exception if there is none. */
bool method_find(struct method *method, PyObject *instance, const char *name);

/* Makes a method of a function without arguments, which is to be called with NULL for the instance. As method_find. */
bool function_find(struct method *method, PyObject *function);

/* Calls the method of an instance of exactly that class: a new reference, or NULL with an exception. */
PyObject *method_call(const struct method *method, PyObject *instance);

#endif
