package shm

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// hugeRegion is anonymous memory of that many huge pages, filled with bytes. It begins at a huge page, and lies between
// pages that cannot be touched.
func hugeRegion(t *testing.T, pages int, size uintptr) []byte {
	t.Helper()
	n := uintptr(pages) * size
	p, err := unix.MmapPtr(-1, 0, nil, n+2*size, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.MunmapPtr(p, n+2*size) })
	first := unsafe.Add(p, size-uintptr(p)%size)
	region := unsafe.Slice((*byte)(first), n)
	if err := unix.Mprotect(region, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	for i := range region {
		region[i] = byte(i % 251)
	}
	return region
}

// inHugePages is how many bytes of the region, a mapping of its own, are in huge pages.
func inHugePages(t *testing.T, region []byte) (n int) {
	t.Helper()
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer smaps.Close()
	start := fmt.Sprintf("%x-", uintptr(unsafe.Pointer(&region[0])))
	found := false
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, start) {
			found = true
		} else if kib := 0; found && strings.HasPrefix(line, "AnonHugePages:") {
			if _, err := fmt.Sscanf(line, "AnonHugePages: %d kB", &kib); err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no mapping starts at %s", start)
	return 0
}

func allResident(_, n uintptr) uintptr { return n }

// hugePages asks at the third use of most of a page, for neighbours together, and later again.
func TestHugePagesAreAskedFor(t *testing.T) {
	const size = 2 << 20
	var asked [][2]uintptr
	h := newHugePages(size, false)
	h.last, h.limit = time.Now().Add(-time.Hour), 50*time.Millisecond
	h.resident = allResident
	h.collapse = func(at, n uintptr) unix.Errno {
		asked = append(asked, [2]uintptr{at / size, n / size})
		return unix.EAGAIN
	}
	copied := []transport.Span{
		{Addr: 40 * size, Bytes: 10*size + size/2}, // more than one call asks for, and half a page
		{Addr: 9 * size, Bytes: size/2 - 1},
		{Addr: 11*size - 1, Bytes: size/4 + 1}, {Addr: 12*size - size/4, Bytes: size / 4}, // two quarters of one
		{Addr: 20 * size},
	}
	for use := 1; use <= hugeDue*hugeAgain; use++ {
		asked = asked[:0]
		h.use(copied)
		var want [][2]uintptr
		if use == hugeDue || use == hugeDue*hugeAgain {
			want = [][2]uintptr{{11, 1}, {40, 8}, {48, 3}}
		}
		if !slices.Equal(asked, want) {
			t.Errorf("use %d: asked for %v, want %v (place, pages)", use, asked, want)
		}
	}
	if allocs := testing.AllocsPerRun(10, func() { h.use(copied) }); allocs > 0 {
		t.Errorf("%v allocations a use", allocs)
	}
}

// However long the system takes, asking takes no more than its share of the time, and ends.
func TestHugePagesTakeTheirShare(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		t.Run(fmt.Sprint("crowded ", crowded), func(t *testing.T) { testHugeShare(t, crowded) })
	}
}

func testHugeShare(t *testing.T, crowded bool) {
	const size, pages = 2 << 20, 40
	const page = 500 * time.Microsecond
	h := newHugePages(size, crowded)
	h.resident = allResident
	spent, before := time.Duration(0), time.Duration(0)
	asked := map[uintptr]bool{}
	h.collapse = func(at, n uintptr) unix.Errno {
		began := time.Now()
		time.Sleep(page * time.Duration(n/size))
		for ; n > 0; at, n = at+size, n-size {
			asked[at] = true
		}
		before = spent // the last call may take longer than there was credit for
		spent += time.Since(began)
		return 0
	}
	began := time.Now()
	for len(asked) < pages && time.Since(began) < 30*time.Second {
		h.use([]transport.Span{{Addr: size, Bytes: pages * size}})
		time.Sleep(5 * time.Millisecond)
	}
	if all := time.Since(began); len(asked) != pages || before > all/h.share {
		t.Errorf("asked for %d pages of %d, in %v of %v", len(asked), pages, spent, all)
	}
}

// If the system is slow, hugePages asks later, and not at all for pages that are used a few times.
func TestHugePagesMustPay(t *testing.T) {
	const size = 2 << 20
	asked := 0
	h := newHugePages(size, false)
	h.last, h.limit = time.Now().Add(-time.Hour), 50*time.Millisecond
	h.resident = allResident
	h.collapse = func(_, n uintptr) unix.Errno {
		time.Sleep(10 * time.Millisecond * time.Duration(n/size))
		asked += int(n / size)
		return 0
	}
	use := func() { h.use([]transport.Span{{Addr: size, Bytes: hugeRun * size}, {Addr: 90 * size, Bytes: size}}) }
	for range 3 {
		use()
	}
	first := asked
	for range 22 {
		h.credit = h.limit // lack of credit is not the reason
		use()
	}
	if first != hugeRun || asked != first {
		t.Errorf("asked for %d pages, then for %d more, before they pay", first, asked-first)
	}
	for range 1000 {
		h.credit = h.limit
		if use(); asked > first {
			return
		}
	}
	t.Error("it is not asked any more")
}

// Quick refusals do not make pages look cheap: the pages that the system gives afterwards take their share of the time.
func TestRefusalsTeachNoCost(t *testing.T) {
	const size = 2 << 20
	h := newHugePages(size, false)
	h.last, h.limit = time.Now().Add(-time.Hour), 50*time.Millisecond
	h.resident = allResident
	asked := 0
	h.collapse = func(_, n uintptr) unix.Errno {
		asked++
		return unix.EAGAIN
	}
	refused := []transport.Span{}
	for place := range uintptr(20) {
		refused = append(refused, transport.Span{Addr: (10 + 2*place) * size, Bytes: size})
	}
	for range hugeDue {
		h.credit = h.limit
		h.use(refused)
	}
	if asked != len(refused) || h.cost != hugeCost {
		t.Fatalf("asked for %d pages; after as many refusals one is taken to cost %v, want %v", asked, h.cost, hugeCost)
	}
	first := 0
	h.collapse = func(_, n uintptr) unix.Errno {
		if first == 0 {
			first = int(n / size)
		}
		return 0
	}
	h.limit = 2 * hugeCost // credit for two pages
	for range hugeDue {
		h.use([]transport.Span{{Addr: 100 * size, Bytes: hugeRun * size}})
	}
	if first != 2 {
		t.Errorf("asked for %d pages at once with credit for 2", first)
	}
}

// Memory that is put into huge pages keeps its bytes.
func TestHugePages(t *testing.T) {
	size := hugePageSize()
	if size == 0 {
		t.Skip("the kernel has no transparent huge pages (/sys/kernel/mm/transparent_hugepage)")
	}
	h := newHugePages(size, false)
	h.last, h.limit = time.Now().Add(-time.Hour), 50*time.Millisecond
	region := hugeRegion(t, 3, size)
	if inHugePages(t, region) > 0 {
		t.Skip("the kernel gives huge pages unasked (/sys/kernel/mm/transparent_hugepage/enabled is not madvise)")
	}
	want := bytes.Clone(region)
	for range hugeDue * hugeAgain { // twice
		h.use(span(region))
	}
	if n := inHugePages(t, region); n == 0 {
		if err := collapse(uintptr(unsafe.Pointer(&region[0])), size); err != 0 {
			t.Skip("this system has no huge pages left:", err)
		}
		t.Fatal("no byte is in huge pages")
	}
	if !bytes.Equal(region, want) {
		t.Fatal("the memory has changed")
	}
}

// Memory that others copy does not grow by more than an eighth: a place of which more than an eighth is missing keeps
// its small pages.
func TestHugePagesAreFull(t *testing.T) {
	size := hugePageSize()
	if size == 0 {
		t.Skip("the kernel has no transparent huge pages (/sys/kernel/mm/transparent_hugepage)")
	}
	region := hugeRegion(t, 3, size)
	if inHugePages(t, region) > 0 {
		t.Skip("the kernel gives huge pages unasked (/sys/kernel/mm/transparent_hugepage/enabled is not madvise)")
	}
	part := size/4*3 + 4096
	copied := append(span(region[size/8:2*size]), span(region[2*size:2*size+part])...)
	for _, empty := range [][]byte{region[:size/8], region[2*size+part:]} {
		if err := unix.Madvise(empty, unix.MADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
	}
	h := newHugePages(size, false)
	h.last, h.limit = time.Now().Add(-time.Hour), 50*time.Millisecond
	var asked [][2]uintptr
	h.collapse = func(at, n uintptr) unix.Errno {
		asked = append(asked, [2]uintptr{at, n})
		return 0
	}
	for range hugeDue * hugeAgain {
		h.use(copied)
	}
	first := [2]uintptr{uintptr(unsafe.Pointer(&region[0])), 2 * size}
	if want := [][2]uintptr{first, first}; !slices.Equal(asked, want) {
		t.Errorf("asked for %x, want %x (address, bytes)", asked, want)
	}
}

// Memory stays as it is where the system refuses: where a program wants small pages, and at addresses without memory.
func TestHugePagesRefused(t *testing.T) {
	size := hugePageSize()
	if size == 0 {
		t.Skip("the kernel has no transparent huge pages (/sys/kernel/mm/transparent_hugepage)")
	}
	region := hugeRegion(t, 2, size)
	if err := unix.Madvise(region, unix.MADV_NOHUGEPAGE); err != nil {
		t.Fatal(err)
	}
	before := inHugePages(t, region)
	h := newHugePages(size, false)
	h.last, h.limit = time.Now().Add(-time.Hour), 50*time.Millisecond
	for range hugeDue {
		h.use(append(span(region), transport.Span{Addr: uintptr(unsafe.Pointer(&region[0])) + 2*size, Bytes: size}))
	}
	if n := inHugePages(t, region); n != before {
		t.Errorf("%d bytes are in huge pages, %d before", n, before)
	}
	var none hugePages
	none.use(span(region))
}

// A rank without Config.HugePages does not ask.
func TestHugePagesAreOptional(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		nets := openWorld(t, 2, func(c *Config) { c.HugePages = wanted && c.Rank == 1 })
		lanes := openLanes(t, nets, 0, []int{0, 1})
		for m, l := range lanes {
			want := uintptr(0)
			if wanted && m == 1 {
				want = hugePageSize()
			}
			if got := l.Shared.(*staging).huge.size; got != want {
				t.Errorf("wanted on rank 1: %v; rank %d has pages of %d, want %d", wanted, m, got, want)
			}
		}
	}
}
