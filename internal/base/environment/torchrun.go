package environment

import "net"

// torchrun's agents start equally many ranks on each host, host after host, and tell the number of the host
// (GROUP_RANK). Other programs set only the first four of its variables, for torch.distributed.
func torchrun(e *variables) Place {
	if !e.has("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") {
		return Place{}
	}
	p := Place{
		Launcher: Torchrun, Rank: e.number("RANK"), Size: e.number("WORLD_SIZE"),
		LocalRank: e.optional("LOCAL_RANK"), LocalSize: e.optional("LOCAL_WORLD_SIZE"),
		Head: e.text("MASTER_ADDR"),
	}
	if p.LocalSize > 0 && p.Size%p.LocalSize == 0 && e.has("GROUP_RANK") {
		p.CrossRank, p.CrossSize = e.number("GROUP_RANK"), p.Size/p.LocalSize
	}
	if p.CrossRank >= p.CrossSize { // hosts of different sizes
		p.CrossRank, p.CrossSize = 0, 0
	}
	p.Job = "torchrun " + e.text("TORCHELASTIC_RUN_ID") + " " + net.JoinHostPort(p.Head, e.text("MASTER_PORT")) + " " +
		e.text("TORCHELASTIC_RESTART_COUNT")
	return p
}
