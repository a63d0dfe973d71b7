package otlp

import (
	"strings"
	"sync"
	"time"
)

// Job makes spans of the events of a job:
//
//	job                  from the launcher's start to its end; failed if the job has
//	├── world            a world of ranks, from its beginning to the next one's, or to the job's end; a world begins
//	│   │                when a rank of the one before has failed, or else when its workers have gathered
//	│   ├── form         until all its ranks have joined
//	│   ├── steps        the steps that ended in some seconds
//	│   │   └── late     a rank for which the others waited then
//	│   └── failure      a message of the launcher about an error, such as the death of a rank
//	└── world …          an elastic job's next
//
// The methods of a nil Job do nothing. They never block, except End.
type Job struct {
	e       *exporter
	program string
	trace   string
	id      string // of the job's span
	began   time.Time
	over    chan struct{}
	forming sync.WaitGroup

	mu     sync.Mutex
	world  *span // the world that has not ended
	worlds int
	broke  time.Time // when the first rank of the present world failed
	turned time.Time // when the present world began

	interval interval // of the present world
	ask      func()   // asks the ranks for their figures
}

// Start begins the job's span. program is the name of the ranks' program.
func Start(o Options, program string) *Job {
	j := &Job{e: newExporter(o), program: program, trace: randomID(16), id: randomID(8), began: time.Now(),
		over: make(chan struct{})}
	j.forming.Go(j.followSteps)
	return j
}

// joinedEvery is how often a Job checks whether a world's ranks have joined.
const joinedEvery = 50 * time.Millisecond

// Form begins a world of size ranks, whose generations are from or later. joined counts those that have joined. ask
// asks all for their figures, which come to Take; it must not block.
func (j *Job) Form(size int, from uint64, joined func() int, ask func()) {
	if j == nil {
		return
	}
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.worlds == 0: // an elastic job's first world is known only once its workers have come
		now = j.began
	case !j.broke.IsZero():
		now = j.broke
	}
	j.endWorld(now)
	j.broke, j.turned = time.Time{}, now
	j.interval, j.ask = interval{from: from, ranks: make([]worker, size)}, ask
	j.worlds++
	about := []attribute{number("horovod.world.number", j.worlds), number("horovod.world.size", size)}
	j.world = &span{TraceID: j.trace, SpanID: randomID(8), ParentID: j.id, Name: "world", Kind: internalKind,
		Start: nanos(now), Attributes: about}
	form := span{TraceID: j.trace, SpanID: randomID(8), ParentID: j.world.SpanID, Name: "form", Kind: internalKind,
		Start: nanos(now), Attributes: about}
	number := j.worlds
	j.forming.Go(func() { j.follow(form, number, size, joined) })
}

// follow ends the span of a world's forming when all ranks have joined, or when the next world begins.
func (j *Job) follow(form span, world, size int, joined func() int) {
	tick := time.NewTicker(joinedEvery)
	defer tick.Stop()
	end := time.Time{}
	for joined() < size && end.IsZero() {
		select {
		case <-tick.C:
		case <-j.over:
			form.Status, end = status{failedStatus, "the job ended before all ranks had joined"}, time.Now()
		}
		j.mu.Lock()
		if j.worlds != world && end.IsZero() {
			form.Status = status{failedStatus, "another world was formed before all ranks had joined"}
			end = j.turned
		}
		j.mu.Unlock()
	}
	if end.IsZero() {
		end = time.Now()
	}
	form.End = nanos(end)
	j.e.add(form)
}

// Broke notes that a rank of the world whose generations are from or later has failed. An elastic job's next world
// begins now: its forming is all the time in which the ranks cannot work.
func (j *Job) Broke(from uint64) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broke.IsZero() && from == j.interval.from {
		j.endInterval()
		j.broke = time.Now()
	}
}

// endWorld ends the present world. The caller holds mu.
func (j *Job) endWorld(now time.Time) {
	if j.world != nil {
		j.endInterval()
		j.world.End = nanos(now)
		j.e.add(*j.world)
		j.world = nil
	}
}

// mostText is how many bytes of a message a span has.
const mostText = 4096

// Fail notes an error of the job. The error gets a span of its own, because its world's span ends later.
func (j *Job) Fail(message string) {
	if j == nil {
		return
	}
	if len(message) > mostText {
		message = message[:mostText]
	}
	message = strings.ToValidUTF8(message, "\ufffd")
	j.mu.Lock()
	parent := j.id
	if j.world != nil {
		parent = j.world.SpanID
	}
	j.mu.Unlock()
	now := nanos(time.Now())
	j.e.add(span{TraceID: j.trace, SpanID: randomID(8), ParentID: parent, Name: "failure", Kind: internalKind,
		Start: now, End: now, Status: status{failedStatus, message},
		Events: []event{{now, "exception", []attribute{text("exception.message", message)}}}})
}

// End ends all spans, and sends the rest; it takes at most 2 s.
func (j *Job) End(code int) {
	if j == nil {
		return
	}
	close(j.over)
	j.forming.Wait()
	now := time.Now()
	j.mu.Lock()
	j.endWorld(now)
	worlds := j.worlds
	j.mu.Unlock()
	s := span{TraceID: j.trace, SpanID: j.id, Name: "job", Kind: internalKind, Start: nanos(j.began), End: nanos(now),
		Attributes: []attribute{text("process.executable.name", j.program), number("process.exit.code", code),
			number("horovod.worlds", worlds)}}
	if code != 0 {
		s.Status.Code = failedStatus
	}
	j.e.add(s)
	j.e.close()
}
