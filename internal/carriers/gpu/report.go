//go:build cgo && linux

package gpu

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/carriers/nccl"
)

// The reports are lines that describe this process. What should not be begins with WRONG. Each part of a line is
// written as soon as it is known, because the libraries may hang or end the process.

// ReportCUDA writes lines about CUDA's driver, its devices, and CUDA's runtime. It starts CUDA.
func ReportCUDA(w io.Writer) {
	loaded := cuda.LoadedFiles()
	fmt.Fprint(w, "CUDA's driver: ")
	switch file, newest, err := cuda.Present(); {
	case missing(err):
		fmt.Fprintln(w, "none")
	case err != nil:
		fmt.Fprintln(w, "none that can be loaded")
		wrong(w, err)
	default:
		fmt.Fprint(w, file)
		if newest != 0 {
			fmt.Fprintf(w, ", for CUDA up to %s", cuda.VersionText(newest))
		}
		reportStart(w)
	}
	if major := cuda.RuntimeMajor(loaded); major > 0 {
		fmt.Fprintf(w, "CUDA's runtime in this process: version %d\n", major)
	} else {
		fmt.Fprintln(w, "CUDA's runtime in this process: none, so the framework has no CUDA, or has not been imported")
	}
}

// reportStart starts CUDA, ends the driver's line, and reports the devices.
func reportStart(w io.Writer) {
	driver, err := cuda.Open()
	if err != nil {
		fmt.Fprintln(w, ", which fails")
		wrong(w, err)
		return
	}
	fmt.Fprintln(w)
	reportDevices(w, driver)
}

// ReportNCCL writes lines about NCCL, and how this process moves tensors of devices with a wish. It starts CUDA if the
// wish needs that.
func ReportNCCL(w io.Writer, wish config.GPU) {
	fmt.Fprint(w, "NCCL: ")
	library, noLibrary := nccl.Open()
	switch {
	case missing(noLibrary):
		fmt.Fprintln(w, "none")
	case noLibrary != nil:
		fmt.Fprintln(w, "none that can be used")
		wrong(w, noLibrary)
	default:
		fmt.Fprintf(w, "%s, %s%s%s\n", library.Path(), nccl.VersionText(library.Version()), builtFor(library),
			abilities(library))
		if driver, newest, err := cuda.Present(); err == nil {
			if err := library.RunsOn(driver, newest); err != nil {
				wrong(w, err)
			}
		}
	}
	fmt.Fprint(w, "Tensors of GPUs: ")
	if wish == config.GPUStaged || wish == config.GPUOff {
		fmt.Fprintf(w, "%s, because GOROVOD_GPU=%s asks for that\n", map[config.GPU]string{
			config.GPUStaged: "copied through host memory", config.GPUOff: "refused"}[wish], wish)
		return
	}
	driver, noDriver := cuda.Open()
	reasons := []error{noDriver, noLibrary}
	if driver != nil && library != nil {
		reasons = append(reasons, library.Runs(driver))
	}
	fmt.Fprintln(w, verdict(wish, reasons))
}

// missing reports whether an error says only that there is no such library.
func missing(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(e error) bool { return !missing(e) })
	}
	return errors.Is(err, fs.ErrNotExist)
}

func wrong(w io.Writer, err error) { fmt.Fprintf(w, "WRONG: %s\n", indented(err)) }

func indented(err error) string { return strings.ReplaceAll(err.Error(), "\n", "\n  ") }

// verdict says how tensors of devices travel, with each reason that keeps them from NCCL.
func verdict(wish config.GPU, reasons []error) string {
	why := ""
	for _, reason := range reasons {
		if reason != nil {
			why += "\n  " + indented(reason)
		}
	}
	switch {
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
			wrong(w, err)
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
