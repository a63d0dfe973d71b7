//go:build !linux

package vitals

import "errors"

type thread struct{}

func openThread() (*thread, error) {
	return nil, errors.New("this system does not tell what a thread does")
}
func (*thread) close()      {}
func (*thread) does() doing { return other }
func (*thread) ran() uint64 { return 0 }

type interpreter struct{}

func newInterpreter(Python) (*interpreter, error) {
	return nil, errors.New("this system does not let a process read its own stacks")
}
func (*interpreter) stack() []Frame { return nil }

func scheduled() (running, starved uint64) { return 0, 0 }
func load(int) (l traffic, ok bool)        { return l, false }
func peer(int) string                      { return "" }
