package environment

// Open MPI sets its own variables in all versions, beside those of PMIx, which have
// no number of ranks.
func openMPI(e *variables) Place {
	if !e.has("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE") {
		return Place{}
	}
	p := Place{
		Launcher: OpenMPI, Rank: e.number("OMPI_COMM_WORLD_RANK"), Size: e.number("OMPI_COMM_WORLD_SIZE"),
		LocalRank: e.optional("OMPI_COMM_WORLD_LOCAL_RANK"), LocalSize: e.optional("OMPI_COMM_WORLD_LOCAL_SIZE"),
	}
	if j := jsrun(e); j.Rank == p.Rank && j.Size == p.Size && j.Job != "" {
		return j // its Spectrum MPI is an Open MPI; the number of LSF's job tells its ranks from those of others
	}
	p.PMIx = e.pmix(p.Rank)
	p.oneHostAcross()
	if e.has("PMIX_NAMESPACE") {
		// A number made of mpirun's pid and its host's name, or these themselves. A pid may
		// come again, so mpirun's address is added, where it is told.
		p.Job = "mpirun " + e.text("PMIX_NAMESPACE") + " " + e.text("OMPI_MCA_orte_hnp_uri")
	}
	return p
}

// hydra is what MPICH's mpiexec sets, Intel MPI's, and any other process manager that
// speaks PMI. srun's PMI is left to srun, which tells more.
func hydra(e *variables) Place {
	if !e.has("PMI_RANK", "PMI_SIZE") {
		return Place{}
	}
	p := Place{Launcher: Hydra, Rank: e.number("PMI_RANK"), Size: e.number("PMI_SIZE"), PMI: e.text("PMI_FD")}
	if s := srun(e); s.Launcher == Srun && s.Rank == p.Rank && s.Size == p.Size {
		s.PMI = p.PMI
		return s
	}
	if e.has("MPI_LOCALRANKID", "MPI_LOCALNRANKS") {
		p.LocalRank, p.LocalSize = e.number("MPI_LOCALRANKID"), e.number("MPI_LOCALNRANKS")
	}
	p.oneHostAcross()
	return p
}

// jsrun is what IBM's Job Step Manager sets under LSF.
func jsrun(e *variables) Place {
	if !e.has("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE") {
		return Place{}
	}
	p := Place{
		Launcher: Jsrun, Rank: e.number("JSM_NAMESPACE_RANK"), Size: e.number("JSM_NAMESPACE_SIZE"),
		LocalRank: e.optional("JSM_NAMESPACE_LOCAL_RANK"), LocalSize: e.optional("JSM_NAMESPACE_LOCAL_SIZE"),
	}
	p.oneHostAcross()
	if e.has("LSB_JOBID", "PMIX_NAMESPACE") {
		p.Job = "jsrun " + e.text("LSB_JOBID") + " " + e.text("PMIX_NAMESPACE")
	}
	return p
}

// oneHostAcross fills in what is clear where all ranks are on one host.
func (p *Place) oneHostAcross() {
	if p.OneHost() {
		p.CrossRank, p.CrossSize = 0, 1
	}
}
