package flight

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/guard"
	"github.com/gorovod/gorovod/internal/peercred"
)

// prefix is how the sockets are called, before the process id; a further number tells
// the worlds of one process apart. They are abstract: nothing is left of them.
const prefix = "gorovod/flight/"

const (
	// patience is how long an end of a connection waits for the other one to do anything.
	patience = 2 * time.Second
	// mostPatience bounds a whole answer. The most that a rank can have to tell takes seconds where other programs use
	// the cores.
	mostPatience = 20 * time.Second
)

// steady is a connection that breaks if its other end does nothing for patience, or at the end.
type steady struct {
	net.Conn
	end time.Time
}

func newSteady(c net.Conn) steady { return steady{c, time.Now().Add(mostPatience)} }

func (p steady) Read(b []byte) (int, error) {
	p.wait()
	return p.Conn.Read(b)
}

// Write writes b in pieces, because each makes some way.
func (p steady) Write(b []byte) (n int, err error) {
	const piece = 64 << 10
	for part := range slices.Chunk(b, piece) {
		p.wait()
		m, err := p.Conn.Write(part)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// wait sets the deadline of the next step.
func (p steady) wait() {
	next := time.Now().Add(patience)
	if next.After(p.end) {
		next = p.end
	}
	p.SetDeadline(next)
}

// Listen opens this process's socket.
func Listen() (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@%s%d/%d", prefix, os.Getpid(),
		time.Now().UnixNano()), Net: "unix"})
}

// Serve answers who asks, if he is this user or root, until the listener is closed.
func Serve(l *net.UnixListener, dump func() *Dump) {
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, say
			time.Sleep(patience / 10)
			continue
		}
		if peercred.Trusted(c) {
			dump().Write(newSteady(c))
		}
		c.Close()
	}
}

// Ask asks the ranks on this host of the job to which a process belongs: the launcher, a
// supervisor or a rank. silent are those below it that do not answer. A process below which
// ranks of several jobs run, as those of a login or of the whole host do, belongs to none:
// the error then names the ranks among which to choose.
func Ask(pid int) (dumps []*Dump, silent []Silent, err error) {
	if _, err := os.Lstat("/proc/self"); err != nil {
		return nil, nil, errors.New("that needs /proc, which is not mounted here: `mount -t proc proc /proc` mounts it")
	}
	if state(pid) == "" {
		return nil, nil, fmt.Errorf("there is no process %d on this host", pid)
	}
	all, answers, long, err := askAll()
	if err != nil {
		return nil, nil, err
	}
	jobs := map[string]int{} // those below the process: a rank of each
	own := ""                // the job in which the process itself is a rank
	for owner, its := range answers {
		if !below(owner, pid) {
			continue
		}
		if len(its) == 0 {
			silent = append(silent, silentOf(owner, long[owner]))
		}
		for _, job := range its {
			jobs[job] = owner
			if owner == pid {
				own = job
			}
		}
	}
	slices.SortFunc(silent, func(a, b Silent) int { return a.PID - b.PID })
	switch {
	case own != "":
		return all[own], silent, nil
	case len(jobs) == 0 && len(silent) > 0:
		return nil, nil, fmt.Errorf("no rank of process %d answers: %s", pid, silent[0].Why())
	case len(jobs) == 0:
		return nil, nil, fmt.Errorf("no rank on this host that answers belongs to process %d", pid)
	case len(jobs) > 1:
		return nil, nil, fmt.Errorf("ranks of %d jobs run below process %d: name one of %s", len(jobs), pid,
			someOf(all, jobs))
	case pid == 1 && !isLauncher(pid):
		return nil, nil, fmt.Errorf("all processes run below process 1, those of any job: name the launcher or a "+
			"rank, such as %s", someOf(all, jobs))
	}
	for job := range jobs {
		dumps = all[job]
	}
	return dumps, silent, nil
}

// Running are the dumps of all jobs of this user that run on this host, by rank. silent are their processes that do not
// answer, and those of other users.
func Running() (jobs [][]*Dump, silent []Silent, err error) {
	all, answers, long, err := askAll()
	if err != nil {
		return nil, nil, err
	}
	for _, job := range slices.Sorted(maps.Keys(all)) {
		slices.SortFunc(all[job], func(a, b *Dump) int { return a.Rank - b.Rank })
		jobs = append(jobs, all[job])
	}
	for _, owner := range slices.Sorted(maps.Keys(answers)) {
		if len(answers[owner]) == 0 {
			silent = append(silent, silentOf(owner, long[owner]))
		}
	}
	return jobs, silent, nil
}

// Launcher is the process id of the launcher that has started a rank's process on this host; 0 if another program did.
func Launcher(pid int) int {
	for range 64 {
		fields := stat(pid)
		if len(fields) < 2 {
			return 0
		}
		pid, _ = strconv.Atoi(fields[1])
		if pid <= 1 {
			return 0
		}
		if isLauncher(pid) {
			return pid
		}
	}
	return 0
}

// askAll asks everyone. all are the answers by job; answers are the jobs in which each
// process that has a socket is a rank, none where it is silent; long are the processes with
// an answer that is too long. Those of one user are asked by themselves, so that the
// processes of another one can neither hide them nor hold them up.
func askAll() (all map[string][]*Dump, answers map[int][]string, long map[int]bool, err error) {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, nil, nil, err
	}
	all, answers, long = map[string][]*Dump{}, map[int][]string{}, map[int]bool{}
	asked := map[string]bool{} // connections that a process has not accepted are called as its socket
	found := map[uint32]*users{}
	for _, line := range strings.Split(string(table), "\n") {
		fields := strings.Fields(line)
		if len(fields) != 8 || !strings.HasPrefix(fields[7], "@"+prefix) || asked[fields[7]] {
			continue
		}
		asked[fields[7]] = true
		c, cred := dial(fields[7])
		if c == nil {
			continue
		}
		owner := ownerOf(fields[7], cred)
		if answers[owner] == nil {
			answers[owner] = []string{}
		}
		if os.Getuid() != 0 && cred.Uid != 0 && int(cred.Uid) != os.Getuid() {
			c.Close() // another user's, who would not answer, unless to deceive
			continue
		}
		if found[cred.Uid] == nil {
			found[cred.Uid] = &users{}
			found[cred.Uid].left.Store(mostOf(cred.Uid))
		}
		found[cred.Uid].add(owner, c)
	}
	var asking sync.WaitGroup
	for _, u := range found {
		guard.In(&asking, "asking the ranks of a user", unanswered, u.ask)
	}
	asking.Wait()
	for _, u := range found {
		for i, d := range u.dumps {
			if u.long[i] {
				long[u.owners[i]] = true
			}
			if d == nil {
				continue
			}
			job := d.Job
			if job == "" { // of one rank, which has no rendezvous
				job = fmt.Sprint("alone ", d.PID)
			}
			all[job] = append(all[job], d)
			answers[u.owners[i]] = append(answers[u.owners[i]], job)
		}
	}
	return all, answers, long, nil
}

// users are the sockets of one user, and what they answer.
type users struct {
	owners []int
	conns  []net.Conn
	dumps  []*Dump      // nil where there is no answer
	long   []bool       // the answer is too long
	left   atomic.Int64 // how many bytes all answers together may still have
}

// mostOf bounds the answers of all processes of a user together. Root trusts no other user: of his processes it reads
// as much as a dozen ranks with the most records that GOROVOD_FLIGHT_RECORDS allows have to tell.
func mostOf(uid uint32) int64 {
	if int(uid) == os.Getuid() {
		return mostOfUser * maxDump
	}
	return 4 * maxDump
}

// rationed reads an answer. Its bytes come out of what those of a user may still have.
type rationed struct {
	answer io.Reader
	left   *atomic.Int64
}

func (r rationed) Read(p []byte) (int, error) {
	n, err := r.answer.Read(p)
	if r.left.Add(-int64(n)) < 0 {
		return 0, errTooLong
	}
	return n, err
}

// mostOfUser bounds how many sockets of one user are asked.
const mostOfUser = 1024

// add adds the socket of a process.
func (u *users) add(owner int, c net.Conn) {
	if len(u.conns) == mostOfUser {
		c.Close()
		return
	}
	u.owners, u.conns = append(u.owners, owner), append(u.conns, c)
	u.dumps, u.long = append(u.dumps, nil), append(u.long, false)
}

// unanswered leaves a question without an answer, which is what a failure to ask it comes to.
func unanswered(error) {}

// ask asks them all at once. It takes at most patience, however many are silent, and at most mostPatience if one tells
// little by little.
func (u *users) ask() {
	var asking sync.WaitGroup
	for i, c := range u.conns {
		guard.In(&asking, "asking a rank", unanswered, func() {
			var err error
			u.dumps[i], err = Read(rationed{newSteady(c), &u.left})
			u.long[i] = errors.Is(err, errTooLong)
			c.Close()
		})
	}
	asking.Wait()
}

// ownerOf is the process whose socket it is: the one that its name says, if the user who listens owns that process,
// too. Else anyone could call a socket by the number of another user's process.
func ownerOf(name string, cred *unix.Ucred) int {
	text, _, _ := strings.Cut(strings.TrimPrefix(name, "@"+prefix), "/")
	var st unix.Stat_t
	if pid, err := strconv.Atoi(text); err == nil && unix.Stat(fmt.Sprintf("/proc/%d", pid), &st) == nil &&
		st.Uid == cred.Uid {
		return pid
	}
	return int(cred.Pid)
}

// dial connects to a socket, and says who listens there. It does not wait: where many have connected, the kernel
// refuses at once.
func dial(name string) (net.Conn, *unix.Ucred) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, nil
	}
	cred, err := peercred.Of(c)
	if err != nil {
		c.Close()
		return nil, nil
	}
	return c, cred
}

// maxNamed bounds how many ranks an error lists.
const maxNamed = 8

// someOf names a rank of each job, by its process.
func someOf(all map[string][]*Dump, jobs map[string]int) string {
	var names []string
	for job, owner := range jobs {
		names = append(names, fmt.Sprintf("%d (rank of a job of %d)", owner, all[job][0].Size))
	}
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed], fmt.Sprintf("%d others", more))
	}
	return strings.Join(names, ", ")
}

// isLauncher reports whether a process is one of ours, by the name under which it was started.
func isLauncher(pid int) bool {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := strings.Cut(string(line), "\x00")
	name = filepath.Base(name)
	return name == "horovodrun" || name == "gorovod"
}

// below reports whether a process is another one or descends from it.
func below(pid, ancestor int) bool {
	for range 64 {
		if pid == ancestor {
			return true
		}
		fields := stat(pid)
		if len(fields) < 2 {
			return false
		}
		var err error
		if pid, err = strconv.Atoi(fields[1]); err != nil || pid <= 1 {
			return pid == ancestor
		}
	}
	return false
}

// stat is what the system tells of a process, from its state on; nil where there is none.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}
