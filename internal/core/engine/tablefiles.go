package engine

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gorovod/gorovod/internal/core/table"
	"github.com/gorovod/gorovod/internal/core/tablefile"
)

// Saves and loads of tables. All members of the process set call them, and in each step all learn how the others fare:
//
//	Save  agree     which table, which directory
//	      write     each member writes the rows that it has
//	      commit    member 0 writes the manifest, in which all members' files are
//	Load  agree     which table, which directory, which save, and that the save fits the table
//	      verify    each member reads the rows that it will have, and checks them
//	      replace   each member reads them again, in place of those that it has
//
// Between two steps stands a gather. A refusal of one member is an error of all, and names it. Until the last step
// nothing has changed.

// filesGather is the name of all gathers of saves and loads, so that ranks with different ones meet, and say so.
const filesGather = "table.files"

// filesWord is what a member says in a step.
type filesWord struct {
	Call    string // of agree: what the member does, in words
	ID      uint64 // of agree, for a save; member 0's counts
	Digest  string // of agree, for a load
	Updates uint32 // of agree, for a save
	File    *tablefile.File
	Refused string // why the member cannot go on; empty: it can
	Code    Code   // of Refused
}

func (w *filesWord) refuse(c Code, err error) {
	if w.Refused == "" {
		w.Refused, w.Code = err.Error(), c
	}
}

// files is one call of Save or Load.
type files struct {
	*Table
	lane *lane
	dir  string
	done string // "saved" or "loaded"
	call string // filesWord.Call
}

var errNoName = errors.New("the directory has no name")

func (t *Table) files(dir, done, call string) (*files, *Error) {
	f := &files{Table: t, dir: dir, done: done}
	var failed *Error
	if f.lane, failed = t.engine.lane(&Op{Set: t.set}); failed != nil {
		return nil, failed
	}
	if f.lane.tableOf(t.number) != t.Table {
		return nil, errorf(Aborted, "table %q: its process set has been removed.", t.Options().Name)
	}
	if abs, err := filepath.Abs(dir); err == nil && dir != "" {
		f.dir = abs
	}
	f.call = fmt.Sprintf(call, t.Options().Name, f.dir)
	return f, nil
}

// Save writes the table's rows to a directory that all members name, and that all their hosts share. The directory is
// made if there is none. A save that it has already stays until the new one is whole. All members call it, and it
// blocks until the save is on the disk. Pulls may be in progress: rows that they make may be in the save. A push that
// changes rows meanwhile is an error on all members.
func (t *Table) Save(dir string) *Error {
	f, failed := t.files(dir, "saved", "saves table %q to %q")
	if failed != nil {
		return failed
	}
	f.lane.filesCalls.Lock()
	defer f.lane.filesCalls.Unlock()
	return f.save()
}

// Load replaces the table's rows by those of a save, of the same table on any number of ranks. All members call it with
// one directory, and it blocks until they have loaded their parts. If the save is damaged, or of another table, the
// table stays as it is. No pull or push of the table may be in progress.
func (t *Table) Load(dir string) *Error {
	f, failed := t.files(dir, "loaded", "loads table %q from %q")
	if failed != nil {
		return failed
	}
	f.lane.filesCalls.Lock()
	defer f.lane.filesCalls.Unlock()
	return f.load()
}

func (f *files) save() *Error {
	progress, amid := f.Progress()
	own := filesWord{Call: f.call, ID: newID(), Updates: progress.Updates}
	if amid {
		own.refuse(PreconditionError, table.ErrAmid)
	} else if f.dir == "" {
		own.refuse(InvalidArgument, errNoName)
	}
	all, failed := f.agree(own)
	if failed != nil {
		return failed
	}
	if all, failed = f.write(tablefile.FileName(all[0].ID, f.lane.rank), progress); failed != nil {
		return failed
	}
	own = filesWord{}
	if f.lane.rank == 0 {
		m := &tablefile.Manifest{Table: *f.Options(), Progress: progress}
		for i := range all {
			m.Files = append(m.Files, *all[i].File)
		}
		if err := tablefile.Commit(f.dir, m); err != nil {
			own.refuse(StorageError, fmt.Errorf("%w; all hosts must share this directory", err))
		}
	}
	// The files stay, whatever the others say now: the manifest may be there.
	_, failed = f.step(own)
	return failed
}

// write writes this member's file, and returns what all members have written.
func (f *files) write(name string, progress table.Progress) ([]filesWord, *Error) {
	var own filesWord
	err := os.MkdirAll(f.dir, 0o777)
	if err == nil {
		own.File, err = tablefile.WriteRows(f.dir, name, f.Table.Table, f.owned(), f.failure)
	}
	if err != nil {
		own.refuse(StorageError, err)
	}
	if now, amid := f.Progress(); amid || now.Updates != progress.Updates {
		own.refuse(PreconditionError, errors.New("a push has changed rows meanwhile; save between two pushes"))
	}
	all, failed := f.gather(own)
	if failed != nil {
		return nil, failed // the others may not know, and go on
	}
	if failed = f.refusal(all); failed != nil {
		os.Remove(filepath.Join(f.dir, name))
		return nil, failed
	}
	for m := range all {
		if all[m].File == nil {
			return nil, errorf(UnknownError, "protocol error: table %q: %s has written no file", f.Options().Name,
				f.engine.opts.Describe(f.lane.members[m]))
		}
	}
	return all, nil
}

func (f *files) load() *Error {
	own := filesWord{Call: f.call}
	var wanted []int
	save, err := tablefile.Open(f.dir)
	if f.dir == "" {
		own.refuse(InvalidArgument, errNoName)
	} else if err != nil {
		own.refuse(StorageError, err)
	} else if err := save.Fits(f.Options()); err != nil {
		own.refuse(InvalidArgument, err)
	} else {
		own.Digest, wanted = save.Digest, f.owned()
	}
	if _, failed := f.agree(own); failed != nil {
		return failed
	}
	own = filesWord{}
	if err := save.Read(wanted, nil, f.failure); err != nil {
		own.refuse(StorageError, err)
	} else if _, amid := f.Progress(); amid {
		own.refuse(PreconditionError, table.ErrAmid)
	}
	if _, failed := f.step(own); failed != nil {
		return failed
	}
	own = filesWord{}
	if err = f.Replace(save.Progress); err == nil {
		err = save.Read(wanted, f.Table.Table, f.failure)
	}
	if err != nil {
		own.refuse(StorageError, fmt.Errorf("%w; the table has no rows now", err))
	}
	_, failed := f.step(own)
	if failed != nil {
		_ = f.Replace(f.Options().Begun()) // the only error is that the table has been closed
	}
	return failed
}

// owned lists the slots of this rank.
func (f *files) owned() []int { return f.owners.Owned(f.lane.rank) }

// failure is the job's, if it has failed.
func (f *files) failure() error {
	if e := f.engine.failure.Load(); e != nil {
		return e
	}
	return nil
}

// agree is the first step. It compares what the members want.
func (f *files) agree(own filesWord) ([]filesWord, *Error) {
	all, failed := f.gather(own)
	if failed != nil {
		return nil, failed
	}
	ranks := f.lane.members
	for m := range all {
		if all[m].Call != all[0].Call {
			return nil, errorf(PreconditionError, "Mismatched files of tables: rank %d %s, rank %d %s.", ranks[0],
				all[0].Call, ranks[m], all[m].Call)
		}
	}
	if failed := f.refusal(all); failed != nil {
		return nil, failed
	}
	for m := range all {
		if all[m].Updates != all[0].Updates {
			return nil, errorf(PreconditionError, "table %q cannot be %s: rank %d has had %d pushes, rank %d has had "+
				"%d; save between two pushes.", f.Options().Name, f.done, ranks[0], all[0].Updates, ranks[m],
				all[m].Updates)
		}
		if all[m].Digest != all[0].Digest {
			return nil, errorf(StorageError, "table %q cannot be %s: %s and %s find different saves in %s; all hosts "+
				"must share this directory.", f.Options().Name, f.done, f.engine.opts.Describe(ranks[0]),
				f.engine.opts.Describe(ranks[m]), f.dir)
		}
	}
	return all, nil
}

// gather gathers what the members say. It fails if a rank has joined, or if the job has failed.
func (f *files) gather(own filesWord) ([]filesWord, *Error) {
	all, failed := gather(f.lane, filesGather, own)
	if failed != nil && failed.Code == PreconditionError {
		failed = errorf(failed.Code, "table %q cannot be %s: %s", f.Options().Name, f.done, failed.Reason)
	}
	return all, failed
}

// step gathers what the members say. If some of them refuse, that is an error that names the first one.
func (f *files) step(own filesWord) ([]filesWord, *Error) {
	all, failed := f.gather(own)
	if failed == nil {
		failed = f.refusal(all)
	}
	return all, failed
}

func (f *files) refusal(all []filesWord) *Error {
	for m := range all {
		if its := &all[m]; its.Refused != "" {
			return errorf(its.Code, "table %q cannot be %s: %s: %s.", f.Options().Name, f.done,
				f.engine.opts.Describe(f.lane.members[m]), its.Refused)
		}
	}
	return nil
}

// newID makes the number of a save.
func newID() uint64 {
	var p [8]byte
	_, _ = rand.Read(p[:]) // it never fails
	return binary.NativeEndian.Uint64(p[:])
}
