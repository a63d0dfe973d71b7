//go:build cgo && linux

package pmix

/*
#cgo CFLAGS: -Wall -Werror
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "libpmix.h"
*/
import "C"

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// Client is this process's client of PMIx. Its methods are safe on any goroutine, one at a time.
type Client struct {
	space  string // the job's name
	size   int
	atExit bool

	mu        sync.Mutex
	lost      bool // a call has failed. It may still run, or further calls would fail, too
	finalized bool
}

var opened struct {
	sync.Mutex
	client *Client
}

// Open makes this process a client of the server that has started it. The error says why PMIx cannot be used here. Open
// blocks until the server has answered, or ctx has ended. Later calls return the same client.
func Open(ctx context.Context, o Options) (*Client, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.client != nil {
		return opened.client, opened.client.usable()
	}
	if err := load(o); err != nil {
		return nil, err
	}
	c := &Client{size: o.Size}
	space := (*C.char)(C.calloc(1, C.GV_PMIX_NAMESPACE))
	numbers := (*[2]C.uint32_t)(C.calloc(2, C.sizeof_uint32_t)) // this rank, and the number of ranks
	err := c.call(ctx, "PMIx_Init", "its server has not answered",
		func() C.int { return C.gv_pmix_init(space, &numbers[0]) })
	if err != nil {
		if c.usable() != nil {
			opened.client = c // the call has not returned, so nobody may call the library again
		}
		return nil, err
	}
	c.space = C.GoString(space)
	if c.atExit = o.AtExit && major(C.GoString(C.gv_pmix_version())) < forgiving; c.atExit {
		C.gv_pmix_finalize_at_exit()
	}
	opened.client = c
	err = c.call(ctx, "PMIx_Get of the job's size", "its server has not answered",
		func() C.int { return C.gv_pmix_job_size(space, &numbers[1]) })
	rank, size := int(numbers[0]), int(numbers[1])
	if err == nil && (rank != o.Rank || size != o.Size || c.space != o.Namespace) {
		err = fmt.Errorf("PMIx takes this process for rank %d of the %d of %q", rank, size, c.space)
	}
	if err != nil {
		c.lose()
		c.Done()
		return nil, err
	}
	C.free(unsafe.Pointer(space))
	C.free(unsafe.Pointer(numbers))
	return c, nil
}

// load loads the library that MPI uses, or would use, in this process.
func load(o Options) error {
	why, path := (*C.char)(C.calloc(1, C.GV_PMIX_TEXT)), (*C.char)(C.calloc(1, C.GV_PMIX_TEXT))
	defer C.free(unsafe.Pointer(why))
	defer C.free(unsafe.Pointer(path))
	mpi := C.gv_pmix_mpi(path)
	beside := C.GoString(path)
	try := func(name string) error {
		cname := C.CString(name)
		defer C.free(unsafe.Pointer(cname))
		if C.gv_pmix_load(cname, why) != 0 {
			return fmt.Errorf("load PMIx's library %s: %s", name, C.GoString(why))
		}
		return nil
	}
	name := candidate(beside)
	present := C.gv_pmix_present(path) != 0
	if present {
		name = C.GoString(path)
	}
	switch {
	case mpi == C.GV_MPI_OVER:
		return errors.New("MPI has been finalized in this process, and PMIx with it")
	case mpi == C.GV_MPI_IN_USE && !present:
		return errOwnCopy
	}
	if err := try(name); err != nil {
		return err
	}
	switch {
	case C.gv_pmix_initialized() != 0:
		return nil
	case mpi == C.GV_MPI_IN_USE:
		return errOwnCopy
	}
	has := C.GoString(C.gv_pmix_version())
	if needs := getenv("PMIX_VERSION"); o.LaunchersVersion && !isVersion(has, needs) {
		return fmt.Errorf("the launcher has PMIx %s, and the library here is %s; if MPI has another one than this, "+
			"the two disturb each other (PMIX_INSTALL_PREFIX says where to look for it)",
			cmp.Or(needs, "of a version that it does not tell"), has)
	}
	return nil
}

// getenv reads C's present environment, as libpmix does.
func getenv(name string) string {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	return C.GoString(C.getenv(cname))
}

// errOwnCopy says why this package leaves PMIx to MPI.
var errOwnCopy = errors.New("MPI is in use in this process, and has its own copy of PMIx")

const libraryName = "libpmix.so.2"

// candidate returns where the library is: where the environment says that PMIx or Open MPI is installed, beside the
// library of MPI in this process, or otherwise where the dynamic loader looks.
func candidate(beside string) string {
	var dirs []string
	for _, prefix := range []string{getenv("PMIX_INSTALL_PREFIX"), getenv("OPAL_PREFIX")} {
		if prefix != "" {
			dirs = append(dirs, filepath.Join(prefix, "lib"), filepath.Join(prefix, "lib64"))
		}
	}
	if beside != "" {
		dirs = append(dirs, filepath.Dir(beside))
	}
	for _, d := range dirs {
		path := filepath.Join(d, libraryName)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return libraryName
}

// isVersion reports whether a library's description of itself, such as "OpenPMIx 4.2.2 (PMIx Standard: 4.2)", names
// this version.
func isVersion(words, version string) bool {
	words, _, _ = strings.Cut(words, "(")
	return slices.Contains(strings.Fields(words), version)
}

// forgiving is the first version whose servers accept a rank again after its PMIx_Finalize, as MPI_Init needs. From
// this version on MPI_Init fails to find its values if another client of the process is initialised (seen with 5.0.7
// and Open MPI 5.0.7).
const forgiving = 5

// major is the first number in a library's description of itself; 0 if there is none.
func major(words string) (n int) {
	for _, w := range strings.Fields(words) {
		first, _, _ := strings.Cut(w, ".")
		if n, err := strconv.Atoi(first); err == nil {
			return n
		}
	}
	return 0
}

// Version is the library's description of itself.
func (c *Client) Version() string { return C.GoString(C.gv_pmix_version()) }

// Put gives the other ranks a value of this rank, which they can read after the next Fence.
func (c *Client) Put(ctx context.Context, key string, v []byte) error {
	name, bytes, n := C.CString(key), C.CBytes(v), C.size_t(len(v))
	return c.call(ctx, "PMIx_Put", "its server has not answered", func() C.int {
		defer C.free(unsafe.Pointer(name))
		defer C.free(bytes)
		return C.gv_pmix_put(name, bytes, n)
	})
}

// Fence waits until all ranks have called it, or ctx has ended. After ctx has ended, only Hosts and CallRoll still
// work.
func (c *Client) Fence(ctx context.Context) error {
	return c.call(ctx, "PMIx_Fence", "not all ranks have come", func() C.int { return C.gv_pmix_fence() })
}

// Get is the value that a rank has put before the last Fence.
func (c *Client) Get(ctx context.Context, rank int, key string) (v []byte, err error) {
	type found struct {
		bytes  unsafe.Pointer
		length C.size_t
	}
	f := (*found)(C.calloc(1, C.size_t(unsafe.Sizeof(found{}))))
	space, name := C.CString(c.space), C.CString(key)
	err = c.call(ctx, "PMIx_Get", "its server has not answered", func() C.int {
		defer C.free(unsafe.Pointer(space))
		defer C.free(unsafe.Pointer(name))
		return C.gv_pmix_get(space, C.uint32_t(rank), name, &f.bytes, &f.length)
	})
	if err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(f))
	defer C.free(f.bytes)
	const most = 1 << 20
	if f.length > most {
		return nil, fmt.Errorf("PMIx_Get: a value of %d bytes", f.length)
	}
	return C.GoBytes(f.bytes, C.int(f.length)), nil
}

// Done says that all values have been exchanged. It calls PMIx_Finalize, unless the process's exit does. After
// PMIx_Finalize neither this client nor another one works in this process.
func (c *Client) Done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.atExit || c.finalized {
		return
	}
	c.finalized = true
	C.gv_pmix_finalize()
}

// usable returns nil while the client may be used.
func (c *Client) usable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finalized {
		return errFinalized
	}
	if c.lost {
		return errLost
	}
	return nil
}

var (
	errFinalized = errors.New("PMIx has been finalized in this process")
	errLost      = errors.New("PMIx cannot be used again in this process after a failure")
)

// lose forbids further calls of the library.
func (c *Client) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = true
}

// call calls f on a thread of its own, and waits for its status or the end of ctx. f must free what it allocates. If
// ctx ends first, the thread goes on waiting; late names what it waits for, for the error.
func (c *Client) call(ctx context.Context, what, late string, f func() C.int) error {
	if err := c.usable(); err != nil {
		return err
	}
	return c.bound(ctx, what, late, f)
}

// bound is call for a client that may have been lost.
func (c *Client) bound(ctx context.Context, what, late string, f func() C.int) error {
	began, ended := time.Now(), make(chan C.int, 1)
	broken := make(chan error, 1)
	guard.Go("a call of PMIx", func(err error) { broken <- err }, func() { ended <- f() })
	select {
	case status := <-ended:
		if status != 0 {
			return fmt.Errorf("%s: %s", what, C.GoString(C.gv_pmix_error(status)))
		}
		return nil
	case err := <-broken:
		c.lose()
		return err
	case <-ctx.Done():
		err := fmt.Errorf("%s: after %v %s: %w", what, time.Since(began).Round(10*time.Millisecond), late,
			context.Cause(ctx))
		c.lose()
		return err
	}
}
