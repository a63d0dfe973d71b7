/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute.h"

bool attribute_find(struct attribute *attribute, PyObject *class, const char *name) {
  PyObject *text = PyUnicode_InternFromString(name);                                     /* new */
  PyObject *descriptor = text == NULL ? NULL : PyObject_GetAttr(class, text); /* new, for ever: as the class */
  Py_DecRef(text);
  if (descriptor == NULL) return false;
  attribute->descriptor = descriptor;
  attribute->get = (descrgetfunc)(uintptr_t)PyType_GetSlot(descriptor->ob_type, Py_tp_descr_get);
  attribute->set = (descrsetfunc)(uintptr_t)PyType_GetSlot(descriptor->ob_type, Py_tp_descr_set);
  if (attribute->get != NULL && attribute->set != NULL) return true;
  PyErr_SetString(PyExc_ValueError, name);
  return false;
}
