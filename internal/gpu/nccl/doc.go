// Package nccl calls NCCL, libnccl.so.2, which it finds and loads at run time. It knows communicators and their
// operations, and nothing of tensors, names or ranks that die: package carrier does.
//
// A process must have one NCCL. So the library that the program has loaded already (PyTorch's) comes first, then the
// one of the Python packages that the program uses, then the one that the dynamic loader finds. Nothing is loaded
// before Open.
//
// All communicators are non-blocking: a call returns at once, NCCL goes on in a thread of its own, and the caller
// polls. The calls of one communicator come from one goroutine at a time, on any thread. Only Abort may come at any
// time.
package nccl
