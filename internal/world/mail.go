package world

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"

	"github.com/gorovod/gorovod/internal/transport/p2p"
)

// Send sends a message to another rank, apart from the lanes; see p2p.Mail.
func (w *World) Send(ctx context.Context, to int, tag uint32, p []byte) error {
	return w.mail.Send(ctx, to, tag, p)
}

// Recv receives a message from another rank; see p2p.Mail.
func (w *World) Recv(ctx context.Context, from int, tag uint32, p []byte) (int, error) {
	return w.mail.Recv(ctx, from, tag, p)
}

// listen opens a listener on the address of this host by which the launcher is
// reached, so on loopback alone for a job on one host.
func (w *World) listen() (net.Listener, error) {
	host := "127.0.0.1"
	if w.session != nil {
		local, err := net.Dial("udp", w.Config.RendezvousAddr) // sends nothing: tells which address leads there
		if err != nil {
			return nil, err
		}
		host = local.LocalAddr().(*net.UDPAddr).IP.String()
		local.Close()
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

// openMail prepares the messages between ranks.
func (w *World) openMail(ctx context.Context, generation uint64, o Options) error {
	c := w.Config
	l, err := w.listen()
	if err != nil {
		return err
	}
	key := c.Key
	addrs := [][]byte{[]byte(l.Addr().String())}
	if w.session == nil {
		key = []byte(rand.Text()) // only this rank sends to itself
	} else if addrs, err = w.session.Exchange(ctx, "mail", addrs[0]); err != nil {
		l.Close()
		return err
	}
	w.mail, err = p2p.New(p2p.Config{Rank: c.Rank, Size: c.Size, Key: key, Generation: generation, Listener: l, Timeout: c.Timeout,
		Addrs: func(rank int) []string { return []string{string(addrs[rank])} }, TrackFD: o.TrackFD, Err: w.net.Err})
	if err != nil {
		return fmt.Errorf("messages between ranks: %w", err)
	}
	return nil
}
