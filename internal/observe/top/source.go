package top

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/observe/door"
	"github.com/gorovod/gorovod/internal/observe/flight"
	"github.com/gorovod/gorovod/internal/observe/jobs"
	"github.com/gorovod/gorovod/internal/observe/overview"
)

// source is where the news of a job comes from: the socket of a process on this host that shows it (its launcher, its
// driver, or what rank 0 has started), or its dashboard.
type source struct {
	name   string // for the screen, printable
	gone   string // what to say if the connection ends before the job says how it ended
	url    string // of the dashboard, with the last slash
	token  string // "" for none
	client *http.Client

	// Of a process on this host: which job it shows, the process that stands for the job (itself, or rank 0's), and
	// that one's command line.
	id      overview.Identity
	job     int
	command string
}

// mostCommand is how many characters of a command line a list of jobs may need.
const mostCommand = 200

// connectTime limits the time that a launcher may take to answer.
const connectTime = 10 * time.Second

// find is the source that job names: a process id as gorovod ps prints it, that of any rank here or of the process that
// shows the job, or the address of a page. Without a name it is the one job that runs.
func find(job string, getenv func(string) string) (*source, error) {
	if strings.Contains(job, ":") || strings.Contains(job, "/") {
		return page(job, getenv)
	}
	locals, err := door.Locals()
	if err != nil {
		return nil, fmt.Errorf("the jobs of this host are unknown: %w", err)
	}
	if job == "" {
		return only(locals)
	}
	pid, err := strconv.Atoi(job)
	if err != nil || pid <= 0 {
		return nil, fmt.Errorf("%q is no job: give the process id that gorovod ps prints, or the address of a "+
			"dashboard, such as http://127.0.0.1:9500/. %s", printable.Text(job), listed(locals))
	}
	owner := pid
	if locals[owner] == "" {
		owner = flight.Launcher(pid)
	}
	if name := locals[owner]; name != "" {
		return local(owner, name), nil
	}
	peers, isRank := meeting(pid)
	for _, s := range shown(locals) {
		meets := func(peer string) bool { return slices.Contains(s.id.Peers, peer) }
		if s.id.PID == pid || slices.ContainsFunc(peers, meets) {
			return s, nil
		}
	}
	if isRank || owner != 0 {
		return nil, fmt.Errorf("nothing on this host shows job %d. If mpirun, srun, torchrun or another program has "+
			"started it, start it with GOROVOD_DASHBOARD=0 in the environment of the ranks, and look on rank 0's "+
			"host; with --nnodes, look on node 0. gorovod doctor --dump %[1]d tells what each rank here waits for", pid)
	}
	return nil, fmt.Errorf("there is no job %d on this host. %s", pid, listed(locals))
}

// meeting is where a rank on this host has met the others, if this process is a rank: see overview.Identity. A rank
// that does not answer has no peers.
func meeting(pid int) (peers []string, isRank bool) {
	running, silent, err := flight.Running()
	if err != nil {
		return nil, false
	}
	for _, dumps := range running {
		for _, d := range dumps {
			if d.PID == pid {
				return strings.Fields(d.Job), true
			}
		}
	}
	return nil, slices.ContainsFunc(silent, func(s flight.Silent) bool { return s.PID == pid })
}

// only is the one job of this user that runs here. The error is several if there are more.
func only(locals map[int]string) (*source, error) {
	switch all := shown(locals); len(all) {
	case 0:
		return nil, errors.New(listed(locals))
	case 1:
		return all[0], nil
	default:
		return nil, &several{jobs: all}
	}
}

// listed says which jobs there are.
func listed(locals map[int]string) string {
	switch all := shown(locals); len(all) {
	case 0:
		return "No job of this user runs on this host that its launcher shows, or rank 0 by GOROVOD_DASHBOARD"
	case 1:
		return fmt.Sprintf("This one runs: %d (%s)", all[0].job, jobs.CommandOf(all[0].job, jobs.MostCommand))
	default:
		return (&several{jobs: all}).Error()
	}
}

// shown are the jobs of this user that processes on this host show; root's are those of all users.
func shown(locals map[int]string) (all []*source) {
	for _, pid := range slices.Sorted(maps.Keys(locals)) {
		if mine(pid) {
			all = append(all, local(pid, locals[pid]))
		}
	}
	return all
}

// local is the job that the process with this id shows by the socket of that name.
func local(pid int, name string) *source {
	dial := func(context.Context, string, string) (net.Conn, error) {
		c, err := door.DialLocal(pid, name, connectTime)
		if errors.Is(err, door.ErrOther) {
			err = fmt.Errorf("job %d belongs to another user: ask as this user or as root, with sudo for instance", pid)
		}
		return c, err
	}
	s := &source{url: "http://localhost/",
		gone: fmt.Sprintf("process %d, which shows the job, has ended without a word, so it was killed", pid),
		client: &http.Client{Transport: &http.Transport{DialContext: dial,
			ResponseHeaderTimeout: connectTime}}}
	s.identify()
	s.job = cmp.Or(s.id.PID, pid)
	s.command = jobs.CommandOf(s.job, mostCommand)
	s.name = fmt.Sprintf("job %d: %s", s.job, jobs.Short(s.command, jobs.MostCommand))
	return s
}

const (
	identityTime = 2 * time.Second // for an answer: a process that shows a job may be stopped
	mostIdentity = 1 << 20
)

// identify asks a process on this host which job it shows. Without an answer id stays empty.
func (s *source) identify() {
	ctx, cancel := context.WithTimeout(context.Background(), identityTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"identity", nil)
	if err != nil {
		return
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		json.NewDecoder(io.LimitReader(answer.Body, mostIdentity)).Decode(&s.id)
	}
}

// page is a dashboard.
func page(address string, getenv func(string) string) (*source, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is no address of a dashboard, such as http://127.0.0.1:9500/",
			printable.Text(address))
	}
	u.Path, u.RawQuery, u.Fragment, u.User = "/", "", "", nil
	o, err := door.From("0", getenv)
	if err != nil {
		return nil, err
	}
	return &source{name: printable.Text(u.String()), url: u.String(), token: o.Token,
		gone: "the connection to the dashboard has ended",
		client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the token is not for others
		}, Transport: &http.Transport{ResponseHeaderTimeout: connectTime,
			DialContext: (&net.Dialer{Timeout: connectTime}).DialContext}}}, nil
}

// maxEvent bounds an event: a Snapshot of 65,536 ranks has less.
const maxEvent = 64 << 20

// follow hands each Snapshot to see. When the job has ended, it returns how. It returns an error if it cannot tell, or
// if ctx is done.
func (s *source) follow(ctx context.Context, see func(*overview.Snapshot)) (e overview.Ending, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"events", nil)
	if err != nil {
		return e, err
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	answer, err := s.client.Do(r)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // the address stands in the name
		}
		return e, fmt.Errorf("%s: %w", s.name, err)
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized:
		return e, fmt.Errorf("%s: it wants a token: set %s to the job's", s.name, door.TokenFileVariable)
	default:
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 200))
		return e, fmt.Errorf("%s: %s: %s", s.name, printable.Text(answer.Status),
			printable.Text(strings.TrimSpace(string(text))))
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxEvent)
	kind := ""
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "event":
			kind = value
		case name == "data" && kind == "now":
			var now overview.Snapshot
			if err := json.Unmarshal([]byte(value), &now); err != nil {
				return e, fmt.Errorf("%s: an event: %w", s.name, err)
			}
			see(&now)
		case name == "data" && kind == "end":
			return e, json.Unmarshal([]byte(value), &e)
		}
	}
	if ctx.Err() != nil {
		return e, ctx.Err()
	}
	return e, fmt.Errorf("%s: %s", s.name, s.gone)
}

// mine reports whether a process is this user's, or whether this user is root.
func mine(pid int) bool {
	if os.Getuid() == 0 {
		return true
	}
	return owner(pid) == os.Getuid()
}
