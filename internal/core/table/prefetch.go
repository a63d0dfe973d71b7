package table

// lineBytes is how much memory a processor reads at a time.
const lineBytes = 64

// lines are addresses that are to be read soon. They may be of memory that has been freed since.
type lines [block]uintptr
