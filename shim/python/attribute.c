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

/* Fills in how to call a function of C, bound to an instance or to its own self. */
static void call_directly(struct method *method, PyObject *bound) {
  if (bound->ob_type != &PyCFunction_Type) return;
  int flags = PyCFunction_GetFlags(bound);
  method->keywords = flags == (METH_VARARGS | METH_KEYWORDS);
  if (method->keywords || flags == METH_VARARGS) method->arguments = PyTuple_New(0); /* new, for ever */
  if (method->arguments != NULL || flags == METH_NOARGS) method->call = PyCFunction_GetFunction(bound);
}

bool method_find(struct method *method, PyObject *instance, const char *name) {
  PyObject *text = PyUnicode_InternFromString(name);                                                      /* new */
  PyObject *bound = text == NULL ? NULL : PyObject_GetAttr(instance, text);                               /* new */
  PyObject *function = bound == NULL ? NULL : PyObject_GetAttr((PyObject *)instance->ob_type, text); /* for ever */
  *method = (struct method){.function = function};
  if (function != NULL) call_directly(method, bound);
  Py_DecRef(text);
  Py_DecRef(bound);
  return function != NULL && PyErr_Occurred() == NULL;
}

bool function_find(struct method *method, PyObject *function) {
  *method = (struct method){.function = function};
  Py_IncRef(function); /* for ever */
  call_directly(method, function);
  if (method->call != NULL) method->self = PyCFunction_GetSelf(function);
  return PyErr_Occurred() == NULL;
}

PyObject *method_call(const struct method *method, PyObject *instance) {
  if (instance == NULL) instance = method->self;
  if (method->call == NULL) return PyObject_CallFunctionObjArgs(method->function, instance, NULL);
  if (!method->keywords) return method->call(instance, method->arguments);
  return ((PyCFunctionWithKeywords)(void (*)(void))method->call)(instance, method->arguments, NULL);
}
