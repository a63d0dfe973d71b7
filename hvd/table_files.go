package hvd

// Save writes the table's rows to a directory, with the optimizer's numbers and the counters. All processes of the
// table's set call it with the same directory, which all their hosts share, and it blocks until the disk has all.
//
// A save is whole or absent: one that the directory has already stays until the new one is whole. It is made between
// two calls of Push: Save, Load, Pull and Push of a Table run one after the other. If a file cannot be written on one
// process, all of them get ErrStorage, with the process and the reason; if the directories differ, ErrMismatch.
func (t *Table) Save(directory string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return wrap(t.part.Save(directory))
}

// Load replaces the table's rows by those of a save. All processes of the table's set call it with the same directory,
// and each reads the rows that are its own. The save may come from any number of processes. The table must have been
// made with the same options; its learning rate and rules of eviction may differ, and Keys may be larger. Otherwise the
// error is ErrInvalidArgument. If a file is missing or damaged, it is ErrStorage. In both cases the table stays as it
// is.
func (t *Table) Load(directory string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return wrap(t.part.Load(directory))
}
