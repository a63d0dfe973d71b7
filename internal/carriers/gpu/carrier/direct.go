package carrier

import (
	"github.com/gorovod/gorovod/internal/carriers/nccl"
	"github.com/gorovod/gorovod/internal/core/collective"
)

// direct is an operation that NCCL does.
type direct struct {
	lane    *Lane
	program nccl.Program
	running bool
	issued  bool
	polls   int
}

// askEvery is the number of polls for an operation's end after which NCCL is asked for a failure.
const askEvery = 64

// Start begins an operation for which Carries has returned true.
func (l *Lane) Start(a *collective.Arguments) collective.Op {
	l.devices.watch.enter()
	defer l.devices.watch.leave()
	o := &l.direct
	*o = direct{lane: l, program: o.program, running: true}
	l.queue()
	o.program.Reset(l.stream)
	if a.Stage != nil {
		a.Stage(collective.Moving)
	}
	if err := l.write(&o.program, a); err != nil {
		return failing{l.failed("an operation of NCCL", err)}
	}
	return o
}

// Advance waits for the operation's turn, puts it into the stream, then waits for its end.
func (o *direct) Advance() (bool, error) {
	l := o.lane
	l.devices.watch.enter()
	defer l.devices.watch.leave()
	if !o.issued {
		if comes, err := l.comes(); err != nil || !comes {
			return false, err
		}
		issued, err := l.issue(&o.program)
		if err != nil || !issued {
			return false, l.because(err)
		}
		o.issued = true
		l.moved++
		if l.devices.options.Async {
			o.running = false
			l.devices.watch.add(l)
			return true, nil
		}
	}
	reached, err := l.place.context.Reached(l.done)
	if err != nil {
		return false, l.failed("an operation of NCCL", err)
	}
	if !reached {
		if o.polls++; o.polls%askEvery == 0 {
			_, err = l.comm.Ready()
		}
		return false, l.because(err)
	}
	if cause := l.devices.aborted(); cause != nil {
		return false, cause // an abort ends the operation, too, and its result may be wrong
	}
	o.running = false
	l.devices.order.ended(l)
	l.moved++
	return true, nil
}

// because returns the error for a failure of the communicator. After an abort that is the abort's cause.
func (l *Lane) because(err error) error {
	if err == nil {
		return nil
	}
	if cause := l.devices.aborted(); cause != nil {
		return cause
	}
	return l.failed("an operation of NCCL", err)
}
