//go:build cgo && linux

package pmix

/*
#include <stdlib.h>
#include "libpmix.h"
*/
import "C"

import (
	"context"
	"errors"
	"time"
	"unsafe"
)

const (
	// rollQuiet is how long a rank may take to answer after the one before it. Answers take milliseconds, because the
	// ranks' servers give them.
	rollQuiet = time.Second
	// rollPause is the time between two looks at the answers, and before CallRoll asks again for a rank that gave an
	// error.
	rollPause = 10 * time.Millisecond
	// rollLimit bounds a roll call.
	rollLimit = 5 * time.Second
	// hostsLimit bounds Hosts, which reads only this process's own memory.
	hostsLimit = time.Second
)

// CallRoll returns the first 255 bytes of the value that each rank has put under a key, by rank; nil if a rank has put
// none, or if its server does not answer. It needs no Fence, and may follow a Fence that has failed. It ends a second
// after the last answer, or after 5 s. No rank has to take part, because the servers answer.
func (c *Client) CallRoll(key string) ([][]byte, error) {
	if c.over() {
		return nil, errFinalized
	}
	ctx, cancel := context.WithTimeout(context.Background(), rollLimit)
	defer cancel()
	space, name := C.CString(c.space), C.CString(key)
	defer C.free(unsafe.Pointer(space))
	defer C.free(unsafe.Pointer(name))
	roll := C.gv_pmix_new_roll(space, C.uint32_t(c.size), name)
	if roll == nil {
		return nil, errors.New("PMIx: no memory for a roll call")
	}
	tick := time.NewTicker(rollPause)
	defer tick.Stop()
	for answers, last := 0, time.Now(); answers < c.size && ctx.Err() == nil && time.Since(last) < rollQuiet; <-tick.C {
		err := c.bound(ctx, "PMIx_Get_nb", "it has not returned", func() C.int {
			C.gv_pmix_roll_ask(roll)
			return 0
		})
		if err != nil && answers == 0 {
			return nil, err
		}
		if n := int(C.gv_pmix_roll_answers(roll)); n > answers {
			answers, last = n, time.Now()
		}
	}
	values := make([][]byte, c.size)
	var text [C.GV_PMIX_NAME]C.char
	for r := range values {
		if C.gv_pmix_roll_answer(roll, C.uint32_t(r), &text[0]) != 0 {
			values[r] = []byte(C.GoString(&text[0]))
		}
	}
	return values, nil
}

// Hosts returns the ranks' hosts, by rank, as the launcher names them; empty if the launcher does not tell. It may
// follow a Fence that has failed, and asks no other process.
func (c *Client) Hosts() []string {
	hosts := make([]string, c.size)
	if c.over() {
		return hosts
	}
	ctx, cancel := context.WithTimeout(context.Background(), hostsLimit)
	defer cancel()
	space, told := C.CString(c.space), make(chan []string, 1)
	err := c.bound(ctx, "PMIx_Get of the ranks' hosts", "it has not returned", func() C.int {
		defer C.free(unsafe.Pointer(space))
		all := make([]string, c.size)
		var host [C.GV_PMIX_NAME]C.char
		for r := range all {
			if C.gv_pmix_host(space, C.uint32_t(r), &host[0]) == 0 {
				all[r] = C.GoString(&host[0])
			}
		}
		told <- all
		return 0
	})
	if err != nil {
		return hosts
	}
	return <-told
}

// over reports that the client has called PMIx_Finalize.
func (c *Client) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.finalized
}
