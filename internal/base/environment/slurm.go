package environment

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/base/lazyregexp"
)

// firstSpecialStep is the first number of special steps: the shell of sbatch (0xfffffffb), an interactive step of
// salloc, the container of ssh sessions, and a step that has not begun.
const firstSpecialStep = 0xfffffff0

// srun's step has a number of its own. The shell of sbatch has the variables of a task, too, SLURM_PROCID=0 among them,
// and there SLURM_NTASKS is the number of tasks that the job may start. So a program in that shell runs alone.
func srun(e *variables) Place {
	step := e.text("SLURM_STEP_ID")
	if step == "" {
		step = e.text("SLURM_STEPID") // before Slurm 2.5
	}
	number, err := strconv.ParseUint(step, 10, 32)
	if err != nil || number >= firstSpecialStep || !e.has("SLURM_PROCID") {
		return Place{}
	}
	size := "SLURM_STEP_NUM_TASKS"
	if !e.has(size) {
		size = "SLURM_NTASKS" // that of the step, because this is a step
	}
	if !e.has(size) {
		return Place{}
	}
	p := Place{
		Launcher: Srun, Rank: e.number("SLURM_PROCID"), Size: e.number(size), LocalRank: e.optional("SLURM_LOCALID"),
		Host: e.text("SLURMD_NODENAME"), Nodes: hostNames(e.text("SLURM_STEP_NODELIST")),
		Job: "slurm " + e.text("SLURM_JOB_ID") + "." + step + " " + e.text("SLURM_RESTART_COUNT"),
	}
	if len(p.Nodes) > 0 {
		p.Head = p.Nodes[0]
	}
	p.PMIx = e.pmix(p.Rank) // srun --mpi=pmix
	layout := "SLURM_STEP_TASKS_PER_NODE"
	if !e.has(layout) {
		layout = "SLURM_TASKS_PER_NODE"
	}
	if !e.has(layout, "SLURM_NODEID") {
		return p
	}
	tasks, err := tasksPerNode(e.text(layout))
	node := e.number("SLURM_NODEID")
	switch {
	case err != nil:
		e.fail(layout + ": " + err.Error())
	case sum(tasks) != p.Size || node >= len(tasks):
		return p // the list is another step's, or the job's
	default:
		p.LocalSize = tasks[node]
		for n, count := range tasks {
			if count > p.LocalRank {
				p.CrossSize++
				if n < node {
					p.CrossRank++
				}
			}
		}
	}
	return p
}

// nodeTasks matches one part of Slurm's list: a number of tasks, and the number of consecutive nodes that have it.
var nodeTasks = lazyregexp.New(`^(\d{1,7})(?:\(x(\d{1,7})\))?$`)

// tasksPerNode is the number of tasks of each node from "4(x2),3".
func tasksPerNode(text string) (tasks []int, err error) {
	for _, part := range strings.Split(text, ",") {
		m := nodeTasks().FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("%q: tasks of each node are needed, such as 4(x2),3", text)
		}
		count, _ := strconv.Atoi(m[1])
		nodes := 1
		if m[2] != "" {
			nodes, _ = strconv.Atoi(m[2])
		}
		if len(tasks)+nodes > maxRanks {
			return nil, fmt.Errorf("%q: more than %d nodes", text, maxRanks)
		}
		for range nodes {
			tasks = append(tasks, count)
		}
	}
	return tasks, nil
}

func sum(all []int) (n int) {
	for _, v := range all {
		n += v
	}
	return n
}
