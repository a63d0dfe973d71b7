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

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/peercred"
)

// prefix begins the names of the sockets. The process id follows, and a number that distinguishes the worlds of one
// process. The sockets are abstract, so they leave no files behind.
const prefix = "gorovod/flight/"

const (
	// patience is how long one end of a connection waits for the other end to make progress.
	patience = 2 * time.Second
	// mostPatience is the time limit of a whole answer. The longest answer of a rank takes seconds if other programs
	// use the cores.
	mostPatience = 20 * time.Second
)

// steady is a connection that fails if its other end makes no progress for patience, or if the time limit is over.
type steady struct {
	net.Conn
	end time.Time
}

func newSteady(c net.Conn) steady { return steady{c, time.Now().Add(mostPatience)} }

func (p steady) Read(b []byte) (int, error) {
	p.wait()
	return p.Conn.Read(b)
}

// Write writes b in pieces, because each piece counts as progress.
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

// Serve answers each process that asks, if it runs as this user or as root, until the listener is closed.
func Serve(l *net.UnixListener, dump func() *Dump) {
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // descriptors have run out, for instance
			time.Sleep(patience / 10)
			continue
		}
		if peercred.Trusted(c) {
			dump().Write(newSteady(c))
		}
		c.Close()
	}
}

// Ask asks the ranks on this host of the job to which a process belongs: the launcher, a supervisor or a rank. silent
// are the ranks below the process that do not answer. If ranks of several jobs run below the process, as below a login
// shell or init, it belongs to no job: the error then names the ranks to choose from.
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
	jobs := map[string]int{} // by job: a rank below the process
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

// Running returns the dumps of all of this user's jobs that run on this host, by rank. silent are this user's processes
// that do not answer, and those of other users.
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

// askAll asks every process that has a socket. all are the answers by job. answers are the jobs in which each such
// process is a rank; none if it is silent. long are the processes whose answer is too long. It asks the processes of
// each user separately, so that those of one user can neither hide nor delay another's.
func askAll() (all map[string][]*Dump, answers map[int][]string, long map[int]bool, err error) {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, nil, nil, err
	}
	all, answers, long = map[string][]*Dump{}, map[int][]string{}, map[int]bool{}
	asked := map[string]bool{} // connections that a process has not accepted have the name of its socket
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
			c.Close() // another user's process, which would answer only to deceive
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
			if job == "" { // a job of one rank, which has no rendezvous
				job = fmt.Sprint("alone ", d.PID)
			}
			all[job] = append(all[job], d)
			answers[u.owners[i]] = append(answers[u.owners[i]], job)
		}
	}
	return all, answers, long, nil
}

// users are the sockets of one user, and the answers.
type users struct {
	owners []int
	conns  []net.Conn
	dumps  []*Dump      // by socket; nil if there is no answer
	long   []bool       // the answer is too long
	left   atomic.Int64 // how many bytes all answers together may still have
}

// mostOf is the most bytes of the answers of all processes of a user together. Root trusts no other user: from such a
// user's processes it reads as many bytes as a dozen ranks write that keep the most records that GOROVOD_FLIGHT_RECORDS
// allows.
func mostOf(uid uint32) int64 {
	if int(uid) == os.Getuid() {
		return mostOfUser * maxDump
	}
	return 4 * maxDump
}

// rationed reads an answer. Its bytes count against the user's limit.
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

// mostOfUser is how many sockets of one user are asked.
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

// unanswered leaves a question without an answer, as any failure to ask does.
func unanswered(error) {}

// ask asks all of them at once. It takes at most patience, however many are silent; at most mostPatience if one answers
// slowly.
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

// ownerOf is the process that owns a socket: the one in the socket's name, if the listening user owns that process.
// Without this check any user could name a socket after another user's process.
func ownerOf(name string, cred *unix.Ucred) int {
	text, _, _ := strings.Cut(strings.TrimPrefix(name, "@"+prefix), "/")
	var st unix.Stat_t
	if pid, err := strconv.Atoi(text); err == nil && unix.Stat(fmt.Sprintf("/proc/%d", pid), &st) == nil &&
		st.Uid == cred.Uid {
		return pid
	}
	return int(cred.Pid)
}

// dial connects to a socket, and says which process listens there. It does not wait: if many connections are pending,
// the kernel refuses at once.
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

// maxNamed is how many ranks an error lists.
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

// isLauncher reports whether a process is one of our launchers, by the name under which it was started.
func isLauncher(pid int) bool {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := strings.Cut(string(line), "\x00")
	name = filepath.Base(name)
	return name == "horovodrun" || name == "gorovod"
}

// below reports whether a process is ancestor, or descends from it.
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

// stat is the fields of a process in /proc/PID/stat, from the state on; nil if there is no process.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}
