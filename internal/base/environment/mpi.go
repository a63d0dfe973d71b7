package environment

// Open MPI sets its own variables in all versions, besides those of PMIx, which do not tell the number of ranks.
func openMPI(e *variables) Place {
	if !e.has("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE") {
		return Place{}
	}
	p := Place{
		Launcher: OpenMPI, Rank: e.number("OMPI_COMM_WORLD_RANK"), Size: e.number("OMPI_COMM_WORLD_SIZE"),
		LocalRank: e.optional("OMPI_COMM_WORLD_LOCAL_RANK"), LocalSize: e.optional("OMPI_COMM_WORLD_LOCAL_SIZE"),
	}
	if j := jsrun(e); j.Rank == p.Rank && j.Size == p.Size && j.Job != "" {
		return j // jsrun's Spectrum MPI is an Open MPI. The number of LSF's job distinguishes its ranks from others
	}
	p.PMIx = e.pmix(p.Rank)
	p.oneHostAcross()
	if e.has("PMIX_NAMESPACE") {
		// The namespace is a number made of mpirun's pid and its host's name, or these themselves. A pid may come
		// again, so the name also has mpirun's address, if that is known.
		p.Job = "mpirun " + e.text("PMIX_NAMESPACE") + " " + e.text("OMPI_MCA_orte_hnp_uri")
	}
	return p
}

// hydra reads the variables of MPICH's mpiexec, of Intel MPI's, and of any other process manager with PMI. It leaves
// srun's PMI to the function srun, whose variables tell more.
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

// jsrun reads the variables of IBM's Job Step Manager under LSF.
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

// oneHostAcross sets the cross rank and size if all ranks are on one host.
func (p *Place) oneHostAcross() {
	if p.OneHost() {
		p.CrossRank, p.CrossSize = 0, 1
	}
}
