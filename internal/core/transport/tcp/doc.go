// Package tcp is the transport between hosts. Every (lane, stream, sender, receiver) has a connection of its own, which
// the sender makes when it first sends. The stream control carries the frames of the lane's board, the data streams
// carry the messages of its Comm. Nothing is multiplexed, so the kernel does the flow control and no lane ever waits
// for another.
//
//	driver ── Send, Sent ──▶ outStream ══ socket ══▶ inStream ◀── Recv, Received ── driver
//	board ── frame ──▶ controlOut ══ socket ══▶ controlIn ──▶ treeboard.Receive ◀── driver, keeper
//
// Both ends prove that they belong to the job (package link) before they read anything else. A connection carries
// messages in one direction, from the rank that dialled it to the rank that accepted it. In the other direction, the
// silent one, at most one message travels, the last word: a goodbye or an abort. So an abort reaches a peer even if the
// data is stuck.
//
// # Who has a connection
//
// Every connection has a goroutine of its own at each end. While only plain messages travel, the goroutine lends the
// connection to the driver. That saves two changes of goroutine for each message.
//
//	          lend                          recall: the driver met what is no plain message,
//	     ┌────────────────────────▶ LENT    or the keeper saw the end or a last word
//	     │                           │ └─────────────────▶ RETURNING
//	     │      the lane closes, an  │                         │
//	   HELD     abort, Close         │                         │
//	   ▲ │ ▲                         ▼                         │
//	   │ │ └──────────────────── take back ◀───────────────────┘
//	   │ │                (once: it is not lent again)
//	made ▼
//	   CLOSED ◀── drop: both ends have said all; Close
//
//	state      who reads and writes            how                    may it block?   who is woken by the socket
//	HELD       its goroutine; others write     Read, Write, through   yes             Go's poller: the goroutine
//	           the last word                   Go's poller
//	LENT       the driver; the keeper too,     one system call at a   never           edges: a driver that sleeps;
//	           for board frames; run, once,    time, by descriptor,                   keeper: of what the driver
//	           what was posted before          with the half's lock                   does not deal with
//	RETURNING  a call that began while LENT    as LENT                never           -
//	           may still go on; none begins
//	CLOSED     nobody                          -                      -               -
//
// A connection that cannot be lent is HELD from start to end: under TLS, on other systems than Linux, and under a bell
// that is no transport.Alarm. Only its goroutine takes it back (half.takeBack). The goroutine waits for the half's lock
// first, so it never takes the connection during a system call of the driver or the keeper. Another goroutine that
// needs the connection HELD, to write a last word or to close it, recalls it and waits (conn.settle). Deadlines and the
// heartbeat (Beat) apply to a connection in any state.
//
// # The four halves that work
//
// A half is one end of a connection, in the direction in which its messages travel. The lock of a half guards its
// fields. The driver holds the lock during its system calls, too.
//
//	inStream    reads data        no connection: a posted part waits
//	                              LENT: the driver reads into the posted part when it polls
//	                              HELD: serve reads, and rings the driver when the part is full
//	outStream   writes data       no connection: a posted part waits, run dials
//	                              LENT: run writes what has been posted before (writeFirst), since
//	                              the driver may not poll soon; from then on the driver writes when
//	                              it posts and when it polls
//	                              HELD: run writes, and rings the driver
//	controlIn   reads frames      LENT: the driver takes them when it polls; the keeper where
//	                              nobody has polled for 2 ms (lookAway)
//	                              HELD: serve takes them, and calls Config.Wake
//	controlOut  writes frames     always HELD, and turn says who writes. ANYONES: whoever has made
//	                              frames writes them (flush), in one system call that does not
//	                              block. RUNS: run dials, and writes what the socket had no room
//	                              for; it may block
//
// The silent direction: at the end that dialled, watchSilent reads it (for data only while HELD; the keeper watches it
// while LENT). At the other end Abort or Close writes the last word.
//
// # Files
//
//	state.go                    the states of a connection, and all that may happen to it
//	lending.go                  the ways between its goroutine and the driver
//	held.go, reader.go          what may be done with it while HELD
//	lent_linux.go               what may be done with it while LENT: two system calls
//	keeper_linux.go, bell_linux.go   who watches it while LENT
//	datain.go, dataout.go       what is posted; beside each: _lent (the driver), _held (the goroutine)
//	controlin.go                frames that come; _lent (the driver, the keeper), _held (the goroutine)
//	controlout.go               frames that go; _flush (whoever makes them), _run (the goroutine)
//	dial.go, accept.go          before: a connection is made, proved, and given to its half
//	closelane.go, close.go, abort.go, lost.go   after: each way in which it ends
//
// # Questions
//
//   - Who owns this connection now? See conn.custody and the table above. state.go has all events.
//   - What may block? See the table in DESIGN.md. In this package only the goroutines of connections, Close and
//     CloseLane block, each with a bound. The driver calls Close and CloseLane, and nothing else that blocks.
//   - The driver sleeps: it sleeps on edges, and the kernel wakes it for a connection that is LENT. For a connection
//     that is HELD its goroutine rings. The poll before the sleep sees all earlier data, or notes by goOn that it has
//     stopped early.
//   - Nobody drives: data waits in the sockets. Frames go to the keeper, which calls Config.Wake.
//   - The other end dies: the driver's system call or the keeper meets the end, and recalls the
//     connection. Its goroutine reads what is left, meets the same end, and calls broken: the network
//     aborts unless a better cause comes within Config.Grace.
//   - The lane is closed while a message has been read or written in part: the reader drops the rest (drain). The
//     writer writes the rest from a copy, and then messageLaneClosed (leave). So the posted buffer is free at once, and
//     the stream stays in step to its end.
//   - A message is partly read when the connection is taken back: the goroutine gets the bytes that have been read
//     (serve, begun), and goes on after them. The driver's buffer gets every byte once.
//   - An abort: every goroutine takes its connection back. Writers write the last word between two messages, if the
//     deadline of 0.3 s (abortLinger) leaves them time. A goroutine of Abort writes it in the silent directions.
package tcp
