package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/elastic"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

const (
	proofTimeout = 10 * time.Second // for a connection to prove the job's secret
	writeTimeout = 10 * time.Second // for a worker to take a message
	// maxStrangers is the most unproved connections at a time.
	maxStrangers = 256
	// maxQueue is the most frames that may wait to be sent to one worker.
	maxQueue = 64
)

// keepAlive configures the probes that notice the loss of a worker's host.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// Serve accepts workers' connections on l until l is closed, and returns when all of them have ended.
func (d *Driver) Serve(l net.Listener) {
	var attended sync.WaitGroup
	defer attended.Wait()
	strangers := make(chan struct{}, maxStrangers)
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// For instance, descriptors have run out; the pause keeps the loop from spinning.
			select {
			case <-time.After(20 * time.Millisecond):
			case <-d.done:
			}
			continue
		}
		select {
		case strangers <- struct{}{}:
		default:
			c.Close() // a worker tries again; a crowd of strangers has to wait
			continue
		}
		attended.Go(func() {
			proved, hello, err := d.prove(c)
			<-strangers
			if err == nil {
				if text := d.strange(hello); text != "" {
					d.turnAway(proved, text)
				} else {
					d.attend(proved, hello)
				}
			}
			c.Close()
		})
	}
}

// prove checks that a connection is a worker's, and begins TLS if the worker wants it. Use proved instead of c.
func (d *Driver) prove(c net.Conn) (proved net.Conn, hello elastic.Hello, err error) {
	c.SetDeadline(time.Now().Add(proofTimeout))
	raw, err := auth.Accept(c, d.o.Key)
	if err != nil {
		return nil, hello, err
	}
	if t, ok := c.(*net.TCPConn); ok {
		t.SetKeepAliveConfig(keepAlive)
	}
	if err := json.Unmarshal(raw, &hello); err != nil {
		return nil, hello, err
	}
	proved = c
	if hello.TLS {
		if proved, err = d.o.Certificates.Seal(c, d.o.Key, false); err != nil {
			if errors.Is(err, auth.ErrCertificate) {
				d.post(func() { d.o.Say("worker %d at %v: %v", hello.Worker, c.RemoteAddr(), err) })
			}
			return nil, hello, err
		}
	}
	c.SetDeadline(time.Time{})
	return proved, hello, nil
}

// strange says why a worker of another build, or one without TLS, cannot take part; empty if it can.
func (d *Driver) strange(h elastic.Hello) string {
	plain := d.o.Certificates.Plain()
	switch {
	case plain != nil && !h.TLS:
		return fmt.Sprintf("worker %d: %v", h.Worker, plain)
	case h.Protocol != elastic.Protocol:
		return fmt.Sprintf("worker %d speaks protocol version %d, the launcher %d: install the same gorovod "+
			"everywhere", h.Worker, h.Protocol, elastic.Protocol)
	case h.Shape != elastic.Shape():
		return fmt.Sprintf("worker %d has another build of gorovod, whose messages differ (%.16s, the launcher's %s): "+
			"install the same gorovod everywhere", h.Worker, h.Shape, elastic.Shape())
	}
	return ""
}

// turnAway gives a worker that asks for a place the reason why it gets none. It returns once the worker has ended the
// connection, or after proofTimeout.
func (d *Driver) turnAway(c net.Conn, text string) {
	d.post(func() { d.o.Say("%s", text) })
	c.SetDeadline(time.Now().Add(proofTimeout))
	if _, err := elastic.Decode(c); err != nil {
		return
	}
	frame, err := elastic.Encode(elastic.Message{Type: elastic.TypeDismiss, Text: text})
	if err != nil {
		return
	}
	if _, err := c.Write(frame); err == nil {
		io.Copy(io.Discard, c) // if bytes stayed unread, the kernel would drop the answer
	}
}

// conn is one worker's connection.
type conn struct {
	net.Conn
	queue chan []byte // for deliver; if it is full, the connection ends
	once  sync.Once
	gone  chan struct{}
}

func (c *conn) close() {
	c.once.Do(func() {
		close(c.gone)
		c.Conn.Close()
	})
}

// deliver is the goroutine that writes to the worker, so that the driver never waits for it.
func (c *conn) deliver() {
	for {
		select {
		case frame := <-c.queue:
			c.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := c.Write(frame); err != nil {
				c.close()
				return
			}
		case <-c.gone:
			return
		}
	}
}

// attend serves a proved connection to its end.
func (d *Driver) attend(raw net.Conn, hello elastic.Hello) {
	c := &conn{Conn: raw, queue: make(chan []byte, maxQueue), gone: make(chan struct{})}
	go c.deliver()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // ends the connection when the job ends
		select {
		case <-d.done:
			c.close()
		case <-stop:
		}
	}()
	d.post(func() {
		w := d.workers[hello.Worker]
		if w == nil || w.conn != nil && w.conn != c {
			c.close() // no worker of this job has this number
			return
		}
		w.conn = c
	})
	for {
		m, err := elastic.Decode(c)
		if err != nil {
			break
		}
		d.post(func() { d.hear(hello.Worker, c, m) })
	}
	c.close()
	d.post(func() { d.parted(hello.Worker, c) })
}

// hear handles a worker's message.
func (d *Driver) hear(id int, c *conn, m elastic.Message) {
	w := d.workers[id]
	if w == nil || w.conn != c {
		return
	}
	if d.stopping {
		d.tell(id, elastic.Message{Type: elastic.TypeDismiss, Text: d.reason})
		return
	}
	switch m.Type {
	case elastic.TypeReady:
		if m.Registration == nil {
			c.close()
			return
		}
		w.number = m.Number
		d.apart(w, m.Registration.Trouble)
		d.o.Debug("worker %d is ready with commit %d", id, m.Registration.Commit)
		d.do(d.state.Ready(d.now(), id, *m.Registration))
	case elastic.TypePong:
		d.state.Heard(d.now(), id)
	case elastic.TypeSaved:
		d.state.Saved(m.Commit)
	default:
		c.close()
	}
}

// apart tells the other members of a worker's epoch that the worker could not join, and why. Without that, members that
// have joined would wait for it.
func (d *Driver) apart(w *worker, trouble string) {
	if trouble != "" && d.epoch != nil && w.epoch == d.epoch.number {
		d.o.Debug("worker %d could not join epoch %d: %s", w.id, w.epoch, trouble)
		d.epoch.server.Died(rendezvous.Death{Rank: w.rank, Host: w.host, PID: w.pid, Apart: trouble})
	}
}

// parted handles the end of a connection. The worker's process may have ended, too; the report of that end says more,
// so parted waits lossTime for it.
func (d *Driver) parted(id int, c *conn) {
	w := d.workers[id]
	if w == nil || w.conn != c {
		return
	}
	w.conn = nil
	time.AfterFunc(lossTime, func() {
		d.post(func() {
			if d.workers[id] == w && w.conn == nil && !w.ended && !w.leaving {
				d.do(d.state.Unreachable(d.now(), id))
			}
		})
	})
}

// tell sends a message to a worker. It never blocks: it closes the connection of a worker that does not read.
func (d *Driver) tell(id int, m elastic.Message) {
	w := d.workers[id]
	if w == nil || w.conn == nil {
		return
	}
	frame, err := elastic.Encode(m)
	if err != nil {
		d.o.Say("worker %d: %v", id, err)
		w.conn.close()
		return
	}
	select {
	case w.conn.queue <- frame:
	default:
		w.conn.close()
	}
}
