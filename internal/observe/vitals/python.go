package vitals

import (
	"errors"
	"slices"
	"sync/atomic"
)

// Python says where this process's interpreter keeps the stack of one of its threads. Addresses are of objects that
// live as long as the interpreter.
type Python struct {
	Version [2]int  // such as 3, 12
	Thread  uintptr // the thread's PyThreadState
	Ident   uintptr // its number, as threading.get_ident returns it
	// The addresses of these types, by which an object is known.
	Code, Str, Bytes uintptr
}

// Frame is a function that a Python thread is in.
type Frame struct {
	File string // the last two parts of its path
	Func string // with its class, from Python 3.11 on
	Line int
}

// python is what Offer was told, nil before.
var python atomic.Pointer[interpreter]

// Offer makes a Python thread's stack known to Stack. The thread itself calls it, from a function that innermost
// describes. An error says that this interpreter's stacks cannot be read.
func Offer(p Python, innermost Frame) error {
	python.Store(nil)
	i, err := newInterpreter(p)
	if err != nil {
		return err
	}
	frames := i.stack()
	if len(frames) == 0 || frames[len(frames)-1] != innermost {
		return errors.New("this build of Python keeps its stacks in another way")
	}
	python.Store(i)
	return nil
}

// Stack is the stack of the thread that was offered, the outermost function first, nil where it is not known. It takes
// no lock of the interpreter and cannot fault. While the thread runs, the stack can be torn: what is shown was in it at
// some moment, or is left out.
func Stack() []Frame {
	i := python.Load()
	if i == nil {
		return nil
	}
	return i.stack()
}

// mostFrames is how deep a stack is followed, mostOuter and mostInner which of its functions are told of.
const (
	mostFrames = 400
	mostOuter  = 3
	mostInner  = 4
)

// told are the frames of a stack, innermost first, that Stack tells of, outermost first.
func told[F any](inward []F) []F {
	slices.Reverse(inward)
	if len(inward) <= mostOuter+mostInner {
		return inward
	}
	return append(inward[:mostOuter], inward[len(inward)-mostInner:]...)
}
