//go:build !linux

package bench

import "errors"

// alarm needs futexes, which only Linux has.
type alarm struct{}

var errNoFutex = errors.New("the wake-up is measured with Linux's futexes")

func newAlarm(string) (*alarm, error) { return nil, errNoFutex }

func (*alarm) ring() error           { return errNoFutex }
func (*alarm) sleep() (int64, error) { return 0, errNoFutex }
