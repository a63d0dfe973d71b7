package hvd

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"time"

	"github.com/gorovod/gorovod/internal/elastic"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/process"
)

var (
	// ErrHostsUpdated: processes wait to join the elastic job, or are to leave it. A
	// training function returns it, and is called again when the job has been formed anew.
	ErrHostsUpdated = errors.New("the hosts of the elastic job have changed")
	// ErrDismissed: there is no place for this process in the elastic job any more. It
	// should end, with code 0.
	ErrDismissed = elastic.ErrDismissed
	// ErrLauncherLost: the launcher of the elastic job is gone, so that it cannot go on.
	ErrLauncherLost = elastic.ErrLost
)

// State is what a training function changes, and what must not be lost. If it is an
// encoding.BinaryMarshaler and BinaryUnmarshaler, too, rank 0 writes commits to
// GOROVOD_CHECKPOINT_DIR, where that is set, and a job that is started again goes on from the newest.
type State interface {
	// Save remembers the state, in this process's memory.
	Save()
	// Restore makes the state what it was at the last Save, or at first.
	Restore()
	// Sync makes the state that of rank 0, on all processes, by Broadcast for instance, and saves it.
	Sync(ctx context.Context) error
}

// HostListener is a State that wants to hear of changes of the hosts when they are known, to commit early, say.
type HostListener interface {
	// OnHostsUpdated is called on another goroutine than train, on every process that the launcher
	// has told, before Check of any returns ErrHostsUpdated for this change. It must not block.
	OnHostsUpdated(at time.Time, update HostUpdate)
}

// HostUpdate says what has become of the hosts of an elastic job.
type HostUpdate int

// The kinds of HostUpdate.
const (
	HostsRemoved HostUpdate = HostUpdate(membership.Removed)
	HostsAdded   HostUpdate = HostUpdate(membership.Added)
	HostsMixed   HostUpdate = HostsRemoved | HostsAdded
)

func (u HostUpdate) String() string { return membership.HostUpdate(u).String() }

// Elastic is what a training function of RunElastic is given.
type Elastic struct {
	state   State
	commits int64
	stamp   int64
	news    news
}

// RunElastic is for programs that go on when processes of their job die or come. It calls train, again and again, until
// it returns nil or an error that another call cannot mend: with the state of rank 0 everywhere, in a job that
// Init has joined. After an ErrInternal, such as the death of a process, the state
// is restored as it was committed last, and the job is formed anew of those who are
// left, in which the process with the newest commit is rank 0. After
// an ErrHostsUpdated the state stays as it is. train must be able to go on from any
// state that was committed. Start the program with horovodrun -np 4 --min-np 2.
//
// Ranks and sizes may be others at each call. Process sets keep their ranks, as far as there
// are any: AddProcessSet, at the beginning of train, binds a set to the world of this call, without
// waiting where it is there already. The error is ErrDismissed where this
// process is to leave: that is no failure.
//
// A State of one step and one tensor:
//
//	type state struct {
//		Step      int64
//		Weights   []float32
//		committed *state
//	}
//
//	func (s *state) Save()    { s.committed = &state{Step: s.Step, Weights: slices.Clone(s.Weights)} }
//	func (s *state) Restore() { s.Step, s.Weights = s.committed.Step, slices.Clone(s.committed.Weights) }
//
//	func (s *state) Sync(ctx context.Context) error {
//		step := []int64{s.Step}
//		if err := hvd.Broadcast(ctx, "step", step, 0); err != nil {
//			return err
//		}
//		s.Step = step[0]
//		if err := hvd.Broadcast(ctx, "weights", s.Weights, 0); err != nil {
//			return err
//		}
//		s.Save()
//		return nil
//	}
//
// The example has it whole. Restore may come before the first Sync, so Save is called once
// before RunElastic.
func RunElastic(ctx context.Context, state State, train func(ctx context.Context, e *Elastic) error) error {
	e := &Elastic{state: state, commits: -1}
	defer e.listen(ctx)()
	sync := true
	for {
		err := e.attempt(ctx, sync, train)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case errors.Is(err, ErrHostsUpdated):
			sync = false
		case errors.Is(err, ErrInternal):
			state.Restore()
			sync = true
		default:
			return err
		}
		if again := e.reset(ctx); again != nil {
			if process.Elastic() != process.Abandoned {
				return again
			}
			if errors.Is(err, ErrHostsUpdated) {
				state.Restore() // what has a number
			}
			return errors.Join(again, e.write(true))
		}
		sync = sync || process.NeedsSync()
	}
}

// reset leaves the world for the next one. News of the next one is heard afterwards, and what was
// heard of the last one is forgotten.
func (e *Elastic) reset(ctx context.Context) error {
	e.news.mu.Lock()
	defer e.news.mu.Unlock()
	e.news.stamp, e.news.update = 0, membership.NoUpdate
	Shutdown()
	return InitContext(ctx)
}

// attempt is one call of train.
func (e *Elastic) attempt(ctx context.Context, sync bool, train func(ctx context.Context, e *Elastic) error) error {
	if sync {
		if err := e.read(); err != nil {
			return err
		}
		if err := e.state.Sync(ctx); err != nil {
			return err
		}
		number := []int64{e.commits}
		if err := Broadcast(ctx, "gorovod.elastic.commit", number, 0); err != nil {
			return err
		}
		e.commits = number[0]
		e.note()
	}
	return train(ctx, e)
}

func (e *Elastic) note() {
	if e.commits >= 0 {
		process.Committed(e.commits)
	}
}

// Commit saves the state, writes it to the disk where State says so, and then checks as Check does. All processes call
// it, at the same place. Each costs a copy of the state, so not every step needs one.
func (e *Elastic) Commit(ctx context.Context) error {
	e.state.Save()
	e.commits++
	e.note()
	if err := e.write(false); err != nil {
		return err
	}
	return e.Check(ctx)
}

// write writes the last commit to the disk, if that is up to this process and, but for the
// final one, the commit's turn.
func (e *Elastic) write(final bool) error {
	m, ok := e.state.(encoding.BinaryMarshaler)
	if !ok || e.commits < 0 || !process.CheckpointDue(e.commits, final) {
		return nil
	}
	data, err := m.MarshalBinary()
	if err != nil {
		return fmt.Errorf("checkpoint of commit %d: %w", e.commits, err)
	}
	return process.SaveCheckpoint(e.commits, data)
}

// read takes the state from the disk, on rank 0 of a job in which nobody has committed.
func (e *Elastic) read() error {
	m, ok := e.state.(encoding.BinaryUnmarshaler)
	if !ok || e.commits >= 0 || !process.CheckpointDue(0, true) {
		return nil
	}
	number, data, err := process.LoadCheckpoint()
	if err != nil || number < 0 {
		return err
	}
	if err := m.UnmarshalBinary(data); err != nil {
		return fmt.Errorf("the checkpoint of commit %d: %w", number, err)
	}
	e.state.Save()
	e.commits = number
	return nil
}

// Commits is the number of the last commit, from 0; -1 if there was none.
func (e *Elastic) Commits() int64 { return e.commits }

// Check returns ErrHostsUpdated, on all processes, if rank 0 has heard that hosts have
// changed. All processes call it, at the same place; it blocks until they have.
func (e *Elastic) Check(ctx context.Context) error {
	news := []int64{0, 0}
	if stamp, update := e.news.take(); update != membership.NoUpdate && stamp > e.stamp {
		news = []int64{stamp, int64(update)}
	}
	if err := Broadcast(ctx, "gorovod.elastic.hosts", news, 0); err != nil {
		return err
	}
	if news[0] == 0 {
		return nil
	}
	e.stamp = news[0]
	if membership.HostUpdate(news[1]) == membership.Removed {
		process.Intact() // who is left has the state already
	}
	return fmt.Errorf("%w: %v at %s", ErrHostsUpdated, membership.HostUpdate(news[1]),
		time.Unix(news[0], 0).Format(time.TimeOnly))
}
