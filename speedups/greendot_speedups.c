/* Optional speed-up of Greendot: one call writes the same bytes to many sockets.

   send_each(descriptors, data) -> None | list[tuple[int, int]]

   `greendot.transport.fan_out` has the same function in Python, and uses this one if it is installed. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000 /* one binary for Python 3.11 and newer */
#include <Python.h>
#include <errno.h>
#include <sys/socket.h>

#define AT_ONCE 256 /* descriptors that are copied to the stack, and written without the interpreter's lock */

/* Append (index, sent) to the list of incomplete writes, creating the list on first use. Return 0, or -1 on an error. */
static int note(PyObject **incomplete, Py_ssize_t index, Py_ssize_t sent) {
  if (*incomplete == NULL && (*incomplete = PyList_New(0)) == NULL) return -1;
  PyObject *pair = Py_BuildValue("(nn)", index, sent);
  if (pair == NULL) return -1;
  int failed = PyList_Append(*incomplete, pair);
  Py_DECREF(pair);
  return failed;
}

/* Copy `count` descriptors, from position `at` of the list. Return 0, or -1 on an error. */
static int copy(PyObject *list, Py_ssize_t at, Py_ssize_t count, int *into) {
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = PyList_GetItem(list, at + i); /* borrowed; checks the bounds */
    if (item == NULL) return -1;
    long number = PyLong_AsLong(item);
    if (number == -1 && PyErr_Occurred()) return -1;
    into[i] = (int)number;
  }
  return 0;
}

static PyObject *send_each(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *list, *incomplete = NULL;
  char *data;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(args, "OS:send_each", &list, &incomplete)) return NULL;
  PyObject *bytes = incomplete; /* borrowed; "S" has checked that these are bytes */
  incomplete = NULL;
  if (!PyList_Check(list)) {
    PyErr_SetString(PyExc_TypeError, "descriptors must be a list");
    return NULL;
  }
  if (PyBytes_AsStringAndSize(bytes, &data, &size) < 0) return NULL;
  Py_ssize_t many = PyList_Size(list);
  int descriptors[AT_ONCE];
  Py_ssize_t sent[AT_ONCE];
  for (Py_ssize_t at = 0; at < many; at += AT_ONCE) {
    Py_ssize_t count = many - at < AT_ONCE ? many - at : AT_ONCE;
    if (copy(list, at, count, descriptors) < 0) goto failed;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
      do sent[i] = send(descriptors[i], data, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
      while (sent[i] < 0 && errno == EINTR);
      if (sent[i] < 0) sent[i] = errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
    }
    Py_END_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++)
      if (sent[i] != size && note(&incomplete, at + i, sent[i]) < 0) goto failed;
  }
  if (incomplete == NULL) Py_RETURN_NONE;
  return incomplete;
failed:
  Py_XDECREF(incomplete);
  return NULL;
}

static PyMethodDef methods[] = {
    {"send_each", send_each, METH_VARARGS,
     "Write `data` to each socket of the list `descriptors`, without waiting.\n\n"
     "Return (index, bytes written) for each incomplete write, with -1 for a failed one; None if all are complete."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "greendot_speedups", .m_doc = "Optional speed-up of Greendot.", .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit_greendot_speedups(void) { return PyModuleDef_Init(&module); }
