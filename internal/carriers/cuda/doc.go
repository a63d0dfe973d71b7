// Package cuda calls CUDA's driver, libcuda.so.1, which it loads at run time. It knows devices, contexts, streams,
// events and memory, but no collectives.
//
// The driver is never linked, so a program with this package starts on a machine without CUDA. Nothing is loaded before
// Open. Streams and events of CUDA's runtime, which PyTorch and JAX use, are the driver's own handles, so the runtime
// (libcudart) is not needed.
//
// Any goroutine may call anything. Each call makes its context current on its thread, and restores the thread's state
// before it returns. Only these calls may wait for the device: Context.Synchronize, calls that allocate or free memory,
// and copies from and to host memory that is not AllocHost's.
//
// Do not use the package in a forked child: CUDA does not survive a fork.
package cuda
