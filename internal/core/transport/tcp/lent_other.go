//go:build !linux

package tcp

import "errors"

// On this system all connections are held: Network.edges and keeper are nil.

var errNotLent = errors.New("connections are not lent on this system")

type scatter struct{}

func (c *conn) transmit(*scatter, []byte, []byte) (int, error) { return 0, errNotLent }
func (c *conn) receive(*scatter, []byte, []byte) (int, error)  { return 0, errNotLent }
func (c *conn) await(int) bool                                 { return false }
func (c *conn) awaitAny()                                      {}

type edges struct{}

func (*edges) watch(int, bool) error { return errNotLent }
func (*edges) unwatch(int)           {}
func (*edges) goOn()                 {}

func (*edges) note([]*dataIn, []*dataOut) {}

type keeper struct{}

func (*keeper) run()                           {}
func (*keeper) add(*conn, int) (uint64, error) { return 0, errNotLent }
func (*keeper) remove(uint64, int)             {}

func (n *Network) closeKeeper() {}

type writer struct{}

func newWriter(*conn) *writer { return nil }

func (*writer) write(head, body []byte) int { return 0 }
