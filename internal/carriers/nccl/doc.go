// Package nccl calls NCCL, libnccl.so.2, which it finds and loads at run time. It knows communicators and their
// operations. Tensors, names and dead ranks are the concern of package carrier.
//
// A process must have only one NCCL. So Open takes the library that the program has loaded already (PyTorch's). If
// there is none, Open tries the Python packages that the program uses, and then the dynamic loader. Nothing is loaded
// before Open.
//
// All communicators are non-blocking: a call returns at once, NCCL goes on in a thread of its own, and the caller
// polls. Only one goroutine at a time calls a communicator, on any thread. Abort may be called at any time.
package nccl
