// Command generate lists what is linked into gorovod's programs, besides gorovod: the licences' texts, or, with -sbom,
// a software bill of materials of built programs.
//
// It fails on a licence that is not one of the permissive ones that it knows.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	out := flag.String("o", "", "the `file` to write; without it, stdout")
	sbom := flag.Bool("sbom", false, "write a bill of materials (CycloneDX) of the files that are the arguments")
	flag.Parse()
	if err := run(*out, *sbom, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "generate: %v\n", err)
		os.Exit(1)
	}
}

func run(out string, sbom bool, files []string) error {
	modules, err := linked()
	if err != nil {
		return err
	}
	text := notices(modules)
	if sbom {
		if text, err = bill(modules, files); err != nil {
			return err
		}
	}
	if out != "" {
		return os.WriteFile(out, []byte(text), 0o666)
	}
	_, err = io.WriteString(os.Stdout, text)
	return err
}
