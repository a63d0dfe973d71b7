/*
 * abi.h: the parts of CPython's stable ABI that libgorovod_python.so uses, of CPython 3.10 and later.
 *
 * They are declared here, and Python.h is not included: the library is then built from the same text on every machine,
 * also where Python's headers are missing, and for another machine. If Python.h comes first, this header declares the
 * functions once more, so a compiler that has both compares them (test/cabi).
 *
 * An interpreter without the GIL lays objects out in another way. The library must not be imported there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_ABI_H
#define GOROVOD_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifndef Py_PYTHON_H
typedef ssize_t Py_ssize_t;
typedef struct _object PyObject;
typedef struct _typeobject PyTypeObject;
typedef struct _ts PyThreadState;

struct _object {
  Py_ssize_t ob_refcnt;
  PyTypeObject *ob_type;
};

typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef struct PyMethodDef {
  const char *ml_name;
  PyCFunction ml_meth;
  int ml_flags;
  const char *ml_doc;
} PyMethodDef;
typedef PyObject *(*descrgetfunc)(PyObject *descriptor, PyObject *object, PyObject *type);
typedef int (*descrsetfunc)(PyObject *descriptor, PyObject *object, PyObject *value);
enum { METH_VARARGS = 0x0001, METH_KEYWORDS = 0x0002, METH_NOARGS = 0x0004, METH_O = 0x0008, METH_FASTCALL = 0x0080 };
typedef PyObject *(*PyCFunctionWithKeywords)(PyObject *, PyObject *, PyObject *);

typedef struct PyModuleDef_Base {
  PyObject ob_base;
  PyObject *(*m_init)(void);
  Py_ssize_t m_index;
  PyObject *m_copy;
} PyModuleDef_Base;
typedef struct PyModuleDef {
  PyModuleDef_Base m_base;
  const char *m_name;
  const char *m_doc;
  Py_ssize_t m_size;
  PyMethodDef *m_methods;
  void *m_slots, *m_traverse, *m_clear, *m_free;
} PyModuleDef;

extern PyTypeObject PyLong_Type, PyFloat_Type, PyUnicode_Type, PyTuple_Type, PyList_Type, PyBytes_Type,
    PyDict_Type, PyCFunction_Type;
extern PyObject _Py_NoneStruct, _Py_TrueStruct;
#define Py_None (&_Py_NoneStruct)
#define Py_True (&_Py_TrueStruct)
enum { Py_tp_descr_get = 54, Py_tp_descr_set = 55 };
#endif

extern PyObject *PyExc_Exception, *PyExc_ValueError;

PyObject *PyModule_Create2(PyModuleDef *, int api_version);
void *PyType_GetSlot(PyTypeObject *, int slot);
void Py_IncRef(PyObject *);
void Py_DecRef(PyObject *);

PyObject *PyErr_Occurred(void);
int PyErr_ExceptionMatches(PyObject *);
void PyErr_Clear(void);
PyObject *PyErr_NoMemory(void);
void PyErr_Fetch(PyObject **, PyObject **, PyObject **);
void PyErr_Restore(PyObject *, PyObject *, PyObject *);
void PyErr_SetString(PyObject *, const char *);
void PyErr_SetObject(PyObject *, PyObject *);

int PyArg_ParseTuple(PyObject *, const char *, ...);
PyObject *Py_BuildValue(const char *, ...);
PyObject *PyObject_GetAttr(PyObject *, PyObject *);
int PyObject_SetAttr(PyObject *, PyObject *, PyObject *);
PyObject *PyObject_CallFunctionObjArgs(PyObject *, ...);
PyObject *PyObject_CallNoArgs(PyObject *);
PyCFunction PyCFunction_GetFunction(PyObject *);
PyObject *PyCFunction_GetSelf(PyObject *); /* borrowed */
int PyCFunction_GetFlags(PyObject *);
PyObject *PyIter_Next(PyObject *);

PyObject *PyUnicode_InternFromString(const char *);
const char *PyUnicode_AsUTF8AndSize(PyObject *, Py_ssize_t *);
PyObject *PyLong_FromLong(long);
PyObject *PyLong_FromLongLong(long long);
PyObject *PyLong_FromUnsignedLongLong(unsigned long long);
long long PyLong_AsLongLong(PyObject *);
unsigned long long PyLong_AsUnsignedLongLong(PyObject *);
double PyFloat_AsDouble(PyObject *);
char *PyBytes_AsString(PyObject *);
PyObject *PyTuple_New(Py_ssize_t);
int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *); /* takes the reference */
PyObject *PyTuple_Pack(Py_ssize_t, ...);
Py_ssize_t PyTuple_Size(PyObject *);
PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
PyObject *PyList_New(Py_ssize_t);
Py_ssize_t PyList_Size(PyObject *);
PyObject *PyList_GetItem(PyObject *, Py_ssize_t);
int PyList_SetSlice(PyObject *, Py_ssize_t, Py_ssize_t, PyObject *);
int PyList_Append(PyObject *, PyObject *);
PyObject *PyDict_GetItemWithError(PyObject *, PyObject *);
int PyDict_SetItem(PyObject *, PyObject *, PyObject *);
int PyDict_DelItem(PyObject *, PyObject *);
void *PyMem_Malloc(size_t);
void PyMem_Free(void *);
PyObject *PyCapsule_New(void *, const char *, void (*)(PyObject *));
int PyCapsule_IsValid(PyObject *, const char *);
void *PyCapsule_GetPointer(PyObject *, const char *);

PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *);

#endif
