package shm

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// hugePages asks the system for huge pages under memory that other ranks copy again and again. The kernel looks up each
// page that it copies from or to a process. With small pages these look-ups take a quarter of the time of a copy. The
// program sees no change but the speed: hugePages asks only for pages of which seven eighths are already in memory.
//
// It is no trial of two ways (package trial): it compares nothing, and only spends a budget of time.
//
// Each lane has one, which belongs to the lane's driver. The zero value does nothing.
type hugePages struct {
	size     uintptr       // of a huge page; 0: the system gives none
	share    time.Duration // hugePages spends at most 1/share of all time
	limit    time.Duration // of the time in one operation, or one page
	collapse func(at, n uintptr) unix.Errno
	resident func(at, n uintptr) uintptr // how many of these bytes are in memory
	pages    map[uintptr]*hugePage
	touched  []uintptr // by this operation; a place is an address / size

	last   time.Time     // when it was used last
	credit time.Duration // the time that it may spend now
	cost   time.Duration // the average time for a page that the system has given
}

// hugePage is a place for a huge page.
type hugePage struct {
	covered uintptr // bytes that this operation has touched
	uses    int     // operations that copied at least half of it
	due     int     // the number of uses at which to ask
}

const (
	// The system needs 0.6 ms or more for a page, most of it for copying, and ten times as long if a virtual machine's
	// host must first find the memory. So hugePages asks once the page would have gained half of that time, at the
	// third use or later. Another mapping may come to the same address, so it asks again, but only when the number of
	// uses has grown by hugeAgain.
	hugeCost  = 600 * time.Microsecond
	hugeGain  = 100 * time.Microsecond // a use
	hugeDue   = 3
	hugeAgain = 8
	// Asking takes at most 1/hugeShare of all time, so that no operation is much slower while hugePages asks. It is
	// less where ranks share cores, because there they wait for one another's pages, too. One operation spends at most
	// hugeLimit, or the time for one page. One call asks for at most hugeRun pages.
	hugeShare        = 5
	crowdedHugeShare = 8
	hugeLimit        = 2 * time.Millisecond
	hugeRun          = 8
	// When it knows of more places than this, hugePages forgets all of them.
	hugeMost = 1 << 16
)

// hugeFiles is the directory with the system's settings of huge pages.
const hugeFiles = "/sys/kernel/mm/transparent_hugepage/"

// hugePageSize is the size of the system's huge pages. It is 0 if the system has none, cannot be asked for them, or may
// not give them.
func hugePageSize() uintptr {
	policy, err := os.ReadFile(hugeFiles + "enabled")
	if err != nil || bytes.Contains(policy, []byte("[never]")) || collapse(0, 0) != 0 {
		return 0
	}
	text, err := os.ReadFile(hugeFiles + "hpage_pmd_size")
	if err != nil {
		return 0
	}
	size, _ := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 63)
	return uintptr(size)
}

// collapse moves the n bytes from at on into huge pages. at and n are multiples of a huge page.
func collapse(at, n uintptr) unix.Errno {
	_, _, err := unix.Syscall(unix.SYS_MADVISE, at, n, unix.MADV_COLLAPSE)
	return err
}

// resident returns how many of the n bytes from at on (whole pages) are in memory; 0 if some are not mapped.
func resident(at, n uintptr) (bytes uintptr) {
	page := uintptr(os.Getpagesize())
	pages := make([]byte, n/page)
	if _, _, err := unix.Syscall(unix.SYS_MINCORE, at, n, uintptr(unsafe.Pointer(&pages[0]))); err != 0 {
		return 0
	}
	for _, p := range pages {
		bytes += uintptr(p&1) * page
	}
	return bytes
}

func newHugePages(size uintptr, crowded bool) hugePages {
	h := hugePages{size: size, share: hugeShare, limit: hugeLimit, cost: hugeCost, collapse: collapse,
		resident: resident}
	if crowded {
		h.share = crowdedHugeShare
	}
	return h
}

// use notes that others copy these ranges in this operation, and asks for the huge pages that are due. That takes some
// time.
func (h *hugePages) use(own []transport.Span) {
	if h.size == 0 {
		return
	}
	if h.pages == nil || len(h.pages) > hugeMost {
		h.pages = map[uintptr]*hugePage{}
	}
	for _, s := range own {
		h.touch(s)
	}
	due := 0
	for _, i := range h.touched {
		p := h.pages[i]
		if p.covered >= h.size/2 {
			p.uses++
		}
		if p.covered = 0; p.uses >= p.due && time.Duration(p.uses)*hugeGain >= h.cost/2 {
			h.touched[due] = i
			due++
		}
	}
	h.ask(h.touched[:due])
	h.touched = h.touched[:0]
}

// touch notes that a range is copied.
func (h *hugePages) touch(s transport.Span) {
	for at, end := s.Addr, s.Addr+s.Bytes; at < end; {
		i := at / h.size
		next := min(end, (i+1)*h.size)
		p := h.pages[i]
		if p == nil {
			p = &hugePage{due: hugeDue}
			h.pages[i] = p
		}
		if p.covered == 0 {
			h.touched = append(h.touched, i)
		}
		p.covered += next - at
		at = next
	}
}

// dense reports that a huge page in this place would take little more memory than the small pages there.
func (h *hugePages) dense(i uintptr) bool { return h.resident(i*h.size, h.size) >= h.size-h.size/8 }

// ask asks for pages, as far as there is credit. Memory stays as it is if the system refuses, because it has no page or
// because the memory is of another kind, and if a huge page would take much more memory. A refusal uses credit, but
// does not change the cost of a page: it may be quick when the next page is not.
func (h *hugePages) ask(due []uintptr) {
	now := time.Now()
	if h.last.IsZero() {
		h.last = now
	}
	h.credit = min(h.credit+now.Sub(h.last)/h.share, max(h.limit, h.cost))
	h.last = now
	slices.Sort(due)
	for len(due) > 0 && h.credit >= h.cost {
		n, most := 0, min(len(due), hugeRun, max(1, int(h.credit/max(h.cost, 1))))
		for n < most && due[n] == due[0]+uintptr(n) && h.dense(due[n]) {
			n++
		}
		for _, i := range due[:max(n, 1)] {
			h.pages[i].due = hugeAgain * h.pages[i].uses
		}
		if n == 0 {
			due = due[1:]
			continue
		}
		refused := h.collapse(due[0]*h.size, uintptr(n)*h.size) != 0
		due = due[n:]
		took := time.Since(now)
		now = now.Add(took)
		h.credit -= took
		if !refused {
			h.cost = (h.cost + took/time.Duration(n)) / 2
		}
	}
}
