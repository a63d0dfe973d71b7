package hosts

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/cluster"
)

// overMPI makes MPI carry the data. The ranks find one another by MPI, too.
const overMPI = "HOROVOD_CONTROLLER=mpi"

// Ranks that mpirun starts on several hosts find one another in each of the ways, and compute right results.
func TestStartedByMpirun(t *testing.T) {
	t.Parallel()
	for _, m := range cluster.Mpiruns {
		t.Run(m.Name, func(t *testing.T) {
			c := newCluster(t, 2)
			noPMIx := c.File("prefix")
			if err := os.MkdirAll(noPMIx+"/lib", 0o700); err != nil {
				t.Fatal(err)
			}
			c.Write("prefix/lib/libpmix.so.2", "no library")
			for name, env := range map[string][]string{
				"over MPI": {overMPI},
				"over MPI, at the usual places": {"HOROVOD_CONTROLLER=gloo", "HOROVOD_CPU_OPERATIONS=mpi", secret(t),
					"HOROVOD_GLOO_RENDEZVOUS_ADDR=" + c.Hosts[0].Address, "HOROVOD_GLOO_RENDEZVOUS_PORT=4710"},
				"by a shared directory":       {"GOROVOD_RENDEZVOUS_DIR=" + c.Dir},
				"by what the launcher offers": {"HOME=/proc"}, // nobody can write there
				"in the home directory":       {"HOME=" + c.Dir, "PMIX_INSTALL_PREFIX=" + noPMIx},
				"by a secret and an address": {secret(t), "HOROVOD_GLOO_RENDEZVOUS_ADDR=" + c.Hosts[0].Address,
					"HOROVOD_GLOO_RENDEZVOUS_PORT=4711"},
				"by a secret, under TLS": {secret(t), "HOROVOD_GLOO_RENDEZVOUS_ADDR=" + c.Hosts[0].Address,
					"HOROVOD_GLOO_RENDEZVOUS_PORT=4712", "GOROVOD_TLS=1"},
				"over MPI, its own hierarchy": {overMPI, "HOROVOD_HIERARCHICAL_ALLREDUCE=1"},
				"by a directory, flat allreduce": {"GOROVOD_RENDEZVOUS_DIR=" + c.Dir,
					"HOROVOD_HIERARCHICAL_ALLREDUCE=0"},
			} {
				t.Run(name, func(t *testing.T) {
					j := c.mpirun(t, m, false, does("collectives", env...))
					j.expect(0)
					for r := range 4 {
						if place := fmt.Sprintf("all is right on rank %d of 4, %d of 2 here", r,
							r%2); !strings.Contains(j.stdout.String(), place) {
							t.Errorf("there is no %q in\n%s%s", place, &j.stdout, &j.stderr)
						}
					}
				})
			}
		})
	}
}

// Ranks of Open MPI meet by PMIx, and say so. They need no directory that all hosts share. If a rank does not come, the
// others do not wait for ever.
func TestMeetByPMIx(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	openMPI := cluster.Mpiruns[0]
	j := c.mpirun(t, openMPI, false, does("collectives", "HOME=/proc", "HOROVOD_LOG_LEVEL=debug"))
	j.expect(0, "mpirun of Open MPI, and meet by PMIx")
	c.absent(t, openMPI, "PMIx", map[string]string{
		"3": `rank 3 of 4 \(not heard of, started on host h1\); ranks 0, 1, 2 are there`,
		"0": `rank 0 of 4 \(not heard of, started on host h0\); ranks 1, 2, 3 are there`,
		// mpirun was told this name of the host
		"2,3": `rank 2 of 4 \(not heard of, started on host 10.78.0.2\), rank 3 of 4 \(not heard of, started on host 10.78.0.2\); ranks 0, 1 are there`,
	})
}

// Ranks of MPICH meet by PMI in the same way.
func TestMeetByPMI(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	mpich := cluster.Mpiruns[1]
	j := c.mpirun(t, mpich, false, does("collectives", "HOME=/proc", "HOROVOD_LOG_LEVEL=debug"))
	j.expect(0, `mpiexec \(PMI\), and meet by PMI`)
	c.absent(t, mpich, "PMI", map[string]string{
		"3": `rank 3 of 4 \(not heard of, started on host h1\); ranks 0, 1, 2 are there`,
		"0": `rank 0 of 4 \(not heard of, started on host h0\); ranks 1, 2, 3 are there`,
		// PMI does not tell the name of that host
		"2,3": `rank 2 of 4 \(not heard of, started on host number 2 of 2\), rank 3 of 4 \(not heard of, started on host number 2 of 2\); ranks 0, 1 are there`,
	})
}

// absent checks the errors of an mpirun's ranks when some do not come. told has the expected error for each list of
// absent ranks, comma-separated. There are two ranks on each host.
func (c *testCluster) absent(t *testing.T, m cluster.Mpirun, way string, told map[string]string) {
	for absent, told := range told {
		j := c.mpirun(t, m, false, does("absent", "ABSENT="+absent, "PRESENT="+t.TempDir(), "HOME=/proc",
			"HOROVOD_GLOO_TIMEOUT_SECONDS=2"))
		began := time.Now()
		var texts []string
		for r := range 4 {
			if !strings.Contains(absent, fmt.Sprint(r)) {
				texts = append(texts,
					fmt.Sprintf(
						`rank %d of 4 on host h%d: (find rank 0|tell the other ranks) by %s: waited [0-9.]+s for `, r,
						r/2,
						way)+told)
			}
		}
		// Hydra kills the other ranks as soon as one has ended, and may fail at that
		j.expect(anyFailure, texts...)
		t.Logf("without %s: %.1f s in all", absent, time.Since(began).Seconds())
	}
}

// mpirun prepares an mpirun on h0 with two ranks on each host. spare is that of Cluster.Mpirun.
func (c *testCluster) mpirun(t *testing.T, m cluster.Mpirun, spare bool, env []string) *job {
	j := &job{t: t, Cmd: c.Mpirun(context.Background(), t, m, 2, spare, env, self())}
	j.WaitDelay = time.Second
	j.over = make(chan struct{})
	j.Stdout, j.Stderr = &j.stdout, &j.stderr
	return j
}

func secret(t *testing.T) string {
	return "HOROVOD_SECRET_KEY=" + hex.EncodeToString([]byte(t.Name()))
}

// When a rank is killed or a host is cut off, all other ranks end soon, and name it, with each carrier.
func TestDeathUnderMpirun(t *testing.T) {
	t.Parallel()
	for _, m := range cluster.Mpiruns {
		for carrier, env := range map[string]string{"MPI": overMPI, "itself": "HOME="} {
			t.Run(m.Name+" starts, "+carrier+" carries, a rank is killed", func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, 2)
				j := c.lose(t, m, env, func(pids []int) { syscall.Kill(pids[3], syscall.SIGKILL) })
				j.told(m, c.Dir, []int{0, 1, 2}, `rank 3 `)
			})
			t.Run(m.Name+" starts, "+carrier+" carries, a wire is cut", func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, 2)
				j := c.lose(t, m, env, func([]int) { c.Hosts[1].Link(t, "down") })
				j.told(m, c.Dir, []int{0, 1}, `rank [23] on host h1 `)
				j.told(m, c.Dir, []int{2, 3}, `rank [01] on host h0 `)
			})
		}
	}
}

// lose runs a job of the program "teller", calls lose when its ranks work, and returns when no rank is left.
func (c *testCluster) lose(t *testing.T, m cluster.Mpirun, env string, lose func(pids []int)) *job {
	mark := "HOSTS_TEST_MARK=" + hex.EncodeToString([]byte(t.Name())) + strconv.Itoa(os.Getpid())
	if env == "HOME=" {
		env += c.Dir
	}
	j := c.mpirun(t, m, true, does("teller", env, mark, "TOLD="+c.Dir, "GOROVOD_HEARTBEAT_SECONDS=5",
		fmt.Sprintf("HOROVOD_GLOO_TIMEOUT_SECONDS=%v", slowStart.Seconds())))
	if err := j.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { j.Wait(); close(j.over) }()
	defer func() {
		for _, p := range cluster.Marked(mark, "") { // the launchers' processes, which do not notice a cut wire
			syscall.Kill(p, syscall.SIGKILL)
		}
		j.Process.Kill()
		<-j.over
		cluster.NobodyLeft(t, mark, 10*time.Second)
	}()
	var pids []int
	for r := range 4 {
		pid, err := strconv.Atoi(j.await(c.File(fmt.Sprint("pid", r))))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	begin := time.Now()
	lose(pids)
	for r, pid := range pids {
		for alive(pid) {
			if time.Since(begin) > 40*time.Second {
				t.Errorf("rank %d does not end: %s", r, readFile(t, fmt.Sprintf("/proc/%d/wchan", pid)))
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	t.Logf("all have ended %.1f s later", time.Since(begin).Seconds())
	return j
}

// slowStart is the longest time for the ranks of lose to start. On busy cores they start one after another.
const slowStart = 80 * time.Second

// await waits for a file, and returns its contents.
func (j *job) await(name string) string {
	j.t.Helper()
	deadline := time.After(slowStart)
	for over := false; !over; {
		select {
		case <-j.over:
			over = true
		case <-deadline:
			over = true
		case <-time.After(5 * time.Millisecond):
		}
		if text, err := os.ReadFile(name); err == nil {
			return string(text)
		}
	}
	j.Process.Kill()
	<-j.over
	j.t.Fatalf("there is no %s\n%s%s", name, &j.stdout, &j.stderr)
	return ""
}

// alive reports whether a process runs. It is false for a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

// crashed reports whether the mpirun of a job that has ended died by itself. Open MPI's may crash when it passes on
// MPI's message about a lost connection. Then the ranks on other hosts end.
func (j *job) crashed() bool {
	status, ok := j.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() != syscall.SIGKILL // SIGKILL comes from the test
}

// told checks the errors of a host's survivors. Not every survivor has one:
//   - An mpirun that does not spare survivors may kill all but one before they have written it. If it names the cause
//     itself, it may kill all.
//   - An mpirun that has crashed may have killed any of them.
//   - A rank that does not return from MPI writes the error as it ends.
func (j *job) told(m cluster.Mpirun, dir string, ranks []int, cause string) {
	j.t.Helper()
	silent := 0
	for _, r := range ranks {
		text, err := os.ReadFile(fmt.Sprintf("%s/told%d", dir, r))
		hung := regexp.MustCompile(fmt.Sprintf(`\[rank %d\]: .*%s.* MPI hangs`, r, cause))
		switch {
		case err != nil && hung.MatchString(j.stderr.String()):
			j.t.Logf("rank %d: %s", r, hung.FindString(j.stderr.String()))
		case err != nil && (!m.Spares || j.crashed()):
			silent++
		case err != nil || !regexp.MustCompile(cause).Match(text):
			j.t.Errorf("rank %d is told %q, %v, which is not of %s\n%s%s", r, text, err, cause, &j.stdout, &j.stderr)
		default:
			j.t.Logf("rank %d is told: %s", r, text)
		}
	}
	if j.crashed() {
		j.t.Logf("mpirun has crashed: %v\n%s", j.ProcessState, &j.stderr)
	} else if silent == len(ranks) && !regexp.MustCompile(`(?i)signal:? *9|exit code: 9`).MatchString(
		j.stdout.String()+j.stderr.String()) {
		j.t.Errorf("nobody says why ranks %v have ended\n%s%s", ranks, &j.stdout, &j.stderr)
	}
}
