package audience

import "golang.org/x/sys/unix"

// adviseHuge asks for large pages.
func adviseHuge(memory []byte) { unix.Madvise(memory, unix.MADV_HUGEPAGE) }
