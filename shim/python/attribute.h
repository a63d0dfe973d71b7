/*
 * attribute.h: an attribute of all instances of a class, read and written without looking its name up each time.
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

#endif
