package hvd

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"time"

	"github.com/gorovod/gorovod/internal/elastic"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/joining/process"
)

var (
	// ErrHostsUpdated: processes wait to join the elastic job, or have to leave it. The
	// training function returns this error, and RunElastic calls it again in the next world.
	ErrHostsUpdated = errors.New("the hosts of the elastic job have changed")
	// ErrDismissed: the elastic job has no place for this process any more. It should
	// end with code 0.
	ErrDismissed = elastic.ErrDismissed
	// ErrLauncherLost: the launcher of the elastic job is gone. The job cannot go on.
	ErrLauncherLost = elastic.ErrLost
)

// State is the state of a training, which RunElastic saves and restores. If it also is an encoding.BinaryMarshaler and
// BinaryUnmarshaler, and GOROVOD_CHECKPOINT_DIR is set, rank 0 writes commits to that directory. If the job is started
// again, it goes on from the newest commit.
type State interface {
	// Save remembers the state, in this process's memory.
	Save()
	// Restore puts the state back to the last Save.
	Restore()
	// Sync gives all processes the state of rank 0, by Broadcast for instance, and saves it.
	Sync(ctx context.Context) error
}

// HostListener is a State that is told at once when the hosts change, so that it can commit early, for example.
type HostListener interface {
	// OnHostsUpdated runs on another goroutine than train, on every process that the launcher
	// has told, before Check returns ErrHostsUpdated for this change anywhere. It must not block.
	OnHostsUpdated(at time.Time, update HostUpdate)
}

// HostUpdate says how the hosts of an elastic job have changed.
type HostUpdate int

// The kinds of HostUpdate.
const (
	HostsRemoved HostUpdate = HostUpdate(membership.Removed)
	HostsAdded   HostUpdate = HostUpdate(membership.Added)
	HostsMixed   HostUpdate = HostsRemoved | HostsAdded
)

func (u HostUpdate) String() string { return membership.HostUpdate(u).String() }

// Elastic is the training function's side of RunElastic: commits and checks.
type Elastic struct {
	state   State
	commits int64
	stamp   int64
	news    news
}

// RunElastic calls train again and again, so that a program goes on when processes of its job die or come. Call Init
// first, and start the program with horovodrun -np 4 --min-np 2. Before the first call all processes get the state of
// rank 0. It ends when train returns nil, or an error other than these:
//
//   - ErrInternal, such as the death of a process: RunElastic restores the last commit. The processes that are left
//     form the next world. In it the process with the newest commit is rank 0, and all get its state.
//   - ErrHostsUpdated: the state stays as it is, and the processes form the next world.
//
// So train must be able to go on from every state that it has committed. Ranks and sizes may differ at each call. A
// process set keeps those of its ranks that exist: call AddProcessSet at the beginning of train to bind it to the
// world of this call. It does not wait if the set is registered already. The error is ErrDismissed if this process has
// to leave; that is no failure.
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
// The example is the whole program. RunElastic may call Restore before the first Sync, so call Save once before
// RunElastic.
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
				state.Restore() // the state of the commit with the last number
			}
			return errors.Join(again, e.write(true))
		}
		sync = sync || process.NeedsSync()
	}
}

// reset leaves the world for the next one, and forgets the news of the last one.
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

// Commit saves the state, writes it to the disk if State says so, and then checks as Check does. All processes call
// it at the same step. Each commit copies the state, so commit every few steps. If the disk is full, or the
// directory has worked for this process before, a failed write is a warning and no error.
func (e *Elastic) Commit(ctx context.Context) error {
	e.state.Save()
	e.commits++
	e.note()
	if err := e.write(false); err != nil {
		return err
	}
	return e.Check(ctx)
}

// write writes the last commit to the disk, if this process has that duty and the commit is due. The final commit is
// always due.
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

// read reads the state from the disk, on rank 0, if the job has no commit yet.
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

// Check returns ErrHostsUpdated on all processes if the launcher has told rank 0 that hosts
// have changed. All processes call it at the same step, and it blocks until they have.
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
		process.Intact() // the processes that are left have the state already
	}
	return fmt.Errorf("%w: %v at %s", ErrHostsUpdated, membership.HostUpdate(news[1]),
		time.Unix(news[0], 0).Format(time.TimeOnly))
}
