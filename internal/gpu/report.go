//go:build cgo && linux

package gpu

import (
	"fmt"
	"strings"

	"github.com/gorovod/gorovod/internal/gpu/cuda"
	"github.com/gorovod/gorovod/internal/gpu/nccl"
)

// Report describes the CUDA and the NCCL of this process in lines of text, and how it moves tensors of devices. It
// starts CUDA.
func Report() string {
	var b strings.Builder
	loaded := cuda.LoadedFiles()
	driver, noDriver := cuda.Open()
	if noDriver != nil {
		fmt.Fprintf(&b, "CUDA's driver: none\n")
	} else {
		fmt.Fprintf(&b, "CUDA's driver: %s, for CUDA up to %s\n", driver.Path(), cuda.VersionText(driver.Version()))
		devices(&b, driver)
	}
	if major := cuda.RuntimeMajor(loaded); major > 0 {
		fmt.Fprintf(&b, "CUDA's runtime in this process: version %d\n", major)
	} else {
		b.WriteString("CUDA's runtime in this process: none, so the framework has no CUDA, or has not been imported\n")
	}
	library, noLibrary := nccl.Open()
	if noLibrary != nil {
		fmt.Fprintf(&b, "NCCL: none\n")
	} else {
		fmt.Fprintf(&b, "NCCL: %s, %s%s%s\n", library.Path(), nccl.VersionText(library.Version()), builtFor(library),
			abilities(library))
	}
	b.WriteString("Tensors of GPUs: " + verdict(driver, library, noDriver, noLibrary) + "\n")
	return b.String()
}

// verdict says how tensors of devices travel, with each reason that keeps them from NCCL.
func verdict(driver *cuda.Driver, library *nccl.Library, reasons ...error) string {
	if driver != nil && library != nil {
		reasons = append(reasons, library.Runs(driver))
	}
	var texts []string
	for _, reason := range reasons {
		if reason != nil {
			texts = append(texts, "\n  "+strings.ReplaceAll(reason.Error(), "\n", "\n  "))
		}
	}
	if len(texts) == 0 {
		return "by NCCL, unless GOROVOD_GPU says otherwise"
	}
	return "copied through host memory, because" + strings.Join(texts, "")
}

func devices(b *strings.Builder, driver *cuda.Driver) {
	for i := range driver.Count() {
		d, err := driver.Device(i)
		if err != nil {
			fmt.Fprintf(b, "device %d: %v\n", i, err)
			continue
		}
		fmt.Fprintf(b, "device %d: %s, %.1f GB, compute capability %d.%d, %s, at %s\n", i, d.Name,
			float64(d.Memory)/1e9, d.Major, d.Minor, d.UUID, d.Bus)
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
