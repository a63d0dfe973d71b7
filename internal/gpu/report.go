//go:build cgo && linux

package gpu

import (
	"fmt"
	"io"
	"strings"

	"github.com/gorovod/gorovod/internal/config"
	"github.com/gorovod/gorovod/internal/gpu/cuda"
	"github.com/gorovod/gorovod/internal/gpu/nccl"
)

// Report writes lines that describe the CUDA and the NCCL of this process, and how it moves tensors of devices with a
// wish. It starts CUDA. Each part of a line is written as soon as it is known, because the libraries may hang or end
// the process.
func Report(w io.Writer, wish config.GPU) {
	loaded := cuda.LoadedFiles()
	driver, noDriver := reportDriver(w)
	if major := cuda.RuntimeMajor(loaded); major > 0 {
		fmt.Fprintf(w, "CUDA's runtime in this process: version %d\n", major)
	} else {
		fmt.Fprintln(w, "CUDA's runtime in this process: none, so the framework has no CUDA, or has not been imported")
	}
	fmt.Fprint(w, "NCCL: ")
	library, noLibrary := nccl.Open()
	if noLibrary != nil {
		fmt.Fprintln(w, "none")
	} else {
		fmt.Fprintf(w, "%s, %s%s%s\n", library.Path(), nccl.VersionText(library.Version()), builtFor(library),
			abilities(library))
	}
	reasons := []error{noDriver, noLibrary}
	if driver != nil && library != nil {
		reasons = append(reasons, library.Runs(driver))
	}
	fmt.Fprintf(w, "Tensors of GPUs: %s\n", verdict(wish, reasons))
}

func reportDriver(w io.Writer) (*cuda.Driver, error) {
	fmt.Fprint(w, "CUDA's driver: ")
	driver, err := cuda.Open()
	if err != nil {
		fmt.Fprintln(w, "none")
		return nil, err
	}
	fmt.Fprintf(w, "%s, for CUDA up to %s\n", driver.Path(), cuda.VersionText(driver.Version()))
	reportDevices(w, driver)
	return driver, nil
}

// verdict says how tensors of devices travel, with each reason that keeps them from NCCL.
func verdict(wish config.GPU, reasons []error) string {
	var texts []string
	for _, reason := range reasons {
		if reason != nil {
			texts = append(texts, "\n  "+strings.ReplaceAll(reason.Error(), "\n", "\n  "))
		}
	}
	why := strings.Join(texts, "")
	switch {
	case wish == config.GPUStaged || wish == config.GPUOff:
		return map[config.GPU]string{config.GPUStaged: "copied through host memory", config.GPUOff: "refused"}[wish] +
			fmt.Sprintf(", because GOROVOD_GPU=%s asks for that", wish)
	case why == "":
		return "by NCCL, unless GOROVOD_GPU says otherwise"
	case wish == config.GPUNCCL:
		return "operations on them fail with GOROVOD_GPU=nccl, because" + why
	}
	return "copied through host memory, because" + why
}

// mostDevices is how many devices a report has. No host has more.
const mostDevices = 64

func reportDevices(w io.Writer, driver *cuda.Driver) {
	for i := range min(driver.Count(), mostDevices) {
		d, err := driver.Device(i)
		if err != nil {
			fmt.Fprintf(w, "device %d: %v\n", i, err)
			continue
		}
		fmt.Fprintf(w, "device %d: %s, %.1f GB, compute capability %d.%d, %s, at %s\n", i, d.Name,
			float64(d.Memory)/1e9, d.Major, d.Minor, d.UUID, d.Bus)
	}
	if more := driver.Count() - mostDevices; more > 0 {
		fmt.Fprintf(w, "and %d more devices\n", more)
	}
}

func builtFor(l *nccl.Library) string {
	if l.CUDA() == 0 {
		return ""
	}
	return fmt.Sprintf(", built for CUDA %d", l.CUDA())
}

// abilities names the features of later NCCLs that this one lacks.
func abilities(l *nccl.Library) string {
	var lacks []string
	if !l.Has(nccl.Float8E4M3) {
		lacks = append(lacks, "fp8 (2.24)")
	}
	if !l.CanShrink() {
		lacks = append(lacks, "communicators that shrink (2.27)")
	}
	if len(lacks) == 0 {
		return ""
	}
	return ", without " + strings.Join(lacks, " and ")
}
